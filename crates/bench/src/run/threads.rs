//! A run in the real world: workers are threads, or tasks of a few threads.

use std::sync::Arc;
use std::time::Duration;

use device::desk;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::{Condvar, Mutex};
use workload::Source;

use super::course::Course;
use super::stop::{Stop, StopReason};
use super::target::Target;
use super::{Instance, InstanceReport, Observable, RunError, TICK, Watcher};

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
    let Some(first) = instances.first() else { return Ok(Vec::new()) };
    let clock = &first.shared.clock;
    // Before the first thread's own clock: no look from here on is of an earlier time than what the thread counts as.
    let started_ns = clock.monotonic_ns();
    let elapsed = || Duration::from_nanos(clock.monotonic_ns() - started_ns);
    let finish = Finish::new(sources.iter().map(Vec::len).sum());
    let started: Result<(), RunError> = std::thread::scope(|scope| {
        // Else nobody could leave here whose worker panicked.
        let _ending = EndSweeps(instances);
        for (instance, sources) in instances.iter().zip(sources) {
            instance.begin(sources.len());
            let stop = &instance.shared.stop;
            if instance.sweeper.is_some() {
                start(scope, "dram-iterator".to_owned(), stop, || instance.sweep())?;
            }
            for (number, crew) in crews(sources, instance.settings().tasks).into_iter().enumerate() {
                let finish = &finish;
                start(scope, format!("worker-{number}"), stop, move || work(instance, crew, finish))?;
            }
        }
        watch(instances, timeout, watcher, &finish, &elapsed);
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

/// The workers of a thread, each until it has ended.
fn work<T: Target>(instance: &Instance<T>, crew: Vec<Worked>, finish: &Finish) {
    let work = |(number, mut source): Worked| {
        // Of its own, so that one who never had a turn is counted out too.
        let done = finish.on_drop();
        async move {
            let _done = done;
            instance.work(number, &mut *source).await;
        }
    };
    let mut all: FuturesUnordered<_> = crew.into_iter().map(work).collect();
    desk::block_on(async { while all.next().await.is_some() {} });
}

/// Starts a thread of a run. Where it cannot start, the others end.
fn start<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    name: String,
    stop: &Stop,
    work: impl FnOnce() + Send + 'scope,
) -> Result<(), RunError> {
    let started = std::thread::Builder::new().name(name).spawn_scoped(scope, work);
    started.map(drop).map_err(|error| {
        stop.set(StopReason::Interrupt);
        RunError::Thread(error)
    })
}

fn watch<T: Target>(
    instances: &[Arc<Instance<T>>],
    timeout: Option<Duration>,
    watcher: &mut dyn Watcher,
    finish: &Finish,
    elapsed: &dyn Fn() -> Duration,
) {
    let Some(first) = instances.first() else { return };
    let observables: Vec<&dyn Observable> =
        instances.iter().map(|instance| &**instance as &dyn Observable).collect();
    let mut course = Course::new(instances);
    while !finish.wait(TICK) {
        let elapsed = elapsed();
        if timeout.is_some_and(|timeout| elapsed >= timeout) {
            first.shared.stop.set(StopReason::Timeout);
        }
        course.look(instances, elapsed, watcher);
        watcher.moment(&observables, elapsed);
        watcher.look(&observables, elapsed);
    }
    // What came since the last look is part of the run.
    watcher.moment(&observables, elapsed());
}

/// Ends the walks over DRAM with the run.
struct EndSweeps<'a, T: Target>(&'a [Arc<Instance<T>>]);

impl<T: Target> Drop for EndSweeps<'_, T> {
    fn drop(&mut self) {
        self.0.iter().for_each(|instance| instance.end_sweeps());
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
