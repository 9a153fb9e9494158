//! Policies driven by a stream of requests, and their hits counted: no data, no devices.
//!
//! Objects are numbered in the order in which they first appear ([`Objects`]), once for all simulations of a trace, and an
//! object's number is its [`Slot`](crate::Slot) in every policy: no simulation has a table of keys of its own.
//! [`Simulation`] drives any [`Eviction`], compiled for each; Both it and caches that are more than an eviction policy are
//! [`Simulator`]s.
//!
//! On a miss entries are evicted until the newcomer fits, then it comes in. What is larger than the whole cache is not
//! cached. An entry keeps the size that it came in with. All of this can be otherwise: [`Rules`].

pub mod flash;
mod named;
mod objects;
mod rules;
mod simulation;

pub use named::{Policy, RuleBook, Settings, TOO_HEAVY};
pub use objects::Objects;
pub use rules::{Rules, SizeOnHit};
pub use simulation::Simulation;

use xxhash_rust::xxh3::xxh3_64;

use crate::Eviction;
use crate::eviction::{Clairvoyant, clairvoyant};

/// A request for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Its number, see [`Objects`].
    pub object: u32,
    /// What it weighs: 1 where objects are counted, its size where bytes are.
    pub weight: u32,
    /// When, seconds; never goes back.
    pub now_seconds: u32,
    /// It is not asked for but removed; that is no request.
    pub is_removal: bool,
    /// It is stored, whether or not it was there. Most simulations make no difference.
    pub is_set: bool,
}

/// A cache of any kind without contents.
pub trait Simulator: Send {
    /// Makes the requests, in their order. `next_uses` has the number (from 0, over all calls) of the next one for each
    /// one's object, or [`clairvoyant::NEVER`]; it may be empty where [`needs_future`](Self::needs_future) is false.
    fn run(&mut self, accesses: &[Access], next_uses: &[u64]);

    /// What was counted so far.
    fn counts(&self) -> Counts;

    /// Whether a request for the object would hit.
    fn holds(&self, object: u32) -> bool;

    /// The object's time to live is over: it leaves, if it is there. That is no access.
    fn expire(&mut self, object: u32);

    /// Whether it must be told next uses.
    fn needs_future(&self) -> bool {
        false
    }
}

/// What a simulation counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Requests seen.
    pub requests: u64,
    /// Of them, hits.
    pub hits: u64,
    /// Weight of all requests.
    pub weight: u64,
    /// Weight of the requests that hit.
    pub hit_weight: u64,
    /// Objects that came in.
    pub inserts: u64,
    /// Their weight.
    pub insert_weight: u64,
    /// Weight that was written to flash; 0 where there is none.
    pub written_weight: u64,
}

impl Counts {
    /// `1 - hits / requests`.
    #[must_use]
    pub fn miss_ratio(&self) -> f64 {
        1.0 - self.hits as f64 / self.requests as f64
    }

    /// `1 - hit_weight / weight`: of bytes where weights are sizes.
    #[must_use]
    pub fn weight_miss_ratio(&self) -> f64 {
        1.0 - self.hit_weight as f64 / self.weight as f64
    }

    /// What was counted since `earlier`, for warming up.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            requests: self.requests - earlier.requests,
            hits: self.hits - earlier.hits,
            weight: self.weight - earlier.weight,
            hit_weight: self.hit_weight - earlier.hit_weight,
            inserts: self.inserts - earlier.inserts,
            insert_weight: self.insert_weight - earlier.insert_weight,
            written_weight: self.written_weight - earlier.written_weight,
        }
    }
}

/// A request for a key that has no number yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The key.
    pub key: u64,
    /// What the object weighs.
    pub weight: u32,
    /// When, seconds; never goes back.
    pub now_seconds: u32,
}

/// A policy's counts over all of a trace.
#[must_use]
pub fn run(policy: impl Eviction, capacity_weight: u64, requests: &[Request]) -> Counts {
    let mut simulation = Simulation::new(policy, capacity_weight);
    simulation.run(&numbered(requests), &[]);
    simulation.counts()
}

/// The counts of MIN over all of a trace: where all weights are equal, no policy hits more often.
#[must_use]
pub fn run_clairvoyant(capacity_weight: u64, requests: &[Request]) -> Counts {
    let next_uses = clairvoyant::next_uses(requests.iter().map(|request| request.key));
    let (policy, next_use) = Clairvoyant::new();
    let mut simulation = Simulation::new(policy, capacity_weight).with_future(next_use);
    simulation.run(&numbered(requests), &next_uses);
    simulation.counts()
}

/// The requests with numbers for their keys.
#[must_use]
pub fn numbered(requests: &[Request]) -> Vec<Access> {
    let mut objects = Objects::new();
    let numbered = requests.iter().map(|&Request { key, weight, now_seconds }| Access {
        object: objects.number(key),
        weight,
        now_seconds,
        is_removal: false,
        is_set: false,
    });
    numbered.collect()
}

/// The hash that a policy sees of a key.
#[must_use]
pub fn hash_of(key: u64) -> u64 {
    xxh3_64(&key.to_le_bytes())
}

/// The hash that a policy sees of an object. The upper 31 bits differ for different objects (as long as there are fewer than
/// 2^31), so that a policy that keeps no more of a hash than that is exact.
#[must_use]
pub fn hash_of_object(object: u32) -> u64 {
    const MASK: u32 = (1 << 31) - 1;
    // Each step can be undone within 31 bits, so different objects stay different.
    let mut mixed = object & MASK;
    mixed ^= mixed >> 16;
    mixed = mixed.wrapping_mul(0x7FEB_352D) & MASK;
    mixed ^= mixed >> 15;
    mixed = mixed.wrapping_mul(0x046C_A68B) & MASK;
    mixed ^= mixed >> 16;
    u64::from(mixed) << 33 | hash_of(object.into()) >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_since_earlier_ones_are_what_is_to_be_added_to_those() {
        let counts = |n: u64| Counts {
            requests: 7 * n,
            hits: 6 * n,
            weight: 5 * n,
            hit_weight: 4 * n,
            inserts: 3 * n,
            insert_weight: 2 * n,
            written_weight: n,
        };
        assert_eq!(counts(5).since(&counts(2)), counts(3));
    }

    #[test]
    fn objects_hashes_differ_in_their_upper_bits() {
        let mut upper: Vec<u64> = (0..1 << 20).map(|object| hash_of_object(object) >> 33).collect();
        upper.sort_unstable();
        upper.dedup();
        assert_eq!(upper.len(), 1 << 20);
    }

    /// It took the size of the object behind it when it left, and the cache then held twice what it has room for.
    #[test]
    fn an_object_of_no_bytes_that_comes_first_makes_no_room_when_it_leaves() {
        let request = |(key, weight)| Request { key, weight, now_seconds: 0 };
        let requests = [(1, 0), (2, 10), (3, 10), (2, 10)].map(request);
        assert_eq!(run(crate::eviction::Lru::exact(), 10, &requests).hits, 0);
    }
}
