//! The thread that reads the trace and deals its rows out.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SendError, Sender, SyncSender, TrySendError};

use xxhash_rust::xxh3::xxh3_64;

use super::super::cut::Items;
use super::super::lines::Fed;
use super::super::records::Records;
use super::super::rows::{Object, Row, RowReader, Rows, numbered};
use super::report::Report;
use super::{BATCH_ROWS, Batch, Order, Queued, ReplayConfig};
use crate::Part;

/// Reads the trace to its end, or until nobody listens any more. Closed queues say that; `stop` says it too,
/// for long stretches of which nothing is queued.
pub(super) fn run(
    config: ReplayConfig,
    outlets: Vec<Outlet>,
    (returned, demands): (Receiver<Batch>, Option<Demands>),
    report: &Report,
    stop: &AtomicBool,
) {
    let _told = TellPanic(report);
    if let Some(demands) = &demands {
        // Nobody left to ask is found out when the first batch is sent.
        let _ = demands.demanded.recv();
    }
    let lane = |sender| Lane { sender: Some(sender), filling: Batch::default(), was_dealt: false };
    let lanes = outlets.into_iter().map(lane);
    let lanes: Vec<Lane> = lanes.collect();
    let mut parser = Parser {
        reader: config.reader(),
        dealer: Dealer {
            open: lanes.len(),
            lanes,
            returned,
            demands,
            order: config.order,
            timed: config.timed,
            turn: 0,
        },
        rows_to_skip: config.skip_rows,
        rows: 0,
        pass: Pass::default(),
        parsed: Rows::with_tenants(report.tenants.clone()),
        number: Vec::new(),
        copied_key: Vec::new(),
        config,
        report,
        stop,
    };
    parser.read_all();
    parser.dealer.flush();
    report.add_rows(std::mem::take(&mut parser.rows));
}

/// Nobody left to read for, or the file cannot be read.
struct Ended;

struct Parser<'a> {
    config: ReplayConfig,
    report: &'a Report,
    reader: Box<dyn RowReader>,
    dealer: Dealer,
    rows_to_skip: u64,
    /// Rows not yet reported.
    rows: u64,
    pass: Pass,
    parsed: Rows,
    /// Room for keys that are made from numbers, and for those of copies.
    number: Vec<u8>,
    copied_key: Vec<u8>,
    stop: &'a AtomicBool,
}

