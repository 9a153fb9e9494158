//! memcached's authentication of the text protocol: the first request is a `set` whose value is `USER PASSWORD`.

use std::path::{Path, PathBuf};

/// Longest value of an authentication, bytes.
pub(crate) const MAX_TOKEN_BYTES: usize = 1024;

/// The users of a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// `USER PASSWORD` each, as a client sends it.
    tokens: Vec<Vec<u8>>,
}

/// The reason why a user file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A line is not `USER:PASSWORD`.
    #[error("{} line {line}: not USER:PASSWORD", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// The file contains no users.
    #[error("{} contains no USER:PASSWORD line", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

impl Credentials {
    /// Reads a file with a line `USER:PASSWORD` for each user, as memcached's `--auth-file`.
    ///
    /// # Errors
    /// If the file cannot be read, has an invalid line, or contains no users.
    pub fn read(path: &Path) -> Result<Self, CredentialsError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| CredentialsError::Read { path: path.into(), error })?;
        let mut tokens = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let Some((user, password)) = line.split_once(':').filter(|(user, _)| !user.is_empty()) else {
                return Err(CredentialsError::Line { path: path.into(), line: number + 1 });
            };
            tokens.push(format!("{user} {password}").into_bytes());
        }
        match tokens.is_empty() {
            true => Err(CredentialsError::Empty { path: path.into() }),
            false => Ok(Self { tokens }),
        }
    }

    /// Whether a client may have access. Takes as long for a wrong password as for a right one.
    #[must_use]
    pub(crate) fn permits(&self, token: &[u8]) -> bool {
        self.tokens.iter().fold(false, |permits, known| permits | is_equal(known, token))
    }
}

/// Compares all bytes, so that the time does not depend on the number of equal bytes.
fn is_equal(known: &[u8], given: &[u8]) -> bool {
    let differences =
        known.iter().enumerate().fold(0, |all, (place, byte)| all | byte ^ given.get(place).unwrap_or(&0));
    differences == 0 && known.len() == given.len()
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({} users)", self.tokens.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_permit_the_users_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users");
        std::fs::write(&path, "foo:bar\n\nx:y z\n").unwrap();
        let credentials = Credentials::read(&path).unwrap();
        assert!(credentials.permits(b"foo bar") && credentials.permits(b"x y z"));
        for wrong in [&b""[..], b"foo", b"foo ba", b"foo bar\0", b"foo:bar"] {
            assert!(!credentials.permits(wrong), "{wrong:?}");
        }
        std::fs::write(&path, "foo:bar\nfoo\n").unwrap();
        let error = Credentials::read(&path).unwrap_err().to_string();
        assert!(error.ends_with("line 2: not USER:PASSWORD"), "{error}");
        std::fs::write(&path, "").unwrap();
        assert!(matches!(Credentials::read(&path), Err(CredentialsError::Empty { .. })));
    }
}
