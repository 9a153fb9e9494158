//! Twins that compare frequencies. The sketch is the real one: it has its own tests, and its collisions are not the twins'
//! matter.

use flashwright_policy::eviction::Refresh;
use flashwright_policy::sketch::Sketch;
use flashwright_policy::{Entry, Eviction, HitRule, Slot};

use crate::plain_counts;
use crate::queues::{Item, Refreshing, reweigh, take, weight};

/// The real sketch, and the last hash of each slot, which the sketch must keep when it grows.
struct Counted {
    sketch: Sketch,
    hashes: Vec<u64>,
}

impl Counted {
    fn new(sample_per_entry: usize) -> Self {
        Self { sketch: Sketch::new(sample_per_entry), hashes: Vec::new() }
    }

    fn count(&mut self, slot: Slot, hash: u64, entries: usize) {
        self.hashes.resize(self.hashes.len().max(slot.0 as usize + 1), 0);
        self.hashes[slot.0 as usize] = hash;
        self.sketch.reserve(entries, &self.hashes);
        self.sketch.count(hash);
    }
}

pub struct TinyLfu {
    tiny: Vec<Item>,
    main: Vec<Item>,
    counted: Counted,
    refreshing: Refreshing,
}

impl TinyLfu {
    pub fn new(refresh: Refresh) -> Self {
        Self {
            tiny: Vec::new(),
            main: Vec::new(),
            counted: Counted::new(32),
            refreshing: Refreshing::new(refresh),
        }
    }

    fn candidate_wins(&self) -> bool {
        let frequency = |item: &Item| self.counted.sketch.estimate(item.entry.hash);
        frequency(self.tiny.last().unwrap()) >= frequency(self.main.last().unwrap())
    }
}

impl Eviction for TinyLfu {
    fn insert(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.tiny.insert(0, Item::new(slot, entry, now_seconds));
        self.counted.count(slot, entry.hash, self.len());
        if weight(&self.tiny) > (weight(&self.tiny) + weight(&self.main)) / 100 {
            self.main.insert(0, self.tiny.pop().unwrap());
        } else if !self.main.is_empty() {
            let candidate_wins = self.candidate_wins();
            let resident = self.main.pop().unwrap();
            if candidate_wins {
                self.main.insert(0, self.tiny.pop().unwrap());
                self.tiny.push(resident);
            } else {
                self.main.insert(0, resident);
            }
        }
    }
    fn hit(&mut self, slot: Slot, now_seconds: u32) {
        for queue in [&mut self.tiny, &mut self.main] {
            if let Some(item) = take(queue, slot) {
                self.counted.sketch.count(item.entry.hash);
                queue.insert(0, Item { used_seconds: now_seconds, ..item });
            }
        }
        self.refreshing.tune(self.main.last(), now_seconds);
    }
    fn evict(&mut self, now_seconds: u32) -> Option<Slot> {
        self.refreshing.tune(self.main.last(), now_seconds);
        let from_main = self.tiny.is_empty() || !self.main.is_empty() && self.candidate_wins();
        let victim = if from_main { self.main.pop() } else { self.tiny.pop() };
        victim.map(|item| item.slot)
    }
    fn remove(&mut self, slot: Slot) {
        take(&mut self.tiny, slot).or_else(|| take(&mut self.main, slot)).unwrap();
    }
    fn restore(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.insert(slot, entry, now_seconds);
        self.hit(slot, now_seconds);
    }
    plain_counts!(tiny, main);
    fn hit_rule(&self) -> HitRule {
        self.refreshing.rule()
    }
    fn reweigh(&mut self, slot: Slot, weight: u32) {
        reweigh(&mut self.tiny, slot, weight);
        reweigh(&mut self.main, slot, weight);
    }
}

pub struct WTinyLfu {
    window: Vec<Item>,
    probation: Vec<Item>,
    protected: Vec<Item>,
    capacity: u64,
    counted: Counted,
}

impl Default for WTinyLfu {
    fn default() -> Self {
        let counted = Counted::new(10);
        Self { window: Vec::new(), probation: Vec::new(), protected: Vec::new(), capacity: 0, counted }
    }
}

impl WTinyLfu {
    fn window_share(&self) -> u64 {
        (self.capacity / 100).max(1)
    }

    fn main_share(&self) -> u64 {
        self.capacity.saturating_sub(self.window_share())
    }

    fn settle(&mut self) {
        while weight(&self.protected) > self.main_share() * 80 / 100 {
            self.probation.insert(0, self.protected.pop().unwrap());
        }
    }

    fn fill_main(&mut self) {
        while weight(&self.window) > self.window_share() {
            let next = *self.window.last().unwrap();
            let main = weight(&self.probation) + weight(&self.protected);
            if main + u64::from(next.entry.weight) > self.main_share() {
                break;
            }
            self.window.pop();
            self.probation.insert(0, next);
        }
    }

    fn frequency(&self, item: &Item) -> u8 {
        self.counted.sketch.estimate(item.entry.hash)
    }
}

impl Eviction for WTinyLfu {
    fn insert(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.window.insert(0, Item::new(slot, entry, now_seconds));
        self.counted.count(slot, entry.hash, self.len());
        self.fill_main();
    }
    fn hit(&mut self, slot: Slot, _: u32) {
        if let Some(item) = take(&mut self.window, slot) {
            self.counted.sketch.count(item.entry.hash);
            self.window.insert(0, item);
        } else {
            let item = take(&mut self.probation, slot).or_else(|| take(&mut self.protected, slot)).unwrap();
            self.counted.sketch.count(item.entry.hash);
            self.protected.insert(0, item);
            self.settle();
        }
    }
    fn evict(&mut self, _: u32) -> Option<Slot> {
        let window_is_full = weight(&self.window) >= self.window_share();
        let resident = self.probation.last().or(self.protected.last());
        let from_main = match (self.window.last(), resident) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(candidate), Some(resident)) => {
                !window_is_full || self.frequency(candidate) > self.frequency(resident)
            }
        };
        if !from_main {
            return self.window.pop().map(|item| item.slot);
        }
        let victim = self.probation.pop().or_else(|| self.protected.pop());
        if window_is_full && let Some(candidate) = self.window.pop() {
            self.probation.insert(0, candidate);
        }
        victim.map(|item| item.slot)
    }
    fn remove(&mut self, slot: Slot) {
        let queues = [&mut self.window, &mut self.probation, &mut self.protected];
        queues.into_iter().find_map(|queue| take(queue, slot)).unwrap();
        self.fill_main();
    }
    fn restore(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.insert(slot, entry, now_seconds);
        self.hit(slot, now_seconds);
    }
    fn set_capacity(&mut self, capacity_weight: u64) {
        self.capacity = capacity_weight;
        self.settle();
        self.fill_main();
    }
    plain_counts!(window, probation, protected);
    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }
    fn reweigh(&mut self, slot: Slot, weight: u32) {
        let queues = [&mut self.window, &mut self.probation, &mut self.protected];
        queues.into_iter().for_each(|queue| reweigh(queue, slot, weight));
        self.settle();
    }
}
