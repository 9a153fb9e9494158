//! The stress loop: worker threads that execute a workload, and a watcher that samples their counters.
//!
//! [`target`] defines what can be stressed, [`worker`] is the loop of one thread, [`counts`] and [`latency`] are its results.
//! [`run_all`] starts the threads of all instances, calls a [`Watcher`] while they run, and returns one report per instance.

mod cache_keys;
pub mod counts;
pub mod destructors;
pub mod devices;
pub mod disk_space;
pub mod engine;
pub mod error;
mod fit;
pub mod in_memory;
mod instance_report;
pub mod io_path;
pub mod item_sizes;
pub mod latency;
pub mod learned;
pub mod listed_drives;
pub mod memory;
pub mod misses;
pub mod model_drive;
pub mod object_limits;
pub mod objects;
mod observe;
pub mod open;
pub mod pace;
pub mod punctuality;
pub mod simulated;
pub mod stop;
pub mod stressors;
pub mod sweeps;
pub mod target;
pub mod tenants;
mod threads;
pub mod trace_time;
mod version;
pub mod warmup;
pub mod worker;

pub use instance_report::InstanceReport;
pub use observe::{Limits, Observable, Watcher};
pub use threads::run_all;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cache::stats::FlashStats;
use device::Clock;
use parking_lot::Mutex;
use workload::pace::{Arrivals, TokenBucket};
use workload::payload::Payload;
use workload::trace::Replay;
use workload::{Source, Workload, WorkloadError};

use crate::config::plan::{ArrivalsPlan, RunSettings, WarmupPlan};
use crate::consistency::Checker;
use counts::{CounterTable, Counts};
use destructors::Destructors;
use latency::{Histogram, Latencies};
use learned::LearnedAdmission;
use misses::MissTrace;
use pace::Waiter;
use punctuality::Punctuality;
use stop::Stop;
use stressors::Stressor;
use sweeps::{Sweeper, Sweeps};
use target::{Snapshot, Target};
use tenants::Ledger;
use trace_time::TraceTime;
use version::MARK_BITS;
use warmup::{Baseline, Warmup};
use worker::{CHAIN_LOCKS, Checking, Due, Schedule, Shared, TracePace, Worker, WorkerStats};

/// Interval between two calls of the watcher.
const TICK: Duration = Duration::from_millis(200);

/// The parts of an instance besides its target and settings.
pub struct InstanceOptions {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Time source.
    pub clock: Arc<dyn Clock>,
    /// How workers wait, in real or in simulated time.
    pub waiter: Waiter,
    /// Flag that ends the run early.
    pub stop: Stop,
    /// Times every operation instead of a sample.
    pub time_all: bool,
    /// The target may hold values of an earlier run.
    pub inherits: bool,
    /// The workload adds chained items.
    pub chains: bool,
    /// The trace that the workload replays, if any. It counts the rows that it could not read.
    pub trace: Option<Arc<Replay>>,
    /// Progress in the trace's own time, if the warm-up or the cache's clock uses it.
    pub trace_time: Option<Arc<TraceTime>>,
    /// The trace file to which misses are written, if configured.
    pub misses: Option<MissTrace>,
    /// Counts the calls of the item destructor, if one is configured.
    pub destructors: Option<Arc<Destructors>>,
    /// Replaces the request loop, if a special stressor is configured.
    pub stressor: Option<Stressor>,
    /// The model that decides which sets are executed, if configured.
    pub learned: Option<LearnedAdmission>,
}

/// One target under one workload.
pub struct Instance<T> {
    shared: Shared<T>,
    worker_stats: Vec<WorkerStats>,
    workload: Box<dyn Workload>,
    seed: u64,
    trace: Option<Arc<Replay>>,
    trace_time: Option<Arc<TraceTime>>,
    progress: Progress,
    /// Counters at the end of the warm-up; the figures start there.
    baseline: Mutex<Option<Box<Baseline>>>,
    /// Iterates over the items in DRAM, if configured.
    sweeper: Option<Sweeper>,
    stressor: Option<Stressor>,
}

