//! Removing all items without device I/O.
//!
//! The regions are taken from the policy first, and the items out of the index second. No new item goes into a region on flash, so no item
//! can be added in between to a region that no longer counts. A region that is in memory or being reclaimed continues with dead items.

use super::index::Index;
use super::stats::Counters;
use super::store::RegionStore;

impl RegionStore {
    /// Removes every item committed before the call and makes the regions on flash clean.
    pub fn clear(&self) {
        self.clear_in_steps().for_each(drop);
    }

    /// As [`clear`](Self::clear), in short steps, one per item of the iterator. The caller must exhaust the iterator, otherwise regions
    /// are lost.
    pub(crate) fn clear_in_steps(&self) -> impl Iterator<Item = ()> {
        let begin = std::iter::once_with(|| {
            let regions = self.policy.lock().take_all_regions();
            self.record_clear();
            regions
        });
        begin.flat_map(move |regions| {
            let shards = (0..Index::SHARDS).map(|shard| self.clear_shard(shard));
            let regions = regions.into_iter().map(|region| self.free_region(region));
            shards.chain(regions).chain(std::iter::once_with(|| self.close_unrecoverable_regions()))
        })
    }

    /// Closes the open regions, so that new items go to recoverable regions.
    fn close_unrecoverable_regions(&self) {
        if self.journal.is_some() {
            self.close_regions();
        }
    }

    fn clear_shard(&self, shard: usize) {
        let mut policy = self.needs.items.then(|| self.policy.lock());
        let mut is_recorded = false;
        let forgotten = self.index.clear_shard(shard, |found| {
            // Under the shard's lock, so that the floor is above the regions of all its items.
            if !std::mem::replace(&mut is_recorded, true) {
                self.record_clear();
            }
            if let Some(policy) = &mut policy {
                policy.left(&self.resident(found));
            }
        });
        Counters::add(&self.counters.forgotten, forgotten);
    }
}
