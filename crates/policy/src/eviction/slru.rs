//! Segmented LRU: a hit moves an entry up one of K segments, and an over-full segment demotes its oldest entry, so the top contains
//! frequently hit entries, and only the lowest segment evicts.
//!
//! Karedla, Love, Wherry: "Caching strategies to improve disk system performance", IEEE Computer 27(3), 1994 (two segments). K equal
//! segments as in Huang et al.: "An Analysis of Facebook Photo Caching", SOSP'13, section 2 (S4LRU). One segment is exact LRU.
//!
//! libCacheSim's SLRU, the source of published figures, differs: [`SlruRules::Reference`].

use crate::segments::{Queue, Segments};
use crate::{Entry, Eviction, HitRule, Slot};

/// Where implementations differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SlruRules {
    /// New entries enter the lowest segment, which uses the space that the others leave free.
    #[default]
    Paper,
    /// libCacheSim 0.3.5: a new entry goes to the lowest segment with free space, and an entry demoted to a full lowest segment
    /// evicts the oldest there immediately ([`Eviction::is_overfull`]), even if other segments have free space. (libCacheSim also rejects
    /// objects larger than a segment; this policy does not decide on admission.)
    Reference,
}

/// Segments, the lowest first.
pub struct Slru {
    segments: Segments,
    top: Queue,
    segment_capacity: u64,
    rules: SlruRules,
    /// Whether the last hit demoted an entry to the lowest segment.
    fell: bool,
}

impl Slru {
    /// Creates this many empty segments that share `capacity_weight` equally.
    ///
    /// # Panics
    /// If there are no segments.
    #[must_use]
    pub fn new(segments: u8, capacity_weight: u64) -> Self {
        Self::with_rules(segments, capacity_weight, SlruRules::Paper)
    }

    /// Creates this many empty segments that share `capacity_weight` equally, with the given rules.
    ///
    /// # Panics
    /// If there are no segments.
    #[must_use]
    pub fn with_rules(segments: u8, capacity_weight: u64, rules: SlruRules) -> Self {
        assert!(segments > 0, "a segmented LRU needs at least one segment");
        let (top, all) = (segments - 1, Segments::new(segments));
        let mut policy = Self { segments: all, top, segment_capacity: 0, rules, fell: false };
        policy.set_capacity(capacity_weight);
        policy
    }

    /// The segment of a slot; 0 is the lowest.
    #[must_use]
    pub fn segment_of(&self, slot: Slot) -> u8 {
        self.segments.queue_of(slot)
    }

    /// Demotes the oldest entries of over-full segments, from this segment to the lowest.
    fn cascade(&mut self, from: Queue) {
        for segment in (1..=from).rev() {
            while self.segments.weight(segment) > self.segment_capacity
                && let Some(slot) = self.segments.back(segment)
            {
                self.segments.move_to_front(segment - 1, slot);
                self.fell |= segment == 1;
            }
        }
    }

    fn insertion_segment(&self, weight: u32) -> Queue {
        let has_room =
            |&segment: &Queue| self.segments.weight(segment) + u64::from(weight) <= self.segment_capacity;
        match self.rules {
            SlruRules::Paper => 0,
            SlruRules::Reference => (0..=self.top).find(has_room).unwrap_or(0),
        }
    }
}

impl Eviction for Slru {
    fn insert(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        self.segments.push_front(self.insertion_segment(entry.weight), slot, entry.weight);
        self.fell = false;
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        let above = self.top.min(self.segments.queue_of(slot) + 1);
        self.segments.move_to_front(above, slot);
        self.fell = false;
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

    fn is_overfull(&self) -> bool {
        self.rules == SlruRules::Reference && self.fell && self.segments.weight(0) > self.segment_capacity
    }

    fn reweigh(&mut self, slot: Slot, weight: u32) {
        self.segments.reweigh(slot, weight);
        self.cascade(self.top);
    }

    fn look_ahead(&self, slots: &[Slot]) {
        self.segments.look_ahead(slots);
    }
}
