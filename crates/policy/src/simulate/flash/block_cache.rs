//! BlockCache: segmented LRU over blocks. Newcomers fill a block in memory; a hit lifts the whole block it finds its object
//! in, with all the cold objects there; the lowest segment's oldest block is overwritten.
//!
//! Zhou, Lloyd, Tang, Huang: "The Evolution of Advanced Caching in the Facebook CDN", Facebook Research, 2016, part II.

use super::blocks::{Block, Blocks};
use super::{FlashCache, Newcomer};
use crate::eviction::Slru;
use crate::{Entry, Eviction as _, Slot};

/// The blocks and their order, which is [`Slru`] with blocks for entries. A block counts by what it is filled with, as in
/// [`Ripq`](super::Ripq).
pub struct BlockCache {
    blocks: Blocks,
    capacity_weight: u64,
    /// Of sealed blocks.
    sealed_weight: u64,
    open: Block,
    order: Slru,
    written_weight: u64,
    left: Vec<(u32, u32)>,
}

impl BlockCache {
    /// A cache of so many segments that share all blocks of this weight.
    #[must_use]
    pub fn new(capacity_weight: u64, block_weight: u64, segments: u8) -> Self {
        let mut blocks = Blocks::new(block_weight.clamp(1, capacity_weight.clamp(1, u32::MAX.into())));
        let open = blocks.open();
        let order = Slru::new(segments, capacity_weight.saturating_sub(blocks.block_weight));
        Self { blocks, capacity_weight, sealed_weight: 0, open, order, written_weight: 0, left: Vec::new() }
    }

    fn seal(&mut self) {
        let weight = self.blocks.filled_weight(self.open);
        self.written_weight += weight;
        self.sealed_weight += weight;
        self.order.insert(Slot(self.open), Entry { hash: 0, weight: weight as u32 }, 0);
        while self.sealed_weight + self.blocks.block_weight > self.capacity_weight
            && let Some(Slot(victim)) = self.order.evict(0)
        {
            self.sealed_weight -= self.blocks.filled_weight(victim);
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
