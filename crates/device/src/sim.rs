//! Simulation: virtual time, one thread, one seed, reproducible runs.
//!
//! A [`Simulation`] contains a clock, events that are due at times of it, and tasks. Runnable tasks run in an order drawn from the seed;
//! when there is none, the clock jumps to the next event. Tasks can wait for each other through event listeners, channels or
//! [`Pending`](crate::Pending)s as usual, because the simulation only needs their wakers. [`SimulatedDevice`] completes its requests as
//! events.
//!
//! Runs are reproducible only without other sources of randomness: other threads, hash maps in random order, the machine's time.

mod device;
mod events;
mod tasks;

use std::future::Future;
use std::sync::Arc;

pub use device::{LatencyModel, SimulatedDevice};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
pub use tasks::Task;

use crate::timer::{self, Action, Sleep, Timer};
use crate::{Clock, VirtualClock};
use events::Events;
use tasks::Tasks;

/// A simulation and its scheduler. Its tasks do not have to be `Send`.
pub struct Simulation {
    world: World,
    tasks: Tasks,
}

/// A handle to the simulation: reads the time, schedules actions, sleeps. Cheap to clone.
#[derive(Clone)]
pub struct World {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<VirtualClock>,
    events: Mutex<Events>,
    random: Mutex<StdRng>,
}

impl Simulation {
    /// A simulation at nanosecond 0 whose randomness comes from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let random = Mutex::new(StdRng::seed_from_u64(seed));
        let shared = Shared { clock: Arc::default(), events: Mutex::default(), random };
        Self { world: World { shared: Arc::new(shared) }, tasks: Tasks::default() }
    }

    /// A handle to this simulation.
    #[must_use]
    pub fn world(&self) -> World {
        self.world.clone()
    }

    /// The simulation's clock.
    #[must_use]
    pub fn clock(&self) -> Arc<VirtualClock> {
        Arc::clone(&self.world.shared.clock)
    }

    /// Adds a task. It runs with the simulation, even if its result is not awaited.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        self.tasks.spawn(future)
    }

    /// Runs until no task is runnable and no event is scheduled.
    pub fn run_until_idle(&self) {
        self.run_until(u64::MAX);
    }

    /// Runs everything due up to `until_ns`, and sets the clock to it (unless it is the largest time).
    pub fn run_until(&self, until_ns: u64) {
        loop {
            while self.tasks.run_one(|count| self.world.below(count)) {}
            let Some(due) = self.world.shared.events.lock().take_due(until_ns) else { break };
            self.world.shared.clock.advance_to(due.at_ns);
            (due.action)();
        }
        if until_ns < u64::MAX {
            self.world.shared.clock.advance_to(until_ns);
        }
    }

    /// Runs the simulation until it is idle, as [`run_until_idle`](Self::run_until_idle) does, and returns the result of `future`. The
    /// clock then shows the time of the last event, which can be later than the completion of `future`. Endless work, such as a cache's
    /// background tasks, must end with `future`, for example by `select`: spawned separately, it keeps the simulation from becoming idle.
    ///
    /// # Panics
    /// If the simulation becomes idle before `future` completes, because the event that it awaits cannot happen.
    pub fn block_on<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let task = self.spawn(future);
        self.run_until_idle();
        task.result().unwrap_or_else(|| {
            let (tasks, now_ns) = (self.tasks.len(), self.world.monotonic_ns());
            panic!("deadlock at {now_ns} ns: {tasks} tasks wait for something that can never happen")
        })
    }
}

impl World {
    /// Runs `action` at `at_ns`; if that time has passed, as soon as possible but not within this call. Actions due at the same time run in
    /// an order drawn from the seed.
    pub fn schedule(&self, at_ns: u64, action: impl FnOnce() + Send + 'static) {
        let draw = self.random();
        self.shared.events.lock().add(at_ns, draw, Box::new(action));
    }

    /// A future that completes `duration_ns` from now.
    pub fn sleep(&self, duration_ns: u64) -> Sleep<'_> {
        timer::sleep(self, duration_ns)
    }

    /// A number drawn from the seed.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.shared.random.lock().next_u64()
    }

    fn below(&self, count: usize) -> usize {
        (self.random() % count as u64) as usize
    }
}

impl Clock for World {
    fn monotonic_ns(&self) -> u64 {
        self.shared.clock.monotonic_ns()
    }

    fn unix_seconds(&self) -> u32 {
        self.shared.clock.unix_seconds()
    }
}

impl Timer for World {
    fn at(&self, due_ns: u64, action: Action) {
        self.schedule(due_ns, action);
    }

    /// Blocks the simulation's only thread: events due in the meantime run late.
    fn wait_until(&self, due_ns: u64) {
        self.shared.clock.advance_to(due_ns);
    }
}

#[cfg(test)]
mod tests;
