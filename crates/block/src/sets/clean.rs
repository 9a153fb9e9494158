//! Selects the next blocks to destage, and the neighbours that are written with them.
//!
//! Sets that need cleaning wait in two queues: first sets without a slot for a block, then sets above their dirty threshold or with a
//! dirty block next in eviction order. The dirty block that is first in a set's eviction order is chosen, together with all adjacent
//! dirty blocks on the disk, from any set: one head movement cleans them all. Flashcache merged within a set only.
//!
//! Flashcache 1 and 2 limited dirty blocks by a threshold; version 3 cleaned only blocks near eviction, so that writes accumulate
//! longer. Both are available, see [`Tuning`](super::Tuning).

use std::collections::{HashSet, VecDeque};

use policy::Slot;

use super::Sets;

/// A run of adjacent blocks to write to the disk with one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaning {
    /// First block of the run.
    pub first_block: u64,
    /// The slots of the blocks, in disk order.
    pub slots: Vec<Slot>,
    /// The set whose limit this run counts against.
    set: u32,
    /// Index of the slot for which the run was begun.
    chosen: usize,
    reason: Reason,
}

/// Reason a run is cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// Its block is in the drain.
    Drain,
    /// Its set needs cleaning.
    Needed(CleaningNeeds),
    /// Its block is idle.
    Idle,
}

impl Cleaning {
    /// The set for which the run was begun.
    #[must_use]
    pub fn set(&self) -> u32 {
        self.set
    }
}

/// Why a set needs cleaning, and in which queue it is; a bit set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CleaningNeeds(u8);

impl CleaningNeeds {
    /// A block found no slot.
    pub(super) const SLOTS: Self = Self(1);
    /// More blocks are dirty than the threshold permits.
    pub(super) const OVER_THRESHOLD: Self = Self(2);
    /// A dirty block is near the end of the eviction order.
    pub(super) const DIRTY_TAIL: Self = Self(4);
    const ANY: Self = Self(7);
    const IN_URGENT_QUEUE: Self = Self(8);
    const IN_QUEUE: Self = Self(16);

    fn has(self, need: Self) -> bool {
        self.0 & need.0 != 0
    }

    fn add(&mut self, need: Self) {
        self.0 |= need.0;
    }

    /// Clears a bit. Returns whether it was set.
    fn take(&mut self, need: Self) -> bool {
        let was = self.has(need);
        self.0 &= !need.0;
        was
    }
}

pub(super) struct Cleaner {
    /// Sets without a slot for a waiting block.
    urgent: VecDeque<u32>,
    /// Sets above their threshold or with a dirty block near the end.
    listed: VecDeque<u32>,
    in_flight: u32,
    /// Blocks that the disk refused, which are not retried before the next second.
    refused: HashSet<Slot>,
    /// Limit of a run in blocks, independent of the tuning.
    max_run_blocks: u32,
}

impl Cleaner {
    pub(super) fn new() -> Self {
        Self {
            urgent: VecDeque::new(),
            listed: VecDeque::new(),
            in_flight: 0,
            refused: HashSet::new(),
            max_run_blocks: u32::MAX,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        (self.urgent.capacity() + self.listed.capacity() + self.refused.capacity()) * size_of::<u32>()
    }
}

impl Sets {
    /// The next run to copy to the disk, if any is needed and the limits permit. Its blocks stay readable and writable until
    /// [`end_cleaning`](Self::end_cleaning).
    pub fn next_cleaning(&mut self) -> Option<Cleaning> {
        self.next_cleaning_with(|_, _| true)
    }

