//! Runs any eviction policy as a cache without data.

use super::admission::Admitter;
use super::{Access, Counts, Rules, SimulatedAdmission, Simulator, SizeOnHit, hash_of_object};
use crate::eviction::clairvoyant::{NEVER, NextUse};
use crate::weights::Weights;
use crate::{Entry, Eviction, HitRule, Slot};

/// Requests looked ahead together: enough to overlap memory accesses, few enough for the first-level cache.
const GROUP: usize = 32;

/// A cache whose victims are selected by a policy. An object's number is its slot.
pub struct Simulation<P> {
    policy: P,
    hit_rule: HitRule,
    rules: Rules,
    /// `None` admits all.
    admitter: Option<Admitter>,
    future: Option<NextUse>,
    capacity_weight: u64,
    held_weight: u64,
    /// One bit per object.
    held: Vec<u64>,
    weights: Weights,
    /// Time of the last reported hit of each object; empty if the policy requires all hits or none.
    reported_seconds: Vec<u32>,
    /// Accesses so far, including removals.
    accesses: u64,
    counts: Counts,
}

impl<P: Eviction> Simulation<P> {
    /// Creates an empty cache of `capacity_weight`, and sets the policy's capacity.
    #[must_use]
    pub fn new(mut policy: P, capacity_weight: u64) -> Self {
        policy.set_capacity(capacity_weight);
        Self {
            hit_rule: policy.hit_rule(),
            policy,
            rules: Rules::default(),
            admitter: None,
            future: None,
            capacity_weight,
            held_weight: 0,
            held: Vec::new(),
            weights: Weights::new(),
            reported_seconds: Vec::new(),
            accesses: 0,
            counts: Counts::default(),
        }
    }

