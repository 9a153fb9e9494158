//! Addresses on which a server listens.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A TCP address or a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A TCP address; port 0 selects a free port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("unix: needs a path, as in unix:/run/flashwright.sock".into()),
            Some(path) => Ok(Self::Unix(path.into())),
            None if text.contains('/') => {
                Err(format!("{text:?} is a path: for a Unix socket, write unix:{text}"))
            }
            None => text.parse().map(Self::Tcp).map_err(|_| {
                format!("{text:?} is not an address: write 127.0.0.1:11211, [::1]:11211 or unix:PATH")
            }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Address {
    /// Whether only this machine can connect.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

/// Removes a socket left by an earlier server, on which no process listens.
///
/// # Errors
/// If a process listens on it, or the path is not a socket.
pub(crate) fn remove_stale_socket(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => Err(io::ErrorKind::AlreadyExists.into()),
        Ok(_) if UnixStream::connect(path).is_ok() => Err(io::ErrorKind::AddrInUse.into()),
        Ok(_) => std::fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_tcp_or_unix() {
        assert_eq!("unix:/a".parse(), Ok(Address::Unix("/a".into())));
        assert!("127.0.0.1:1".parse::<Address>().unwrap().is_local());
        assert!(!"0.0.0.0:1".parse::<Address>().unwrap().is_local());
        for wrong in ["unix:", "localhost", "1.2.3.4", ""] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
        let error = "./socket".parse::<Address>().unwrap_err();
        assert!(error.ends_with("write unix:./socket"), "{error}");
    }
}
