//! Replays a trace to several workers.
//!
//! One thread reads and parses, and hands each worker its rows in batches over a bounded queue; batches come
//! back to be filled again, so a row costs no allocation. (Every worker parsing the whole file and skipping
//! what is not its own would need no thread and no queue, but parses and decompresses the trace as many times
//! as there are workers.)
//!
//! The thread ends when the trace does, or when the last source is dropped.
//!
//! Where one thread asks for all workers, as in a simulated world, it must not wait for a queue that the parser would
//! fill after another, full one. There ([`ReplayConfig::one_thread`]) the parser goes on when it is asked to, batch by
//! batch, and queues have no bound; which rows a worker gets then depends on nothing but the order of asking.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use super::amplify::Amplify;
use super::block::Events;
use super::cut::Cut;
use super::rows::{ReaderOptions, Row, RowReader};
use super::{CsvColumns, Format, Strangers, TenantNames, TraceError};
use crate::generate::sizes::Sizes;
use crate::{AHEAD, Part, Request, RequestKind, Source, Tenant, Workload, WorkloadError};

mod beginning;
mod dealer;
mod parser;
mod report;

use dealer::{Demands, Outlet};
use report::Report;
pub use report::{Rejected, ReplayStats};

/// What is replayed, and how.
#[derive(Debug, Clone)]
pub struct ReplayConfig {
    /// The files, in order; plain, gzip or zstd.
    pub files: Vec<PathBuf>,
    /// What is in them.
    pub format: &'static Format,
    /// Which columns are what, of a table.
    pub columns: Option<CsvColumns>,
    /// The trace's time units in a second (CacheBench's `timestampFactor`). Formats whose time has a unit
    /// ignore it.
    pub time_units_per_second: u64,
    /// Whether rows are requests for several items, and for which.
    pub cut: Cut,
    /// Copies of each row.
    pub amplify: Amplify,
    /// Times to live, in seconds, of rows that have none of their own; each key has its own of these.
    pub ttl_seconds: Option<Sizes>,
    /// Rows that are read and left out before the first request.
    pub skip_rows: u64,
    /// Whether the trace begins again when it ends, its time going on. Then only `passes` or dropping the sources ends it.
    pub repeat: bool,
    /// Passes after which a repeated trace ends; `None` is without end.
    pub passes: Option<u64>,
    /// Operations that become requests, rows with others being left out; `None` is all.
    pub kinds: Option<Vec<RequestKind>>,
    /// Whether every row counts once, whatever its `op_count` says.
    pub ignore_op_count: bool,
    /// Which worker gets which row.
    pub order: Order,
    /// Whether requests are made at the times of the trace: each row must have one, and a worker gets its rows though another's
    /// are not wanted yet.
    pub timed: bool,
    /// Which events of a recording of the block layer are requests; `None` takes what there is, the queue events first.
    pub events: Option<Events>,
    /// Whether each row must have a time, without which nothing of the run would mean anything.
    pub needs_times: bool,
    /// Whether one thread asks for all workers. Rows that are read for workers who do not ask yet stay in memory.
    pub one_thread: bool,
}

impl ReplayConfig {
    /// A replay of `files` from begin to end, each row once, with CacheBench's defaults.
    #[must_use]
    pub fn new(files: Vec<PathBuf>, format: &'static Format) -> Self {
        Self {
            files,
            format,
            columns: None,
            time_units_per_second: 1000,
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

    /// The format's reader, told what the replay wants of it.
    fn reader(&self, events: Events) -> Box<dyn RowReader> {
        let mut reader = (self.format.reader)(&ReaderOptions {
            time_units_per_second: self.time_units_per_second.max(1),
            page_bytes: self.format.page_bytes,
            cut: self.cut,
            events,
        });
        if let Some(columns) = &self.columns {
            reader.choose_columns(columns);
        }
        reader
    }
}

/// Which worker gets which row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// A key always goes to the same worker, so requests for it are made in the trace's order; so do all items of one thing.
    /// A worker that falls behind holds the others up once its queue is full.
    #[default]
    Strict,
    /// Batches go to whoever has room.
    Any,
    /// Row by row to each worker in turn, as in strict order whether it falls behind or not: what is due at the same time goes
    /// to as many workers as there are.
    Turns,
}

/// A trace to replay.
pub struct Replay {
    config: ReplayConfig,
    report: Arc<Report>,
}

impl Replay {
    /// The replay that `config` describes. Nothing is opened yet.
    #[must_use]
    pub fn new(config: ReplayConfig) -> Self {
        Self { config, report: Arc::default() }
    }

