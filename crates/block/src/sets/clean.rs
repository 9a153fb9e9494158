//! Selects the next blocks to destage, and the neighbours that are written with them.
//!
//! Sets that need cleaning wait in two queues: first sets without room for a block, then sets above their dirty threshold or with a
//! dirty block next in eviction order. The dirty block that is first in a set's eviction order is chosen, together with all adjacent
//! dirty blocks on the disk, from any set: one head movement cleans them all. Flashcache merged within a set only.
//!
//! Flashcache 1 and 2 limited dirty blocks by a threshold; version 3 cleaned only blocks near eviction, so that writes accumulate
//! longer. Both are available, see [`Tuning`](super::Tuning).
//! writes gather longer. Both are here, as [`Tuning`](super::Tuning) says.

use std::collections::{HashSet, VecDeque};

use policy::Slot;

use super::Sets;

/// Blocks that lie side by side on the disk, to be written there with one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaning {
    /// The first block.
    pub first_block: u64,
    /// The slot of each block, in the order of the disk.
    pub slots: Vec<Slot>,
    /// The set that this counts against.
    set: u32,
    /// Which of the slots it was begun for, and why.
    chosen: usize,
    why: Why,
}

/// What a cleaning is begun for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// Somebody waits for everything to be clean.
    Owed,
    /// The set wants it.
    Wanted(Wants),
    /// Nobody has used the block for long.
    Idle,
}

impl Cleaning {
    /// The set for which it was begun.
    #[must_use]
    pub fn set(&self) -> u32 {
        self.set
    }
}

/// Why a set wants cleaning, and in which line it stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Wants(u8);

impl Wants {
    /// A block found no room.
    pub(super) const ROOM: Self = Self(1);
    /// More is dirty than the threshold allows.
    pub(super) const FEWER_DIRTY: Self = Self(2);
    /// A dirty block is next to leave.
    pub(super) const CLEAN_TAIL: Self = Self(4);
    const ANY: Self = Self(7);
    const STANDS_FIRST: Self = Self(8);
    const STANDS: Self = Self(16);

    fn has(self, want: Self) -> bool {
        self.0 & want.0 != 0
    }

    fn add(&mut self, want: Self) {
        self.0 |= want.0;
    }

    /// Whether it was there.
    fn take(&mut self, want: Self) -> bool {
        let was = self.has(want);
        self.0 &= !want.0;
        was
    }
}

pub(super) struct Cleaner {
    /// Sets without room.
    urgent: VecDeque<u32>,
    /// Sets above their threshold or with a dirty tail.
    listed: VecDeque<u32>,
    under_way: u32,
    /// Blocks that the disk has not taken, not to be tried again before a second is over.
    refused: HashSet<Slot>,
    /// Limit of a run in blocks, independent of the tuning.
    most_run_blocks: u32,
}

impl Cleaner {
    pub(super) fn new() -> Self {
        Self {
            urgent: VecDeque::new(),
            listed: VecDeque::new(),
            under_way: 0,
            refused: HashSet::new(),
            most_run_blocks: u32::MAX,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        (self.urgent.capacity() + self.listed.capacity() + self.refused.capacity()) * size_of::<u32>()
    }
}

impl Sets {
    /// The next blocks to copy to the disk, if some should be and the limits allow. They stay readable and writable; end
    /// with [`end_cleaning`](Self::end_cleaning).
    pub fn next_cleaning(&mut self) -> Option<Cleaning> {
        self.next_cleaning_with(|_, _| true)
    }

    /// The same, where of the dirty neighbours of the block that is to be cleaned (the slot named first) only those go with it that
    /// `joins` says.
    pub fn next_cleaning_with(&mut self, joins: impl Fn(Slot, Slot) -> bool) -> Option<Cleaning> {
        if self.cleaner.under_way >= self.tuning.cleanings_total {
            return None;
        }
        // The two queues alternate, so that neither starves.
        if self.owed.is_its_turn()
            && let Some(slot) = self.next_owed()
        {
            return Some(self.begin_cleaning(slot, Why::Owed, joins));
        }
        while let Some(set) = self.next_in_line() {
            if let Some((slot, want)) = self.wanted_of(set) {
                let cleaning = self.begin_cleaning(slot, Why::Wanted(want), joins);
                self.line_up(set);
                return Some(cleaning);
            }
        }
        if let Some(slot) = self.next_owed() {
            return Some(self.begin_cleaning(slot, Why::Owed, joins));
        }
        let slot = self.next_idle()?;
        self.spend_on_idle(1);
        Some(self.begin_cleaning(slot, Why::Idle, joins))
    }

