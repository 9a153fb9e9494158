//! The hybrid cache: DRAM in front of flash.
//!
//! [`Cache`] tells the whole story of a get, an insert and a remove ([`hybrid`]); [`dram`] holds what is hot,
//! [`flash`] what fell out of it. The engine never asks the machine for time, randomness or a thread: a clock and a
//! device come in from outside, and background work is a step that somebody calls ([`background`]).
//!
//! ```
//! use std::sync::Arc;
//! use flashwright_cache::device::MemoryDevice;
//! use flashwright_cache::{Cache, FlashConfig, InsertOptions};
//!
//! let mut flash = FlashConfig::new(Arc::new(MemoryDevice::new(64 << 20)));
//! flash.pending_bytes = 1 << 20;
//! let cache = Cache::builder().dram_bytes(16 << 20).flash_config(flash).open()?;
//! let for_an_hour = InsertOptions { ttl_seconds: Some(3600), ..InsertOptions::default() };
//! cache.insert_blocking(b"key", b"value", for_an_hour);
//! assert_eq!(cache.get_blocking(b"key").as_deref(), Some(&b"value"[..]));
//! assert!(cache.remove(b"key"));
//! cache.close()?;
//! # Ok::<(), flashwright_cache::CacheError>(())
//! ```
//!
//! What its user should know:
//!
//! * It may lose anything at any time, and returns nothing older than the last acknowledged insert or remove of a key. An insert
//!   that is refused takes the old value with it.
//! * [`Cache::close`] keeps the content for the next start, and [`Cache::close_within`] does so for a cache that is shared, with a
//!   deadline. A cache that is dropped, or whose process dies, comes back empty. An
//!   [`OwnedItem`] that is held meanwhile stays in DRAM, and does not come back.
//! * A tenth of flash is for items of up to 2 KiB, and the rest for larger ones: [`Builder::small_item_share`] divides it otherwise. A
//!   cache of small items alone leaves nine tenths of its flash empty with the default.
//! * Async operations yield to their executor once in 128 operations of a thread, even if none has to wait. Caches without threads
//!   ([`Builder::open_stepped`]) do not.
//! * [`Cache::clear`] drops all items without device I/O. [`Cache::clear_async`] does it in steps. [`Cache::remove_prefix`] removes all keys with a prefix,
//!   and [`Cache::for_each_key_on_flash`] lists the keys on flash; both read all of it.
//! * [`Cache::insert_parts`] stores a value of any length, larger than DRAM, as a stream of parts.
//! * [`Cache::set_ttl`] gives an item that is there another time to live.
//! * [`Cache::settle`] waits until what has left DRAM is on flash. No get has to wait for that: what is on its way is found.
//! * An [`Item`] that is held is pinned. While all of a size class is held, inserts into it are
//!   [refused](Refusal::AllPinned). It borrows the cache; an [`OwnedItem`] ([`Cache::get_owned`]) can be returned, or sent to another
//!   task.
//! * Expiry follows the machine's date forward, and never back: where the date is set back, time goes on at the pace of the monotonic
//!   clock, also from a clean close to the next start. A suspend counts as time that has passed.
//! * An insert waits while flash is behind with its writes; [`Cache::insert_within`] waits for a limited time, and
//!   [`Cache::try_insert`] not at all. An insert that is dropped while it waits takes the old value with it, as a refused one does.
//! * Everything async can be dropped half-way. It needs no runtime; `_blocking` is the same on the calling thread, which it may
//!   hold up for as long as flash is behind with its writes. A `get` that is dropped, or not polled any more, delays no other: any
//!   caller that waits for the same key takes its read over. A [fetch](Cache::get_or_insert_with) goes on without its caller, on the
//!   [spawner](Builder::spawner) or a thread of the cache.
//! * [`block_on`] runs a program without a runtime, with its gets from a file ending on its own thread: with many under way they take
//!   two fifths of the CPU that they take where another thread wakes it.
//! * A failing device costs misses, not errors: [`Stats`] counts what was lost, and [`Cache::close`] says whether it came
//!   to rest on the device.
//!
//! This room knows nothing of JSON, workloads, command lines or drives' insides.
//!
//! `examples/` has a runnable page each for DRAM alone, a file behind it, reading through, async without a runtime, a
//! restart, lives that are prolonged and all ended at once, and virtual time.

