//! Executes the jobs of a plan on a model drive, in the order of virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use ssd::{Drive, Placement, Stats};
use workload::block::BlockKind;
use workload::fio::kind_index;
use workload::fio::requests::Operation;

use super::curve::{Curve, Interval};
use super::plan::{Plan, Worker};
use crate::run::latency::Histogram;
use crate::run::stop::Stop;

/// The figures of a run.
pub struct Outcome {
    /// Figures of the jobs, in the order of the file.
    pub jobs: Vec<JobFigures>,
    /// One for each `stonewall`, and one before the first.
    pub phases: Vec<Phase>,
    /// The curve over host writes.
    pub intervals: Vec<Interval>,
    /// The drive's counters over the whole run.
    pub stats: Stats,
    /// Virtual time of the whole run.
    pub elapsed_ns: u64,
    /// Whether the run was interrupted.
    pub was_stopped: bool,
}

/// Figures of one job, over all of its clones.
#[derive(Default)]
pub struct JobFigures {
    /// Name of its section.
    pub name: String,
    /// Clones.
    pub clones: usize,
    /// Reads, writes and trims after the ramp time.
    pub kinds: [KindFigures; 3],
    /// When its first clone began and its last one ended; `None` for a job that never began.
    pub span_ns: Option<(u64, u64)>,
    /// Nanoseconds at the beginning that are not measured.
    pub ramp_ns: u64,
}

/// Figures of a job in one direction.
#[derive(Default)]
pub struct KindFigures {
    /// Bytes.
    pub bytes: u64,
    /// Latencies of the requests.
    pub latency: Histogram,
}

/// The drive's counters in one phase.
pub struct Phase {
    /// Counts of this phase.
    pub stats: Stats,
    /// Virtual time at which the phase began.
    pub begin_ns: u64,
    /// Virtual time at which the phase ended.
    pub end_ns: u64,
}

struct State {
    worker: Worker,
    begun: Option<u64>,
    is_done: bool,
    end_ns: u64,
    in_flight: BinaryHeap<Reverse<u64>>,
    pending: Option<Operation>,
    submitted: u64,
    /// When the next limited request of a direction may be submitted.
    due_ns: [u64; 3],
    random: SmallRng,
}

/// Requests between two calls of `progress`.
const PROGRESS_REQUESTS: u64 = 1 << 12;

/// Runs all jobs. `progress` is called with the bytes that the host has written now and then.
pub fn run(
    plan: Plan,
    drive: &mut Drive,
    (interval_bytes, seed): (u64, u64),
    stop: &Stop,
    mut progress: impl FnMut(u64),
) -> Outcome {
    let mut run = Run::new(plan, drive, interval_bytes, seed);
    run.start_ready(0);
    let mut requests = 0_u64;
    while let Some(Reverse((now_ns, _, at))) = run.ready.pop() {
        run.step(at, now_ns);
        requests += 1;
        if requests.is_multiple_of(PROGRESS_REQUESTS) {
            progress(run.drive.ftl().stats().host_bytes);
            if stop.is_set() {
                break;
            }
        }
    }
    run.finish()
}

struct Run<'a> {
    drive: &'a mut Drive,
    page_bytes: u64,
    states: Vec<State>,
    /// Workers that can submit a request, by time and then in the order in which they became ready.
    ready: BinaryHeap<Reverse<(u64, u64, usize)>>,
    order: u64,
    jobs: Vec<JobFigures>,
    phases: Vec<(usize, Stats, u64)>,
    curve: Curve,
    end_ns: u64,
}

