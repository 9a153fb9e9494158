//! The simulated world: virtual time, one thread, one seed, the same run every time.
//!
//! A [`Simulation`] holds a clock that stands, events that are due at moments of it, and tasks. Whatever is runnable
//! runs, in an order drawn from the seed; when nothing is, the clock jumps to the next event. Tasks that wait for
//! each other through event listeners, channels or [`Pending`](crate::Pending)s work as they do anywhere: the world only
//! needs their wakers. [`SimulatedDevice`] completes its requests as events.
//!
//! The same seed gives the same run only if nothing else makes a choice: no other threads, no hash maps in random
//! order, no machine time.

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

/// A simulated world and its scheduler. Its tasks do not have to be `Send`.
pub struct Simulation {
    world: World,
    tasks: Tasks,
}

/// A handle to the world for its participants: reads the time, schedules, sleeps. Cheap to clone.
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
    /// A world at nanosecond 0 in which all chance comes from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let random = Mutex::new(StdRng::seed_from_u64(seed));
        let shared = Shared { clock: Arc::default(), events: Mutex::default(), random };
        Self { world: World { shared: Arc::new(shared) }, tasks: Tasks::default() }
    }

    /// A hold on this world.
    #[must_use]
    pub fn world(&self) -> World {
        self.world.clone()
    }

    /// The world's clock.
    #[must_use]
    pub fn clock(&self) -> Arc<VirtualClock> {
        Arc::clone(&self.world.shared.clock)
    }

    /// Adds a task. It runs when the world runs, even if its result is not awaited.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        self.tasks.spawn(future)
    }

    /// Runs until no task can go on and no event is due any more.
    pub fn run_until_idle(&self) {
        self.run_until(u64::MAX);
    }

    /// Runs everything that is due up to `until_ns`, and leaves the clock there (unless that is the end of time).
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

    /// Runs the world until it is idle, as [`run_until_idle`](Self::run_until_idle) does, and returns the result of `future`. The clock
    /// then shows the time of the last event, which may be later than the completion of `future`. Endless work, such as a cache's background
    /// tasks, must end with `future`, for example by `select`: spawned beside it, it keeps the world from becoming idle.
    ///
    /// # Panics
    /// If the world becomes idle before `future` completes, because the event that it awaits cannot happen.
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
    /// Runs `action` at `at_ns`; if that is past, as soon as possible but not within this call. Actions due at the same time run in an
    /// order drawn from the seed.
    pub fn schedule(&self, at_ns: u64, action: impl FnOnce() + Send + 'static) {
        let draw = self.random();
        self.shared.events.lock().add(at_ns, draw, Box::new(action));
    }

    /// A future that ends `duration_ns` from now.
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

    /// The one thread of this world waits, and so the whole world does: events that were due meanwhile are late.
    fn wait_until(&self, due_ns: u64) {
        self.shared.clock.advance_to(due_ns);
    }
}

#[cfg(test)]
mod tests;
