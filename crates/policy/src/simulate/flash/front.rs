//! DRAM before flash.

use super::{FlashCache, WeightedObject};
use crate::Slot;
use crate::list::{List, Nodes};
use crate::simulate::{Access, Counts, Simulator};
use crate::weights::Weights;

/// Common settings of flash designs. The Kangaroo paper's simulator (McAllister et al., SOSP'21) adds 44 bytes to every object and limits
/// weights to 2047.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlashRules {
    /// Weight of the DRAM cache before the flash: an LRU whose victims go to flash. With 0, new objects go to flash immediately. An object
    /// found on flash stays there and is not copied to DRAM.
    pub dram_weight: u64,
    /// Overhead of every object.
    pub object_overhead: u32,
    /// Weights above this limit, overhead included, are reduced to it.
    pub object_weight_at_most: u32,
}

impl Default for FlashRules {
    fn default() -> Self {
        Self { dram_weight: 0, object_overhead: 0, object_weight_at_most: u32::MAX }
    }
}

/// An LRU in DRAM and a flash cache behind it.
pub struct Flash<F> {
    flash: F,
    rules: FlashRules,
    nodes: Nodes,
    dram: List,
    dram_held: u64,
    weights: Weights,
    victims: Vec<WeightedObject>,
    counts: Counts,
}

impl<F: FlashCache> Flash<F> {
    /// Creates an empty cache.
    #[must_use]
    pub fn new(flash: F, rules: FlashRules) -> Self {
        Self {
            flash,
            rules,
            nodes: Nodes::new(),
            dram: List::new(),
            dram_held: 0,
            weights: Weights::new(),
            victims: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// The flash cache.
    pub fn flash(&self) -> &F {
        &self.flash
    }

    fn access(&mut self, access: &Access) {
        let slot = Slot(access.object);
        if access.is_removal {
            return self.remove(slot);
        }
        self.counts.requests += 1;
        self.counts.weight += u64::from(access.weight);
        let in_dram = self.nodes.is_linked(slot);
        if !in_dram && !self.flash.holds(access.object) {
            return self.miss(slot, access.weight);
        }
        self.counts.hits += 1;
        self.counts.hit_weight += u64::from(access.weight);
        if in_dram {
            self.dram.move_to_front(&mut self.nodes, slot);
        } else {
            self.flash.hit(access.object);
        }
    }

    fn miss(&mut self, slot: Slot, weight: u32) {
        let FlashRules { dram_weight, object_overhead, object_weight_at_most } = self.rules;
        let weight = weight.saturating_add(object_overhead).min(object_weight_at_most);
        self.victims.clear();
        if u64::from(weight) > dram_weight {
            self.victims.push(WeightedObject { object: slot.0, weight });
        } else {
            while self.dram_held + u64::from(weight) > dram_weight {
                self.evict_from_dram();
            }
            self.dram.push_front(&mut self.nodes, slot);
            self.dram_held += u64::from(weight);
            self.weights.set(slot, weight);
        }
        let at_most = self.flash.weight_at_most();
        self.victims.retain(|victim| u64::from(victim.weight) <= at_most);
        self.counts.inserts += self.victims.len() as u64;
        self.counts.insert_weight += self.victims.iter().map(|victim| u64::from(victim.weight)).sum::<u64>();
        if !self.victims.is_empty() {
            self.flash.insert(&self.victims);
        }
    }

    fn evict_from_dram(&mut self) {
        let victim = self.dram.pop_back(&mut self.nodes).expect("the weight of a cached object is recorded");
        let weight = self.weights.get(victim);
        self.dram_held -= weight;
        self.victims.push(WeightedObject { object: victim.0, weight: weight as u32 });
    }

    fn remove(&mut self, slot: Slot) {
        if !self.leave_dram(slot) && self.flash.holds(slot.0) {
            self.flash.remove(slot.0);
        }
    }

    /// Removes the object; returns whether it was there.
    fn leave_dram(&mut self, slot: Slot) -> bool {
        let in_dram = self.nodes.is_linked(slot);
        if in_dram {
            self.dram.unlink(&mut self.nodes, slot);
            self.dram_held -= self.weights.get(slot);
        }
        in_dram
    }
}

impl<F: FlashCache> Simulator for Flash<F> {
    fn run(&mut self, accesses: &[Access], _next_uses: &[u64]) {
        accesses.iter().for_each(|access| self.access(access));
    }

    fn counts(&self) -> Counts {
        Counts { written_weight: self.flash.written_weight(), ..self.counts }
    }

    fn holds(&self, object: u32) -> bool {
        self.nodes.is_linked(Slot(object)) || self.flash.holds(object)
    }

    fn expire(&mut self, object: u32) {
        if !self.leave_dram(Slot(object)) && self.flash.holds(object) {
            self.flash.expire(object);
        }
    }
}