impl<'a> Run<'a> {
    fn new(plan: Plan, drive: &'a mut Drive, interval_bytes: u64, seed: u64) -> Self {
        let mut jobs: Vec<JobFigures> =
            plan.jobs.into_iter().map(|name| JobFigures { name, ..JobFigures::default() }).collect();
        for worker in &plan.workers {
            jobs[worker.job].clones += 1;
            jobs[worker.job].ramp_ns = worker.ramp_ns;
        }
        let states = plan.workers.into_iter().enumerate().map(|(number, worker)| State {
            worker,
            begun: None,
            is_done: false,
            end_ns: 0,
            in_flight: BinaryHeap::new(),
            pending: None,
            submitted: 0,
            due_ns: [0; 3],
            random: SmallRng::seed_from_u64(seed ^ (number as u64 + 1) << 32),
        });
        let page_bytes = u64::from(drive.ftl().layout().shape().page_bytes);
        Self {
            page_bytes,
            states: states.collect(),
            ready: BinaryHeap::new(),
            order: 0,
            jobs,
            phases: Vec::new(),
            curve: Curve::new(interval_bytes),
            end_ns: 0,
            drive,
        }
    }

    fn push(&mut self, at: usize, time_ns: u64) {
        self.ready.push(Reverse((time_ns, self.order, at)));
        self.order += 1;
    }

    /// Starts each worker whose predecessors have ended.
    fn start_ready(&mut self, now_ns: u64) {
        for at in 0..self.states.len() {
            let state = &self.states[at];
            if state.begun.is_some() || state.is_done {
                continue;
            }
            let is_free = state.worker.after.iter().all(|&before| self.states[before].is_done);
            if !is_free {
                continue;
            }
            let ended = state.worker.after.iter().map(|&before| self.states[before].end_ns).max();
            let begin_ns = now_ns.max(ended.unwrap_or(0)).max(state.worker.start_delay_ns);
            let state = &mut self.states[at];
            state.begun = Some(begin_ns);
            state.due_ns = [begin_ns; 3];
            self.push(at, begin_ns);
        }
    }

    /// The worker submits a request, waits, or ends.
    fn step(&mut self, at: usize, now_ns: u64) {
        let state = &mut self.states[at];
        if state.is_done {
            return;
        }
        let begun_ns = state.begun.unwrap_or(now_ns);
        let is_over =
            state.worker.runtime_ns.is_some_and(|limit| now_ns >= begun_ns + state.worker.ramp_ns + limit);
        let next = if is_over { None } else { state.pending.take().or_else(|| state.worker.requests.next()) };
        let Some(operation) = next else { return self.end(at, now_ns) };
        if let Some(due_ns) = state.due(kind_index(operation.kind)).filter(|&due_ns| due_ns > now_ns) {
            state.pending = Some(operation);
            return self.push(at, due_ns);
        }
        state.schedule(operation.kind, operation.bytes);
        self.begin_phase(at, now_ns);
        self.submit(at, now_ns, operation);
        let ready_ns = self.states[at].next_ready(now_ns);
        self.push(at, ready_ns);
    }

    fn begin_phase(&mut self, at: usize, now_ns: u64) {
        let phase = self.states[at].worker.phase;
        if self.phases.last().is_none_or(|last| last.0 < phase) {
            self.phases.push((phase, self.drive.ftl().stats().clone(), now_ns));
        }
    }

    fn submit(&mut self, at: usize, now_ns: u64, operation: Operation) {
        let Operation { kind, first_byte, bytes } = operation;
        let state = &mut self.states[at];
        let end_ns = match kind {
            BlockKind::Read => self.drive.read_bytes(now_ns, first_byte, bytes),
            BlockKind::Discard => self.drive.trim_bytes(now_ns, first_byte, bytes),
            BlockKind::Write | BlockKind::Flush => {
                let placement = Placement::handle(state.handle());
                self.drive.write_bytes(now_ns, first_byte, bytes, placement)
            }
        };
        state.in_flight.push(Reverse(end_ns));
        state.end_ns = state.end_ns.max(end_ns);
        state.submitted += 1;
        let begun_ns = state.begun.unwrap_or(now_ns);
        let job = &mut self.jobs[state.worker.job];
        let span = job.span_ns.get_or_insert((begun_ns, end_ns));
        *span = (span.0.min(begun_ns), span.1.max(end_ns));
        if now_ns >= begun_ns + state.worker.ramp_ns {
            let figures = &mut job.kinds[kind_index(kind)];
            figures.bytes += bytes;
            figures.latency.record(end_ns - now_ns);
        }
        self.end_ns = self.end_ns.max(end_ns);
        self.curve.record(kind, bytes, end_ns - now_ns);
        let host_bytes = self.drive.ftl().stats().host_bytes;
        if self.curve.is_due(host_bytes) {
            self.curve.end(now_ns, host_bytes, self.media_bytes());
        }
    }

