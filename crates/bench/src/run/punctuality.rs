//! Lateness of requests in an open loop.

use std::time::Duration;

use super::latency::{Histogram, Latencies};

/// Additional figures of an open loop. Its latencies are measured from the due time of a request, so they include the time that the
/// request waited behind slow ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Punctuality {
    /// From the due time of a request to its start.
    pub lateness: Histogram,
    /// Latencies from the start of an operation.
    pub service: Latencies,
    /// Due time of the last request, since the start of the run.
    pub last_due: Duration,
    /// Lateness of the last request of a worker; the maximum over several workers.
    pub behind: Duration,
    /// Requests that were due and not started when the run was stopped; `None` if counting them would require reading the trace.
    pub backlog: Option<u64>,
}

/// A run is behind at its end if its last requests are late by more than this share of the time until the last due time: its
/// throughput is below the offered rate by that share.
const BEHIND_SHARE: u32 = 100;
/// A thread may be this late due to scheduling alone.
const MIN_BEHIND: Duration = Duration::from_millis(1);

impl Punctuality {
    /// Adds `other`, of another worker.
    pub fn merge(&mut self, other: &Self) {
        self.lateness.merge(&other.lateness);
        self.service.merge(&other.service);
        self.last_due = self.last_due.max(other.last_due);
        self.behind = self.behind.max(other.behind);
        self.backlog = self.backlog.zip(other.backlog).map(|(mine, theirs)| mine.saturating_add(theirs));
    }

    /// The difference to `earlier`, the state at `elapsed` after the start. Times then count from `elapsed`.
    #[must_use]
    pub fn since(&self, earlier: &Self, elapsed: Duration) -> Self {
        Self {
            lateness: self.lateness.since(&earlier.lateness),
            service: self.service.since(&earlier.service),
            last_due: self.last_due.saturating_sub(elapsed),
            ..*self
        }
    }

    /// Whether requests were started at the offered rate.
    #[must_use]
    pub fn kept_up(&self) -> bool {
        self.behind <= (self.last_due / BEHIND_SHARE).max(MIN_BEHIND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::latency::Timed;

    #[test]
    fn worker_that_ends_late_by_a_hundredth_of_the_run_is_behind() {
        let ended = |due_ms, behind_us| Punctuality {
            last_due: Duration::from_millis(due_ms),
            behind: Duration::from_micros(behind_us),
            ..Punctuality::default()
        };
        assert!(ended(1000, 9_900).kept_up() && !ended(1000, 10_100).kept_up());
        assert!(ended(10, 900).kept_up(), "a late wake-up of a thread is no backlog");
    }

    /// A worker whose requests were late by `late_us` microseconds, and whose gets took twice as long.
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
    fn merge_takes_the_latest_worker_and_adds_backlogs() {
        let (one, other) = (worker(&[10, 70], 900, Some(3)), worker(&[40], 1000, Some(4)));
        for (mut all, more) in [(one.clone(), &other), (other.clone(), &one)] {
            all.merge(more);
            let (behind, last_due) = (Duration::from_micros(70), Duration::from_secs(1));
            assert_eq!(all, Punctuality { behind, last_due, ..worker(&[10, 40, 70], 0, Some(7)) });
            all.merge(&worker(&[], 0, None));
            assert_eq!(all.backlog, None, "unknown in one of them");
        }
    }

    #[test]
    fn since_excludes_the_warm_up_and_keeps_the_backlog() {
        let (warm, whole) = (worker(&[10, 70], 300, Some(0)), worker(&[10, 70, 40], 1000, Some(5)));
        let part = whole.since(&warm, Duration::from_millis(250));
        assert_eq!(part, worker(&[40], 750, Some(5)));
        assert_eq!(warm.since(&warm, Duration::from_secs(1)).last_due, Duration::ZERO, "no later due time");
    }
}
