//! The configuration of a cache, and its builder.

mod pairs;
mod recover_after;
pub mod regions;
mod removal;
mod small_items;
mod upkeep;

use std::sync::Arc;

use device::{Clock, Device, SystemClock, event_loop};
use policy::Admission;
use policy::admission::Always;
use policy::eviction::{EvictionConfig, Kind, build};

use crate::Cache;
use crate::error::CacheError;
use crate::event::EventSink;
use crate::flash::Waiting;
use crate::flash::region::RegionConfig;
use crate::item::Layer;

pub use crate::dram::{DramConfig, DramConfigError, PolicyFactory, PoolConfig, PoolId};
pub use crate::memory::Memory;
pub use crate::spawner::{Spawn, Task as BackgroundTask};
pub use pairs::{KeyPrefix, PairConfig};
pub(crate) use pairs::{Partitions, in_partition};
pub use recover_after::RecoverAfter;
pub use removal::{Removal, RemoveCallback};
pub use small_items::{LogOptions, SmallItems};
pub use upkeep::{RebalanceBy, UpkeepConfig};

/// The configuration of a cache. The default is that of [`Cache::builder`].
#[derive(Clone)]
pub struct CacheConfig {
    /// The DRAM tier.
    pub dram: DramConfig,
    /// The flash tier; `None` means DRAM only.
    pub flash: Option<FlashConfig>,
    /// Background work.
    pub upkeep: UpkeepConfig,
    /// Seed of random numbers in upkeep (policies and reinsertion have their own), and of the identifier that distinguishes this cache
    /// from earlier ones on the same device.
    pub seed: u64,
    /// Seed of the key hash: see [`Builder::hash_seed`].
    pub hash_seed: Option<u64>,
    /// Called for items that are removed, replaced or cleared while in DRAM.
    pub on_remove: Option<RemoveCallback>,
    /// Called for items that are evicted from the cache.
    pub on_evict: Option<RemoveCallback>,
    /// Called once for every item that leaves the cache.
    pub item_destructor: Option<ItemDestructor>,
    /// Receives events of keys.
    pub events: Option<Arc<dyn EventSink>>,
    /// Runs fetches: see [`Builder::spawner`].
    pub spawner: Option<Spawn>,
    /// Total memory. If it is set, DRAM gets what the rest leaves, and [`DramConfig::dram_bytes`] is ignored.
    pub memory_budget_bytes: Option<u64>,
}

impl Default for CacheConfig {
    /// 64 MiB of DRAM with S3-FIFO, and no flash.
    fn default() -> Self {
        Self {
            dram: DramConfig::new(64 << 20, eviction(EvictionConfig::new(Kind::S3Fifo))),
            flash: None,
            upkeep: UpkeepConfig::default(),
            seed: 0,
            hash_seed: None,
            on_remove: None,
            on_evict: None,
            item_destructor: None,
            events: None,
            spawner: None,
            memory_budget_bytes: None,
        }
    }
}

/// Called with every item that has left the cache: see [`Builder::item_destructor`].
pub type ItemDestructor = Arc<dyn Fn(&Destroyed<'_>) + Send + Sync>;

/// An item that has left the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Destroyed<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value; a chained item's own value, without the chain.
    pub value: &'a [u8],
    /// Why the item left the cache.
    pub reason: Removal,
    /// The tier that held the item; DRAM if both tiers held it.
    pub layer: Layer,
}

