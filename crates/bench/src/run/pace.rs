//! Waiting of workers, on a thread or as a task in real or virtual time. [`workload::pace`] decides how long.

use std::sync::Arc;
use std::time::Duration;

use device::Clock;
use device::timer::{self, Timer};

use super::stop::Stop;

/// A sleeping thread wakes about 50 µs late, so the end of a wait spins. Longer spinning would take CPU time from busy threads.
const SPIN_NS: u64 = 80_000;
/// Interval at which a long wait checks whether the run was stopped.
const STOP_CHECK_NS: u64 = 100_000_000;

/// How a worker waits.
#[derive(Clone)]
pub enum Waiter {
    /// The worker's thread sleeps.
    Thread(Arc<dyn Clock>),
    /// Other workers of the same thread run in the meantime.
    SharedThread(Arc<dyn Timer>),
    /// Virtual time advances.
    Task {
        /// The virtual clock.
        timer: Arc<dyn Timer>,
        /// CPU time of one operation, in nanoseconds.
        cpu_ns_per_op: u64,
    },
}

impl Waiter {
    /// Waits until `until_ns`, or until shortly after the run is stopped.
    pub async fn until(&self, until_ns: u64, stop: &Stop) {
        match self {
            Self::Thread(clock) => wait_until(&**clock, until_ns, stop),
            Self::SharedThread(timer) | Self::Task { timer, .. } => loop {
                let left_ns = until_ns.saturating_sub(timer.monotonic_ns());
                timer::sleep(&**timer, left_ns.min(STOP_CHECK_NS)).await;
                if left_ns <= STOP_CHECK_NS || stop.is_set() {
                    return;
                }
            },
        }
    }
}

/// Blocks this thread.
fn wait_until(clock: &dyn Clock, until_ns: u64, stop: &Stop) {
    loop {
        let left_ns = until_ns.saturating_sub(clock.monotonic_ns());
        match left_ns {
            0 => return,
            1..=SPIN_NS => std::thread::yield_now(),
            _ if stop.is_set() => return,
            left_ns => sleep((left_ns - SPIN_NS).min(STOP_CHECK_NS)),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a worker thread of the bench may sleep for the pauses that its config requests"
)]
fn sleep(ns: u64) {
    std::thread::sleep(Duration::from_nanos(ns));
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::SystemClock;

    #[test]
    fn wait_never_ends_early() {
        let clock = SystemClock;
        for wait_ns in [0, 10_000, 1_500_000] {
            let until_ns = clock.monotonic_ns() + wait_ns;
            wait_until(&clock, until_ns, &Stop::default());
            assert!(clock.monotonic_ns() >= until_ns);
        }
    }
}
