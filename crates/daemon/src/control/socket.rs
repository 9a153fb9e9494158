//! The listening control socket.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use block::nbd::socket;

use super::service::Service;

/// Pause after a failed accept, for example without free descriptors: retrying immediately would occupy a CPU.
const PAUSE: Duration = Duration::from_millis(50);

/// A listening control socket; dropping it removes the socket.
pub struct ControlSocket {
    path: PathBuf,
    /// Device and inode of the socket, since another process can have replaced it.
    known_by: Option<(u64, u64)>,
    closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Listens at `path`.
#[expect(clippy::disallowed_methods, reason = "the daemon may sleep")]
pub fn listen(path: &Path, service: Arc<Service>) -> io::Result<ControlSocket> {
    let listener = socket::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    let closing = Arc::new(AtomicBool::new(false));
    let closed = Arc::clone(&closing);
    let accept = move || {
        for stream in listener.incoming() {
            if closed.load(Ordering::Acquire) {
                return;
            }
            let Ok(stream) = stream else {
                std::thread::sleep(PAUSE);
                continue;
            };
            let service = Arc::clone(&service);
            let thread = std::thread::Builder::new().name("block-control".into());
            // Without a thread the client sees the connection closed and reports that.
            let _ = thread.spawn(move || service.answer(&stream));
        }
    };
    let thread = std::thread::Builder::new().name("block-control".into()).spawn(accept)?;
    Ok(ControlSocket { path: path.into(), known_by: inode(path), closing, thread: Some(thread) })
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        if inode(&self.path) != self.known_by {
            return;
        }
        // A connection wakes the thread, which blocks in `accept`.
        if UnixStream::connect(&self.path).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}
