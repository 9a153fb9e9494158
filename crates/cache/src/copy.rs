//! Gets that copy the value.

use crate::{Cache, coop};

/// Largest value that is copied while its index shard is locked.
const MAX_LOCKED_COPY_BYTES: usize = 4096;

impl Cache {
    /// Replaces the content of `value` by the value under `key`. Returns false, with `value` empty, if the key is not found.
    ///
    /// For a program that copies the value anyway, a DRAM hit costs less than with [`get`](Self::get): a value of up to 4 KiB is copied
    /// under the lock of its index shard, and its item is not pinned. Policies that move an entry at each hit, such as LRU, gain nothing.
    ///
    /// ```
    /// # use flashwright_cache::{Cache, InsertOptions};
    /// # let cache = Cache::builder().dram_bytes(4 << 20).open().unwrap();
    /// # flashwright_cache::block_on(async {
    /// cache.insert(b"key", b"value", InsertOptions::default()).await;
    /// let mut value = Vec::new();
    /// assert!(cache.copy_into(b"key", &mut value).await);
    /// assert_eq!(value, b"value");
    /// # });
    /// ```
    pub async fn copy_into(&self, key: &[u8], value: &mut Vec<u8>) -> bool {
        if self.copy_from_dram(key, value) {
            if self.engine.yields {
                coop::spend().await;
            }
            return true;
        }
        let found = self.get(key).await;
        found.is_some_and(|item| append(&item, value))
    }

    /// As [`copy_into`](Self::copy_into), on this thread.
    #[must_use]
    pub fn copy_into_blocking(&self, key: &[u8], value: &mut Vec<u8>) -> bool {
        self.copy_from_dram(key, value) || self.get_blocking(key).is_some_and(|item| append(&item, value))
    }

    #[inline]
    fn copy_from_dram(&self, key: &[u8], value: &mut Vec<u8>) -> bool {
        value.clear();
        let engine = &self.engine;
        engine.events.is_none() && engine.dram.copy(key, engine.hash_of(key), MAX_LOCKED_COPY_BYTES, value)
    }
}

fn append(item: &[u8], value: &mut Vec<u8>) -> bool {
    value.extend_from_slice(item);
    true
}
