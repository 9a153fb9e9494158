//! The open loop: requests have moments at which they are due, whatever became of those before.

use std::time::Duration;

use workload::Source;
use workload::pace::Arrivals;

use super::super::latency::Timed;
use super::super::target::Target;
use super::Worker;

/// When a worker's requests are due.
#[derive(Debug)]
pub struct Schedule {
    /// When the run began.
    pub start_ns: u64,
    /// The due times.
    pub arrivals: Arrivals,
}

impl<T: Target> Worker<'_, T> {
    /// Does what `source` asks as it is due, until it ends, the thread's operations are done, or the run is stopped. A
    /// request that is late is begun at once, and does not put off those behind it.
    pub async fn run_open(&mut self, source: &mut dyn Source, mut schedule: Schedule) {
        // A trace tells of a backlog only what is read of it.
        self.board.punctuality.lock().backlog = Some(0);
        let limit = self.shared.settings.ops_per_thread;
        let mut done = 0;
        while done < limit {
            let Some(request) = source.next() else { return };
            for _ in 0..u64::from(request.repeat).min(limit - done) {
                let due_ns = schedule.arrivals.next_due_ns();
                if !self.until_due(due_ns).await {
                    // This one is overdue too, unless it was still waited for.
                    let now_ns = self.shared.clock.monotonic_ns();
                    let overdue = u64::from(due_ns <= now_ns) + schedule.arrivals.overdue(now_ns);
                    self.board.punctuality.lock().backlog = Some(overdue.min(limit - done));
                    return;
                }
                self.begin(due_ns, schedule.start_ns);
                self.perform(&request).await;
                self.board.counting.ops.one();
                done += 1;
                self.spend().await;
            }
        }
    }

    /// Waits until a request is due; no where the run was stopped before.
    async fn until_due(&self, due_ns: u64) -> bool {
        let shared = self.shared;
        if due_ns > shared.clock.monotonic_ns() {
            shared.expect_nothing_before(due_ns);
            shared.waiter.until(due_ns, &shared.stop).await;
        }
        !shared.stop.is_set()
    }

    /// The request that was due at `due_ns` begins: the first operation of it that is timed counts from there.
    fn begin(&mut self, due_ns: u64, start_ns: u64) {
        self.due_ns = Some(due_ns);
        let late_ns = self.shared.clock.monotonic_ns().saturating_sub(due_ns);
        let mut punctuality = self.board.punctuality.lock();
        punctuality.lateness.record(late_ns);
        punctuality.last_due = Duration::from_nanos(due_ns.saturating_sub(start_ns));
        punctuality.behind = Duration::from_nanos(late_ns);
    }

    /// Counts the service time of an operation that began at `started_ns`. Answers when its latency began: when the request
    /// was due, or where an operation follows another of the same request, when that had ended.
    pub(super) fn began_ns(&mut self, what: Timed, started_ns: u64, ended_ns: u64) -> u64 {
        self.board.punctuality.lock().service.record(what, ended_ns - started_ns);
        self.due_ns.take().unwrap_or(started_ns)
    }
}
