//! BlockCache: segmented LRU over blocks. Newcomers fill a block in memory; a hit lifts the whole block it finds its object
//! in, with all the cold objects there; the lowest segment's oldest block is overwritten.
//!
//! Zhou, Lloyd, Tang, Huang: "The Evolution of Advanced Caching in the Facebook CDN", Facebook Research, 2016, part II.

use super::blocks::{Block, Blocks};
use super::{FlashCache, Newcomer};
use crate::eviction::Slru;
use crate::{Entry, Eviction as _, Slot};

/// The blocks and their order, which is [`Slru`] with blocks for entries.
pub struct BlockCache {
    blocks: Blocks,
    count: usize,
    open: Block,
    order: Slru,
    written_weight: u64,
    left: Vec<(u32, u32)>,
}

impl BlockCache {
    /// A cache of so many segments that share all blocks of this weight.
    #[must_use]
    pub fn new(capacity_weight: u64, block_weight: u64, segments: u8) -> Self {
        let mut blocks = Blocks::new(block_weight.min(capacity_weight.max(1)));
        let count = (capacity_weight / blocks.block_weight).max(1) as usize;
        let open = blocks.open();
        let order = Slru::new(segments, count as u64 - 1);
        Self { blocks, count, open, order, written_weight: 0, left: Vec::new() }
    }

    fn seal(&mut self) {
        self.written_weight += self.blocks.block_weight;
        self.order.insert(Slot(self.open), Entry { hash: 0, weight: 1 }, 0);
        while self.order.len() >= self.count
            && let Some(Slot(victim)) = self.order.evict(0)
        {
            self.blocks.erase(victim, &mut self.left);
        }
        self.open = self.blocks.open();
    }
}

impl FlashCache for BlockCache {
    fn holds(&self, object: u32) -> bool {
        self.blocks.home(object).is_some()
    }

    fn hit(&mut self, object: u32) {
        match self.blocks.home(object) {
            Some(block) if block != self.open => self.order.hit(Slot(block), 0),
            _ => {}
        }
    }

    fn insert(&mut self, newcomers: &[Newcomer]) {
        for &Newcomer { object, weight } in newcomers {
            if !self.blocks.has_room(self.open, weight) {
                self.seal();
            }
            self.blocks.append(self.open, object, weight);
        }
    }

    fn remove(&mut self, object: u32) {
        self.blocks.forget(object);
    }

    fn written_weight(&self) -> u64 {
        self.written_weight
    }

    fn weight_at_most(&self) -> u64 {
        self.blocks.block_weight
    }
}
