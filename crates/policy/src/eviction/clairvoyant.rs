//! MIN: evict what will not be used for longest. No policy hits more often where all entries weigh the same, so
//! it is the ceiling that others are measured against. It must be told the future, so it serves simulation only.
//!
//! Belady: "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966. It does not
//! look at weights, and a newcomer always comes in, also where it is the one that will not be used for longest.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Entry, Eviction, HitRule, Slot};

/// When the request in hand comes again: set before each request, read by the policy on its insertion or hit.
#[derive(Clone, Default)]
pub struct NextUse(Arc<AtomicU64>);

/// It never comes again.
pub const NEVER: u64 = u64::MAX;

impl NextUse {
    /// The number of the next request for the same key, or [`NEVER`].
    pub fn set(&self, request_number: u64) {
        self.0.store(request_number, Ordering::Relaxed);
    }
}

/// Entries by their next use.
pub struct Clairvoyant {
    told: NextUse,
    next_use: Vec<u64>,
    order: BTreeSet<(u64, Slot)>,
}

impl Clairvoyant {
    /// A policy, and what to tell it the future by.
    #[must_use]
    pub fn new() -> (Self, NextUse) {
        let told = NextUse::default();
        (Self { told: told.clone(), next_use: Vec::new(), order: BTreeSet::new() }, told)
    }
}

/// For each request, the number of the next one for the same key.
#[must_use]
pub fn next_uses(keys: impl DoubleEndedIterator<Item = u64> + ExactSizeIterator) -> Vec<u64> {
    let mut seen = HashMap::new();
    let mut next_uses = vec![NEVER; keys.len()];
    for (number, key) in keys.enumerate().rev() {
        next_uses[number] = seen.insert(key, number as u64).unwrap_or(NEVER);
    }
    next_uses
}

impl Eviction for Clairvoyant {
    fn insert(&mut self, slot: Slot, _entry: Entry, _now_seconds: u32) {
        if slot.0 as usize >= self.next_use.len() {
            self.next_use.resize(slot.0 as usize + 1, NEVER);
        }
        let next_use = self.told.0.load(Ordering::Relaxed);
        self.next_use[slot.0 as usize] = next_use;
        self.order.insert((next_use, slot));
    }

    fn hit(&mut self, slot: Slot, now_seconds: u32) {
        self.remove(slot);
        self.insert(slot, Entry { hash: 0, weight: 1 }, now_seconds);
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        self.order.pop_last().map(|(_, slot)| slot)
    }

    fn remove(&mut self, slot: Slot) {
        let was_held = self.order.remove(&(self.next_use[slot.0 as usize], slot));
        assert!(was_held, "slot {} is not held", slot.0);
    }

    fn set_capacity(&mut self, _capacity_weight: u64) {}

    fn len(&self) -> usize {
        self.order.len()
    }

    fn oldest(&self) -> Option<Slot> {
        self.order.last().map(|&(_, slot)| slot)
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }
}
