//! The journal of an engine that is recovered after a kill or a power cut: a ring of [blocks](block) on the device.
//!
//! The index of an engine is in memory only. After a kill it is rebuilt from the written regions, which still hold the removed and
//! replaced items. So the journal records
//! * every removal, by an address that the engine defines;
//! * every region, once it is written: other regions are not used;
//! * the *floor*: regions with smaller sequence numbers are not recovered. It is raised before an eviction or a clear has an effect, since
//!   removals of keys in a dead region are not recorded.
//!
//! A record is appended to memory under the lock of its key, and is on the device when [`sync`](Journal::sync) returns: by a copy to the
//! page cache ([`Device::absorb`]) if there is one, otherwise by a write. One call writes the records of all threads, and one flush follows
//! if the records must survive a power cut.
//!
//! ```text
//!      +-------------+-------------+--------------+--------------+- ··· -+
//!      | tail slot 0 | tail slot 1 | ring block 0 | ring block 1 |       |
//!      +-------------+-------------+--------------+--------------+- ··· -+
//! ```
//! Full blocks are in the ring. The last block grows, and is written with each `sync`, to the two tail slots in turn. So a write never
//! overwrites the only copy of acknowledged records. If it is torn, or the drive returns garbage for it, only records of calls that had
//! not returned are lost.
//!
//! A block can be overwritten when all of its records concern regions below the floor. If the ring is full, the floor is raised.
//! The *removals floor* is the same number, unless an engine raises it further, because the removals have reached the content on flash.
//!
//! Without flushes, records do not survive a power cut, but the pages of regions may. So each block names the boot of the
//! system that wrote it, and its records are used only under the same boot.

pub mod block;
mod boot;
mod chain;
#[cfg(any(test, feature = "fuzzing"))]
pub(in crate::flash) mod fuzzing;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{Device, IoBuffer, IoError, IoSlice, PlacementHandle, Request};
use parking_lot::Mutex;

use block::{Block, Header, RegionRecord, RemovedAddress};
pub use boot::boot_mark;
pub use chain::{Chain, ChainError};

/// Blocks in front of the ring, for the last block.
const TAIL_SLOTS: u64 = 2;

/// Records of one word that fit a block.
pub fn words_per_block(block_bytes: u32) -> u64 {
    block::words_per_block(block_bytes) as u64
}

/// The options of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalOptions {
    /// Whether records survive a power cut: each group of them is flushed before the calls that caused them return. Otherwise they survive
    /// the end of the process only.
    pub flushes: bool,
    /// Identifies the boot of the operating system; `None` if it is unknown. Records that are not flushed are used under the same boot
    /// only.
    pub boot: Option<u64>,
    /// Bytes of a block: the device's block.
    pub block_bytes: u32,
}

/// The marks of blocks whose records survive a power cut, and of blocks written under an unknown boot.
const FLUSHED: u64 = 0;
const UNKNOWN_BOOT: u64 = 1;

impl JournalOptions {
    /// The mark of blocks that are written now.
    fn mark(&self) -> u64 {
        match self.boot {
            _ if self.flushes => FLUSHED,
            Some(boot) => boot.max(UNKNOWN_BOOT + 1),
            None => UNKNOWN_BOOT,
        }
    }

    /// Whether records under this mark can be used now.
    fn accepts(&self, mark: u64) -> bool {
        mark == FLUSHED
            || mark != UNKNOWN_BOOT && self.boot.is_some_and(|boot| boot.max(UNKNOWN_BOOT + 1) == mark)
    }
}

/// Alignment of a journal. Its blocks are written through the page cache, and everything else directly. If they shared a page, the page
/// cache would restore old bytes of the other part, and the kernel would fail a later flush. Kernels with larger pages are not supported.
pub const PAGE_BYTES: u64 = 4096;

/// The alignment of what follows a journal and has parts of `part_bytes`, a power of two.
pub fn alignment_bytes(part_bytes: u32) -> u64 {
    PAGE_BYTES.max(part_bytes.into())
}

/// The location of a journal, and its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalPlace {
    pub offset_bytes: u64,
    /// Blocks of the ring.
    pub blocks: u64,
    /// Generation of the engine's content.
    pub generation: u64,
    pub options: JournalOptions,
}

