//! Least recently used, as in CacheLib (MMLru): a hit moves an entry to the front, but only if the last move was some time ago, because a
//! move takes a lock and a popular entry is far from the back anyway.
//!
//! With a refresh time of 0 every hit counts, and this is exact LRU.

use crate::eviction::refresh::{Clock, Refresh};
use crate::list::{List, Nodes};
use crate::{Entry, Eviction, HitRule, Slot};

/// Settings of an LRU.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LruConfig {
    /// The hits that count.
    pub refresh: Refresh,
    /// New entries are inserted at 1/2^n of the entries from the back, so that entries without hits leave sooner; 0 is the front.
    pub insertion_point: u8,
}

/// The queue as two lists: `tail` is the part behind the insertion point.
pub struct Lru {
    nodes: Nodes,
    main: List,
    tail: List,
    /// Membership in `tail`, one bit per slot; empty if the insertion point is the front.
    in_tail: Bits,
    insertion_point: u8,
    clock: Clock,
}

impl Lru {
    /// An empty queue.
    #[must_use]
    pub fn new(config: LruConfig) -> Self {
        Self {
            nodes: Nodes::new(),
            main: List::new(),
            tail: List::new(),
            in_tail: Bits::default(),
            insertion_point: config.insertion_point,
            clock: Clock::new(config.refresh),
        }
    }

    /// Exact LRU.
    #[must_use]
    pub fn exact() -> Self {
        Self::new(LruConfig { refresh: Refresh::every_hit(), insertion_point: 0 })
    }

    fn unlink(&mut self, slot: Slot) {
        if self.in_tail.take(slot) {
            self.tail.unlink(&mut self.nodes, slot);
        } else {
            self.main.unlink(&mut self.nodes, slot);
        }
    }

    /// Keeps `tail` at its share, and at one entry or more: the insertion point is before an entry.
    fn settle_insertion_point(&mut self) {
        if self.insertion_point == 0 {
            return;
        }
        let share = self.len().checked_shr(self.insertion_point.into()).unwrap_or(0).max(1);
        while self.tail.len() < share
            && let Some(slot) = self.main.pop_back(&mut self.nodes)
        {
            self.tail.push_front(&mut self.nodes, slot);
            self.in_tail.set(slot);
        }
        while self.tail.len() > share
            && let Some(slot) = self.tail.front()
        {
            self.tail.unlink(&mut self.nodes, slot);
            self.in_tail.take(slot);
            self.main.push_back(&mut self.nodes, slot);
        }
    }
}

impl Eviction for Lru {
    fn insert(&mut self, slot: Slot, _entry: Entry, now_seconds: u32) {
        if self.insertion_point == 0 {
            self.main.push_front(&mut self.nodes, slot);
        } else {
            self.main.push_back(&mut self.nodes, slot);
        }
        self.clock.touch(slot, now_seconds);
        self.settle_insertion_point();
    }

    fn hit(&mut self, slot: Slot, now_seconds: u32) {
        self.unlink(slot);
        self.main.push_front(&mut self.nodes, slot);
        self.clock.touch(slot, now_seconds);
        self.clock.tune(self.oldest(), now_seconds);
        self.settle_insertion_point();
    }

    fn evict(&mut self, now_seconds: u32) -> Option<Slot> {
        self.clock.tune(self.oldest(), now_seconds);
        let victim = self.oldest()?;
        self.remove(victim);
        Some(victim)
    }

    fn remove(&mut self, slot: Slot) {
        self.unlink(slot);
        self.settle_insertion_point();
    }

    fn restore(&mut self, slot: Slot, _entry: Entry, now_seconds: u32) {
        self.main.push_front(&mut self.nodes, slot);
        self.clock.touch(slot, now_seconds);
        self.settle_insertion_point();
    }

    fn len(&self) -> usize {
        self.main.len() + self.tail.len()
    }

    fn oldest(&self) -> Option<Slot> {
        self.tail.back().or_else(|| self.main.back())
    }

    fn hit_rule(&self) -> HitRule {
        self.clock.hit_rule()
    }

    fn look_ahead(&self, slots: &[Slot]) {
        self.nodes.look_ahead(slots);
    }
}

/// A set of slots.
#[derive(Default)]
struct Bits {
    words: Vec<u64>,
}

impl Bits {
    fn set(&mut self, slot: Slot) {
        let word = slot.0 as usize / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (slot.0 % 64);
    }

    /// Removes the slot from the set; returns whether it was in it.
    fn take(&mut self, slot: Slot) -> bool {
        let Some(word) = self.words.get_mut(slot.0 as usize / 64) else { return false };
        let was = *word >> (slot.0 % 64) & 1 == 1;
        *word &= !(1 << (slot.0 % 64));
        was
    }
}
