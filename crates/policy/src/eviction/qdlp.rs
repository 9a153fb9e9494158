//! QDLP, quick demotion and lazy promotion: new entries pass through a small FIFO queue, and only those that were hit there enter the main
//! queue, a clock with two bits. The others are evicted and leave a ghost; an entry that returns while its ghost exists enters the main
//! queue.
//!
//! Yang, Qiu, Zhang, Yue, Vigfusson: "FIFO can be better than LRU: the power of lazy promotion and quick demotion", HotOS'23, section 4. It
//! precedes [`S3Fifo`](super::S3Fifo), which evicts from the small queue only while that exceeds its share, and asks for two hits there.

use std::sync::Arc;

use crate::ghost_queue::GhostQueue;
use crate::segments::{Queue, Segments};
use crate::{Entry, Eviction, HitMarks, HitRule, Marks, Slot};

const SMALL: Queue = 0;
const MAIN: Queue = 1;
/// Entries that move to the main queue after it has evicted enough for them.
const WAITING: Queue = 2;

/// Shares of the capacity; libCacheSim rounds them as floating-point numbers.
const SMALL_SHARE: f64 = 0.1;
const GHOST_SHARE: f64 = 0.9;
/// Two bits.
const FREQUENCY_AT_MOST: u8 = 3;

/// The queues and the ghosts of the small one.
pub struct Qdlp {
    segments: Segments,
    ghost: GhostQueue,
    hashes: Vec<u64>,
    frequency: Arc<dyn HitMarks>,
    main_capacity: u64,
    /// The entry that will be inserted next, and whether its key was among the ghosts.
    announced: Option<(Entry, bool)>,
    /// The queue of the last restored entry.
    restored_to: Queue,
}

impl Qdlp {
    /// The small queue's share of the capacity, percent.
    pub const WAITING_PERCENT: u8 = 10;

    /// Empty queues that share `capacity_weight`.
    #[must_use]
    pub fn new(capacity_weight: u64) -> Self {
        let mut policy = Self {
            segments: Segments::new(3),
            ghost: GhostQueue::default(),
            hashes: Vec::new(),
            frequency: Arc::new(Marks::default()),
            main_capacity: 0,
            announced: None,
            restored_to: SMALL,
        };
        policy.set_capacity(capacity_weight);
        policy
    }

    fn enter(&mut self, queue: Queue, slot: Slot, entry: Entry) {
        if slot.0 as usize >= self.hashes.len() {
            self.hashes.resize(slot.0 as usize + 1, 0);
        }
        self.hashes[slot.0 as usize] = entry.hash;
        self.frequency.begin(slot);
        self.segments.push_front(queue, slot, entry.weight);
        self.promote();
    }

    /// Moves waiting entries to the main queue while they fit.
    fn promote(&mut self) {
        while let Some(next) = self.segments.back(WAITING) {
            let weight = self.segments.weight(MAIN) + self.segments.weight_of(next);
            if weight > self.main_capacity && self.segments.back(MAIN).is_some() {
                return;
            }
            self.segments.move_to_front(MAIN, next);
        }
    }

    fn evict_main(&mut self) -> Option<Slot> {
        // Readers may count hits meanwhile, so the number of rounds is limited.
        let steps = self.segments.len() * (usize::from(FREQUENCY_AT_MOST) + 1);
        for _ in 0..steps {
            let oldest = self.segments.back(MAIN)?;
            match self.frequency.get(oldest) {
                0 => break,
                hits => self.frequency.set(oldest, hits - 1),
            }
            self.segments.move_to_front(MAIN, oldest);
        }
        let victim = self.segments.back(MAIN)?;
        self.segments.remove(victim);
        self.promote();
        Some(victim)
    }
}

impl Eviction for Qdlp {
    fn announce(&mut self, entry: Entry) {
        self.announced = Some((entry, self.ghost.take(entry.hash)));
    }

    fn refuse(&mut self, entry: Entry) {
        self.ghost.take(entry.hash);
    }

    fn insert(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        let was_known = match self.announced.take() {
            Some((announced, was_known)) if announced == entry => was_known,
            _ => self.ghost.take(entry.hash),
        };
        self.enter(if was_known { WAITING } else { SMALL }, slot, entry);
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        self.frequency.bump(slot, FREQUENCY_AT_MOST);
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        while self.segments.back(WAITING).is_none()
            && let Some(oldest) = self.segments.back(SMALL)
        {
            if self.frequency.get(oldest) == 0 {
                let weight = self.segments.weight_of(oldest) as u32;
                self.ghost.insert(self.hashes[oldest.0 as usize], weight);
                self.ghost.trim();
                self.segments.remove(oldest);
                return Some(oldest);
            }
            self.frequency.set(oldest, 0);
            self.segments.move_to_front(WAITING, oldest);
            self.promote();
        }
        self.evict_main()
    }

    fn remove(&mut self, slot: Slot) {
        self.segments.remove(slot);
        self.promote();
    }

    /// Alternates between the queues: if one held all pinned entries, every victim would be sought there.
    fn restore(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        self.ghost.take(entry.hash);
        self.restored_to = if self.restored_to == SMALL { WAITING } else { SMALL };
        self.enter(self.restored_to, slot, entry);
    }

    fn set_capacity(&mut self, capacity_weight: u64) {
        let share = |share: f64| (capacity_weight as f64 * share) as u64;
        self.main_capacity = capacity_weight - share(SMALL_SHARE);
        self.ghost.set_capacity(share(GHOST_SHARE));
    }

    fn len(&self) -> usize {
        self.segments.len()
    }

    fn oldest(&self) -> Option<Slot> {
        let oldest = |queue| self.segments.back(queue);
        match oldest(WAITING) {
            Some(waiting) => oldest(MAIN).or(Some(waiting)),
            None => oldest(SMALL).or_else(|| oldest(MAIN)),
        }
    }

    fn keep_marks_in(&mut self, marks: Arc<dyn HitMarks>) {
        self.frequency = marks;
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Mark { marks: Arc::clone(&self.frequency), at_most: FREQUENCY_AT_MOST }
    }

    /// Links, queue, weight and hash, and a ghost.
    fn bytes_per_slot(&self) -> u32 {
        21 + GhostQueue::BYTES_PER_GHOST
    }

    /// Whether an entry waits for evictions from the main queue.
    fn is_overfull(&self) -> bool {
        self.segments.back(WAITING).is_some()
    }

    fn reweigh(&mut self, slot: Slot, weight: u32) {
        self.segments.reweigh(slot, weight);
        self.promote();
    }

    fn look_ahead(&self, slots: &[Slot]) {
        self.segments.look_ahead(slots);
    }
}
