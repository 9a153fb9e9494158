//! Decisions of the block cache: the set of a disk block, its slot, the victim, and the next cleaning.
//!
//! [`Sets`] does no I/O and reads no clock. It receives events and returns decisions; the same events in the same order give the same
//! decisions. A volume calls it under a lock and does the I/O outside; a replay calls it in a loop.
//!
//! # States of a block
//! ```text
//! read ---hit--------> (use it)                    pin while I/O on the slot is in flight:
//!      \--fill-------> slot taken, fill it         a pinned block is neither evicted nor cleaned
//!      \--around-----> no slot; the disk answers
//! write as read, then mark_dirty where the mode keeps dirty blocks
//! next_cleaning -> blocks to copy to the disk; they can be read and written during the copy
//!                  end_cleaning: clean now, unless written again
//! ```
//!
//! # Contract
//! * A slot is assigned with its block already findable. The caller that fills it pins it first, in the same step, and makes readers
//!   wait until the data is there; `Sets` does not track that.
//! * If the fill fails, call [`forget`](Sets::forget) for the slot.
//! * An eviction takes effect immediately: the slot's old block is unmapped when the call returns. It was clean and unused.
//! * [`age`](Sets::age) is called about every second; times never go back.
//! * Cleaning is pulled: after each operation and each completed cleaning, call [`next_cleaning`](Sets::next_cleaning) until it returns
//!   `None`. After a failed cleaning, wait before the next call, which selects the same blocks.
//!
//! Memory: 17 bytes a block, and 66 a set ([`memory_bytes`](Sets::memory_bytes)).

mod again;
mod clean;
mod config;
mod idle;
#[cfg(test)]
mod model;
mod owed;
mod placement;
mod sequential;
mod stats;
mod table;
#[cfg(test)]
mod tests;

pub use clean::Cleaning;
pub use config::{ConfigError, Geometry, MAX_DISK_BLOCKS, Mode, Preset, SetsConfig, Tuning};
pub use placement::{PLACEMENT_VERSION, Placement};
pub use policy::Slot;
pub use policy::eviction::mid_point::{SetPolicy, Standing};
pub use sequential::Streams;
pub use stats::{Counters, SetOperations, SetView};
pub use table::Word;

use clean::{Cleaner, Wants};
use idle::IdleHand;
use owed::Owed;
use placement::Placer;
use policy::eviction::mid_point::SetQueues;
use table::Table;

/// The core of the cache.
pub struct Sets {
    geometry: Geometry,
    tuning: Tuning,
    placer: Placer,
    table: Table,
    queues: SetQueues,
    states: Vec<SetState>,
    cleaner: Cleaner,
    idle: IdleHand,
    owed: Owed,
    held: u64,
    dirty: u64,
    counters: Counters,
}

#[derive(Debug, Clone, Copy, Default)]
struct SetState {
    held: u16,
    dirty: u16,
    /// Blocks on their way to the disk.
    cleaning: u16,
    /// Cleanings under way that were begun for this set.
    cleanings: u16,
    wants: Wants,
    operations: SetOperations,
}

/// Whether a block that is not cached may come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admit {
    /// It may.
    Yes,
    /// Not: it belongs to a long stream.
    Sequential,
    /// Not: the client's blocks are not to be cached.
    Refused,
    /// Not: it might, but where it would be kept there is no room at the moment.
    NoRoom,
}

/// What to do about a block that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// It is in this slot.
    Hit(Slot),
    /// Read it from the disk and put it into this slot, which `evicted` just left.
    Fill {
        /// Where it goes.
        slot: Slot,
        /// The block that the slot held before.
        evicted: Option<u64>,
    },
    /// Read it from the disk; it is not cached.
    Around,
}

/// What to do about a block that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// It is in this slot: write there, and to the disk too in write-through unless the slot is dirty.
    Hit(Slot),
    /// It may have this slot, which `evicted` just left.
    Taken {
        /// Where it goes.
        slot: Slot,
        /// The block that the slot held before.
        evicted: Option<u64>,
    },
    /// Write it to the disk. If a slot is named it holds the old content: [`Sets::forget`] it.
    Around(Option<Slot>),
}

/// A slot for a block that has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocation {
    /// It was free.
    Free(Slot),
    /// This block left it.
    Evicted(Slot, u64),
    /// Nothing in the set is clean and unused, but something dirty can be cleaned or is being cleaned: the set is first in
    /// line for [`Sets::next_cleaning`].
    AllDirty,
    /// Everything in the set is in use.
    Busy,
}

