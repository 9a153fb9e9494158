//! The disk, its size and its errors.
//!
//! A disk may recover from errors, for example when a full file system gets space. It counts as recovered when every kind of request that
//! failed (read, write, flush) has succeeded since, and no request has failed for [`QUIET_NS`]. A single success proves little: a disk with a
//! bad sector, which cleaning retries each second, succeeds in between.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use device::timer::Timer;
use device::{Completion, Device, ErrorKind, IoError, Pending, Request};
use parking_lot::Mutex;

use super::error::VolumeError;
use super::health::DeviceErrors;

/// Time without errors after which a disk counts as recovered.
const QUIET_NS: u64 = 60_000_000_000;

/// The disk, with its errors recorded.
pub(super) struct Disk {
    device: Arc<dyn Device>,
    bytes: u64,
    timer: Arc<dyn Timer>,
    errors: Arc<DiskErrors>,
}

impl Disk {
    pub(super) fn new(device: Arc<dyn Device>, bytes: u64, timer: Arc<dyn Timer>) -> Self {
        Self { device, bytes, timer, errors: Arc::default() }
    }

    /// Size of the volume.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of failed flushes. A disk may discard data that it could not write and report success at the next flush. So a write
    /// is durable only if a later flush succeeds and this number has not changed since the write.
    pub(super) fn flushes_failed(&self) -> u64 {
        self.errors.flushes_failed.load(SeqCst)
    }

    pub(super) fn read(&self, offset: u64, len: usize) -> Pending {
        (self as &dyn Device).read(offset, len)
    }

    pub(super) fn flush(&self) -> Pending {
        (self as &dyn Device).start(Request::Flush)
    }

    /// Flushes the disk. Fails if another flush has failed since there were `failed_before` failed ones: earlier writes may be lost although
    /// this flush succeeded.
    pub(super) async fn flush_since(&self, failed_before: u64) -> Result<(), VolumeError> {
        let flushed = self.flush().await;
        let checked = flushed.and_then(|_| self.check_flushes_since(failed_before));
        checked.map_err(|error| self.failed(DiskTask::Flush, error))
    }

    /// # Errors
    /// A flush failed since `failed_before` were counted.
    pub(super) fn check_flushes_since(&self, failed_before: u64) -> Result<(), IoError> {
        if self.flushes_failed() == failed_before {
            return Ok(());
        }
        let why = "an earlier flush of the disk failed, and writes before it may be lost";
        Err(IoError::new(ErrorKind::Medium, why))
    }

    /// Counts an error of the disk and adds the kind of request to its message.
    pub(super) fn failed(&self, task: DiskTask, error: IoError) -> VolumeError {
        let DiskErrors { reads_reported, changes_reported, .. } = &*self.errors;
        (if task == DiskTask::Read { reads_reported } else { changes_reported }).fetch_add(1, Relaxed);
        VolumeError::disk(task.words(), error)
    }

    /// Numbers of failed reads, and of failed writes, trims and flushes.
    pub(super) fn error_counts(&self) -> (u64, u64) {
        (self.errors.reads_reported.load(Relaxed), self.errors.changes_reported.load(Relaxed))
    }

    /// The current errors.
    pub(super) fn current_errors(&self) -> Option<DeviceErrors> {
        self.errors.at(self.timer.monotonic_ns())
    }
}

impl Device for Disk {
    device::forward_device!(device: geometry, absorb, hole_in, trims_to_zeros, counters, allocate_handle);

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
        self.device.submit(request, Completion::new(completed));
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

/// Errors of the disk.
#[derive(Default)]
struct DiskErrors {
    /// Whether there are any; checked without the lock.
    has_errors: AtomicBool,
    flushes_failed: AtomicU64,
    /// Failed requests that were reported to the volume: reads, and others.
    reads_reported: AtomicU64,
    changes_reported: AtomicU64,
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
    /// The current errors.
    fn at(&self, now_ns: u64) -> Option<DeviceErrors> {
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
