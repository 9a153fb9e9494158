//! The stress loop: worker threads that execute a workload, and a watcher.
//!
//! [`target`] is what can be stressed, [`worker`] one thread's loop, [`counts`] and [`latency`] what it hands on;
//! [`run_all`] starts the threads of all instances, lets a [`Watcher`] look in between, and ends with a report each.

mod cache_keys;
pub mod counts;
pub mod course;
pub mod destructors;
pub mod devices;
pub mod engine;
pub mod error;
mod fit;
pub mod in_memory;
pub mod io_path;
pub mod item_sizes;
pub mod latency;
pub mod learned;
pub mod listed_drives;
pub mod memory;
pub mod misses;
pub mod model_drive;
pub mod objects;
pub mod open;
pub mod pace;
pub mod punctuality;
pub mod room;
pub mod simulated;
pub mod stop;
pub mod stressors;
mod sums;
pub mod sweeps;
pub mod target;
pub mod tenants;
mod threads;
pub mod trace_time;
pub mod worker;

pub use threads::run_all;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use device::Clock;
use parking_lot::Mutex;
use workload::pace::{Arrivals, TokenBucket};
use workload::payload::Payload;
use workload::trace::{Replay, ReplayStats};
use workload::{Source, Workload, WorkloadError};

use crate::config::plan::{ArrivalsPlan, RunSettings, WarmupPlan};
use crate::consistency::{Checker, Inconsistency};
use crate::events::EventCounts;
use crate::report::series::Span;
use counts::Counts;
use course::{Baseline, Warmup};
use destructors::{DestructorCounts, Destructors};
use latency::{Histogram, Latencies};
use learned::LearnedAdmission;
use misses::{MissTrace, Misses};
use pace::Waiter;
use punctuality::Punctuality;
use stop::{Stop, StopReason};
use stressors::{Stressor, StressorReport};
use sweeps::{Sweeper, Sweeps};
use target::{FlashBytes, Snapshot, Target};
use tenants::{Ledger, Tenants};
use trace_time::TraceTime;
use worker::{Board, CHAIN_LOCKS, Checking, Due, MARK_BITS, Schedule, Shared, TracePace, Worker};

/// How often the watcher looks.
const TICK: Duration = Duration::from_millis(200);

/// The parts of an instance besides its target and settings.
pub struct InstanceOptions {
    /// Seed of everything random.
    pub seed: u64,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// How workers wait: which world they are in.
    pub waiter: Waiter,
    /// Ends the run early.
    pub stop: Stop,
    /// Time every operation, not a sample.
    pub time_all: bool,
    /// The target may hold values of an earlier run.
    pub inherits: bool,
    /// The workload hangs chains on items.
    pub chains: bool,
    /// The trace behind the workload, where there is one: it knows which rows it could not read.
    pub trace: Option<Arc<Replay>>,
    /// How far it is in its own time, where anybody wants to know.
    pub trace_time: Option<Arc<TraceTime>>,
    /// The trace that misses are written to, if there is one.
    pub misses: Option<MissTrace>,
    /// The calls of the target's item destructor, where it has one.
    pub destructors: Option<Arc<Destructors>>,
    /// What replaces the request loop, if anything does.
    pub stressor: Option<Stressor>,
    /// Decides what is set, if a model does.
    pub learned: Option<LearnedAdmission>,
}

/// One target under one workload.
pub struct Instance<T> {
    shared: Shared<T>,
    boards: Vec<Board>,
    workload: Box<dyn Workload>,
    seed: u64,
    trace: Option<Arc<Replay>>,
    trace_time: Option<Arc<TraceTime>>,
    progress: Progress,
    /// Where the figures begin, once the warm-up has ended.
    baseline: Mutex<Option<Box<Baseline>>>,
    /// Walks over DRAM, if configured.
    sweeper: Option<Sweeper>,
    stressor: Option<Stressor>,
}

/// When an instance ran.
#[derive(Default)]
struct Progress {
    running: AtomicUsize,
    started_ns: AtomicU64,
    /// 0 while it runs.
    ended_ns: AtomicU64,
    /// When the first request of a trace was there, which may have had to be looked for.
    trace_started_ns: OnceLock<u64>,
}

/// What a watcher may ask an instance.
pub trait Observable {
    /// Counters of all threads, now.
    fn counts(&self) -> Counts;
    /// Histograms of all threads, now.
    fn latencies(&self) -> Latencies;
    /// The target's counters, now.
    fn snapshot(&self) -> Snapshot;
    /// The bytes among these; `None` without flash.
    fn flash_bytes(&self) -> Option<FlashBytes> {
        self.snapshot().flash.as_ref().map(FlashBytes::of)
    }
    /// Latencies of the device's reads and writes among these; `None` where they are not known.
    fn device_latency(&self) -> Option<(Histogram, Histogram)> {
        self.snapshot().flash?.device_latency
    }
    /// Operations that the run will do, unless its workload ends before.
    fn total_ops(&self) -> u64;
    /// What ends the run besides `numOps` and the time limit.
    fn limits(&self) -> Limits {
        Limits::default()
    }
    /// What walks over DRAM saw so far; `None` where nobody walks.
    fn sweeps(&self) -> Option<Sweeps> {
        None
    }
    /// Has it offered so many operations a second from here on; a run that began without a rate has none.
    fn set_rate(&self, ops_per_second: u64);
}

