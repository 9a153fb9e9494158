//! The stress loop: threads that do what a workload asks, and somebody who watches.
//!
//! [`target`] is what can be stressed, [`worker`] one thread's loop, [`counts`] and [`latency`] what it hands on;
//! [`run_all`] starts the threads of all instances, lets a [`Watcher`] look in between, and ends with a report each.

pub mod counts;
pub mod devices;
pub mod engine;
pub mod error;
mod fit;
pub mod latency;
pub mod listed_drives;
pub mod model_drive;
pub mod open;
pub mod pace;
pub mod room;
pub mod simulated;
pub mod stop;
pub mod target;
pub mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use device::Clock;
use parking_lot::{Condvar, Mutex};
use workload::pace::TokenBucket;
use workload::payload::Payload;
use workload::trace::{Replay, ReplayStats};
use workload::{Source, Workload, WorkloadError};

use crate::config::plan::RunSettings;
use crate::consistency::{Checker, Inconsistency};
use crate::report::series::Span;
use counts::Counts;
use latency::Latencies;
use pace::Waiter;
use stop::{Stop, StopReason};
use target::{FlashBytes, Snapshot, Target};
use worker::{Board, CHAIN_LOCKS, Checking, MARK_BITS, Shared, Worker};

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
}

/// When an instance ran.
#[derive(Default)]
struct Progress {
    running: AtomicUsize,
    started_ns: AtomicU64,
    /// 0 while it runs.
    ended_ns: AtomicU64,
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
    /// How reading the trace went; `None` where there was none.
    pub trace: Option<ReplayStats>,
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
        let checking = settings.check_consistency.then(|| Checking {
            checker: Checker::new(inherits),
            run_mark: run_mark(&*clock),
            chain_locks: chains.then(|| std::iter::repeat_with(Default::default).take(CHAIN_LOCKS).collect()),
            found: Mutex::default(),
        });
        let boards = std::iter::repeat_with(Board::default).take(settings.threads).collect();
        let bucket = settings.rate.map(|(rate, burst)| TokenBucket::new(rate, burst, now_ns));
        let payload = Payload::new(settings.zeros_percent);
        let shared = Shared { target, settings, clock, waiter, payload, stop, bucket, checking, time_all };
        Self { shared, boards, workload, seed, trace, progress: Progress::default() }
    }

    /// The target.
    pub fn target(&self) -> &T {
        &self.shared.target
    }

    /// The target, when the run is over.
    pub fn into_target(self) -> T {
        self.shared.target
    }

    fn report(&self) -> InstanceReport {
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
            trace: self.trace.as_ref().map(|trace| trace.stats()),
        }
    }

    fn begin(&self, workers: usize) {
        self.progress.running.store(workers, Ordering::Release);
        self.progress.started_ns.store(self.shared.clock.monotonic_ns(), Ordering::Release);
    }

    async fn work(&self, number: usize, source: &mut dyn Source) {
        let number_in_version = u16::try_from(number).unwrap_or(u16::MAX);
        Worker::new(&self.shared, &self.boards[number], number_in_version).run(source).await;
        if self.progress.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.progress.ended_ns.store(self.shared.clock.monotonic_ns(), Ordering::Release);
        }
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
            for (number, mut source) in sources.into_iter().enumerate() {
                let finish = &finish;
                let thread = std::thread::Builder::new().name(format!("worker-{number}"));
                let work = move || {
                    let _done = finish.on_drop();
                    pollster::block_on(instance.work(number, &mut *source));
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
    while !finish.wait(TICK) {
        let elapsed = Duration::from_nanos(clock.monotonic_ns() - started_ns);
        if timeout.is_some_and(|timeout| elapsed >= timeout) {
            stop.set(StopReason::Timeout);
        }
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
