//! The stress loop: threads that do what a workload asks, and somebody who watches.
//!
//! [`target`] is what can be stressed, [`worker`] one thread's loop, [`counts`] and [`latency`] what it hands on;
//! [`run_all`] starts the threads of all instances, lets a [`Watcher`] look in between, and ends with a report each.

pub mod counts;
pub mod course;
pub mod devices;
pub mod engine;
pub mod error;
mod fit;
pub mod latency;
pub mod listed_drives;
pub mod model_drive;
pub mod open;
pub mod pace;
pub mod punctuality;
pub mod room;
pub mod simulated;
pub mod stop;
mod sums;
pub mod target;
pub mod tenants;
pub mod trace_time;
pub mod worker;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use device::Clock;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::{Condvar, Mutex};
use workload::pace::{Arrivals, TokenBucket};
use workload::payload::Payload;
use workload::trace::{Replay, ReplayStats};
use workload::{Source, Workload, WorkloadError};

use crate::config::plan::{ArrivalsPlan, RunSettings, WarmupPlan};
use crate::consistency::{Checker, Inconsistency};
use crate::events::EventCounts;
use crate::report::series::Span;
use counts::Counts;
use course::{Baseline, Course, Warmup};
use latency::Latencies;
use pace::Waiter;
use punctuality::Punctuality;
use stop::{Stop, StopReason};
use target::{FlashBytes, Snapshot, Target};
use tenants::{Ledger, Tenants};
use worker::{Board, CHAIN_LOCKS, Checking, Due, MARK_BITS, Schedule, Shared, TracePace, Worker};

/// How often the watcher looks.
const TICK: Duration = Duration::from_millis(200);

/// What an instance is besides its target and settings.
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
}

/// One target under one workload.
pub struct Instance<T> {
    shared: Shared<T>,
    boards: Vec<Board>,
    workload: Box<dyn Workload>,
    seed: u64,
    trace: Option<Arc<Replay>>,
    progress: Progress,
    /// Where the figures begin, once the warm-up has ended.
    baseline: Mutex<Option<Box<Baseline>>>,
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
    /// Operations that the run will do, unless its workload ends before.
    fn total_ops(&self) -> u64;
    /// Has it offered so many operations a second from here on; a run that began without a rate has none.
    fn set_rate(&self, ops_per_second: u64);
}

/// Somebody who watches a run.
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

    /// Whether [`interval`](Self::interval) is to be told.
    fn wants_intervals(&self) -> bool {
        false
    }

    /// What happened since the moment before, in all instances together; the last one ends with the run.
    fn interval(&mut self, span: &Span) {
        let _ = span;
    }
}

