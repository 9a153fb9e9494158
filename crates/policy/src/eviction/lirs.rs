//! LIRS: entries with low inter-reference recency (LIR) have nearly all of the cache; the others (HIR) share a small queue Q. A stack S holds
//! the LIR entries and everything requested since the oldest of them, with the keys of evicted HIR entries. An HIR entry or key that is
//! requested while it is in S has a lower recency than the oldest LIR entry, and exchanges its status with that.
//!
//! Jiang, Zhang: "LIRS: an efficient low inter-reference recency set replacement policy to improve buffer cache performance",
//! SIGMETRICS'02, section 3.3. Q has 1 % of the cache, as in the paper. Evicted keys have at most one cache's weight: the paper leaves
//! their number open.

use std::collections::HashMap;

use crate::hashed::Hashed;
use crate::list::{List, Nodes};
use crate::segments::share;
use crate::{Entry, Eviction, HitRule, Slot};

/// Q's share of the capacity.
const HIR_PERCENT: u8 = 1;

/// The status of a block of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    /// Cached, in the stack S.
    Lir,
    /// Cached, in the queue Q, and possibly also in the stack S.
    Hir,
    /// Evicted, in the stack S.
    Ghost,
}

#[derive(Clone, Copy)]
struct Block {
    entry: Entry,
    status: Status,
    /// The slot of a held block.
    slot: Slot,
}

/// The stack S, the queue Q and the evicted keys of S.
pub struct Lirs {
    blocks: Vec<Block>,
    free: Vec<u32>,
    /// The block of each held slot.
    block_of_slot: Vec<u32>,
    ghosts: HashMap<u64, u32, Hashed>,
    stack_links: Nodes,
    stack: List,
    /// Links of `queue` and `ghost_queue`: a block is in one of them at most.
    queue_links: Nodes,
    queue: List,
    /// Evicted keys, the oldest last.
    ghost_queue: List,
    lir_weight: u64,
    hir_weight: u64,
    ghost_weight: u64,
    lir_capacity: u64,
    capacity: u64,
    len: usize,
}

impl Lirs {
    /// An empty stack and queue that share `capacity_weight`.
    #[must_use]
    pub fn new(capacity_weight: u64) -> Self {
        let mut policy = Self {
            blocks: Vec::new(),
            free: Vec::new(),
            block_of_slot: Vec::new(),
            ghosts: HashMap::default(),
            stack_links: Nodes::new(),
            stack: List::new(),
            queue_links: Nodes::new(),
            queue: List::new(),
            ghost_queue: List::new(),
            lir_weight: 0,
            hir_weight: 0,
            ghost_weight: 0,
            lir_capacity: 0,
            capacity: 0,
            len: 0,
        };
        policy.set_capacity(capacity_weight);
        policy
    }

    fn block(&mut self, id: Slot) -> &mut Block {
        &mut self.blocks[id.0 as usize]
    }

    fn weight(&self, id: Slot) -> u64 {
        self.blocks[id.0 as usize].entry.weight.into()
    }

    fn id_of(&self, slot: Slot) -> Slot {
        Slot(self.block_of_slot[slot.0 as usize])
    }

    /// A block for the entry in `slot`: its ghost, or a new one that is in no list.
    fn claim(&mut self, slot: Slot, entry: Entry, status: Status) -> Slot {
        let id = self.take_ghost(entry.hash).or_else(|| self.free.pop().map(Slot));
        let block = Block { entry, status, slot };
        let id = match id {
            Some(id) => {
                *self.block(id) = block;
                id
            }
            None => {
                self.blocks.push(block);
                Slot(self.blocks.len() as u32 - 1)
            }
        };
        if slot.0 as usize >= self.block_of_slot.len() {
            self.block_of_slot.resize(slot.0 as usize + 1, 0);
        }
        self.block_of_slot[slot.0 as usize] = id.0;
        self.len += 1;
        id
    }

    fn take_ghost(&mut self, hash: u64) -> Option<Slot> {
        let id = Slot(self.ghosts.remove(&hash)?);
        self.ghost_queue.unlink(&mut self.queue_links, id);
        self.ghost_weight -= self.weight(id);
        Some(id)
    }

    fn raise(&mut self, id: Slot) {
        if self.stack_links.is_linked(id) {
            self.stack.move_to_front(&mut self.stack_links, id);
        } else {
            self.stack.push_front(&mut self.stack_links, id);
        }
    }

    /// Makes a block that is in no queue a LIR block at the top of S, and others HIR to make room for it.
    fn promote(&mut self, id: Slot) {
        self.block(id).status = Status::Lir;
        self.lir_weight += self.weight(id);
        self.raise(id);
        self.prune();
        self.demote_excess();
    }

    /// Adds a block that is in no queue to Q.
    fn enqueue(&mut self, id: Slot) {
        self.block(id).status = Status::Hir;
        self.hir_weight += self.weight(id);
        self.queue.push_front(&mut self.queue_links, id);
    }