/// How much of what ends an instance is done, 0 to 1; `None` where nothing of the kind ends it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// Of `maxFlashWriteMB`.
    pub flash_written: Option<f64>,
    /// Of the trace, all its passes together.
    pub trace: Option<f64>,
}

/// Watches a run.
pub trait Watcher {
    /// A look every fifth of a second of the machine's time, for whoever sits before it; `elapsed` since the start, in the
    /// time of the run's world.
    fn look(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        let _ = (instances, elapsed);
    }

    /// A moment of the run's world, for whatever is kept: in the real one with each look, in a simulated one each hundredth
    /// of a virtual second, where what is seen is the same in every run of one seed.
    fn moment(&mut self, instances: &[&dyn Observable], elapsed: Duration) {
        let _ = (instances, elapsed);
    }

    /// The warm-up has ended.
    fn warmed_up(&mut self) {}

    /// Something went wrong beside the run, which goes on.
    fn warn(&mut self, words: &str) {
        let _ = words;
    }

    /// Whether [`interval`](Self::interval) is to be told.
    fn wants_intervals(&self) -> bool {
        false
    }

    /// What happened since the moment before, in all instances together; the last one ends with the run.
    fn interval(&mut self, span: &Span) {
        let _ = span;
    }
}

/// The result of one instance.
#[derive(Debug, Clone)]
pub struct InstanceReport {
    /// How it was run.
    pub settings: RunSettings,
    /// Seconds from the first thread's start to the last one's end.
    pub seconds: f64,
    /// Counters of all threads.
    pub counts: Counts,
    /// Histograms of all threads.
    pub latencies: Latencies,
    /// Whether every operation was timed, or one in [`worker::SAMPLE_EVERY`].
    pub timed_all: bool,
    /// The target's counters, at the end.
    pub snapshot: Snapshot,
    /// The largest item that DRAM refused, header and key included; 0 where it refused none.
    pub largest_refused_bytes: u64,
    /// The first values that should not have been found; all are counted.
    pub inconsistencies: Vec<Inconsistency>,
    /// Why it ended early, where it did.
    pub stopped: Option<StopReason>,
    /// How punctual requests were, in an open loop.
    pub punctuality: Option<Punctuality>,
    /// The warm-up that the figures leave out; `None` if there was none.
    pub warmup: Option<Warmup>,
    /// How reading the trace went; `None` where there was none.
    pub trace: Option<ReplayStats>,
    /// The tenants of the trace; `None` where it has none.
    pub tenants: Option<Tenants>,
    /// Where its misses were written, if anywhere.
    pub misses: Option<Misses>,
    /// What walks over DRAM saw in the whole run; `None` where nobody walked.
    pub sweeps: Option<Sweeps>,
    /// What was written down of keys, warm-up included; `None` where nothing was to be.
    pub events: Option<EventCounts>,
    /// The calls of the item destructor; `None` where there is none.
    pub destructors: Option<DestructorCounts>,
    /// What a stressor that replaces the request loop found; `None` where there is none.
    pub stressor: Option<StressorReport>,
}

impl InstanceReport {
    /// Operations of the whole run, warm-up included.
    #[must_use]
    pub fn ops_with_warmup(&self) -> u64 {
        self.counts.ops + self.warmup.map_or(0, |warmup| warmup.counts.ops)
    }
}