/// What became of one instance.
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
    /// The first values that should not have been found; all are counted.
    pub inconsistencies: Vec<Inconsistency>,
    /// Why it ended early, where it did.
    pub stopped: Option<StopReason>,
    /// How punctual requests were, in an open loop.
    pub punctuality: Option<Punctuality>,
    /// What was left out of the figures; `None` where nothing was to be.
    pub warmup: Option<Warmup>,
    /// How reading the trace went; `None` where there was none.
    pub trace: Option<ReplayStats>,
    /// The tenants of the trace; `None` where it has none.
    pub tenants: Option<Tenants>,
    /// What was written down of keys, warm-up included; `None` where nothing was to be.
    pub events: Option<EventCounts>,
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
        let InstanceOptions { seed, clock, waiter, stop, time_all, inherits, chains, trace } = options;
        let now_ns = clock.monotonic_ns();
        let stop = stop.for_instance();
        let checking = settings.check_consistency.then(|| Checking {
            checker: Checker::new(inherits),
            run_mark: run_mark(&*clock),
            chain_locks: chains.then(|| std::iter::repeat_with(Default::default).take(CHAIN_LOCKS).collect()),
            found: Mutex::default(),
        });
        let boards = std::iter::repeat_with(Board::default).take(settings.threads).collect();
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
            time_all,
            held_until_ns,
        };
        let (progress, baseline) = (Progress::default(), Mutex::default());
        Self { shared, boards, workload, seed, trace, progress, baseline }
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
            events: None,
        }
    }

    fn begin(&self, workers: usize) {
        self.progress.running.store(workers, Ordering::Release);
        self.progress.started_ns.store(self.shared.clock.monotonic_ns(), Ordering::Release);
    }

    async fn work(&self, number: usize, source: &mut dyn Source) {
        let number_in_version = u16::try_from(number).unwrap_or(u16::MAX);
        let mut worker = Worker::new(&self.shared, &self.boards[number], number_in_version);
        match self.schedule(number) {
            None => worker.run(source).await,
            Some(schedule) => worker.run_open(source, schedule).await,
        }
        if self.progress.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.progress.ended_ns.store(self.shared.clock.monotonic_ns(), Ordering::Release);
        }
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
fn run_mark(clock: &dyn Clock) -> u64 {
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

    fn total_ops(&self) -> u64 {
        self.shared.settings.total_ops()
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
    #[error("no operation ended in {seconds} virtual seconds: the simulated run is stuck")]
    Stuck {
        /// How long it was watched.
        seconds: u64,
    },
    /// A thread could not be started.
    #[error("starting a worker thread: {0}")]
    Thread(std::io::Error),
}

/// Runs all instances side by side to their end, their timeout, or until they are stopped.
///
/// # Errors
/// A workload or a thread that cannot start; nothing runs any more then.
pub fn run_all<T: Target>(
    instances: &[Arc<Instance<T>>],
    timeout: Option<Duration>,
    watcher: &mut dyn Watcher,
) -> Result<Vec<InstanceReport>, RunError> {
    let mut sources = Vec::new();
    for instance in instances {
        sources.push(instance.workload.sources(instance.boards.len(), instance.seed)?);
    }
    let finish = Finish::new(sources.iter().map(Vec::len).sum());
    let started = std::thread::scope(|scope| {
        for (instance, sources) in instances.iter().zip(sources) {
            instance.begin(sources.len());
            for (number, workers) in crews(sources, instance.settings().tasks).into_iter().enumerate() {
                let finish = &finish;
                let thread = std::thread::Builder::new().name(format!("worker-{number}"));
                let work = move || {
                    let work = |(number, mut source): Worked| {
                        // Of its own, so that one who never had a turn is counted out too.
                        let done = finish.on_drop();
                        async move {
                            let _done = done;
                            instance.work(number, &mut *source).await;
                        }
                    };
                    let mut all: FuturesUnordered<_> = workers.into_iter().map(work).collect();
                    pollster::block_on(async { while all.next().await.is_some() {} });
                };
                if let Err(error) = thread.spawn_scoped(scope, work) {
                    instance.shared.stop.set(StopReason::Interrupt);
                    return Err(RunError::Thread(error));
                }
            }
        }
        watch(instances, timeout, watcher, &finish);
        Ok(())
    });
    started?;
    Ok(instances.iter().map(|instance| instance.report()).collect())
}

/// A worker's number and what it is asked.
type Worked = (usize, Box<dyn Source>);

/// Which workers a thread has: one, or as tasks so many that there is a thread for each processor.
fn crews(sources: Vec<Box<dyn Source>>, tasks: bool) -> Vec<Vec<Worked>> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if tasks { sources.len().min(processors) } else { sources.len() };
    let mut crews: Vec<_> = std::iter::repeat_with(Vec::new).take(threads).collect();
    sources.into_iter().enumerate().for_each(|worked| crews[worked.0 % threads].push(worked));
    crews
}

fn watch<T: Target>(
    instances: &[Arc<Instance<T>>],
    timeout: Option<Duration>,
    watcher: &mut dyn Watcher,
    finish: &Finish,
) {
    let Some(first) = instances.first() else { return };
    let (clock, stop) = (&first.shared.clock, &first.shared.stop);
    let observables: Vec<&dyn Observable> =
        instances.iter().map(|instance| &**instance as &dyn Observable).collect();
    let started_ns = clock.monotonic_ns();
    let mut course = Course::new(instances);
    while !finish.wait(TICK) {
        let elapsed = Duration::from_nanos(clock.monotonic_ns() - started_ns);
        if timeout.is_some_and(|timeout| elapsed >= timeout) {
            stop.set(StopReason::Timeout);
        }
        course.look(instances, elapsed, watcher);
        watcher.moment(&observables, elapsed);
        watcher.look(&observables, elapsed);
    }
}

/// Counts threads out, and wakes the watcher when the last has gone.
struct Finish {
    left: Mutex<usize>,
    none_left: Condvar,
}

struct Done<'a>(&'a Finish);

impl Finish {
    fn new(threads: usize) -> Self {
        Self { left: Mutex::new(threads), none_left: Condvar::new() }
    }

    /// A thread that panics has gone too.
    fn on_drop(&self) -> Done<'_> {
        Done(self)
    }

    /// Waits for `at_most`; whether all have gone.
    fn wait(&self, at_most: Duration) -> bool {
        let mut left = self.left.lock();
        if *left > 0 {
            self.none_left.wait_for(&mut left, at_most);
        }
        *left == 0
    }
}

impl Drop for Done<'_> {
    fn drop(&mut self) {
        *self.0.left.lock() -= 1;
        self.0.none_left.notify_all();
    }
}