    fn dequeue(&mut self, id: Slot) {
        self.queue.unlink(&mut self.queue_links, id);
        self.hir_weight -= self.weight(id);
    }

    fn demote_excess(&mut self) {
        while self.lir_weight > self.lir_capacity && self.demote_oldest() {}
    }

    /// Moves the LIR block at the bottom of S to Q; false if there is none.
    fn demote_oldest(&mut self) -> bool {
        let Some(id) = self.stack.pop_back(&mut self.stack_links) else { return false };
        self.lir_weight -= self.weight(id);
        self.enqueue(id);
        self.prune();
        true
    }

    /// Stack pruning: S ends with a LIR block.
    fn prune(&mut self) {
        while let Some(id) = self.stack.back() {
            match self.block(id).status {
                Status::Lir => return,
                Status::Hir => self.stack.unlink(&mut self.stack_links, id),
                Status::Ghost => self.forget(id),
            }
        }
    }

    /// Removes an evicted key.
    fn forget(&mut self, id: Slot) {
        self.take_ghost(self.blocks[id.0 as usize].entry.hash);
        self.stack.unlink(&mut self.stack_links, id);
        self.free.push(id.0);
    }

    /// Takes a held block out of S and Q.
    fn detach(&mut self, id: Slot) {
        if self.stack_links.is_linked(id) {
            self.stack.unlink(&mut self.stack_links, id);
        }
        match self.block(id).status {
            Status::Lir => self.lir_weight -= self.weight(id),
            Status::Hir => self.dequeue(id),
            Status::Ghost => unreachable!("the block is held"),
        }
        self.len -= 1;
    }
}

impl Eviction for Lirs {
    fn insert(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        let returns = self.ghosts.contains_key(&entry.hash);
        let id = self.claim(slot, entry, Status::Hir);
        if returns || self.lir_weight + u64::from(entry.weight) <= self.lir_capacity {
            return self.promote(id);
        }
        self.raise(id);
        self.enqueue(id);
        self.prune();
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        let id = self.id_of(slot);
        let is_in_stack = self.stack_links.is_linked(id);
        match self.block(id).status {
            Status::Hir if is_in_stack => {
                self.dequeue(id);
                self.promote(id);
            }
            Status::Hir => {
                self.raise(id);
                self.queue.move_to_front(&mut self.queue_links, id);
                self.prune();
            }
            Status::Lir => {
                self.raise(id);
                self.prune();
            }
            Status::Ghost => unreachable!("the block is held"),
        }
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        if self.queue.is_empty() && !self.demote_oldest() {
            return None;
        }
        let id = self.queue.back()?;
        let Block { entry, slot, .. } = *self.block(id);
        self.dequeue(id);
        self.len -= 1;
        if !self.stack_links.is_linked(id) {
            self.free.push(id.0);
            return Some(slot);
        }
        if let Some(same_hash) = self.ghosts.get(&entry.hash).copied() {
            self.forget(Slot(same_hash));
        }
        self.block(id).status = Status::Ghost;
        self.ghosts.insert(entry.hash, id.0);
        self.ghost_queue.push_front(&mut self.queue_links, id);
        self.ghost_weight += u64::from(entry.weight);
        while self.ghost_weight > self.capacity
            && let Some(oldest) = self.ghost_queue.back()
        {
            self.forget(oldest);
        }
        Some(slot)
    }

    fn remove(&mut self, slot: Slot) {
        let id = self.id_of(slot);
        self.detach(id);
        self.free.push(id.0);
        self.prune();
    }

    fn restore(&mut self, slot: Slot, entry: Entry, _now_seconds: u32) {
        let id = self.claim(slot, entry, Status::Hir);
        self.promote(id);
    }

    fn set_capacity(&mut self, capacity_weight: u64) {
        self.capacity = capacity_weight;
        self.lir_capacity = capacity_weight - share(capacity_weight, HIR_PERCENT).max(1).min(capacity_weight);
        self.demote_excess();
    }

    fn len(&self) -> usize {
        self.len
    }

    fn oldest(&self) -> Option<Slot> {
        let id = self.queue.back().or_else(|| self.stack.back())?;
        Some(self.blocks[id.0 as usize].slot)
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }

    /// A held and an evicted block with two links each, the block's number, and an entry of the hash table of evicted keys: that takes up to 64
    /// bytes while the table grows.
    fn bytes_per_slot(&self) -> u32 {
        2 * (size_of::<Block>() as u32 + 16) + 4 + 64
    }

    fn reweigh(&mut self, slot: Slot, weight: u32) {
        let id = self.id_of(slot);
        let (before, now) = (self.weight(id), u64::from(weight));
        let sum =
            if self.block(id).status == Status::Lir { &mut self.lir_weight } else { &mut self.hir_weight };
        *sum = *sum - before + now;
        self.block(id).entry.weight = weight;
        self.demote_excess();
    }
}