/// Start and end times of an instance.
#[derive(Default)]
struct Progress {
    running: AtomicUsize,
    started_ns: AtomicU64,
    /// Time at which the instance ended; 0 while it runs.
    ended_ns: AtomicU64,
    /// When the first request of a trace was available; finding it can take long.
    trace_started_ns: OnceLock<u64>,
}

impl<T: Target> Instance<T> {
    /// Creates an instance that is ready to run.
    pub fn new(
        target: T,
        settings: RunSettings,
        workload: Box<dyn Workload>,
        options: InstanceOptions,
    ) -> Self {
        let InstanceOptions { seed, clock, waiter, time_all, chains, trace, trace_time, .. } = options;
        let InstanceOptions { misses, destructors, stressor, learned, .. } = options;
        let now_ns = clock.monotonic_ns();
        let stop = options.stop.for_instance();
        let checking = settings.check_consistency.then(|| Checking {
            checker: Checker::new(options.inherits),
            run_mark: destructors.as_ref().map_or_else(|| run_mark(&*clock), |it| it.run_mark()),
            chain_locks: chains.then(|| std::iter::repeat_with(Default::default).take(CHAIN_LOCKS).collect()),
            found: Mutex::default(),
        });
        let worker_stats = std::iter::repeat_with(WorkerStats::default).take(settings.threads).collect();
        let sweeper = settings.sweeps.map(Sweeper::new);
        let bucket = settings.rate.map(|(rate, burst)| TokenBucket::new(rate, burst, now_ns));
        let payload = Payload::new(settings.zeros_percent).with_repeats(settings.repeated_percent);
        // An open loop always times all requests: a queue delays few of them, and the clock is read for each anyway.
        let time_all = time_all || settings.arrivals.is_open();
        let idle_until_ns = AtomicU64::new(0);
        let shared = Shared {
            target,
            settings,
            clock,
            waiter,
            payload,
            stop,
            bucket,
            checking,
            misses,
            destructors,
            learned,
            time_all,
            idle_until_ns,
        };
        let (progress, baseline) = (Progress::default(), Mutex::default());
        Self {
            shared,
            worker_stats,
            workload,
            seed,
            trace,
            trace_time,
            progress,
            baseline,
            sweeper,
            stressor,
        }
    }

    /// The target.
    pub fn target(&self) -> &T {
        &self.shared.target
    }

    /// Returns the target after the run.
    pub fn into_target(self) -> T {
        self.shared.target
    }

    /// The configuration of the run.
    pub fn settings(&self) -> &RunSettings {
        &self.shared.settings
    }

    fn flash_written_bytes(&self) -> u64 {
        self.shared.target.flash_stats().map_or(0, |flash| flash.device.written_bytes)
    }

    fn flash_evictions(&self) -> u64 {
        self.shared.target.flash_stats().map_or(0, |flash| flash.evictions())
    }

    /// The latest trace timestamp, in seconds, of the requests taken so far.
    fn trace_seconds(&self) -> u64 {
        self.trace_time.as_ref().map_or(0, |time| time.seconds())
    }

    /// Saves the current counters as the start of the figures.
    fn end_warmup(&self, elapsed: Duration) {
        let (counts, tenants) = self.counts_by_tenant();
        let baseline = Baseline {
            elapsed,
            counts,
            tenants,
            latencies: self.latencies(),
            punctuality: self.punctuality(),
            snapshot: self.snapshot(),
        };
        *self.baseline.lock() = Some(Box::new(baseline));
    }

    /// Completes the trace of misses, if one is configured, and stores its counts in `report`.
    ///
    /// # Errors
    /// A message, if the trace could not be written.
    pub fn finish_misses(&self, report: &mut InstanceReport) -> Result<(), String> {
        let Some(misses) = &self.shared.misses else { return Ok(()) };
        let was_read = report.trace.as_ref().is_none_or(|trace| trace.failure.is_none());
        report.misses = Some(misses.finish(was_read)?);
        Ok(())
    }

