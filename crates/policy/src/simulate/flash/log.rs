//! A log: new objects fill a block in memory, full blocks are written sequentially, and the oldest is overwritten with all its objects.
//! FIFO at the granularity of blocks; no object is written twice.
//!
//! The log-structured cache in the Kangaroo paper's comparison (McAllister et al., SOSP'21); McDipper is another one.

use std::collections::VecDeque;

use super::blocks::{Block, Blocks};
use super::{FlashCache, WeightedObject};

/// The log.
pub struct Log {
    blocks: Blocks,
    /// Weight of all blocks together, including the one being filled.
    capacity_weight: u64,
    open: Block,
    /// Full blocks, the oldest at the back.
    sealed: VecDeque<Block>,
    sealed_weight: u64,
    /// Largest weight of an object if it can extend beyond its block.
    runs_over: Option<u32>,
    written_weight: u64,
    left: Vec<(u32, u32)>,
}

impl Log {
    /// A log of `blocks` blocks of this weight, at least one.
    #[must_use]
    pub fn new(capacity_weight: u64, block_weight: u64) -> Self {
        let mut blocks = Blocks::new(block_weight.min(capacity_weight.max(1)));
        let count = (capacity_weight / blocks.block_weight).max(1);
        Self {
            capacity_weight: count * blocks.block_weight,
            open: blocks.open(),
            blocks,
            sealed: VecDeque::new(),
            sealed_weight: 0,
            runs_over: None,
            written_weight: 0,
            left: Vec::new(),
        }
    }

    /// A scaled model of a large log whose blocks accept objects of `object_weight_at_most`. Objects are not scaled, so
    /// an object may extend beyond the end of its block. Otherwise it would be rejected, or leave space unused that a
    /// large block would fill.
    #[must_use]
    pub fn scaled(capacity_weight: u64, block_weight: u64, object_weight_at_most: u32) -> Self {
        Self { runs_over: Some(object_weight_at_most), ..Self::new(capacity_weight, block_weight) }
    }

    fn is_full_for(&self, weight: u32) -> bool {
        match self.runs_over {
            Some(_) => self.blocks.filled_weight(self.open) >= self.blocks.block_weight,
            None => !self.blocks.has_room(self.open, weight),
        }
    }

    /// Space of a block in the log.
    fn taken_by(&self, block: Block) -> u64 {
        match self.runs_over {
            Some(_) => self.blocks.filled_weight(block),
            None => self.blocks.block_weight,
        }
    }

    fn seal(&mut self) {
        self.sealed_weight += self.taken_by(self.open);
        self.sealed.push_front(self.open);
        self.open = self.blocks.open();
    }

    fn make_room(&mut self) {
        let open_weight = self.blocks.filled_weight(self.open).max(self.blocks.block_weight);
        while self.sealed_weight + open_weight > self.capacity_weight
            && let Some(oldest) = self.sealed.pop_back()
        {
            self.sealed_weight -= self.taken_by(oldest);
            self.blocks.erase(oldest, &mut self.left);
        }
    }
}

impl FlashCache for Log {
    fn holds(&self, object: u32) -> bool {
        self.blocks.home(object).is_some()
    }

    fn hit(&mut self, _object: u32) {}

    fn insert(&mut self, objects: &[WeightedObject]) {
        for &WeightedObject { object, weight } in objects {
            if self.is_full_for(weight) {
                self.seal();
            }
            self.blocks.append(self.open, object, weight);
            self.written_weight += u64::from(weight);
            self.make_room();
        }
    }

    fn remove(&mut self, object: u32) {
        self.blocks.forget(object);
    }

    fn expire(&mut self, object: u32) {
        self.blocks.forget(object);
    }

    /// Appended weight; unused ends of blocks are not counted.
    fn written_weight(&self) -> u64 {
        self.written_weight
    }

    fn weight_at_most(&self) -> u64 {
        self.runs_over.map_or(self.blocks.block_weight, |weight| self.capacity_weight.min(u64::from(weight)))
    }
}
