//! A policy driven by a stream of requests, and its hits counted: no data, no devices.
//!
//! On a miss entries are evicted until the newcomer fits, then it comes in. What is larger than the whole cache is not
//! cached. An entry keeps the weight that it came in with.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::xxh3_64;

use crate::eviction::{Clairvoyant, clairvoyant};
use crate::{Entry, Eviction, HitRule, Slot};

/// A request for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The key.
    pub key: u64,
    /// What the object weighs: 1 where objects are counted, its size where bytes are.
    pub weight: u32,
    /// When, seconds; never goes back.
    pub now_seconds: u32,
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
}

/// A cache without contents.
pub struct Simulation {
    policy: Box<dyn Eviction>,
    capacity_weight: u64,
    held_weight: u64,
    slots: HashMap<u64, Slot, BuildHasherDefault<Spread>>,
    residents: Vec<Resident>,
    free: Vec<Slot>,
    counts: Counts,
}

struct Resident {
    request: Request,
    /// The last hit that the policy was told of.
    told_seconds: u32,
}

impl Simulation {
    /// An empty cache of `capacity_weight`, which the policy is told.
    #[must_use]
    pub fn new(mut policy: Box<dyn Eviction>, capacity_weight: u64) -> Self {
        policy.set_capacity(capacity_weight);
        Self {
            policy,
            capacity_weight,
            held_weight: 0,
            slots: HashMap::default(),
            residents: Vec::new(),
            free: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// One request; whether it hit.
    pub fn request(&mut self, request: &Request) -> bool {
        self.counts.requests += 1;
        self.counts.weight += u64::from(request.weight);
        match self.slots.get(&request.key).copied() {
            Some(slot) => {
                self.counts.hits += 1;
                self.counts.hit_weight += u64::from(request.weight);
                self.hit(slot, request.now_seconds);
                true
            }
            None => {
                self.miss(request);
                false
            }
        }
    }

    fn hit(&mut self, slot: Slot, now_seconds: u32) {
        let told = &mut self.residents[slot.0 as usize].told_seconds;
        match self.policy.hit_rule() {
            HitRule::Ignore => {}
            HitRule::Mark(marks) => marks.bump(slot),
            HitRule::Refresh { refresh_seconds } if now_seconds - *told < refresh_seconds => {}
            HitRule::Refresh { .. } | HitRule::Every => {
                *told = now_seconds;
                self.policy.hit(slot, now_seconds);
            }
        }
    }

    fn miss(&mut self, request: &Request) {
        let weight = u64::from(request.weight);
        if weight > self.capacity_weight {
            return;
        }
        while self.held_weight + weight > self.capacity_weight {
            let victim = self.policy.evict(request.now_seconds).expect("what is held can be evicted");
            let left = &self.residents[victim.0 as usize].request;
            self.held_weight -= u64::from(left.weight);
            self.slots.remove(&left.key).expect("a policy evicts what it holds");
            self.free.push(victim);
        }
        let slot = self.place(request);
        self.held_weight += weight;
        self.slots.insert(request.key, slot);
        let entry = Entry { hash: hash_of(request.key), weight: request.weight };
        self.policy.insert(slot, entry, request.now_seconds);
    }

    fn place(&mut self, request: &Request) -> Slot {
        let resident = Resident { request: *request, told_seconds: request.now_seconds };
        match self.free.pop() {
            Some(slot) => {
                self.residents[slot.0 as usize] = resident;
                slot
            }
            None => {
                self.residents.push(resident);
                Slot(u32::try_from(self.residents.len() - 1).expect("fewer than 2^32 residents"))
            }
        }
    }
}

/// A policy's counts over all of a trace.
#[must_use]
pub fn run(policy: Box<dyn Eviction>, capacity_weight: u64, requests: &[Request]) -> Counts {
    let mut simulation = Simulation::new(policy, capacity_weight);
    for request in requests {
        simulation.request(request);
    }
    simulation.counts()
}

/// The counts of MIN over all of a trace: where all weights are equal, no policy hits more often.
#[must_use]
pub fn run_clairvoyant(capacity_weight: u64, requests: &[Request]) -> Counts {
    let next_uses = clairvoyant::next_uses(requests.iter().map(|request| request.key));
    let (policy, next_use) = Clairvoyant::new();
    let mut simulation = Simulation::new(Box::new(policy), capacity_weight);
    for (request, next) in requests.iter().zip(next_uses) {
        next_use.set(next);
        simulation.request(request);
    }
    simulation.counts()
}

/// The hash that a policy sees of a key.
#[must_use]
pub fn hash_of(key: u64) -> u64 {
    xxh3_64(&key.to_le_bytes())
}

/// Keys of traces are often dense numbers; a multiplication spreads them enough for a table in memory.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64(bytes);
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }
}
