//! Tracking of device errors.
//!
//! A flash that failed a write is not trusted until the volume is opened again. A disk may recover, for example when a full file system
//! gets space. It counts as recovered when every kind of request that failed (read, write, flush) has succeeded since, and no
//! request has failed for [`QUIET_NS`]. A single success proves little: a disk with a bad sector, which cleaning retries each
//! second, succeeds in between.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use device::timer::Timer;
use device::{Completion, Device, ErrorKind, IoError, Request};
use parking_lot::Mutex;

use super::error::VolumeError;
use super::{Health, Shared, Volume};

/// Time without errors after which a disk counts as recovered.
const QUIET_NS: u64 = 60_000_000_000;

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

impl Volume {
    /// The volume's health and device errors.
    #[must_use]
    pub fn condition(&self) -> Condition {
        let shared = &self.shared;
        let now_ns = shared.timer.monotonic_ns();
        let disk = shared.disk_errors.at(now_ns);
        let state = shared.state.lock();
        let flash = state.flash_failed.as_ref().map(|(first_error, since_ns)| DeviceErrors {
            first_error: Arc::clone(first_error),
            errors: state.io.ssd_write_errors,
            elapsed_ns: now_ns.saturating_sub(*since_ns),
        });
        Condition { health: with_disk_errors(state.health, disk.is_some()), flash, disk }
    }
}

/// Kinds of disk requests, for error messages and counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskTask {
    Read,
    Write,
    Trim,
    Flush,
}

impl DiskTask {
    fn words(self) -> &'static str {
        match self {
            Self::Read => "reading the disk",
            Self::Write => "writing the disk",
            Self::Trim => "trimming the disk",
            Self::Flush => "flushing the disk",
        }
    }
}

impl Shared {
    /// Counts an error of the disk and adds the kind of request to its message.
    pub(super) fn disk_failed(&self, task: DiskTask, error: IoError) -> VolumeError {
        let io = &mut self.state.lock().io;
        match task {
            DiskTask::Read => io.disk_read_errors += 1,
            DiskTask::Write | DiskTask::Trim | DiskTask::Flush => io.disk_write_errors += 1,
        }
        VolumeError::disk(task.words(), error)
    }
}

/// The health, including errors of the disk.
pub(super) fn with_disk_errors(health: Health, has_disk_errors: bool) -> Health {
    if health == Health::Healthy && has_disk_errors { Health::DiskErrors } else { health }
}

/// Errors of the disk.
#[derive(Default)]
pub(super) struct DiskErrors {
    /// Whether there are any; checked without the lock.
    has_errors: AtomicBool,
    flushes_failed: AtomicU64,
    log: Mutex<Option<ErrorLog>>,
}

struct ErrorLog {
    first_error: Arc<str>,
    errors: u64,
    since_ns: u64,
    last_ns: u64,
    /// Kinds of requests that failed and have not succeeded since.
    failing: [bool; KINDS],
}

const KINDS: usize = 3;
const FLUSH: usize = 2;

/// Index of a kind of request: read 0, write or trim 1, flush 2.
fn kind_of(request: &Request) -> usize {
    match request {
        Request::Read { .. } => 0,
        Request::Write { .. } | Request::Trim { .. } => 1,
        Request::Flush => FLUSH,
    }
}

impl DiskErrors {
    /// Number of failed flushes. A disk may discard data that it could not write and report success at the next flush. So a write
    /// is durable only if a later flush succeeds and this number has not changed since the write.
    pub(super) fn flushes_failed(&self) -> u64 {
        self.flushes_failed.load(SeqCst)
    }

    /// The current errors.
    pub(super) fn at(&self, now_ns: u64) -> Option<DeviceErrors> {
        if !self.has_errors.load(Relaxed) {
            return None;
        }
        let mut log = self.log.lock();
        let is_over =
            |log: &ErrorLog| !log.failing.contains(&true) && now_ns.saturating_sub(log.last_ns) >= QUIET_NS;
        if log.as_ref().is_none_or(is_over) {
            *log = None;
            self.has_errors.store(false, Relaxed);
        }
        log.as_ref().map(|log| DeviceErrors {
            first_error: Arc::clone(&log.first_error),
            errors: log.errors,
            elapsed_ns: now_ns.saturating_sub(log.since_ns),
        })
    }

    fn succeeded(&self, kind: usize) {
        if self.has_errors.load(Relaxed)
            && let Some(log) = &mut *self.log.lock()
        {
            log.failing[kind] = false;
        }
    }

    fn failed(&self, kind: usize, error: &IoError, now_ns: u64) {
        if kind == FLUSH {
            self.flushes_failed.fetch_add(1, SeqCst);
        }
        // Clears errors that have expired, so that this one counts as the first.
        let _ended = self.at(now_ns);
        let mut log = self.log.lock();
        let log = log.get_or_insert_with(|| ErrorLog {
            first_error: error.to_string().into(),
            errors: 0,
            since_ns: now_ns,
            last_ns: now_ns,
            failing: [false; KINDS],
        });
        (log.errors, log.last_ns, log.failing[kind]) = (log.errors + 1, now_ns, true);
        self.has_errors.store(true, Relaxed);
    }
}

impl Shared {
    /// # Errors
    /// A flush failed since `failed_before` were counted: earlier writes may be lost although a later flush succeeded.
    pub(super) fn check_flushes_since(&self, failed_before: u64) -> Result<(), IoError> {
        if self.disk_errors.flushes_failed() == failed_before {
            return Ok(());
        }
        let why = "an earlier flush of the disk failed, and writes before it may be lost";
        Err(IoError::new(ErrorKind::Medium, why))
    }
}

/// The disk, with its errors recorded.
pub(super) struct MonitoredDisk {
    pub(super) disk: Arc<dyn Device>,
    pub(super) timer: Arc<dyn Timer>,
    pub(super) errors: Arc<DiskErrors>,
}

impl Device for MonitoredDisk {
    device::forward_device!(disk: geometry, absorb, hole_in, trims_to_zeros, counters, allocate_handle);

    fn submit(&self, request: Request, completion: Completion) {
        let kind = kind_of(&request);
        let (timer, errors) = (Arc::clone(&self.timer), Arc::clone(&self.errors));
        let completed = move |outcome: device::Outcome| {
            match &outcome {
                Ok(_) => errors.succeeded(kind),
                // A disk without trim is not faulty.
                Err(error) if error.kind() == ErrorKind::Unsupported => {}
                Err(error) => errors.failed(kind, error, timer.monotonic_ns()),
            }
            completion.complete(outcome);
        };
        self.disk.submit(request, Completion::new(completed));
    }
}
