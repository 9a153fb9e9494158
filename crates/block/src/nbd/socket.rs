//! Binds a Unix socket. An existing file at its path is kept, unless it is a socket on which no server listens any more.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Maximum length of a socket's path in bytes, without the terminating zero.
const MAX_PATH_BYTES: usize = 107;

/// Listens at `path`. A socket on which no server listens any more is replaced.
///
/// # Errors
/// [`AddrInUse`](io::ErrorKind::AddrInUse) if a server listens there, [`AlreadyExists`](io::ErrorKind::AlreadyExists) if it is not a
/// socket; other errors of `bind`.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    let bytes = path.as_os_str().len();
    if bytes > MAX_PATH_BYTES {
        let message = format!("is {bytes} bytes long; a socket path has at most {MAX_PATH_BYTES}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    // Checked first, because connecting to a regular file fails with the same error as to an unused socket.
    if let Ok(there) = std::fs::symlink_metadata(path) {
        if !there.file_type().is_socket() {
            let message = "exists and is not a socket";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        match UnixStream::connect(path) {
            Ok(_) => {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server is listening there"));
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)?,
            // `bind` below reports the error.
            Err(_) => {}
        }
    }
    UnixListener::bind(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bind_replaces_only_an_unused_socket() {
        let directory = tempfile::tempdir().unwrap();
        let [socket, file, link] = ["socket", "file", "link"].map(|name| directory.path().join(name));
        let first = bind(&socket).unwrap();
        assert_eq!(bind(&socket).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        drop(bind(&socket).unwrap());
        std::fs::write(&file, "mine").unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        for other in [&file, &link, &directory.path().into()] {
            assert_eq!(bind(other).unwrap_err().kind(), io::ErrorKind::AlreadyExists, "{other:?}");
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"mine");
        assert!(link.is_symlink());
    }

    #[test]
    fn too_long_socket_path_is_refused_with_its_length() {
        let directory = tempfile::tempdir().unwrap();
        let of_bytes = |bytes: usize| {
            let name = "x".repeat(bytes - directory.path().as_os_str().len() - 1);
            bind(&directory.path().join(name)).map_err(|error| error.to_string())
        };
        assert!(of_bytes(MAX_PATH_BYTES).is_ok());
        let message = of_bytes(MAX_PATH_BYTES + 1).unwrap_err();
        assert_eq!(message, "is 108 bytes long; a socket path has at most 107");
    }
}
