//! Holding a run back: a token bucket for all threads, pauses for each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::Clock;

/// Pauses below this are spun away: a sleeping thread comes back some 50 µs late.
const SPIN_BELOW: Duration = Duration::from_millis(1);

/// Hands out turns at a steady rate, with some slack for bursts. A caller books the next free moment and waits for it,
/// so nobody is overtaken for ever and the sum is exact.
#[derive(Debug)]
pub struct TokenBucket {
    /// Distance of two turns, in 1/1024 nanoseconds so that rates above a million a second are exact too.
    interval: u64,
    burst: u64,
    /// The next free moment, same unit.
    next: AtomicU64,
}

const FRACTION_BITS: u32 = 10;

impl TokenBucket {
    /// `rate_per_second` turns a second, of which `burst` may be taken at once after a pause.
    #[must_use]
    pub fn new(rate_per_second: u64, burst: u64, now_ns: u64) -> Self {
        let interval = ((1_000_000_000_u64 << FRACTION_BITS) / rate_per_second.max(1)).max(1);
        Self { interval, burst: interval.saturating_mul(burst), next: AtomicU64::new(now_ns << FRACTION_BITS) }
    }

    /// Books a turn; says how many nanoseconds from `now_ns` it is away.
    pub fn book(&self, now_ns: u64) -> u64 {
        let now = now_ns << FRACTION_BITS;
        // Unused turns are kept for as long as a burst lasts.
        let earliest = now.saturating_sub(self.burst);
        let book = |next: u64| Some(next.max(earliest) + self.interval);
        let booked = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, book).expect("always books");
        (booked.max(earliest)).saturating_sub(now) >> FRACTION_BITS
    }
}

/// Waits for `pause` on this thread.
pub fn wait(clock: &dyn Clock, pause: Duration) {
    if pause < SPIN_BELOW {
        let end = clock.monotonic_ns() + u64::try_from(pause.as_nanos()).expect("below a millisecond");
        while clock.monotonic_ns() < end {
            std::hint::spin_loop();
        }
    } else {
        #[expect(clippy::disallowed_methods, reason = "worker threads are the rim: a pause of the config is theirs to sleep")]
        std::thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_at_the_rate() {
        let bucket = TokenBucket::new(1_000, 0, 0);
        let waits: Vec<u64> = (0..4).map(|_| bucket.book(0)).collect();
        assert_eq!(waits, [0, 1_000_000, 2_000_000, 3_000_000]);
    }

    #[test]
    fn a_pause_earns_a_burst_and_no_more() {
        let bucket = TokenBucket::new(1_000, 3, 0);
        let later_ns = 1_000_000_000;
        let waits: Vec<u64> = (0..6).map(|_| bucket.book(later_ns)).collect();
        assert_eq!(waits, [0, 0, 0, 0, 1_000_000, 2_000_000]);
    }

    #[test]
    fn rates_above_a_million_a_second_are_not_rounded_away() {
        let bucket = TokenBucket::new(3_000_000, 0, 0);
        let last = (0..3_000_001).map(|_| bucket.book(0)).last().unwrap();
        assert!((999_000_000..=1_001_000_000).contains(&last), "{last}");
    }
}
