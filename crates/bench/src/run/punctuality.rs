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
    use crate::run::latency::Timed;

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

    /// A worker that was late by so many microseconds each time, and whose gets took twice as long.
    fn worker(late_us: &[u64], last_due_ms: u64, backlog: Option<u64>) -> Punctuality {
        let mut worker = Punctuality { backlog, ..Punctuality::default() };
        for us in late_us {
            worker.lateness.record(us * 1000);
            worker.service.record(Timed::GetDram, us * 2000);
            worker.behind = Duration::from_micros(*us);
        }
        Punctuality { last_due: Duration::from_millis(last_due_ms), ..worker }
    }

    #[test]
    fn several_workers_are_as_far_and_as_late_as_the_last_of_them_and_their_backlogs_add_up() {
        let (one, other) = (worker(&[10, 70], 900, Some(3)), worker(&[40], 1000, Some(4)));
        for (mut all, more) in [(one.clone(), &other), (other.clone(), &one)] {
            all.merge(more);
            let (behind, last_due) = (Duration::from_micros(70), Duration::from_secs(1));
            assert_eq!(all, Punctuality { behind, last_due, ..worker(&[10, 40, 70], 0, Some(7)) });
            all.merge(&worker(&[], 0, None));
            assert_eq!(all.backlog, None, "what one does not know");
        }
    }

    #[test]
    fn what_was_late_in_a_warm_up_is_not_told_of_the_run_and_how_it_ended_is() {
        let (warm, whole) = (worker(&[10, 70], 300, Some(0)), worker(&[10, 70, 40], 1000, Some(5)));
        let part = whole.since(&warm, Duration::from_millis(250));
        assert_eq!(part, worker(&[40], 750, Some(5)));
        assert_eq!(warm.since(&warm, Duration::from_secs(1)).last_due, Duration::ZERO, "none was due since");
    }
}
