//! The open loop: each request has a due time, which does not depend on the completion of earlier requests.

use std::sync::OnceLock;
use std::time::Duration;

use device::Clock;
use workload::pace::{Arrivals, TraceClock};
use workload::trace::Replay;
use workload::{Request, Source};

use super::super::latency::Timed;
use super::super::target::Target;
use super::Worker;

/// The due times of a worker's requests.
pub struct Schedule<'a> {
    /// Start of the run.
    pub start_ns: u64,
    /// Source of the due times.
    pub due: Due<'a>,
    /// The last due time.
    pub last_due_ns: u64,
}

/// Source of due times.
pub enum Due<'a> {
    /// Drawn from a distribution.
    Arrivals(Arrivals),
    /// Taken from the trace.
    Trace(TracePace<'a>),
}

/// Maps the timestamps of a trace to due times.
pub struct TracePace<'a> {
    /// Speed relative to the recording.
    pub speed: f64,
    /// The trace, which knows the timestamp of its first row.
    pub trace: Option<&'a Replay>,
    /// When the first worker received its first request.
    pub started_ns: &'a OnceLock<u64>,
    /// Converts timestamps to the run's clock; created at the first request.
    pub clock: Option<TraceClock>,
}

impl Schedule<'_> {
    /// The due time of `request` or of its next repetition. It is never earlier than the previous one, even if the request has no
    /// timestamp or an earlier one.
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

    /// Number of requests not yet taken from the source that are due; `None` if counting them would require reading the trace.
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
    /// Executes the requests of `source` at their due times until it ends, the thread's operations are done, or the run is stopped.
    /// A late request starts immediately and does not delay the due times of later ones.
    pub async fn run_open(&mut self, source: &mut dyn Source, mut schedule: Schedule<'_>) {
        self.stats.punctuality.lock().backlog = Some(0);
        let limit = self.shared.settings.ops_per_thread;
        let mut done = 0;
        while done < limit {
            let next = source.next();
            let Some(request) = &next else { return };
            self.sampling.begin();
            if request.tenant.is_some() {
                self.start_tenant_counts();
            }
            for _ in 0..u64::from(request.repeat).min(limit - done) {
                let due_ns = schedule.next_due_ns(request, &*self.shared.clock);
                if !self.until_due(due_ns).await {
                    // The current request is overdue too, unless it was still waiting for its due time.
                    let now_ns = self.shared.clock.monotonic_ns();
                    let this = u64::from(due_ns <= now_ns);
                    let overdue = schedule.overdue(now_ns).map(|later| (this + later).min(limit - done));
                    self.stats.punctuality.lock().backlog = overdue;
                    return;
                }
                self.begin(due_ns, schedule.start_ns);
                self.perform(request).await;
                self.count(request);
                done += 1;
                if !self.owns_thread {
                    self.spend_cpu_time().await;
                }
            }
        }
    }

    /// Waits until `due_ns`; `false` if the run was stopped.
    async fn until_due(&self, due_ns: u64) -> bool {
        let shared = self.shared;
        if due_ns > shared.clock.monotonic_ns() {
            shared.suppress_stall_warning_until(due_ns);
            shared.waiter.until(due_ns, &shared.stop).await;
        }
        !shared.stop.is_set()
    }

    /// Records the lateness of a request that starts now. The latency of its first timed operation counts from `due_ns`.
    fn begin(&mut self, due_ns: u64, start_ns: u64) {
        self.due_ns = Some(due_ns);
        let late_ns = self.shared.clock.monotonic_ns().saturating_sub(due_ns);
        let mut punctuality = self.stats.punctuality.lock();
        punctuality.lateness.record(late_ns);
        punctuality.last_due = Duration::from_nanos(due_ns.saturating_sub(start_ns));
        punctuality.behind = Duration::from_nanos(late_ns);
    }

    /// Records the service time of an operation that started at `started_ns`. Returns the start of its latency: the due time of the
    /// request for its first operation, and `started_ns` for later ones.
    pub(super) fn began_ns(&mut self, what: Timed, started_ns: u64, ended_ns: u64) -> u64 {
        self.stats.punctuality.lock().service.record(what, ended_ns - started_ns);
        self.due_ns.take().unwrap_or(started_ns)
    }
}
