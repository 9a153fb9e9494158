//! The DRAM tier: hot items, read in place.
//!
//! Items live in slabs ([`slab`]), found through a sharded index ([`index`]), in pools of size classes that each have an
//! eviction policy ([`pools`]). [`Dram::get`] hands out a [`Handle`] that pins the item and reads as its value.
//! [`Dram::allocate`] hands out a [`Draft`] to be filled, and [`KeyLock::link`] makes it visible.
//!
//! # Invariants
//! * A chunk is reused only when its last reference is dropped. The index has one reference, each handle one, an evictor one.
//! * `LINKED` changes under the shard's write lock, `IN_POLICY` and `FREE` under the class lock.
//! * Lock order: shard, class, supply. Under the class lock, this module calls only the policy; under the shard's lock, only
//!   [`Spill::commit`].

mod chain;
mod children;
mod chunks;
mod class_state;
mod clear;
mod config;
mod empty;
mod evict;
mod handle;
mod hits;
mod index;
mod item;
mod kept;
mod key_lock;
mod links;
mod pools;
mod reaper;
mod rebalance;
mod release;
mod scan;
mod slab;
mod stats;
mod table;
#[cfg(test)]
mod tests;
mod victims;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use device::Clock;
use policy::{Entry, HitRule};

use crate::KeyHash;
use crate::thread_counters::ThreadCounters;

pub use class_state::{Rebalance, Strategy};
pub use config::{DramConfig, DramConfigError, KEY_ALLOWANCE_BYTES, PolicyFactory, PoolConfig, PoolId};
pub use empty::EvictionStep;
pub use evict::{Discard, Spill, Stage, Victim};
pub use handle::{Draft, Handle};
pub use index::{INDEX_LEAST_BYTES, INDEX_MOST_BYTES_PER_ITEM};
pub use item::HEADER_BYTES;
pub(crate) use kept::Kept;
pub use key_lock::KeyLock;
pub use rebalance::Released;
pub use release::ReleaseStats;
pub use scan::Cursor;
pub use stats::{ClassStats, MemoryStats, PoolStats};

use crate::sync::RwLockReadGuard;
use children::{Chains, children};
use class_state::Rebalancer;
use index::{Index, Table};
use item::State;
use pools::{AllocationPurpose, Class, Pools};
use slab::{Item, SlabUse};

/// Longest key, bytes.
pub const MAX_KEY_BYTES: usize = u16::MAX as usize;

/// The DRAM tier.
pub struct Dram {
    pools: Pools,
    index: Index,
    clock: Arc<dyn Clock>,
    /// The last time read from the clock.
    recent_seconds: AtomicU32,
    /// By class.
    hits: ThreadCounters,
    /// The shard that the next step of the reaper visits.
    next_reaped_shard: AtomicUsize,
    rebalancer: Rebalancer,
    chains: Chains,
    on_expiry: Option<OnExpiry>,
    on_unlink_expired: Option<OnUnlinkExpired>,
}

/// Called with an item that was removed because it expired. Runs with no lock held.
pub type OnExpiry = Arc<dyn Fn(&Handle<'_>) + Send + Sync>;

/// Called with the key of an expired item while the key's lock is held.
pub type OnUnlinkExpired = Arc<dyn Fn(KeyHash, &[u8]) + Send + Sync>;

/// Why an item cannot be allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// The value is too large.
    #[error("a value of {bytes} bytes is larger than the limit of {max}")]
    TooLarge {
        /// Size of the value, and of the part of its key beyond [`KEY_ALLOWANCE_BYTES`].
        bytes: usize,
        /// Size of the largest value.
        max: usize,
    },
    /// Keys are at most [`MAX_KEY_BYTES`] long.
    #[error("a key of {bytes} bytes is longer than {MAX_KEY_BYTES}")]
    KeyTooLong {
        /// Bytes of the key.
        bytes: usize,
    },
    /// The spill cannot accept the item to be evicted now.
    #[error("the next tier cannot take the item to evict now")]
    Busy,
    /// No item can be evicted: all are in use, or the first thousand in eviction order.
    #[error("the items of this size class that would leave are in use, and its pool has no slab left")]
    NoMemory,
}

impl Dram {
    /// Creates an empty tier.
    pub fn new(config: &DramConfig, clock: Arc<dyn Clock>) -> Result<Self, DramConfigError> {
        let pools = Pools::new(config)?;
        let index = Index::new(pools.arena.bytes());
        let hits = ThreadCounters::new(pools.classes.len());
        let rebalancer = Rebalancer::new(pools.classes.len(), pools.layout.quotas.len());
        let (next_reaped_shard, chains) = (AtomicUsize::new(0), Chains::new());
        let recent_seconds = AtomicU32::new(clock.unix_seconds());
        Ok(Self {
            pools,
            index,
            clock,
            recent_seconds,
            hits,
            next_reaped_shard,
            rebalancer,
            chains,
            on_expiry: None,
            on_unlink_expired: None,
        })
    }

