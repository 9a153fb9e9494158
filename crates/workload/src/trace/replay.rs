//! Replays a trace to several workers.
//!
//! One thread reads and parses, and sends batches of rows to each worker over a bounded queue; used batches are returned and refilled, so a
//! row costs no allocation. (If every worker parsed the whole file and skipped other workers' rows, no thread and no queue were needed, but
//! each worker would parse and decompress the whole trace.)
//!
//! The thread ends with the trace, or when the last source is dropped.
//!
//! If one thread runs all workers, as in a simulation, it must not wait for one queue while the parser waits for another, full one. With
//! [`ReplayConfig::one_thread`] the parser produces a batch only on request, and queues are unbounded; the rows of each worker then depend
//! only on the order of requests.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use super::amplify::Amplify;
use super::block::Events;
use super::cut::Cut;
use super::format::Format;
use super::rows::{ReaderOptions, Row, RowReader};
use super::{CsvColumns, HeaderMismatch, TenantNames, TraceError};
use crate::generate::sizes::Sizes;
use crate::{AHEAD, Part, Request, RequestKind, Source, Tenant, Workload, WorkloadError};

mod beginning;
mod distributor;
mod parser;
mod report;

use distributor::{BatchSender, Demands};
use report::Report;
pub use report::{Rejected, ReplayStats};

/// Configuration of a replay.
#[derive(Debug, Clone)]
pub struct ReplayConfig {
    /// The files, in order; plain or compressed.
    pub files: Vec<PathBuf>,
    /// Format of the files.
    pub format: &'static Format,
    /// The columns of a table.
    pub columns: Option<CsvColumns>,
    /// The trace's time units per second (CacheBench's `timestampFactor`). Ignored by formats with a fixed unit.
    pub time_units_per_second: u64,
    /// Whether the user gave the time units, which then count before the unit in a header.
    pub is_time_unit_given: bool,
    /// Division of rows into several items.
    pub cut: Cut,
    /// Copies of each row.
    pub amplify: Amplify,
    /// TTLs in seconds for rows without one; a function of the key.
    pub ttl_seconds: Option<Sizes>,
    /// Rows skipped before the first request.
    pub skip_rows: u64,
    /// Whether the trace restarts at its end, with continuing times. Then only `passes` or dropping the sources ends it.
    pub repeat: bool,
    /// Passes after which a repeated trace ends; `None` is unlimited.
    pub passes: Option<u64>,
    /// Operations to replay; rows with others are skipped. `None` replays all.
    pub kinds: Option<Vec<RequestKind>>,
    /// Whether to ignore `op_count` and make one request per row.
    pub ignore_op_count: bool,
    /// Distribution of rows to workers.
    pub order: Order,
    /// Whether requests are made at the trace's times: each row must have one, and a worker receives its rows even while another's are not
    /// due.
    pub timed: bool,
    /// The block-layer events that count as requests; `None` uses queue events if there are any.
    pub events: Option<Events>,
    /// Whether each row must have a timestamp, because the run depends on it.
    pub needs_times: bool,
    /// Whether one thread runs all workers. Rows read for workers that request them later stay in memory.
    pub one_thread: bool,
}

impl ReplayConfig {
    /// A replay of `files` from start to end, each row once, with CacheBench's defaults.
    #[must_use]
    pub fn new(files: Vec<PathBuf>, format: &'static Format) -> Self {
        Self {
            files,
            format,
            columns: None,
            time_units_per_second: 1000,
            is_time_unit_given: false,
            cut: Cut::Pages,
            amplify: Amplify::default(),
            ttl_seconds: None,
            skip_rows: 0,
            repeat: false,
            passes: None,
            kinds: None,
            ignore_op_count: false,
            order: Order::default(),
            timed: false,
            events: None,
            needs_times: false,
            one_thread: false,
        }
    }

