//! Several queues over the same slots, each with its total weight.

use crate::Slot;
use crate::list::{List, Nodes};
use crate::weights::Weights;

/// A queue's number.
pub(crate) type Queue = u8;

/// The queues; 9 bytes per slot, and 4 more if any weight is not 1.
pub(crate) struct Segments {
    nodes: Nodes,
    queues: Vec<Segment>,
    /// The queue of each slot.
    home: Vec<Queue>,
    weights: Weights,
    len: usize,
}

#[derive(Default)]
struct Segment {
    list: List,
    weight: u64,
}

impl Segments {
    pub(crate) fn new(queues: Queue) -> Self {
        let queues = (0..queues).map(|_| Segment::default()).collect();
        Self { nodes: Nodes::new(), queues, home: Vec::new(), weights: Weights::new(), len: 0 }
    }

    /// Adds an unlinked slot as the newest.
    pub(crate) fn push_front(&mut self, queue: Queue, slot: Slot, weight: u32) {
        if slot.0 as usize >= self.home.len() {
            self.home.resize(slot.0 as usize + 1, 0);
        }
        self.home[slot.0 as usize] = queue;
        self.weights.set(slot, weight);
        self.len += 1;
        let segment = &mut self.queues[usize::from(queue)];
        segment.list.push_front(&mut self.nodes, slot);
        segment.weight += u64::from(weight);
    }

    /// Moves a slot from its queue to the front of this one.
    pub(crate) fn move_to_front(&mut self, queue: Queue, slot: Slot) {
        let weight = self.leave_queue(slot);
        self.home[slot.0 as usize] = queue;
        let segment = &mut self.queues[usize::from(queue)];
        segment.list.push_front(&mut self.nodes, slot);
        segment.weight += weight;
    }

    /// Moves a slot from its queue to the back of this one.
    pub(crate) fn move_to_back(&mut self, queue: Queue, slot: Slot) {
        let weight = self.leave_queue(slot);
        self.home[slot.0 as usize] = queue;
        let segment = &mut self.queues[usize::from(queue)];
        segment.list.push_back(&mut self.nodes, slot);
        segment.weight += weight;
    }

    /// Removes a slot from its queue.
    pub(crate) fn remove(&mut self, slot: Slot) {
        self.leave_queue(slot);
        self.len -= 1;
    }

    fn leave_queue(&mut self, slot: Slot) -> u64 {
        let weight = self.weights.get(slot);
        let segment = &mut self.queues[usize::from(self.home[slot.0 as usize])];
        segment.list.unlink(&mut self.nodes, slot);
        segment.weight -= weight;
        weight
    }

    /// Changes the weight of a linked slot.
    pub(crate) fn reweigh(&mut self, slot: Slot, weight: u32) {
        let segment = &mut self.queues[usize::from(self.home[slot.0 as usize])];
        segment.weight = segment.weight - self.weights.get(slot) + u64::from(weight);
        self.weights.set(slot, weight);
    }

    /// Prefetches the data of the given slots: see [`Eviction::look_ahead`](crate::Eviction::look_ahead).
    pub(crate) fn look_ahead(&self, slots: &[Slot]) {
        self.nodes.look_ahead(slots);
        self.weights.look_ahead(slots);
    }

    /// The queue of a linked slot.
    pub(crate) fn queue_of(&self, slot: Slot) -> Queue {
        self.home[slot.0 as usize]
    }

    /// The oldest of a queue.
    pub(crate) fn back(&self, queue: Queue) -> Option<Slot> {
        self.queues[usize::from(queue)].list.back()
    }

    pub(crate) fn weight(&self, queue: Queue) -> u64 {
        self.queues[usize::from(queue)].weight
    }

    pub(crate) fn weight_of(&self, slot: Slot) -> u64 {
        self.weights.get(slot)
    }

    pub(crate) fn total_weight(&self) -> u64 {
        self.queues.iter().map(|segment| segment.weight).sum()
    }

    /// Number of slots in all queues.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// `percent` of a weight, without overflow.
pub(crate) fn share(weight: u64, percent: u8) -> u64 {
    (u128::from(weight) * u128::from(percent) / 100) as u64
}