impl Sets {
    /// An empty cache.
    ///
    /// # Errors
    /// If a setting is out of bounds.
    pub fn new(config: SetsConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let SetsConfig { geometry, tuning } = config;
        let Geometry { block_bytes, sets, ways, placement, placement_key } = geometry;
        Ok(Self {
            placer: Placer::new(placement, block_bytes, sets, ways, placement_key),
            table: Table::new(sets, ways),
            queues: SetQueues::new(sets, ways, tuning.policy),
            states: vec![SetState::default(); sets as usize],
            cleaner: Cleaner::new(),
            idle: IdleHand::new(),
            owed: Owed::default(),
            held: 0,
            dirty: 0,
            counters: Counters::default(),
            geometry,
            tuning,
        })
    }

    /// A block is read: counts, and decides.
    #[inline]
    pub fn read(&mut self, block: u64, admit: Admit) -> Read {
        self.counters.reads += 1;
        let set = self.set_of(block);
        if let Some(slot) = self.table.find(set, block) {
            self.counters.read_hits += 1;
            self.states[set as usize].operations.hits += 1;
            // A request that inserts nothing does not affect the eviction order: a backup reads every block once.
            if matches!(admit, Admit::Yes | Admit::NoRoom) {
                self.use_slot(slot);
            }
            return Read::Hit(slot);
        }
        self.states[set as usize].operations.read_misses += 1;
        let taken = if self.may_fill(admit) { self.take(set, block) } else { None };
        let Some((slot, evicted)) = taken else {
            self.counters.uncached_reads += 1;
            self.counters.uncached_sequential_reads += u64::from(admit == Admit::Sequential);
            self.counters.no_room += u64::from(self.was_kept_out(admit));
            return Read::Around;
        };
        self.counters.replacement += u64::from(evicted.is_some());
        Read::Fill { slot, evicted }
    }

    /// A block is written: counts, and decides. Where the mode keeps dirty blocks, or the block is dirty since another, the
    /// caller then calls [`mark_dirty`](Self::mark_dirty).
    #[inline]
    pub fn write(&mut self, block: u64, admit: Admit) -> Write {
        self.counters.writes += 1;
        let set = self.set_of(block);
        let found = self.table.find(set, block);
        // What is dirty since another mode is newer than the disk also where this write does not reach.
        let is_dirty = found.is_some_and(|slot| self.table.word(slot).is_dirty());
        if self.tuning.mode == Mode::WriteAround && !is_dirty {
            self.counters.uncached_writes += 1;
            self.counters.write_invalidates += u64::from(found.is_some());
            return Write::Around(found);
        }
        if let Some(slot) = found {
            self.counters.write_hits += 1;
            self.counters.dirty_write_hits += u64::from(is_dirty);
            self.hit(slot);
            return Write::Hit(slot);
        }
        self.states[set as usize].operations.write_misses += 1;
        let taken = if admit == Admit::Yes { self.take(set, block) } else { None };
        let Some((slot, evicted)) = taken else {
            self.counters.uncached_writes += 1;
            self.counters.uncached_sequential_writes += u64::from(admit == Admit::Sequential);
            return Write::Around(None);
        };
        self.counters.write_replacement += u64::from(evicted.is_some());
        Write::Taken { slot, evicted }
    }

    /// The slot of a block, if it is cached. Counts nothing.
    #[must_use]
    #[inline]
    pub fn find(&self, block: u64) -> Option<Slot> {
        self.table.find(self.set_of(block), block)
    }

    /// The block in `slot` was used.
    #[inline]
    pub fn hit(&mut self, slot: Slot) {
        let set = self.set_of_slot(slot);
        self.states[set as usize].operations.hits += 1;
        self.use_slot(slot);
    }

    #[inline]
    fn use_slot(&mut self, slot: Slot) {
        self.queues.hit(slot);
        self.table.rejuvenate(slot);
    }

    /// A slot for a block that is not cached. [`read`](Self::read) and [`write`](Self::write) do this by themselves.
    ///
    /// # Panics
    /// If the block is beyond [`MAX_DISK_BLOCKS`], and in debug builds if it is cached.
    #[inline]
    pub fn allocate(&mut self, block: u64) -> Allocation {
        let set = self.set_of(block);
        debug_assert!(self.table.find(set, block).is_none(), "block {block} is cached already");
        self.allocate_in(set, block)
    }

