//! Prefetching for keys that are known before they are requested.
//!
//! A lookup in DRAM has two cache misses, in the index and in the item, which take most of the time of a hit. A caller that knows its next
//! keys (of a batch, or from a queue) can prefetch both while earlier requests are served: group prefetching (Chen, Ailamaki, Gibbons,
//! Mowry: "Improving Hash Join Performance through Prefetching", ICDE 2004, section 4), with one lookup as a stage.

use crate::{Cache, KeyHash};

/// The keys that were [announced](Cache::look_ahead) and not yet requested. Each requesting thread has one.
#[derive(Debug, Default)]
pub struct Lookahead {
    /// Keys whose index lines are being prefetched: the last but one, and the last.
    announced: [Option<KeyHash>; 2],
}

impl Cache {
    /// Announces a request for `key`, so that its index line and item are prefetched. Call it two to four requests ahead, on the same
    /// thread. It never waits, and does not affect results or statistics.
    ///
    /// ```
    /// # use flashwright_cache::{Cache, InsertOptions, Lookahead};
    /// # let cache = Cache::builder().dram_bytes(16 << 20).open()?;
    /// # cache.insert_blocking(b"two", b"2", InsertOptions::default());
    /// let keys = [&b"one"[..], b"two", b"three", b"four", b"five"];
    /// let mut ahead = Lookahead::default();
    /// let mut coming = keys.iter();
    /// coming.by_ref().take(3).for_each(|key| cache.look_ahead(&mut ahead, key));
    /// let found = keys.iter().filter(|key| {
    ///     coming.next().into_iter().for_each(|key| cache.look_ahead(&mut ahead, key));
    ///     cache.get_blocking(key).is_some()
    /// });
    /// assert_eq!(found.count(), 1);
    /// # Ok::<(), flashwright_cache::CacheError>(())
    /// ```
    #[inline]
    pub fn look_ahead(&self, ahead: &mut Lookahead, key: &[u8]) {
        let (hash, dram) = (self.key_hash(key), &self.engine.dram);
        dram.prefetch_line(hash);
        let [arrived, pending] = ahead.announced;
        ahead.announced = [pending, Some(hash)];
        if let Some(arrived) = arrived {
            dram.prefetch_item(arrived);
        }
    }
}