    /// As [`next_cleaning`](Self::next_cleaning), but joins an adjacent dirty block only if `joins` returns true for the slot that is
    /// cleaned and the adjacent one.
    pub fn next_cleaning_with(&mut self, joins: impl Fn(Slot, Slot) -> bool) -> Option<Cleaning> {
        if self.cleaner.in_flight >= self.tuning.cleanings_total {
            return None;
        }
        // The two queues alternate, so that neither starves.
        if self.drain.is_its_turn()
            && let Some(slot) = self.drain.next(&self.table)
        {
            return Some(self.begin_cleaning(slot, Reason::Drain, joins));
        }
        while let Some(set) = self.next_queued_set() {
            if let Some((slot, need)) = self.next_need_of(set) {
                let cleaning = self.begin_cleaning(slot, Reason::Needed(need), joins);
                self.enqueue(set);
                return Some(cleaning);
            }
        }
        if let Some(slot) = self.drain.next(&self.table) {
            return Some(self.begin_cleaning(slot, Reason::Drain, joins));
        }
        let slot = self.next_idle()?;
        self.deduct_idle_cleanings(1);
        Some(self.begin_cleaning(slot, Reason::Idle, joins))
    }

    /// Ends a run. If `done`, the disk has its blocks, and those not rewritten meanwhile are clean. Returns their number.
    pub fn end_cleaning(&mut self, cleaning: &Cleaning, done: bool) -> u32 {
        self.end(cleaning, |_| done)
    }

    /// Ends a run. The disk has only those blocks for which `is_done` returns true. The others leave the drain:
    /// the caller reports the error to the clients that wait for it.
    pub fn end_cleaning_of(&mut self, cleaning: &Cleaning, is_done: impl Fn(Slot) -> bool) -> u32 {
        cleaning.slots.iter().for_each(|&slot| self.drain.end(slot));
        self.cleaner.refused.extend(cleaning.slots.iter().copied().filter(|&slot| !is_done(slot)));
        self.end(cleaning, is_done)
    }

    fn end(&mut self, cleaning: &Cleaning, is_done: impl Fn(Slot) -> bool) -> u32 {
        let (mut cleaned, mut all_done) = (0, 0);
        for (number, &slot) in cleaning.slots.iter().enumerate() {
            let done = is_done(slot);
            let set = self.set_of_slot(slot) as usize;
            let rewritten = self.table.end_cleaning(slot);
            self.states[set].cleaning -= 1;
            if done {
                self.states[set].operations.cleaned += 1;
                self.drain.end(slot);
                all_done += 1;
                self.counters.front_merge += u64::from(number < cleaning.chosen);
                self.counters.back_merge += u64::from(number > cleaning.chosen);
            }
            if done && !rewritten {
                self.mark_clean(slot);
                cleaned += 1;
            }
            self.queue_if_above_threshold(set as u32);
        }
        self.counters.cleanings += all_done;
        self.counters.fallow_cleanings += if cleaning.reason == Reason::Idle { all_done } else { 0 };
        if all_done == 0 {
            self.requeue(cleaning);
        }
        self.states[cleaning.set as usize].cleanings -= 1;
        self.cleaner.in_flight -= 1;
        self.enqueue(cleaning.set);
        cleaned
    }

    /// Requeues a failed cleaning. Blocks that the disk refused are not retried immediately.
    fn requeue(&mut self, cleaning: &Cleaning) {
        let slot = cleaning.slots[cleaning.chosen];
        match cleaning.reason {
            Reason::Needed(need) => self.states[cleaning.set as usize].needs.add(need),
            Reason::Idle if !self.cleaner.refused.contains(&slot) => self.requeue_idle(slot),
            Reason::Idle | Reason::Drain => {}
        }
    }

    /// Starts a drain: all blocks that are dirty now are cleaned regardless of thresholds. A block leaves the drain when it is clean or
    /// rewritten.
    pub fn start_drain(&mut self) {
        self.drain.start(&self.table, self.geometry.slots(), self.dirty);
    }

    /// Stops the drain: only the thresholds count again.
    pub fn stop_drain(&mut self) {
        self.drain.stop();
    }

    /// Blocks left in the drain.
    #[must_use]
    pub fn blocks_to_drain(&self) -> u64 {
        self.drain.left()
    }

    /// Whether the block in `slot` is in the drain.
    #[must_use]
    pub fn is_in_drain(&self, slot: Slot) -> bool {
        self.drain.has(slot)
    }

    /// In a mode without dirty blocks, [drains](Self::start_drain) those left by an earlier mode, again if the disk refused
    /// some.
    pub(super) fn drain_if_mode_keeps_none_dirty(&mut self) {
        if self.dirty > 0 && !self.tuning.mode.keeps_dirty() && self.drain.left() == 0 {
            self.start_drain();
        }
    }

