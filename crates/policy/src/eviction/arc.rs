//! ARC: two LRU queues, T1 of entries seen once and T2 of entries seen again, with the keys that left them in B1 and B2. A miss on a key
//! in B1 raises the target size of T1, one on a key in B2 lowers it.
//!
//! Megiddo, Modha: "ARC: a self-tuning, low overhead replacement cache", FAST'03, figure 4. The paper counts pages; here the target moves
//! by weights. It may move by less than the weight of an entry: see [`ArcRules`].

use crate::ghost_queue::GhostQueue;
use crate::segments::{Queue, Segments};
use crate::{Entry, Eviction, HitRule, Slot};

const ONCE: Queue = 0;
const AGAIN: Queue = 1;

/// Where implementations differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ArcRules {
    /// The target moves by the weight of the requested entry times max(1, ratio of the ghosts), as by pages in the paper.
    #[default]
    Paper,
    /// libCacheSim 0.3.5: the target moves by max(1, ratio of the ghosts) in units of weight, thus by bytes where bytes are counted.
    Reference,
}

/// T1, T2, B1 and B2.
pub struct AdaptiveReplacement {
    segments: Segments,
    hashes: Vec<u64>,
    /// B1 and B2.
    ghosts: [GhostQueue; 2],
    rules: ArcRules,
    /// p: the target weight of T1.
    target: f64,
    capacity: u64,
    announced: Option<Announced>,
    /// The queue of the last restored entry.
    restored_to: Queue,
}

#[derive(Clone, Copy)]
struct Announced {
    entry: Entry,
    /// The queue whose ghosts had the key.
    ghost_of: Option<Queue>,
}

impl AdaptiveReplacement {
    /// Empty queues that share `capacity_weight`.
    #[must_use]
    pub fn new(capacity_weight: u64, rules: ArcRules) -> Self {
        let mut ghosts = [GhostQueue::default(), GhostQueue::default()];
        ghosts.iter_mut().for_each(|ghosts| ghosts.set_capacity(u64::MAX));
        let (segments, hashes) = (Segments::new(2), Vec::new());
        let (target, capacity, announced, restored_to) = (0.0, capacity_weight, None, ONCE);
        Self { segments, hashes, ghosts, rules, target, capacity, announced, restored_to }
    }

    /// Cases II and III of figure 4: a key with a ghost moves the target.
    fn recall(&mut self, entry: Entry) -> Option<Queue> {
        let weights = self.ghost_weights();
        let ghost_of =
            [ONCE, AGAIN].into_iter().find(|&queue| self.ghosts[usize::from(queue)].take(entry.hash))?;
        let (own, other) = (weights[usize::from(ghost_of)], weights[usize::from(1 - ghost_of)]);
        let unit = if self.rules == ArcRules::Paper { f64::from(entry.weight) } else { 1.0 };
        let step = (other / own).max(1.0) * unit;
        let moved = if ghost_of == ONCE { self.target + step } else { self.target - step };
        self.target = moved.clamp(0.0, self.capacity as f64);
        Some(ghost_of)
    }

    fn ghost_weights(&self) -> [f64; 2] {
        [ONCE, AGAIN].map(|queue| self.ghosts[usize::from(queue)].weight() as f64)
    }

    fn push(&mut self, queue: Queue, slot: Slot, entry: Entry) {
        if slot.0 as usize >= self.hashes.len() {
            self.hashes.resize(slot.0 as usize + 1, 0);
        }
        self.hashes[slot.0 as usize] = entry.hash;
        self.segments.push_front(queue, slot, entry.weight);
    }

    /// The procedure REPLACE of figure 4.
    fn replaced_queue(&self) -> Queue {
        let once = self.segments.weight(ONCE) as f64;
        let returns_to_again = self.announced.is_some_and(|it| it.ghost_of == Some(AGAIN));
        let once_is_next = once > self.target || (once == self.target && returns_to_again);
        let has = |queue| self.segments.back(queue).is_some();
        if has(ONCE) && (once_is_next || !has(AGAIN)) { ONCE } else { AGAIN }
    }

    fn take_oldest(&mut self, queue: Queue, leaves_ghost: bool) -> Option<Slot> {
        let victim = self.segments.back(queue)?;
        if leaves_ghost {
            let (hash, weight) = (self.hashes[victim.0 as usize], self.segments.weight_of(victim));
            self.ghosts[usize::from(queue)].insert(hash, weight as u32);
        }
        self.segments.remove(victim);
        Some(victim)
    }
}

impl Eviction for AdaptiveReplacement {
    fn announce(&mut self, entry: Entry) {
        let ghost_of = self.recall(entry);
        self.announced = Some(Announced { entry, ghost_of });
    }

    fn insert(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        let ghost_of = match self.announced.take() {
            Some(announced) if announced.entry == entry => announced.ghost_of,
            _ => self.recall(entry),
        };
        self.push(if ghost_of.is_some() { AGAIN } else { ONCE }, slot, entry);
    }

    fn refuse(&mut self, entry: Entry) {
        self.recall(entry);
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        self.segments.move_to_front(AGAIN, slot);
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        let incoming = self.announced.map_or(0, |announced| u64::from(announced.entry.weight));
        if self.announced.is_none_or(|announced| announced.ghost_of.is_none()) {
            // Case IV: the ghosts keep to their share of two capacities.
            let once = self.segments.weight(ONCE) + self.ghosts[usize::from(ONCE)].weight();
            let again = self.segments.weight(AGAIN) + self.ghosts[usize::from(AGAIN)].weight();
            if once + incoming > self.capacity {
                if self.ghosts[usize::from(ONCE)].pop().is_none() && self.segments.back(ONCE).is_some() {
                    return self.take_oldest(ONCE, false);
                }
            } else if once + again >= 2 * self.capacity {
                self.ghosts[usize::from(AGAIN)].pop();
            }
        }
        self.take_oldest(self.replaced_queue(), true)
    }

    fn remove(&mut self, slot: Slot) {
        self.segments.remove(slot);
    }

    /// Alternates between the queues: if one held all pinned entries, every victim would be sought there.
    fn restore(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        for ghosts in &mut self.ghosts {
            ghosts.take(entry.hash);
        }
        self.restored_to = ONCE + AGAIN - self.restored_to;
        self.push(self.restored_to, slot, entry);
    }

    fn set_capacity(&mut self, capacity_weight: u64) {
        self.capacity = capacity_weight;
        self.target = self.target.min(capacity_weight as f64);
    }

    fn len(&self) -> usize {
        self.segments.len()
    }

    fn oldest(&self) -> Option<Slot> {
        self.segments.back(self.replaced_queue())
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }

    /// Links, queue, weight and hash, and a ghost.
    fn bytes_per_slot(&self) -> u32 {
        21 + GhostQueue::BYTES_PER_GHOST
    }

    fn reweigh(&mut self, slot: Slot, weight: u32) {
        self.segments.reweigh(slot, weight);
    }

    fn look_ahead(&self, slots: &[Slot]) {
        self.segments.look_ahead(slots);
    }
}
