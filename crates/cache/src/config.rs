//! What a cache is made of, and the builder that puts it together.

mod small_items;
mod upkeep;

use std::sync::Arc;

use device::{Clock, Device, SystemClock, desk};
use policy::Admission;
use policy::admission::Always;
use policy::eviction::{EvictionConfig, Kind, build};

use crate::Cache;
use crate::dram::{DramConfig, PolicyFactory, PoolConfig};
use crate::error::CacheError;
use crate::event::EventSink;
use crate::flash::Waiting;
use crate::flash::region::RegionConfig;
use crate::item::Layer;
use crate::spawner::{Spawn, Task};

pub use small_items::{LogOptions, SmallItems};
pub use upkeep::{RebalanceBy, UpkeepConfig};

/// A cache as asked for. [`Cache::builder`] fills one in; the default is what that begins with.
#[derive(Clone)]
pub struct CacheConfig {
    /// The DRAM tier.
    pub dram: DramConfig,
    /// The flash tier; `None` is a cache in DRAM alone.
    pub flash: Option<FlashConfig>,
    /// What is done in the background.
    pub upkeep: UpkeepConfig,
    /// Seed of what is random in upkeep (policies and reinsertion have their own), and what tells this life of the cache from
    /// others on the same device.
    pub seed: u64,
    /// Seed of the keys' hashes: see [`Builder::hash_seed`].
    pub hash_seed: Option<u64>,
    /// Told of items that are removed, replaced or cleared while in DRAM.
    pub on_remove: Option<RemoveCallback>,
    /// Told of items that leave the cache to make room.
    pub on_evict: Option<RemoveCallback>,
    /// Called once for every item that leaves the cache.
    pub item_destructor: Option<ItemDestructor>,
    /// Told of whatever happens to keys.
    pub events: Option<Arc<dyn EventSink>>,
    /// Where fetches run: see [`Builder::spawner`].
    pub spawner: Option<Spawn>,
    /// Memory for everything; the tier in DRAM gets what the rest leaves, whatever [`DramConfig::dram_bytes`] says.
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

/// Told of an item that leaves the cache: key, value (of a chained item its own, without its links), why. Runs on the
/// thread that made it leave, and that waits for it: long work is for another thread. It may look at the cache and
/// remove from it; a callback that holds its cache holds it by a [`Weak`](std::sync::Weak), or neither ever goes.
pub type RemoveCallback = Arc<dyn Fn(&[u8], &[u8], Removal) + Send + Sync>;

/// Called with every item that has left the cache: see [`Builder::item_destructor`].
pub type ItemDestructor = Arc<dyn Fn(&Destroyed<'_>) + Send + Sync>;

/// An item that has left the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Destroyed<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value; of a chained item its own, without its links.
    pub value: &'a [u8],
    /// Why it left.
    pub reason: Removal,
    /// The layer that held it: DRAM, if both did.
    pub layer: Layer,
}

/// Why an item left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Somebody removed it.
    Removed,
    /// A newer item took its place.
    Replaced,
    /// The cache was cleared.
    Cleared,
    /// It made room in DRAM, and flash did not take it: it was refused, or there is no flash.
    EvictedFromDram,
    /// It made room on flash: its region was reclaimed, or newer items came into its bucket.
    EvictedFromFlash,
    /// Its time to live was over. Only [`item_destructor`](crate::Builder::item_destructor) reports this.
    Expired,
}

