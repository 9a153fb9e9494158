//! Exact LRU at many cache sizes in one pass, by stack distances (Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems
//! Journal 9(2), 1970; sums over request times as in Bennett and Kruskal, "LRU stack processing", IBM Journal of R&D 19(4), 1975).
//!
//! Sort all objects by their last request. An LRU cache has the front of this list, up to its capacity. The depth of an object is the weight of
//! the list down to it. A request hits in all caches that are at least as large as the depth of its object. This is also exact for objects of
//! different sizes: the last victim did not fit beside the objects in front of it, and their weight only grows until the next eviction.
//!
//! In four cases the caches stop having the front of one list. Those that differ continue as a [`Simulation`] each, so that the counts are
//! exact in any case:
//!
//! * an object is larger than some of the caches, which do not insert it;
//! * an object is requested with another size, which caches that have the object ignore;
//! * an object is removed, which leaves free space in its caches. Among objects of one weight, the list has a *hole*
//!   at the object's position. The next insert fills the hole, and leaves one at the inserted object's old position;
//! * the caller asks for it ([`LruCurve::into_simulations`]).

use std::collections::BinaryHeap;
use std::ops::Range;

use super::{Access, Counts, Simulation, Simulator as _};
use crate::eviction::Lru;
use crate::eviction::clairvoyant::NEVER;

mod stack;
mod sums;

use stack::Stack;

/// Requests whose memory is prefetched together.
const GROUP: usize = 32;

/// LRU caches of several sizes.
pub struct LruCurve {
    stack: Stack,
    /// The caches that have the front of the list, the smallest first.
    fronts: Vec<Front>,
    separate: Vec<Separate>,
    requests: u64,
    weight: u64,
    /// The weight of all objects so far; `None` if it differs.
    only_weight: Option<u32>,
    /// Positions of holes.
    holes: BinaryHeap<u32>,
}

struct Front {
    capacity_weight: u64,
    /// Number of the cache in the caller's order.
    number: usize,
    /// Hits in this cache that the next smaller one does not have, and their weight.
    hits: u64,
    hit_weight: u64,
}

struct Separate {
    number: usize,
    simulation: Simulation<Lru>,
    /// The first access of the current group that it has not seen.
    from: usize,
}

impl LruCurve {
    /// Creates empty caches with the given capacities.
    #[must_use]
    pub fn new(capacity_weights: &[u64]) -> Self {
        let front = |(number, &capacity_weight)| Front { capacity_weight, number, hits: 0, hit_weight: 0 };
        let mut fronts: Vec<Front> = capacity_weights.iter().enumerate().map(front).collect();
        fronts.sort_by_key(|front| front.capacity_weight);
        Self {
            stack: Stack::new(),
            fronts,
            separate: Vec::new(),
            requests: 0,
            weight: 0,
            only_weight: None,
            holes: BinaryHeap::new(),
        }
    }

    /// Runs the requests in order.
    pub fn run(&mut self, accesses: &[Access]) {
        for group in accesses.chunks(GROUP) {
            if !self.fronts.is_empty() {
                group.iter().for_each(|access| self.stack.prefetch_object(access.object));
                group.iter().for_each(|access| self.stack.prefetch_weight(access.object));
                for (place, access) in group.iter().enumerate() {
                    self.access(access, place);
                }
            }
            for Separate { simulation, from, .. } in &mut self.separate {
                simulation.run(&group[std::mem::take(from)..], &[]);
            }
        }
    }

    /// The counts of each cache, in the order of [`new`](Self::new).
    #[must_use]
    pub fn counts(&self) -> Vec<Counts> {
        let of_fronts = self.fronts.iter().zip(self.counts_of_fronts());
        let of_fronts = of_fronts.map(|(front, counts)| (front.number, counts));
        let of_separate = self.separate.iter().map(|it| (it.number, it.simulation.counts()));
        in_order(of_fronts.chain(of_separate))
    }

    /// A simulation of each cache, in the order of [`new`](Self::new), to continue with requests that the list cannot represent.
    #[must_use]
    pub fn into_simulations(mut self) -> Vec<Simulation<Lru>> {
        self.separate(0..self.fronts.len(), 0);
        in_order(self.separate.into_iter().map(|it| (it.number, it.simulation)))
    }

