//! State that the threads of a run share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_lock::RwLock;
use device::Clock;
use parking_lot::Mutex;
use workload::pace::TokenBucket;
use workload::payload::Payload;

use crate::config::plan::RunSettings;
use crate::consistency::{Checker, Inconsistency};
use crate::run::counts::Counting;
use crate::run::destructors::Destructors;
use crate::run::latency::Latencies;
use crate::run::learned::LearnedAdmission;
use crate::run::misses::MissTrace;
use crate::run::pace::Waiter;
use crate::run::punctuality::Punctuality;
use crate::run::stop::Stop;
use crate::run::tenants::Ledger;

/// State shared by all threads of a run.
pub struct Shared<T> {
    /// The target.
    pub target: T,
    /// Configuration of the run.
    pub settings: RunSettings,
    /// Time source.
    pub clock: Arc<dyn Clock>,
    /// How the workers wait.
    pub waiter: Waiter,
    /// Generates and verifies value bytes.
    pub payload: Payload,
    /// Ends the run early.
    pub stop: Stop,
    /// Limits the request rate of all threads together, if configured.
    pub bucket: Option<TokenBucket>,
    /// State of the consistency check, if enabled.
    pub checking: Option<Checking>,
    /// The trace file to which misses are written, if configured.
    pub misses: Option<MissTrace>,
    /// Counts the calls of the item destructor, if one is configured.
    pub destructors: Option<Arc<Destructors>>,
    /// The model that decides which sets are executed, if configured.
    pub learned: Option<LearnedAdmission>,
    /// Whether every operation is timed.
    pub time_all: bool,
    /// No request of an open loop is due before this time, so the watchdog expects no progress until then.
    pub idle_until_ns: AtomicU64,
}

/// State of the consistency check.
pub struct Checking {
    /// Verifies the versions that gets find.
    pub checker: Checker,
    /// Mark of this run in every version, which distinguishes its values from those of earlier runs.
    pub run_mark: u64,
    /// Adding several chained items takes several operations, which a lock makes atomic. `None` if the workload adds none.
    pub chain_locks: Option<Box<[RwLock<()>]>>,
    /// Descriptions of the first inconsistent reads.
    pub found: Mutex<Vec<Inconsistency>>,
}

/// Power of two.
pub const CHAIN_LOCKS: usize = 4096;

/// Counters and histograms of a thread, which the watcher reads.
#[derive(Debug, Default)]
pub struct WorkerStats {
    /// Its counters.
    pub counting: Counting,
    /// Its histograms. Other threads lock them only to merge them.
    pub latencies: Mutex<Latencies>,
    /// Lateness, in an open loop.
    pub punctuality: Mutex<Punctuality>,
    /// Its counters by tenant.
    pub tenants: Mutex<Ledger>,
    /// The largest item that DRAM refused, header and key included.
    pub(super) largest_refused_bytes: AtomicU64,
}

impl WorkerStats {
    /// The largest item that DRAM refused, header and key included; 0 if it refused none.
    #[must_use]
    pub fn largest_refused_bytes(&self) -> u64 {
        self.largest_refused_bytes.load(Ordering::Relaxed)
    }
}

impl<T> Shared<T> {
    /// The watchdog ignores idle time before `due_ns`.
    pub(in crate::run) fn suppress_stall_warning_until(&self, due_ns: u64) {
        self.idle_until_ns.fetch_max(due_ns, Ordering::Relaxed);
    }

    /// Fills a value. If values are only allocated, a checked run still writes the header.
    pub(super) fn fill(&self, value: &mut [u8], key_id: u64, version: u64) {
        if self.settings.populate {
            self.payload.fill(value, key_id, version);
        } else if self.needs_header() {
            Payload::fill_header_only(value, key_id, version);
        }
    }

    /// Whether found or destroyed values are checked by their header.
    pub(super) fn needs_header(&self) -> bool {
        self.checking.is_some() || self.destructors.as_ref().is_some_and(|it| it.is_checked())
    }

    /// The mark of this run in its versions; 0 if nothing is checked.
    pub(super) fn run_mark(&self) -> u64 {
        let checking = self.checking.as_ref().map(|checking| checking.run_mark);
        checking.or_else(|| Some(self.destructors.as_ref()?.run_mark())).unwrap_or(0)
    }
}
