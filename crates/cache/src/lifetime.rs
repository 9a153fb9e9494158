//! Changing the TTL of an existing item.
//!
//! In DRAM, the expiry time is in the item's header. On flash it is in the entry, which is never modified in place, so such an item is
//! first copied to DRAM, as by a get. The change invalidates the copy on flash; otherwise the old expiry time would return when DRAM
//! evicts the item.

use device::event_loop;

use crate::error::Refusal;
use crate::flash::Waiting;
use crate::hybrid::Engine;
use crate::{Cache, KeyHash};

impl Cache {
    /// Sets the TTL of the item under `key`, from now on; it may be longer or shorter than the rest of the old one, and `None` never
    /// expires. Returns whether there was such an item. With 0 seconds the item is not returned again.
    ///
    /// This counts as a get, and as a use of the item. An item on flash is copied to DRAM, which may wait while flash writes are behind;
    /// it is written to flash again when DRAM evicts it. A call after each get makes items expire a fixed time after their last use.
    ///
    /// If the future is dropped while it waits, nothing has changed.
    ///
    /// # Errors
    /// An item on flash cannot be copied to DRAM: all items there are [in use](Refusal::AllPinned), the item is [too
    /// large](Refusal::TooLarge) for the sizes with which the cache was reopened, or the cache is [closed](Refusal::Closed). The item
    /// is unchanged.
    ///
    /// ```
    /// # use flashwright_cache::{Cache, InsertOptions};
    /// # let cache = Cache::builder().dram_bytes(16 << 20).open()?;
    /// let for_an_hour = InsertOptions { ttl_seconds: Some(3600), ..InsertOptions::default() };
    /// cache.insert_blocking(b"session", b"of a user", for_an_hour);
    /// assert!(cache.set_ttl_blocking(b"session", Some(2 * 3600))?);
    /// assert!(cache.set_ttl_blocking(b"session", None)?);
    /// assert_eq!(cache.get_blocking(b"session").and_then(|item| item.expiry_seconds()), None);
    /// assert!(!cache.set_ttl_blocking(b"no such key", None)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn set_ttl(&self, key: &[u8], ttl_seconds: Option<u32>) -> Result<bool, Refusal> {
        self.engine.set_ttl(key, ttl_seconds, Waiting::Task).await
    }

    /// As [`set_ttl`](Self::set_ttl), on this thread.
    ///
    /// # Errors
    /// As [`set_ttl`](Self::set_ttl).
    pub fn set_ttl_blocking(&self, key: &[u8], ttl_seconds: Option<u32>) -> Result<bool, Refusal> {
        event_loop::wait_for(self.engine.set_ttl(key, ttl_seconds, Waiting::Thread))
    }
}

impl Engine {
    /// The Unix second at which an item with this TTL expires; 0 means never.
    pub(crate) fn expiry_seconds(&self, ttl_seconds: Option<u32>) -> u32 {
        ttl_seconds.map_or(0, |ttl| self.clock.unix_seconds().saturating_add(ttl))
    }

    async fn set_ttl(&self, key: &[u8], ttl_seconds: Option<u32>, waiting: Waiting) -> Result<bool, Refusal> {
        self.assert_not_in_callback("insert an item into");
        if self.closing.has_begun() {
            return Err(Refusal::Closed);
        }
        let hash = self.hash_of(key);
        loop {
            let Some(found) = self.find(key, hash, waiting).await else {
                self.missed(key, hash);
                return Ok(false);
            };
            if let Some((value, pieces)) = found.on_flash_alone() {
                self.wait_for_room(key, hash, value, pieces).await?;
            } else if self.set_expiry(key, hash, ttl_seconds) {
                return Ok(true);
            }
            // DRAM has space now, or the item was replaced or removed in the meantime: look it up again.
        }
    }

    /// The tag that DRAM stores with an item: whether its TTL is too short for flash.
    pub(crate) fn tag_of(&self, ttl_seconds: Option<u32>) -> u16 {
        self.flash.as_ref().map_or(0, |flash| flash.tag_of(ttl_seconds))
    }

    /// Sets the TTL if the item is in DRAM; returns whether it is.
    fn set_expiry(&self, key: &[u8], hash: KeyHash, ttl_seconds: Option<u32>) -> bool {
        let expiry_seconds = self.expiry_seconds(ttl_seconds);
        let lock = self.dram.lock(hash);
        let Some(item) = lock.find(key) else { return false };
        item.set_tag(self.tag_of(ttl_seconds));
        if item.expiry_seconds() != expiry_seconds {
            // A concurrent eviction detects that the expiry time differs from its copy, and aborts.
            item.set_expiry_seconds(expiry_seconds);
            item.mark_dirty();
            self.displace(hash, key, None);
            drop(lock);
            self.acknowledge();
        }
        true
    }
}
