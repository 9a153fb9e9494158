//! Which device fails, since when, and when the disk is well again.
//!
//! A flash that failed a write is not trusted again before the volume is opened anew, so its trouble ends with that. A disk may
//! recover: a full file system is given room, a cable is put back. It is well again when every kind of request that failed (a
//! read, a write, a flush) has succeeded since, and nothing has failed for [`QUIET_NS`]. One success alone proves little: a
//! disk with a bad sector, to which cleaning returns every second, serves all others in between.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use device::timer::Timer;
use device::{Completion, Counters, Device, ErrorKind, Geometry, IoError, IoSlice, PlacementHandle, Request};
use parking_lot::Mutex;

use super::error::VolumeError;
use super::{Health, Shared, Volume};

/// How long a disk must have had no errors to be called well again.
const QUIET_NS: u64 = 60_000_000_000;

/// A device that fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The first error since the device was last well.
    pub first_error: Arc<str>,
    /// Errors since then.
    pub errors: u64,
    /// Nanoseconds since the first.
    pub elapsed_ns: u64,
}

/// What the volume can still do, and which device keeps it from the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// What it can do.
    pub health: Health,
    /// The flash's trouble, which lasts until the volume is opened again.
    pub flash: Option<Trouble>,
    /// The disk's.
    pub disk: Option<Trouble>,
}

impl Volume {
    /// What the volume can still do, and what fails.
    #[must_use]
    pub fn condition(&self) -> Condition {
        let shared = &self.shared;
        let now_ns = shared.timer.monotonic_ns();
        let disk = shared.disk_trouble.at(now_ns);
        let state = shared.state.lock();
        let flash = state.flash_failed.as_ref().map(|(first_error, since_ns)| Trouble {
            first_error: Arc::clone(first_error),
            errors: state.io.ssd_write_errors,
            elapsed_ns: now_ns.saturating_sub(*since_ns),
        });
        Condition { health: told(state.health, disk.is_some()), flash, disk }
    }
}

/// What the disk was asked for.
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
    /// Counts that the disk failed, and says what it was asked for.
    pub(super) fn disk_failed(&self, task: DiskTask, error: IoError) -> VolumeError {
        let io = &mut self.state.lock().io;
        match task {
            DiskTask::Read => io.disk_read_errors += 1,
            DiskTask::Write | DiskTask::Trim | DiskTask::Flush => io.disk_write_errors += 1,
        }
        VolumeError::disk(task.words(), error)
    }
}

/// The health of a volume whose disk fails or does not.
pub(super) fn told(health: Health, has_disk_errors: bool) -> Health {
    if health == Health::Healthy && has_disk_errors { Health::DiskErrors } else { health }
}

/// What is known of a disk's errors.
#[derive(Default)]
pub(super) struct DiskTrouble {
    /// Whether there is anything to be known: a disk that is well costs no lock.
    is_ill: AtomicBool,
    flushes_failed: AtomicU64,
    log: Mutex<Option<Log>>,
}

struct Log {
    first_error: Arc<str>,
    errors: u64,
    since_ns: u64,
    last_ns: u64,
    /// Kinds of requests that failed and have not succeeded since.
    failing: [bool; KINDS],
}

const KINDS: usize = 3;
const FLUSH: usize = 2;

/// A read is 0, a change 1, a flush 2.
fn kind_of(request: &Request) -> usize {
    match request {
        Request::Read { .. } => 0,
        Request::Write { .. } | Request::Trim { .. } => 1,
        Request::Flush => FLUSH,
    }
}

impl DiskTrouble {
    /// Flushes of the disk that failed, whoever asked for them. A disk may drop what it could not write and succeed at the next
    /// flush: who has written something is certain of it if his own flush succeeds and this is what it was before.
    pub(super) fn flushes_failed(&self) -> u64 {
        self.flushes_failed.load(SeqCst)
    }

    /// The trouble there is now.
    pub(super) fn at(&self, now_ns: u64) -> Option<Trouble> {
        if !self.is_ill.load(Relaxed) {
            return None;
        }
        let mut log = self.log.lock();
        let is_over =
            |log: &Log| !log.failing.contains(&true) && now_ns.saturating_sub(log.last_ns) >= QUIET_NS;
        if log.as_ref().is_none_or(is_over) {
            *log = None;
            self.is_ill.store(false, Relaxed);
        }
        log.as_ref().map(|log| Trouble {
            first_error: Arc::clone(&log.first_error),
            errors: log.errors,
            elapsed_ns: now_ns.saturating_sub(log.since_ns),
        })
    }

    fn succeeded(&self, kind: usize) {
        if self.is_ill.load(Relaxed)
            && let Some(log) = &mut *self.log.lock()
        {
            log.failing[kind] = false;
        }
    }

    fn failed(&self, kind: usize, error: &IoError, now_ns: u64) {
        if kind == FLUSH {
            self.flushes_failed.fetch_add(1, SeqCst);
        }
        // What came before the last minute was over may not have been asked for since.
        let _ended = self.at(now_ns);
        let mut log = self.log.lock();
        let log = log.get_or_insert_with(|| Log {
            first_error: error.to_string().into(),
            errors: 0,
            since_ns: now_ns,
            last_ns: now_ns,
            failing: [false; KINDS],
        });
        (log.errors, log.last_ns, log.failing[kind]) = (log.errors + 1, now_ns, true);
        self.is_ill.store(true, Relaxed);
    }
}

impl Shared {
    /// # Errors
    /// A flush of the disk has failed since so many had: what was written before it may be lost, though another succeeded.
    pub(super) fn none_failed_since(&self, failed_before: u64) -> Result<(), IoError> {
        if self.disk_trouble.flushes_failed() == failed_before {
            return Ok(());
        }
        let why = "a flush of the disk that somebody else asked for failed, and what was written before it may be lost";
        Err(IoError::new(ErrorKind::Medium, why))
    }
}

/// The disk, with an eye on what becomes of each request.
pub(super) struct WatchedDisk {
    pub(super) disk: Arc<dyn Device>,
    pub(super) timer: Arc<dyn Timer>,
    pub(super) trouble: Arc<DiskTrouble>,
}

impl Device for WatchedDisk {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    fn submit(&self, request: Request, completion: Completion) {
        let kind = kind_of(&request);
        let (timer, trouble) = (Arc::clone(&self.timer), Arc::clone(&self.trouble));
        let told = move |outcome: device::Outcome| {
            match &outcome {
                Ok(_) => trouble.succeeded(kind),
                // A disk that cannot be trimmed is none the worse for it.
                Err(error) if error.kind() == ErrorKind::Unsupported => {}
                Err(error) => trouble.failed(kind, error, timer.monotonic_ns()),
            }
            completion.complete(outcome);
        };
        self.disk.submit(request, Completion::new(told));
    }

    fn absorb(&self, offset: u64, data: &IoSlice) -> Option<Result<(), IoError>> {
        self.disk.absorb(offset, data)
    }

    fn hole_in(&self, range: Range<u64>) -> Option<Range<u64>> {
        self.disk.hole_in(range)
    }

    fn trims_to_zeros(&self) -> bool {
        self.disk.trims_to_zeros()
    }

    fn counters(&self) -> Counters {
        self.disk.counters()
    }

    fn allocate_handle(&self, consumer: &str) -> PlacementHandle {
        self.disk.allocate_handle(consumer)
    }
}