    /// Reads each file as far as its first row, which tells early that a file is no trace of the format, or that none of them
    /// has a row. Answers with what is to be known of the columns of their headers, but for files with the same as that before.
    ///
    /// # Errors
    /// A file that cannot be opened, or none of whose first rows can be read; files that have none. One of several may be
    /// without.
    pub fn check_beginnings(&self) -> Result<Vec<(PathBuf, Strangers)>, TraceError> {
        let (mut any_row, mut reader) = (false, self.config.reader(self.config.events.unwrap_or_default()));
        let mut told: Vec<(PathBuf, Strangers)> = Vec::new();
        for path in &self.config.files {
            let beginning = beginning::check(path, &self.config, reader.as_mut())?;
            any_row |= beginning.has_row;
            if let Some(strangers) = beginning.strangers
                && told.last().is_none_or(|(_, before)| *before != strangers)
            {
                told.push((path.clone(), strangers));
            }
        }
        match self.config.files.first() {
            Some(path) if !any_row => {
                Err(TraceError::NoRows { path: path.clone(), others: self.config.files.len() - 1 })
            }
            _ => Ok(told),
        }
    }

    /// When the first row of all was recorded; `None` where it has no time. Reads the file's beginning.
    ///
    /// # Errors
    /// As [`check_beginnings`](Self::check_beginnings).
    pub fn begins_at_ns(&self) -> Result<Option<u64>, TraceError> {
        self.config.files.first().map_or(Ok(None), |path| beginning::time_ns(path, &self.config))
    }

    /// When the first row that was not skipped was recorded, on the trace's own clock. Known to whoever was given a request; `None`
    /// where rows have no times.
    #[must_use]
    pub fn first_time_ns(&self) -> Option<u64> {
        self.report.first_time_ns.get().copied()
    }

    /// The names of the tenants that were met so far.
    #[must_use]
    pub fn tenants(&self) -> TenantNames {
        self.report.tenants.clone()
    }

    /// How much of the trace was read, all its passes together, 0 to 1; `None` where it has no end.
    #[must_use]
    pub fn share_read(&self) -> Option<f64> {
        let passes = if self.config.repeat { self.config.passes? } else { 1 };
        let bytes_of =
            |path: &PathBuf| std::fs::metadata(path).ok().filter(|it| it.is_file()).map(|it| it.len());
        let bytes: u64 = self.config.files.iter().map(bytes_of).sum::<Option<u64>>()?;
        let taken = self.report.bytes_taken().load(Ordering::Relaxed);
        Some((taken as f64 / (bytes as f64 * passes as f64).max(1.0)).min(1.0))
    }