    /// The simulation with other rules.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> Self {
        let Rules { admission, seed, .. } = rules;
        self.admitter = (admission != SimulatedAdmission::Always)
            .then(|| Admitter::new(admission, self.capacity_weight, seed));
        self.rules = rules;
        self
    }

    /// The simulation of a policy that receives next uses through `future`.
    #[must_use]
    pub fn with_future(mut self, future: NextUse) -> Self {
        self.future = Some(future);
        self
    }

    /// The simulation with these counts, to continue one that began elsewhere.
    #[must_use]
    pub(super) fn with_counts(mut self, counts: Counts) -> Self {
        self.counts = counts;
        self
    }

    /// The policy.
    pub fn policy(&self) -> &P {
        &self.policy
    }

    /// Runs one access; returns whether it hit. `next_use` is ignored by policies that do not know the future.
    #[inline]
    pub fn access(&mut self, access: &Access, next_use: u64) -> bool {
        if let Some(future) = &self.future {
            future.set(self.accesses, next_use);
        }
        self.accesses += 1;
        let slot = Slot(access.object);
        if access.is_removal {
            self.remove(slot);
            return false;
        }
        self.counts.requests += 1;
        self.counts.weight += u64::from(access.weight);
        if let Some(admitter) = &mut self.admitter {
            admitter.observe(access);
        }
        let hit = self.holds(slot);
        if hit {
            self.counts.hits += 1;
            self.counts.hit_weight += u64::from(access.weight);
            self.hit(slot, access);
        } else if !(self.rules.only_reused && next_use == NEVER) {
            self.miss(slot, access);
        }
        hit
    }

    fn hit(&mut self, slot: Slot, access: &Access) {
        match &self.hit_rule {
            HitRule::Ignore => {}
            HitRule::Mark { marks, at_most } => marks.bump(slot, *at_most),
            HitRule::Refresh { .. } => self.hit_if_due(slot, access.now_seconds),
            HitRule::Every => self.policy.hit(slot, access.now_seconds),
        }
        while self.policy.is_overfull() && self.evict(access.now_seconds) {}
        if self.rules.size_on_hit == SizeOnHit::Update {
            self.update_size(slot, access);
        }
    }

    /// The refresh time is read each time, because tuning changes it.
    fn hit_if_due(&mut self, slot: Slot, now_seconds: u32) {
        let refresh_seconds = match self.policy.hit_rule() {
            HitRule::Refresh { refresh_seconds } => refresh_seconds,
            _ => 0,
        };
        let last_seconds = &mut self.reported_seconds[slot.0 as usize];
        if now_seconds - *last_seconds >= refresh_seconds {
            *last_seconds = now_seconds;
            self.policy.hit(slot, now_seconds);
        }
    }

    fn miss(&mut self, slot: Slot, access: &Access) {
        let weight = u64::from(access.weight);
        let entry = Entry { hash: hash_of_object(access.object), weight: access.weight };
        if self.admitter.as_mut().is_some_and(|admitter| !admitter.admits(access)) {
            return self.policy.refuse(entry);
        }
        if weight > self.capacity_weight.min(self.rules.weight_at_most) {
            if self.rules.ghost_only_weight != Some(weight) {
                return self.policy.refuse(entry);
            }
            self.policy.announce(entry);
            self.make_room(weight, access.now_seconds);
            if self.policy.had_ghost() {
                self.enter(slot, access);
            }
            return;
        }
        self.policy.announce(entry);
        if !self.rules.candidate_first {
            self.make_room(weight, access.now_seconds);
        }
        self.enter(slot, access);
        self.make_room(0, access.now_seconds);
        while self.policy.is_overfull() && self.evict(access.now_seconds) {}
    }

    fn enter(&mut self, slot: Slot, access: &Access) {
        let object = slot.0 as usize;
        if object / 64 >= self.held.len() {
            self.held.resize(object / 64 + 1, 0);
        }
        self.held[object / 64] |= 1 << (object % 64);
        self.held_weight += u64::from(access.weight);
        self.weights.set(slot, access.weight);
        if let HitRule::Refresh { .. } = self.hit_rule {
            if object >= self.reported_seconds.len() {
                self.reported_seconds.resize(object + 1, 0);
            }
            self.reported_seconds[object] = access.now_seconds;
        }
        self.counts.inserts += 1;
        self.counts.insert_weight += u64::from(access.weight);
        let entry = Entry { hash: hash_of_object(access.object), weight: access.weight };
        self.policy.insert(slot, entry, access.now_seconds);
    }

    /// Evicts until an object of this weight fits.
    fn make_room(&mut self, weight: u64, now_seconds: u32) {
        while self.held_weight + weight > self.capacity_weight && self.evict(now_seconds) {}
    }

    fn evict(&mut self, now_seconds: u32) -> bool {
        let Some(victim) = self.policy.evict(now_seconds) else { return false };
        self.leave(victim);
        true
    }

    fn remove(&mut self, slot: Slot) {
        if self.holds(slot) {
            self.policy.remove(slot);
            self.leave(slot);
        }
    }

    fn leave(&mut self, slot: Slot) {
        debug_assert!(self.holds(slot), "a policy evicts only its own entries");
        self.held[slot.0 as usize / 64] &= !(1 << (slot.0 % 64));
        self.held_weight -= self.weights.get(slot);
    }

    /// Handles another size of a hit entry, which can already be evicted by its own hit.
    fn update_size(&mut self, slot: Slot, access: &Access) {
        let (before, now) = (self.weights.get(slot), u64::from(access.weight));
        if now == before || !self.holds(slot) {
            return;
        }
        if now > self.capacity_weight.min(self.rules.weight_at_most) {
            return self.remove(slot);
        }
        self.held_weight = self.held_weight - before + now;
        self.weights.set(slot, access.weight);
        self.policy.reweigh(slot, access.weight);
        self.make_room(0, access.now_seconds);
    }

    #[inline]
    fn holds(&self, slot: Slot) -> bool {
        let word = self.held.get(slot.0 as usize / 64).copied().unwrap_or(0);
        word >> (slot.0 % 64) & 1 == 1
    }
}

impl<P: Eviction> Simulator for Simulation<P> {
    fn run(&mut self, accesses: &[Access], next_uses: &[u64]) {
        let mut slots = [Slot(0); GROUP];
        let mut next_uses = next_uses.iter().copied();
        for group in accesses.chunks(GROUP) {
            slots.iter_mut().zip(group).for_each(|(slot, access)| *slot = Slot(access.object));
            self.policy.look_ahead(&slots[..group.len()]);
            for access in group {
                self.access(access, next_uses.next().unwrap_or(NEVER));
            }
        }
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn holds(&self, object: u32) -> bool {
        self.holds(Slot(object))
    }

    fn expire(&mut self, object: u32) {
        self.remove(Slot(object));
    }

    fn needs_future(&self) -> bool {
        self.future.is_some()
    }
}
