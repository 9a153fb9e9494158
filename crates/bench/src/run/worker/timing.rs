//! Selects the requests that are timed. Memory is never prefetched for those.

use workload::AHEAD;

use super::super::latency::Timed;
use super::super::target::Target;
use super::Worker;

/// One request in this many is timed, on average, unless all are: two clock readings cost a quarter of a DRAM hit. The choice is
/// random, as a fixed stride could always hit the same kind of request in a periodic workload.
pub const SAMPLE_EVERY: u32 = 16;

/// Calls of [`Sampling::begin`] between prefetching for a request and its own call.
const CALLS_AHEAD: u32 = AHEAD as u32 + 1;
/// Smallest distance of two timed requests: when the second is prefetched for, it must already have been selected.
const MIN_GAP: u32 = CALLS_AHEAD + 1;

/// The selection for one worker.
#[derive(Debug)]
pub(super) struct Sampling {
    /// Requests until the next timed request; 0 during a timed request.
    until_timed: u32,
    /// State of the random number generator.
    random_state: u64,
    times_all: bool,
}

impl Sampling {
    pub(super) fn new(seed: u64, times_all: bool) -> Self {
        Self { until_timed: 1, random_state: seed, times_all }
    }

    /// Advances to the next request. The worker calls it when a request begins.
    #[inline]
    pub(super) fn begin(&mut self) {
        if self.until_timed == 0 {
            self.until_timed = if self.times_all { 1 } else { self.draw_gap() };
        }
        self.until_timed -= 1;
    }

    /// Whether the current request is timed.
    #[inline]
    pub(super) fn is_timed(&self) -> bool {
        self.until_timed == 0
    }

    /// Whether memory may be prefetched for the upcoming request. The worker asks before the next request begins. A request that will
    /// be timed gets no prefetch, because its time would be too short.
    #[inline]
    pub(super) fn allows_look_ahead(&self) -> bool {
        !self.times_all && self.until_timed != CALLS_AHEAD
    }

    /// The mean is [`SAMPLE_EVERY`].
    fn draw_gap(&mut self) -> u32 {
        self.random_state = self.random_state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        MIN_GAP + (self.random_state >> 33) as u32 % (2 * (SAMPLE_EVERY - MIN_GAP) + 1)
    }
}

impl<T: Target> Worker<'_, T> {
    #[inline]
    pub(super) fn start_timing(&self) -> Option<u64> {
        self.sampling.is_timed().then(|| self.shared.clock.monotonic_ns())
    }

    #[inline]
    pub(super) fn end_timing(&mut self, what: Timed, started: Option<u64>) {
        if let Some(started) = started {
            let ended = self.shared.clock.monotonic_ns();
            let is_open = self.shared.settings.arrivals.is_open();
            let began = if is_open { self.began_ns(what, started, ended) } else { started };
            self.stats.latencies.lock().record(what, ended - began);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_ahead_is_allowed_for_untimed_requests_only() {
        let mut sampling = Sampling::new(7, false);
        let (mut timed, mut ahead) = (Vec::new(), vec![false; AHEAD]);
        for _ in 0..10_000 {
            ahead.push(sampling.allows_look_ahead());
            sampling.begin();
            timed.push(sampling.is_timed());
        }
        assert!(timed[0]);
        for (number, (timed, ahead)) in timed.iter().zip(ahead).enumerate().skip(AHEAD) {
            assert_ne!(*timed, ahead, "request {number}");
        }
    }

    #[test]
    fn one_request_in_sixteen_is_timed_in_periodic_workloads() {
        for period in [2, 3, 16] {
            let mut sampling = Sampling::new(1, false);
            let mut timed = vec![0_u32; period];
            for number in 0..160_000 {
                sampling.begin();
                timed[number % period] += u32::from(sampling.is_timed());
            }
            let mean = 10_000.0 / period as f64;
            for count in timed {
                assert!(
                    (f64::from(count) - mean).abs() < 5.0 * mean.sqrt(),
                    "{count} instead of {mean}, period {period}"
                );
            }
        }
    }

    #[test]
    fn timing_all_requests_allows_no_look_ahead() {
        let mut sampling = Sampling::new(1, true);
        for _ in 0..100 {
            assert!(!sampling.allows_look_ahead());
            sampling.begin();
            assert!(sampling.is_timed());
        }
    }
}
