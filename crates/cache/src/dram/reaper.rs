//! Removes expired items before they are requested.

use std::sync::atomic::Ordering;

use super::{Dram, Handle};

/// The result of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Visited items.
    pub visited: u64,
    /// Removed items.
    pub removed: u64,
    /// Whether the step reached the end of the index; the next one starts over.
    pub ended_round: bool,
}

impl Dram {
    /// Visits the next shards, at least one and until `budget_items` items were visited, and removes expired items. Concurrent steps visit
    /// different shards.
    pub fn reap_step(&self, budget_items: u64) -> Reaped {
        let mut reaped = Reaped::default();
        loop {
            let shards = self.index.shard_count();
            let shard = self.next_reaped_shard.fetch_add(1, Ordering::Relaxed) % shards;
            self.reap_shard(shard, &mut reaped);
            reaped.ended_round |= shard + 1 == shards;
            if reaped.visited >= budget_items || reaped.ended_round {
                return reaped;
            }
        }
    }

    fn reap_shard(&self, shard: usize, reaped: &mut Reaped) {
        let now_seconds = self.now_seconds();
        let expired: Vec<_> = {
            let table = self.index.read_shard(shard);
            reaped.visited += table.len() as u64;
            let items = table.items(&self.pools.arena);
            items
                .filter(|item| item.header().is_expired(now_seconds))
                .map(|item| Handle::pin(self, item))
                .collect()
        };
        for handle in expired {
            let hash = self.hash_of(handle.key());
            reaped.removed += u64::from(self.remove_expired(&handle, hash));
        }
    }
}
