//! Forgetting everything at once, without a look at the device.
//!
//! First the regions are taken from the policy, then the items out of the index: nothing new goes into a region on flash,
//! so in between nobody can put an item where none will be looked for. A region that is in memory, or that is being
//! reclaimed, goes its way with what is dead in it.

use super::index::Index;
use super::stats::Counters;
use super::store::RegionStore;

impl RegionStore {
    /// Forgets every item that was committed before this is called, and makes the regions on flash clean.
    pub fn clear(&self) {
        let regions = self.policy.lock().give_all_up();
        for shard in 0..Index::SHARDS {
            self.clear_shard(shard);
        }
        regions.into_iter().for_each(|region| self.give_up(region));
    }

    fn clear_shard(&self, shard: usize) {
        let mut policy = self.needs.items.then(|| self.policy.lock());
        let forgotten = self.index.clear_shard(shard, |found| {
            if let Some(policy) = &mut policy {
                policy.left(&self.resident(found));
            }
        });
        Counters::add(&self.counters.forgotten, forgotten);
    }
}
