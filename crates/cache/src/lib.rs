//! The hybrid cache: DRAM in front of flash.
//!
//! [`Cache`] implements get, insert and remove over two tiers ([`hybrid`]): [`dram`] holds hot items, [`flash`] the items that DRAM
//! evicted. The engine does not use the system's time, randomness or threads directly: a clock and a device are parameters, and
//! background work consists of steps ([`background`]).
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
//! Properties:
//!
//! * It may lose any item at any time, and returns nothing older than the last acknowledged insert or remove of a key. A refused insert
//!   removes the old value.
//! * [`Cache::close`] makes the contents recoverable by the next start; [`Cache::close_within`] does so for a shared cache, with a
//!   deadline. After a cache is dropped, or its process dies, the next one starts empty, unless [`Builder::recover_after`] selects a kill or
//!   a power cut: then items on flash are found again. Items held as [`OwnedItem`] during the close stay in DRAM and are not recovered.
//! * A tenth of flash is for items of up to 2 KiB, and the rest for larger ones; [`Builder::small_item_share`] changes that. With the
//!   default, a cache of small items only leaves nine tenths of its flash empty.
//! * Async operations yield to their executor once in 128 operations of a thread, even if none has to wait. Caches without threads
//!   ([`Builder::open_stepped`]) do not.
//! * [`Cache::clear`] drops all items without device I/O. [`Cache::clear_async`] does it in steps. [`Cache::remove_prefix`] removes all
//!   keys with a prefix, and [`Cache::for_each_key_on_flash`] lists the keys on flash; both read all of it.
//! * [`Cache::insert_parts`] stores a value of any length, larger than DRAM, as a stream of parts.
//! * [`Cache::set_ttl`] changes the TTL of an existing item.
//! * [`Cache::settle`] waits until evicted items are written to flash. A get does not need that: pending items are found.
//! * A held [`Item`] is pinned. If all items of a size class are held, inserts into it are
//!   [refused](Refusal::AllPinned). It borrows the cache; an [`OwnedItem`] ([`Cache::get_owned`]) can be returned, or sent to another
//!   task.
//! * Expiry follows the system's wall clock forward, never back: if the wall clock is set back, time advances with the monotonic clock,
//!   also from a clean close to the next start. A suspend counts as elapsed time.
//! * An insert waits while flash writes are behind; [`Cache::insert_within`] waits for a limited time, and [`Cache::try_insert`] not at
//!   all. An insert that is dropped while it waits removes the old value, as a refused one does.
//! * Every async operation can be dropped at any point. It needs no runtime. Methods ending in `_blocking` do the same on the calling
//!   thread, and block it while flash writes are behind. A `get` that is dropped, or no longer polled, delays no other: any caller that
//!   waits for the same key continues its read. A [fetch](Cache::get_or_insert_with) continues without its caller, on the
//!   [spawner](Builder::spawner) or a thread of the cache.
//! * [`block_on`] runs a program without a runtime, and completes reads from a file on the calling thread: with many in flight, this takes
//!   two fifths of the CPU time that wake-ups by another thread take.
//! * A failing device causes misses, not errors: [`Stats`] counts the lost items, and [`Cache::close`] reports whether any were lost.
//!
//! This crate does not know JSON, workloads, command lines or the internals of drives.
//!
//! `examples/` has a runnable page each for DRAM only, flash in a file, read-through, async without a runtime, a restart, extending TTLs
//! and clearing the cache, and virtual time.

mod background;
mod bounded;
mod chained;
mod claim;
mod clear;
mod close;
pub mod config;
mod coop;
mod counters;
mod departure;
mod dram;
mod emit;
mod error;
pub mod event;
mod expiry_clock;
mod flash;
mod flash_read;
mod hybrid;
mod in_flight;
#[doc(hidden)]
pub mod internals;
mod item;
mod key;
mod keys;
mod largest_item;
mod lifetime;
mod listener;
mod load;
mod lookahead;
mod memory;
mod new_item;
mod open;
mod owned;
mod parts;
mod prefix_removals;
mod settle;
mod spawner;
pub mod stats;
mod stop;
mod sync;
mod thread_counters;
mod upkeep;

