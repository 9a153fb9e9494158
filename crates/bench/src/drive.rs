//! Operations on a drive without a cache: information, trim, preconditioning, and wear monitoring.
//!
//! [`info`] opens nothing for writing. [`trim`] and [`precondition`] destroy the data of the device, and refuse one that is
//! mounted or in use. The command line asks the user for confirmation.

pub mod expected;
pub mod forecast;
pub mod info;
pub mod json;
pub mod learn;
pub mod log;
pub mod precondition;
pub mod text;
pub mod wear;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::contents::{self, Contents};
use device::file::OpenOptions;
use device::{Clock, DeviceSpec, IoError, Request, SystemClock};

pub use device::Device;

/// Error of an operation on a drive.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The device failed.
    #[error("{0}")]
    Device(#[from] IoError),
    /// The path cannot be read.
    #[error("{path}: {source}", path = path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The operation needs an NVMe namespace.
    #[error("{path} is not an NVMe namespace: {what}", path = path.display())]
    NotNvme {
        /// The path.
        path: PathBuf,
        /// The operation that is not possible.
        what: &'static str,
    },
    /// The operation was stopped.
    #[error("{0}")]
    Stopped(String),
}

/// Opens all of `path` exclusively. Does not create it.
///
/// # Errors
/// It is mounted or in use, or cannot be opened.
pub fn open_whole(path: &Path) -> Result<Arc<dyn Device>, DriveError> {
    std::fs::metadata(path).map_err(|source| DriveError::Path { path: path.into(), source })?;
    if path.is_dir() {
        let source = std::io::ErrorKind::IsADirectory.into();
        return Err(DriveError::Path { path: path.into(), source });
    }
    Ok(DeviceSpec::Path(path.into()).open(&OpenOptions::default())?)
}

/// Recognised contents of `device`, opened at `path`. A hybrid cache does not count, because its data may always be lost.
///
/// # Errors
/// The device cannot be read, so its contents are unknown.
pub fn foreign(path: &Path, device: &dyn Device) -> Result<Option<Contents>, IoError> {
    Ok(contents::of(path, device)?.filter(|held| *held != Contents::HybridCache))
}

/// The machine's clock, for measuring rates.
#[must_use]
pub fn clock() -> &'static dyn Clock {
    &SystemClock
}

/// Bytes per trim, so that progress is visible and the user can stop.
const TRIM_STEP_BYTES: u64 = 16 << 30;

/// Trims all of `device`. `watch` receives the bytes done; if it returns false, the trim stops.
///
/// # Errors
/// The device does not support trim, or fails, or `watch` returned false.
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
