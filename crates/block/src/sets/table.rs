//! The table of slots: the block and state of each slot, and a hash index per set.
//!
//! ```text
//! word of a slot, 64 bits        | pins 15 | age 2 | rewritten 1 | cleaning 1 | dirty 1 | block 44 |
//! chain of a slot, 16 bits       the next slot of its hash bucket, or of the set's free list
//! head of a bucket, 16 bits      its first slot; each set has as many buckets as slots
//! ```
//! 12 bytes per slot; 17 with the 5 bytes of the queues.

use policy::Slot;

use super::config::MAX_DISK_BLOCKS;
use super::placement::mix;

const BLOCK_BITS: u32 = 44;
const BLOCK_MASK: u64 = (1 << BLOCK_BITS) - 1;
/// The block number of a free slot.
const NO_BLOCK: u64 = BLOCK_MASK;
const _: () = assert!(NO_BLOCK == MAX_DISK_BLOCKS);

const DIRTY: u64 = 1 << BLOCK_BITS;
const CLEANING: u64 = 1 << (BLOCK_BITS + 1);
const REWRITTEN: u64 = 1 << (BLOCK_BITS + 2);
const AGE_SHIFT: u32 = BLOCK_BITS + 3;
const AGE_MASK: u64 = 3 << AGE_SHIFT;
const PIN_SHIFT: u32 = BLOCK_BITS + 5;
const ONE_PIN: u64 = 1 << PIN_SHIFT;
/// Maximum of pins per block.
pub(super) const MAX_PINS: u64 = u64::MAX >> PIN_SHIFT;

/// End of a chain.
const END: u16 = u16::MAX;

/// Block and state of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word(u64);

impl Word {
    const FREE: Self = Self(NO_BLOCK);

    /// The block; `None` if the slot is free.
    #[must_use]
    pub fn block(self) -> Option<u64> {
        let block = self.0 & BLOCK_MASK;
        (block != NO_BLOCK).then_some(block)
    }

    /// Whether the block is newer than the disk.
    #[must_use]
    pub fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// Whether the block is being cleaned.
    #[must_use]
    pub fn is_cleaning(self) -> bool {
        self.0 & CLEANING != 0
    }

    /// Number of pins.
    #[must_use]
    pub fn pins(self) -> u32 {
        (self.0 >> PIN_SHIFT) as u32
    }

    /// Whether the block can be evicted: it is clean and not pinned.
    #[inline]
    pub(crate) fn can_evict(self) -> bool {
        self.0 >> PIN_SHIFT == 0 && self.0 & (DIRTY | CLEANING) == 0
    }

    /// Whether the block can be cleaned: it is dirty, not pinned, and not being cleaned.
    #[inline]
    pub(super) fn can_clean(self) -> bool {
        self.0 >> PIN_SHIFT == 0 && self.0 & (DIRTY | CLEANING) == DIRTY
    }

    #[inline]
    pub(super) fn age(self) -> u64 {
        (self.0 & AGE_MASK) >> AGE_SHIFT
    }
}

pub(super) struct Table {
    ways: u32,
    words: Vec<Word>,
    chain: Vec<u16>,
    heads: Vec<u16>,
    /// The first free slot of each set.
    free: Vec<u16>,
}

impl Table {
    pub(super) fn new(sets: u32, ways: u32) -> Self {
        let slots = (sets * ways) as usize;
        let in_order = |way: u32| if way + 1 == ways { END } else { way as u16 + 1 };
        Self {
            ways,
            words: vec![Word::FREE; slots],
            chain: (0..sets).flat_map(|_| (0..ways).map(in_order)).collect(),
            heads: vec![END; slots],
            free: vec![0; sets as usize],
        }
    }

    #[inline]
    pub(super) fn word(&self, slot: Slot) -> Word {
        self.words[slot.0 as usize]
    }

    #[inline]
    pub(super) fn find(&self, set: u32, block: u64) -> Option<Slot> {
        let first = set * self.ways;
        let mut way = self.heads[(first + self.bucket(block)) as usize];
        while way != END {
            let slot = first + u32::from(way);
            if self.words[slot as usize].0 & BLOCK_MASK == block {
                return Some(Slot(slot));
            }
            way = self.chain[slot as usize];
        }
        None
    }

    /// Assigns the set's first free slot to a block.
    #[inline]
    pub(super) fn take_free(&mut self, set: u32, block: u64) -> Option<Slot> {
        let way = self.free[set as usize];
        if way == END {
            return None;
        }
        let slot = Slot(set * self.ways + u32::from(way));
        self.free[set as usize] = self.chain[slot.0 as usize];
        self.add_to_bucket(slot, block);
        Some(slot)
    }

