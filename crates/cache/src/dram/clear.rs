//! Clearing the tier.

use super::item::State;
use super::{Dram, Handle};

impl Dram {
    /// Unlinks every item, shard by shard, and calls `gone` with each, expired or not. Items linked during the call may stay; all earlier
    /// ones are removed when it returns. No lock is held during `gone`.
    pub fn clear(&self, gone: &mut dyn FnMut(&Handle<'_>)) {
        (0..self.shard_count()).for_each(|shard| self.clear_shard(shard, gone));
    }

    /// Number of shards, for [`clear_shard`](Self::clear_shard).
    pub(crate) fn shard_count(&self) -> usize {
        self.index.shard_count()
    }

    /// As [`clear`](Self::clear), of one shard.
    pub(crate) fn clear_shard(&self, shard: usize, gone: &mut dyn FnMut(&Handle<'_>)) {
        self.unlink_all(shard).iter().for_each(gone);
    }

    fn unlink_all(&self, shard: usize) -> Vec<Handle<'_>> {
        let mut table = self.index.write_shard(shard);
        let mut unlinked = Vec::with_capacity(table.len());
        for item in table.take_all(&self.pools.arena) {
            item.header().clear(State::LINKED);
            // The handle takes over the index's reference.
            unlinked.push(Handle::adopt(self, item));
        }
        unlinked
    }
}