    fn media_bytes(&self) -> u64 {
        self.drive.ftl().stats().media_pages() * self.page_bytes
    }

    fn end(&mut self, at: usize, now_ns: u64) {
        let state = &mut self.states[at];
        state.is_done = true;
        state.end_ns = state.end_ns.max(now_ns);
        let (ends_all, phase) = (state.worker.ends_all, state.worker.phase);
        if ends_all {
            for other in self.states.iter_mut().filter(|other| other.worker.phase == phase && !other.is_done)
            {
                other.is_done = true;
                other.end_ns = other.end_ns.max(now_ns);
            }
        }
        self.start_ready(now_ns);
    }

    fn finish(mut self) -> Outcome {
        let stats = self.drive.ftl().stats().clone();
        let media_bytes = self.media_bytes();
        self.curve.finish(self.end_ns, stats.host_bytes, media_bytes);
        let ends: Vec<(Stats, u64)> = self
            .phases
            .iter()
            .skip(1)
            .map(|it| (it.1.clone(), it.2))
            .chain([(stats.clone(), self.end_ns)])
            .collect();
        let phases = self.phases.iter().zip(&ends).map(|((_, begin, begin_ns), (end, end_ns))| Phase {
            stats: end.since(begin),
            begin_ns: *begin_ns,
            end_ns: *end_ns,
        });
        Outcome {
            phases: phases.collect(),
            was_stopped: self.states.iter().any(|state| !state.is_done),
            jobs: self.jobs,
            intervals: self.curve.intervals,
            stats,
            elapsed_ns: self.end_ns,
        }
    }
}

impl State {
    /// When a request in this direction may be submitted, if its rate is limited.
    fn due(&self, kind: usize) -> Option<u64> {
        let worker = &self.worker;
        let is_limited =
            worker.bytes_per_second[kind].is_some() || worker.requests_per_second[kind].is_some();
        is_limited.then(|| self.due_ns[kind])
    }

    /// Delays the next request in this direction by the time that its rate gives this one.
    fn schedule(&mut self, kind: BlockKind, bytes: u64) {
        let kind = kind_index(kind);
        let by_bytes = self.worker.bytes_per_second[kind].map(|rate| bytes as f64 * 1e9 / rate as f64);
        let by_requests = self.worker.requests_per_second[kind].map(|rate| 1e9 / rate as f64);
        let Some(mean_ns) = by_bytes.into_iter().chain(by_requests).reduce(f64::max) else { return };
        let gap_ns = if self.worker.is_poisson {
            let draw = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            -mean_ns * (1.0 - draw).ln()
        } else {
            mean_ns
        };
        self.due_ns[kind] += gap_ns.round() as u64;
    }

    fn handle(&mut self) -> u16 {
        let handles = &self.worker.handles;
        let turn = if self.worker.random_handle { self.random.next_u64() } else { self.submitted };
        handles[(turn % handles.len() as u64) as usize]
    }

    /// When the worker can submit its next request.
    fn next_ready(&mut self, now_ns: u64) -> u64 {
        if self.worker.think_ns > 0 && self.submitted.is_multiple_of(self.worker.think_requests) {
            // fio waits for the requests in flight before it pauses.
            self.in_flight.clear();
            return self.end_ns.max(now_ns) + self.worker.think_ns;
        }
        if self.in_flight.len() < self.worker.queue_depth {
            return now_ns;
        }
        self.in_flight.pop().map_or(now_ns, |Reverse(end_ns)| end_ns.max(now_ns))
    }
}
