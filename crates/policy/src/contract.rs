//! The contract of [`Eviction`] as executable checks: seeded random calls, with a plain map as the model.
//!
//! [`check`] tests the requirements on every policy. [`same_steps`] makes the same calls to a policy and its simplest correct twin, and
//! compares all results.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::simulate::hash_of;
use crate::{Entry, Eviction, HitRule, Slot};

/// Parameters of the random calls.
#[derive(Debug, Clone, Copy)]
pub struct Draw {
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of calls.
    pub steps: usize,
    /// Initial capacity.
    pub capacity_weight: u64,
    /// Weights are from 1 to this.
    pub weight_at_most: u32,
    /// Number of distinct keys; more than fit, so that some recur.
    pub keys: u64,
    /// Whether the capacity sometimes grows; otherwise it only shrinks.
    pub grows: bool,
}

impl Draw {
    /// Small capacities, and three keys for every entry that fits, depending on the seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let capacity_weight = rng.random_range(1..150);
        let weight_at_most = if rng.random() { 1 } else { rng.random_range(2..10) };
        Self { seed, steps: 1500, capacity_weight, weight_at_most, keys: capacity_weight * 3, grows: false }
    }
}

/// Makes random calls and checks the contract.
///
/// # Panics
/// If the policy violates it; the message contains the parameters.
pub fn check(policy: &mut dyn Eviction, draw: Draw) {
    Session::new(draw).run(&mut [policy]);
}

/// Makes the same random calls to two policies, compares all results, and checks the contract of both.
///
/// # Panics
/// If a result differs or the contract is violated; the message contains the parameters.
pub fn same_steps(policy: &mut dyn Eviction, twin: &mut dyn Eviction, draw: Draw) {
    Session::new(draw).run(&mut [policy, twin]);
}

/// Inserts entries into a full policy most of whose entries are pinned, and [restores](Eviction::restore) each pinned victim: the policy
/// must find an evictable entry before it has selected each entry twice.
///
/// # Panics
/// If it keeps selecting pinned entries, or all are pinned.
pub fn check_with_pinned(policy: &mut dyn Eviction, is_pinned: &[bool]) {
    let entries = is_pinned.len() as u32;
    let entry = |key: u64| Entry { hash: hash_of(key), weight: 1 };
    policy.set_capacity(entries.into());
    let mut keys: Vec<u64> = (0..entries.into()).collect();
    (0..entries).for_each(|slot| policy.insert(Slot(slot), entry(slot.into()), 0));
    for number in 0..10 * entries {
        let now_seconds = number;
        let mut chosen = 0;
        let slot = loop {
            let slot = policy.evict(now_seconds).expect("a full policy has a victim");
            if !is_pinned[slot.0 as usize] {
                break slot;
            }
            chosen += 1;
            assert!(
                chosen <= 2 * entries,
                "insert {number}: the only evictable one of {entries} entries was not selected"
            );
            policy.restore(slot, entry(keys[slot.0 as usize]), now_seconds);
        };
        keys[slot.0 as usize] = u64::from(entries + number);
        policy.insert(slot, entry(u64::from(entries + number)), now_seconds);
    }
}

/// The caller of a policy: assigns slots and tracks the entries.
struct Session {
    draw: Draw,
    rng: StdRng,
    now_seconds: u32,
    capacity_weight: u64,
    held: BTreeMap<Slot, Held>,
    free: Vec<Slot>,
}

#[derive(Clone, Copy)]
struct Held {
    key: u64,
    entry: Entry,
    reported_seconds: u32,
}

type Policies<'a, 'b> = &'a mut [&'b mut dyn Eviction];

impl Session {
    fn new(draw: Draw) -> Self {
        let free = (0..2 * draw.capacity_weight as u32 + 2).rev().map(Slot).collect();
        let rng = StdRng::seed_from_u64(draw.seed);
        Self { draw, rng, now_seconds: 0, capacity_weight: draw.capacity_weight, held: BTreeMap::new(), free }
    }

    fn run(mut self, policies: Policies) {
        policies.iter_mut().for_each(|policy| policy.set_capacity(self.capacity_weight));
        for _ in 0..self.draw.steps {
            self.now_seconds += self.rng.random_range(0..20);
            match self.rng.random_range(0..100) {
                0..75 => self.request(policies),
                75..80 => self.remove(policies),
                80..90 => drop(self.evict(policies)),
                90..95 => self.evict_and_restore(policies),
                95..97 => self.hit_some(policies),
                97 => self.reweigh(policies),
                _ => self.resize(policies),
            }
            self.check_counts(policies);
        }
        while self.evict(policies).is_some() {}
        assert!(self.held.is_empty(), "{:?}: entries remain that the policy does not evict", self.draw);
        self.check_counts(policies);
    }

