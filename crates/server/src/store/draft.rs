//! Items whose values are received directly into their memory.
//!
//! A draft is invisible until it is inserted; dropping it discards it. It cannot be evicted, so the drafts of a pool take a limited part of
//! its memory: clients that stop in the middle of their values leave the rest to others.

use cache::{Cache, InsertOptions, NewItem, Refusal};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::Store;
use crate::item::{HEADER_BYTES, Header};
use crate::protocol::{Exptime, Ttl};

/// Drafts may take one part of a pool that is divided into this many.
const POOL_PARTS: f64 = 4.0;

/// Unit of the limits.
const UNIT_BYTES: usize = 1 << 10;

/// An item whose value is being received.
pub struct Draft<'a> {
    item: NewItem<'a>,
    is_expired: bool,
    _share: SemaphorePermit<'a>,
}

impl Draft<'_> {
    /// The value to be filled, which holds arbitrary bytes.
    pub fn value_mut(&mut self) -> &mut [u8] {
        &mut self.item[HEADER_BYTES..]
    }
}

impl std::fmt::Debug for Draft<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Draft({} bytes)", self.item.len() - HEADER_BYTES)
    }
}

/// The memory that drafts may take, in each pool of the cache.
pub(super) struct DraftLimits(Vec<Semaphore>);

impl DraftLimits {
    /// The limits for pools with these shares of the cache's DRAM.
    pub(super) fn new(cache: &Cache, shares: impl Iterator<Item = f64>) -> Self {
        let dram_bytes = cache.stats().dram_memory.arena_bytes as f64;
        let units = |share: f64| (dram_bytes * share / POOL_PARTS) as usize / UNIT_BYTES;
        Self(shares.map(|share| Semaphore::new(units(share).min(Semaphore::MAX_PERMITS))).collect())
    }

    /// A share of the pool for a value; `None` if its drafts would exceed the limit.
    fn take(&self, pool: u8, value_bytes: usize) -> Option<SemaphorePermit<'_>> {
        let units = u32::try_from(value_bytes.div_ceil(UNIT_BYTES)).ok()?;
        self.0.get(usize::from(pool))?.try_acquire_many(units).ok()
    }
}

impl Store {
    /// Allocates an item for a value that is going to be received; `None` if the drafts of its pool take as much memory as they may.
    /// Waits while flash writes are behind.
    ///
    /// # Errors
    /// If the cache refuses the item.
    pub async fn draft(
        &self,
        key: &[u8],
        value_bytes: usize,
        exptime: Exptime,
    ) -> Result<Option<Draft<'_>>, Refusal> {
        let pool = self.tenants.pool_of(key);
        let Some(share) = self.draft_limits.take(pool, value_bytes) else { return Ok(None) };
        let ttl = exptime.ttl(self.now_seconds());
        let options = InsertOptions { ttl_seconds: ttl.as_option(), pool };
        let item = self.cache.allocate(key, HEADER_BYTES + value_bytes, options).await?;
        Ok(Some(Draft { item, is_expired: ttl == Ttl::Expired, _share: share }))
    }

    /// Inserts a draft; the caller holds the lock of `key`. If the request gave an expiry time in the past, the key's item is removed
    /// instead.
    pub(super) fn insert(&self, mut draft: Draft<'_>, key: &[u8], header: &Header) {
        if draft.is_expired {
            self.cache.remove(key);
            return;
        }
        draft.item[..HEADER_BYTES].copy_from_slice(&header.encode());
        self.cache.insert_new(draft.item);
    }
}
