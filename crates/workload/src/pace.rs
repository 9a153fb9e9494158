//! Request rates.
//!
//! Nothing here sleeps or reads a clock: a limiter receives the time and returns the time to wait until. The caller waits.

use std::sync::atomic::{AtomicU64, Ordering};

mod arrivals;

pub use arrivals::Arrivals;

/// A token bucket with reservations: a caller that finds it empty takes a future token and waits until its time. Callers are served in
/// order of arrival, and the rate holds for any number of callers. Shared by all threads of an instance, without a lock.
#[derive(Debug)]
pub struct TokenBucket {
    /// Ticks between two tokens: the bits of an `f64`, since the rate can change.
    ticks_per_token: AtomicU64,
    burst_ticks: u64,
    start_ns: u64,
    /// Time at which the bucket is empty; it is full `burst_ticks` later. In ticks since `burst_ticks` before the start.
    empty_at: AtomicU64,
}

/// Tokens are accounted in fractions of a nanosecond: at ten million per second a token takes 100 ns, and rounding to whole nanoseconds
/// could be off by half a percent. The counter lasts 834 days.
const TICKS_PER_NS: u64 = 256;

/// Largest burst: the tokens of 417 days. Half of the counter's range remains for the time.
const MOST_BURST_TICKS: u64 = 1 << 63;

impl TokenBucket {
    /// A bucket of `tokens_per_second`, full at `start_ns` with `burst` tokens.
    ///
    /// # Panics
    /// If the rate or the burst is 0.
    #[must_use]
    pub fn new(tokens_per_second: u64, burst: u64, start_ns: u64) -> Self {
        assert!(tokens_per_second > 0 && burst > 0, "the rate and the burst must be above 0");
        let ticks_per_token = ticks_per_token(tokens_per_second);
        let burst_ticks = ((ticks_per_token * burst as f64) as u64).min(MOST_BURST_TICKS);
        let ticks_per_token = AtomicU64::new(ticks_per_token.to_bits());
        Self { ticks_per_token, burst_ticks, start_ns, empty_at: AtomicU64::new(0) }
    }

    /// Changes the rate to `tokens_per_second`. Reservations stay, and so does the time that a full bucket covers: the burst grows or shrinks
    /// with the rate. Saved tokens of the old rate are dropped.
    ///
    /// # Panics
    /// If the rate is 0.
    pub fn set_rate(&self, tokens_per_second: u64, now_ns: u64) {
        assert!(tokens_per_second > 0, "the rate must be above 0");
        let now = now_ns.saturating_sub(self.start_ns) * TICKS_PER_NS + self.burst_ticks;
        self.empty_at.fetch_max(now, Ordering::Relaxed);
        self.ticks_per_token.store(ticks_per_token(tokens_per_second).to_bits(), Ordering::Relaxed);
    }

    /// Takes `tokens`. Returns the time at which the caller may continue: `now_ns` or later.
    pub fn reserve(&self, tokens: u64, now_ns: u64) -> u64 {
        let now = now_ns.saturating_sub(self.start_ns) * TICKS_PER_NS + self.burst_ticks;
        let ticks_per_token = f64::from_bits(self.ticks_per_token.load(Ordering::Relaxed));
        let price = (ticks_per_token * tokens as f64) as u64;
        // The bucket saves at most one burst.
        let full_at_least = now - self.burst_ticks;
        let take = |empty_at: u64| empty_at.max(full_at_least).saturating_add(price);
        let before = self
            .empty_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |empty_at| Some(take(empty_at)))
            .expect("the update function always returns a value");
        let missing = take(before).saturating_sub(now);
        now_ns + missing.div_ceil(TICKS_PER_NS)
    }
}

fn ticks_per_token(tokens_per_second: u64) -> f64 {
    1e9 * TICKS_PER_NS as f64 / tokens_per_second as f64
}

/// A pause after a fixed number of operations of one thread (CacheBench's `opDelayBatch` and `opDelayNs`).
#[derive(Debug, Clone)]
pub struct Pause {
    every_operations: u64,
    pause_ns: u64,
    done: u64,
}

impl Pause {
    /// A pause of `pause_ns` after every `every_operations`; never, if either is 0.
    #[must_use]
    pub fn new(every_operations: u64, pause_ns: u64) -> Self {
        let every_operations = if pause_ns == 0 { 0 } else { every_operations };
        Self { every_operations, pause_ns, done: 0 }
    }

    /// Counts an operation. Returns the pause after it, in nanoseconds.
    pub fn after_operation(&mut self) -> Option<u64> {
        if self.every_operations == 0 {
            return None;
        }
        self.done += 1;
        if self.done < self.every_operations {
            return None;
        }
        self.done = 0;
        Some(self.pause_ns)
    }
}

/// Maps the trace's clock to the run's: the first request is due at the start, and the intervals between requests are divided by `speed`. A
/// latency measured from the due time includes the wait behind a slow earlier request (no coordinated omission).
#[derive(Debug, Clone, Copy)]
pub struct TraceClock {
    start_ns: u64,
    trace_start_ns: u64,
    speed: f64,
}

impl TraceClock {
    /// A clock on which the trace's `trace_start_ns` is the run's `start_ns`, running `speed` times as fast.
    ///
    /// # Panics
    /// If `speed` is not above 0.
    #[must_use]
    pub fn new(trace_start_ns: u64, start_ns: u64, speed: f64) -> Self {
        assert!(speed > 0.0, "the speed must be above 0");
        Self { start_ns, trace_start_ns, speed }
    }