    /// Requests a key: a hit, or an insertion with evictions before or after it.
    fn request(&mut self, policies: Policies) {
        let key = self.rng.random_range(0..self.draw.keys).min(self.rng.random_range(0..self.draw.keys));
        if let Some((&slot, _)) = self.held.iter().find(|(_, held)| held.key == key) {
            return self.hit(policies, slot);
        }
        let weight = self.rng.random_range(1..=self.draw.weight_at_most);
        if u64::from(weight) > self.capacity_weight {
            return;
        }
        let room_first = self.rng.random::<bool>();
        if room_first {
            self.make_room(policies, weight.into());
        }
        let slot = self.free.pop().expect("twice as many slots as fit");
        let entry = Entry { hash: hash_of(key), weight };
        self.held.insert(slot, Held { key, entry, reported_seconds: self.now_seconds });
        policies.iter_mut().for_each(|policy| policy.insert(slot, entry, self.now_seconds));
        if !room_first {
            self.make_room(policies, 0);
        }
    }

    /// Reports a hit as the policy's hit rule requires.
    fn hit(&mut self, policies: Policies, slot: Slot) {
        let held = self.held.get_mut(&slot).expect("only entries of the model are hit");
        let idle_seconds = self.now_seconds - held.reported_seconds;
        for policy in policies.iter_mut() {
            match policy.hit_rule() {
                HitRule::Ignore => {}
                HitRule::Mark { marks, at_most } => marks.bump(slot, at_most),
                HitRule::Refresh { refresh_seconds } if idle_seconds < refresh_seconds => {}
                HitRule::Refresh { .. } | HitRule::Every => {
                    held.reported_seconds = self.now_seconds;
                    policy.hit(slot, self.now_seconds);
                }
            }
        }
        self.settle(policies);
    }

    /// Evicts while a hit has left the policy overfull.
    fn settle(&mut self, policies: Policies) {
        while policies[0].is_overfull() {
            self.evict(policies).expect("an overfull policy has an entry to evict");
        }
        assert!(
            policies.iter().all(|policy| !policy.is_overfull()),
            "{:?}: a policy is still overfull",
            self.draw
        );
    }

    fn reweigh(&mut self, policies: Policies) {
        let Some(slot) = self.any_held() else { return };
        let weight = self.rng.random_range(1..=self.draw.weight_at_most);
        self.held.get_mut(&slot).expect("the slot has an entry").entry.weight = weight;
        policies.iter_mut().for_each(|policy| policy.reweigh(slot, weight));
        self.make_room(policies, 0);
        self.settle(policies);
    }

    fn evict(&mut self, policies: Policies) -> Option<(Slot, Held)> {
        let answers: Vec<_> = policies.iter_mut().map(|policy| policy.evict(self.now_seconds)).collect();
        let victim = answers[0];
        for &answer in &answers {
            assert_eq!(answer, victim, "{:?}: the victims of two policies differ", self.draw);
        }
        let Some(slot) = victim else {
            assert!(self.held.is_empty(), "{:?}: the policy evicts nothing, but has entries", self.draw);
            return None;
        };
        let left = self.held.remove(&slot);
        let left = left
            .unwrap_or_else(|| panic!("{:?}: the policy evicted {slot:?}, which has no entry", self.draw));
        self.free.push(slot);
        Some((slot, left))
    }

    fn remove(&mut self, policies: Policies) {
        if let Some(slot) = self.any_held() {
            self.held.remove(&slot);
            self.free.push(slot);
            policies.iter_mut().for_each(|policy| policy.remove(slot));
        }
    }

    fn evict_and_restore(&mut self, policies: Policies) {
        if let Some((slot, back)) = self.evict(policies) {
            self.free.pop();
            self.held.insert(slot, Held { reported_seconds: self.now_seconds, ..back });
            policies.iter_mut().for_each(|policy| policy.restore(slot, back.entry, self.now_seconds));
        }
    }

    fn hit_some(&mut self, policies: Policies) {
        for _ in 0..10 {
            if let Some(slot) = self.any_held() {
                self.hit(policies, slot);
            }
        }
    }

    fn resize(&mut self, policies: Policies) {
        let at_most = if self.draw.grows { self.draw.capacity_weight } else { self.capacity_weight };
        let at_least = at_most - at_most / 10;
        self.capacity_weight = self.rng.random_range(at_least..=at_most);
        policies.iter_mut().for_each(|policy| policy.set_capacity(self.capacity_weight));
        self.make_room(policies, 0);
    }

    fn make_room(&mut self, policies: Policies, weight: u64) {
        while self.held_weight() + weight > self.capacity_weight {
            self.evict(policies).expect("something is held");
        }
    }

    fn held_weight(&self) -> u64 {
        self.held.values().map(|held| u64::from(held.entry.weight)).sum()
    }

    fn any_held(&mut self) -> Option<Slot> {
        let number = self.rng.random_range(0..self.held.len().max(1));
        self.held.keys().nth(number).copied()
    }

    fn check_counts(&self, policies: &[&mut dyn Eviction]) {
        for policy in policies {
            assert_eq!(policy.len(), self.held.len(), "{:?}: entries held", self.draw);
            assert_eq!(policy.is_empty(), self.held.is_empty(), "{:?}", self.draw);
            match policy.oldest() {
                Some(oldest) => {
                    assert!(self.held.contains_key(&oldest), "{:?}: the oldest slot has no entry", self.draw);
                }
                None => {
                    assert!(self.held.is_empty(), "{:?}: no oldest slot, but there are entries", self.draw);
                }
            }
            if let Some(likely) = policy.likely_victim() {
                assert!(self.held.contains_key(&likely), "{:?}: the likely victim has no entry", self.draw);
            }
        }
    }
}