    /// Creates and configures the format's reader.
    fn reader(&self, events: Events) -> Box<dyn RowReader> {
        let mut reader = (self.format.reader)(&ReaderOptions {
            time_units_per_second: self.time_units_per_second.max(1),
            is_time_unit_given: self.is_time_unit_given,
            page_bytes: self.format.page_bytes(),
            cut: self.cut,
            events,
        });
        if let Some(columns) = &self.columns {
            reader.choose_columns(columns);
        }
        reader
    }
}

/// Distribution of rows to workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// A key always goes to the same worker, so its requests are made in the trace's order; the same holds for all items of a request. A
    /// worker that falls behind delays the others once its queue is full.
    #[default]
    Strict,
    /// Batches go to any worker with a free queue slot.
    Any,
    /// Rows go to the workers in turn, even to a worker that falls behind, as in strict order: simultaneous requests are made by different
    /// workers.
    Turns,
}

/// A trace to replay.
pub struct Replay {
    config: ReplayConfig,
    report: Arc<Report>,
}

impl Replay {
    /// Creates the replay without opening the files.
    #[must_use]
    pub fn new(config: ReplayConfig) -> Self {
        Self { config, report: Arc::default() }
    }

    /// Reads each file up to its first row, to find early that a file is in another format or that there are no rows. Returns unknown and
    /// missing header columns per file, except for files with the same header as the previous one.
    ///
    /// # Errors
    /// A file cannot be opened or has no valid row among its first rows, or no file has rows. One of several files may be empty.
    pub fn check_files(&self) -> Result<Vec<(PathBuf, HeaderMismatch)>, TraceError> {
        let (mut any_row, mut reader) = (false, self.config.reader(self.config.events.unwrap_or_default()));
        let mut unknown: Vec<(PathBuf, HeaderMismatch)> = Vec::new();
        for path in &self.config.files {
            let beginning = beginning::check(path, &self.config, reader.as_mut())?;
            any_row |= beginning.has_row;
            if let Some(header_mismatch) = beginning.header_mismatch
                && unknown.last().is_none_or(|(_, before)| *before != header_mismatch)
            {
                unknown.push((path.clone(), header_mismatch));
            }
        }
        match self.config.files.first() {
            Some(path) if !any_row => {
                Err(TraceError::NoRows { path: path.clone(), others: self.config.files.len() - 1 })
            }
            _ => Ok(unknown),
        }
    }

    /// Timestamp of the very first row; `None` if it has none. Reads the beginning of the file.
    ///
    /// # Errors
    /// As for [`check_files`](Self::check_files).
    pub fn begins_at_ns(&self) -> Result<Option<u64>, TraceError> {
        self.config.files.first().map_or(Ok(None), |path| beginning::time_ns(path, &self.config))
    }

    /// Timestamp of the first row that was not skipped, on the trace's clock. Set before the first request is returned; `None` if rows have
    /// no timestamps.
    #[must_use]
    pub fn first_time_ns(&self) -> Option<u64> {
        self.report.first_time_ns.get().copied()
    }

    /// The names of the tenants seen so far.
    #[must_use]
    pub fn tenants(&self) -> TenantNames {
        self.report.tenants.clone()
    }

    /// The fraction of the trace read so far in all passes, 0 to 1; `None` if it has no end.
    #[must_use]
    pub fn share_read(&self) -> Option<f64> {
        let passes = if self.config.repeat { self.config.passes? } else { 1 };
        let bytes_of =
            |path: &PathBuf| std::fs::metadata(path).ok().filter(|it| it.is_file()).map(|it| it.len());
        let bytes: u64 = self.config.files.iter().map(bytes_of).sum::<Option<u64>>()?;
        let taken = self.report.bytes_taken().load(Ordering::Relaxed);
        Some((taken as f64 / (bytes as f64 * passes as f64).max(1.0)).min(1.0))
    }

    /// Reading statistics so far.
    #[must_use]
    pub fn stats(&self) -> ReplayStats {
        let is_endless = self.config.repeat && self.config.passes.is_none();
        self.report.stats(self.config.cut, is_endless)
    }
}