/// The flash tier.
#[derive(Clone)]
pub struct FlashConfig {
    /// Where it lies: of one cache at a time. A second one on the same device object is refused; a file or block device is locked
    /// against other programs when it is opened.
    pub device: Arc<dyn Device>,
    /// Engine pairs that share the key space; one, unless the key space is to be split into arenas.
    pub pairs: Vec<PairConfig>,
    /// Items whose key and value come to at most this go to the buckets. Another value may divide the device differently, and then
    /// nothing comes back: see [`Recovery::Reopen`].
    pub small_item_max_bytes: usize,
    /// Bytes of a bucket; a power of two.
    pub bucket_bytes: u32,
    /// Memory of a bucket's filter, bytes; 0 is no filter. Filters are kept over a restart, so with another value nothing comes back:
    /// see [`Recovery::Reopen`].
    pub filter_bytes_per_bucket: u32,
    /// Memory of all pairs for small items that wait for their bucket to be written; 16 MiB by default, whatever the size of the device.
    /// More memory writes more items at a time; half of it is filled before a bucket is written. A log ignores it: it has two regions in
    /// memory.
    pub pending_bytes: usize,
    /// The region stores. Offset and capacity are computed from the shares.
    pub regions: RegionConfig,
    /// The engine for small items. `None` means sets if a cache with sets can be recovered from the device. Otherwise it means a
    /// log, or sets if the device is too small for a log.
    pub small_items: Option<SmallItems>,
    /// Who is let in.
    pub admission: Arc<dyn Admission>,
    /// Items that were given fewer seconds to live, however many are left, are not written: when DRAM needs their room, they are
    /// gone. Those that live for ever are.
    pub min_ttl_seconds: u32,
    /// What becomes of the device's content.
    pub recovery: Recovery,
    /// What the first region's offset is a multiple of: a stripe's unit, so that no region spans two devices. 0 asks for nothing.
    pub region_alignment_bytes: u64,
    /// Bytes of the area for the snapshot of a clean close, instead of those computed.
    pub metadata_bytes: Option<u64>,
    /// Whether superblocks and snapshots are written with a placement handle of their own.
    pub separate_metadata: bool,
}

/// One pair of engines.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairConfig {
    /// Share of the device, 0 to 1.
    pub device_share: f64,
    /// Share of that for small objects, 0 to 1: 0 is regions only, 1 is buckets only.
    pub soc_share: f64,
}

/// What becomes of the device's content when a cache opens on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Comes back after a clean close; starts empty on a blank device or after a crash, and where the last cache divided
    /// the device differently: another size of it, of its buckets, their filters, its regions or their units, other shares or pairs,
    /// another [engine for small items](FlashConfig::small_items) or other options of the log but readmission,
    /// another [`small_item_max_bytes`](FlashConfig::small_item_max_bytes), an order of regions that protects items or not, another
    /// alignment or area for the snapshot. [`loss`](crate::stats::FlashStats::loss) says what it was. A device that holds something
    /// else is refused, and so is what lies behind the parts of the last cache, where shares did not add up to all of the device.
    Reopen,
    /// The same, but a device that holds something else, or a cache of a newer format, is taken too, and its content lost.
    ReopenOrDiscard,
    /// Starts empty and takes the device whatever it holds. Nothing comes back.
    Discard,
}

impl FlashConfig {
    /// A tier on `device` with the defaults: a tenth of it for objects up to 2 KiB, the rest in regions of 16 MiB, or of a 128th
    /// of a smaller device, but at least 1 MiB. Objects of the one kind never use the part of the other: where nearly all are of one
    /// kind, give it more by [`PairConfig::soc_share`] or [`Builder::small_item_share`]. What does not fit a
    /// [region](RegionConfig::max_item_bytes) never goes to flash.
    #[must_use]
    pub fn new(device: Arc<dyn Device>) -> Self {
        let capacity_bytes = device.geometry().capacity_bytes;
        // Two or three regions are empty at any time, and what is left over behind the last: of few, that would be much.
        let regions = RegionConfig::new(capacity_bytes).cut_into(128);
        Self {
            device,
            pairs: vec![PairConfig { device_share: 1.0, soc_share: 0.1 }],
            small_item_max_bytes: 2048,
            bucket_bytes: 4096,
            filter_bytes_per_bucket: 8,
            pending_bytes: 16 << 20,
            regions,
            small_items: None,
            admission: Arc::new(Always),
            min_ttl_seconds: 0,
            recovery: Recovery::Reopen,
            region_alignment_bytes: 0,
            metadata_bytes: None,
            separate_metadata: false,
        }
    }
}

