//! Clearing the tier.

use super::item::State;
use super::{Dram, Handle};

impl Dram {
    /// Unlinks every item, shard by shard, and calls `gone` with each, expired or not. Items linked during the call may stay; all earlier
    /// ones are removed when it returns. No lock is held during `gone`.
    pub fn clear(&self, gone: &mut dyn FnMut(&Handle<'_>)) {
        for shard in 0..self.index.shard_count() {
            self.unlink_all(shard).iter().for_each(&mut *gone);
        }
    }

    fn unlink_all(&self, shard: usize) -> Vec<Handle<'_>> {
        let mut table = self.index.write_shard(shard);
        let mut unlinked = Vec::with_capacity(table.len());
        for item in table.take_all(&self.pools.arena) {
            item.header().clear(State::LINKED);
            // The index's reference is the handle's now.
            unlinked.push(Handle::adopt(self, item));
        }
        unlinked
    }
}