    /// Runs the final check of the stressor or of the target, if there is one, and stores its result in `report`.
    pub fn finish_stressor(&self, report: &mut InstanceReport) {
        match &self.stressor {
            Some(stressor) => {
                stressor.finish(&self.shared.target);
                report.stressor = Some(stressor.report());
            }
            None => report.stressor = self.shared.target.special_report(),
        }
    }

    /// Removes all items, if their destructors are checked, and stores the result of the check in `report`.
    ///
    /// # Errors
    /// A message, if the removals failed, so that some items may not have been destroyed.
    pub fn finish_destructors(&self, report: &mut InstanceReport) -> Result<(), String> {
        let Some(destructors) = self.shared.destructors.as_ref().filter(|it| it.is_checked()) else {
            return Ok(());
        };
        let target = &self.shared.target;
        destructors.remove_keys(|key| _ = target.delete(key));
        let settled = target.settle();
        report.destructors = Some(destructors.counts());
        settled.map_err(|error| format!("The check of item destructors could not empty the cache: {error}"))
    }

    fn report(&self) -> InstanceReport {
        let mut report = self.report_whole_run();
        let has_warmup = self.shared.settings.warmup != WarmupPlan::default();
        let (_, mut ledger) = self.counts_by_tenant();
        match self.baseline.lock().as_deref() {
            Some(baseline) => {
                baseline.exclude_from(&mut report);
                ledger = ledger.since(&baseline.tenants);
            }
            None => report.warmup = has_warmup.then(Warmup::default),
        }
        let names = self.trace.as_ref().map(|trace| trace.tenants().all());
        report.tenants = ledger.by_name(&names.unwrap_or_default());
        report
    }

    /// Counters summed over all threads, and by tenant. Both are of the same instant: for a thread with a ledger, the end of its
    /// last request.
    fn counts_by_tenant(&self) -> (Counts, Ledger) {
        let (mut sum, mut all) = (Counts::default(), Ledger::default());
        for stats in &self.worker_stats {
            let ledger = stats.tenants.lock();
            sum.add(&all.merge(&ledger, stats.counting.read()));
        }
        (sum, all)
    }

    /// The report of the whole run, warm-up included.
    fn report_whole_run(&self) -> InstanceReport {
        let (started, ended) = (&self.progress.started_ns, &self.progress.ended_ns);
        let ran_ns = ended.load(Ordering::Acquire).saturating_sub(started.load(Ordering::Acquire));
        InstanceReport {
            settings: self.shared.settings.clone(),
            seconds: ran_ns as f64 / 1e9,
            counts: self.counts(),
            latencies: self.latencies(),
            timed_all: self.shared.time_all,
            snapshot: self.snapshot(),
            largest_refused_bytes: self
                .worker_stats
                .iter()
                .map(WorkerStats::largest_refused_bytes)
                .max()
                .unwrap_or(0),
            inconsistencies: self
                .shared
                .checking
                .as_ref()
                .map(|it| it.found.lock().clone())
                .unwrap_or_default(),
            stopped: self.shared.stop.reason(),
            punctuality: self.shared.settings.arrivals.is_open().then(|| self.punctuality()),
            warmup: None,
            trace: self.trace.as_ref().map(|trace| trace.stats()),
            tenants: None,
            misses: None,
            sweeps: self.sweeps(),
            events: None,
            destructors: self.shared.destructors.as_ref().map(|it| it.counts()),
            stressor: self.stressor.as_ref().map(Stressor::report),
        }
    }

    fn begin(&self, workers: usize) {
        self.progress.running.store(workers, Ordering::Release);
        self.progress.started_ns.store(self.shared.clock.monotonic_ns(), Ordering::Release);
    }

