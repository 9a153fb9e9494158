//! The rate of cleaning, limited by the latency of clients.
//!
//! Cleaning and clients compete for the disk. A gate on the 99th percentile works as a budget: each request earns a hundredth of
//! the cost of a request slower than the gate. Cleaning writes one run after the other at full speed while the budget is not
//! negative, and pauses while it is. Without requests, it runs regardless of the budget.
//!
//! Rejected: pauses that follow a measured percentile. A percentile reacts only after hundreds of requests and overshoots by as
//! many; a budget reacts to the first slow one.

/// Requests over which the reported percentile is taken.
const WINDOW: usize = 256;
/// Requests needed before a percentile is reported.
const ENOUGH: usize = 32;
/// Earnings per request, in units of the cost of a slow one.
const EARNED_PER_REQUEST: f64 = 0.01;
/// Upper bound of the budget.
const MAX_BUDGET: f64 = 1.0;
/// Lower bound of the budget, so that many slow requests in a row, such as a scan, do not stop cleaning for long.
const MAX_DEBT: f64 = 1.0;
/// Time without requests after which clients count as idle.
const IDLE_NS: u64 = 250_000_000;

/// The state of the rate limit and its statistics.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Limit for the 99th percentile of latencies; 0 disables the gate.
    gate_ns: u64,
    budget: f64,
    last_request_ns: u64,
    latencies_ns: Vec<u64>,
    next: usize,
    /// Blocks cleaned per second, smoothed.
    blocks_per_second: f64,
}

impl Pace {
    /// Sets the gate; 0 disables it.
    pub(super) fn set_gate(&mut self, gate_ns: u64) {
        *self = Self { gate_ns, blocks_per_second: self.blocks_per_second, ..Self::default() };
    }

    /// Records a client request that completed at `now_ns`.
    pub(super) fn note(&mut self, now_ns: u64, latency_ns: u64) {
        let cost = if latency_ns > self.gate_ns { 1.0 } else { 0.0 };
        self.budget = (self.budget + EARNED_PER_REQUEST - cost).clamp(-MAX_DEBT, MAX_BUDGET);
        self.last_request_ns = now_ns;
        if self.latencies_ns.len() < WINDOW {
            self.latencies_ns.push(latency_ns);
        } else {
            self.latencies_ns[self.next] = latency_ns;
        }
        self.next = (self.next + 1) % WINDOW;
    }

    /// Whether cleaning must pause.
    pub(super) fn must_pause(&self, now_ns: u64) -> bool {
        let has_clients = now_ns.saturating_sub(self.last_request_ns) < IDLE_NS;
        self.gate_ns > 0 && self.budget < 0.0 && has_clients
    }

    /// 99th percentile of recent requests, if there are enough.
    pub(super) fn p99_ns(&self) -> Option<u64> {
        if self.latencies_ns.len() < ENOUGH {
            return None;
        }
        let mut sorted = self.latencies_ns.clone();
        let rank = (sorted.len() * 99).div_ceil(100) - 1;
        Some(*sorted.select_nth_unstable(rank).1)
    }

    /// Records that `blocks` were cleaned in `elapsed_ns`.
    pub(super) fn cleaned(&mut self, blocks: usize, elapsed_ns: u64) {
        if elapsed_ns > 0 {
            let rate = blocks as f64 * 1e9 / elapsed_ns as f64;
            let first = self.blocks_per_second == 0.0;
            self.blocks_per_second = if first { rate } else { 0.8 * self.blocks_per_second + 0.2 * rate };
        }
    }

    /// Estimated seconds to clean `blocks`; `None` before the first cleaning.
    pub(super) fn seconds_for(&self, blocks: u64) -> Option<f64> {
        (self.blocks_per_second > 0.0).then(|| blocks as f64 / self.blocks_per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 5_000_000_000;

    #[test]
    fn slow_request_pauses_cleaning_for_a_hundred_fast_ones() {
        let mut pace = Pace::default();
        pace.set_gate(10);
        assert!(!pace.must_pause(NOW));
        pace.note(NOW, 11);
        assert!(pace.must_pause(NOW));
        (0..97).for_each(|_| pace.note(NOW, 10));
        assert!(pace.must_pause(NOW));
        (0..3).for_each(|_| pace.note(NOW, 10));
        assert!(!pace.must_pause(NOW));
        (0..1000).for_each(|_| pace.note(NOW, 10));
        pace.note(NOW, 11);
        assert!(!pace.must_pause(NOW), "the budget covers one slow request");
        pace.note(NOW, 11);
        assert!(pace.must_pause(NOW), "the budget covers only one");
    }

    #[test]
    fn many_slow_requests_pause_cleaning_no_longer_than_one() {
        let mut pace = Pace::default();
        pace.set_gate(10);
        (0..10_000).for_each(|_| pace.note(NOW, 11));
        assert!(pace.must_pause(NOW));
        (0..101).for_each(|_| pace.note(NOW, 10));
        assert!(!pace.must_pause(NOW));
    }

    #[test]
    fn idle_clients_do_not_pause_cleaning() {
        let mut pace = Pace::default();
        pace.set_gate(10);
        pace.note(NOW, 11);
        assert!(pace.must_pause(NOW + IDLE_NS - 1));
        assert!(!pace.must_pause(NOW + IDLE_NS));
    }

    #[test]
    fn p99_of_a_hundred_requests_ignores_one_outlier() {
        let mut pace = Pace::default();
        (0..99).for_each(|_| pace.note(NOW, 1));
        pace.note(NOW, 100);
        assert_eq!(pace.p99_ns(), Some(1));
        pace.note(NOW, 100);
        assert_eq!(pace.p99_ns(), Some(100));
    }

    #[test]
    fn without_gate_no_pause_and_without_rate_no_estimate() {
        let mut pace = Pace::default();
        (0..WINDOW).for_each(|_| pace.note(NOW, u64::MAX));
        assert_eq!((pace.must_pause(NOW), pace.seconds_for(1000)), (false, None));
        pace.cleaned(100, 1_000_000_000);
        assert_eq!(pace.seconds_for(1000), Some(10.0));
    }
}
