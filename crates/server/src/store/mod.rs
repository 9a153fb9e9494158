//! The items: memcached's operations on a [`Cache`].
//!
//! A read takes no lock. An operation that changes an item locks one of [`STRIPES`] locks by the key's hash, so that it reads and
//! writes the item in one step. `flush_all` takes all locks, so that no change in progress survives it.

mod access;
mod arithmetic;
mod cas;
mod draft;
mod flush;
mod meta;
mod write;

use std::sync::Arc;

use cache::{Cache, InsertOptions, Item, Refusal};
use device::Clock;
use tokio::sync::{Mutex, MutexGuard};

use crate::item::{HEADER_BYTES, Header};
use crate::protocol::{Exptime, Ttl};
use crate::tenants::Tenants;

pub use arithmetic::{Arithmetic, ArithmeticOutcome};
pub use draft::Draft;
pub use meta::MetaHit;
pub use write::{StoreOutcome, Value, Write};

use access::AccessTable;
use cas::CasNumbers;
use draft::DraftLimits;
use flush::Flush;

/// Locks of keys. Two keys with the same lock delay each other and nothing more.
const STRIPES: usize = 1 << STRIPE_BITS;
const STRIPE_BITS: u32 = 12;

/// The items of a server.
pub struct Store {
    cache: Arc<Cache>,
    locks: Box<[Mutex<()>]>,
    cas: CasNumbers,
    access: AccessTable,
    flush: Flush,
    tenants: Tenants,
    draft_limits: DraftLimits,
    clock: Arc<dyn Clock>,
    recovered_items: usize,
}

/// An item that was found, pinned while this is held.
#[derive(Debug)]
pub struct Found<'a> {
    item: Item<'a>,
    /// Its header.
    pub header: Header,
}

impl Found<'_> {
    /// The value.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        &self.item[HEADER_BYTES..]
    }

    /// Unix second at which it expires; `None` is never.
    #[must_use]
    pub fn expiry_seconds(&self) -> Option<u32> {
        self.item.expiry_seconds()
    }
}

/// An item about to be stored.
struct NewValue<'a> {
    header: Header,
    /// The value in pieces.
    pieces: [&'a [u8]; 2],
    ttl: Ttl,
}

impl Store {
    /// The store of an open cache. Reads the last CAS number and the scheduled flush of an earlier server from it.
    pub async fn new(cache: Arc<Cache>, clock: Arc<dyn Clock>) -> Self {
        // Before the read of the last CAS number, which copies that item to DRAM.
        let items = cache.len();
        let (cas, is_recovered) = CasNumbers::recover(&cache, &*clock).await;
        let recovered_items = items.saturating_sub(usize::from(is_recovered));
        let locks = (0..STRIPES).map(|_| Mutex::new(())).collect();
        let flush = Flush::at(cache.clear_time());
        let (access, tenants) = (AccessTable::default(), Tenants::default());
        let draft_limits = DraftLimits::new(&cache, std::iter::once(1.0));
        Self { cache, locks, cas, access, flush, tenants, draft_limits, clock, recovered_items }
    }

    /// The clients' items that the cache had when the store was created.
    #[must_use]
    pub fn recovered_items(&self) -> usize {
        self.recovered_items
    }

    /// With tenants, for whose [pools](Tenants::pools) the cache was opened.
    #[must_use]
    pub fn with_tenants(self, tenants: Tenants) -> Self {
        let shares = tenants.pools().into_iter().map(|(_, share)| share);
        let draft_limits = DraftLimits::new(&self.cache, shares);
        Self { tenants, draft_limits, ..self }
    }

    /// The tenants.
    pub(crate) fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// The cache.
    #[must_use]
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Stores the state for the next server. Called before the cache is closed, when no request is in progress.
    pub async fn persist(&self) {
        self.cas.persist(&self.cache).await;
    }

    /// Nanoseconds on the clock, for durations.
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }

    /// The Unix second.
    pub(crate) fn now_seconds(&self) -> u32 {
        self.clock.unix_seconds()
    }

    /// The item under `key`.
    #[inline]
    pub async fn get(&self, key: &[u8]) -> Option<Found<'_>> {
        self.flush_if_due().await;
        let found = self.find(key).await?;
        self.access.note(found.header.cas, self.now_seconds());
        Some(found)
    }

    /// Gets an item without recording an access.
    pub(crate) async fn find(&self, key: &[u8]) -> Option<Found<'_>> {
        let item = self.cache.get(key).await?;
        let (header, _) = Header::decode(&item)?;
        Some(Found { item, header })
    }

    /// The item under `key`, with a new expiry.
    ///
    /// # Errors
    /// If it cannot be brought to DRAM; it keeps its expiry.
    pub async fn get_and_touch(&self, key: &[u8], exptime: Exptime) -> Result<Option<Found<'_>>, Refusal> {
        let _guard = self.lock(key).await;
        let Some(found) = self.find(key).await else { return Ok(None) };
        self.access.note(found.header.cas, self.now_seconds());
        self.cache.set_ttl(key, exptime.ttl(self.now_seconds()).as_option()).await?;
        Ok(Some(found))
    }

    /// Gives the item another expiry. Returns whether there is one.
    ///
    /// # Errors
    /// As [`get_and_touch`](Self::get_and_touch).
    pub async fn touch(&self, key: &[u8], exptime: Exptime) -> Result<bool, Refusal> {
        let _guard = self.lock(key).await;
        self.cache.set_ttl(key, exptime.ttl(self.now_seconds()).as_option()).await
    }

    /// Removes the item. Returns whether there was one.
    pub async fn delete(&self, key: &[u8]) -> bool {
        let _guard = self.lock(key).await;
        // The cache's own answer is not exact for an item on flash.
        let found = self.find(key).await.is_some();
        self.cache.remove(key);
        found
    }

    /// Locks the key against other changes.
    async fn lock(&self, key: &[u8]) -> MutexGuard<'_, ()> {
        self.flush_if_due().await;
        self.locks[self.cache.key_hash(key).shard(STRIPE_BITS)].lock().await
    }

    /// Stores an item in place of the present one. The key is locked. An item whose time is over is removed.
    async fn put(&self, key: &[u8], new: &NewValue<'_>) -> Result<(), Refusal> {
        if new.ttl == Ttl::Expired {
            self.cache.remove(key);
            return Ok(());
        }
        let options = InsertOptions { ttl_seconds: new.ttl.as_option(), pool: self.tenants.pool_of(key) };
        let [first, second] = new.pieces;
        let bytes = HEADER_BYTES + first.len() + second.len();
        let mut item = self.cache.allocate(key, bytes, options).await?;
        let (header, value) = item.split_at_mut(HEADER_BYTES);
        header.copy_from_slice(&new.header.encode());
        let (to_first, to_second) = value.split_at_mut(first.len());
        to_first.copy_from_slice(first);
        to_second.copy_from_slice(second);
        self.cache.insert_new(item);
        Ok(())
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({:?})", self.cache)
    }
}
