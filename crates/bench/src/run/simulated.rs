//! A run in simulated time: workers are tasks, time is virtual, and the same seed gives the same run.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use device::{Clock, Simulation};

use super::stop::StopReason;
use super::target::Target;
use super::warmup::PhaseTracker;
use super::{Instance, InstanceReport, Observable, RunError, TICK, Watcher};

/// Virtual time between two checks of the machine's clock.
const SLICE_NS: u64 = 10_000_000;
/// Virtual time in which at least one operation of a run must complete.
const STUCK_SECONDS: u64 = 3600;

/// Runs all instances as tasks of `simulation` until they end, time out (in virtual time) or are stopped. The background work of the
/// targets must already be among the simulation's tasks.
///
/// # Errors
/// A workload that cannot be started, or a simulation in which no operation completes any more.
pub fn run_simulated<T: Target + 'static>(
    simulation: &Simulation,
    instances: &[Arc<Instance<T>>],
    timeout: Option<Duration>,
    watcher: &mut dyn Watcher,
) -> Result<Vec<InstanceReport>, RunError> {
    for instance in instances {
        let sources = instance.workload.sources(instance.worker_stats.len(), instance.seed)?;
        instance.begin(sources.len());
        for (number, mut source) in sources.into_iter().enumerate() {
            let instance = Arc::clone(instance);
            simulation.spawn(async move { instance.work(number, &mut *source).await });
        }
    }
    let mut watch = Watch::new(simulation, timeout, PhaseTracker::new(instances));
    while instances.iter().any(|instance| instance.progress.running.load(Ordering::Acquire) > 0) {
        simulation.run_until(simulation.clock().monotonic_ns() + SLICE_NS);
        watch.look(instances, watcher)?;
    }
    Ok(instances.iter().map(|instance| instance.report()).collect())
}

/// State between two checks.
struct Watch<'a> {
    simulation: &'a Simulation,
    timeout: Option<Duration>,
    started_ns: u64,
    refreshed: Instant,
    ops: u64,
    ops_moved_ns: u64,
    phases: PhaseTracker,
}

impl<'a> Watch<'a> {
    fn new(simulation: &'a Simulation, timeout: Option<Duration>, phases: PhaseTracker) -> Self {
        let started_ns = simulation.clock().monotonic_ns();
        Self { simulation, timeout, started_ns, refreshed: now(), ops: 0, ops_moved_ns: started_ns, phases }
    }

    fn look<T: Target>(
        &mut self,
        instances: &[Arc<Instance<T>>],
        watcher: &mut dyn Watcher,
    ) -> Result<(), RunError> {
        let now_ns = self.simulation.clock().monotonic_ns();
        let elapsed = Duration::from_nanos(now_ns - self.started_ns);
        if self.timeout.is_some_and(|timeout| elapsed >= timeout) {
            instances.iter().for_each(|instance| instance.shared.stop.set(StopReason::Timeout));
        }
        let ops = instances.iter().map(|instance| instance.counts().ops).sum();
        if ops != self.ops {
            (self.ops, self.ops_moved_ns) = (ops, now_ns);
        } else if now_ns.saturating_sub(self.ops_moved_ns.max(idle_until_ns(instances)))
            > STUCK_SECONDS * 1_000_000_000
        {
            return Err(RunError::Stuck { seconds: STUCK_SECONDS });
        }
        let observables: Vec<&dyn Observable> =
            instances.iter().map(|instance| &**instance as &dyn Observable).collect();
        self.phases.update(instances, elapsed, watcher);
        watcher.sample(&observables, elapsed);
        if self.refreshed.elapsed() >= TICK {
            self.refreshed = now();
            watcher.refresh(&observables, elapsed);
        }
        Ok(())
    }
}

/// Until this time, no worker has a request to execute.
fn idle_until_ns<T>(instances: &[Arc<Instance<T>>]) -> u64 {
    let idle = |instance: &Arc<Instance<T>>| instance.shared.idle_until_ns.load(Ordering::Relaxed);
    instances.iter().map(idle).max().unwrap_or(0)
}

#[expect(clippy::disallowed_methods, reason = "the terminal is refreshed in real time")]
fn now() -> Instant {
    Instant::now()
}
