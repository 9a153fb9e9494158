//! Random replacement: evicts any entry, each with the same probability. Hits are ignored.
//!
//! Belady: "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966, class 1.

use crate::lehmer::Lehmer64;
use crate::pool::{Pool, pool_methods};
use crate::{Entry, Eviction, HitRule, Slot};

/// The entries and the generator.
pub struct Random {
    pool: Pool,
    random: Lehmer64,
}

impl Random {
    /// An empty policy.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { pool: Pool::default(), random: Lehmer64::new(seed) }
    }
}

impl Eviction for Random {
    fn insert(&mut self, slot: Slot, _entry: Entry, _now_seconds: u32) {
        self.pool.insert(slot);
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        let victim = self.pool.draw(&mut self.random)?;
        self.pool.remove(victim);
        Some(victim)
    }

    fn remove(&mut self, slot: Slot) {
        self.pool.remove(slot);
    }

    fn restore(&mut self, slot: Slot, _entry: Entry, _now_seconds: u32) {
        self.pool.restore(slot);
    }

    pool_methods!();

    fn hit_rule(&self) -> HitRule {
        HitRule::Ignore
    }

    fn bytes_per_slot(&self) -> u32 {
        Pool::BYTES_PER_SLOT
    }
}