    /// A cleaning came to its end: the disk has the blocks, if `done`, and those not written meanwhile are clean. How many.
    pub fn end_cleaning(&mut self, cleaning: &Cleaning, done: bool) -> u32 {
        self.end(cleaning, |_| done)
    }

    /// Ends a cleaning of which the disk accepted only the blocks for which `is_done` returns true. The others are no longer owed:
    /// the caller reports the failure to the clients that requested their cleaning.
    pub fn end_cleaning_of(&mut self, cleaning: &Cleaning, is_done: impl Fn(Slot) -> bool) -> u32 {
        cleaning.slots.iter().for_each(|&slot| self.owed.end(slot));
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
                self.owed.end(slot);
                all_done += 1;
                self.counters.front_merge += u64::from(number < cleaning.chosen);
                self.counters.back_merge += u64::from(number > cleaning.chosen);
            }
            if done && !rewritten {
                self.mark_clean(slot);
                cleaned += 1;
            }
            self.list_if_above_threshold(set as u32);
        }
        self.counters.cleanings += all_done;
        self.counters.fallow_cleanings += if cleaning.why == Why::Idle { all_done } else { 0 };
        if all_done == 0 {
            self.ask_again(cleaning);
        }
        self.states[cleaning.set as usize].cleanings -= 1;
        self.cleaner.under_way -= 1;
        self.line_up(cleaning.set);
        cleaned
    }

    /// Requeues a failed cleaning. Blocks that the disk refused are not retried immediately.
    fn ask_again(&mut self, cleaning: &Cleaning) {
        let slot = cleaning.slots[cleaning.chosen];
        match cleaning.why {
            Why::Wanted(want) => self.states[cleaning.set as usize].wants.add(want),
            Why::Idle if !self.cleaner.refused.contains(&slot) => self.wait_as_idle(slot),
            Why::Idle | Why::Owed => {}
        }
    }

    /// In a mode without dirty blocks, marks all dirty blocks left by an earlier mode as [owed](Self::owe_everything), and those that the
    /// disk refused again.
    pub(super) fn clean_what_the_mode_keeps_not(&mut self) {
        if self.dirty > 0 && !self.tuning.mode.keeps_dirty() && self.owed_blocks() == 0 {
            self.owe_everything();
        }
    }

    /// What the disk has not taken may be tried again.
    pub(super) fn try_refused(&mut self) {
        for slot in std::mem::take(&mut self.cleaner.refused) {
            let set = self.set_of_slot(slot);
            self.list_if_above_threshold(set);
            self.list(set, Wants::CLEAN_TAIL);
            self.list_if_idle(slot);
        }
    }

    /// Limits runs to `blocks`, independent of the [tuning](super::Tuning::clean_run_blocks).
    pub fn limit_runs(&mut self, blocks: u32) {
        self.cleaner.most_run_blocks = blocks.max(1);
    }

    /// So many blocks still wait for room in this set: it is first in line if there is not enough, nor will be when what is on
    /// its way to the disk has arrived there, and if it may have another run. Whether it is.
    pub fn ask_for_room(&mut self, set: u32, blocks: u32) -> bool {
        let state = &self.states[set as usize];
        let (coming, may_have_another) =
            (state.cleaning.into(), state.cleanings < self.tuning.cleanings_per_set);
        let is_asked = may_have_another
            && !self.has_room_for(set, blocks.saturating_sub(coming))
            && self.oldest_to_clean(set, usize::MAX).is_some();
        if is_asked {
            self.list(set, Wants::ROOM);
        }
        is_asked
    }

    /// Only those that [`ask_for_room`](Self::ask_for_room) from now on want it, in the order they do.
    pub fn forget_lack_of_room(&mut self) {
        for set in std::mem::take(&mut self.cleaner.urgent) {
            let wants = &mut self.states[set as usize].wants;
            wants.take(Wants::STANDS_FIRST);
            wants.take(Wants::ROOM);
            self.line_up(set);
        }
    }

    /// Whether all dirty blocks of a set were refused by the disk, so that none can be cleaned before a retry.
    #[must_use]
    pub fn is_hopeless(&self, set: u32) -> bool {
        let mut slots = self.queues.oldest_first(set);
        self.oldest_to_clean(set, usize::MAX).is_none()
            && slots.any(|slot| self.cleaner.refused.contains(&slot))
    }

    /// Whether `blocks` more blocks would find slots in this set, free or evictable.
    #[must_use]
    pub fn has_room_for(&self, set: u32, blocks: u32) -> bool {
        let free = self.geometry.ways - u32::from(self.states[set as usize].held);
        let to_take = blocks.saturating_sub(free) as usize;
        let may_leave = self.queues.oldest_first(set).filter(|&slot| self.table.word(slot).may_leave());
        to_take == 0 || may_leave.take(to_take).count() == to_take
    }

    /// Cleanings begun and not ended.
    #[must_use]
    pub fn cleanings_under_way(&self) -> u32 {
        self.cleaner.under_way
    }

    /// Dirty blocks that a set may have before they are cleaned.
    #[must_use]
    pub fn dirty_limit(&self) -> u32 {
        self.geometry.ways * u32::from(self.tuning.dirty_percent) / 100
    }

    #[inline]
    pub(super) fn list_if_above_threshold(&mut self, set: u32) {
        if self.is_above_threshold(set) {
            self.list(set, Wants::FEWER_DIRTY);
        }
    }

    /// Notes what a set wants, and puts it into its line unless it stands there.
    pub(super) fn list(&mut self, set: u32, want: Wants) {
        self.states[set as usize].wants.add(want);
        self.line_up(set);
    }

    #[inline]
    fn is_above_threshold(&self, set: u32) -> bool {
        let state = &self.states[set as usize];
        u32::from(state.dirty - state.cleaning) > self.dirty_limit()
    }

    fn line_up(&mut self, set: u32) {
        let wants = &mut self.states[set as usize].wants;
        if wants.has(Wants::ROOM) && !wants.has(Wants::STANDS_FIRST) {
            wants.add(Wants::STANDS_FIRST);
            self.cleaner.urgent.push_back(set);
        } else if wants.has(Wants::ANY) && !wants.has(Wants(Wants::STANDS.0 | Wants::STANDS_FIRST.0)) {
            wants.add(Wants::STANDS);
            self.cleaner.listed.push_back(set);
        }
    }

    /// The next set that wants cleaning and may have another. One at its limit leaves the line, and comes back when a
    /// cleaning of its ends.
    fn next_in_line(&mut self) -> Option<u32> {
        loop {
            let (set, line) = match self.cleaner.urgent.pop_front() {
                Some(set) => (set, Wants::STANDS_FIRST),
                None => (self.cleaner.listed.pop_front()?, Wants::STANDS),
            };
            let state = &mut self.states[set as usize];
            state.wants.take(line);
            if state.cleanings < self.tuning.cleanings_per_set {
                return Some(set);
            }
        }
    }

    /// The block of the set to clean for the most urgent of its wants that still holds, and which that is; wants that do not are
    /// struck out.
    fn wanted_of(&mut self, set: u32) -> Option<(Slot, Wants)> {
        let room = self.states[set as usize].wants.take(Wants::ROOM);
        let above = self.is_above_threshold(set);
        if room || above {
            let oldest = self.oldest_to_clean(set, usize::MAX);
            // The block begun now may be the last one too many: look again when its turn comes.
            if !above || oldest.is_none() {
                self.states[set as usize].wants.take(Wants::FEWER_DIRTY);
            }
            return oldest.map(|slot| (slot, if room { Wants::ROOM } else { Wants::FEWER_DIRTY }));
        }
        self.states[set as usize].wants.take(Wants::FEWER_DIRTY);
        if self.states[set as usize].wants.take(Wants::CLEAN_TAIL) {
            let oldest = self.oldest_to_clean(set, self.tuning.lazy_depth as usize);
            return oldest.map(|slot| (slot, Wants::CLEAN_TAIL));
        }
        None
    }

    fn oldest_to_clean(&self, set: u32, depth: usize) -> Option<Slot> {
        self.queues.oldest_first(set).take(depth).find(|&slot| self.may_try(slot))
    }

    /// Whether it is dirty and unused, and has not just been refused by the disk.
    fn may_try(&self, slot: Slot) -> bool {
        let refused = &self.cleaner.refused;
        self.table.word(slot).may_clean() && (refused.is_empty() || !refused.contains(&slot))
    }

    /// Begins the cleaning of the slot's block and of its neighbours on disk that are dirty and unused, and may join.
    fn begin_cleaning(&mut self, slot: Slot, why: Why, joins: impl Fn(Slot, Slot) -> bool) -> Cleaning {
        let block = self.table.word(slot).block().expect("only held slots are dirty");
        let most = self.tuning.clean_run_blocks.min(self.cleaner.most_run_blocks) as usize;
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
        self.cleaner.under_way += 1;
        let chosen = before.len();
        Cleaning { first_block: block - chosen as u64, slots, set, chosen, why }
    }

    fn dirty_and_unused(&self, block: u64) -> Option<Slot> {
        self.find(block).filter(|&slot| self.may_try(slot))
    }
}
