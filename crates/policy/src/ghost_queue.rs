//! An exact ghost queue: the evicted keys whose weights fit.
//!
//! [`Ghost`](crate::ghost::Ghost) is the same idea in four bytes a key. This one takes some tens and knows no strangers: it
//! is for simulations that are compared with others'. A key that is taken out no longer counts against the capacity.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use crate::hashed::Hashed;

/// Evicted keys, the oldest first.
#[derive(Default)]
pub struct GhostQueue {
    capacity_weight: u64,
    held_weight: u64,
    /// All inserted keys that were not pushed out, including those taken since.
    queue: VecDeque<Departed>,
    /// Number of keys pushed out of the queue, that is, the number of its front.
    first: u64,
    /// The number of each key that is still present.
    numbers: HashMap<u64, u64, Hashed>,
}

struct Departed {
    hash: u64,
    weight: u32,
    time: u64,
}

impl GhostQueue {
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

    /// The same, with the time of the eviction.
    pub fn insert_at(&mut self, hash: u64, weight: u32, time: u64) {
        if u64::from(weight) > self.capacity_weight {
            return;
        }
        let number = self.first + self.queue.len() as u64;
        if let Entry::Vacant(place) = self.numbers.entry(hash) {
            place.insert(number);
            self.held_weight += u64::from(weight);
            self.queue.push_back(Departed { hash, weight, time });
        }
    }

    /// Whether the key is among the ghosts; if so it is removed, because it returned.
    pub fn take(&mut self, hash: u64) -> bool {
        self.take_time(hash).is_some()
    }

    /// The same, with the time of the eviction.
    pub fn take_time(&mut self, hash: u64) -> Option<u64> {
        let number = self.numbers.remove(&hash);
        let ghost = number.map(|number| &self.queue[(number - self.first) as usize]);
        let taken = ghost.map(|ghost| (ghost.weight, ghost.time));
        if let Some((weight, _)) = taken {
            self.held_weight -= u64::from(weight);
        }
        self.trim();
        taken.map(|(_, time)| time)
    }

    /// Removes the oldest ghosts until the rest fit.
    pub fn trim(&mut self) {
        while self.held_weight > self.capacity_weight && self.pop() {}
    }

    /// Removes the oldest ghost; false if there is none.
    pub fn pop(&mut self) -> bool {
        while let Some(Departed { hash, weight, .. }) = self.queue.pop_front() {
            let number = self.first;
            self.first += 1;
            if self.numbers.get(&hash) == Some(&number) {
                self.numbers.remove(&hash);
                self.held_weight -= u64::from(weight);
                return true;
            }
        }
        false
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
    fn equals_a_list() {
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
