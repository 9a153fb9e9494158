//! A set-associative cache: an object's hash selects its set, a set is read and written as a whole, and new objects evict the oldest of
//! their set. There is no index, but every new object costs a write of its set.
//!
//! CacheLib's small-object cache is one: Berg et al.: "The CacheLib caching engine", OSDI'20, section 4.3. The baseline in McAllister et
//! al.: "Kangaroo: caching billions of tiny objects on flash", SOSP'21: FIFO within a set, no admission.

use std::collections::HashMap;

use super::{FlashCache, WeightedObject};
use crate::simulate::hash_of_object;

/// The sets.
pub struct Sets {
    set_weight: u64,
    set_count: u64,
    /// Non-empty sets so far, the oldest object of each first: a cache can have far more space than is requested.
    sets: HashMap<u64, Vec<WeightedObject>>,
    held: Vec<bool>,
    written_weight: u64,
    read_sets: u64,
    touched: Vec<u64>,
}

impl Sets {
    /// Sets of this weight, at least one.
    #[must_use]
    pub fn new(capacity_weight: u64, set_weight: u64) -> Self {
        let set_weight = set_weight.clamp(1, capacity_weight.max(1));
        Self {
            set_weight,
            set_count: (capacity_weight / set_weight).max(1),
            sets: HashMap::new(),
            held: Vec::new(),
            written_weight: 0,
            read_sets: 0,
            touched: Vec::new(),
        }
    }

    /// Sets read before they were written, because they were not empty.
    #[must_use]
    pub fn read_sets(&self) -> u64 {
        self.read_sets
    }

    /// Removes expired objects from the set of `object`, which is about to be written.
    pub(super) fn sweep(&mut self, object: u32, has_expired: impl Fn(u32) -> bool) {
        if let Some(set) = self.sets.get_mut(&self.set_of(object)) {
            for gone in set.extract_if(.., |held| has_expired(held.object)) {
                self.held[gone.object as usize] = false;
            }
        }
    }

    fn set_of(&self, object: u32) -> u64 {
        ((u128::from(hash_of_object(object)) * u128::from(self.set_count)) >> 64) as u64
    }
}

impl FlashCache for Sets {
    fn holds(&self, object: u32) -> bool {
        self.held.get(object as usize).copied().unwrap_or(false)
    }

    fn hit(&mut self, _object: u32) {}

    /// New objects of the same call that belong to one set share one write.
    fn insert(&mut self, objects: &[WeightedObject]) {
        self.touched.clear();
        for inserted in objects {
            let number = self.set_of(inserted.object);
            let is_first = !self.touched.contains(&number);
            if is_first {
                self.touched.push(number);
                self.written_weight += self.set_weight;
            }
            if inserted.object as usize >= self.held.len() {
                self.held.resize(inserted.object as usize + 1, false);
            }
            let set = self.sets.entry(number).or_default();
            self.read_sets += u64::from(is_first && !set.is_empty());
            let mut held_weight: u64 = set.iter().map(|held| u64::from(held.weight)).sum();
            let mut leave = 0;
            while held_weight + u64::from(inserted.weight) > self.set_weight {
                held_weight -= u64::from(set[leave].weight);
                self.held[set[leave].object as usize] = false;
                leave += 1;
            }
            set.drain(..leave);
            set.push(*inserted);
            self.held[inserted.object as usize] = true;
        }
    }

    fn remove(&mut self, object: u32) {
        self.expire(object);
        self.read_sets += 1;
        self.written_weight += self.set_weight;
    }

    fn expire(&mut self, object: u32) {
        if let Some(set) = self.sets.get_mut(&self.set_of(object)) {
            set.retain(|held| held.object != object);
        }
        self.held[object as usize] = false;
    }

    fn written_weight(&self) -> u64 {
        self.written_weight
    }

    fn weight_at_most(&self) -> u64 {
        self.set_weight
    }
}
