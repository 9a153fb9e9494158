//! An exact ghost queue: the evicted keys whose weights fit.
//!
//! [`Ghost`](crate::ghost::Ghost) is the same idea in four bytes a key, and may take one key for another. This one takes 21 bytes a key
//! (16 in the queue, 5 in the table), before the spare capacity of both. A key that is taken out no longer counts against the capacity.

use std::collections::VecDeque;

use hashbrown::HashTable;

/// Evicted keys, the oldest first.
#[derive(Default)]
pub struct GhostQueue {
    capacity_weight: u64,
    held_weight: u64,
    /// All inserted keys that were not pushed out, including those taken since.
    queue: VecDeque<Ghost>,
    /// Number of keys pushed out of the queue, that is, the number of its front. It wraps.
    first: u32,
    /// The number of each key that is still present.
    numbers: HashTable<u32>,
}

struct Ghost {
    hash: u64,
    weight: u32,
    time: u32,
}

impl GhostQueue {
    /// Memory of a ghost, bytes: 21, in arrays that are up to half empty.
    pub(crate) const BYTES_PER_GHOST: u32 = 48;

    /// Changes the capacity.
    pub fn set_capacity(&mut self, capacity_weight: u64) {
        self.capacity_weight = capacity_weight;
        self.trim();
    }

    /// Records an evicted key. Expired ghosts are removed by the next [`take`](Self::take) only, so that a request's own ghost survives the
    /// evictions that make room for it.
    pub fn insert(&mut self, hash: u64, weight: u32) {
        self.insert_at(hash, weight, 0);
    }

    /// Records a key that was evicted at `time`, which may wrap. Returns false if the key has a ghost already, or exceeds the capacity.
    pub fn insert_at(&mut self, hash: u64, weight: u32, time: u32) -> bool {
        if u64::from(weight) > self.capacity_weight || self.find(hash).is_some() {
            return false;
        }
        let number = self.first.wrapping_add(self.queue.len() as u32);
        self.queue.push_back(Ghost { hash, weight, time });
        self.held_weight += u64::from(weight);
        let (queue, first) = (&self.queue, self.first);
        self.numbers.insert_unique(hash, number, |&number| queue[number.wrapping_sub(first) as usize].hash);
        true
    }

    fn find(&self, hash: u64) -> Option<&u32> {
        self.numbers.find(hash, |number| self.queue[number.wrapping_sub(self.first) as usize].hash == hash)
    }

    /// The time of the eviction of a key that is among the ghosts.
    #[must_use]
    pub fn time_of(&self, hash: u64) -> Option<u32> {
        self.find(hash).map(|number| self.queue[number.wrapping_sub(self.first) as usize].time)
    }

    /// Changes the time of a key that is among the ghosts.
    pub fn set_time(&mut self, hash: u64, time: u32) {
        if let Some(&number) = self.find(hash) {
            self.queue[number.wrapping_sub(self.first) as usize].time = time;
        }
    }

    /// Whether the key is among the ghosts; if so it is removed, because it returned.
    pub fn take(&mut self, hash: u64) -> bool {
        self.take_time(hash).is_some()
    }

    /// Removes the key if it is among the ghosts, and returns the time of its eviction.
    pub fn take_time(&mut self, hash: u64) -> Option<u32> {
        let taken = self.find(hash).copied().map(|number| {
            self.forget(hash, number);
            let ghost = &self.queue[number.wrapping_sub(self.first) as usize];
            self.held_weight -= u64::from(ghost.weight);
            ghost.time
        });
        self.trim();
        taken
    }

    /// Whether the key was present under that number; it no longer is.
    fn forget(&mut self, hash: u64, number: u32) -> bool {
        self.numbers.find_entry(hash, |&held| held == number).map(|entry| entry.remove()).is_ok()
    }

    /// Removes the oldest ghosts until the rest fit.
    pub fn trim(&mut self) {
        while self.held_weight > self.capacity_weight && self.pop().is_some() {}
    }

    /// Removes the oldest ghost and returns its time.
    pub fn pop(&mut self) -> Option<u32> {
        while let Some(&Ghost { hash, weight, time }) = self.queue.front() {
            let was_present = self.forget(hash, self.first);
            self.queue.pop_front();
            self.first = self.first.wrapping_add(1);
            if was_present {
                self.held_weight -= u64::from(weight);
                return Some(time);
            }
        }
        None
    }

    /// The largest weight of all ghosts.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity_weight
    }

    /// The weight of all ghosts.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.held_weight
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;
    use crate::simulate::hash_of;

    #[test]
    fn ghost_queue_equals_a_list() {
        for seed in 0..40 {
            let mut rng = StdRng::seed_from_u64(seed);
            let capacity: u64 = rng.random_range(0..100);
            let (mut ghosts, mut twin) = (GhostQueue::default(), Vec::<(u64, u32)>::new());
            ghosts.set_capacity(capacity);
            for _ in 0..2000 {
                let key = rng.random_range(0..120);
                let was_there = twin.iter().any(|&(held, _)| held == key);
                assert_eq!(ghosts.take(hash_of(key)), was_there, "seed {seed}, key {key}");
                twin.retain(|&(held, _)| held != key);
                let weight: u32 = rng.random_range(1..5);
                if u64::from(weight) <= capacity && rng.random() {
                    ghosts.insert(hash_of(key), weight);
                    ghosts.trim(); // as the next request would
                    twin.push((key, weight));
                    while twin.iter().map(|&(_, weight)| u64::from(weight)).sum::<u64>() > capacity {
                        twin.remove(0);
                    }
                }
            }
        }
    }
}
