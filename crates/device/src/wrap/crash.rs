//! A device that simulates power cuts.
//!
//! Beside the current content it keeps the durable image (as of the last flush) and every later change. [`CrashDevice::crash`] combines
//! them to an image that the contract of [`Device`] allows: flushed data is present; of later writes, any subset of the blocks is present,
//! each block whole. [`CrashDevice::kill`] returns the image after the end of the process: all completed writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::tally::Tally;
use crate::{
    Completion, Counters, Device, ErrorKind, IoBuffer, IoError, IoSlice, MemoryDevice, Outcome, Request,
};

/// A power supply shared by several devices.
#[derive(Debug)]
pub struct Power {
    /// Writes, trims and flushes so far, of all devices.
    requests: AtomicU64,
    cut_after: AtomicU64,
}

impl Default for Power {
    fn default() -> Self {
        Self { requests: AtomicU64::new(0), cut_after: AtomicU64::new(u64::MAX) }
    }
}

impl Power {
    /// Cuts the power after `requests` writes, trims and flushes of all devices, counted from the start. The next request is interrupted:
    /// it fails, but any of its blocks can be in the image. All later requests and those in flight fail.
    pub fn cut_after(&self, requests: u64) {
        self.cut_after.store(requests, SeqCst);
    }

    /// Whether the power is cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.requests.load(SeqCst) > self.cut_after.load(SeqCst)
    }

    /// Writes, trims and flushes before the power was cut.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(SeqCst).min(self.cut_after.load(SeqCst))
    }
}

/// See the [module](self).
pub struct CrashDevice {
    live: Arc<dyn Device>,
    journal: Arc<Mutex<Journal>>,
    tally: Arc<Tally>,
}

struct Journal {
    durable: MemoryDevice,
    /// Writes and trims not covered by a flush, in order of submission.
    changes: BTreeMap<u64, Change>,
    power: Arc<Power>,
    completed: u64,
}

#[derive(Clone)]
struct Change {
    offset: u64,
    what: What,
    /// Its number among the completed changes, if it is completed.
    completed: Option<u64>,
}

#[derive(Clone)]
enum What {
    Write(IoSlice),
    Trim(u64),
}

/// A request in flight and the effect of its completion.
enum Ticket {
    Read,
    Change(u64),
    /// The changes completed before the flush began, which it makes durable.
    Flush(Vec<u64>),
}

impl CrashDevice {
    /// Wraps `memory`; its current content counts as flushed.
    #[must_use]
    pub fn new(memory: MemoryDevice) -> Self {
        let durable = memory.duplicate();
        Self::over(Arc::new(memory), durable)
    }

    /// A device on `live`, for example a [`SimulatedDevice`](crate::SimulatedDevice), which has the bytes of `durable`. A request that
    /// fails there has no effect.
    #[must_use]
    pub fn over(live: Arc<dyn Device>, durable: MemoryDevice) -> Self {
        let power = Arc::default();
        let journal = Journal { durable, changes: BTreeMap::new(), power, completed: 0 };
        Self { live, journal: Arc::new(Mutex::new(journal)), tally: Arc::default() }
    }

    /// Shares a power supply with other devices. Must be called before the first request.
    #[must_use]
    pub fn powered_by(self, power: &Arc<Power>) -> Self {
        self.journal.lock().power = Arc::clone(power);
        self
    }

    /// [`Power::cut_after`].
    pub fn freeze_after(&self, requests: u64) {
        self.journal.lock().power.cut_after(requests);
    }

    /// [`Power::is_cut`].
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.journal.lock().power.is_cut()
    }

    /// [`Power::requests`].
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.journal.lock().power.requests()
    }

    /// A possible content of the medium after a power cut now, or after the cut that was made. Seeds give different images, among them
    /// those with none and with all of the unflushed writes.
    #[must_use]
    pub fn crash(&self, seed: u64) -> MemoryDevice {
        let journal = self.journal.lock();
        let image = journal.durable.duplicate();
        let mut random = StdRng::seed_from_u64(seed);
        let survival = Survival::draw(&mut random);
        for change in journal.changes.values() {
            change.apply_in_part(&image, survival, &mut random);
        }
        image
    }

    /// A possible content of the medium after the process is killed without a power cut: all completed writes, flushed or not, and any
    /// subset of the blocks of requests in flight.
    #[must_use]
    pub fn kill(&self, seed: u64) -> MemoryDevice {
        let journal = self.journal.lock();
        let image = journal.durable.duplicate();
        for number in journal.completed_changes() {
            journal.changes[&number].apply(&image);
        }
        let mut random = StdRng::seed_from_u64(seed);
        let survival = Survival::draw(&mut random);
        for change in journal.changes.values().filter(|change| change.completed.is_none()) {
            change.apply_in_part(&image, survival, &mut random);
        }
        image
    }

    fn begin(&self, request: &Request) -> Result<Ticket, IoError> {
        self.geometry().check(request)?;
        self.journal.lock().begin(request)
    }
}

impl Device for CrashDevice {
    crate::forward_device!(live: geometry, trims_to_zeros, allocate_handle);

    fn submit(&self, request: Request, completion: Completion) {
        let completion = self.tally.counting(&request, completion);
        match self.begin(&request) {
            Err(error) => completion.complete(Err(error)),
            Ok(ticket) => {
                let journal = Arc::clone(&self.journal);
                let settled = move |outcome| {
                    let outcome = journal.lock().end(ticket, outcome);
                    completion.complete(outcome);
                };
                self.live.submit(request, Completion::new(settled));
            }
        }
    }