    /// Somebody begins to use the slot: until [`unpin`](Self::unpin) its block neither leaves nor is sent to the disk.
    #[inline]
    pub fn pin(&mut self, slot: Slot) {
        self.table.pin(slot);
    }

    /// Somebody ends to use the slot.
    #[inline]
    pub fn unpin(&mut self, slot: Slot) {
        self.table.unpin(slot);
    }

    /// The block in `slot` is newer than the disk's. Whether it was clean before.
    #[inline]
    pub fn mark_dirty(&mut self, slot: Slot) -> bool {
        let was_clean = self.table.set_dirty(slot);
        if was_clean {
            let set = self.set_of_slot(slot);
            self.dirty += 1;
            self.states[set as usize].dirty += 1;
            self.list_if_above_threshold(set);
        } else if self.tuning.mode.keeps_dirty() {
            self.owed.end(slot);
        }
        was_clean
    }

    /// The disk has what is in `slot`, by another way than cleaning: a write that went to both. Whether it was dirty.
    pub fn mark_clean(&mut self, slot: Slot) -> bool {
        let was_dirty = self.table.word(slot).is_dirty();
        if was_dirty {
            let set = self.set_of_slot(slot);
            self.table.set_clean(slot);
            self.owed.end(slot);
            self.dirty -= 1;
            self.states[set as usize].dirty -= 1;
        }
        was_dirty
    }

    /// Drops what is in `slot`, dirty or not: its content is void. `false`, and nothing done, while it is in use or on its
    /// way to the disk; try again when it is not.
    pub fn forget(&mut self, slot: Slot) -> bool {
        let word = self.table.word(slot);
        if word.pins() > 0 || word.is_cleaning() {
            return false;
        }
        assert!(word.block().is_some(), "slot {} is free", slot.0);
        self.mark_clean(slot);
        self.queues.remove(slot);
        self.table.release(slot);
        self.held -= 1;
        let set = self.set_of_slot(slot);
        self.states[set as usize].held -= 1;
        true
    }

    /// What `slot` holds.
    #[must_use]
    pub fn word(&self, slot: Slot) -> Word {
        self.table.word(slot)
    }