    /// Runs an access, the one at `place` of its group.
    #[inline]
    fn access(&mut self, access: &Access, place: usize) {
        let &Access { object, weight, .. } = access;
        if self.stack.is_full() {
            self.renumber();
        }
        if access.is_removal {
            return self.remove(object, place);
        }
        if self.only_weight != Some(weight) {
            self.add_weight(weight, place);
        }
        let is_too_small = |front: &Front| front.capacity_weight < u64::from(weight);
        if self.fronts.first().is_some_and(is_too_small) {
            self.separate(0..self.fronts.partition_point(is_too_small), place);
        }
        let mut kept_weight = weight;
        match self.stack.position(object) {
            Some(position) => {
                let mut hits_from = self.hits_from(position);
                let held_weight = self.stack.weight(position);
                if held_weight != weight {
                    (hits_from, kept_weight) = self.change_weight(hits_from, held_weight, weight, place);
                }
                if let Some(front) = self.fronts.get_mut(hits_from) {
                    front.hits += 1;
                    front.hit_weight += u64::from(weight);
                }
                match self.holes.peek() {
                    Some(hole) if *hole > position => {
                        self.fill_hole();
                        self.make_hole(position);
                    }
                    _ => self.stack.clear(position),
                }
            }
            None => self.fill_hole(),
        }
        self.stack.push(object, kept_weight);
        self.requests += 1;
        self.weight += u64::from(weight);
    }

    /// The smallest cache that has the object of this position.
    #[inline]
    fn hits_from(&self, position: u32) -> usize {
        let depth = self.stack.depth(position);
        self.fronts.partition_point(|front| front.capacity_weight < depth)
    }

    fn remove(&mut self, object: u32, place: usize) {
        let Some(position) = self.stack.position(object) else { return };
        if self.only_weight.is_some() {
            return self.make_hole(position);
        }
        self.separate(self.hits_from(position)..self.fronts.len(), place);
        // The caches that do not hold the object are full without it and the objects behind it. They stay full, because its weight stays
        // in the stack.
        self.stack.empty(position);
    }

    fn make_hole(&mut self, position: u32) {
        self.stack.empty(position);
        self.holes.push(position);
    }

    #[inline]
    fn fill_hole(&mut self) {
        if let Some(hole) = self.holes.pop() {
            self.stack.clear(hole);
        }
    }

    /// Handles a weight that differs from those before.
    #[cold]
    fn add_weight(&mut self, weight: u32, place: usize) {
        self.only_weight = if self.requests == 0 { Some(weight) } else { None };
        // Holes are for objects of one weight.
        if let Some(hole) = self.holes.pop().filter(|_| self.only_weight.is_none()) {
            self.separate(self.hits_from(hole)..self.fronts.len(), place);
            self.holes.clear();
        }
    }

    /// Handles a request with another weight than the object had. Returns the smallest cache that hits, and the object's weight from now on:
    /// the caches that hit keep its weight, and the others insert it with the new one.
    #[cold]
    fn change_weight(&mut self, hits_from: usize, held: u32, weight: u32, place: usize) -> (usize, u32) {
        let hits = self.fronts.len() - hits_from;
        if hits < hits_from {
            self.separate(hits_from..self.fronts.len(), place);
            return (hits_from, weight);
        }
        self.separate(0..hits_from, place);
        (0, if hits == 0 { weight } else { held })
    }

    /// Continues some caches as simulations, from the access at `place` of the current group.
    #[cold]
    fn separate(&mut self, range: Range<usize>, place: usize) {
        let counts = self.counts_of_fronts();
        let after = range.end;
        let (mut hits, mut hit_weight) = (0, 0);
        for (front, counts) in self.fronts[range.clone()].iter().zip(&counts[range.clone()]) {
            let mut simulation = Simulation::new(Lru::exact(), front.capacity_weight);
            for (object, weight) in self.stack.within(front.capacity_weight) {
                let access = Access { object, weight, now_seconds: 0, is_removal: false, is_set: false };
                simulation.access(&access, NEVER);
            }
            let simulation = simulation.with_counts(*counts);
            self.separate.push(Separate { number: front.number, simulation, from: place });
            (hits, hit_weight) = (hits + front.hits, hit_weight + front.hit_weight);
        }
        if let Some(next) = self.fronts.get_mut(after) {
            (next.hits, next.hit_weight) = (next.hits + hits, next.hit_weight + hit_weight);
        }
        self.fronts.drain(range);
    }

    fn counts_of_fronts(&self) -> Vec<Counts> {
        let (mut hits, mut hit_weight) = (0, 0);
        let counts = self.fronts.iter().map(|front| {
            (hits, hit_weight) = (hits + front.hits, hit_weight + front.hit_weight);
            Counts {
                requests: self.requests,
                hits,
                weight: self.weight,
                hit_weight,
                inserts: self.requests - hits,
                insert_weight: self.weight - hit_weight,
                written_weight: 0,
            }
        });
        counts.collect()
    }

    #[cold]
    fn renumber(&mut self) {
        let deepest = self.fronts.last().map_or(0, |front| front.capacity_weight);
        let empty = self.stack.renumber(deepest);
        self.holes = if self.only_weight.is_some() { empty.into() } else { BinaryHeap::new() };
    }
}

fn in_order<T>(numbered: impl Iterator<Item = (usize, T)>) -> Vec<T> {
    let mut all: Vec<(usize, T)> = numbered.collect();
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, value)| value).collect()
}

#[cfg(test)]
mod tests;
