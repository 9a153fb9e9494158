//! First in, first out. Hits are ignored.

use crate::list::{List, Nodes};
use crate::{Entry, Eviction, HitRule, Slot};

/// The queue.
#[derive(Default)]
pub struct Fifo {
    nodes: Nodes,
    queue: List,
}

impl Fifo {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Eviction for Fifo {
    fn insert(&mut self, slot: Slot, _entry: Entry, _now_seconds: u32) {
        self.queue.push_front(&mut self.nodes, slot);
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        self.queue.pop_back(&mut self.nodes)
    }

    fn remove(&mut self, slot: Slot) {
        self.queue.unlink(&mut self.nodes, slot);
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn oldest(&self) -> Option<Slot> {
        self.queue.back()
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Ignore
    }
}