/// The flash tier.
#[derive(Clone)]
pub struct FlashConfig {
    /// The device. It can be used by one cache at a time: a second one on the same device object is refused, and a file or block device
    /// is locked against other processes when it is opened.
    pub device: Arc<dyn Device>,
    /// Engine pairs that share the key space; more than one divides it into arenas.
    pub pairs: Vec<PairConfig>,
    /// Pairs that store only keys with a prefix. All other keys share the other pairs.
    pub key_prefixes: Vec<KeyPrefix>,
    /// Items whose key and value have at most this size go to the buckets. Changing it may divide the device differently, and then nothing
    /// is recovered: see [`Recovery::Reopen`].
    pub small_item_max_bytes: usize,
    /// Bytes of a bucket; a power of two.
    pub bucket_bytes: u32,
    /// Bytes of a bucket's filter in memory; 0 disables filters. They are stored by a clean close, so nothing is recovered if the value is
    /// changed: see [`Recovery::Reopen`].
    pub filter_bytes_per_bucket: u32,
    /// Memory, over all pairs, for small items that wait for their bucket to be written; 16 MiB by default, for any device. More memory
    /// lets each write of a bucket contain more new items. Writing starts when half of it is filled. A log ignores it, and has two regions
    /// in memory.
    pub pending_bytes: usize,
    /// The region stores. Offset and capacity are computed from the shares.
    pub regions: RegionConfig,
    /// The engine for small items. `None` means sets if a cache with sets can be recovered from the device. Otherwise it means a
    /// log, or sets if the device is too small for a log.
    pub small_items: Option<SmallItems>,
    /// Decides which items are written.
    pub admission: Arc<dyn Admission>,
    /// Items inserted with a shorter TTL are not written to flash: DRAM evicts them from the cache. Items that never
    /// expire are written.
    pub min_ttl_seconds: u32,
    /// How existing contents of the device are handled.
    pub recovery: Recovery,
    /// The ends of this cache after which the next one finds the items on flash.
    pub recover_after: RecoverAfter,
    /// The first region's offset is a multiple of this: the unit of a stripe, so that no region spans two devices. 0 means no alignment.
    pub region_alignment_bytes: u64,
    /// Bytes of the area for the snapshot of a clean close; `None` computes it.
    pub metadata_bytes: Option<u64>,
    /// Whether superblocks and snapshots are written with a placement handle of their own.
    pub separate_metadata: bool,
}

/// How existing contents of the device are handled when a cache opens on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Recovers the contents after a clean close, and after the other ends that the last cache was
    /// [prepared for](FlashConfig::recover_after). Starts empty on a blank device, after a crash otherwise, and if the last cache divided
    /// the device differently: other sizes of the device, buckets, filters, regions or their units, other shares, pairs or prefixes, another
    /// [engine for small items](FlashConfig::small_items) or other options of the log except readmission, another
    /// [`small_item_max_bytes`](FlashConfig::small_item_max_bytes), a region order that does or does not protect items, or another
    /// alignment or snapshot area. [`loss`](crate::stats::FlashStats::loss) has the reason. A device that holds other data is refused,
    /// even if the data is only behind the parts of the last cache, whose shares did not cover the whole device.
    Reopen,
    /// As [`Reopen`](Self::Reopen), except that a device that holds other data, or a cache of a newer format, is overwritten.
    ReopenOrDiscard,
    /// Starts empty, and overwrites any data on the device.
    Discard,
}

impl FlashConfig {
    /// A tier on `device` with the defaults: a tenth of it for objects up to 2 KiB, the rest in regions of 16 MiB, or of a 128th
    /// of a smaller device, but at least 1 MiB. Neither part stores objects of the other, so if nearly all are of one kind, give it more
    /// with [`PairConfig::soc_share`] or [`Builder::small_item_share`]. Objects that do not fit a
    /// [region](RegionConfig::max_item_bytes) are never written to flash.
    #[must_use]
    pub fn new(device: Arc<dyn Device>) -> Self {
        let capacity_bytes = device.geometry().capacity_bytes;
        // Two or three regions are always empty, and the rest behind the last one is unused. With few regions, that would be a large share.
        let regions = RegionConfig::new(capacity_bytes).cut_into(128);
        Self {
            device,
            pairs: vec![PairConfig { device_share: 1.0, soc_share: 0.1 }],
            key_prefixes: Vec::new(),
            small_item_max_bytes: 2048,
            bucket_bytes: 4096,
            filter_bytes_per_bucket: 8,
            pending_bytes: 16 << 20,
            regions,
            small_items: None,
            admission: Arc::new(Always),
            min_ttl_seconds: 0,
            recovery: Recovery::Reopen,
            recover_after: RecoverAfter::CleanClose,
            region_alignment_bytes: 0,
            metadata_bytes: None,
            separate_metadata: false,
        }
    }
}

