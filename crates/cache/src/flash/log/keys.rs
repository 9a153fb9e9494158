//! Visits the keys of all items: those in memory, then those in the pages of all regions.

use super::page::Entry;
use super::{HashLog, Region};
use crate::flash::Waiting;

impl HashLog {
    /// Calls `visit` with the key of every item, with some keys more than once. Unreadable pages are skipped.
    pub(crate) async fn visit_keys(&self, waiting: Waiting, visit: &mut impl FnMut(&[u8])) {
        self.visit_buffered_keys(visit);
        let live = self.live();
        for sequence in live.min..=live.max {
            let Some(region) = self.region(sequence) else { continue };
            for key in self.keys_in(&region, waiting).await {
                visit(&key);
            }
        }
        // Items of regions that were evicted during the visit may have been readmitted.
        self.visit_buffered_keys(visit);
    }

    /// No lock is held during `visit`, which may remove the key.
    fn visit_buffered_keys(&self, visit: &mut impl FnMut(&[u8])) {
        for shard in &self.shards {
            let keys = shard.lock().tables.keys();
            keys.iter().for_each(|key| visit(key));
        }
    }

    async fn keys_in(&self, region: &Region, waiting: Waiting) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let mut collect = |entry: &Entry<'_>| {
            let hash = self.hash_of(entry.key);
            let shard = self.shard(hash).lock();
            let is_live = shard.lines.hits(&self.address(hash), region.sequence, self.live()).is_some();
            if is_live && region.sequence > shard.removals.removed_through(hash) {
                keys.push(entry.key.to_vec());
            }
        };
        self.for_each_entry(region, waiting, &mut collect).await;
        keys
    }
}