use std::sync::Arc;

/// Devices and clocks for the [`Builder`].
pub use device;
pub use device::event_loop::block_on;
/// Eviction and admission policies for the [`Builder`].
pub use policy;

#[doc(inline)]
pub use config::{Builder, FlashConfig, RecoverAfter, SmallItems};
pub use dram::Cursor;
pub use error::{CacheError, Inserted, Refusal};
pub use item::{Item, Layer};
pub use key::KeyHash;
pub use load::{Fetched, OwnedFetched};
pub use lookahead::Lookahead;
pub use new_item::{InsertOptions, NewItem};
pub use owned::OwnedItem;
pub use parts::{PartMissing, PartsReader, PartsWriter};
#[doc(inline)]
pub use stats::Stats;

/// A cache of bytes by key, in DRAM and on flash. It can be shared by threads.
pub struct Cache {
    // Dropped first: its threads use the engine.
    background: background::Background,
    engine: Arc<hybrid::Engine>,
    /// Dropped last, so that the next cache can use the flash device only then.
    _claim: Option<claim::Claim>,
}

impl Cache {
    /// Returns a builder.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Executes one step of each kind of background work that is due; returns whether there was any for flash. For caches opened by
    /// [`Builder::open_stepped`]; otherwise threads do this.
    ///
    /// If the future is dropped early, nothing is lost or damaged, and the next step continues the writes. Reads for the reclaim of a
    /// region are repeated, so a step needs the time of a few reads to make progress.
    ///
    /// # Panics
    /// If it is called in an eviction callback or event sink of this cache, where it could wait for itself.
    pub async fn step(&self) -> bool {
        self.engine.assert_not_in_callback("step");
        if self.engine.closing.has_begun() {
            return false;
        }
        self.engine.step(flash::Waiting::Task).await
    }

    /// The background work of a cache opened by [`Builder::open_stepped`], as tasks for an executor; upkeep sleeps by `timer`. They end
    /// when the cache is closed or dropped, and keep its memory until then. In a [`Simulation`](device::Simulation), drop them when the
    /// program ends, or the simulation never becomes idle.
    #[must_use]
    pub fn background_tasks(&self, timer: &Arc<dyn device::timer::Timer>) -> Vec<config::BackgroundTask> {
        self.background.tasks(&self.engine, timer)
    }

    /// Upper limit of the number of items: those in DRAM, without their chained items, and those on flash. An item in both counts twice,
    /// and an expired item counts until it is removed. Visits every shard of the index, so it is not for frequent use.
    #[must_use]
    pub fn len(&self) -> usize {
        // DRAM first: an item that moves to flash in the meantime counts twice instead of never.
        let in_dram = self.engine.dram.len();
        let flash = self.engine.flash.as_ref().map_or(0, |flash| flash.stats().items());
        in_dram + flash as usize
    }

    /// Whether [`len`](Self::len) is 0, so that no get can find an item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of the largest value: [`Builder::max_item_bytes`], or a lower limit in a small cache. A key has space for 255 bytes beside it;
    /// the bytes of a longer key beyond that count as bytes of the value.
    #[must_use]
    pub fn max_item_bytes(&self) -> usize {
        self.engine.dram.max_item_bytes()
    }

    /// Whether flash accepts writes; `None` without a flash tier. Also part of [`stats`](Self::stats).
    #[must_use]
    pub fn health(&self) -> Option<stats::FlashHealth> {
        self.engine.flash.as_ref().map(|flash| flash.stats().health)
    }

    /// The counters of each [pair](FlashConfig::pairs), in order; those of [partitions](Builder::flash_partition) follow the pairs for
    /// all other keys, in the order of the calls. Empty without a flash tier.
    #[must_use]
    pub fn pair_stats(&self) -> Vec<stats::PairStats> {
        self.engine.flash.as_ref().map_or_else(Vec::new, |flash| flash.pair_stats())
    }

    /// All counters since the cache was opened.
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
