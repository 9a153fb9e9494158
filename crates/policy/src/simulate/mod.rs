//! Runs policies on a stream of requests and counts their hits, without data or devices.
//!
//! Objects are numbered in order of first appearance ([`Objects`]), once for all simulations of a trace, and an object's number is its
//! [`Slot`](crate::Slot) in every policy, so no simulation needs a key table. [`Simulation`] runs any [`Eviction`], compiled for each; it
//! and caches that are more than an eviction policy implement [`Simulator`].
//!
//! On a miss entries are evicted until the new one fits, then it is inserted. Objects larger than the cache are not cached. An entry keeps
//! its size at insertion. [`Rules`] can change all of this.

mod adapt_size;
mod admission;
mod curve;
pub mod flash;
mod named;
mod objects;
mod rules;
mod simulation;

pub use admission::SimulatedAdmission;
pub use curve::LruCurve;
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
    /// Weight: 1 if objects are counted, the size if bytes are.
    pub weight: u32,
    /// Time in seconds; never decreases.
    pub now_seconds: u32,
    /// The object is removed; this does not count as a request.
    pub is_removal: bool,
    /// The object is stored, whether cached or not. Most simulations ignore this.
    pub is_set: bool,
}

/// A cache of any kind without data.
pub trait Simulator: Send {
    /// Runs the requests in order. `next_uses` has the number (from 0, over all calls) of the next request for each object, or
    /// [`clairvoyant::NEVER`]; it can be empty if [`needs_future`](Self::needs_future) is false.
    fn run(&mut self, accesses: &[Access], next_uses: &[u64]);

    /// The counts so far.
    fn counts(&self) -> Counts;

    /// Whether a request for the object would hit.
    fn holds(&self, object: u32) -> bool;

    /// Removes an expired object, if it is cached. This is not an access.
    fn expire(&mut self, object: u32);

    /// Whether it requires `next_uses`.
    fn needs_future(&self) -> bool {
        false
    }
}

/// Counts of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Requests seen.
    pub requests: u64,
    /// Requests that hit.
    pub hits: u64,
    /// Weight of all requests.
    pub weight: u64,
    /// Weight of the requests that hit.
    pub hit_weight: u64,
    /// Objects inserted.
    pub inserts: u64,
    /// Weight of the objects inserted.
    pub insert_weight: u64,
    /// Weight written to flash; 0 without flash.
    pub written_weight: u64,
}

impl Counts {
    /// `1 - hits / requests`.
    #[must_use]
    pub fn miss_ratio(&self) -> f64 {
        1.0 - self.hits as f64 / self.requests as f64
    }

    /// `1 - hit_weight / weight`: the byte miss ratio if weights are sizes.
    #[must_use]
    pub fn weight_miss_ratio(&self) -> f64 {
        1.0 - self.hit_weight as f64 / self.weight as f64
    }

    /// The counts since `earlier`, to exclude a warm-up.
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

/// A request whose key has no number yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The key.
    pub key: u64,
    /// Weight of the object.
    pub weight: u32,
    /// Time in seconds; never decreases.
    pub now_seconds: u32,
}

/// A policy's counts for a whole trace.
#[must_use]
pub fn run(policy: impl Eviction, capacity_weight: u64, requests: &[Request]) -> Counts {
    let mut simulation = Simulation::new(policy, capacity_weight);
    simulation.run(&numbered(requests), &[]);
    simulation.counts()
}

/// The counts of MIN for a whole trace: with equal weights no policy has more hits.
#[must_use]
pub fn run_clairvoyant(capacity_weight: u64, requests: &[Request]) -> Counts {
    let next_uses = clairvoyant::next_uses(requests.iter().map(|request| request.key));
    let (policy, next_use) = Clairvoyant::new();
    let mut simulation = Simulation::new(policy, capacity_weight).with_future(next_use);
    simulation.run(&numbered(requests), &next_uses);
    simulation.counts()
}

/// The requests with numbers instead of keys.
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

/// The hash of a key for policies.
#[must_use]
pub fn hash_of(key: u64) -> u64 {
    xxh3_64(&key.to_le_bytes())
}

/// The hash of an object for policies. The upper 31 bits differ for different objects (up to 2^31), so that a policy that stores only those
/// is exact.
#[must_use]
pub fn hash_of_object(object: u32) -> u64 {
    const MASK: u32 = (1 << 31) - 1;
    // Each step is invertible within 31 bits, so different objects stay different.
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
    fn counts_since_plus_earlier_equals_the_total() {
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
    fn object_hashes_differ_in_their_upper_bits() {
        let mut upper: Vec<u64> = (0..1 << 20).map(|object| hash_of_object(object) >> 33).collect();
        upper.sort_unstable();
        upper.dedup();
        assert_eq!(upper.len(), 1 << 20);
    }

    /// Catches a regression: at its eviction the object is counted with the next object's size, so the cache holds
    /// twice its capacity.
    #[test]
    fn evicting_an_object_of_zero_bytes_frees_nothing() {
        let request = |(key, weight)| Request { key, weight, now_seconds: 0 };
        let requests = [(1, 0), (2, 10), (3, 10), (2, 10)].map(request);
        assert_eq!(run(crate::eviction::Lru::exact(), 10, &requests).hits, 0);
    }
}
