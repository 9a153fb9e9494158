//! What is done to a drive rather than with a cache: looking at it, trimming it, filling it until it is steady, and
//! watching it wear.
//!
//! [`info`] opens nothing for writing. [`trim`] and [`precondition`] destroy what is on the device, and refuse one that is
//! mounted or that somebody else has; asking the user is the command line's part.

pub mod info;
pub mod json;
pub mod precondition;
pub mod text;
pub mod wear;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::contents::{self, Contents};
use device::file::OpenOptions;
use device::{Clock, DeviceSpec, IoError, Request, SystemClock};

pub use device::Device;

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The device.
    #[error("{0}")]
    Device(#[from] IoError),
    /// A path that cannot be looked at.
    #[error("{path}: {source}", path = path.display())]
    Path {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Only an NVMe namespace will do.
    #[error("{path} is not an NVMe namespace: {what}", path = path.display())]
    NotNvme {
        /// Which.
        path: PathBuf,
        /// What cannot be done with it.
        what: &'static str,
    },
    /// It ended early.
    #[error("{0}")]
    Stopped(String),
}

/// Opens `path` to do something to all of it. Nothing is made, and nobody else may have it.
///
/// # Errors
/// It is mounted, or somebody else's; or it cannot be opened.
pub fn open_whole(path: &Path) -> Result<Arc<dyn Device>, DriveError> {
    std::fs::metadata(path).map_err(|source| DriveError::Path { path: path.into(), source })?;
    if path.is_dir() {
        let source = std::io::ErrorKind::IsADirectory.into();
        return Err(DriveError::Path { path: path.into(), source });
    }
    Ok(DeviceSpec::Path(path.into()).open(&OpenOptions::default())?)
}

/// What `device`, opened at `path`, is known to hold that is not a hybrid cache's, whose contents may always be lost.
///
/// # Errors
/// It cannot be read: it may hold anything then.
pub fn foreign(path: &Path, device: &dyn Device) -> Result<Option<Contents>, IoError> {
    Ok(contents::of(path, device)?.filter(|held| *held != Contents::HybridCache))
}

/// The machine's clock, by which a drive's rate is measured.
#[must_use]
pub fn clock() -> &'static dyn Clock {
    &SystemClock
}

/// Bytes trimmed at once, so that a user sees how far it is and can stop.
const TRIM_STEP_BYTES: u64 = 16 << 30;

/// Forgets all of `device`, telling `watch` how many bytes are done; ends early when that says no.
///
/// # Errors
/// The device does not trim, or fails, or `watch` said no.
pub fn trim(device: &dyn Device, mut watch: impl FnMut(u64) -> bool) -> Result<u64, DriveError> {
    let capacity = device.geometry().capacity_bytes;
    let mut offset = 0;
    while offset < capacity {
        let len = TRIM_STEP_BYTES.min(capacity - offset);
        device.execute(Request::Trim { offset, len })?;
        offset += len;
        if !watch(offset) && offset < capacity {
            return Err(DriveError::Stopped(format!(
                "stopped; the first {offset} of {capacity} bytes are trimmed"
            )));
        }
    }
    device.execute(Request::Flush)?;
    Ok(capacity)
}