    fn execute(&self, request: Request) -> Outcome {
        let (kind, bytes) = (request.kind(), request.len_bytes());
        let outcome = self.begin(&request).and_then(|ticket| {
            let outcome = self.live.execute(request);
            self.journal.lock().end(ticket, outcome)
        });
        self.tally.count(kind, bytes, &outcome);
        outcome
    }

    /// The write survives a kill, but not a power cut before the next flush.
    fn absorb(&self, offset: u64, data: &IoSlice) -> Option<Result<(), IoError>> {
        let absorbed = self.live.absorb(offset, data)?;
        let request = Request::write(offset, data.clone());
        let outcome = self
            .begin(&request)
            .and_then(|ticket| self.journal.lock().end(ticket, absorbed.map(|()| IoBuffer::empty())));
        self.tally.count(request.kind(), request.len_bytes(), &outcome);
        Some(outcome.map(drop))
    }

    fn counters(&self) -> Counters {
        Counters { media_written_bytes: self.live.counters().media_written_bytes, ..self.tally.counters() }
    }
}

impl Journal {
    fn begin(&mut self, request: &Request) -> Result<Ticket, IoError> {
        if self.power.is_cut() {
            return Err(power_is_cut());
        }
        let (offset, what) = match request {
            Request::Read { .. } => return Ok(Ticket::Read),
            Request::Write { offset, data, .. } => (*offset, Some(What::Write(data.clone()))),
            Request::Trim { offset, len } => (*offset, Some(What::Trim(*len))),
            Request::Flush => (0, None),
        };
        let number = self.power.requests.fetch_add(1, SeqCst);
        let ticket = match what {
            Some(what) => {
                self.changes.insert(number, Change { offset, what, completed: None });
                Ticket::Change(number)
            }
            None => Ticket::Flush(self.completed_changes()),
        };
        if self.power.is_cut() { Err(power_is_cut()) } else { Ok(ticket) }
    }

    fn end(&mut self, ticket: Ticket, outcome: Outcome) -> Outcome {
        if self.power.is_cut() {
            return Err(power_is_cut());
        }
        match ticket {
            Ticket::Read => {}
            Ticket::Change(number) if outcome.is_err() => {
                self.changes.remove(&number);
            }
            Ticket::Change(number) => {
                self.completed += 1;
                if let Some(change) = self.changes.get_mut(&number) {
                    change.completed = Some(self.completed);
                }
            }
            Ticket::Flush(covered) if outcome.is_ok() => self.settle(&covered),
            Ticket::Flush(_) => {}
        }
        outcome
    }

    /// Numbers of the completed changes, in order of completion.
    fn completed_changes(&self) -> Vec<u64> {
        let completed = self.changes.iter().filter_map(|(&number, change)| Some((change.completed?, number)));
        let in_order: BTreeMap<u64, u64> = completed.collect();
        in_order.into_values().collect()
    }

    /// Two flushes can cover the same change; the first one to complete makes it durable.
    fn settle(&mut self, covered: &[u64]) {
        for number in covered {
            if let Some(change) = self.changes.remove(number) {
                change.apply(&self.durable);
            }
        }
    }
}

/// The unflushed writes in an image.
#[derive(Clone, Copy)]
enum Survival {
    Nothing,
    Everything,
    /// Each block with this probability.
    Blocks(f64),
}

impl Survival {
    fn draw(random: &mut StdRng) -> Self {
        match random.random_range(0..8) {
            0 => Self::Nothing,
            1 => Self::Everything,
            _ => Self::Blocks(random.random_range(0.05..0.95)),
        }
    }
}

impl Change {
    fn apply(&self, image: &MemoryDevice) {
        write(
            image,
            match &self.what {
                What::Write(data) => Request::write(self.offset, data.clone()),
                What::Trim(len) => Request::Trim { offset: self.offset, len: *len },
            },
        );
    }

    /// A later change of the same block overwrites an earlier one in the image: any version can be the last.
    fn apply_in_part(&self, image: &MemoryDevice, survival: Survival, random: &mut StdRng) {
        let chance = match survival {
            Survival::Nothing => return,
            Survival::Everything => return self.apply(image),
            Survival::Blocks(chance) => chance,
        };
        let block = u64::from(image.geometry().block_bytes);
        match &self.what {
            What::Write(data) => {
                for start in (0..data.len()).step_by(block as usize).filter(|_| random.random_bool(chance)) {
                    let (offset, data) =
                        (self.offset + start as u64, data.part(start..start + block as usize));
                    write(image, Request::write(offset, data));
                }
            }
            // A large trim is applied as a whole, because block by block it is too slow.
            What::Trim(len) => {
                let start = random.random_range(0..=len / block) * block;
                let end = start + random.random_range(0..=(len - start) / block) * block;
                write(image, Request::Trim { offset: self.offset + start, len: end - start });
            }
        }
    }
}

fn write(image: &MemoryDevice, request: Request) {
    image.execute(request).expect("the image has the geometry that the request was checked against");
}

fn power_is_cut() -> IoError {
    IoError::new(ErrorKind::Closed, "the power is cut")
}

#[cfg(test)]
mod tests;