/// The times of the current pass over the trace, so that the next one can go on from there.
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
            for file in 0..self.config.files.len() {
                let path = self.config.files[file].clone();
                if self.read_file(&path).is_err() {
                    return;
                }
            }
            // A trace without rows would repeat for ever without anybody noticing.
            passes += 1;
            let is_last = self.config.passes.is_some_and(|most| passes >= most);
            if !self.config.repeat || is_last || self.pass.rows == 0 {
                return;
            }
            if !skips && !self.dealer.another_pass() {
                return;
            }
            self.pass.next();
        }
    }

    fn read_file(&mut self, path: &Path) -> Result<(), Ended> {
        let mut records = Records::open(path).map_err(|error| self.fail(path, 0, &error))?;
        let head = records.head().map_err(|error| self.fail(path, 0, &error))?.0;
        let framing = self.reader.framing(head).map_err(|error| self.fail(path, 0, &error))?;
        records.cut(framing);
        loop {
            let number = records.number();
            self.parsed.clear();
            let fed = records.feed(self.reader.as_mut(), &mut self.parsed);
            if self.stop.load(Ordering::Relaxed) {
                return Err(Ended);
            }
            match fed.map_err(|error| self.fail(path, number, &error))? {
                Fed::Row => self.take_all()?,
                Fed::Header | Fed::Remark => {}
                Fed::Wrong(error) => self.report.reject(path, records.number(), &error),
                Fed::WrongHeader(error) => return Err(self.fail(path, records.number(), &error)),
                Fed::End => return Ok(()),
            }
        }
    }

    /// Deals out what was parsed of a record: one row of the file, whatever it asks for.
    #[inline]
    fn take_all(&mut self) -> Result<(), Ended> {
        let parsed = std::mem::take(&mut self.parsed);
        let left_out = parsed.len() > 0 && !self.count_row();
        for index in 0..parsed.len() {
            let row = parsed.row(index);
            let time_ns = row.time_ns.map(|time| self.pass.moved(time));
            if left_out {
                continue;
            }
            let queued = self.begin(row, time_ns);
            match &row.object {
                Object::Named(range) => self.take(queued, row, parsed.named(range))?,
                Object::Numbered { volume, first, count } => {
                    for block in 0..*count {
                        self.take_numbered(queued, row, numbered(*volume, *first, block))?;
                    }
                }
                Object::Items(index) => {
                    let items = parsed.items(*index);
                    self.take_items(queued, row, items, parsed.named(&items.name))?;
                }
            }
        }
        self.parsed = parsed;
        Ok(())
    }

    /// Counts a row; whether it is to be dealt out.
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

    /// The number in decimal digits is the key.
    fn take_numbered(&mut self, queued: Queued, row: &Row, object: u64) -> Result<(), Ended> {
        let mut key = std::mem::take(&mut self.number);
        key.clear();
        write!(key, "{object}").expect("memory takes every byte");
        let taken = self.take(queued, row, &key);
        self.number = key;
        taken
    }

    fn fail(&self, path: &Path, line: u64, reason: &impl std::fmt::Display) -> Ended {
        self.report.fail(format!("{}: after line {line}: {reason}", path.display()));
        Ended
    }

    /// Deals out a row with all its copies.
    #[inline]
    fn take(&mut self, mut queued: Queued, row: &Row, key: &[u8]) -> Result<(), Ended> {
        let amplify = self.config.amplify;
        queued.value_bytes = amplify.value_bytes(row.value_bytes);
        if amplify.copies <= 1 {
            self.give_ttl(&mut queued, row, key);
            return self.dealer.deal(queued, key);
        }
        for copy in 0..amplify.copies {
            self.copy_key(key, copy);
            self.give_ttl(&mut queued, row, &self.copied_key);
            self.dealer.deal(queued, &self.copied_key)?;
        }
        Ok(())
    }

    /// Deals out the items of a request with all its copies, each copy as often as the row says: of one row these may be more
    /// than anybody wants.
    fn take_items(&mut self, mut queued: Queued, row: &Row, items: &Items, name: &[u8]) -> Result<(), Ended> {
        let repeat = std::mem::replace(&mut queued.repeat, 1);
        for copy in 0..self.config.amplify.copies.max(1) {
            self.copy_key(name, copy);
            self.give_ttl(&mut queued, row, &self.copied_key);
            for _ in 0..repeat {
                if self.stop.load(Ordering::Relaxed) {
                    return Err(Ended);
                }
                if self.dealer.is_done_with(xxh3_64(&self.copied_key)) {
                    break;
                }
                self.deal_items(queued, items)?;
            }
        }
        Ok(())
    }

    /// What `row` leaves open: a time to live that follows from the key, or from the name of all the items of a request.
    #[inline]
    fn give_ttl(&self, queued: &mut Queued, row: &Row, key: &[u8]) {
        let (None, Some(sizes)) = (row.ttl_seconds, &self.config.ttl_seconds) else { return };
        queued.ttl_seconds = u32::try_from(sizes.at(xxh3_64(key))).unwrap_or(u32::MAX);
    }

    /// Deals out the items whose keys begin with the copied one, to one worker.
    fn deal_items(&mut self, queued: Queued, items: &Items) -> Result<(), Ended> {
        let lane = self.dealer.lane_for(xxh3_64(&self.copied_key));
        let name_bytes = self.copied_key.len();
        for (piece, part) in items.parts(u64::from(self.config.amplify.size_factor)) {
            piece.label.append(&mut self.copied_key);
            let key_id = xxh3_64(&self.copied_key);
            let item = Queued { value_bytes: piece.bytes, key_id, ..queued };
            let dealt = self.dealer.queue(lane, item, &self.copied_key, Some(part));
            self.copied_key.truncate(name_bytes);
            dealt?;
        }
        Ok(())
    }

    /// Puts the key of copy number `copy` into the room for it.
    #[inline]
    fn copy_key(&mut self, key: &[u8], copy: u32) {
        self.copied_key.clear();
        self.copied_key.extend_from_slice(key);
        self.config.amplify.suffix(&mut self.copied_key, copy);
    }

    /// What waits of a row, whose time in the pass is this.
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

