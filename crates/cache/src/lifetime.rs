//! Another time to live for an item that is there.
//!
//! In DRAM the time stands in the item's header. On flash it stands in the entry, which is never changed in place: such an
//! item is brought to DRAM first, as by a get. What flash holds of it is forgotten with the change, or its old time would
//! come back when DRAM needs the room.

use device::desk;

use crate::error::Refusal;
use crate::flash::Waiting;
use crate::hybrid::Engine;
use crate::{Cache, KeyHash};

impl Cache {
    /// Gives the item under `key` another time to live, from now on: longer or shorter than it has left, or `None` for ever.
    /// Says whether there was an item whose time was not over. With 0 seconds it is not returned again.
    ///
    /// It counts as a get, and as a use of the item. An item on flash is brought to DRAM, which may wait while flash is
    /// behind with its writes; it is written again when it leaves DRAM. Called after each get, it lets items live for as long
    /// as they are used.
    ///
    /// If it is dropped while it waits, nothing has changed.
    ///
    /// # Errors
    /// Why an item on flash cannot be brought to DRAM: everything there is [in use](Refusal::AllPinned), or a cache that was
    /// opened with other sizes since has no room [so large](Refusal::TooLarge), or the cache is [closed](Refusal::Closed). The item
    /// stays as it was.
    ///
    /// ```
    /// # use flashwright_cache::{Cache, InsertOptions};
    /// # let cache = Cache::builder().dram_bytes(16 << 20).open()?;
    /// let for_an_hour = InsertOptions { ttl_seconds: Some(3600), ..InsertOptions::default() };
    /// cache.insert_blocking(b"session", b"of a user", for_an_hour);
    /// assert!(cache.set_ttl_blocking(b"session", Some(2 * 3600))?);
    /// assert!(cache.set_ttl_blocking(b"session", None)?);
    /// assert_eq!(cache.get_blocking(b"session").and_then(|item| item.expiry_seconds()), None);
    /// assert!(!cache.set_ttl_blocking(b"nobody's", None)?);
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
        desk::wait_for(self.engine.set_ttl(key, ttl_seconds, Waiting::Thread))
    }
}

impl Engine {
    /// The second at which an item with this time to live expires; 0 is never.
    pub(crate) fn expiry_seconds(&self, ttl_seconds: Option<u32>) -> u32 {
        ttl_seconds.map_or(0, |ttl| self.clock.unix_seconds().saturating_add(ttl))
    }

    async fn set_ttl(&self, key: &[u8], ttl_seconds: Option<u32>, waiting: Waiting) -> Result<bool, Refusal> {
        self.assert_not_telling("bring an item into");
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
            // It has room now, or was replaced or removed since: it may be anywhere.
        }
    }

    /// What DRAM keeps of a time to live besides: whether it is too short for flash.
    pub(crate) fn tag_of(&self, ttl_seconds: Option<u32>) -> u16 {
        self.flash.as_ref().map_or(0, |flash| flash.tag_of(ttl_seconds))
    }

    /// Whether DRAM has the item, which then has so long to live.
    fn set_expiry(&self, key: &[u8], hash: KeyHash, ttl_seconds: Option<u32>) -> bool {
        let expiry_seconds = self.expiry_seconds(ttl_seconds);
        let lock = self.dram.lock(hash);
        let Some(item) = lock.find(key) else { return false };
        item.set_tag(self.tag_of(ttl_seconds));
        if item.expiry_seconds() != expiry_seconds {
            // An eviction under way finds that it has copied another time, and gives up.
            item.set_expiry_seconds(expiry_seconds);
            item.mark_dirty();
            self.displace(hash, key, None);
        }
        true
    }
}
