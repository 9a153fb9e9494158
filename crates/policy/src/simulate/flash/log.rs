//! A log. Newcomers fill a block in memory, full blocks are written one behind the other, and the oldest is
//! overwritten, with all that is in it. FIFO but for the last block, and nothing is written twice.
//!
//! The log-structured cache that the Kangaroo paper compares with (McAllister et al., SOSP'21); McDipper is one too.

use std::collections::VecDeque;

use super::blocks::{Block, Blocks};
use super::{FlashCache, Newcomer};

/// The log.
pub struct Log {
    blocks: Blocks,
    /// Blocks in all, the one that is being filled included.
    count: usize,
    open: Block,
    /// The oldest at the back.
    sealed: VecDeque<Block>,
    written_weight: u64,
    left: Vec<(u32, u32)>,
}

impl Log {
    /// A log of so many blocks of this weight, at least one.
    #[must_use]
    pub fn new(capacity_weight: u64, block_weight: u64) -> Self {
        let mut blocks = Blocks::new(block_weight.min(capacity_weight.max(1)));
        let count = (capacity_weight / blocks.block_weight).max(1) as usize;
        let open = blocks.open();
        Self { blocks, count, open, sealed: VecDeque::new(), written_weight: 0, left: Vec::new() }
    }
}

impl FlashCache for Log {
    fn holds(&self, object: u32) -> bool {
        self.blocks.home(object).is_some()
    }

    fn hit(&mut self, _object: u32) {}

    fn insert(&mut self, newcomers: &[Newcomer]) {
        for &Newcomer { object, weight } in newcomers {
            if !self.blocks.has_room(self.open, weight) {
                self.sealed.push_front(self.open);
                while self.sealed.len() >= self.count
                    && let Some(oldest) = self.sealed.pop_back()
                {
                    self.blocks.erase(oldest, &mut self.left);
                }
                self.open = self.blocks.open();
            }
            self.blocks.append(self.open, object, weight);
            self.written_weight += u64::from(weight);
        }
    }

    fn remove(&mut self, object: u32) {
        self.blocks.forget(object);
    }

    /// What is put into blocks; the rests at their ends are not counted.
    fn written_weight(&self) -> u64 {
        self.written_weight
    }

    fn weight_at_most(&self) -> u64 {
        self.blocks.block_weight
    }
}
