//! Waiting until all evicted items are written to flash.

use device::event_loop;

use crate::Cache;
use crate::error::CacheError;

impl Cache {
    /// Waits until every item that DRAM has evicted before the call is written to flash; items in DRAM stay there. Use it to measure
    /// after a warm-up, or in tests that depend on where items are.
    ///
    /// It does not prepare a restart: that takes [`close`](Self::close), which includes this. It has a cost: a partly filled region is
    /// written, and its rest stays unused until the region is reclaimed; and buckets are written with fewer new items each. A cache opened
    /// by [`open_stepped`](crate::Builder::open_stepped) must be stepped concurrently.
    ///
    /// If the future is dropped while it waits, nothing is lost.
    ///
    /// # Errors
    /// [`CacheError::Lost`] if items were lost to write errors in the meantime; all others are written. A failed write of a region is
    /// repeated with growing pauses, and given up after 30 seconds.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use flashwright_cache::device::MemoryDevice;
    /// # use flashwright_cache::{Cache, InsertOptions};
    /// # let flash = Arc::new(MemoryDevice::new(64 << 20));
    /// # let cache = Cache::builder().dram_bytes(4 << 20).flash(flash).open()?;
    /// for number in 0..20_000_u32 {
    ///     cache.insert_blocking(&number.to_le_bytes(), &[0; 300], InsertOptions::default());
    /// }
    /// cache.settle_blocking()?;
    /// assert_eq!(cache.stats().flash.map(|flash| flash.waiting_bytes()), Some(0));
    /// # Ok::<(), flashwright_cache::CacheError>(())
    /// ```
    pub async fn settle(&self) -> Result<(), CacheError> {
        self.engine.assert_not_in_callback("wait for");
        let Some(flash) = &self.engine.flash else { return Ok(()) };
        let lost_before = flash.lost_items();
        flash.settle().await;
        flash.lost_since(lost_before)
    }

    /// As [`settle`](Self::settle), on this thread.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    pub fn settle_blocking(&self) -> Result<(), CacheError> {
        event_loop::wait_for(self.settle())
    }
}
