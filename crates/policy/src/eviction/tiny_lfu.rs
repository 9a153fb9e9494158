//! TinyLFU as in CacheLib (MMTinyLFU): new entries enter a tiny queue; to evict, the oldest entries of the tiny and the main queue are
//! compared by the frequency of their keys, and the less frequent one is evicted.
//!
//! Einziger, Friedman, Manes: "TinyLFU: A Highly Efficient Cache Admission Policy", ACM ToS 13(4), 2017.
//!
//! Deviation from CacheLib: counters have 4 bits instead of 32, and there are sixteen per entry, so that the sketch takes 8 to 16 bytes per
//! entry.

use crate::eviction::refresh::{Clock, Refresh};
use crate::segments::{Queue, Segments, share};
use crate::sketch::Sketch;
use crate::{Entry, Eviction, HitRule, Slot};

const MAIN: Queue = 0;
const TINY: Queue = 1;
/// The tiny queue's share of all entries, in percent.
const TINY_PERCENT: u8 = 1;
/// Counts per entry between two halvings.
const SAMPLE_PER_ENTRY: usize = 32;

/// Both queues and the sketch.
pub struct TinyLfu {
    queues: Segments,
    sketch: Sketch,
    hashes: Vec<u64>,
    clock: Clock,
}

impl TinyLfu {
    /// The tiny queue's share of all entries, in percent.
    pub const WAITING_PERCENT: u8 = TINY_PERCENT;

    /// Empty queues.
    #[must_use]
    pub fn new(refresh: Refresh) -> Self {
        Self {
            queues: Segments::new(2),
            sketch: Sketch::new(SAMPLE_PER_ENTRY),
            hashes: Vec::new(),
            clock: Clock::new(refresh),
        }
    }

    fn frequency(&self, slot: Slot) -> u8 {
        self.sketch.estimate(self.hashes[slot.0 as usize])
    }

    /// Whether the tiny queue's oldest entry replaces the main queue's; it does if the frequencies are equal.
    fn candidate_wins(&self, candidate: Slot, resident: Slot) -> bool {
        self.frequency(candidate) >= self.frequency(resident)
    }

    fn swap_oldest(&mut self) {
        let (Some(resident), Some(candidate)) = (self.queues.back(MAIN), self.queues.back(TINY)) else {
            return;
        };
        if self.candidate_wins(candidate, resident) {
            self.queues.move_to_front(MAIN, candidate);
            self.queues.move_to_back(TINY, resident);
        } else {
            // A popular entry must not reject all new ones: the next is compared with another entry.
            self.queues.move_to_front(MAIN, resident);
        }
    }
}

impl Eviction for TinyLfu {
    fn insert(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        if slot.0 as usize >= self.hashes.len() {
            self.hashes.resize(slot.0 as usize + 1, 0);
        }
        self.hashes[slot.0 as usize] = entry.hash;
        self.queues.push_front(TINY, slot, entry.weight);
        self.sketch.reserve(self.queues.len(), &self.hashes);
        self.sketch.count(entry.hash);
        self.clock.touch(slot, now_seconds);
        let tiny_share = share(self.queues.total_weight(), TINY_PERCENT);
        if self.queues.weight(TINY) > tiny_share {
            let oldest = self.queues.back(TINY).expect("a queue over its share has an entry");
            self.queues.move_to_front(MAIN, oldest);
        } else {
            self.swap_oldest();
        }
    }

    fn hit(&mut self, slot: Slot, now_seconds: u32) {
        self.queues.move_to_front(self.queues.queue_of(slot), slot);
        self.sketch.count(self.hashes[slot.0 as usize]);
        self.clock.touch(slot, now_seconds);
        self.clock.tune(self.queues.back(MAIN), now_seconds);
    }

    fn evict(&mut self, now_seconds: u32) -> Option<Slot> {
        self.clock.tune(self.queues.back(MAIN), now_seconds);
        let victim = self.oldest()?;
        self.queues.remove(victim);
        Some(victim)
    }

    fn remove(&mut self, slot: Slot) {
        self.queues.remove(slot);
    }

    fn restore(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.insert(slot, entry, now_seconds);
        self.hit(slot, now_seconds);
    }

    fn len(&self) -> usize {
        self.queues.len()
    }

    fn oldest(&self) -> Option<Slot> {
        match (self.queues.back(TINY), self.queues.back(MAIN)) {
            (Some(candidate), Some(resident)) if self.candidate_wins(candidate, resident) => Some(resident),
            (Some(candidate), _) => Some(candidate),
            (None, resident) => resident,
        }
    }

    fn hit_rule(&self) -> HitRule {
        self.clock.hit_rule()
    }

    /// Links, queue and hash, and 8 to 16 bytes of the sketch, which doubles when it grows.
    fn bytes_per_slot(&self) -> u32 {
        38
    }

    fn reweigh(&mut self, slot: Slot, weight: u32) {
        self.queues.reweigh(slot, weight);
    }

    fn look_ahead(&self, slots: &[Slot]) {
        self.queues.look_ahead(slots);
    }
}