    /// All slots that hold a block, in order.
    pub fn held(&self) -> impl Iterator<Item = (Slot, Word)> + '_ {
        (0..self.geometry.slots())
            .map(|slot| (Slot(slot), self.table.word(Slot(slot))))
            .filter(|(_, word)| word.block().is_some())
    }

    /// The blocks of a set, the next to leave first.
    pub fn oldest_first(&self, set: u32) -> impl Iterator<Item = Slot> + '_ {
        self.queues.oldest_first(set)
    }

    /// How the block in `slot` stands with the policy, beside its place in the order of its set.
    #[must_use]
    pub fn standing(&self, slot: Slot) -> Standing {
        self.queues.standing(slot)
    }

    /// For recovery: the block in `slot` becomes the newest of its list and state. Call this for all blocks of a set in eviction order.
    pub fn reinstate(&mut self, slot: Slot, standing: Standing) {
        self.queues.reinstate(slot, standing);
    }

    /// The set of a block.
    #[must_use]
    #[inline]
    pub fn set_of(&self, block: u64) -> u32 {
        self.placer.set_of(block)
    }

    /// A set, for status and pictures.
    #[must_use]
    pub fn set(&self, set: u32) -> SetView {
        let SetState { held, dirty, cleaning, operations, .. } = self.states[set as usize];
        SetView { held: held.into(), dirty: dirty.into(), cleaning: cleaning.into(), operations }
    }

    /// Blocks cached.
    #[must_use]
    pub fn held_blocks(&self) -> u64 {
        self.held
    }

    /// Blocks that are newer than the disk's.
    #[must_use]
    pub fn dirty_blocks(&self) -> u64 {
        self.dirty
    }

    /// Blocks in the hot lists and in the warm ones.
    #[must_use]
    pub fn hot_and_warm_blocks(&self) -> (u64, u64) {
        self.queues.hot_and_warm()
    }

    /// How many blocks ever rose to a hot list, and how many fell from one.
    #[must_use]
    pub fn promotions_and_demotions(&self) -> (u64, u64) {
        self.queues.promotions_and_demotions()
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The counters, for the volume to add its own counts or to reset them.
    pub fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Resets all counters, those of the sets too.
    pub fn zero_counters(&mut self) {
        self.counters = Counters::default();
        self.queues.zero_promotions_and_demotions();
        for state in &mut self.states {
            state.operations = SetOperations::default();
        }
    }

    /// The shape of the cache.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The settings in force.
    #[must_use]
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// Changes settings. Dirty blocks stay dirty in any new mode; a mode without dirty blocks has all of them cleaned.
    ///
    /// # Errors
    /// If a setting is out of bounds; then nothing changes.
    pub fn set_tuning(&mut self, tuning: Tuning) -> Result<(), ConfigError> {
        tuning.check()?;
        if tuning.policy != self.tuning.policy {
            self.queues.set_policy(tuning.policy);
        }
        self.tuning = tuning;
        for set in 0..self.geometry.sets {
            self.list_if_above_threshold(set);
        }
        self.clean_what_the_mode_keeps_not();
        Ok(())
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
            + self.queues.memory_bytes()
            + self.states.capacity() * size_of::<SetState>()
            + self.cleaner.memory_bytes()
            + self.idle.memory_bytes()
            + self.owed.memory_bytes()
    }

    /// Whether a block that is read may come in.
    #[inline]
    fn may_fill(&self, admit: Admit) -> bool {
        admit == Admit::Yes && self.tuning.mode != Mode::WriteOnly
    }

    /// Whether it might, had there been room.
    #[inline]
    fn was_kept_out(&self, admit: Admit) -> bool {
        admit == Admit::NoRoom && self.tuning.mode != Mode::WriteOnly
    }

    #[inline]
    fn take(&mut self, set: u32, block: u64) -> Option<(Slot, Option<u64>)> {
        match self.allocate_in(set, block) {
            Allocation::Free(slot) => Some((slot, None)),
            Allocation::Evicted(slot, evicted) => Some((slot, Some(evicted))),
            Allocation::AllDirty | Allocation::Busy => None,
        }
    }

    #[inline]
    fn allocate_in(&mut self, set: u32, block: u64) -> Allocation {
        assert!(block < MAX_DISK_BLOCKS, "block {block} is beyond the largest disk");
        if let Some(slot) = self.table.take_free(set, block) {
            self.queues.insert(slot);
            self.held += 1;
            self.states[set as usize].held += 1;
            return Allocation::Free(slot);
        }
        let Some(victim) = self.victim(set) else { return self.no_room(set) };
        let evicted = self.table.word(victim).block().expect("only held slots are in the queues");
        self.queues.remove(victim);
        self.table.replace(victim, block);
        self.queues.insert(victim);
        Allocation::Evicted(victim, evicted)
    }

    /// The first from the old end that is clean and unused. Dirty ones near the end that it passes over ask for cleaning.
    #[inline]
    fn victim(&mut self, set: u32) -> Option<Slot> {
        let mut passed = 0_u32;
        let mut dirty_near_end = false;
        let mut found = None;
        for slot in self.queues.oldest_first(set) {
            let word = self.table.word(slot);
            if word.may_leave() {
                found = Some(slot);
                break;
            }
            dirty_near_end |= passed < self.tuning.lazy_depth && word.may_clean();
            passed += 1;
        }
        if dirty_near_end {
            self.list(set, Wants::CLEAN_TAIL);
        }
        if passed > 0 && found.is_some() && self.tuning.policy == SetPolicy::Fifo {
            self.send_round(set, passed);
        }
        found
    }

    /// FIFO: those passed over go round again.
    fn send_round(&mut self, set: u32, passed: u32) {
        for _ in 0..passed {
            let slot = self.queues.oldest_first(set).next().expect("as many as were passed");
            self.queues.pass_over(slot);
        }
    }

    #[cold]
    fn no_room(&mut self, set: u32) -> Allocation {
        self.counters.no_room += 1;
        if self.states[set as usize].cleaning > 0 {
            return Allocation::AllDirty;
        }
        if !self.queues.oldest_first(set).any(|slot| self.table.word(slot).may_clean()) {
            return Allocation::Busy;
        }
        self.list(set, Wants::ROOM);
        Allocation::AllDirty
    }

    #[inline]
    fn set_of_slot(&self, slot: Slot) -> u32 {
        slot.0 / self.geometry.ways
    }
}
