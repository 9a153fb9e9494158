//! The keys on flash, and removing all keys with a prefix.
//!
//! Memory has only parts of the hashes of keys on flash. So both operations read the whole flash tier, in large transfers.

use device::event_loop;

use crate::Cache;
use crate::flash::Waiting;
use crate::hybrid::Engine;

impl Cache {
    /// Calls `visit` with the keys of all items on flash and waiting to be written to it, in no order. It reads the whole flash tier, which
    /// takes about a second for every few GB. No lock is held while it runs. A key that is inserted, removed or moved concurrently is
    /// visited once, several times or never; a key that stays on flash is visited at least once. A key that was removed before the call
    /// is never visited. [`for_each_key_in_dram`](Self::for_each_key_in_dram) visits the keys in DRAM, and some of them
    /// may be on flash as well.
    pub async fn for_each_key_on_flash(&self, visit: impl FnMut(&[u8])) {
        self.engine.visit_flash(Waiting::Task, visit).await;
    }

    /// As [`for_each_key_on_flash`](Self::for_each_key_on_flash), on this thread.
    pub fn for_each_key_on_flash_blocking(&self, visit: impl FnMut(&[u8])) {
        event_loop::wait_for(self.engine.visit_flash(Waiting::Thread, visit));
    }

    /// Removes every key that starts with `prefix`, in DRAM and on flash. Returns the number of removals, at least one per key. A key
    /// with the prefix that was inserted before the call is not found after it. Concurrent inserts may or may not be removed. The result of a
    /// fetch that started before the call is not stored.
    ///
    /// It reads the whole flash tier, as [`for_each_key_on_flash`](Self::for_each_key_on_flash) does. If the future is dropped early, some
    /// keys have been removed.
    ///
    /// ```
    /// # use flashwright_cache::{Cache, InsertOptions};
    /// # let cache = Cache::builder().dram_bytes(4 << 20).open()?;
    /// cache.insert_blocking(b"user/7/name", b"Ada", InsertOptions::default());
    /// cache.insert_blocking(b"user/8/name", b"Bob", InsertOptions::default());
    /// assert_eq!(cache.remove_prefix_blocking(b"user/7/"), 1);
    /// assert!(cache.get_blocking(b"user/7/name").is_none() && cache.get_blocking(b"user/8/name").is_some());
    /// # Ok::<(), flashwright_cache::CacheError>(())
    /// ```
    pub async fn remove_prefix(&self, prefix: &[u8]) -> u64 {
        self.remove_all(prefix, Waiting::Task).await
    }

    /// As [`remove_prefix`](Self::remove_prefix), on this thread.
    pub fn remove_prefix_blocking(&self, prefix: &[u8]) -> u64 {
        event_loop::wait_for(self.remove_all(prefix, Waiting::Thread))
    }

    async fn remove_all(&self, prefix: &[u8], waiting: Waiting) -> u64 {
        // From now on, no such key is copied from flash to DRAM, where the scan could miss it.
        let _removing = self.engine.removals.begin(prefix);
        drop((self.engine.loads.overtake_all(), self.engine.in_flight.overtake_all()));
        let mut removed = 0;
        let mut remove = |key: &[u8]| {
            if key.starts_with(prefix) {
                removed += u64::from(self.remove(key));
            }
        };
        self.for_each_key_in_dram(&mut remove);
        self.engine.visit_flash(waiting, remove).await;
        removed
    }
}

impl Engine {
    async fn visit_flash(&self, waiting: Waiting, mut visit: impl FnMut(&[u8])) {
        let Some(flash) = &self.flash else { return };
        for pair in &flash.pairs {
            if let Some(regions) = &pair.regions {
                regions.visit_keys(waiting, &mut visit).await;
            }
            if let Some(soc) = &pair.soc {
                soc.visit_keys(waiting, &mut visit).await;
            }
        }
    }
}