/// Deals rows to the workers.
struct Dealer {
    lanes: Vec<Lane>,
    returned: Receiver<Batch>,
    demands: Option<Demands>,
    order: Order,
    timed: bool,
    /// Lanes whose worker still listens.
    open: usize,
    /// In any order: the lane being filled; in turns: the next.
    turn: usize,
}

/// Where one thread asks for all workers: a word for each batch that is wanted, and one for each that was queued.
pub(super) struct Demands {
    pub(super) demanded: Receiver<()>,
    pub(super) produced: Sender<()>,
}

/// The parser's end of a queue.
pub(super) enum Outlet {
    Bounded(SyncSender<Batch>),
    Unbounded(Sender<Batch>),
}

impl Outlet {
    /// Waits for room, if there is a bound.
    fn send(&self, batch: Batch) -> Result<(), SendError<Batch>> {
        match self {
            Self::Bounded(sender) => sender.send(batch),
            Self::Unbounded(sender) => sender.send(batch),
        }
    }

    fn try_send(&self, batch: Batch) -> Result<(), TrySendError<Batch>> {
        match self {
            Self::Bounded(sender) => sender.try_send(batch),
            Self::Unbounded(sender) => {
                sender.send(batch).map_err(|SendError(batch)| TrySendError::Disconnected(batch))
            }
        }
    }
}

struct Lane {
    /// `None` once the worker has gone.
    sender: Option<Outlet>,
    filling: Batch,
    /// Whether it was given a row in this pass.
    was_dealt: bool,
}

impl Dealer {
    /// Whether another pass would give anybody anything, after one of which nothing was left out. A worker to whom none of its keys
    /// belongs would wait for ever, and ends.
    fn another_pass(&mut self) -> bool {
        let mut any = false;
        for lane in 0..self.lanes.len() {
            let was_dealt = std::mem::take(&mut self.lanes[lane].was_dealt);
            if !was_dealt && self.order == Order::Strict {
                self.close(lane);
            }
            any |= was_dealt;
        }
        any
    }

    #[inline]
    fn deal(&mut self, mut queued: Queued, key: &[u8]) -> Result<(), Ended> {
        queued.key_id = xxh3_64(key);
        let lane = self.lane_for(queued.key_id);
        self.queue(lane, queued, key, None)
    }

    /// The lane for what is called so, which may have gone.
    #[inline]
    fn lane_for(&mut self, key_id: u64) -> usize {
        match self.order {
            Order::Strict => self.lane_of(key_id),
            Order::Any => self.turn,
            Order::Turns => {
                let next = (self.turn + 1) % self.lanes.len();
                std::mem::replace(&mut self.turn, next)
            }
        }
    }

    /// Whether the only worker who is given what is called so has gone.
    #[inline]
    fn is_done_with(&self, key_id: u64) -> bool {
        self.order == Order::Strict && self.lanes[self.lane_of(key_id)].sender.is_none()
    }

    /// Puts a row into a lane that [`Self::lane_for`] chose, of items of one request for all of them. Inlined for the sake of
    /// rows that are no parts, which are dealt by the million.
    #[inline(always)]
    fn queue(
        &mut self,
        lane: usize,
        mut queued: Queued,
        key: &[u8],
        part: Option<Part>,
    ) -> Result<(), Ended> {
        if self.open == 0 {
            return Err(Ended);
        }
        let Lane { sender, filling: batch, was_dealt } = &mut self.lanes[lane];
        if sender.is_none() {
            // The worker that these keys belong to, or whose turn it is, has made all its requests.
            return Ok(());
        }
        *was_dealt = true;
        queued.key_start = batch.keys.len() as u32;
        batch.keys.extend_from_slice(key);
        queued.key_end = batch.keys.len() as u32;
        batch.rows.push(queued);
        let mut may_end = true;
        if let Some(part) = part {
            batch.parts.push(part);
            // Who takes a batch of any order takes the rest of a request with it.
            may_end = part.is_last || self.order != Order::Any;
        }
        if batch.rows.len() >= BATCH_ROWS && may_end {
            self.hand_over(lane);
        }
        Ok(())
    }

