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
    /// The next slot that the hand visits.
    at: u32,
    /// Pending movement of the hand, in slots times seconds.
    pending: u64,
    last_seconds: Option<u64>,
    /// Idle blocks to clean, at most one second's allowance.
    waiting: VecDeque<Slot>,
    /// Idle blocks that may still be cleaned in this second; negative after overuse.
    allowance: i64,
}

impl IdleHand {
    pub(super) fn new() -> Self {
        Self { at: 0, pending: 0, last_seconds: None, waiting: VecDeque::new(), allowance: 0 }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<Slot>()
    }
}

impl Sets {
    /// Advances time: moves the hand and renews the allowance of idle blocks.
    pub fn age(&mut self, now_seconds: u64) {
        let last = self.idle.last_seconds.replace(now_seconds).unwrap_or(now_seconds);
        let passed = now_seconds.saturating_sub(last);
        if passed > 0 {
            self.drain_if_mode_keeps_none_dirty();
            self.retry_refused();
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
        // More than two sweeps find the same blocks as two.
        self.idle.pending = (self.idle.pending + passed * slots).min(2 * slots * period);
        let steps = self.idle.pending / period;
        self.idle.pending %= period;
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
        self.table.increment_age(slot);
        self.queue_if_idle(slot);
    }

    /// Queues an idle block for cleaning, up to one second's allowance.
    pub(super) fn queue_if_idle(&mut self, slot: Slot) {
        let has_space = self.idle.waiting.len() < self.tuning.idle_blocks_per_second as usize;
        if has_space && self.table.word(slot).age() >= IDLE_AGE {
            self.idle.waiting.push_back(slot);
        }
    }

    /// Queues an idle block again after its cleaning failed, and returns its allowance.
    pub(super) fn requeue_idle(&mut self, slot: Slot) {
        self.idle.waiting.push_front(slot);
        self.idle.allowance = self.idle.allowance.saturating_add(1);
    }

    /// The next idle block that can be cleaned within the allowance. Blocks that were used or cleaned meanwhile are skipped. The caller
    /// reports the cleaned blocks with [`deduct_idle_cleanings`](Self::deduct_idle_cleanings).
    ///
    /// [`next_cleaning`](Self::next_cleaning) does both; this method is for ordered volumes, which clean whole epochs.
    pub fn next_idle(&mut self) -> Option<Slot> {
        while self.may_clean_idle() {
            let slot = self.idle.waiting.pop_front()?;
            let word = self.table.word(slot);
            if word.age() >= IDLE_AGE && word.can_clean() {
                return Some(slot);
            }
        }
        None
    }

    /// Whether the allowance of this second is not used up.
    #[must_use]
    pub fn may_clean_idle(&self) -> bool {
        self.tuning.idle_seconds > 0 && self.idle.allowance > 0
    }

    /// Deducts cleaned blocks from the allowance. Overuse is deducted from the following seconds.
    pub fn deduct_idle_cleanings(&mut self, blocks: u64) {
        let blocks = i64::try_from(blocks).unwrap_or(i64::MAX);
        self.idle.allowance = self.idle.allowance.saturating_sub(blocks);
    }
}