impl<T: Target> Instance<T> {
    /// An instance, ready to run.
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
        let boards = std::iter::repeat_with(Board::default).take(settings.threads).collect();
        let sweeper = settings.sweeps.map(Sweeper::new);
        let bucket = settings.rate.map(|(rate, burst)| TokenBucket::new(rate, burst, now_ns));
        let payload = Payload::new(settings.zeros_percent).with_repeats(settings.repeated_percent);
        // The queue that an open loop builds is seen in few of its requests; the clock is read for each anyway.
        let time_all = time_all || settings.arrivals.is_open();
        let held_until_ns = AtomicU64::new(0);
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
            held_until_ns,
        };
        let (progress, baseline) = (Progress::default(), Mutex::default());
        Self { shared, boards, workload, seed, trace, trace_time, progress, baseline, sweeper, stressor }
    }

    /// The target.
    pub fn target(&self) -> &T {
        &self.shared.target
    }

    /// The target, when the run is over.
    pub fn into_target(self) -> T {
        self.shared.target
    }

    /// How it is run.
    pub fn settings(&self) -> &RunSettings {
        &self.shared.settings
    }

    fn flash_written_bytes(&self) -> u64 {
        self.shared.target.flash_bytes().and_then(|flash| flash.host).unwrap_or(0)
    }

    fn flash_evictions(&self) -> u64 {
        self.snapshot().flash.and_then(|flash| flash.evictions).unwrap_or(0)
    }

    /// The latest time of a request that has begun, on the trace's own clock.
    fn trace_seconds(&self) -> u64 {
        self.trace_time.as_ref().map_or(0, |time| time.seconds())
    }

    /// The figures begin now.
    fn end_warmup(&self, elapsed: Duration) {
        let (counts, tenants) = self.books();
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

    /// Completes the trace of misses, if one was asked for, after the run that `report` is of.
    ///
    /// # Errors
    /// In words, why there is none.
    pub fn finish_misses(&self, report: &mut InstanceReport) -> Result<(), String> {
        let Some(misses) = &self.shared.misses else { return Ok(()) };
        let was_read = report.trace.as_ref().is_none_or(|trace| trace.failure.is_none());
        report.misses = Some(misses.finish(was_read)?);
        Ok(())
    }

    /// Checks the target after the run, if a stressor or the target itself does, and puts what was found into `report`.
    pub fn finish_stressor(&self, report: &mut InstanceReport) {
        match &self.stressor {
            Some(stressor) => {
                stressor.finish(&self.shared.target);
                report.stressor = Some(stressor.report());
            }
            None => report.stressor = self.shared.target.special_report(),
        }
    }

    /// Removes all items, if their destructors are checked, and puts what the check found into `report`.
    ///
    /// # Errors
    /// In words, why items may not have been destroyed.
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
        let mut report = self.report_of_all();
        let asked = self.shared.settings.warmup != WarmupPlan::default();
        let (_, mut ledger) = self.books();
        match self.baseline.lock().as_deref() {
            Some(baseline) => {
                baseline.take_from(&mut report);
                ledger = ledger.since(&baseline.tenants);
            }
            None => report.warmup = asked.then(Warmup::default),
        }
        let names = self.trace.as_ref().map(|trace| trace.tenants().all());
        report.tenants = ledger.told(&names.unwrap_or_default());
        report
    }

    /// Counters of all threads, in sum and by tenant, of the same moment: where a thread has a ledger, as it was between two
    /// requests.
    fn books(&self) -> (Counts, Ledger) {
        let (mut sum, mut all) = (Counts::default(), Ledger::default());
        for board in &self.boards {
            let ledger = board.tenants.lock();
            sum.add(&all.merge(&ledger, board.counting.read()));
        }
        (sum, all)
    }

    /// The whole run, warm-up included.
    fn report_of_all(&self) -> InstanceReport {
        let (started, ended) = (&self.progress.started_ns, &self.progress.ended_ns);
        let ran_ns = ended.load(Ordering::Acquire).saturating_sub(started.load(Ordering::Acquire));
        InstanceReport {
            settings: self.shared.settings.clone(),
            seconds: ran_ns as f64 / 1e9,
            counts: self.counts(),
            latencies: self.latencies(),
            timed_all: self.shared.time_all,
            snapshot: self.snapshot(),
            largest_refused_bytes: self.boards.iter().map(Board::largest_refused_bytes).max().unwrap_or(0),
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
        let mut worker = Worker::new(&self.shared, &self.boards[number], number_in_version);
        match (&self.stressor, self.schedule(number)) {
            (Some(stressor), _) => stressor.work(&self.shared, &self.boards[number], number).await,
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
    /// When the requests of worker `number` are due; `None` in a closed loop.
    fn schedule(&self, number: usize) -> Option<Schedule<'_>> {
        let start_ns = self.progress.started_ns.load(Ordering::Acquire);
        let (workers, seed) = (self.boards.len(), self.seed);
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
        self.boards.iter().for_each(|board| all.merge(&board.punctuality.lock()));
        all
    }
}

/// Tells this run's values from those of another; never 0, so that no version is.
#[must_use]
pub fn run_mark(clock: &dyn Clock) -> u64 {
    let mixed = (u64::from(clock.unix_seconds()) ^ clock.monotonic_ns()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (64 - MARK_BITS)).max(1)
}

impl<T: Target> Observable for Instance<T> {
    fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.boards.iter().for_each(|board| sum.add(&board.counting.read()));
        sum
    }

    fn latencies(&self) -> Latencies {
        let mut sum = Latencies::default();
        self.boards.iter().for_each(|board| sum.merge(&board.latencies.lock()));
        sum
    }

    fn snapshot(&self) -> Snapshot {
        self.shared.target.snapshot()
    }

    fn flash_bytes(&self) -> Option<FlashBytes> {
        self.shared.target.flash_bytes()
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
        self.sweeper.as_ref().map(Sweeper::seen)
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
    /// The workload cannot.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The simulated world goes on and nobody does anything.
    #[error("no operation completed in {seconds} virtual seconds: the simulated run is stuck")]
    Stuck {
        /// How long it was watched.
        seconds: u64,
    },
    /// A thread could not be started.
    #[error("starting a worker thread: {0}")]
    Thread(std::io::Error),
}
