//! Which requests are timed, and which may be looked ahead for: never the same.

use workload::AHEAD;

use super::super::latency::Timed;
use super::super::target::Target;
use super::Worker;

/// The operations of one in so many requests are timed, unless all are asked for: two clock readings cost a quarter of a DRAM
/// hit. It is one at random, or of requests that come in turns always the same would be.
pub const SAMPLE_EVERY: u32 = 16;

/// Calls of [`Sampling::begin`] from asking for the upcoming request to that one's own.
const CALLS_AHEAD: u32 = AHEAD as u32 + 1;
/// From a request that is timed to the next one, at least: when that is upcoming it must have been drawn already.
const LEAST_GAP: u32 = CALLS_AHEAD + 1;

/// The choice, for the requests of one worker.
#[derive(Debug)]
pub(super) struct Sampling {
    /// Requests until the next one that is timed; 0 while that is under way.
    until_timed: u32,
    /// State of what is drawn.
    drawn: u64,
    times_all: bool,
}

impl Sampling {
    pub(super) fn new(seed: u64, times_all: bool) -> Self {
        Self { until_timed: 1, drawn: seed, times_all }
    }

    /// The next request begins.
    #[inline]
    pub(super) fn begin(&mut self) {
        if self.until_timed == 0 {
            self.until_timed = if self.times_all { 1 } else { self.draw_gap() };
        }
        self.until_timed -= 1;
    }

    /// Whether the request under way is timed.
    #[inline]
    pub(super) fn is_timed(&self) -> bool {
        self.until_timed == 0
    }

    /// Before the next request begins: whether memory may be fetched ahead for the upcoming one. Not if it will be timed: the
    /// time would be shorter than that of a request which nobody knew of.
    #[inline]
    pub(super) fn lets_look_ahead(&self) -> bool {
        !self.times_all && self.until_timed != CALLS_AHEAD
    }

    /// [`SAMPLE_EVERY`] in the mean.
    fn draw_gap(&mut self) -> u32 {
        self.drawn = self.drawn.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        LEAST_GAP + (self.drawn >> 33) as u32 % (2 * (SAMPLE_EVERY - LEAST_GAP) + 1)
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
            self.board.latencies.lock().record(what, ended - began);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_requests_but_those_that_are_timed_are_looked_ahead_for() {
        let mut sampling = Sampling::new(7, false);
        let (mut timed, mut ahead) = (Vec::new(), vec![false; AHEAD]);
        for _ in 0..10_000 {
            ahead.push(sampling.lets_look_ahead());
            sampling.begin();
            timed.push(sampling.is_timed());
        }
        assert!(timed[0]);
        for (number, (timed, ahead)) in timed.iter().zip(ahead).enumerate().skip(AHEAD) {
            assert_ne!(*timed, ahead, "request {number}");
        }
    }

    #[test]
    fn one_request_in_sixteen_is_timed_whatever_turn_it_is() {
        for turns in [2, 3, 16] {
            let mut sampling = Sampling::new(1, false);
            let mut timed = vec![0_u32; turns];
            for number in 0..160_000 {
                sampling.begin();
                timed[number % turns] += u32::from(sampling.is_timed());
            }
            let mean = 10_000.0 / turns as f64;
            for count in timed {
                assert!(
                    (f64::from(count) - mean).abs() < 5.0 * mean.sqrt(),
                    "{count} of {mean}, {turns} turns"
                );
            }
        }
    }

    #[test]
    fn where_all_are_timed_none_is_looked_ahead_for() {
        let mut sampling = Sampling::new(1, true);
        for _ in 0..100 {
            assert!(!sampling.lets_look_ahead());
            sampling.begin();
            assert!(sampling.is_timed());
        }
    }
}
