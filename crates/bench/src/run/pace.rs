//! Waiting: what the pacing of [`workload::pace`] says, done by a thread or by a task of the simulated world.

use std::sync::Arc;
use std::time::Duration;

use device::Clock;
use device::timer::{self, Timer};

use super::stop::Stop;

/// A sleeping thread comes back some 50 µs late, so the end of a wait is awake. Longer than that nobody stays awake, or threads that
/// wait would keep those from working that have something to do.
const AWAKE_NS: u64 = 80_000;
/// Who waits long looks up so often whether the run was stopped.
const LOOK_EVERY_NS: u64 = 100_000_000;

/// How a worker waits, by the world it is in.
#[derive(Clone)]
pub enum Waiter {
    /// Its thread sleeps.
    Thread(Arc<dyn Clock>),
    /// Its thread has other workers, which get on meanwhile.
    Sharing(Arc<dyn Timer>),
    /// Virtual time passes.
    Task {
        /// The world's time.
        timer: Arc<dyn Timer>,
        /// What an operation's own computing takes, nanoseconds.
        cpu_ns_per_op: u64,
    },
}

impl Waiter {
    /// Waits until `until_ns`, or a little longer than until the run is stopped.
    pub async fn until(&self, until_ns: u64, stop: &Stop) {
        match self {
            Self::Thread(clock) => wait_until(&**clock, until_ns, stop),
            Self::Sharing(timer) | Self::Task { timer, .. } => loop {
                let left_ns = until_ns.saturating_sub(timer.monotonic_ns());
                timer::sleep(&**timer, left_ns.min(LOOK_EVERY_NS)).await;
                if left_ns <= LOOK_EVERY_NS || stop.is_set() {
                    return;
                }
            },
        }
    }
}

/// Waits on this thread.
fn wait_until(clock: &dyn Clock, until_ns: u64, stop: &Stop) {
    loop {
        let left_ns = until_ns.saturating_sub(clock.monotonic_ns());
        match left_ns {
            0 => return,
            1..=AWAKE_NS => std::thread::yield_now(),
            _ if stop.is_set() => return,
            left_ns => sleep((left_ns - AWAKE_NS).min(LOOK_EVERY_NS)),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "worker threads are the rim: the config's pauses are theirs to sleep"
)]
fn sleep(ns: u64) {
    std::thread::sleep(Duration::from_nanos(ns));
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::SystemClock;

    #[test]
    fn nobody_comes_back_early() {
        let clock = SystemClock;
        for wait_ns in [0, 10_000, 1_500_000] {
            let until_ns = clock.monotonic_ns() + wait_ns;
            wait_until(&clock, until_ns, &Stop::default());
            assert!(clock.monotonic_ns() >= until_ns);
        }
    }
}
