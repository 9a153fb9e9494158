//! Waiting: what the pacing of [`workload::pace`] says, done by a thread.

use std::time::Duration;

use device::Clock;

/// Waits below this are spun away: a sleeping thread comes back some 50 µs late.
const SPIN_BELOW_NS: u64 = 1_000_000;

/// Waits until `until_ns` on this thread.
pub fn wait_until(clock: &dyn Clock, until_ns: u64) {
    loop {
        let left_ns = until_ns.saturating_sub(clock.monotonic_ns());
        match left_ns {
            0 => return,
            left_ns if left_ns < SPIN_BELOW_NS => std::hint::spin_loop(),
            left_ns => sleep(left_ns),
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
            wait_until(&clock, until_ns);
            assert!(clock.monotonic_ns() >= until_ns);
        }
    }
}