    /// The run's time at which the request recorded at `time_ns` is due.
    #[must_use]
    pub fn due_ns(&self, time_ns: u64) -> u64 {
        let since = time_ns.saturating_sub(self.trace_start_ns);
        self.start_ns.saturating_add((since as f64 / self.speed) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn full_bucket_grants_a_burst_immediately_then_future_tokens() {
        let bucket = TokenBucket::new(1000, 5, 100);
        let waits: Vec<u64> = (0..8).map(|_| bucket.reserve(1, 100) - 100).collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, 1_000_000, 2_000_000, 3_000_000]);
        // After five milliseconds three borrowed tokens are repaid and two are available.
        assert_eq!(bucket.reserve(2, 100 + 5_000_000), 100 + 5_000_000);
        assert_eq!(bucket.reserve(1, 100 + 5_000_000), 100 + 6_000_000);
    }

    #[test]
    fn huge_burst_does_not_overflow() {
        let bucket = TokenBucket::new(1000, 1 << 60, 100);
        for now_ns in [100, 100 + SECOND_NS, 100 + 3600 * SECOND_NS] {
            assert_eq!(bucket.reserve(1_000_000, now_ns), now_ns, "no wait");
        }
        bucket.set_rate(2000, 3700 * SECOND_NS);
        assert_eq!(
            bucket.reserve(1, 3700 * SECOND_NS),
            3700 * SECOND_NS + 500_000,
            "the rate change dropped the saved tokens"
        );
        let slow = TokenBucket::new(1, 1, 0);
        let turns = [(); 3].map(|()| slow.reserve(u64::MAX, 0));
        assert!(turns.is_sorted() && turns[2] > 365 * 24 * 3600 * SECOND_NS, "{turns:?}");
    }

    #[test]
    fn idle_time_saves_at_most_one_burst() {
        let bucket = TokenBucket::new(1000, 5, 0);
        let late = 3600 * SECOND_NS;
        assert_eq!(bucket.reserve(5, late), late);
        assert_eq!(bucket.reserve(1, late), late + 1_000_000);
    }

    #[test]
    fn changed_rate_applies_immediately_and_drops_saved_tokens() {
        let bucket = TokenBucket::new(1000, 2, 0);
        assert_eq!([0, 0, 1_000_000], [(); 3].map(|()| bucket.reserve(1, 0)));
        bucket.set_rate(100, 0);
        assert_eq!(
            [11_000_000, 21_000_000],
            [(); 2].map(|()| bucket.reserve(1, 0)),
            "ten times as far apart"
        );
        bucket.set_rate(1_000_000, SECOND_NS);
        assert_eq!(bucket.reserve(1, SECOND_NS), SECOND_NS + 1000);
    }

    #[test]
    fn rates_that_do_not_divide_a_second_do_not_drift() {
        let rate = 3_333_333;
        let bucket = TokenBucket::new(rate, 1, 0);
        let last = (0..=rate).map(|_| bucket.reserve(1, 0)).last().unwrap();
        let error = last.abs_diff(SECOND_NS);
        assert!(error < SECOND_NS / 50_000, "{error} ns off in a second");
    }

    proptest! {
        #[test]
        fn any_window_gets_at_most_rate_plus_burst(
            rate in 1..100_000u64, burst in 1..100u64,
            gaps in proptest::collection::vec(0..5_000_000u64, 1..200),
        ) {
            let bucket = TokenBucket::new(rate, burst, 0);
            let mut now = 0;
            let granted: Vec<u64> = gaps.iter().map(|gap| { now += gap; bucket.reserve(1, now) }).collect();
            for (first, start) in granted.iter().enumerate() {
                for (last, end) in granted.iter().enumerate().skip(first) {
                    let allowed = burst as f64 + (end - start) as f64 * rate as f64 / 1e9;
                    prop_assert!((last - first) as f64 <= allowed + 0.01);
                }
            }
        }
    }

    #[test]
    fn threads_sharing_a_bucket_lose_no_tokens() {
        let bucket = TokenBucket::new(1_000_000, 1, 0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).map(|_| bucket.reserve(1, 0)).max());
            }
        });
        assert_eq!(bucket.reserve(1, 0), 4000 * 1000, "4000 tokens were taken, none lost");
    }

    #[test]
    fn pause_follows_each_batch() {
        let mut pause = Pause::new(3, 50);
        let pauses: Vec<Option<u64>> = (0..7).map(|_| pause.after_operation()).collect();
        assert_eq!(pauses, [None, None, Some(50), None, None, Some(50), None]);
        assert_eq!(Pause::new(0, 50).after_operation(), None);
        assert_eq!(Pause::new(1, 0).after_operation(), None);
    }

    #[test]
    fn trace_clock_keeps_intervals_divided_by_speed() {
        let clock = TraceClock::new(5 * SECOND_NS, 100, 10.0);
        assert_eq!(clock.due_ns(5 * SECOND_NS), 100);
        assert_eq!(clock.due_ns(6 * SECOND_NS), 100 + SECOND_NS / 10);
        assert_eq!(clock.due_ns(0), 100, "a request before the start is due immediately");
    }
}