    /// Assigns the slot to another block of the set.
    #[inline]
    pub(super) fn replace(&mut self, slot: Slot, block: u64) {
        self.remove_from_bucket(slot);
        self.add_to_bucket(slot, block);
    }

    /// Frees the slot, which becomes the set's next to allocate.
    pub(super) fn release(&mut self, slot: Slot) {
        self.remove_from_bucket(slot);
        let set = (slot.0 / self.ways) as usize;
        self.words[slot.0 as usize] = Word::FREE;
        self.chain[slot.0 as usize] = self.free[set];
        self.free[set] = (slot.0 % self.ways) as u16;
    }

    #[inline]
    pub(super) fn pin(&mut self, slot: Slot) {
        let word = &mut self.words[slot.0 as usize];
        assert!(u64::from(word.pins()) < MAX_PINS, "slot {} is in use {MAX_PINS} times", slot.0);
        word.0 += ONE_PIN;
    }

    #[inline]
    pub(super) fn unpin(&mut self, slot: Slot) {
        let word = &mut self.words[slot.0 as usize];
        assert!(word.pins() > 0, "slot {} is not in use", slot.0);
        word.0 -= ONE_PIN;
    }

    /// Resets the age after a use.
    #[inline]
    pub(super) fn reset_age(&mut self, slot: Slot) {
        self.words[slot.0 as usize].0 &= !AGE_MASK;
    }

    /// Increments the age, up to 3.
    pub(super) fn increment_age(&mut self, slot: Slot) {
        let word = &mut self.words[slot.0 as usize];
        if word.0 & AGE_MASK != AGE_MASK {
            word.0 += 1 << AGE_SHIFT;
        }
    }

    /// Returns whether the block was clean.
    #[inline]
    pub(super) fn set_dirty(&mut self, slot: Slot) -> bool {
        let word = &mut self.words[slot.0 as usize];
        let was_clean = !word.is_dirty();
        if word.is_cleaning() {
            word.0 |= REWRITTEN;
        }
        word.0 = (word.0 | DIRTY) & !AGE_MASK;
        was_clean
    }

    pub(super) fn set_clean(&mut self, slot: Slot) {
        self.words[slot.0 as usize].0 &= !DIRTY;
    }

    pub(super) fn begin_cleaning(&mut self, slot: Slot) {
        let word = &mut self.words[slot.0 as usize];
        debug_assert!(word.is_dirty() && !word.is_cleaning(), "slot {}", slot.0);
        word.0 |= CLEANING;
    }

    /// Returns whether the block was rewritten meanwhile.
    pub(super) fn end_cleaning(&mut self, slot: Slot) -> bool {
        let word = &mut self.words[slot.0 as usize];
        assert!(word.is_cleaning(), "slot {} is not being cleaned", slot.0);
        let rewritten = word.0 & REWRITTEN != 0;
        word.0 &= !(CLEANING | REWRITTEN);
        rewritten
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.words.capacity() * size_of::<Word>()
            + (self.chain.capacity() + self.heads.capacity() + self.free.capacity()) * size_of::<u16>()
    }

    /// Adds the block to its bucket and the slot's word.
    #[inline]
    fn add_to_bucket(&mut self, slot: Slot, block: u64) {
        debug_assert!(block < MAX_DISK_BLOCKS);
        let first = slot.0 / self.ways * self.ways;
        let bucket = (first + self.bucket(block)) as usize;
        self.words[slot.0 as usize] = Word(block);
        self.chain[slot.0 as usize] = self.heads[bucket];
        self.heads[bucket] = (slot.0 - first) as u16;
    }

    #[inline]
    fn remove_from_bucket(&mut self, slot: Slot) {
        let first = slot.0 / self.ways * self.ways;
        let way = (slot.0 - first) as u16;
        let bucket = (first + self.bucket(self.words[slot.0 as usize].0 & BLOCK_MASK)) as usize;
        let after = self.chain[slot.0 as usize];
        if self.heads[bucket] == way {
            self.heads[bucket] = after;
            return;
        }
        let mut before = self.heads[bucket];
        while self.chain[(first + u32::from(before)) as usize] != way {
            before = self.chain[(first + u32::from(before)) as usize];
        }
        self.chain[(first + u32::from(before)) as usize] = after;
    }

    #[inline]
    fn bucket(&self, block: u64) -> u32 {
        // Maps a hash evenly to any number of buckets.
        (((mix(block) & u64::from(u32::MAX)) * u64::from(self.ways)) >> 32) as u32
    }
}