/// Builds a cache; see [`Cache::builder`].
#[derive(Clone)]
pub struct Builder {
    config: CacheConfig,
    max_item_bytes: Option<u32>,
    small_item_share: Option<f64>,
    flash_partitions: Vec<(Vec<u8>, f64)>,
    small_items: Option<SmallItems>,
    recover_after: Option<RecoverAfter>,
    clock: Arc<dyn Clock>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        let (config, clock) = (CacheConfig::default(), Arc::new(SystemClock));
        let (small_item_share, flash_partitions) = (None, Vec::new());
        let (small_items, recover_after) = (None, None);
        Self {
            config,
            max_item_bytes: None,
            small_item_share,
            flash_partitions,
            small_items,
            recover_after,
            clock,
        }
    }

    /// Memory for items in DRAM, in bytes; 64 MiB by default. Indexes and policies take additional memory: see
    /// [`memory_budget_bytes`](Self::memory_budget_bytes).
    #[must_use]
    pub fn dram_bytes(mut self, bytes: u64) -> Self {
        self.config.dram.dram_bytes = bytes;
        self
    }

    /// Total memory in bytes: slabs, the index of DRAM and its policies, and with flash the index of regions, filters, buffers and pending
    /// items. Items in DRAM get what the rest leaves, instead of [`dram_bytes`](Self::dram_bytes). A budget too small for the rest is
    /// refused with an error that lists the parts. Indexes are computed for the smallest chunks
    /// ([`Memory::at_most`](Memory::at_most)), so a larger [`min_item_bytes`](Self::min_item_bytes) leaves more for items.
    #[must_use]
    pub fn memory_budget_bytes(mut self, bytes: u64) -> Self {
        self.config.memory_budget_bytes = Some(bytes);
        self
    }

    /// Smallest chunk of DRAM in bytes, header and key included; smaller items take as much. 64 by default.
    #[must_use]
    pub fn min_item_bytes(mut self, bytes: u32) -> Self {
        self.config.dram.min_item_bytes = bytes;
        self
    }

    /// Largest value in bytes; 1 MiB by default. A key has space for 255 bytes beside it; the bytes of a longer key beyond that count as
    /// bytes of the value. Memory is assigned to size classes in slabs of at least this size, so a smaller value divides memory more
    /// finely: a cache of 55 MiB then holds 3 % more key and value bytes. A small DRAM cannot hold the default: the limit is the power of
    /// two in a 64th of [`dram_bytes`](Self::dram_bytes), or 64 KiB. The default is lowered to that, and [`Cache::max_item_bytes`]
    /// returns it; a value set here that exceeds it is refused at [`open`](Self::open).
    ///
    /// An item can be written to flash if it fits a [region](regions::RegionConfig::max_item_bytes) of 16 MiB, or of as little
    /// as 1 MiB on a device below 256 MiB. A value set here that does not fit is refused as well. The default may be a little larger than
    /// a region of 1 MiB holds: such an item is lost when DRAM evicts it, and `puts.rejected_too_large` of
    /// [`FlashStats`](crate::stats::FlashStats) counts it.
    #[must_use]
    pub fn max_item_bytes(mut self, bytes: u32) -> Self {
        (self.config.dram.max_item_bytes, self.config.dram.max_chunk_bytes) = (bytes, None);
        self.max_item_bytes = Some(bytes);
        self
    }

    /// Ratio of neighbouring size classes in DRAM, above 1: a chunk is larger than its item by up to this factor. By default 1.03, or more
    /// if memory has fewer slabs than classes would result: 1.17 for 64 MiB with items up to 1 MiB.
    #[must_use]
    pub fn alloc_factor(mut self, factor: f64) -> Self {
        self.config.dram.alloc_factor = Some(factor);
        self
    }

    /// Eviction policy of DRAM; S3-FIFO by default.
    #[must_use]
    pub fn eviction(mut self, config: EvictionConfig) -> Self {
        self.config.dram.policy = eviction(config);
        self
    }

    /// A custom eviction policy of DRAM. One instance is created for each size class, and sees only that class.
    #[must_use]
    pub fn eviction_policy(mut self, policy: PolicyFactory) -> Self {
        self.config.dram.policy = policy;
        self
    }

    /// Pools, by name and share of DRAM; one by default. A recovered item whose pool no longer exists is assigned to the first.
    #[must_use]
    pub fn pools(mut self, pools: impl IntoIterator<Item = (String, f64)>) -> Self {
        self.config.dram.pools = pools.into_iter().map(|(name, share)| PoolConfig { name, share }).collect();
        self
    }

    /// Adds flash behind DRAM, with the defaults of [`FlashConfig::new`]: a tenth of the device is for items of up to 2 KiB, and the rest
    /// for larger ones; neither part stores items of the other. For other sizes set [`small_item_share`](Self::small_item_share). Only
    /// [`Cache::close`] makes the contents recoverable: after a cache is dropped, the next one starts empty, unless
    /// [`recover_after`](Self::recover_after) is set.
    #[must_use]
    pub fn flash(self, device: Arc<dyn Device>) -> Self {
        self.flash_config(FlashConfig::new(device))
    }

    /// Adds flash behind DRAM, with a configuration.
    #[must_use]
    pub fn flash_config(mut self, flash: FlashConfig) -> Self {
        self.config.flash = Some(flash);
        self
    }

    /// Share of flash for small items, those of up to [`small_item_max_bytes`](FlashConfig::small_item_max_bytes), key included; 0.1 by
    /// default, as in CacheLib. Neither part stores items of the other: of a device of 1 GiB, items of 1000 B use about 0.1 GiB. With 1
    /// only small items are stored; with 0 items of all sizes are in regions, whose index takes more memory per item than buckets do.
    /// [`FlashStats`](crate::stats::FlashStats) has the used space of each part. The share applies to each of several
    /// [pairs](FlashConfig::pairs).
    ///
    /// Changing the share makes the next cache on the device start empty: see [`Recovery::Reopen`].
    #[must_use]
    pub fn small_item_share(mut self, share: f64) -> Self {
        self.small_item_share = Some(share);
        self
    }

    /// Reserves a share of flash, between 0 and 1, for the keys with a prefix. All other keys share the rest, and cannot evict these
    /// keys from flash. Each part has engines of its own, which need at least a few regions of space. To be called once per prefix; if
    /// several prefixes match a key, the longest decides.
    ///
    /// A change of the parts makes the next cache on the device start empty: see [`Recovery::Reopen`].
    #[must_use]
    pub fn flash_partition(mut self, prefix: impl Into<Vec<u8>>, share: f64) -> Self {
        self.flash_partitions.push((prefix.into(), share));
        self
    }

    /// Configures background work.
    #[must_use]
    pub fn upkeep(mut self, upkeep: UpkeepConfig) -> Self {
        self.config.upkeep = upkeep;
        self
    }

    /// Sets a callback for every item that is removed, replaced or [cleared](Cache::clear) while in DRAM. It runs after the fact, in the
    /// caller's context: it may call the cache, and its panic reaches the caller.
    #[must_use]
    pub fn on_remove(mut self, callback: RemoveCallback) -> Self {
        self.config.on_remove = Some(callback);
        self
    }

    /// Sets a callback for every item that is evicted from the cache: from DRAM if flash rejects it, and from flash when its region is
    /// reclaimed or its bucket overflows. It has a cost: a reclaimed region is read completely, instead of only the items to be kept.
    ///
    /// Together with [`on_remove`](Self::on_remove) this reports all items that leave, except those that expire, that are lost to a failing
    /// device or a crash, or that only flash holds when they are removed, replaced or cleared, as their values would have to be read. An
    /// item that a concurrent get copies back to DRAM may be reported although it stays.
    ///
    /// The callback runs in the middle of an eviction, on the thread of an insert, of a get that copies an item to DRAM, or of the cache;
    /// other threads may wait for it. It may read its cache and remove from it; a get that finds an item on flash leaves it there. An
    /// insert, an allocation, a chained item, a change of TTL, a step, a settle or a close of that cache panics, because it could wait
    /// for itself: hand the item to another thread, for example through a channel.
    ///
    /// A panic of the callback is resumed in the insert or get that caused the eviction, after the eviction has ended; the insert is then
    /// not made, and not counted. On a thread of the cache, in [`Cache::step`] and while closing, the panic is only printed, and the work
    /// continues.
    #[must_use]
    pub fn on_evict(mut self, callback: RemoveCallback) -> Self {
        self.config.on_evict = Some(callback);
        self
    }

    /// Sets a callback that is called exactly once for every item that leaves the cache, from DRAM or flash, for every [`Removal`] reason.
    /// An application that keeps a resource for each item can release it there. Moving between DRAM and flash is not leaving.
    ///
    /// It is not called for an item that is lost to a failing device or a crash; for an item that only flash holds when the cache is
    /// [cleared](Cache::clear), or held when it was removed shortly before that; and for the items that a cache still holds when it is
    /// closed or dropped. If two keys agree in 37 bits of their hash, one can replace the other on flash without a call.
    ///
    /// An item that only flash holds must be read for its destructor. [`remove`](Cache::remove) and inserts do not wait for that:
    /// background work reads the item and calls the destructor a little later, and [`settle`](Cache::settle) waits for that.
    /// Reclaiming a region then reads all of its items.
    ///
    /// The callback runs on the thread that caused the removal, or on one of the cache. It must not insert into its cache, as with
    /// [`on_evict`](Self::on_evict). A panic is printed and dropped.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// # use flashwright_cache::{Cache, InsertOptions};
    /// # use flashwright_cache::config::Destroyed;
    /// let destroyed = Arc::new(AtomicU32::new(0));
    /// let count = Arc::clone(&destroyed);
    /// let destructor = Arc::new(move |_: &Destroyed<'_>| _ = count.fetch_add(1, Ordering::Relaxed));
    /// let cache = Cache::builder().dram_bytes(4 << 20).item_destructor(destructor).open()?;
    /// cache.insert_blocking(b"key", b"old", &InsertOptions::default());
    /// cache.insert_blocking(b"key", b"new", &InsertOptions::default());
    /// assert!(cache.remove(b"key"));
    /// assert_eq!(destroyed.load(Ordering::Relaxed), 2);
    /// # Ok::<(), flashwright_cache::CacheError>(())
    /// ```
    #[must_use]
    pub fn item_destructor(mut self, callback: ItemDestructor) -> Self {
        self.config.item_destructor = Some(callback);
        self
    }

    /// Sets a sink for [events](crate::event::EventKind) of the keys that it [selects](EventSink::wants): gets, inserts, removes, evictions, and
    /// offers to flash. Use it to examine a cache where counters are not sufficient.
    ///
    /// It runs on the thread that caused the event, often in the middle of an eviction, and other threads may wait for it, so it should
    /// hand the event to another thread and return. No key is locked meanwhile. It may call what [`on_evict`](Self::on_evict) may, and
    /// its own calls emit no events. A panic is printed and dropped.
    ///
    /// An item evicted from a region is read, if it is selected, for its key: memory has only its hash.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use flashwright_cache::{Cache, InsertOptions, KeyHash};
    /// use flashwright_cache::event::{Event, EventKind, EventSink};
    ///
    /// /// Follows one key in two.
    /// #[derive(Default)]
    /// struct Log(Mutex<Vec<(Vec<u8>, EventKind)>>);
    ///
    /// impl EventSink for Log {
    ///     fn wants(&self, hash: KeyHash) -> bool {
    ///         hash.one_in(2)
    ///     }
    ///
    ///     fn on_event(&self, event: &Event<'_>) {
    ///         self.0.lock().unwrap().push((event.key.to_vec(), event.kind));
    ///     }
    /// }
    ///
    /// let log = Arc::new(Log::default());
    /// let cache = Cache::builder().dram_bytes(16 << 20).events(log.clone()).open()?;
    /// let followed = (0..).map(|n| format!("key {n}").into_bytes()).find(|key| cache.key_hash(key).one_in(2)).unwrap();
    /// assert!(cache.get_blocking(&followed).is_none());
    /// cache.insert_blocking(&followed, b"value", InsertOptions::default());
    /// let kinds: Vec<EventKind> = log.0.lock().unwrap().iter().map(|(_, kind)| *kind).collect();
    /// assert_eq!(kinds, [EventKind::NotFound, EventKind::Inserted]);
    /// # Ok::<(), flashwright_cache::CacheError>(())
    /// ```
    #[must_use]
    pub fn events(mut self, sink: Arc<dyn EventSink>) -> Self {
        self.config.events = Some(sink);
        self
    }

    /// Seed of random numbers in upkeep; 0 by default. Policies and reinsertion have their own.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.config.seed = seed;
        self
    }

    /// Seed of the key hash. By default it is random for each cache that is [opened](Self::open), so that clients cannot choose keys
    /// that collide in a shard, a bucket or a line of the index; it is 0 for a [stepped](Self::open_stepped) cache, so that
    /// simulations repeat. The superblock on flash stores the seed: a cache that recovers its items keeps the seed they were stored
    /// with.
    ///
    /// The hash is not cryptographic: keep the seed secret from such clients.
    #[must_use]
    pub fn hash_seed(mut self, seed: u64) -> Self {
        self.config.hash_seed = Some(seed);
        self
    }

    /// Runs every fetch of [`Cache::get_or_insert_with`] and [`Cache::get_or_fetch`] on an executor from its start, so that it makes
    /// progress while none of its callers is polled.
    ///
    /// Without a spawner, and with the feature `tokio`, a fetch that starts within a tokio runtime runs there. Otherwise its callers
    /// drive it, and a thread of the cache continues it when the last of them is dropped.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use flashwright_cache::{Cache, InsertOptions};
    /// # use flashwright_cache::config::BackgroundTask;
    /// # let spawn = |task: BackgroundTask| drop(std::thread::spawn(|| flashwright_cache::block_on(task)));
    /// // With tokio: let handle = Handle::current(); ….spawner(move |task| drop(handle.spawn(task)))
    /// let cache = Cache::builder().dram_bytes(16 << 20).spawner(spawn).open()?;
    /// let fetch = async || Ok::<_, std::io::Error>(b"value".to_vec());
    /// let fetched = flashwright_cache::block_on(cache.get_or_insert_with(b"key", InsertOptions::default(), fetch));
    /// assert_eq!(*fetched.unwrap(), *b"value");
    /// # Ok::<(), flashwright_cache::CacheError>(())
    /// ```
    #[must_use]
    pub fn spawner(mut self, spawn: impl Fn(BackgroundTask) + Send + Sync + 'static) -> Self {
        self.config.spawner = Some(Arc::new(spawn));
        self
    }

    /// The engine for small items on flash; by default a [log](SmallItems::Log), and [sets](SmallItems::Sets) if such a cache is on the
    /// device already or the device is too small for a log. A cache that is configured for the other engine than that of the cache on
    /// the device starts empty: see [`Recovery::Reopen`].
    ///
    /// Takes effect if the cache has [flash](Self::flash), whichever of the two is called first.
    #[must_use]
    pub fn small_items(mut self, small_items: SmallItems) -> Self {
        self.small_items = Some(small_items);
        self
    }

    /// The ends of this cache after which the next one finds the items on flash; by default a clean close only. Takes effect if the cache
    /// has [flash](Self::flash), whichever of the two is called first.
    #[must_use]
    pub fn recover_after(mut self, recover_after: RecoverAfter) -> Self {
        self.recover_after = Some(recover_after);
        self
    }

    /// Replaces the system clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Replaces the whole configuration; earlier calls except [`clock`](Self::clock) have no effect.
    #[must_use]
    pub fn config(self, config: CacheConfig) -> Self {
        Self { config, clock: self.clock, ..Self::new() }
    }

    /// Opens the cache and starts its background threads.
    ///
    /// # Errors
    /// The configuration contradicts itself or the device, or the device holds other data.
    pub fn open(self) -> Result<Cache, CacheError> {
        let clock = Arc::clone(&self.clock);
        event_loop::wait_for(Cache::open(&self.finished()?, &clock, true, Waiting::Thread))
    }

    /// As [`open`](Self::open), as a task: recovery reads the device without blocking the thread. Dropping the future before it is
    /// ready has the effect of a crash: the next cache on the device may start empty.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_async(self) -> Result<Cache, CacheError> {
        let clock = Arc::clone(&self.clock);
        Cache::open(&self.finished()?, &clock, true, Waiting::Task).await
    }

    /// Opens the cache without threads: the caller runs [`Cache::step`] or [`Cache::background_tasks`]. With flash, blocking calls must not
    /// be used, because a call that waits for a step would keep its thread from making it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_stepped(self) -> Result<Cache, CacheError> {
        let clock = Arc::clone(&self.clock);
        event_loop::wait_for(Cache::open(&self.finished()?, &clock, false, Waiting::Thread))
    }

    /// Applies settings that depend on others, independent of the order of calls, and checks the largest item.
    fn finished(mut self) -> Result<CacheConfig, CacheError> {
        if !self.flash_partitions.is_empty() {
            let flash = self.config.flash.as_mut();
            let flash = flash.ok_or_else(|| CacheError::Config("a flash_partition needs flash".into()))?;
            pairs::divide(&self.flash_partitions, &mut flash.pairs, &mut flash.key_prefixes)?;
        }
        if let Some(share) = self.small_item_share {
            let flash = self.config.flash.as_mut();
            let flash = flash.ok_or_else(|| CacheError::Config("a small_item_share needs flash".into()))?;
            flash.pairs.iter_mut().for_each(|pair| pair.soc_share = share);
        }
        if let Some(small_items) = self.small_items {
            let flash = self.config.flash.as_mut();
            let flash = flash.ok_or_else(|| CacheError::Config("small_items needs flash".into()))?;
            flash.small_items = Some(small_items);
        }
        if let Some(recover_after) = self.recover_after {
            let flash = self.config.flash.as_mut();
            let flash = flash.ok_or_else(|| CacheError::Config("recover_after needs flash".into()))?;
            flash.recover_after = recover_after;
        }
        let config = self.config.within_budget()?;
        if let Some(requested_bytes) = self.max_item_bytes {
            config.check_largest_item(requested_bytes)?;
        }
        Ok(config)
    }
}

/// A factory of policies, one for each size class.
#[must_use]
pub fn eviction(config: EvictionConfig) -> PolicyFactory {
    Arc::new(move || build(&config, 0))
}