/// A journal that is appended to.
pub struct Journal {
    device: Arc<dyn Device>,
    placement: PlacementHandle,
    place: JournalPlace,
    tail: Mutex<Tail>,
    /// Records appended, and those on the device.
    appended: AtomicU64,
    synced: AtomicU64,
    /// Held while blocks are written, so that they are written in order.
    writing: Mutex<()>,
    written_bytes: AtomicU64,
}

/// The last block, and the unwritten ones before it.
struct Tail {
    position: Position,
    words: Vec<u64>,
    /// The current region now, and at the start of the block.
    through: u64,
    start_through: u64,
    /// Encoded blocks for the ring with their positions, in order.
    full: Vec<(u64, IoSlice)>,
    /// The tail slot of the next write.
    slot: u64,
}

/// The needed part of the ring, stored by a clean close.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    pub session: u64,
    session_start: u64,
    /// The last block.
    last: u64,
    pub floor: u64,
    removals_floor: u64,
    /// Blocks of smaller positions are durable.
    durable: u64,
    /// The current region at the end of each needed block, up to the last block.
    throughs: VecDeque<u64>,
    /// The tail slot of the next write.
    next_slot: u64,
    /// The last block, if it has not been written to the ring yet.
    last_block: Option<Block>,
}

impl Journal {
    /// An empty journal of a new engine, whose first region is `first_sequence`. The first [`sync`](Self::sync) writes a block.
    pub fn new(
        device: Arc<dyn Device>,
        placement: PlacementHandle,
        place: JournalPlace,
        first_sequence: u64,
    ) -> Self {
        let position = Position {
            session: 1,
            session_start: 0,
            last: 0,
            floor: first_sequence,
            removals_floor: first_sequence,
            durable: 0,
            throughs: VecDeque::from([first_sequence - 1]),
            next_slot: 0,
            last_block: None,
        };
        Self::at(device, placement, place, position)
    }

    /// Continues a journal in a new session, with a new block.
    pub fn continued(
        device: Arc<dyn Device>,
        placement: PlacementHandle,
        place: JournalPlace,
        position: Position,
    ) -> Self {
        let through = position.through();
        let mut position = position;
        position.session += 1;
        // The last block is durable in a tail slot only, until the first records are.
        position.durable = position.last;
        position.last += 1;
        position.session_start = position.last;
        position.throughs.push_back(through);
        position.make_space(place.blocks);
        Self::at(device, placement, place, position)
    }

    fn at(
        device: Arc<dyn Device>,
        placement: PlacementHandle,
        place: JournalPlace,
        mut position: Position,
    ) -> Self {
        let (through, slot) = (position.through(), position.next_slot);
        let moved = position.last_block.take().map(|it| {
            let mut bytes = IoBuffer::zeroed(place.options.block_bytes as usize);
            block::encode(&it.header, &it.words, &mut bytes);
            (it.header.position, bytes.into())
        });
        let full = moved.into_iter().collect();
        let tail = Tail { position, words: Vec::new(), through, start_through: through, full, slot };
        Self {
            device,
            placement,
            place,
            tail: Mutex::new(tail),
            appended: AtomicU64::new(1),
            synced: AtomicU64::new(0),
            writing: Mutex::new(()),
            written_bytes: AtomicU64::new(0),
        }
    }

    /// Records the removal of an address in regions up to `through`. If the ring is full, returns the new floor: regions below it will not
    /// be recovered, and later removals in them may be missing.
    #[must_use]
    pub fn remove(&self, address: RemovedAddress, through: u64) -> Option<u64> {
        self.append(&[block::removal_word(address)], through)
    }

    /// Records a written region. `through` and the result are as in [`remove`](Self::remove).
    #[must_use]
    pub fn add_region(&self, region: &RegionRecord, through: u64) -> Option<u64> {
        self.append(&block::region_words(region), through)
    }