mod background;
mod bounded;
mod chained;
mod claim;
mod clear;
mod close;
pub mod config;
mod coop;
mod departure;
pub mod dram;
pub mod error;
pub mod event;
mod expiry_clock;
pub mod flash;
mod flash_read;
mod hybrid;
mod in_flight;
pub mod item;
pub mod key;
mod keys;
mod largest_item;
mod lifetime;
mod listener;
mod load;
mod lookahead;
mod memory;
mod open;
pub mod owned;
mod parts;
mod settle;
mod spawner;
pub mod stats;
mod thread_counters;
mod upkeep;

use std::sync::Arc;

/// Where the bytes of flash go, and the clocks: what the [`Builder`] is given.
pub use device;
pub use device::desk::block_on;
/// Who leaves and who is let in: what the [`Builder`] is given.
pub use policy;

pub use config::{
    Builder, CacheConfig, Destroyed, FlashConfig, ItemDestructor, LogOptions, Recovery, SmallItems,
    UpkeepConfig,
};
pub use error::{CacheError, Inserted, Refusal};
pub use event::{Event, EventKind, EventSink};
pub use hybrid::{InsertOptions, NewItem};
pub use item::{Item, Layer};
pub use key::KeyHash;
pub use load::{Fetched, OwnedFetched};
pub use lookahead::Lookahead;
pub use memory::Memory;
pub use owned::OwnedItem;
pub use parts::{PartMissing, PartsReader, PartsWriter};
pub use spawner::{Spawn, Task as BackgroundTask};
pub use stats::Stats;

/// A cache of bytes under keys, in DRAM and on flash. Shared by all threads.
pub struct Cache {
    // Dropped first: its threads use the engine.
    background: background::Background,
    engine: Arc<hybrid::Engine>,
    /// Dropped last: the next cache may have the flash device then.
    _claim: Option<claim::Claim>,
}

impl Cache {
    /// Begins to put a cache together.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Does one piece of background work of every kind that is due; says whether there was any for flash. For caches
    /// opened by [`Builder::open_stepped`]: where there are threads, they do this.
    ///
    /// Dropping it half way loses and damages nothing, and whoever steps next goes on with what was being written. What was being
    /// read to reclaim a region is read anew: a step needs the time of a few reads.
    ///
    /// # Panics
    /// It is called in a callback of this cache that hears of evictions or events: there it would wait for itself.
    pub async fn step(&self) -> bool {
        self.engine.assert_not_telling("step");
        if self.engine.closing.has_begun() {
            return false;
        }
        self.engine.step(flash::Waiting::Task).await
    }

    /// The background work of a cache opened by [`Builder::open_stepped`], as tasks for an executor; `timer` tells when upkeep
    /// is due. They end when the cache is closed or dropped, and keep its memory until then. In a
    /// [`Simulation`](device::Simulation) they are dropped by whoever waits for the program, or the world never rests.
    #[must_use]
    pub fn background_tasks(&self, timer: &Arc<dyn device::timer::Timer>) -> Vec<BackgroundTask> {
        self.background.tasks(&self.engine, timer)
    }

    /// Items in the cache, at most: those in DRAM, without what is chained to them, and those on flash. One that is in both counts
    /// twice, and one that has expired counts until it is come across. Looks at every shard of the index, so it is for now and then.
    #[must_use]
    pub fn len(&self) -> usize {
        let on_flash =
            |flash: stats::FlashStats| flash.soc.map_or(0, |soc| soc.stored_items()) + flash.items_in_regions;
        // DRAM first: what leaves it for flash meanwhile counts twice, and not never.
        let in_dram = self.engine.dram.len();
        let flash = self.engine.flash.as_ref().map_or(0, |flash| on_flash(flash.stats()));
        in_dram + flash as usize
    }

    /// Whether [`len`](Self::len) is nothing: then no get can find anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the largest item, header and key included: [`Builder::max_item_bytes`], or what became of it in a small cache.
    #[must_use]
    pub fn max_item_bytes(&self) -> usize {
        self.engine.dram.max_item_bytes()
    }

    /// Whether flash takes writes; `None` without a flash tier. Also part of [`stats`](Self::stats).
    #[must_use]
    pub fn health(&self) -> Option<stats::FlashHealth> {
        self.engine.flash.as_ref().map(|flash| flash.stats().health)
    }

    /// Everything counted since the cache was opened.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cache({:?})", self.engine.dram)
    }
}

/// The snippets of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
