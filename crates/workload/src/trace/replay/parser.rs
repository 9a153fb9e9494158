//! The parser thread: reads the trace and processes rows before they are distributed.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use xxhash_rust::xxh3::xxh3_64;

use super::super::cut::Items;
use super::super::error::TraceError;
use super::super::files::TraceFiles;
use super::super::lines::RecordKind;
use super::super::rows::{Object, Row, Rows, numbered};
use super::distributor::{BatchSender, Demands, Distributor, Ended};
use super::report::Report;
use super::{BATCH_ROWS, Batch, Queued, ReplayConfig};

/// Reads the trace to its end, or until no worker is left. A worker that ends closes its queue; `stop` covers long parts of the trace that
/// produce no batch.
pub(super) fn run(
    config: ReplayConfig,
    outlets: Vec<BatchSender>,
    (returned, demands): (Receiver<Batch>, Option<Demands>),
    report: &Report,
    stop: &AtomicBool,
) {
    let _told = ReportPanic(report);
    if let Some(demands) = &demands {
        // If no worker is left, sending the first batch fails.
        let _ = demands.demanded.recv();
    }
    let mut parser = Parser {
        distributor: Distributor::new(outlets, returned, demands, &config),
        rows_to_skip: config.skip_rows,
        rows: 0,
        pass: Pass::default(),
        parsed: Rows::with_tenants(report.tenants.clone()).lenient(true),
        number: Vec::new(),
        copied_key: Vec::new(),
        config,
        report,
        stop,
    };
    parser.read_all();
    parser.distributor.flush();
    report.read_requests(parser.distributor.requests());
    report.add_rows(std::mem::take(&mut parser.rows));
}

struct Parser<'a> {
    config: ReplayConfig,
    report: &'a Report,
    distributor: Distributor,
    rows_to_skip: u64,
    /// Rows not yet reported.
    rows: u64,
    pass: Pass,
    parsed: Rows,
    /// Buffers for decimal keys and for the keys of copies.
    number: Vec<u8>,
    copied_key: Vec<u8>,
    stop: &'a AtomicBool,
}

/// The times of the current pass, so that the next pass can continue from there.
#[derive(Default)]
struct Pass {
    rows: u64,
    first_ns: Option<u64>,
    last_ns: u64,
    offset_ns: u64,
}

