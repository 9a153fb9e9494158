//! Clearing the cache during concurrent use.
//!
//! It has three consecutive steps. All fetches are invalidated, including those that start later during the
//! clear, so nothing is copied to DRAM. DRAM is emptied: an eviction in progress finds its item gone and aborts, and an item whose
//! eviction completed is on flash. Flash is emptied: its indexes, bits and pending items, in memory; no bucket or region is read or
//! written. A write in progress ends in a bucket that counts as empty, or in a region that nothing refers to.
//!
//! The snapshot of a clean close contains only what remains. Where items are recovered after a kill, the end of the clear is recorded
//! before the call returns.

use device::event_loop;

use crate::config::Removal;
use crate::dram::{Cursor, Handle};
use crate::error::CacheError;
use crate::event::{Event, EventKind};
use crate::flash::Waiting;
use crate::hybrid::Engine;
use crate::in_flight::Clearing;
use crate::listener::CaughtPanic;
use crate::{Cache, coop};

impl Cache {
    /// Drops all items, in DRAM and on flash. No key that was inserted before the call is found after it, also not after a restart, even
    /// if the item was on its way between DRAM and flash. A concurrent insert may or may not be removed, as if by a remove of its key
    /// during the call. An [`Item`](crate::Item) that is held remains readable.
    ///
    /// A running [`get_or_insert_with`](Self::get_or_insert_with) is overtaken, as by a remove: its value is returned, but not stored.
    ///
    /// Cleared items do not count as evictions. [`on_remove`](crate::Builder::on_remove) is called for the items in DRAM, with
    /// [`Cleared`](Removal::Cleared), but not for those on flash. A panic of the callback is resumed after everything was dropped.
    ///
    /// It does not wait for the device. It takes the time to free the items in DRAM and the index of regions. Flash can be filled again
    /// immediately, or, if [regions are trimmed](crate::flash::region::RegionConfig::trim), after background work has trimmed it. Buckets
    /// are never trimmed.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use flashwright_cache::device::MemoryDevice;
    /// # use flashwright_cache::{Cache, InsertOptions};
    /// # let flash = Arc::new(MemoryDevice::new(64 << 20));
    /// # let cache = Cache::builder().dram_bytes(16 << 20).flash(flash).open()?;
    /// cache.insert_blocking(b"key", b"of the old catalogue", InsertOptions::default());
    /// cache.clear();
    /// assert!(cache.get_blocking(b"key").is_none());
    /// # Ok::<(), flashwright_cache::CacheError>(())
    /// ```
    pub fn clear(&self) {
        let mut clearing = Clear::begin(&self.engine);
        while clearing.step() {}
        clearing.end();
    }

    /// As [`clear`](Self::clear), in steps of a few thousand items, between which other tasks run. With millions of items in DRAM,
    /// `clear` blocks its thread until they are freed.
    ///
    /// If the future is dropped early, some keys are removed, and the others can be found again.
    pub async fn clear_async(&self) {
        let mut clearing = Clear::begin(&self.engine);
        while clearing.step() {
            coop::yield_now().await;
        }
        clearing.end();
    }
}

/// A clear at a later time, which the caller executes.
impl Cache {
    /// Unix second at which the cache is to be cleared, as [stored](Self::set_clear_time) here or by an earlier cache whose items were
    /// recovered.
    #[must_use]
    pub fn clear_time(&self) -> Option<u32> {
        self.engine.flash.as_ref()?.pairs[0].clear_time()
    }

    /// Stores the Unix second at which the caller is going to [clear](Self::clear) the cache, or `None` when it has. The next cache that
    /// recovers the items has it too, also after a kill or a power cut. Without flash, or after a close, nothing is stored. Two calls must
    /// not overlap.
    ///
    /// # Errors
    /// Flash could not be written: the next cache may not have the time.
    pub async fn set_clear_time(&self, time: Option<u32>) -> Result<(), CacheError> {
        let Some(flash) = &self.engine.flash else { return Ok(()) };
        let stored = flash.pairs[0].set_clear_time(time, Waiting::Task).await;
        stored.map_err(|source| CacheError::Device { context: "storing the time of a clear", source })
    }
}

/// A clear in progress. Until it ends, every fetch is overtaken.
struct Clear<'a> {
    engine: &'a Engine,
    /// Panics of the callback.
    caught_panic: CaughtPanic,
    _overtaken: [Clearing<'a>; 2],
    next_shard: usize,
    /// The position in DRAM, which is emptied by key first if there is a destructor.
    by_key: Option<Cursor>,
    /// The steps of clearing flash, which start when DRAM is empty.
    flash: Option<Box<dyn Iterator<Item = ()> + Send + 'a>>,
}

impl<'a> Clear<'a> {
    fn begin(engine: &'a Engine) -> Self {
        let _overtaken = [engine.in_flight.overtake_all(), engine.loads.overtake_all()];
        if let Some(flash) = engine.flash.as_ref().filter(|_| engine.destructor.is_some()) {
            event_loop::wait_for(flash.destroy_forgotten(Waiting::Thread));
        }
        let by_key = engine.destructor.is_some().then(Cursor::default);
        Self { engine, caught_panic: CaughtPanic::default(), _overtaken, next_shard: 0, by_key, flash: None }
    }

    /// Executes the next step; returns whether there was one.
    fn step(&mut self) -> bool {
        if let Some(from) = self.by_key.take() {
            self.by_key = self.engine.clear_by_key(from, &self.caught_panic);
            return true;
        }
        if self.next_shard < self.engine.dram.shard_count() {
            self.clear_dram(self.next_shard);
            self.next_shard += 1;
            return true;
        }
        let Some(flash) = &self.engine.flash else { return false };
        self.flash.get_or_insert_with(|| Box::new(flash.clear_in_steps())).next().is_some()
    }

    fn clear_dram(&self, shard: usize) {
        let Self { engine, caught_panic, .. } = self;
        engine.dram.clear_shard(shard, &mut |item| engine.report_cleared(item, caught_panic));
    }

    /// Resumes a panic of the callback.
    fn end(self) {
        self.engine.acknowledge();
        self.engine.closing.note_removal();
        self.caught_panic.resume();
    }
}

impl Drop for Clear<'_> {
    /// Regions that were removed from the policy must become clean.
    fn drop(&mut self) {
        self.flash.iter_mut().flatten().for_each(drop);
    }
}

impl Engine {
    fn report_cleared(&self, item: &Handle<'_>, caught_panic: &CaughtPanic) {
        if let Some(events) = &self.events {
            let event = Event::new(EventKind::Cleared, item.key(), self.hash_of(item.key()));
            events.emit(&event.of(item.len(), item.expiry_seconds()));
        }
        self.destroy(Some(item), Removal::Cleared);
        if let Some(callback) = &self.on_remove {
            caught_panic.catch(|| callback(item.key(), item, Removal::Cleared));
        }
    }

    /// Removes some items in DRAM, each with its copy on flash, so that each destructor is called once. Returns the position to continue
    /// from.
    fn clear_by_key(&self, from: Cursor, caught_panic: &CaughtPanic) -> Option<Cursor> {
        self.dram.scan(from, 1, &mut |item| {
            let hash = self.hash_of(item.key());
            let mut lock = self.dram.lock(hash);
            let Some(cleared) = lock.unlink(item.key()) else { return };
            self.displace(hash, item.key(), None);
            drop(lock);
            self.report_cleared(&cleared, caught_panic);
        })
    }
}
