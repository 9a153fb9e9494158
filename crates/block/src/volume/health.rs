//! The health of a volume. A flash that failed a write is not trusted until the volume is opened again.

use std::sync::Arc;

use super::config::Health;
use super::error::{Result, VolumeError, VolumeErrorKind};

/// The current errors of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceErrors {
    /// The first error since the device last worked.
    pub first_error: Arc<str>,
    /// Number of errors since then.
    pub errors: u64,
    /// Nanoseconds since the first error.
    pub elapsed_ns: u64,
}

/// The health of a volume and the errors behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Which operations the volume can perform.
    pub health: Health,
    /// Errors of the flash, kept until the volume is opened again.
    pub flash: Option<DeviceErrors>,
    /// Errors of the disk.
    pub disk: Option<DeviceErrors>,
}

/// Whether the flash can be written, and the volume is open.
#[derive(Default)]
pub(super) struct FlashHealth {
    is_closed: bool,
    failure: Option<FlashFailure>,
}

struct FlashFailure {
    first_error: Arc<str>,
    since_ns: u64,
    last_error: VolumeError,
    errors: u64,
}

impl FlashHealth {
    pub(super) fn is_healthy(&self) -> bool {
        !self.is_closed && self.failure.is_none()
    }

    /// Whether the volume is open and its flash has failed.
    pub(super) fn has_failed(&self) -> bool {
        !self.is_closed && self.failure.is_some()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Records a failed write or flush of the flash. Nothing later can be made durable.
    pub(super) fn fail(&mut self, error: VolumeError, now_ns: u64) {
        let failure = self.failure.get_or_insert_with(|| FlashFailure {
            first_error: error.to_string().into(),
            since_ns: now_ns,
            last_error: error.clone(),
            errors: 0,
        });
        (failure.last_error, failure.errors) = (error, failure.errors + 1);
    }

    /// Fails if the volume is closed.
    pub(super) fn check_open(&self) -> Result<()> {
        if self.is_closed { Err(self.error()) } else { Ok(()) }
    }

    /// The error for requests to a failed flash or a closed volume.
    pub(super) fn error(&self) -> VolumeError {
        match &self.failure {
            _ if self.is_closed => VolumeError::new(VolumeErrorKind::Closed, "the volume is closed"),
            Some(failure) => failure.last_error.clone(),
            None => VolumeError::new(VolumeErrorKind::Flash, "the flash failed"),
        }
    }

    pub(super) fn errors(&self) -> u64 {
        self.failure.as_ref().map_or(0, |failure| failure.errors)
    }

    /// The health and its causes, given the errors of the disk.
    pub(super) fn condition(&self, disk: Option<DeviceErrors>, now_ns: u64) -> Condition {
        let flash = self.failure.as_ref().map(|failure| DeviceErrors {
            first_error: Arc::clone(&failure.first_error),
            errors: failure.errors,
            elapsed_ns: now_ns.saturating_sub(failure.since_ns),
        });
        let health = match (&flash, &disk) {
            _ if self.is_closed => Health::Closed,
            (Some(_), _) => Health::FlashFailed,
            (None, Some(_)) => Health::DiskErrors,
            (None, None) => Health::Healthy,
        };
        Condition { health, flash, disk }
    }
}