    async fn work(&self, number: usize, source: &mut dyn Source) {
        let number_in_version = u16::try_from(number).unwrap_or(u16::MAX);
        let mut worker = Worker::new(&self.shared, &self.worker_stats[number], number_in_version);
        match (&self.stressor, self.schedule(number)) {
            (Some(stressor), _) => stressor.work(&self.shared, &self.worker_stats[number], number).await,
            (None, None) => worker.run(source).await,
            (None, Some(schedule)) => worker.run_open(source, schedule).await,
        }
        if self.progress.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.progress.ended_ns.store(self.shared.clock.monotonic_ns(), Ordering::Release);
            self.end_sweeps();
        }
    }

    fn sweep(&self) {
        let target = &self.shared.target;
        if let Some(sweeper) = &self.sweeper {
            sweeper.run(&|from, visit| target.scan_dram(from, visit), &*self.shared.clock);
        }
    }

    fn end_sweeps(&self) {
        self.sweeper.iter().for_each(Sweeper::end);
    }
}

/// The open loop.
impl<T: Target> Instance<T> {
    /// The due times of worker `number`; `None` in a closed loop.
    fn schedule(&self, number: usize) -> Option<Schedule<'_>> {
        let start_ns = self.progress.started_ns.load(Ordering::Acquire);
        let (workers, seed) = (self.worker_stats.len(), self.seed);
        let due = match self.shared.settings.arrivals {
            ArrivalsPlan::Closed => return None,
            ArrivalsPlan::Uniform { per_second } => {
                Due::Arrivals(Arrivals::uniform(per_second, number, workers, start_ns))
            }
            ArrivalsPlan::Poisson { per_second } => {
                Due::Arrivals(Arrivals::poisson(per_second, number, workers, start_ns, seed))
            }
            ArrivalsPlan::Trace { speed } => {
                let (started_ns, trace) = (&self.progress.trace_started_ns, self.trace.as_deref());
                Due::Trace(TracePace { speed, trace, started_ns, clock: None })
            }
        };
        Some(Schedule { start_ns, due, last_due_ns: start_ns })
    }

    fn punctuality(&self) -> Punctuality {
        let mut all = Punctuality { backlog: Some(0), ..Punctuality::default() };
        self.worker_stats.iter().for_each(|stats| all.merge(&stats.punctuality.lock()));
        all
    }
}

/// A number that distinguishes the values of this run from those of other runs; never 0, so that no version is 0.
#[must_use]
pub fn run_mark(clock: &dyn Clock) -> u64 {
    let mixed = (u64::from(clock.unix_seconds()) ^ clock.monotonic_ns()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (64 - MARK_BITS)).max(1)
}

impl<T: Target> Observable for Instance<T> {
    fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.worker_stats.iter().for_each(|stats| sum.add(&stats.counting.read()));
        sum
    }

    fn latencies(&self) -> Latencies {
        let mut sum = Latencies::default();
        self.worker_stats.iter().for_each(|stats| sum.merge(&stats.latencies.lock()));
        sum
    }

    fn snapshot(&self) -> Snapshot {
        self.shared.target.snapshot()
    }

    fn flash_stats(&self) -> Option<FlashStats> {
        self.shared.target.flash_stats()
    }

    fn lists_drives(&self) -> bool {
        self.shared.target.lists_drives()
    }

    fn device_latency(&self) -> Option<(Histogram, Histogram)> {
        self.shared.target.device_latency()
    }

    fn total_ops(&self) -> u64 {
        self.shared.settings.total_ops()
    }

    fn limits(&self) -> Limits {
        let limit = self.shared.settings.limits.flash_bytes;
        let written = || self.flash_written_bytes() as f64 / limit as f64;
        Limits {
            flash_written: (limit > 0).then(written),
            trace: self.trace.as_ref().and_then(|trace| trace.share_read()),
        }
    }

    fn sweeps(&self) -> Option<Sweeps> {
        self.sweeper.as_ref().map(Sweeper::totals)
    }

    fn set_rate(&self, ops_per_second: u64) {
        if let Some(bucket) = &self.shared.bucket {
            bucket.set_rate(ops_per_second, self.shared.clock.monotonic_ns());
        }
    }
}

/// Why a run could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The workload could not be started.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// In simulated time, no operation completes any more.
    #[error("no operation completed in {seconds} virtual seconds: the simulated run is stuck")]
    Stuck {
        /// Virtual seconds without a completed operation.
        seconds: u64,
    },
    /// A thread could not be started.
    #[error("starting a worker thread: {0}")]
    Thread(std::io::Error),
}