impl Workload for Replay {
    /// A source must be dropped as soon as its worker ends: in strict order the others would wait for it. The seed is unused; the trace
    /// determines the order.
    fn sources(&self, workers: usize, _seed: u64) -> Result<Vec<Box<dyn Source>>, WorkloadError> {
        assert!(workers > 0, "a replay needs a worker");
        for path in &self.config.files {
            // Early, so that a wrong path fails before the run; the parser opens the files one by one.
            std::fs::File::open(path).map_err(|source| WorkloadError::Open { path: path.clone(), source })?;
        }
        let (returns, returned) = channel();
        let (demand, demanded) = channel();
        let (produced, answers) = channel();
        let demands = self.config.one_thread.then_some(Demands { demanded, produced });
        let (outlets, queues) = self.queues(workers);
        let thread = Arc::new(self.start_parser(outlets, returned, demands)?);
        let answers = Arc::new(Mutex::new(answers));
        let requester = || BatchRequester { demand: demand.clone(), answers: Arc::clone(&answers) };
        let source = |queue| QueueSource {
            queue,
            requester: self.config.one_thread.then(requester),
            returns: returns.clone(),
            batch: Batch::default(),
            next_row: 0,
            handed_out: 0,
            report: Arc::clone(&self.report),
            _thread: Arc::clone(&thread),
        };
        Ok(queues.into_iter().map(|queue| Box::new(source(queue)) as Box<dyn Source>).collect())
    }

    fn key_count(&self) -> Option<u64> {
        None
    }
}

impl Replay {
    /// A queue per worker; a single one if rows may go to any worker and one thread runs all.
    fn queues(&self, workers: usize) -> (Vec<BatchSender>, Vec<Queue>) {
        let unbounded = || {
            let (sender, receiver) = channel();
            (BatchSender::Unbounded(sender), Queue::new(Mutex::new(receiver)))
        };
        let bounded = || {
            let (sender, receiver) = sync_channel(QUEUED_BATCHES);
            (BatchSender::Bounded(sender), Queue::new(Mutex::new(receiver)))
        };
        match (self.config.one_thread, self.config.order) {
            (false, _) => (0..workers).map(|_| bounded()).unzip(),
            (true, Order::Strict | Order::Turns) => (0..workers).map(|_| unbounded()).unzip(),
            (true, Order::Any) => {
                let (outlet, queue) = unbounded();
                (vec![outlet], vec![queue; workers])
            }
        }
    }

    fn start_parser(
        &self,
        outlets: Vec<BatchSender>,
        returned: Receiver<Batch>,
        demands: Option<Demands>,
    ) -> Result<ParserThread, WorkloadError> {
        let config = self.config.clone();
        let report = Arc::clone(&self.report);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        std::thread::Builder::new()
            .name("trace-parser".to_owned())
            .spawn(move || parser::run(config, outlets, (returned, demands), &report, &stopped))
            .map(|handle| ParserThread { handle: Some(handle), stop })
            .map_err(WorkloadError::Thread)
    }
}

/// Rows per batch, and batches per queue: about as many requests ahead as CacheBench (10,000), with a thousandth of its hand-overs.
const BATCH_ROWS: usize = 1024;
const QUEUED_BATCHES: usize = 8;

/// Rows with their keys.
#[derive(Default)]
struct Batch {
    keys: Vec<u8>,
    rows: Vec<Queued>,
    /// The part of each row; empty if rows are whole requests, so that these cost nothing.
    parts: Vec<Part>,
}

/// A queued request. One cache line, because most of the cost of a hand-over is the transfer between cores.
#[derive(Clone, Copy)]
struct Queued {
    key_id: u64,
    value_bytes: u64,
    time_ns: u64,
    /// Requests of the trace up to and including this row.
    requests: u64,
    tenant: Option<Tenant>,
    key_start: u32,
    key_end: u32,
    repeat: u32,
    /// 0 never expires.
    ttl_seconds: u32,
    kind: RequestKind,
    has_time: bool,
}

