//! Clairvoyant with sizes: of some randomly sampled entries, evicts the one with the largest product of size and distance to its next use;
//! entries without a next use are evicted first. The optimum for unequal sizes is NP-hard; this is a heuristic for request hits, not a
//! bound, and for byte hits Belady's choice can be better.
//!
//! Berger, Beckmann, Harchol-Balter: "Practical bounds on optimal caching with variable object sizes", ACM POMACS 2(2), 2018, section 2.3
//! (Belady-Size). The sample has 128 entries, as in libCacheSim.
//!
//! The caller should not insert entries without a next use: they could only displace useful ones.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::eviction::clairvoyant::{NEVER, NextUse};
use crate::weights::Weights;
use crate::{Entry, Eviction, HitRule, Slot};

/// Sampled entries per eviction.
const SAMPLE: usize = 128;
/// The slot has no entry.
const GONE: u32 = u32::MAX;

/// Entries without order.
pub struct ClairvoyantSized {
    future: NextUse,
    next_use: Vec<u64>,
    weights: Weights,
    /// The entries, and the position of each slot among them.
    held: Vec<Slot>,
    place: Vec<u32>,
    /// Entries without a next use, and some that were removed.
    idle: Vec<Slot>,
    rng: StdRng,
}

impl ClairvoyantSized {
    /// Returns a policy that samples with this seed, and the handle that feeds it the future requests.
    #[must_use]
    pub fn new(seed: u64) -> (Self, NextUse) {
        let future = NextUse::default();
        let policy = Self {
            future: future.clone(),
            next_use: Vec::new(),
            weights: Weights::new(),
            held: Vec::new(),
            place: Vec::new(),
            idle: Vec::new(),
            rng: StdRng::seed_from_u64(seed),
        };
        (policy, future)
    }

    fn note_next_use(&mut self, slot: Slot) {
        let next_use = self.future.get();
        self.next_use[slot.0 as usize] = next_use;
        if next_use == NEVER {
            self.idle.push(slot);
        }
    }

    fn is_held(&self, slot: Slot) -> bool {
        self.place[slot.0 as usize] != GONE
    }

    fn next_idle(&mut self) -> Option<Slot> {
        while let Some(slot) = self.idle.pop() {
            if self.is_held(slot) && self.next_use[slot.0 as usize] == NEVER {
                return Some(slot);
            }
        }
        None
    }

    fn largest_drawn(&mut self) -> Option<Slot> {
        let now = self.future.now();
        let mut largest: Option<(f64, Slot)> = None;
        // With few entries all are examined instead of a sample.
        let all = self.held.len() <= SAMPLE;
        for number in 0..self.held.len().min(SAMPLE) {
            let place = if all { number } else { self.rng.random_range(0..self.held.len()) };
            let slot = self.held[place];
            let distance = self.next_use[slot.0 as usize].saturating_sub(now);
            let room = distance as f64 * self.weights.get(slot) as f64;
            if largest.is_none_or(|(most, _)| room > most) {
                largest = Some((room, slot));
            }
        }
        largest.map(|(_, slot)| slot)
    }
}

impl Eviction for ClairvoyantSized {
    fn insert(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        if slot.0 as usize >= self.place.len() {
            self.place.resize(slot.0 as usize + 1, GONE);
            self.next_use.resize(slot.0 as usize + 1, NEVER);
        }
        self.place[slot.0 as usize] = self.held.len() as u32;
        self.held.push(slot);
        self.weights.set(slot, entry.weight);
        self.note_next_use(slot);
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        self.note_next_use(slot);
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        let victim = self.next_idle().or_else(|| self.largest_drawn())?;
        self.remove(victim);
        Some(victim)
    }

    fn remove(&mut self, slot: Slot) {
        let place = self.place[slot.0 as usize];
        assert_ne!(place, GONE, "slot {} is not held", slot.0);
        self.held.swap_remove(place as usize);
        if let Some(moved) = self.held.get(place as usize) {
            self.place[moved.0 as usize] = place;
        }
        self.place[slot.0 as usize] = GONE;
    }

    fn len(&self) -> usize {
        self.held.len()
    }

    /// Any entry: the order is random.
    fn oldest(&self) -> Option<Slot> {
        self.held.first().copied()
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }

    fn reweigh(&mut self, slot: Slot, weight: u32) {
        self.weights.set(slot, weight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a regression: with a sample as large as the cache, some entries are drawn twice and others never.
    #[test]
    fn all_entries_are_examined_if_the_sample_covers_them() {
        for seed in 0..20 {
            let (mut policy, future) = ClairvoyantSized::new(seed);
            for slot in 0..SAMPLE as u32 {
                future.set(0, 1000);
                policy.insert(Slot(slot), Entry { hash: 0, weight: if slot == 77 { 2 } else { 1 } }, 0);
            }
            assert_eq!(policy.evict(0), Some(Slot(77)), "seed {seed}");
        }
    }
}