    /// Permits another attempt for blocks that the disk refused.
    pub(super) fn retry_refused(&mut self) {
        for slot in std::mem::take(&mut self.cleaner.refused) {
            let set = self.set_of_slot(slot);
            self.queue_if_above_threshold(set);
            self.need_cleaning(set, CleaningNeeds::DIRTY_TAIL);
            self.queue_if_idle(slot);
        }
    }

    /// Limits runs to `blocks`, independent of the [tuning](super::Tuning::clean_run_blocks).
    pub fn limit_runs(&mut self, blocks: u32) {
        self.cleaner.max_run_blocks = blocks.max(1);
    }

    /// Requests slots for `blocks` waiting blocks of a set. The set is queued first if neither its clean blocks nor those being cleaned
    /// suffice and another run is permitted. Returns whether it is queued.
    pub fn request_slots(&mut self, set: u32, blocks: u32) -> bool {
        let state = &self.states[set as usize];
        let (coming, may_have_another) =
            (state.cleaning.into(), state.cleanings < self.tuning.cleanings_per_set);
        let is_requested = may_have_another
            && !self.has_slots_for(set, blocks.saturating_sub(coming))
            && self.oldest_to_clean(set, usize::MAX).is_some();
        if is_requested {
            self.need_cleaning(set, CleaningNeeds::SLOTS);
        }
        is_requested
    }

    /// Removes all requests for slots; waiting writes repeat theirs with [`request_slots`](Self::request_slots).
    pub fn clear_slot_requests(&mut self) {
        for set in std::mem::take(&mut self.cleaner.urgent) {
            let needs = &mut self.states[set as usize].needs;
            needs.take(CleaningNeeds::IN_URGENT_QUEUE);
            needs.take(CleaningNeeds::SLOTS);
            self.enqueue(set);
        }
    }

    /// Whether the disk refused all dirty blocks of a set, so that none can be cleaned before a retry.
    #[must_use]
    pub fn cannot_clean(&self, set: u32) -> bool {
        let mut slots = self.queues.oldest_first(set);
        self.oldest_to_clean(set, usize::MAX).is_none()
            && slots.any(|slot| self.cleaner.refused.contains(&slot))
    }

    /// Whether a set has `blocks` slots that are free or can be evicted.
    #[must_use]
    pub fn has_slots_for(&self, set: u32, blocks: u32) -> bool {
        let free = self.geometry.ways - u32::from(self.states[set as usize].held);
        let to_take = blocks.saturating_sub(free) as usize;
        let can_evict = self.queues.oldest_first(set).filter(|&slot| self.table.word(slot).can_evict());
        to_take == 0 || can_evict.take(to_take).count() == to_take
    }

    /// Runs in flight.
    #[must_use]
    pub fn cleanings_in_flight(&self) -> u32 {
        self.cleaner.in_flight
    }

    /// Dirty blocks permitted per set.
    #[must_use]
    pub fn dirty_limit(&self) -> u32 {
        self.geometry.ways * u32::from(self.tuning.dirty_percent) / 100
    }

    #[inline]
    pub(super) fn queue_if_above_threshold(&mut self, set: u32) {
        if self.is_above_threshold(set) {
            self.need_cleaning(set, CleaningNeeds::OVER_THRESHOLD);
        }
    }

    /// Records why a set needs cleaning, and queues it unless it is queued.
    pub(super) fn need_cleaning(&mut self, set: u32, need: CleaningNeeds) {
        self.states[set as usize].needs.add(need);
        self.enqueue(set);
    }

    #[inline]
    fn is_above_threshold(&self, set: u32) -> bool {
        let state = &self.states[set as usize];
        u32::from(state.dirty - state.cleaning) > self.dirty_limit()
    }

