//! A run in real time: workers are threads, or tasks on a few threads.

use std::sync::Arc;
use std::time::Duration;

use device::event_loop;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::{Condvar, Mutex};
use workload::Source;

use super::stop::{Stop, StopReason};
use super::target::Target;
use super::warmup::PhaseTracker;
use super::{Instance, InstanceReport, Observable, RunError, TICK, Watcher};

/// Runs all instances concurrently until they end, time out or are stopped.
///
/// # Errors
/// A workload or a thread that cannot be started; all threads have ended then.
pub fn run_all<T: Target>(
    instances: &[Arc<Instance<T>>],
    timeout: Option<Duration>,
    watcher: &mut dyn Watcher,
) -> Result<Vec<InstanceReport>, RunError> {
    let mut sources = Vec::new();
    for instance in instances {
        sources.push(instance.workload.sources(instance.worker_stats.len(), instance.seed)?);
    }
    let Some(first) = instances.first() else { return Ok(Vec::new()) };
    let clock = &first.shared.clock;
    // Read before any thread reads its own clock, so that no sample has an earlier time than the operations it counts.
    let started_ns = clock.monotonic_ns();
    let elapsed = || Duration::from_nanos(clock.monotonic_ns() - started_ns);
    let finish = Finish::new(sources.iter().map(Vec::len).sum());
    let started: Result<(), RunError> = std::thread::scope(|scope| {
        // Ends the sweeps even if a worker panics; otherwise the scope would wait for them forever.
        let _guard = EndSweeps(instances);
        for (instance, sources) in instances.iter().zip(sources) {
            instance.begin(sources.len());
            let stop = &instance.shared.stop;
            if instance.sweeper.is_some() {
                start(scope, "dram-iterator".to_owned(), stop, || instance.sweep())?;
            }
            for (number, workers) in
                workers_by_thread(sources, instance.settings().tasks).into_iter().enumerate()
            {
                let finish = &finish;
                start(scope, format!("worker-{number}"), stop, move || work(instance, workers, finish))?;
            }
        }
        watch(instances, timeout, watcher, &finish, &elapsed);
        Ok(())
    });
    started?;
    Ok(instances.iter().map(|instance| instance.report()).collect())
}

/// A worker's number and its requests.
type NumberedSource = (usize, Box<dyn Source>);

/// Assigns workers to threads: one each, or with `tasks` evenly to one thread per processor.
fn workers_by_thread(sources: Vec<Box<dyn Source>>, tasks: bool) -> Vec<Vec<NumberedSource>> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let count = if tasks { sources.len().min(processors) } else { sources.len() };
    let mut threads: Vec<_> = std::iter::repeat_with(Vec::new).take(count).collect();
    sources.into_iter().enumerate().for_each(|source| threads[source.0 % count].push(source));
    threads
}

/// Runs the workers of one thread until all have ended.
fn work<T: Target>(instance: &Instance<T>, workers: Vec<NumberedSource>, finish: &Finish) {
    let work = |(number, mut source): NumberedSource| {
        // Created before the task starts, so that a worker that never ran is counted as ended too.
        let done = finish.on_drop();
        async move {
            let _done = done;
            instance.work(number, &mut *source).await;
        }
    };
    let mut all: FuturesUnordered<_> = workers.into_iter().map(work).collect();
    event_loop::block_on(async { while all.next().await.is_some() {} });
}

/// Starts a thread of a run. If it cannot be started, the others are stopped.
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
    let mut phases = PhaseTracker::new(instances);
    while !finish.wait(TICK) {
        let elapsed = elapsed();
        if timeout.is_some_and(|timeout| elapsed >= timeout) {
            first.shared.stop.set(StopReason::Timeout);
        }
        phases.update(instances, elapsed, watcher);
        watcher.sample(&observables, elapsed);
        watcher.refresh(&observables, elapsed);
    }
    // Includes the operations since the last sample.
    watcher.sample(&observables, elapsed());
}

/// Ends the iterations over DRAM when the run ends.
struct EndSweeps<'a, T: Target>(&'a [Arc<Instance<T>>]);

impl<T: Target> Drop for EndSweeps<'_, T> {
    fn drop(&mut self) {
        self.0.iter().for_each(|instance| instance.end_sweeps());
    }
}

/// Counts running workers, and wakes the watcher when the last one ends.
struct Finish {
    running: Mutex<usize>,
    all_ended: Condvar,
}

/// Counts a worker as ended when it is dropped, also by a panic.
struct Done<'a>(&'a Finish);

impl Finish {
    fn new(workers: usize) -> Self {
        Self { running: Mutex::new(workers), all_ended: Condvar::new() }
    }

    fn on_drop(&self) -> Done<'_> {
        Done(self)
    }

    /// Waits for at most `timeout`; returns whether all workers have ended.
    fn wait(&self, timeout: Duration) -> bool {
        let mut running = self.running.lock();
        if *running > 0 {
            self.all_ended.wait_for(&mut running, timeout);
        }
        *running == 0
    }
}

impl Drop for Done<'_> {
    fn drop(&mut self) {
        *self.0.running.lock() -= 1;
        self.0.all_ended.notify_all();
    }
}
