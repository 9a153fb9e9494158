//! Walking over all items, shard by shard.

use super::{Dram, Handle};

/// The position of a scan. [`Cursor::default`] is the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursor {
    shard: usize,
}

impl Dram {
    /// Calls `visit` with the items of the next shards, at least `at_least` of them. Returns the cursor to continue from, or `None` at the
    /// end. A shard is visited as a snapshot; an item inserted, removed or moved between shards during the scan is visited once or never.
    /// No lock is held during `visit`. Expired items are skipped.
    pub fn scan(&self, from: Cursor, at_least: usize, visit: &mut dyn FnMut(&Handle<'_>)) -> Option<Cursor> {
        let mut shown = 0;
        for shard in from.shard..self.index.shard_count() {
            if shown >= at_least.max(1) {
                return Some(Cursor { shard });
            }
            let now_seconds = self.now_seconds();
            let handles: Vec<_> = {
                let table = self.index.read_shard(shard);
                let items = table.items(&self.pools.arena);
                let live = items.filter(|item| !item.header().is_expired(now_seconds));
                live.map(|item| Handle::pin(self, item)).collect()
            };
            shown += handles.len();
            handles.iter().for_each(&mut *visit);
        }
        None
    }
}