    /// Caches pick shards and buckets by the plain bits of this same hash. Scrambling it first keeps workers
    /// from each having shards of their own, which would hide contention.
    #[inline]
    fn lane_of(&self, key_id: u64) -> usize {
        let mixed = (key_id ^ (key_id >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(mixed) * self.lanes.len() as u128) >> 64) as usize
    }

    fn hand_over(&mut self, lane: usize) {
        let empty = match self.returned.try_recv() {
            Ok(mut batch) => {
                batch.clear();
                batch
            }
            Err(_) => Batch::default(),
        };
        let full = std::mem::replace(&mut self.lanes[lane].filling, empty);
        match self.order {
            Order::Strict | Order::Turns => drop(self.send(lane, full)),
            Order::Any => self.send_anywhere(full),
        }
        self.await_demand();
    }

    /// Says that a batch is queued, and goes on when another is wanted.
    fn await_demand(&mut self) {
        let Some(Demands { demanded, produced }) = &self.demands else { return };
        if produced.send(()).is_err() || demanded.recv().is_err() {
            // Nobody asks any more.
            (0..self.lanes.len()).for_each(|lane| self.close(lane));
        }
    }

    /// Waits for room in the lane. Gives the batch back if its worker has gone.
    fn send(&mut self, lane: usize, batch: Batch) -> Option<Batch> {
        let alone = !self.timed || self.order == Order::Any;
        let batch = if alone { batch } else { self.send_timed(lane, batch)? };
        let sender = self.lanes[lane].sender.as_ref()?;
        let refused = sender.send(batch).err()?;
        self.close(lane);
        Some(refused.0)
    }

    /// A lane whose rows are not due yet is full for as long as that. The others get what was read for them, which may be due
    /// before. Gives the batch back if there was no room for it.
    fn send_timed(&mut self, lane: usize, batch: Batch) -> Option<Batch> {
        let refused = match self.lanes[lane].sender.as_ref()?.try_send(batch) {
            Ok(()) => return None,
            Err(TrySendError::Disconnected(_)) => {
                self.close(lane);
                return None;
            }
            Err(TrySendError::Full(refused)) => refused,
        };
        for other in &mut self.lanes {
            let Some(sender) = other.sender.as_ref().filter(|_| !other.filling.rows.is_empty()) else {
                continue;
            };
            if let Err(TrySendError::Full(kept)) = sender.try_send(std::mem::take(&mut other.filling)) {
                other.filling = kept;
            }
        }
        Some(refused)
    }

    fn send_anywhere(&mut self, mut batch: Batch) {
        let lanes = self.lanes.len();
        for step in 0..lanes {
            let lane = (self.turn + step) % lanes;
            let Some(sender) = &self.lanes[lane].sender else { continue };
            match sender.try_send(batch) {
                Ok(()) => return self.turn_to(lane + 1),
                Err(TrySendError::Full(refused)) => batch = refused,
                Err(TrySendError::Disconnected(refused)) => {
                    batch = refused;
                    self.close(lane);
                }
            }
        }
        // All are full: wait for the one whose turn it is.
        while self.open > 0 {
            self.turn_to(self.turn);
            let Some(refused) = self.send(self.turn, batch) else { return self.turn_to(self.turn + 1) };
            batch = refused;
        }
    }

    /// The next lane from `lane` on whose worker still listens.
    fn turn_to(&mut self, lane: usize) {
        let lanes = self.lanes.len();
        let filled = self.turn;
        let listening =
            (lane..lane + lanes).map(|lane| lane % lanes).find(|lane| self.lanes[*lane].sender.is_some());
        self.turn = listening.unwrap_or(filled);
        if self.turn != filled {
            // The empty batch that was just fetched moves along.
            self.lanes[self.turn].filling = std::mem::take(&mut self.lanes[filled].filling);
        }
    }

    fn close(&mut self, lane: usize) {
        if self.lanes[lane].sender.take().is_some() {
            self.open -= 1;
        }
    }

    fn flush(&mut self) {
        for lane in 0..self.lanes.len() {
            if !self.lanes[lane].filling.rows.is_empty() {
                self.hand_over(lane);
            }
        }
    }
}

/// Puts a panic of this thread into the report: the workers only see their queues end.
struct TellPanic<'a>(&'a Report);

impl Drop for TellPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("the trace parser panicked; this is a bug".to_owned());
        }
    }
}