impl Queued {
    /// The queued form of `row`, without its key.
    #[inline]
    fn of(row: &Row) -> Self {
        Self {
            key_id: 0,
            value_bytes: row.value_bytes,
            time_ns: row.time_ns.unwrap_or(0),
            requests: 0,
            tenant: row.tenant,
            key_start: 0,
            key_end: 0,
            repeat: row.repeat,
            ttl_seconds: row.ttl_seconds.unwrap_or(0),
            kind: row.kind,
            has_time: row.time_ns.is_some(),
        }
    }
}

impl Batch {
    fn clear(&mut self) {
        self.keys.clear();
        self.rows.clear();
        self.parts.clear();
    }
}

/// Joins the parser thread when the last source is dropped. All queues are then closed, so the thread is about to end.
struct ParserThread {
    handle: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Drop for ParserThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(handle) = self.handle.take() {
            // A panic of the parser is already reported.
            let _ = handle.join();
        }
    }
}

/// A queue from the parser to one worker or to all.
type Queue = Arc<Mutex<Receiver<Batch>>>;

/// Requests batches from the parser, which answers when it has queued one.
struct BatchRequester {
    demand: Sender<()>,
    answers: Arc<Mutex<Receiver<()>>>,
}

impl BatchRequester {
    /// The next batch of `queue`; the parser may have to fill others first. `None` at the end of the trace.
    fn next(&self, queue: &Receiver<Batch>) -> Option<Batch> {
        loop {
            match queue.try_recv() {
                Ok(batch) => return Some(batch),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => {}
            }
            // A parser that has ended does not answer, but can have left a last batch.
            let _ = self.demand.send(());
            let answer = self.answers.lock().unwrap_or_else(PoisonError::into_inner).recv();
            if answer.is_err() {
                return queue.try_recv().ok();
            }
        }
    }
}

/// The rows of one worker. `queue` is declared before `_thread` so that it is closed before the thread is joined.
struct QueueSource {
    queue: Queue,
    requester: Option<BatchRequester>,
    returns: Sender<Batch>,
    batch: Batch,
    next_row: usize,
    /// Requests of the trace up to and including the worker's last row.
    handed_out: u64,
    report: Arc<Report>,
    _thread: Arc<ParserThread>,
}

impl QueueSource {
    /// Receives the next batch; returns false at the end.
    fn refill(&mut self) -> bool {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let next = match &self.requester {
            Some(requester) => requester.next(&queue),
            None => queue.recv().ok(),
        };
        drop(queue);
        let Some(batch) = next else { return false };
        let used = std::mem::replace(&mut self.batch, batch);
        // The parser needs no batches after it has ended.
        let _ = self.returns.send(used);
        self.next_row = 0;
        true
    }
}

impl Source for QueueSource {
    fn next(&mut self) -> Option<Request<'_>> {
        while self.next_row == self.batch.rows.len() {
            if !self.refill() {
                return None;
            }
        }
        let queued = &self.batch.rows[self.next_row];
        let part = self.batch.parts.get(self.next_row);
        self.next_row += 1;
        self.handed_out = queued.requests;
        Some(Request {
            kind: queued.kind,
            key: &self.batch.keys[queued.key_start as usize..queued.key_end as usize],
            key_id: queued.key_id,
            value_bytes: queued.value_bytes,
            chain_bytes: &[],
            ttl_seconds: if queued.ttl_seconds == 0 { None } else { Some(queued.ttl_seconds) },
            pool: 0,
            time_ns: if queued.has_time { Some(queued.time_ns) } else { None },
            repeat: queued.repeat,
            tenant: queued.tenant,
            part,
        })
    }

    /// Looks only into the current batch, because the next one may take time.
    fn upcoming(&self) -> Option<&[u8]> {
        let queued = self.batch.rows.get(self.next_row + AHEAD)?;
        Some(&self.batch.keys[queued.key_start as usize..queued.key_end as usize])
    }
}

impl Drop for QueueSource {
    fn drop(&mut self) {
        self.report.handed_out(self.handed_out);
    }
}
