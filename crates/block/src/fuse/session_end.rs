//! Unmounts a file system whose session ends before it is unmounted.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rustix::mount::{UnmountFlags, unmount};

use super::{topmost_mount, unmount_with_helper};

/// Called when a session has failed and its file system is unmounted.
pub type OnFailure = Box<dyn FnOnce() + Send + Sync>;

/// Unmounts the file system when the session drops it, if it is still mounted then. fuser panics at a request with a time that
/// [`SystemTime`](std::time::SystemTime) cannot hold, and the kernel would wait forever for the answers to that and all later
/// requests. An administrator can also abort the connection.
pub(super) struct SessionEnd {
    path: PathBuf,
    /// Device number of the file system, once it is mounted.
    number: Arc<OnceLock<u64>>,
    on_failure: Option<OnFailure>,
}

impl SessionEnd {
    pub(super) fn new(path: PathBuf, number: Arc<OnceLock<u64>>, on_failure: OnFailure) -> Self {
        Self { path, number, on_failure: Some(on_failure) }
    }
}

impl Drop for SessionEnd {
    fn drop(&mut self) {
        let Some(&number) = self.number.get() else { return };
        // Another file system may be mounted over this one.
        if topmost_mount(&self.path).is_none_or(|mount| mount.number != number) {
            return;
        }
        if unmount(&self.path, UnmountFlags::FORCE | UnmountFlags::DETACH).is_err() {
            // Without privileges: a user may abort the connection of a file system that the user mounted.
            let abort = format!("/sys/fs/fuse/connections/{}/abort", rustix::fs::minor(number));
            let _ = std::fs::write(abort, "1");
            let _ = unmount_with_helper(&self.path);
        }
        if let Some(on_failure) = self.on_failure.take() {
            on_failure();
        }
    }
}
