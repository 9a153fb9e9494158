//! Unmounts a file system whose session ends before it is unmounted.

use std::path::PathBuf;

use rustix::mount::{UnmountFlags, unmount};

use super::{topmost_mount, unmount_with_helper};

/// Called when a session has failed and its file system is unmounted.
pub type OnFailure = Box<dyn FnOnce() + Send + Sync>;

/// Unmounts the file system when the session drops it, if it is still mounted then. fuser panics at a request with a time that
/// [`SystemTime`](std::time::SystemTime) cannot hold, and the kernel would wait forever for the answers to that and all later
/// requests. An administrator can also abort the connection.
pub(super) struct SessionEnd {
    path: PathBuf,
    /// Source name of the file system in the mount table.
    source: String,
    on_failure: Option<OnFailure>,
}

impl SessionEnd {
    pub(super) fn new(path: PathBuf, source: String, on_failure: OnFailure) -> Self {
        Self { path, source, on_failure: Some(on_failure) }
    }
}

impl Drop for SessionEnd {
    fn drop(&mut self) {
        // Another file system may be mounted over this one, or in its place.
        let Some(mount) = topmost_mount(&self.path).filter(|mount| mount.source == self.source) else {
            return;
        };
        if unmount(&self.path, UnmountFlags::FORCE | UnmountFlags::DETACH).is_err() {
            // Without privileges: a user may abort the connection of a file system that the user mounted.
            let abort = format!("/sys/fs/fuse/connections/{}/abort", mount.minor);
            let _ = std::fs::write(abort, "1");
            let _ = unmount_with_helper(&self.path);
        }
        if let Some(on_failure) = self.on_failure.take() {
            on_failure();
        }
    }
}