    fn enqueue(&mut self, set: u32) {
        let needs = &mut self.states[set as usize].needs;
        if needs.has(CleaningNeeds::SLOTS) && !needs.has(CleaningNeeds::IN_URGENT_QUEUE) {
            needs.add(CleaningNeeds::IN_URGENT_QUEUE);
            self.cleaner.urgent.push_back(set);
        } else if needs.has(CleaningNeeds::ANY)
            && !needs.has(CleaningNeeds(CleaningNeeds::IN_QUEUE.0 | CleaningNeeds::IN_URGENT_QUEUE.0))
        {
            needs.add(CleaningNeeds::IN_QUEUE);
            self.cleaner.listed.push_back(set);
        }
    }

    /// The next queued set that may have another run. A set at its limit is removed and queued again when one of its runs
    /// ends.
    fn next_queued_set(&mut self) -> Option<u32> {
        loop {
            let (set, line) = match self.cleaner.urgent.pop_front() {
                Some(set) => (set, CleaningNeeds::IN_URGENT_QUEUE),
                None => (self.cleaner.listed.pop_front()?, CleaningNeeds::IN_QUEUE),
            };
            let state = &mut self.states[set as usize];
            state.needs.take(line);
            if state.cleanings < self.tuning.cleanings_per_set {
                return Some(set);
            }
        }
    }

    /// The block to clean for the most urgent need of a set, and that need. Needs that no longer apply are
    /// cleared.
    fn next_need_of(&mut self, set: u32) -> Option<(Slot, CleaningNeeds)> {
        let needs_slots = self.states[set as usize].needs.take(CleaningNeeds::SLOTS);
        let above = self.is_above_threshold(set);
        if needs_slots || above {
            let oldest = self.oldest_to_clean(set, usize::MAX);
            // This run may bring the set to its threshold: checked again at its next turn.
            if !above || oldest.is_none() {
                self.states[set as usize].needs.take(CleaningNeeds::OVER_THRESHOLD);
            }
            return oldest.map(|slot| {
                (slot, if needs_slots { CleaningNeeds::SLOTS } else { CleaningNeeds::OVER_THRESHOLD })
            });
        }
        self.states[set as usize].needs.take(CleaningNeeds::OVER_THRESHOLD);
        if self.states[set as usize].needs.take(CleaningNeeds::DIRTY_TAIL) {
            let oldest = self.oldest_to_clean(set, self.tuning.lazy_depth as usize);
            return oldest.map(|slot| (slot, CleaningNeeds::DIRTY_TAIL));
        }
        None
    }

    fn oldest_to_clean(&self, set: u32, depth: usize) -> Option<Slot> {
        self.queues.oldest_first(set).take(depth).find(|&slot| self.may_try(slot))
    }

    /// Whether the block is dirty and unused, and was not just refused by the disk.
    fn may_try(&self, slot: Slot) -> bool {
        let refused = &self.cleaner.refused;
        self.table.word(slot).can_clean() && (refused.is_empty() || !refused.contains(&slot))
    }

    /// Begins a run: the slot's block and adjacent dirty unused blocks that may join.
    fn begin_cleaning(&mut self, slot: Slot, reason: Reason, joins: impl Fn(Slot, Slot) -> bool) -> Cleaning {
        let block = self.table.word(slot).block().expect("only held slots are dirty");
        let most = self.tuning.clean_run_blocks.min(self.cleaner.max_run_blocks) as usize;
        let joining = |block: u64| self.dirty_and_unused(block).filter(|&neighbour| joins(slot, neighbour));
        let before: Vec<Slot> = (0..block).rev().map_while(joining).take(most - 1).collect();
        let rest = most - 1 - before.len();
        let after = (block + 1..).map_while(joining).take(rest);
        let slots: Vec<Slot> = before.iter().rev().copied().chain([slot]).chain(after).collect();
        for &slot in &slots {
            self.table.begin_cleaning(slot);
            let set = self.set_of_slot(slot) as usize;
            self.states[set].cleaning += 1;
        }
        let set = self.set_of_slot(slot);
        self.states[set as usize].cleanings += 1;
        self.cleaner.in_flight += 1;
        let chosen = before.len();
        Cleaning { first_block: block - chosen as u64, slots, set, chosen, reason }
    }

    fn dirty_and_unused(&self, block: u64) -> Option<Slot> {
        self.find(block).filter(|&slot| self.may_try(slot))
    }
}
