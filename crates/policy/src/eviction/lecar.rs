//! LeCaR: evicts by LRU or by LFU, chosen at random with weights that are learned. If an entry returns soon after one of them evicted it, the
//! weight of that one shrinks, by regret minimisation.
//!
//! Vietri, Rodriguez, Martinez, Lyons, Liu, Rangaswami, Zhao, Narasimhan: "Driving cache replacement with ML-based LeCaR", HotStorage'18,
//! algorithm 1, with its learning rate of 0.45 and discount of 0.005^(1/N). Entries with equally many requests are evicted in the order of
//! their last one.
//!
//! Deviations, as in libCacheSim 0.3.5: N is the capacity in units of weight, thus bytes where bytes are counted; each history holds half
//! the capacity; an entry that both choose leaves no history.

use crate::eviction::{Gdsf, Lru};
use crate::ghost_queue::GhostQueue;
use crate::lehmer::Lehmer64;
use crate::requests::RequestClock;
use crate::{Entry, Eviction, HitRule, Slot};

/// The indexes of the two experts.
const LRU: usize = 0;
const LFU: usize = 1;

const LEARNING_RATE: f64 = 0.45;
const DISCOUNT: f64 = 0.005;
/// Keeps weights above 0.
const LEAST_WEIGHT: f64 = 1e-10;

/// The experts, their histories and weights.
pub struct LeCaR {
    lru: Lru,
    lfu: Gdsf,
    /// H_LRU and H_LFU, with the time of each eviction.
    histories: [GhostQueue; 2],
    /// w_LRU and w_LFU.
    weights: [f64; 2],
    /// d: the factor by which each request reduces the regret of an eviction.
    discount: f64,
    clock: RequestClock,
    random: Lehmer64,
    entries: Vec<Entry>,
}

impl LeCaR {
    /// An empty policy.
    #[must_use]
    pub fn new(capacity_weight: u64, seed: u64) -> Self {
        let mut policy = Self {
            lru: Lru::exact(),
            lfu: Gdsf::lfu(),
            histories: [GhostQueue::default(), GhostQueue::default()],
            weights: [0.5; 2],
            discount: 0.0,
            clock: RequestClock::default(),
            random: Lehmer64::new(seed),
            entries: Vec::new(),
        };
        policy.set_capacity(capacity_weight);
        policy
    }

    /// Looks up a missed entry in the histories. The expert that evicted it loses weight.
    fn recall(&mut self, entry: Entry) {
        for expert in [LRU, LFU] {
            if let Some(evicted_at) = self.histories[expert].take_time(entry.hash) {
                self.regret(expert, u64::from((self.clock.now() as u32).wrapping_sub(evicted_at)));
            }
        }
    }

    /// UPDATEWEIGHT of the paper.
    fn regret(&mut self, expert: usize, age: u64) {
        let regret = self.discount.powf(age as f64);
        let other = self.weights[1 - expert];
        let reduced = self.weights[expert] * (-LEARNING_RATE * regret).exp() + LEAST_WEIGHT;
        let sum = reduced + other + 2.0 * LEAST_WEIGHT;
        self.weights[expert] = reduced / sum;
        self.weights[1 - expert] = (other + LEAST_WEIGHT) / sum;
    }

    /// The victim, and the expert that chose it if the experts differ.
    fn choose(&mut self) -> Option<(Slot, Option<usize>)> {
        let (recency, frequency) = (self.lru.oldest()?, self.lfu.oldest()?);
        if recency == frequency {
            return Some((recency, None));
        }
        let chance = self.random.below(100) as f64 / 100.0;
        Some(if chance < self.weights[LRU] { (recency, Some(LRU)) } else { (frequency, Some(LFU)) })
    }

    fn note(&mut self, expert: usize, victim: Slot) {
        let Entry { hash, weight } = self.entries[victim.0 as usize];
        let history = &mut self.histories[expert];
        history.insert_at(hash, weight, self.clock.now() as u32);
        history.trim();
        if u64::from(weight) > history.capacity() {
            // A ghost heavier than the history displaces all ghosts, itself included.
            while history.pop().is_some() {}
        }
    }

    fn keep(&mut self, slot: Slot, entry: Entry) {
        if slot.0 as usize >= self.entries.len() {
            self.entries.resize(slot.0 as usize + 1, Entry { hash: 0, weight: 0 });
        }
        self.entries[slot.0 as usize] = entry;
    }
}

impl Eviction for LeCaR {
    fn announce(&mut self, entry: Entry) {
        self.clock.announce();
        self.recall(entry);
    }

    fn refuse(&mut self, entry: Entry) {
        self.clock.tick();
        self.recall(entry);
    }

    fn insert(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        self.clock.insert();
        self.recall(entry);
        self.keep(slot, entry);
        self.lru.insert(slot, entry, now_seconds);
        self.lfu.insert(slot, entry, now_seconds);
    }

    fn hit(&mut self, slot: Slot, now_seconds: u32) {
        self.clock.tick();
        self.lru.hit(slot, now_seconds);
        self.lfu.hit(slot, now_seconds);
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        let (victim, chosen_by) = self.choose()?;
        if let Some(expert) = chosen_by {
            self.note(expert, victim);
        }
        self.remove(victim);
        Some(victim)
    }

    fn remove(&mut self, slot: Slot) {
        self.lru.remove(slot);
        self.lfu.remove(slot);
    }

    fn restore(&mut self, slot: Slot, entry: Entry, now_seconds: u32) {
        for history in &mut self.histories {
            history.take(entry.hash);
        }
        self.keep(slot, entry);
        self.lru.restore(slot, entry, now_seconds);
        self.lfu.restore(slot, entry, now_seconds);
    }

    fn set_capacity(&mut self, capacity_weight: u64) {
        self.discount = DISCOUNT.powf(1.0 / capacity_weight as f64);
        for history in &mut self.histories {
            history.set_capacity(capacity_weight / 2);
        }
    }

    fn len(&self) -> usize {
        self.lru.len()
    }

    fn oldest(&self) -> Option<Slot> {
        self.lru.oldest()
    }

    /// Known only if both experts agree.
    fn likely_victim(&self) -> Option<Slot> {
        self.lru.oldest().filter(|oldest| self.lfu.oldest() == Some(*oldest))
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }

    /// Memory of both experts, the entry, and a ghost.
    fn bytes_per_slot(&self) -> u32 {
        self.lru.bytes_per_slot() + self.lfu.bytes_per_slot() + 16 + GhostQueue::BYTES_PER_GHOST
    }

    fn reweigh(&mut self, slot: Slot, weight: u32) {
        self.entries[slot.0 as usize].weight = weight;
        self.lfu.reweigh(slot, weight);
    }

    fn look_ahead(&self, slots: &[Slot]) {
        self.lru.look_ahead(slots);
        self.lfu.look_ahead(slots);
    }
}
