//! SIEVE: a FIFO queue and a hand that moves from its old end to its new one. It skips entries used since it last passed, clearing their
//! bit, and evicts the first other one. Skipped entries keep their position, so new entries must be used soon to stay.
//!
//! Zhang, Yang, Yue, Vigfusson, Rashmi: "SIEVE is Simpler than LRU", NSDI'24, section 3, algorithm 1.

use std::sync::Arc;

use crate::list::{List, Nodes};
use crate::{Entry, Eviction, HitMarks, HitRule, Marks, Slot};

/// One bit: further hits carry no information.
const VISITED: u8 = 1;
/// Steps of the hand that are examined to predict the victim. An examined step costs little more when it is taken.
const FORESEEN_STEPS: usize = 16;

/// The queue, the hand and the visited bits.
pub struct Sieve {
    nodes: Nodes,
    queue: List,
    /// Start of the next search; `None` is the old end.
    hand: Option<Slot>,
    visited: Arc<dyn HitMarks>,
}

impl Default for Sieve {
    fn default() -> Self {
        Self { nodes: Nodes::new(), queue: List::new(), hand: None, visited: Arc::new(Marks::default()) }
    }
}

impl Sieve {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Eviction for Sieve {
    fn insert(&mut self, slot: Slot, _entry: Entry, _now_seconds: u32) {
        self.visited.begin(slot);
        self.queue.push_front(&mut self.nodes, slot);
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        self.visited.bump(slot, VISITED);
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        let oldest = self.queue.back()?;
        let mut victim = self.hand.unwrap_or(oldest);
        // One round clears every bit. Readers can set bits again behind the hand, so after one round it evicts the current entry.
        for _ in 0..self.queue.len() {
            if self.visited.get(victim) == 0 {
                break;
            }
            self.visited.set(victim, 0);
            victim = self.nodes.newer(victim).unwrap_or(oldest);
        }
        self.hand = Some(victim);
        self.remove(victim);
        Some(victim)
    }

    fn remove(&mut self, slot: Slot) {
        if self.hand == Some(slot) {
            self.hand = self.nodes.newer(slot);
        }
        self.queue.unlink(&mut self.nodes, slot);
    }

    fn restore(&mut self, slot: Slot, _entry: Entry, _now_seconds: u32) {
        self.visited.set(slot, VISITED);
        self.queue.push_front(&mut self.nodes, slot);
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn oldest(&self) -> Option<Slot> {
        self.hand.or_else(|| self.queue.back())
    }

    /// The entry at which the hand will probably stop, if it is close: the hand skips most entries. The entry after it is prefetched for
    /// the next call.
    fn likely_victim(&self) -> Option<Slot> {
        let ahead = std::iter::successors(self.oldest(), |slot| self.nodes.newer(*slot));
        let next = ahead.take(FORESEEN_STEPS).find(|slot| self.visited.get(*slot) == 0)?;
        if let Some(behind) = self.nodes.newer(next) {
            self.nodes.prefetch(behind);
            self.visited.prefetch(behind);
        }
        Some(next)
    }

    fn keep_marks_in(&mut self, marks: Arc<dyn HitMarks>) {
        self.visited = marks;
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Mark { marks: Arc::clone(&self.visited), at_most: VISITED }
    }

    fn look_ahead(&self, slots: &[Slot]) {
        self.nodes.look_ahead(slots);
    }
}
