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

use crate::config::Removal;
use crate::event::{Event, EventKind};
use crate::hybrid::Engine;
use crate::listener::Outcry;
use crate::{Cache, KeyHash};

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
    /// cache.insert_blocking(b"key", b"of the old catalogue", &InsertOptions::default());
    /// cache.clear();
    /// assert!(cache.get_blocking(b"key").is_none());
    /// # Ok::<(), flashwright_cache::CacheError>(())
    /// ```
    pub fn clear(&self) {
        self.engine.clear();
    }
}

impl Engine {
    fn clear(&self) {
        let outcry = Outcry::default();
        let _nothing_comes_back = (self.in_flight.overtake_all(), self.loads.overtake_all());
        self.dram.clear(&mut |item| {
            if let Some(events) = &self.events {
                let event = Event::new(EventKind::Cleared, item.key(), KeyHash::of(item.key()));
                events.tell(&event.of(item.len(), item.expiry_seconds()));
            }
            if let Some(callback) = &self.on_remove {
                outcry.keep(|| callback(item.key(), item, Removal::Cleared));
            }
        });
        if let Some(flash) = &self.flash {
            flash.clear();
        }
        outcry.let_out();
    }
}
