//! The open loop: requests have moments at which they are due, whatever became of those before.

use std::sync::OnceLock;
use std::time::Duration;

use device::Clock;
use workload::pace::{Arrivals, TraceClock};
use workload::trace::Replay;
use workload::{Request, Source};

use super::super::latency::Timed;
use super::super::target::Target;
use super::Worker;

/// When a worker's requests are due.
pub struct Schedule<'a> {
    /// When the run began.
    pub start_ns: u64,
    /// The due times.
    pub due: Due<'a>,
    /// The last of them.
    pub last_due_ns: u64,
}

/// Where due times come from.
pub enum Due<'a> {
    /// They are drawn.
    Arrivals(Arrivals),
    /// The trace has them.
    Trace(TracePace<'a>),
}

/// The pace of a trace.
pub struct TracePace<'a> {
    /// How many times as fast as it was recorded.
    pub speed: f64,
    /// The trace: it knows when its first row was recorded.
    pub trace: Option<&'a Replay>,
    /// When the first worker had its first request.
    pub started_ns: &'a OnceLock<u64>,
    /// Brings the trace's time onto the run's; made with the first request.
    pub clock: Option<TraceClock>,
}

impl Schedule<'_> {
    /// When `request` is due, or the next repetition of it. One without a time follows that before, and so does one whose time
    /// is earlier than that of a row before it.
    fn next_due_ns(&mut self, request: &Request<'_>, clock: &dyn Clock) -> u64 {
        self.last_due_ns = match &mut self.due {
            Due::Arrivals(arrivals) => arrivals.next_due_ns(),
            Due::Trace(pace) => {
                let due_ns = request.time_ns.map(|time_ns| pace.due_ns(time_ns, clock));
                due_ns.unwrap_or(0).max(self.last_due_ns)
            }
        };
        self.last_due_ns
    }

    /// Requests that nobody asked for and that are due; `None` where only reading the trace would tell.
    fn overdue(&self, now_ns: u64) -> Option<u64> {
        match &self.due {
            Due::Arrivals(arrivals) => Some(arrivals.overdue(now_ns)),
            Due::Trace(_) => None,
        }
    }
}

impl TracePace<'_> {
    fn due_ns(&mut self, time_ns: u64, clock: &dyn Clock) -> u64 {
        let trace_clock = self.clock.get_or_insert_with(|| {
            let first_ns = self.trace.and_then(Replay::first_time_ns).unwrap_or(time_ns);
            TraceClock::new(first_ns, *self.started_ns.get_or_init(|| clock.monotonic_ns()), self.speed)
        });
        trace_clock.due_ns(time_ns)
    }
}

impl<T: Target> Worker<'_, T> {
    /// Does what `source` asks as it is due, until it ends, the thread's operations are done, or the run is stopped. A
    /// request that is late is begun at once, and does not put off those behind it.
    pub async fn run_open(&mut self, source: &mut dyn Source, mut schedule: Schedule<'_>) {
        self.board.punctuality.lock().backlog = Some(0);
        let limit = self.shared.settings.ops_per_thread;
        let mut done = 0;
        while done < limit {
            let next = source.next();
            let Some(request) = &next else { return };
            self.sampling.begin();
            if request.tenant.is_some() {
                self.open_account();
            }
            for _ in 0..u64::from(request.repeat).min(limit - done) {
                let due_ns = schedule.next_due_ns(request, &*self.shared.clock);
                if !self.until_due(due_ns).await {
                    // This one is overdue too, unless it was still waited for.
                    let now_ns = self.shared.clock.monotonic_ns();
                    let this = u64::from(due_ns <= now_ns);
                    let overdue = schedule.overdue(now_ns).map(|others| (this + others).min(limit - done));
                    self.board.punctuality.lock().backlog = overdue;
                    return;
                }
                self.begin(due_ns, schedule.start_ns);
                self.perform(request).await;
                self.count(request);
                done += 1;
                if !self.has_its_thread {
                    self.spend().await;
                }
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
