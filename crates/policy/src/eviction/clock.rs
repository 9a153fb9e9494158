//! Clock, also called FIFO-Reinsertion or second chance: a FIFO queue in which an entry that was hit is moved to the new end once
//! instead of being evicted.
//!
//! Corbató: "A paging experiment with the Multics system", MIT Project MAC report MAC-M-384, 1968. One bit per entry.

use std::sync::Arc;

use crate::list::{List, Nodes};
use crate::{Entry, Eviction, HitMarks, HitRule, Marks, Slot};

const REFERENCED: u8 = 1;

/// The queue and the reference bits.
pub struct Clock {
    nodes: Nodes,
    queue: List,
    referenced: Arc<dyn HitMarks>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { nodes: Nodes::new(), queue: List::new(), referenced: Arc::new(Marks::default()) }
    }
}

impl Clock {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Eviction for Clock {
    fn insert(&mut self, slot: Slot, _entry: Entry, _now_seconds: u32) {
        self.referenced.begin(slot);
        self.queue.push_front(&mut self.nodes, slot);
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        self.referenced.bump(slot, REFERENCED);
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        // One round clears every bit. Readers may set bits again meanwhile, so the round is the limit.
        for _ in 0..self.queue.len() {
            let oldest = self.queue.back()?;
            if self.referenced.get(oldest) == 0 {
                break;
            }
            self.referenced.set(oldest, 0);
            self.queue.move_to_front(&mut self.nodes, oldest);
        }
        self.queue.pop_back(&mut self.nodes)
    }

    fn remove(&mut self, slot: Slot) {
        self.queue.unlink(&mut self.nodes, slot);
    }

    fn restore(&mut self, slot: Slot, _entry: Entry, _now_seconds: u32) {
        self.referenced.set(slot, REFERENCED);
        self.queue.push_front(&mut self.nodes, slot);
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn oldest(&self) -> Option<Slot> {
        self.queue.back()
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Mark { marks: Arc::clone(&self.referenced), at_most: REFERENCED }
    }

    fn keep_marks_in(&mut self, marks: Arc<dyn HitMarks>) {
        self.referenced = marks;
    }

    fn look_ahead(&self, slots: &[Slot]) {
        self.nodes.look_ahead(slots);
    }
}
