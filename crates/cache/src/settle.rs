//! Waiting until flash has what DRAM gave it.

use device::desk;

use crate::Cache;
use crate::error::CacheError;

impl Cache {
    /// Waits until every item that has left DRAM by now is on flash and not on its way there, however much leaves DRAM
    /// meanwhile; what is in DRAM stays there. For whoever wants to measure after a warm-up, or to know in a test where
    /// things are.
    ///
    /// It gains nothing for a restart: that takes [`close`](Self::close), which does this too. And it costs something: a region is
    /// written as full as it is, and what is left of it stays empty until it is reclaimed; buckets are written for fewer items
    /// each. Of a cache opened by [`open_stepped`](crate::Builder::open_stepped) somebody has to step meanwhile.
    ///
    /// If it is dropped while it waits, nothing is lost.
    ///
    /// # Errors
    /// [`CacheError::Lost`] if items were lost to the device meanwhile. All others that waited are on flash. A region whose write fails
    /// is written again with growing pauses, and lost after 30 seconds of failures.
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
        self.engine.assert_not_telling("wait for");
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
        desk::wait_for(self.settle())
    }
}
