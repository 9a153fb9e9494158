//! Forgetting everything at once, without a look at the device.
//!
//! First the regions are taken from the policy, then the items out of the index: nothing new goes into a region on flash,
//! so in between nobody can put an item where none will be looked for. A region that is in memory, or that is being
//! reclaimed, goes its way with what is dead in it.

use crate::flash::Waiting;

use super::index::Index;
use super::layout::RegionId;
use super::stats::Counters;
use super::store::{Content, RegionStore};

impl RegionStore {
    /// Forgets every item that was committed before this is called, and makes the regions on flash clean.
    pub fn clear(&self) {
        let regions = self.policy.lock().give_all_up();
        for shard in 0..Index::SHARDS {
            self.clear_shard(shard);
        }
        regions.into_iter().for_each(|region| self.clear_region(region));
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

    /// Trims one of the regions that [`clear`](Self::clear) emptied; whether there was one.
    pub(super) async fn trim_next(&self, waiting: Waiting) -> bool {
        let Some(region) = self.supply.next_untrimmed() else { return false };
        let mut untrimmed = Untrimmed { store: self, region, is_trimmed: false };
        self.trim(region, waiting).await;
        untrimmed.is_trimmed = true;
        true
    }

    fn clear_region(&self, region: RegionId) {
        *self.region(region).content.lock() = Content::Clean;
        if self.config.trim {
            self.supply.give_untrimmed(region);
        } else {
            self.supply.give_region(region);
        }
    }
}

/// A region on its way to the clean ones. It starts again if its trim is dropped half way.
struct Untrimmed<'a> {
    store: &'a RegionStore,
    region: RegionId,
    is_trimmed: bool,
}

impl Drop for Untrimmed<'_> {
    fn drop(&mut self) {
        if self.is_trimmed {
            self.store.supply.give_region(self.region);
        } else {
            self.store.supply.give_untrimmed(self.region);
        }
    }
}