    fn append(&self, words: &[u64], through: u64) -> Option<u64> {
        let mut tail = self.tail.lock();
        let floor_before = tail.position.floor;
        let current = through.max(tail.through);
        let is_new_through = current > tail.through;
        let needed = words.len() + usize::from(is_new_through);
        if tail.words.len() + needed > block::words_per_block(self.place.options.block_bytes) {
            self.begin_block(&mut tail, current);
        } else if is_new_through {
            tail.words.push(block::through_word(current));
        }
        tail.through = current;
        *tail.position.throughs.back_mut().expect("the last block is needed") = current;
        tail.words.extend_from_slice(words);
        self.appended.fetch_add(1, Ordering::AcqRel);
        (tail.position.floor > floor_before).then_some(tail.position.floor)
    }

    /// Completes the last block and begins the next. Raises the floor if that would overwrite a needed block.
    fn begin_block(&self, tail: &mut Tail, through: u64) {
        let encoded = self.encoded(tail);
        tail.full.push((tail.position.last, encoded));
        tail.words.clear();
        tail.start_through = through;
        tail.position.last += 1;
        tail.position.throughs.push_back(through);
        tail.position.make_space(self.place.blocks);
    }

    /// Raises the floor. It has an effect after a [`sync`](Self::sync).
    pub fn raise_floor(&self, floor: u64) {
        let mut tail = self.tail.lock();
        if floor > tail.position.floor {
            tail.position.raise_floor(floor);
            self.appended.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Raises the removals floor: removals in regions through smaller sequence numbers must have reached the content on flash. It has
    /// an effect after a [`sync`](Self::sync).
    pub fn raise_removals_floor(&self, floor: u64) {
        let mut tail = self.tail.lock();
        if floor > tail.position.removals_floor {
            tail.position.removals_floor = floor;
            tail.position.drop_unneeded();
            self.appended.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Whether half of the ring is in use.
    pub fn is_half_full(&self) -> bool {
        self.tail.lock().position.throughs.len() as u64 > self.place.blocks / 2
    }

    /// Records of one word that fit the ring.
    pub fn max_words(&self) -> u64 {
        self.place.blocks * words_per_block(self.place.options.block_bytes)
    }

    /// Whether records survive a power cut.
    pub fn flushes(&self) -> bool {
        self.place.options.flushes
    }

    /// Whether the floor should be raised before the next region is written.
    pub fn is_nearly_full(&self) -> bool {
        self.tail.lock().position.throughs.len() as u64 > self.place.blocks - self.place.blocks / 8
    }

    /// Writes all records that were appended before the call. Returns without I/O if they are on the device.
    ///
    /// # Errors
    /// A write or flush failed; the next call repeats it.
    pub fn sync(&self) -> Result<(), IoError> {
        let target = self.appended.load(Ordering::Acquire);
        if self.synced.load(Ordering::Acquire) >= target {
            return Ok(());
        }
        let _writing = self.writing.lock();
        if self.synced.load(Ordering::Acquire) >= target {
            return Ok(());
        }
        let (full, last_block, last, appended) = {
            let mut tail = self.tail.lock();
            let full = std::mem::take(&mut tail.full);
            let last_block = (self.place.tail_offset(tail.slot), self.encoded(&tail));
            (full, last_block, tail.position.last, self.appended.load(Ordering::Acquire))
        };
        let ring = full.iter().map(|(position, bytes)| (self.place.ring_offset(*position), bytes.clone()));
        if let Err(error) = self.write_all(ring.chain([last_block])) {
            // The last block is encoded again; the others are kept.
            self.tail.lock().full.splice(..0, full);
            return Err(error);
        }
        let mut tail = self.tail.lock();
        tail.position.durable = last;
        tail.slot = (tail.slot + 1) % TAIL_SLOTS;
        drop(tail);
        self.synced.store(appended, Ordering::Release);
        Ok(())
    }

    fn write_all(&self, blocks: impl Iterator<Item = (u64, IoSlice)>) -> Result<(), IoError> {
        for (offset, data) in blocks {
            self.written_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
            match self.device.absorb(offset, &data) {
                Some(absorbed) => absorbed?,
                None => {
                    _ = self.device.execute(Request::Write { offset, data, placement: self.placement })?;
                }
            }
        }
        if self.place.options.flushes {
            self.device.execute(Request::Flush)?;
        }
        Ok(())
    }

    /// Completes the last block, so that the next [`sync`](Self::sync) writes it to the ring.
    pub fn complete_block(&self) {
        let mut tail = self.tail.lock();
        let through = tail.through;
        self.begin_block(&mut tail, through);
        self.appended.fetch_add(1, Ordering::AcqRel);
    }

    fn encoded(&self, tail: &Tail) -> IoSlice {
        let Position { session, session_start, last, floor, removals_floor, durable, .. } = tail.position;
        let header = Header {
            generation: self.place.generation,
            boot: self.place.options.mark(),
            session,
            session_start,
            position: last,
            floor,
            removals_floor,
            through: tail.start_through,
            durable,
        };
        let mut bytes = IoBuffer::zeroed(self.place.options.block_bytes as usize);
        block::encode(&header, &tail.words, &mut bytes);
        bytes.into()
    }

    /// The current position of the ring.
    pub fn position(&self) -> Position {
        self.tail.lock().position.clone()
    }

    /// The position for a snapshot, after the last block was [completed](Self::complete_block) and synced.
    pub fn closed_position(&self) -> Position {
        let mut position = self.position();
        position.last -= 1;
        if position.throughs.len() > 1 {
            position.throughs.pop_back();
        }
        position
    }

    /// Records and bytes written so far.
    pub fn written(&self) -> (u64, u64) {
        (self.appended.load(Ordering::Relaxed), self.written_bytes.load(Ordering::Relaxed))
    }
}

impl JournalPlace {
    /// Bytes on the device.
    pub fn bytes(&self) -> u64 {
        (TAIL_SLOTS + self.blocks) * u64::from(self.options.block_bytes)
    }

    fn tail_offset(&self, slot: u64) -> u64 {
        self.offset_bytes + slot * u64::from(self.options.block_bytes)
    }

    fn ring_offset(&self, position: u64) -> u64 {
        self.tail_offset(TAIL_SLOTS + position % self.blocks)
    }
}

impl Position {
    fn raise_floor(&mut self, floor: u64) {
        self.floor = floor;
        self.removals_floor = self.removals_floor.max(floor);
        self.drop_unneeded();
    }

    /// The last block is always needed: it has the floors.
    fn drop_unneeded(&mut self) {
        while self.throughs.len() > 1 && self.throughs[0] < self.removals_floor {
            self.throughs.pop_front();
        }
    }

    /// Raises the floor until the last block overwrites no needed one.
    fn make_space(&mut self, blocks: u64) {
        self.drop_unneeded();
        while self.throughs.len() as u64 > blocks {
            self.raise_floor(self.throughs[0] + 1);
        }
    }

    /// The newest region that a record names.
    fn through(&self) -> u64 {
        self.throughs.back().copied().unwrap_or(0)
    }

    /// The position as bytes of a snapshot.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { session, session_start, last, floor, removals_floor, durable, throughs, .. } = self;
        let count = throughs.len() as u64;
        let head = [*session, *session_start, *last, *floor, *removals_floor, *durable, count];
        head.iter().chain(throughs).flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Decodes a position; further bytes are ignored. `None` if it is damaged.
    pub fn from_bytes(bytes: &[u8], blocks: u64) -> Option<Self> {
        let mut numbers =
            bytes.chunks_exact(8).map(|it| u64::from_le_bytes(it.try_into().expect("eight bytes")));
        let mut next = || numbers.next();
        let (session, session_start, last) = (next()?, next()?, next()?);
        let (floor, removals_floor, durable, count) = (next()?, next()?, next()?, next()?);
        let is_in_range = (1..=blocks).contains(&count)
            && [session, last, floor, removals_floor].into_iter().all(|it| it < u64::MAX / 4);
        if !is_in_range {
            return None;
        }
        let throughs: VecDeque<u64> = numbers.take(count as usize).collect();
        (throughs.len() as u64 == count).then_some(Self {
            session,
            session_start,
            last,
            floor,
            removals_floor,
            durable,
            throughs,
            next_slot: 0,
            last_block: None,
        })
    }

    /// Bytes of the largest position of a ring.
    pub fn max_bytes(blocks: u64) -> u64 {
        (7 + blocks) * 8
    }
}
