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

mod clean;
mod config;
mod drain;
mod idle;
#[cfg(test)]
mod model;
mod placement;
mod sequential;
mod stats;
mod table;
#[cfg(test)]
mod tests;
mod undo;

pub use clean::Cleaning;
pub use config::{ConfigError, Geometry, MAX_DISK_BLOCKS, Mode, Preset, SetsConfig, Tuning};
pub use placement::{PLACEMENT_VERSION, Placement};
pub use policy::Slot;
pub use policy::eviction::mid_point::{PolicyState, SetPolicy};
pub use sequential::Streams;
pub use stats::{Counters, SetOperations, SetView};
pub use table::Word;

use clean::{Cleaner, CleaningNeeds};
use drain::Drain;
use idle::IdleHand;
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
    drain: Drain,
    held: u64,
    dirty: u64,
    counters: Counters,
}

#[derive(Debug, Clone, Copy, Default)]
struct SetState {
    held: u16,
    dirty: u16,
    /// Blocks being cleaned.
    cleaning: u16,
    /// Runs in flight that were begun for this set.
    cleanings: u16,
    needs: CleaningNeeds,
    operations: SetOperations,
}

/// Whether a block that is not cached may be inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admit {
    /// It is inserted.
    Yes,
    /// It is not inserted, because it belongs to a long sequential stream.
    Sequential,
    /// It is not inserted, because the client does not use the cache.
    Refused,
    /// It is not inserted, because there is no free page or no journal space for it.
    NoSpace,
    /// A long sequential write goes to the disk, and a clean cached copy is dropped. Used where cleaning would have to free slots for
    /// it: the disk accepts the write as fast as it could be cleaned later.
    Bypass,
}

/// How to read a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// From this slot.
    Hit(Slot),
    /// From the disk; then fill this slot.
    Fill {
        /// The allocated slot.
        slot: Slot,
        /// The evicted block that the slot held.
        evicted: Option<u64>,
    },
    /// From the disk, without caching it.
    Around,
}

/// How to write a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// To this slot; in write-through also to the disk, unless the slot is dirty.
    Hit(Slot),
    /// To this new slot.
    Taken {
        /// The allocated slot.
        slot: Slot,
        /// The evicted block that the slot held.
        evicted: Option<u64>,
    },
    /// To the disk. A named slot holds outdated data: call [`Sets::forget`] for it.
    Around(Option<Slot>),
}

