//! Taking everything out at once.

use super::item::State;
use super::{Dram, Handle};

impl Dram {
    /// Makes every key lead nowhere, shard by shard, and shows `gone` the items that keys led to, expired or not. What is
    /// linked while this runs stays or goes; what was before is gone when it ends. No lock is held while `gone` runs.
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
