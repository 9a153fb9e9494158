//! Segmented LRU: an entry climbs one of K segments with each hit and falls one when its segment is over-full, so the
//! top holds what is hit often, and only the lowest segment evicts.
//!
//! Karedla, Love, Wherry: "Caching strategies to improve disk system performance", IEEE Computer 27(3), 1994 (two
//! segments). K equal segments as in Huang et al.: "An Analysis of Facebook Photo Caching", SOSP'13, section 2 (S4LRU).
//! One segment is LRU to the letter.

use crate::segments::{Queue, Segments};
use crate::{Entry, Eviction, HitRule, Slot};

/// Segments, the lowest first.
pub struct Slru {
    segments: Segments,
    top: Queue,
    segment_capacity: u64,
}

impl Slru {
    /// This many empty segments that share `capacity_weight` equally.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn new(segments: u8, capacity_weight: u64) -> Self {
        assert!(segments > 0, "a segmented LRU needs a segment");
        let mut policy = Self { segments: Segments::new(segments), top: segments - 1, segment_capacity: 0 };
        policy.set_capacity(capacity_weight);
        policy
    }

    /// The segment that a held slot is in; 0 is the lowest.
    #[must_use]
    pub fn segment_of(&self, slot: Slot) -> u8 {
        self.segments.queue_of(slot)
    }

    /// Over-full segments push their oldest one down, from this segment to the lowest.
    fn cascade(&mut self, from: Queue) {
        for segment in (1..=from).rev() {
            while self.segments.weight(segment) > self.segment_capacity
                && let Some(slot) = self.segments.back(segment)
            {
                self.segments.move_to_front(segment - 1, slot);
            }
        }
    }
}

impl Eviction for Slru {
    fn insert(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        self.segments.push_front(0, slot, entry.weight);
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        let above = self.top.min(self.segments.queue_of(slot) + 1);
        self.segments.move_to_front(above, slot);
        self.cascade(above);
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        let victim = self.oldest()?;
        self.segments.remove(victim);
        Some(victim)
    }

    fn remove(&mut self, slot: Slot) {
        self.segments.remove(slot);
    }

    fn restore(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.insert(slot, entry, now_seconds);
        self.hit(slot, now_seconds);
    }

    fn set_capacity(&mut self, capacity_weight: u64) {
        self.segment_capacity = capacity_weight / (u64::from(self.top) + 1);
        self.cascade(self.top);
    }

    fn len(&self) -> usize {
        self.segments.len()
    }

    fn oldest(&self) -> Option<Slot> {
        (0..=self.top).find_map(|segment| self.segments.back(segment))
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }
}
