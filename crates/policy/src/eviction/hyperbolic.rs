//! Hyperbolic caching: an entry's priority is the number of its requests divided by its time in the cache, which decays like a hyperbola
//! between requests. Of a sample of entries, the one with the lowest priority is evicted.
//!
//! Blankstein, Sen, Freedman: "Hyperbolic caching: flexible caching for web applications", USENIX ATC'17, section 3. Time is counted in
//! requests and 64 entries are sampled with replacement, as in the paper's simulations and in libCacheSim. Sizes have no influence: the
//! paper's size-aware variant is not implemented.

use crate::lehmer::Lehmer64;
use crate::pool::{Pool, pool_methods};
use crate::requests::RequestClock;
use crate::{Entry, Eviction, HitRule, Slot};

const SAMPLES: u32 = 64;

/// The entries, and their requests.
pub struct Hyperbolic {
    pool: Pool,
    random: Lehmer64,
    clock: RequestClock,
    entries: Vec<Requested>,
}

/// Requests for an entry.
#[derive(Clone, Copy, Default)]
struct Requested {
    requests: u32,
    /// Time of insertion.
    since: u64,
}

impl Requested {
    fn priority(self, now: u64) -> f64 {
        // An entry can be a candidate within the request that inserted it.
        f64::from(self.requests) / (now - self.since).max(1) as f64
    }
}

impl Hyperbolic {
    /// An empty policy.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let (pool, clock) = (Pool::default(), RequestClock::default());
        Self { pool, random: Lehmer64::new(seed), clock, entries: Vec::new() }
    }

    fn begin(&mut self, slot: Slot) {
        if slot.0 as usize >= self.entries.len() {
            self.entries.resize(slot.0 as usize + 1, Requested::default());
        }
        self.entries[slot.0 as usize] = Requested { requests: 1, since: self.clock.now() };
    }
}

impl Eviction for Hyperbolic {
    fn announce(&mut self, _entry: Entry) {
        self.clock.announce();
    }

    fn refuse(&mut self, _entry: Entry) {
        self.clock.tick();
    }

    fn insert(&mut self, slot: Slot, _entry: Entry, _now_seconds: u32) {
        self.clock.insert();
        self.begin(slot);
        self.pool.insert(slot);
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        self.clock.tick();
        let entry = &mut self.entries[slot.0 as usize];
        entry.requests = entry.requests.saturating_add(1);
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        let (mut victim, mut lowest) = (None, f64::INFINITY);
        for _ in 0..SAMPLES {
            let slot = self.pool.draw(&mut self.random)?;
            let priority = self.entries[slot.0 as usize].priority(self.clock.now());
            if priority < lowest {
                (victim, lowest) = (Some(slot), priority);
            }
        }
        let victim = victim?;
        self.pool.remove(victim);
        Some(victim)
    }

    fn remove(&mut self, slot: Slot) {
        self.pool.remove(slot);
    }

    fn restore(&mut self, slot: Slot, _entry: Entry, _now_seconds: u32) {
        self.begin(slot);
        self.pool.restore(slot);
    }

    pool_methods!();

    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }

    fn bytes_per_slot(&self) -> u32 {
        Pool::BYTES_PER_SLOT + 2 * size_of::<Requested>() as u32
    }
}