/// The result of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocation {
    /// A slot that was free.
    Free(Slot),
    /// A slot and the block that was evicted from it.
    Evicted(Slot, u64),
    /// No slot: none is clean and unused, but some are being or can be cleaned. The set is now first in the queue of
    /// [`Sets::next_cleaning`].
    AllDirty,
    /// No slot: all are in use.
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
            drain: Drain::default(),
            held: 0,
            dirty: 0,
            counters: Counters::default(),
            geometry,
            tuning,
        })
    }

    /// Decides how to read a block, and counts it.
    #[inline]
    pub fn read(&mut self, block: u64, admit: Admit) -> Read {
        self.counters.reads += 1;
        let set = self.set_of(block);
        if let Some(slot) = self.table.find(set, block) {
            self.counters.read_hits += 1;
            self.states[set as usize].operations.hits += 1;
            // A request that inserts nothing does not affect the eviction order: a backup reads each block once.
            if matches!(admit, Admit::Yes | Admit::NoSpace) {
                self.use_slot(slot);
            }
            return Read::Hit(slot);
        }
        self.states[set as usize].operations.read_misses += 1;
        let taken = if self.may_fill(admit) { self.take(set, block) } else { None };
        let Some((slot, evicted)) = taken else {
            self.counters.uncached_reads += 1;
            self.counters.uncached_sequential_reads += u64::from(admit == Admit::Sequential);
            self.counters.no_room += u64::from(self.was_rejected_for_space(admit));
            return Read::Around;
        };
        self.counters.replacement += u64::from(evicted.is_some());
        Read::Fill { slot, evicted }
    }

    /// Decides how to write a block, and counts it. The caller then calls [`mark_dirty`](Self::mark_dirty) if the mode keeps dirty blocks
    /// or the block was already dirty.
    #[inline]
    pub fn write(&mut self, block: u64, admit: Admit) -> Write {
        self.counters.writes += 1;
        let set = self.set_of(block);
        let found = self.table.find(set, block);
        // A block that is dirty from an earlier mode is newer than the disk in its other sectors too.
        let is_dirty = found.is_some_and(|slot| self.table.word(slot).is_dirty());
        if (self.tuning.mode == Mode::WriteAround || admit == Admit::Bypass) && !is_dirty {
            self.counters.uncached_writes += 1;
            self.counters.uncached_sequential_writes += u64::from(admit == Admit::Bypass);
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

    /// The slot of a block, if cached. Does not count as use.
    #[must_use]
    #[inline]
    pub fn find(&self, block: u64) -> Option<Slot> {
        self.table.find(self.set_of(block), block)
    }

    /// Counts a use of the block in `slot`.
    #[inline]
    pub fn hit(&mut self, slot: Slot) {
        let set = self.set_of_slot(slot);
        self.states[set as usize].operations.hits += 1;
        self.use_slot(slot);
    }

    #[inline]
    fn use_slot(&mut self, slot: Slot) {
        self.queues.hit(slot);
        self.table.reset_age(slot);
    }

    /// Allocates a slot for a block that is not cached, as [`read`](Self::read) and [`write`](Self::write) do.
    ///
    /// # Panics
    /// If the block is beyond [`MAX_DISK_BLOCKS`]; in debug builds also if it is cached.
    #[inline]
    pub fn allocate(&mut self, block: u64) -> Allocation {
        let set = self.set_of(block);
        debug_assert!(self.table.find(set, block).is_none(), "block {block} is cached already");
        self.allocate_in(set, block)
    }

    /// Pins the slot: until [`unpin`](Self::unpin) its block is neither evicted nor cleaned.
    #[inline]
    pub fn pin(&mut self, slot: Slot) {
        self.table.pin(slot);
    }

    /// Removes one pin.
    #[inline]
    pub fn unpin(&mut self, slot: Slot) {
        self.table.unpin(slot);
    }

    /// Marks the block in `slot` as newer than the disk. Returns whether it was clean.
    #[inline]
    pub fn mark_dirty(&mut self, slot: Slot) -> bool {
        let was_clean = self.table.set_dirty(slot);
        if was_clean {
            let set = self.set_of_slot(slot);
            self.dirty += 1;
            self.states[set as usize].dirty += 1;
            self.queue_if_above_threshold(set);
        } else if self.tuning.mode.keeps_dirty() {
            self.drain.end(slot);
        }
        was_clean
    }

    /// Marks the block in `slot` as clean other than by cleaning, for example after a write to both. Returns whether it was dirty.
    pub fn mark_clean(&mut self, slot: Slot) -> bool {
        let was_dirty = self.table.word(slot).is_dirty();
        if was_dirty {
            let set = self.set_of_slot(slot);
            self.table.set_clean(slot);
            self.drain.end(slot);
            self.dirty -= 1;
            self.states[set as usize].dirty -= 1;
        }
        was_dirty
    }

    /// Drops the block in `slot`, dirty or clean. Returns `false` and does nothing if it is in use or being cleaned: retry
    /// later.
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

    /// The block and state of `slot`.
    #[must_use]
    pub fn word(&self, slot: Slot) -> Word {
        self.table.word(slot)
    }

    /// All slots in use, in order.
    pub fn held(&self) -> impl Iterator<Item = (Slot, Word)> + '_ {
        (0..self.geometry.slots())
            .map(|slot| (Slot(slot), self.table.word(Slot(slot))))
            .filter(|(_, word)| word.block().is_some())
    }

    /// The slots of a set in eviction order.
    pub fn oldest_first(&self, set: u32) -> impl Iterator<Item = Slot> + '_ {
        self.queues.oldest_first(set)
    }

    /// The policy state of the block in `slot`, apart from its position in the eviction order.
    #[must_use]
    pub fn policy_state(&self, slot: Slot) -> PolicyState {
        self.queues.policy_state(slot)
    }

    /// Restores the policy state in recovery: the block becomes the newest of its list. Call this for a set's blocks in eviction order.
    pub fn restore_policy_state(&mut self, slot: Slot, policy_state: PolicyState) {
        self.queues.restore(slot, policy_state);
    }

    /// The set of a block.
    #[must_use]
    #[inline]
    pub fn set_of(&self, block: u64) -> u32 {
        self.placer.set_of(block)
    }

    /// State and counters of a set, for status displays.
    #[must_use]
    pub fn set(&self, set: u32) -> SetView {
        let SetState { held, dirty, cleaning, operations, .. } = self.states[set as usize];
        SetView { held: held.into(), dirty: dirty.into(), cleaning: cleaning.into(), operations }
    }

    /// Number of cached blocks.
    #[must_use]
    pub fn held_blocks(&self) -> u64 {
        self.held
    }

    /// Number of dirty blocks.
    #[must_use]
    pub fn dirty_blocks(&self) -> u64 {
        self.dirty
    }

    /// Number of blocks in hot lists, and number of all other blocks.
    #[must_use]
    pub fn hot_and_warm_blocks(&self) -> (u64, u64) {
        self.queues.hot_and_warm()
    }

    /// Total number of promotions to hot lists, and of demotions from them.
    #[must_use]
    pub fn promotions_and_demotions(&self) -> (u64, u64) {
        self.queues.promotions_and_demotions()
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The counters; the volume adds its own and resets them.
    pub fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Resets all counters, including those per set.
    pub fn zero_counters(&mut self) {
        self.counters = Counters::default();
        self.queues.zero_promotions_and_demotions();
        for state in &mut self.states {
            state.operations = SetOperations::default();
        }
    }

    /// The geometry of the cache.
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
            self.queue_if_above_threshold(set);
        }
        self.drain_if_mode_keeps_none_dirty();
        Ok(())
    }

    /// Memory use in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
            + self.queues.memory_bytes()
            + self.states.capacity() * size_of::<SetState>()
            + self.cleaner.memory_bytes()
            + self.idle.memory_bytes()
            + self.drain.memory_bytes()
    }

    /// Whether a block is inserted on a read miss.
    #[inline]
    fn may_fill(&self, admit: Admit) -> bool {
        admit == Admit::Yes && self.tuning.mode != Mode::WriteOnly
    }

    /// Whether a block is not inserted only because there is no space for it.
    #[inline]
    fn was_rejected_for_space(&self, admit: Admit) -> bool {
        admit == Admit::NoSpace && self.tuning.mode != Mode::WriteOnly
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
        let Some(victim) = self.victim(set) else { return self.no_slot(set) };
        let evicted = self.table.word(victim).block().expect("only held slots are in the queues");
        self.queues.remove(victim);
        self.table.replace(victim, block);
        self.queues.insert(victim);
        Allocation::Evicted(victim, evicted)
    }

    /// The first block in eviction order that is clean and unused. Requests cleaning for dirty blocks near the end.
    #[inline]
    fn victim(&mut self, set: u32) -> Option<Slot> {
        let mut passed = 0_u32;
        let mut dirty_near_end = false;
        let mut found = None;
        for slot in self.queues.oldest_first(set) {
            let word = self.table.word(slot);
            if word.can_evict() {
                found = Some(slot);
                break;
            }
            dirty_near_end |= passed < self.tuning.lazy_depth && word.can_clean();
            passed += 1;
        }
        if dirty_near_end {
            self.need_cleaning(set, CleaningNeeds::DIRTY_TAIL);
        }
        if passed > 0 && found.is_some() && self.tuning.policy == SetPolicy::Fifo {
            self.requeue_passed(set, passed);
        }
        found
    }

    /// FIFO: moves the blocks that were passed over to the new end.
    fn requeue_passed(&mut self, set: u32, passed: u32) {
        for _ in 0..passed {
            let slot = self.queues.oldest_first(set).next().expect("as many as were passed");
            self.queues.pass_over(slot);
        }
    }

    #[cold]
    fn no_slot(&mut self, set: u32) -> Allocation {
        self.counters.no_room += 1;
        if self.states[set as usize].cleaning > 0 {
            return Allocation::AllDirty;
        }
        if !self.queues.oldest_first(set).any(|slot| self.table.word(slot).can_clean()) {
            return Allocation::Busy;
        }
        self.need_cleaning(set, CleaningNeeds::SLOTS);
        Allocation::AllDirty
    }

    #[inline]
    fn set_of_slot(&self, slot: Slot) -> u32 {
        slot.0 / self.geometry.ways
    }
}
