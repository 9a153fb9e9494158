//! Detects idle dirty blocks.
//!
//! A hand sweeps all slots once per [`idle_seconds`](super::Tuning::idle_seconds), at a steady rate, and increments the age of dirty
//! blocks; use resets it. A block with an age of two sweeps is idle: its last use was one to two sweeps ago. After Flashcache's fallow
//! cleaning, whose two flags are the age here.

use std::collections::VecDeque;

use policy::Slot;

use super::Sets;

/// Sweeps without use after which a block is idle.
const IDLE_AGE: u64 = 2;

pub(super) struct IdleHand {
    /// The slot that the hand comes to next.
    at: u32,
    /// Slots times seconds that the hand is owed and has not moved for.
    owed: u64,
    last_seconds: Option<u64>,
    /// Idle blocks that wait for their cleaning; a second's worth at most.
    waiting: VecDeque<Slot>,
    /// Blocks that may still be cleaned for idleness in this second; below zero, what earlier seconds took too much.
    allowance: i64,
}

impl IdleHand {
    pub(super) fn new() -> Self {
        Self { at: 0, owed: 0, last_seconds: None, waiting: VecDeque::new(), allowance: 0 }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<Slot>()
    }
}

impl Sets {
    /// Lets time pass: moves the hand, and lets a second's worth of idle blocks be cleaned.
    pub fn age(&mut self, now_seconds: u64) {
        let last = self.idle.last_seconds.replace(now_seconds).unwrap_or(now_seconds);
        let passed = now_seconds.saturating_sub(last);
        if passed > 0 {
            self.clean_what_the_mode_keeps_not();
            self.try_refused();
        }
        if passed == 0 || self.tuning.idle_seconds == 0 {
            return;
        }
        let per_second = i64::from(self.tuning.idle_blocks_per_second);
        // Unused time of a second is not saved; overuse is deducted from the next.
        let paid_back = i64::try_from(passed).unwrap_or(i64::MAX).saturating_mul(per_second);
        self.idle.allowance = self.idle.allowance.min(0).saturating_add(paid_back).min(per_second);
        let slots = u64::from(self.geometry.slots());
        let period = u64::from(self.tuning.idle_seconds);
        // More than two whole sweeps find the same blocks as two.
        self.idle.owed = (self.idle.owed + passed * slots).min(2 * slots * period);
        let steps = self.idle.owed / period;
        self.idle.owed %= period;
        for _ in 0..steps {
            self.pass_next_slot();
        }
    }

    fn pass_next_slot(&mut self) {
        let slot = Slot(self.idle.at);
        self.idle.at = (self.idle.at + 1) % self.geometry.slots();
        if !self.table.word(slot).is_dirty() {
            return;
        }
        self.table.grow_older(slot);
        self.list_if_idle(slot);
    }

    /// An idle block is to be cleaned, unless a second's worth of them is already.
    pub(super) fn list_if_idle(&mut self, slot: Slot) {
        let room = self.idle.waiting.len() < self.tuning.idle_blocks_per_second as usize;
        if room && self.table.word(slot).age() >= IDLE_AGE {
            self.idle.waiting.push_back(slot);
        }
    }

    /// The cleaning of an idle block came to nothing: it is the next, and has cost nothing.
    pub(super) fn wait_as_idle(&mut self, slot: Slot) {
        self.idle.waiting.push_front(slot);
        self.idle.allowance = self.idle.allowance.saturating_add(1);
    }

    /// The next idle block that may be cleaned now, if this second allows another. One that was used or cleaned since is passed
    /// over. Whoever cleans it says with [`spend_on_idle`](Self::spend_on_idle) what that took.
    ///
    /// [`next_cleaning`](Self::next_cleaning) does both by itself: this is for a volume whose blocks may not be cleaned one by one.
    pub fn next_idle(&mut self) -> Option<Slot> {
        while self.may_clean_idle() {
            let slot = self.idle.waiting.pop_front()?;
            let word = self.table.word(slot);
            if word.age() >= IDLE_AGE && word.may_clean() {
                return Some(slot);
            }
        }
        None
    }

    /// Whether this second allows blocks to be cleaned for idleness.
    #[must_use]
    pub fn may_clean_idle(&self) -> bool {
        self.tuning.idle_seconds > 0 && self.idle.allowance > 0
    }

    /// So many blocks are cleaned because one was idle. More than this second allows are taken from the next ones.
    pub fn spend_on_idle(&mut self, blocks: u64) {
        let blocks = i64::try_from(blocks).unwrap_or(i64::MAX);
        self.idle.allowance = self.idle.allowance.saturating_sub(blocks);
    }
}