    /// How reading goes so far.
    #[must_use]
    pub fn stats(&self) -> ReplayStats {
        let is_endless = self.config.repeat && self.config.passes.is_none();
        self.report.stats(self.config.cut, is_endless)
    }
}

impl Workload for Replay {
    /// A source must be dropped as soon as its worker stops asking: in strict order the others wait for it
    /// otherwise. The seed is not used; the trace has its own order.
    fn sources(&self, workers: usize, _seed: u64) -> Result<Vec<Box<dyn Source>>, WorkloadError> {
        assert!(workers > 0, "a replay needs a worker");
        for path in &self.config.files {
            // Early, so that a wrong path ends the run before it starts; the parser opens them one by one.
            std::fs::File::open(path).map_err(|source| WorkloadError::Open { path: path.clone(), source })?;
        }
        let (returns, returned) = channel();
        let (demand, demanded) = channel();
        let (produced, answers) = channel();
        let demands = self.config.one_thread.then_some(Demands { demanded, produced });
        let (outlets, queues) = self.queues(workers);
        let thread = Arc::new(self.start_parser(outlets, returned, demands)?);
        let answers = Arc::new(Mutex::new(answers));
        let asking = || Asking { demand: demand.clone(), answers: Arc::clone(&answers) };
        let source = |queue| QueueSource {
            queue,
            asking: self.config.one_thread.then(asking),
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
    /// A queue for each worker; one for all if any row is for anyone and one thread asks.
    fn queues(&self, workers: usize) -> (Vec<Outlet>, Vec<Queue>) {
        let unbounded = || {
            let (sender, receiver) = channel();
            (Outlet::Unbounded(sender), Queue::new(Mutex::new(receiver)))
        };
        let bounded = || {
            let (sender, receiver) = sync_channel(QUEUED_BATCHES);
            (Outlet::Bounded(sender), Queue::new(Mutex::new(receiver)))
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
        outlets: Vec<Outlet>,
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

/// Rows in a batch, and batches in a worker's queue: about as many requests ahead as CacheBench keeps (10,000),
/// handed over a thousand times less often.
const BATCH_ROWS: usize = 1024;
const QUEUED_BATCHES: usize = 8;

/// Rows with their keys.
#[derive(Default)]
struct Batch {
    keys: Vec<u8>,
    rows: Vec<Queued>,
    /// What each row is of its request; empty where rows are whole requests, so that these cost nothing.
    parts: Vec<Part>,
}

/// A request as it waits: a line of the processor's cache, since most of what handing over costs is moving it from one core to
/// another.
#[derive(Clone, Copy)]
struct Queued {
    key_id: u64,
    value_bytes: u64,
    time_ns: u64,
    /// Requests of the trace up to and including this row's.
    requests: u64,
    tenant: Option<Tenant>,
    key_start: u32,
    key_end: u32,
    repeat: u32,
    /// 0 is for ever.
    ttl_seconds: u32,
    kind: RequestKind,
    has_time: bool,
}

impl Queued {
    /// What `row` asks for, without its key.
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

/// Waits for the parser when the last source goes. By then all queues are closed, so the parser is on its way
/// out.
struct ParserThread {
    handle: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Drop for ParserThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(handle) = self.handle.take() {
            // A panic in the parser is in the report already.
            let _ = handle.join();
        }
    }
}

/// What the parser fills for a worker, or for all.
type Queue = Arc<Mutex<Receiver<Batch>>>;

/// How the parser is asked for another batch, and answers when it has put one into a queue.
struct Asking {
    demand: Sender<()>,
    answers: Arc<Mutex<Receiver<()>>>,
}

impl Asking {
    /// The next batch of `queue`, for which the parser may have to fill others first; `None` at the end of the trace.
    fn next(&self, queue: &Receiver<Batch>) -> Option<Batch> {
        loop {
            match queue.try_recv() {
                Ok(batch) => return Some(batch),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => {}
            }
            // A parser that is gone answers nothing, but may have left a last batch.
            let _ = self.demand.send(());
            let answer = self.answers.lock().unwrap_or_else(PoisonError::into_inner).recv();
            if answer.is_err() {
                return queue.try_recv().ok();
            }
        }
    }
}

/// One worker's rows. The queue stands before the thread, so that it is closed before the thread is waited for.
struct QueueSource {
    queue: Queue,
    asking: Option<Asking>,
    returns: Sender<Batch>,
    batch: Batch,
    next_row: usize,
    /// Requests of the trace up to and including the last row that the worker was given.
    handed_out: u64,
    report: Arc<Report>,
    _thread: Arc<ParserThread>,
}

impl QueueSource {
    /// The next batch; false at the end.
    fn refill(&mut self) -> bool {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let next = match &self.asking {
            Some(asking) => asking.next(&queue),
            None => queue.recv().ok(),
        };
        drop(queue);
        let Some(batch) = next else { return false };
        let used = std::mem::replace(&mut self.batch, batch);
        // Once the parser is gone, nobody needs batches any more.
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

    /// Of the batch at hand alone: another may be a while in coming.
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
