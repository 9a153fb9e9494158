//! How fast to clean: as fast as the clients' latency allows.
//!
//! The disk has one head, and what cleaning does with it, clients wait for. A gate on the 99th percentile is a budget: each
//! request earns a hundredth of what one that takes longer than the gate costs. Cleaning writes one run after the other,
//! at full speed while the budget is not overdrawn, and stops while it is. When nobody asks for anything there is nobody
//! to be held up, and cleaning goes on whatever the budget.
//!
//! Rejected: pauses that grow and shrink with a measured percentile. A percentile needs hundreds of requests to move, and
//! overshoots by as many; a budget reacts to the first.

/// Requests that the percentile for reports is taken of.
const WINDOW: usize = 256;
/// Requests that must have been seen before it says anything.
const ENOUGH: usize = 32;
/// What a request earns, where a slow one costs 1.
const EARNED: f64 = 0.01;
/// Slow requests that may be saved up for.
const MOST_SAVED: f64 = 1.0;
/// And owed: of a thousand slow ones in a row, the last is paid for. Else a scan would stop the cleaning for an hour.
const MOST_OWED: f64 = 1.0;
/// After so long without a request nobody is there.
const IDLE_NS: u64 = 250_000_000;

/// The controller.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The 99th percentile that is not to be passed; 0 is no gate.
    gate_ns: u64,
    budget: f64,
    last_request_ns: u64,
    latencies_ns: Vec<u64>,
    next: usize,
    /// Blocks cleaned a second, smoothed.
    blocks_per_second: f64,
}

impl Pace {
    /// Sets the gate; 0 is none.
    pub(super) fn set_gate(&mut self, gate_ns: u64) {
        *self = Self { gate_ns, blocks_per_second: self.blocks_per_second, ..Self::default() };
    }

    /// A client's request ended now and took so long.
    pub(super) fn note(&mut self, now_ns: u64, latency_ns: u64) {
        let cost = if latency_ns > self.gate_ns { 1.0 } else { 0.0 };
        self.budget = (self.budget + EARNED - cost).clamp(-MOST_OWED, MOST_SAVED);
        self.last_request_ns = now_ns;
        if self.latencies_ns.len() < WINDOW {
            self.latencies_ns.push(latency_ns);
        } else {
            self.latencies_ns[self.next] = latency_ns;
        }
        self.next = (self.next + 1) % WINDOW;
    }

    /// Whether cleaning is to leave the disk alone for now.
    pub(super) fn must_pause(&self, now_ns: u64) -> bool {
        let somebody_is_there = now_ns.saturating_sub(self.last_request_ns) < IDLE_NS;
        self.gate_ns > 0 && self.budget < 0.0 && somebody_is_there
    }

    /// The 99th percentile of the last requests, if there were enough.
    pub(super) fn p99_ns(&self) -> Option<u64> {
        if self.latencies_ns.len() < ENOUGH {
            return None;
        }
        let mut sorted = self.latencies_ns.clone();
        let rank = (sorted.len() * 99).div_ceil(100) - 1;
        Some(*sorted.select_nth_unstable(rank).1)
    }

    /// So many blocks were cleaned in so long.
    pub(super) fn cleaned(&mut self, blocks: usize, elapsed_ns: u64) {
        if elapsed_ns > 0 {
            let rate = blocks as f64 * 1e9 / elapsed_ns as f64;
            let first = self.blocks_per_second == 0.0;
            self.blocks_per_second = if first { rate } else { 0.8 * self.blocks_per_second + 0.2 * rate };
        }
    }

    /// Seconds until so many blocks are cleaned, if any were yet.
    pub(super) fn seconds_for(&self, blocks: u64) -> Option<f64> {
        (self.blocks_per_second > 0.0).then(|| blocks as f64 / self.blocks_per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 5_000_000_000;

    #[test]
    fn a_slow_request_stops_cleaning_until_a_hundred_have_paid_for_it() {
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
        assert!(!pace.must_pause(NOW), "one was saved up for");
        pace.note(NOW, 11);
        assert!(pace.must_pause(NOW), "no more than one");
    }

    #[test]
    fn a_scan_of_slow_requests_stopped_cleaning_for_a_hundred_times_as_many() {
        let mut pace = Pace::default();
        pace.set_gate(10);
        (0..10_000).for_each(|_| pace.note(NOW, 11));
        assert!(pace.must_pause(NOW));
        (0..101).for_each(|_| pace.note(NOW, 10));
        assert!(!pace.must_pause(NOW));
    }

    #[test]
    fn nobody_is_held_up_when_nobody_asks() {
        let mut pace = Pace::default();
        pace.set_gate(10);
        pace.note(NOW, 11);
        assert!(pace.must_pause(NOW + IDLE_NS - 1));
        assert!(!pace.must_pause(NOW + IDLE_NS));
    }

    #[test]
    fn one_slow_request_in_a_hundred_is_at_the_percentile_and_two_are_above() {
        let mut pace = Pace::default();
        (0..99).for_each(|_| pace.note(NOW, 1));
        pace.note(NOW, 100);
        assert_eq!(pace.p99_ns(), Some(1));
        pace.note(NOW, 100);
        assert_eq!(pace.p99_ns(), Some(100));
    }

    #[test]
    fn without_a_gate_there_is_no_pause_and_without_a_rate_no_estimate() {
        let mut pace = Pace::default();
        (0..WINDOW).for_each(|_| pace.note(NOW, u64::MAX));
        assert_eq!((pace.must_pause(NOW), pace.seconds_for(1000)), (false, None));
        pace.cleaned(100, 1_000_000_000);
        assert_eq!(pace.seconds_for(1000), Some(10.0));
    }
}
