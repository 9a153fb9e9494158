//! How punctual the requests of an open loop were.

use std::time::Duration;

use super::latency::{Histogram, Latencies};

/// What an open loop measures besides: its latencies count from the moment at which a request was due, so that they hold the
/// wait behind slow ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Punctuality {
    /// From when a request was due until it was begun.
    pub lateness: Histogram,
    /// Latencies from when an operation was begun.
    pub service: Latencies,
    /// When the last request was due, after the start of the run.
    pub last_due: Duration,
    /// How late the last request of a worker was; of several, the latest.
    pub behind: Duration,
    /// Requests that were due and not begun when the run was ended; `None` where only reading the trace on would tell.
    pub backlog: Option<u64>,
}

/// A run is behind at its end if its last requests are late by more than this share of the time in which all were due: then
/// as much is missing from its rate.
const BEHIND_SHARE: u32 = 100;
/// What a thread may come late by itself.
const BEHIND_AT_LEAST: Duration = Duration::from_millis(1);

impl Punctuality {
    /// Adds all of `other`, another worker's.
    pub fn merge(&mut self, other: &Self) {
        self.lateness.merge(&other.lateness);
        self.service.merge(&other.service);
        self.last_due = self.last_due.max(other.last_due);
        self.behind = self.behind.max(other.behind);
        self.backlog = self.backlog.zip(other.backlog).map(|(mine, theirs)| mine.saturating_add(theirs));
    }

    /// Takes away what `earlier`, the state `elapsed` after the start, had: what is left begins then.
    #[must_use]
    pub fn since(&self, earlier: &Self, elapsed: Duration) -> Self {
        Self {
            lateness: self.lateness.since(&earlier.lateness),
            service: self.service.since(&earlier.service),
            last_due: self.last_due.saturating_sub(elapsed),
            ..*self
        }
    }

    /// Whether requests were begun at the rate at which they were due.
    #[must_use]
    pub fn kept_up(&self) -> bool {
        self.behind <= (self.last_due / BEHIND_SHARE).max(BEHIND_AT_LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_late_by_a_hundredth_of_the_run_fell_behind() {
        let ended = |due_ms, behind_us| Punctuality {
            last_due: Duration::from_millis(due_ms),
            behind: Duration::from_micros(behind_us),
            ..Punctuality::default()
        };
        assert!(ended(1000, 9_900).kept_up() && !ended(1000, 10_100).kept_up());
        assert!(ended(10, 900).kept_up(), "a thread that is woken late is no backlog");
    }
}
