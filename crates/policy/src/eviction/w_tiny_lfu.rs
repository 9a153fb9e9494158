//! W-TinyLFU: new entries enter a small window; when it is full, its oldest entry is compared with the oldest of a segmented LRU, and the
//! one whose key was seen less often is evicted. The window serves bursts, the sketch identifies long-term popularity.
//!
//! Einziger, Friedman, Manes: "TinyLFU: A Highly Efficient Cache Admission Policy", ACM ToS 13(4), 2017, section 4.
//!
//! Deviation: entries are compared at an eviction, because the caller can evict before or after an insertion. Until then a full window
//! simply contains more. Every hit is counted.

use crate::segments::{Queue, Segments, share};
use crate::sketch::Sketch;
use crate::{Entry, Eviction, HitRule, Slot};

const WINDOW: Queue = 0;
const PROBATION: Queue = 1;
const PROTECTED: Queue = 2;
/// The window's share of the capacity.
const WINDOW_PERCENT: u8 = 1;
/// The protected segment's share of the main queue.
const PROTECTED_PERCENT: u8 = 80;
/// Counts per entry between two halvings.
const SAMPLE_PER_ENTRY: usize = 10;

/// The window, the segmented LRU, and the sketch.
pub struct WTinyLfu {
    queues: Segments,
    window_capacity: u64,
    main_capacity: u64,
    protected_capacity: u64,
    sketch: Sketch,
    hashes: Vec<u64>,
}

impl WTinyLfu {
    /// The window's share of the capacity.
    pub const WAITING_PERCENT: u8 = WINDOW_PERCENT;

    /// Empty queues that share `capacity_weight`.
    #[must_use]
    pub fn new(capacity_weight: u64) -> Self {
        let mut policy = Self {
            queues: Segments::new(3),
            window_capacity: 0,
            main_capacity: 0,
            protected_capacity: 0,
            sketch: Sketch::new(SAMPLE_PER_ENTRY),
            hashes: Vec::new(),
        };
        policy.set_capacity(capacity_weight);
        policy
    }

    fn frequency(&self, slot: Slot) -> u8 {
        self.sketch.estimate(self.hashes[slot.0 as usize])
    }

    fn main_weight(&self) -> u64 {
        self.queues.weight(PROBATION) + self.queues.weight(PROTECTED)
    }

    /// While the main queue has space, entries above the window's share move there without a comparison.
    fn fill_main(&mut self) {
        while self.queues.weight(WINDOW) > self.window_capacity
            && let Some(oldest) = self.queues.back(WINDOW)
            && self.main_weight() + self.queues.weight_of(oldest) <= self.main_capacity
        {
            self.queues.move_to_front(PROBATION, oldest);
        }
    }

    /// Demotes entries above the protected segment's share to probation.
    fn demote(&mut self) {
        while self.queues.weight(PROTECTED) > self.protected_capacity
            && let Some(oldest) = self.queues.back(PROTECTED)
        {
            self.queues.move_to_front(PROBATION, oldest);
        }
    }

    fn main_oldest(&self) -> Option<Slot> {
        self.queues.back(PROBATION).or_else(|| self.queues.back(PROTECTED))
    }

    /// The oldest entries of the window, if it is full, and of the main queue.
    fn oldest_pair(&self) -> (Option<Slot>, Option<Slot>) {
        let window_is_full = self.queues.weight(WINDOW) >= self.window_capacity;
        (self.queues.back(WINDOW).filter(|_| window_is_full), self.main_oldest())
    }

    /// The candidate must have been seen more often than the victim.
    fn candidate_wins(&self, candidate: Slot, victim: Slot) -> bool {
        self.frequency(candidate) > self.frequency(victim)
    }
}

impl Eviction for WTinyLfu {
    fn insert(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        if slot.0 as usize >= self.hashes.len() {
            self.hashes.resize(slot.0 as usize + 1, 0);
        }
        self.hashes[slot.0 as usize] = entry.hash;
        self.queues.push_front(WINDOW, slot, entry.weight);
        self.sketch.reserve(self.queues.len(), &self.hashes);
        self.sketch.count(entry.hash);
        self.fill_main();
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        self.sketch.count(self.hashes[slot.0 as usize]);
        match self.queues.queue_of(slot) {
            WINDOW => self.queues.move_to_front(WINDOW, slot),
            _ => {
                self.queues.move_to_front(PROTECTED, slot);
                self.demote();
            }
        }
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        let leaves = match self.oldest_pair() {
            (Some(candidate), Some(victim)) if self.candidate_wins(candidate, victim) => {
                self.queues.move_to_front(PROBATION, candidate);
                victim
            }
            (Some(candidate), _) => candidate,
            (None, Some(victim)) => victim,
            (None, None) => self.queues.back(WINDOW)?,
        };
        self.queues.remove(leaves);
        Some(leaves)
    }

    fn remove(&mut self, slot: Slot) {
        self.queues.remove(slot);
        self.fill_main();
    }

    fn restore(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.insert(slot, entry, now_seconds);
        self.hit(slot, now_seconds);
    }

    fn set_capacity(&mut self, capacity_weight: u64) {
        self.window_capacity = share(capacity_weight, WINDOW_PERCENT).max(1);
        self.main_capacity = capacity_weight.saturating_sub(self.window_capacity);
        self.protected_capacity = share(self.main_capacity, PROTECTED_PERCENT);
        self.demote();
        self.fill_main();
    }

    fn len(&self) -> usize {
        self.queues.len()
    }

    fn oldest(&self) -> Option<Slot> {
        match self.oldest_pair() {
            (Some(candidate), Some(victim)) if self.candidate_wins(candidate, victim) => Some(victim),
            (Some(candidate), _) => Some(candidate),
            (None, victim) => victim.or_else(|| self.queues.back(WINDOW)),
        }
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }

    /// Links, queue and hash, and 8 to 16 bytes of the sketch, which doubles when it grows.
    fn bytes_per_slot(&self) -> u32 {
        38
    }

    fn reweigh(&mut self, slot: Slot, weight: u32) {
        self.queues.reweigh(slot, weight);
        self.demote();
    }

    fn look_ahead(&self, slots: &[Slot]) {
        self.queues.look_ahead(slots);
    }
}