/// Puts a cache together; see [`Cache::builder`].
#[derive(Clone)]
pub struct Builder {
    config: CacheConfig,
    max_item_bytes: Option<u32>,
    small_item_share: Option<f64>,
    small_items: Option<SmallItems>,
    clock: Arc<dyn Clock>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        let (config, clock) = (CacheConfig::default(), Arc::new(SystemClock));
        Self { config, max_item_bytes: None, small_item_share: None, small_items: None, clock }
    }

    /// Memory for items in DRAM, bytes; 64 MiB if not said. What knows where they are comes on top: see
    /// [`memory_budget_bytes`](Self::memory_budget_bytes).
    #[must_use]
    pub fn dram_bytes(mut self, bytes: u64) -> Self {
        self.config.dram.dram_bytes = bytes;
        self
    }

    /// Memory for everything, bytes: slabs, the index of DRAM and its policies, and with flash the index of regions,
    /// filters, buffers and items that wait. Items in DRAM get what the rest leaves, in place of
    /// [`dram_bytes`](Self::dram_bytes); a budget too small for the rest is refused with its parts. It is reckoned with the
    /// smallest chunks ([`Memory::at_most`](crate::Memory::at_most)), so a cache that is told that its items are not
    /// small ([`min_item_bytes`](Self::min_item_bytes)) has more room for them.
    #[must_use]
    pub fn memory_budget_bytes(mut self, bytes: u64) -> Self {
        self.config.memory_budget_bytes = Some(bytes);
        self
    }

    /// Smallest chunk of DRAM, bytes: a smaller item takes as much, header and key included; 64 if not said.
    #[must_use]
    pub fn min_item_bytes(mut self, bytes: u32) -> Self {
        self.config.dram.min_item_bytes = bytes;
        self
    }

    /// Largest item, bytes, header and key included; 1 MiB if not said. Memory is handed to size classes in slabs no
    /// smaller than this, so a cache that is told that its items are small is cut finer: one of 55 MiB then holds 3 % more
    /// bytes of keys and values. A small DRAM keeps no such items: at most the power of two in a 64th of
    /// [`dram_bytes`](Self::dram_bytes), or 64 KiB. What is not said is lowered to that, and [`Cache::max_item_bytes`] tells it; what
    /// is said here and cannot be kept is refused at [`open`](Self::open).
    ///
    /// An item goes to flash if it fits a [region](crate::flash::region::RegionConfig::max_item_bytes), of 16 MiB, but of as little as
    /// 1 MiB on a device below 256 MiB. A largest item that is said here and fits none is refused as well. One that is not said may be a
    /// little larger than a region of 1 MiB holds: then it is gone when it leaves DRAM, and `puts.rejected_too_large` of
    /// [`FlashStats`](crate::stats::FlashStats) counts it.
    #[must_use]
    pub fn max_item_bytes(mut self, bytes: u32) -> Self {
        self.config.dram.max_item_bytes = bytes;
        self.max_item_bytes = Some(bytes);
        self
    }

    /// Growth from one size class of DRAM to the next, above 1: a chunk is up to this much larger than its item. If not said
    /// 1.03, or more where memory comes to fewer slabs than that makes classes: 1.17 for 64 MiB with items up to 1 MiB.
    #[must_use]
    pub fn alloc_factor(mut self, factor: f64) -> Self {
        self.config.dram.alloc_factor = Some(factor);
        self
    }

    /// Who leaves DRAM; S3-FIFO if not said.
    #[must_use]
    pub fn eviction(mut self, config: EvictionConfig) -> Self {
        self.config.dram.policy = eviction(config);
        self
    }

    /// Who leaves DRAM, by a policy of one's own: made once for each size class, and told of that class alone.
    #[must_use]
    pub fn eviction_policy(mut self, policy: PolicyFactory) -> Self {
        self.config.dram.policy = policy;
        self
    }

    /// Pools, by name and share of DRAM; one if not said. An item of an earlier life of the cache that counted against a pool
    /// which is no more counts against the first.
    #[must_use]
    pub fn pools(mut self, pools: impl IntoIterator<Item = (String, f64)>) -> Self {
        self.config.dram.pools = pools.into_iter().map(|(name, share)| PoolConfig { name, share }).collect();
        self
    }

    /// Flash behind DRAM, with the defaults of [`FlashConfig::new`]: a tenth of the device is for items of up to 2 KiB, and the rest for
    /// larger ones, which have no use for the tenth, nor small ones for the rest. Where items are of other sizes than that, say so by
    /// [`small_item_share`](Self::small_item_share). The cache is written for a restart by [`Cache::close`] alone: one that is
    /// dropped comes back empty.
    #[must_use]
    pub fn flash(self, device: Arc<dyn Device>) -> Self {
        self.flash_config(FlashConfig::new(device))
    }

    /// Flash behind DRAM, as configured.
    #[must_use]
    pub fn flash_config(mut self, flash: FlashConfig) -> Self {
        self.config.flash = Some(flash);
        self
    }

    /// Share of flash for small items, those of up to [`small_item_max_bytes`](FlashConfig::small_item_max_bytes), key included; 0.1 if
    /// not said, as in CacheLib. Neither part takes what belongs to the other: of a device of 1 GiB, items of 1000 B use about 0.1
    /// GiB. 1 is small items alone; with 0 items of any size are in regions, whose index takes more memory an item than
    /// buckets do. [`FlashStats`](crate::stats::FlashStats) says how full each part is. Of several
    /// [pairs](FlashConfig::pairs), each is divided so.
    ///
    /// Another share than that of the last cache on the device costs its content: see [`Recovery::Reopen`].
    #[must_use]
    pub fn small_item_share(mut self, share: f64) -> Self {
        self.small_item_share = Some(share);
        self
    }

    /// Background work, as configured.
    #[must_use]
    pub fn upkeep(mut self, upkeep: UpkeepConfig) -> Self {
        self.config.upkeep = upkeep;
        self
    }

    /// Told of every item that is removed, replaced or [cleared](Cache::clear) while in DRAM, when it has happened. It may do
    /// whatever its caller may, and a panic of it is its caller's.
    #[must_use]
    pub fn on_remove(mut self, callback: RemoveCallback) -> Self {
        self.config.on_remove = Some(callback);
        self
    }

    /// Told of every item that leaves the cache to make room: from DRAM what flash does not take, from flash what its
    /// region or bucket leaves behind. It costs something: a region that is reclaimed is read whole, where otherwise only
    /// the items that stay are.
    ///
    /// Together with [`on_remove`](Self::on_remove) this tells of all that leaves, but for items that expire, that are lost to
    /// a failing device or a crash, and those that lie on flash alone when they are removed, replaced or cleared: their
    /// values would have to be read for it. An item that a reader brings back in the same instant may be told of and stay.
    ///
    /// The callback runs in the middle of an eviction, on the thread of an insert, of a get that brings an item back to
    /// DRAM, or of the cache: one that others wait for. There the cache that calls it can be looked at and removed from;
    /// a get finds what is on flash and leaves it there. An insert into that cache, an allocation, a chained piece, another
    /// time to live, a step, settling or closing it panics, because it might wait for itself: hand the item to another thread, as through a
    /// channel.
    ///
    /// A panic of the callback goes on to the caller of the insert or get when the eviction has ended; the insert is not made then,
    /// and no counter has it. On a thread of the cache, in [`Cache::step`] and in closing there is no such caller: it is printed, as
    /// any panic is, and the work goes on.
    #[must_use]
    pub fn on_evict(mut self, callback: RemoveCallback) -> Self {
        self.config.on_evict = Some(callback);
        self
    }

    /// Sets a callback that is called exactly once for every item that leaves the cache, from DRAM or flash, for every
    /// [`Removal`] reason. An application that keeps a resource for each item can release it there. An item that moves from DRAM to flash
    /// or back has not left.
    ///
    /// Not called for an item that is lost to a failing device or a crash; for an item that only flash holds when the cache is
    /// [cleared](Cache::clear), or held when it was removed shortly before that; and for the items that a cache still holds when it is
    /// closed or dropped. If two keys agree in 37 bits of their hash, one can replace the other on flash without a call.
    ///
    /// An item that only flash holds must be read for its destructor. [`remove`](Cache::remove) and inserts do not wait for that:
    /// background work reads the item and calls the destructor a little later, and [`settle`](Cache::settle) waits until it has.
    /// Reclaiming a region then reads all of its items.
    ///
    /// The callback runs on the thread that made the item leave, or on one of the cache. It must not insert into its cache, as
    /// with [`on_evict`](Self::on_evict). A panic of it is printed and goes no further.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// # use flashwright_cache::{Cache, Destroyed, InsertOptions};
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

    /// Told of [whatever happens](crate::EventKind) to the keys that it [wants](EventSink::wants) to be told of: gets, inserts,
    /// removes, evictions, what flash takes and refuses. For looking into a cache, where counters do not tell enough.
    ///
    /// It runs on the thread that something happened on, often in the middle of an eviction: whoever waits for that thread waits
    /// for it, so it should hand the event to another thread and return. No key is locked meanwhile. It may do what
    /// [`on_evict`](Self::on_evict) may, and what it does in the cache is not told. A panic of it is printed and goes no further.
    ///
    /// An item that makes room in a region is read, if it is wanted, for its key: memory has only its hash.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use flashwright_cache::{Cache, Event, EventKind, EventSink, InsertOptions, KeyHash};
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
    ///     fn tell(&self, event: &Event<'_>) {
    ///         self.0.lock().unwrap().push((event.key.to_vec(), event.kind));
    ///     }
    /// }
    ///
    /// let log = Arc::new(Log::default());
    /// let cache = Cache::builder().dram_bytes(16 << 20).events(log.clone()).open()?;
    /// let followed = (0..).map(|n| format!("key {n}").into_bytes()).find(|key| cache.key_hash(key).one_in(2)).unwrap();
    /// assert!(cache.get_blocking(&followed).is_none());
    /// cache.insert_blocking(&followed, b"value", InsertOptions::default());
    /// let told: Vec<EventKind> = log.0.lock().unwrap().iter().map(|(_, kind)| *kind).collect();
    /// assert_eq!(told, [EventKind::NotFound, EventKind::Inserted]);
    /// # Ok::<(), flashwright_cache::CacheError>(())
    /// ```
    #[must_use]
    pub fn events(mut self, sink: Arc<dyn EventSink>) -> Self {
        self.config.events = Some(sink);
        self
    }

    /// Seed of what is random in upkeep; 0 if not said. Policies and reinsertion have their own.
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
    /// # use flashwright_cache::{BackgroundTask, Cache, InsertOptions};
    /// # let spawn = |task: BackgroundTask| drop(std::thread::spawn(|| flashwright_cache::block_on(task)));
    /// // With tokio: let handle = Handle::current(); ….spawner(move |task| drop(handle.spawn(task)))
    /// let cache = Cache::builder().dram_bytes(16 << 20).spawner(spawn).open()?;
    /// let fetch = async || Ok::<_, std::io::Error>(b"value".to_vec());
    /// let fetched = flashwright_cache::block_on(cache.get_or_insert_with(b"key", InsertOptions::default(), fetch));
    /// assert_eq!(*fetched.unwrap(), *b"value");
    /// # Ok::<(), flashwright_cache::CacheError>(())
    /// ```
    #[must_use]
    pub fn spawner(mut self, spawn: impl Fn(Task) + Send + Sync + 'static) -> Self {
        self.config.spawner = Some(Arc::new(spawn));
        self
    }

    /// The engine for small items on flash; by default a [log](SmallItems::Log), and [sets](SmallItems::Sets) if such a cache is on the
    /// device already or the device is too small for a log. A cache that is configured for the other engine than that of the cache on
    /// the device starts empty: see [`Recovery::Reopen`].
    ///
    /// Takes effect if the cache has [flash](Self::flash), in whatever order the two are called.
    #[must_use]
    pub fn small_items(mut self, small_items: SmallItems) -> Self {
        self.small_items = Some(small_items);
        self
    }

    /// Another clock than the machine's.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Everything at once, in place of whatever was said before.
    #[must_use]
    pub fn config(self, config: CacheConfig) -> Self {
        Self { config, clock: self.clock, ..Self::new() }
    }

    /// Opens the cache and starts its background threads.
    ///
    /// # Errors
    /// If the configuration contradicts itself or the device, or the device holds something else.
    pub fn open(self) -> Result<Cache, CacheError> {
        let clock = Arc::clone(&self.clock);
        desk::wait_for(Cache::open(&self.finished()?, &clock, true, Waiting::Thread))
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

    /// Opens the cache without threads: somebody calls [`Cache::step`], or runs [`Cache::background_tasks`]. Its blocking
    /// calls must not be used with flash: one that waits for a step keeps its thread from making it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_stepped(self) -> Result<Cache, CacheError> {
        let clock = Arc::clone(&self.clock);
        desk::wait_for(Cache::open(&self.finished()?, &clock, false, Waiting::Thread))
    }

    /// What was said apart from its place, put there, in whatever order it was said; and what was said outright is kept or refused.
    fn finished(mut self) -> Result<CacheConfig, CacheError> {
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
        let config = self.config.within_budget()?;
        if let Some(asked_bytes) = self.max_item_bytes {
            config.check_largest_item(asked_bytes)?;
        }
        Ok(config)
    }
}

/// A factory of policies, one for each size class.
#[must_use]
pub fn eviction(config: EvictionConfig) -> PolicyFactory {
    Arc::new(move || build(&config, 0))
}
