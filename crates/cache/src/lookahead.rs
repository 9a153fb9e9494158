//! Keys that are known before they are asked for.
//!
//! A lookup in DRAM waits for memory twice, first for a line of the index and then for the item, and these waits are most of
//! what a hit takes. Whoever knows some keys ahead (of a request for many, of a queue) can have both fetched while earlier
//! ones are served: the idea of group prefetching (Chen, Ailamaki, Gibbons, Mowry: "Improving Hash Join Performance through
//! Prefetching", ICDE 2004, section 4), with a lookup for a stage.

use crate::{Cache, KeyHash};

/// The keys that were told [ahead](Cache::look_ahead) and not yet asked for. One for each thread that asks.
#[derive(Debug, Default)]
pub struct Lookahead {
    /// The last ones, whose lines of the index are on their way: the last but one, and the last.
    foreseen: [Option<KeyHash>; 2],
}

impl Cache {
    /// Says that `key` will be asked for soon, so that what DRAM has of it is at hand by then. Of use if the same thread tells
    /// each key two to four requests before its own; it waits for nothing, and changes no answer and no statistic.
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
        dram.foresee(hash);
        let [arrived, on_its_way] = ahead.foreseen;
        ahead.foreseen = [on_its_way, Some(hash)];
        if let Some(arrived) = arrived {
            dram.approach(arrived);
        }
    }
}