impl Parser<'_> {
    fn read_all(&mut self) {
        let mut passes = 0_u64;
        loop {
            let skips = self.rows_to_skip > 0;
            if self.read_files().is_err() {
                return;
            }
            // A repeated trace without rows would never end.
            passes += 1;
            let is_last = self.config.passes.is_some_and(|most| passes >= most);
            if !self.config.repeat || is_last || self.pass.rows == 0 {
                self.report.reached_end();
                return;
            }
            if !skips && !self.distributor.another_pass() {
                return;
            }
            self.pass.next();
        }
    }

    /// Reads all files once.
    fn read_files(&mut self) -> Result<(), Ended> {
        let make = |events| Ok(self.config.reader(events));
        let config = &self.config;
        let taken = Some(self.report.bytes_taken());
        let opened = TraceFiles::open(config.format, config.files.clone(), None, config.events, taken, &make);
        let mut files = opened.map_err(|error| self.fail(&error))?;
        self.report.note(files.notes());
        loop {
            self.parsed.clear();
            let fed = files.feed(&mut self.parsed);
            if self.stop.load(Ordering::Relaxed) {
                return Err(Ended);
            }
            match fed.map_err(|error| self.fail(&error))? {
                RecordKind::Row => {
                    if !self.parsed.unreadable().is_empty() {
                        self.report.count_unreadable(&files, self.parsed.unreadable());
                    }
                    self.process_record()?;
                }
                RecordKind::Header => self.report.note(&files.duplicate_columns()),
                RecordKind::Comment => {}
                RecordKind::Wrong(error) => self.report.reject(files.path(), files.number(), &error),
                RecordKind::WrongHeader(reason) => {
                    return Err(self.fail(&TraceError::Header { path: files.path().to_owned(), reason }));
                }
                RecordKind::End => return Ok(()),
            }
        }
    }

    /// Distributes the rows parsed from one record, which count as one row of the file.
    #[inline]
    fn process_record(&mut self) -> Result<(), Ended> {
        let parsed = std::mem::take(&mut self.parsed);
        let left_out = parsed.len() > 0 && !self.count_row();
        for index in 0..parsed.len() {
            let row = parsed.row(index);
            let time_ns = row.time_ns.map(|time| self.pass.moved(time));
            if left_out {
                continue;
            }
            if self.config.kinds.as_ref().is_some_and(|kinds| !kinds.contains(&row.kind)) {
                self.report.filter_out();
                continue;
            }
            let queued = self.begin(row, time_ns);
            match &row.object {
                Object::Named(range) => self.take(queued, row, parsed.named(range))?,
                Object::Numbered { volume, first, count } => {
                    for block in 0..*count {
                        self.process_numbered(queued, row, numbered(*volume, *first, block))?;
                    }
                }
                Object::Items(index) => {
                    let items = parsed.items(*index);
                    self.process_items(queued, row, items, parsed.named(&items.name))?;
                }
            }
        }
        self.parsed = parsed;
        Ok(())
    }

    /// Counts a row; returns whether to distribute it.
    #[inline]
    fn count_row(&mut self) -> bool {
        self.rows += 1;
        self.pass.rows += 1;
        if self.rows >= BATCH_ROWS as u64 {
            self.report.add_rows(std::mem::take(&mut self.rows));
        }
        let skipped = self.rows_to_skip > 0;
        self.rows_to_skip -= u64::from(skipped);
        !skipped
    }

    /// Uses the number in decimal digits as the key.
    fn process_numbered(&mut self, queued: Queued, row: &Row, object: u64) -> Result<(), Ended> {
        let mut key = std::mem::take(&mut self.number);
        key.clear();
        write!(key, "{object}").expect("writing to memory cannot fail");
        let taken = self.take(queued, row, &key);
        self.number = key;
        taken
    }

    fn fail(&self, error: &TraceError) -> Ended {
        self.report.fail(error.to_string());
        Ended
    }

    /// Distributes a row and its copies.
    #[inline]
    fn take(&mut self, mut queued: Queued, row: &Row, key: &[u8]) -> Result<(), Ended> {
        let amplify = self.config.amplify;
        queued.value_bytes = amplify.value_bytes(row.value_bytes);
        if amplify.copies <= 1 {
            self.give_ttl(&mut queued, row, key);
            return self.distributor.distribute(queued, key);
        }
        for copy in 0..amplify.copies {
            self.copy_key(key, copy);
            self.give_ttl(&mut queued, row, &self.copied_key);
            self.distributor.distribute(queued, &self.copied_key)?;
        }
        Ok(())
    }

    /// Distributes the items of a request and its copies, each copy repeated as the row says. Stops early if no worker is left, because one
    /// row can expand to very many items.
    fn process_items(
        &mut self,
        mut queued: Queued,
        row: &Row,
        items: &Items,
        name: &[u8],
    ) -> Result<(), Ended> {
        let repeat = std::mem::replace(&mut queued.repeat, 1);
        for copy in 0..self.config.amplify.copies.max(1) {
            self.copy_key(name, copy);
            self.give_ttl(&mut queued, row, &self.copied_key);
            for made in 0..repeat {
                if self.stop.load(Ordering::Relaxed) {
                    return Err(Ended);
                }
                if self.distributor.is_closed_for(xxh3_64(&self.copied_key)) {
                    let each = items.parts(u64::from(self.config.amplify.size_factor)).count() as u64;
                    self.distributor.skip(each.saturating_mul(u64::from(repeat - made)));
                    break;
                }
                self.distribute_items(queued, items)?;
            }
        }
        Ok(())
    }

    /// Sets the configured TTL of a row without one: a function of the key, or of the common name of a request's items.
    #[inline]
    fn give_ttl(&self, queued: &mut Queued, row: &Row, key: &[u8]) {
        let (None, Some(sizes)) = (row.ttl_seconds, &self.config.ttl_seconds) else { return };
        queued.ttl_seconds = u32::try_from(sizes.at(xxh3_64(key))).unwrap_or(u32::MAX);
    }

    /// Distributes the items whose keys begin with the copied key to one worker.
    fn distribute_items(&mut self, queued: Queued, items: &Items) -> Result<(), Ended> {
        let lane = self.distributor.lane_for(xxh3_64(&self.copied_key));
        let name_bytes = self.copied_key.len();
        for (piece, part) in items.parts(u64::from(self.config.amplify.size_factor)) {
            piece.label.append(&mut self.copied_key);
            let key_id = xxh3_64(&self.copied_key);
            let item = Queued { value_bytes: piece.bytes, key_id, ..queued };
            let dealt = self.distributor.queue(lane, item, &self.copied_key, Some(part));
            self.copied_key.truncate(name_bytes);
            dealt?;
        }
        Ok(())
    }

    /// Writes the key of copy number `copy` to its buffer.
    #[inline]
    fn copy_key(&mut self, key: &[u8], copy: u32) {
        self.copied_key.clear();
        self.copied_key.extend_from_slice(key);
        self.config.amplify.suffix(&mut self.copied_key, copy);
    }

    /// The queued form of `row`, whose time in the pass is `time_ns`.
    #[inline]
    fn begin(&self, row: &Row, time_ns: Option<u64>) -> Queued {
        if let (Some(time_ns), None) = (time_ns, self.report.first_time_ns.get()) {
            let _ = self.report.first_time_ns.set(time_ns);
        }
        let mut queued = Queued::of(row);
        queued.time_ns = time_ns.unwrap_or(0);
        if self.config.ignore_op_count {
            queued.repeat = 1;
        }
        queued
    }
}

impl Pass {
    #[inline]
    fn moved(&mut self, time_ns: u64) -> u64 {
        self.first_ns.get_or_insert(time_ns);
        self.last_ns = self.last_ns.max(time_ns);
        time_ns.saturating_add(self.offset_ns)
    }

    fn next(&mut self) {
        let length_ns = self.last_ns - self.first_ns.unwrap_or(self.last_ns).min(self.last_ns);
        *self = Self { offset_ns: self.offset_ns.saturating_add(length_ns), ..Self::default() };
    }
}

/// Reports a panic of this thread: the workers only see their queues close.
struct ReportPanic<'a>(&'a Report);

impl Drop for ReportPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("the trace parser panicked; this is a bug".to_owned());
        }
    }
}