    /// Sets the callback for items that a get or the reaper removes because they expired.
    #[must_use]
    pub fn with_expiry_callback(self, on_expiry: OnExpiry) -> Self {
        Self { on_expiry: Some(on_expiry), ..self }
    }

    /// Sets the seed of the key hash, which is 0 by default. The tier must be empty.
    #[must_use]
    pub fn with_hash_seed(self, seed: u64) -> Self {
        self.pools.arena.set_hash_seed(seed);
        self
    }

    /// The hash of `key`, which other methods take as a parameter.
    #[inline]
    #[must_use]
    pub fn hash_of(&self, key: &[u8]) -> KeyHash {
        self.pools.arena.hash_of(key)
    }

    /// Sets a callback that receives the key of every expired item while the key's lock is held.
    #[must_use]
    pub fn with_unlink_expired_callback(self, on_unlink_expired: OnUnlinkExpired) -> Self {
        Self { on_unlink_expired: Some(on_unlink_expired), ..self }
    }

    /// Pins and returns the item of `key`, and reports the hit to the policy. An expired item is removed and is a miss.
    #[inline(always)]
    pub fn get(&self, key: &[u8], hash: KeyHash) -> Option<Handle<'_>> {
        // Prefetched while the lock is acquired.
        self.index.prefetch_entries(hash);
        let table = self.index.read(hash);
        let pinned = match table.find_likely(&self.pools.arena, key, hash) {
            Some((item, slab_use)) => self.pin_hit(table, item, slab_use, hash),
            None => self.get_unlikely(table, key, hash),
        };
        Some(Handle::adopt(self, pinned?))
    }

    /// A get whose key is not the first candidate of its line; the caller receives the reference. A separate function, so that the common
    /// case has no second source of the result.
    #[inline(never)]
    fn get_unlikely(&self, table: RwLockReadGuard<'_, Table>, key: &[u8], hash: KeyHash) -> Option<Item<'_>> {
        let (item, slab_use) = table.find_with_slab(&self.pools.arena, key, hash)?;
        self.pin_hit(table, item, slab_use, hash)
    }

    /// Pins a found item and reports the hit, unless the item has expired. The caller receives the reference: a handle, which is
    /// dropped on a panic, would go through memory here.
    #[inline(always)]
    fn pin_hit<'a>(
        &'a self,
        table: RwLockReadGuard<'_, Table>,
        item: Item<'a>,
        slab_use: SlabUse,
        hash: KeyHash,
    ) -> Option<Item<'a>> {
        let class = &self.pools.classes[usize::from(slab_use.class)];
        let (header, hits) = (item.header(), class.hits());
        let before = header.pin_marked(hits.marks_at_most);
        drop(table);
        if header.expiry_seconds() == 0 && !hits.are_reported && !before.has(State::CHAINED) {
            // Reading the clock would cost a quarter of the hit.
            header.set_touched_seconds(self.recent_seconds.load(Ordering::Relaxed));
        } else {
            return self.report_special_hit(Handle::adopt(self, item), class, before, hash);
        }
        self.hits.count(slab_use.class.into());
        Some(item)
    }

    /// The rest of `pin_hit` for an item that can expire or has children, or for a policy that does not use marks. `before` is the item's
    /// state.
    #[inline(never)]
    fn report_special_hit<'a>(
        &'a self,
        found: Handle<'a>,
        class: &Class,
        before: State,
        hash: KeyHash,
    ) -> Option<Item<'a>> {
        let now_seconds = self.now_seconds();
        if found.item.header().is_expired(now_seconds) {
            self.remove_expired(&found, hash);
            return None;
        }
        self.hits.count(class.index.into());
        self.touch(found.item, class, class.rule(), now_seconds);
        if before.has(State::CHAINED) {
            self.touch_chain(found.item, now_seconds);
        }
        Some(found.into_item())
    }

    /// First stage of a prefetch for a lookup that follows soon: prefetches its index line. Takes no lock.
    #[inline]
    pub fn prefetch_line(&self, hash: KeyHash) {
        self.index.prefetch_line(hash);
    }

    /// Second stage, after the index line has arrived: prefetches the item.
    #[inline]
    pub fn prefetch_item(&self, hash: KeyHash) {
        self.index.prefetch_item(&self.pools.arena, hash);
    }

    /// The item of `key`, pinned, without a report to the policy. An expired item is a miss.
    pub fn peek(&self, key: &[u8], hash: KeyHash) -> Option<Handle<'_>> {
        let table = self.index.read(hash);
        let item = table.find(&self.pools.arena, key, hash)?;
        let expired = item.header().is_expired(self.now_seconds());
        (!expired).then(|| Handle::pin(self, item))
    }

    /// Allocates an item in `pool`, to be filled and linked. Evicts through `spill` if there is no free chunk.
    /// The caller holds no [`KeyLock`].
    #[inline]
    pub fn allocate<S: Spill>(
        &self,
        pool: PoolId,
        key: &[u8],
        hash: KeyHash,
        value_len: usize,
        expiry_seconds: u32,
        spill: &S,
    ) -> Result<Draft<'_>, AllocateError> {
        let key_len = u16::try_from(key.len()).map_err(|_| AllocateError::KeyTooLong { bytes: key.len() })?;
        let bytes = HEADER_BYTES.saturating_add(key.len()).saturating_add(value_len);
        let class = self.class_for(pool, value_len, key.len(), bytes)?;
        // As at a hit, without a read of the clock. `upkeep_step` reads it at least once a second.
        let needs_clock = !S::DISCARDS || class.hits().are_reported;
        let now_seconds =
            if needs_clock { self.now_seconds() } else { self.recent_seconds.load(Ordering::Relaxed) };
        let entry = Entry { hash: hash.0, weight: 1 };
        let item =
            self.take_chunk(class, AllocationPurpose { entry, bytes: bytes as u64, now_seconds }, spill)?;
        item.header().describe(key_len, value_len as u32, expiry_seconds, now_seconds);
        item.write_key(key);
        Ok(Draft { dram: self, item, hash })
    }

    /// The class for an item of `bytes`, header and key included.
    #[inline]
    fn class_for(
        &self,
        pool: PoolId,
        value_len: usize,
        key_len: usize,
        bytes: usize,
    ) -> Result<&Class, AllocateError> {
        let value_bytes = value_len.saturating_add(key_len.saturating_sub(KEY_ALLOWANCE_BYTES));
        let fits = value_bytes <= self.pools.layout.refused_above_bytes;
        let class = if fits { self.pools.class_for(pool, bytes) } else { None };
        class.ok_or_else(|| AllocateError::TooLarge { bytes: value_bytes, max: self.max_item_bytes() })
    }

    /// Size of the largest value. The part of its key beyond [`KEY_ALLOWANCE_BYTES`] counts as well.
    #[must_use]
    pub fn max_item_bytes(&self) -> usize {
        self.pools.layout.max_value_bytes
    }

    /// Reads the clock. Called about every second, so that hits that do not read it have a recent time.
    pub(crate) fn now_seconds(&self) -> u32 {
        let now_seconds = self.clock.unix_seconds();
        if self.recent_seconds.load(Ordering::Relaxed) != now_seconds {
            self.recent_seconds.store(now_seconds, Ordering::Relaxed);
        }
        now_seconds
    }

    /// Reports a hit to the policy, as its rule demands, unless hits are counted in marks.
    #[inline]
    fn touch(&self, item: Item<'_>, class: &Class, rule: &HitRule, now_seconds: u32) {
        let header = item.header();
        match rule {
            HitRule::Ignore | HitRule::Mark { .. } => header.set_touched_seconds(now_seconds),
            HitRule::Refresh { refresh_seconds } => {
                if now_seconds.saturating_sub(header.touched_seconds()) >= *refresh_seconds {
                    header.set_touched_seconds(now_seconds);
                    class.hit(&self.pools, item, now_seconds);
                }
            }
            HitRule::Every => {
                header.set_touched_seconds(now_seconds);
                class.hit(&self.pools, item, now_seconds);
            }
        }
    }

    /// Reports a hit for the children of a chain too; otherwise they would be evicted, and the parent with them.
    #[cold]
    fn touch_chain(&self, parent: Item<'_>, now_seconds: u32) {
        for child in children(&self.pools.arena, self.chains.head(parent)) {
            let (class, _) = self.pools.class_of(child.reference());
            if let HitRule::Mark { at_most, .. } = class.rule() {
                child.header().mark(*at_most);
            }
            self.touch(child, class, class.rule(), now_seconds);
        }
    }

    /// Removes an item if it is expired and the index still refers to it; returns whether the item was removed.
    #[cold]
    fn remove_expired(&self, handle: &Handle<'_>, hash: KeyHash) -> bool {
        let mut lock = self.lock(hash);
        let still = handle.is_linked() && handle.item.header().is_expired(self.now_seconds());
        let removed = if still { lock.unlink(handle.key()) } else { None };
        if let (Some(item), Some(callback)) = (&removed, &self.on_unlink_expired) {
            callback(hash, item.key());
        }
        drop(lock);
        if let (Some(item), Some(on_expiry)) = (&removed, &self.on_expiry) {
            on_expiry(item);
        }
        removed.is_some()
    }

    #[cold]
    fn free(&self, item: Item<'_>) {
        if item.header().state().has(State::CHAINED) {
            self.free_chain(item);
        }
        self.pools.free(item);
    }

    /// Drops a reference; the last one frees the chunk.
    #[inline]
    fn release(&self, item: Item<'_>) {
        if item.header().unpin() {
            self.free(item);
        }
    }
}

impl std::fmt::Debug for Dram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dram({:?})", self.pools.arena)
    }
}
