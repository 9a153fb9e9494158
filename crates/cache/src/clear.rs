//! Dropping everything at once, while others go on.
//!
//! Three steps, each of which only has to be done before the next. Fetches are overtaken, those that begin from here on
//! too: nothing is brought back to DRAM. DRAM is emptied: what is still on its way to flash from before finds its item
//! gone, and what was quicker is on flash. Flash is emptied: its indexes, bits and what waits, in memory; no bucket and no
//! region is read or written. A write under way lands in a bucket that counts as empty, or in a region that nothing points
//! at.
//!
//! Nothing has to be written down for it. A crash empties the cache anyhow, and the snapshot of a clean close is of what is
//! left.

use device::desk;

use crate::config::Removal;
use crate::dram::{Cursor, Handle};
use crate::event::{Event, EventKind};
use crate::flash::Waiting;
use crate::hybrid::Engine;
use crate::in_flight::Clearing;
use crate::listener::Outcry;
use crate::{Cache, coop};

impl Cache {
    /// Drops everything, in DRAM and on flash. No key that was inserted before the call is found after it, not after a
    /// restart either, nor if the item was on its way between DRAM and flash. What others insert while it runs stays or
    /// goes, each key as if it had been removed at some moment of the call. Whoever holds an [`Item`](crate::Item) can go
    /// on reading it.
    ///
    /// A [`get_or_insert_with`](Self::get_or_insert_with) under way is overtaken, as by a remove: what it makes is returned, but
    /// not kept.
    ///
    /// It counts as no eviction. [`on_remove`](crate::Builder::on_remove) is told of the items in DRAM, each as
    /// [`Cleared`](Removal::Cleared), and nobody of those on flash. A panic of the callback goes on to the caller when
    /// everything has been dropped.
    ///
    /// It waits for no device. The time it takes is that of freeing the items in DRAM and the index of regions; flash
    /// is free to be filled again at once, or, if [regions are trimmed](crate::flash::region::RegionConfig::trim), as soon as
    /// background work has trimmed it. Buckets are never trimmed.
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
    /// `clear` holds its thread for as long as it takes to free them.
    ///
    /// Dropped before it has ended, some keys are gone, and the others can be found again.
    pub async fn clear_async(&self) {
        let mut clearing = Clear::begin(&self.engine);
        while clearing.step() {
            coop::yield_now().await;
        }
        clearing.end();
    }
}

/// A clear in progress. Meanwhile, every fetch is overtaken.
struct Clear<'a> {
    engine: &'a Engine,
    /// Panics of the callback.
    outcry: Outcry,
    _overtaken: [Clearing<'a>; 2],
    next_shard: usize,
    /// With a destructor, DRAM is emptied by key first: where that goes on.
    by_key: Option<Cursor>,
    /// The steps of flash, which begin when DRAM is empty.
    flash: Option<Box<dyn Iterator<Item = ()> + Send + 'a>>,
}

impl<'a> Clear<'a> {
    fn begin(engine: &'a Engine) -> Self {
        let _overtaken = [engine.in_flight.overtake_all(), engine.loads.overtake_all()];
        if let Some(flash) = engine.flash.as_ref().filter(|_| engine.destructor.is_some()) {
            desk::wait_for(flash.destroy_forgotten(Waiting::Thread));
        }
        let by_key = engine.destructor.is_some().then(Cursor::default);
        Self { engine, outcry: Outcry::default(), _overtaken, next_shard: 0, by_key, flash: None }
    }

    /// Whether there was anything left to do.
    fn step(&mut self) -> bool {
        if let Some(from) = self.by_key.take() {
            self.by_key = self.engine.clear_by_key(from, &self.outcry);
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
        let Self { engine, outcry, .. } = self;
        engine.dram.clear_shard(shard, &mut |item| engine.report_cleared(item, outcry));
    }

    /// Lets a panic of the callback go on.
    fn end(self) {
        self.engine.closing.note_removal();
        self.outcry.let_out();
    }
}

impl Drop for Clear<'_> {
    /// Regions that were taken out of the policy must become clean.
    fn drop(&mut self) {
        self.flash.iter_mut().flatten().for_each(drop);
    }
}

impl Engine {
    fn report_cleared(&self, item: &Handle<'_>, outcry: &Outcry) {
        if let Some(events) = &self.events {
            let event = Event::new(EventKind::Cleared, item.key(), self.hash_of(item.key()));
            events.tell(&event.of(item.len(), item.expiry_seconds()));
        }
        self.destroy(Some(item), Removal::Cleared);
        if let Some(callback) = &self.on_remove {
            outcry.keep(|| callback(item.key(), item, Removal::Cleared));
        }
    }

    /// Removes some items in DRAM, each with its copy on flash, so that each destructor is called once. Returns where to go on.
    fn clear_by_key(&self, from: Cursor, outcry: &Outcry) -> Option<Cursor> {
        self.dram.scan(from, 1, &mut |item| {
            let hash = self.hash_of(item.key());
            let mut lock = self.dram.lock(hash);
            let Some(cleared) = lock.unlink(item.key()) else { return };
            self.displace(hash, item.key(), None);
            drop(lock);
            self.report_cleared(&cleared, outcry);
        })
    }
}
