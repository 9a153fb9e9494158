//! Closing a cache: DRAM is written to flash, background work ends, and a snapshot is written for recovery.
//!
//! A shared cache can be closed too. From then on it refuses inserts, and reads still work. A key removed while the snapshot is written
//! must not return with it, so the snapshot is then written again.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use device::event_loop;
use device::timer::{self, SystemTimer};
use futures_util::future::{Either, select};

use crate::Cache;
use crate::error::CacheError;
use crate::flash::Waiting;
use crate::flash::tier::FlashTier;

/// Timer for deadlines, shared by all caches of the process. Its thread starts at the first use.
static TIMER: LazyLock<SystemTimer> = LazyLock::new(SystemTimer::default);

/// Limit of snapshots written because keys were removed concurrently.
const MOST_SNAPSHOTS: usize = 8;

/// The state of closing.
#[derive(Default)]
pub(crate) struct Closing {
    state: AtomicU8,
    /// Keys were removed since the current snapshot was started.
    has_removed: AtomicBool,
}

const OPEN: u8 = 0;
/// A call is closing the cache.
const IN_PROGRESS: u8 = 1;
/// Closing started and did not end.
const UNFINISHED: u8 = 2;
const CLOSED: u8 = 3;

impl Closing {
    /// Whether the cache refuses inserts.
    pub(crate) fn has_begun(&self) -> bool {
        self.state.load(Ordering::Relaxed) != OPEN
    }

    /// Records that a key is about to be removed.
    pub(crate) fn note_removal(&self) {
        if self.has_begun() {
            self.has_removed.store(true, Ordering::SeqCst);
        }
    }

    /// Starts closing; `None` if the cache is already closed.
    fn begin(&self) -> Result<Option<InProgress<'_>>, CacheError> {
        let begin = |state| matches!(state, OPEN | UNFINISHED).then_some(IN_PROGRESS);
        match self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, begin) {
            Ok(_) => Ok(Some(InProgress(self))),
            Err(CLOSED) => Ok(None),
            Err(_) => Err(CacheError::Closing),
        }
    }
}

/// A call that closes the cache. If it is dropped before [`end`](Self::end), closing is unfinished.
struct InProgress<'a>(&'a Closing);

impl InProgress<'_> {
    fn end(self) {
        self.0.state.store(CLOSED, Ordering::SeqCst);
    }
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        let unfinished = |state| (state == IN_PROGRESS).then_some(UNFINISHED);
        let _ = self.0.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, unfinished);
    }
}

impl Cache {
    /// Closes the cache so that the next one on the device recovers all items that flash can hold. Items in DRAM are written to flash
    /// first, as if they were evicted.
    ///
    /// It waits for the device without a limit; [`close_within`](Self::close_within) has a deadline.
    ///
    /// # Errors
    /// [`CacheError::Lost`] if items were lost to write errors: the cache is closed nevertheless, and the next one on the device recovers
    /// all other items. After any other error the next one starts empty.
    pub fn close(self) -> Result<(), CacheError> {
        event_loop::wait_for(self.close_waiting(Waiting::Thread))
    }

    /// As [`close`](Self::close), without blocking a thread. The [background tasks](Self::background_tasks) end with it; tasks that are no
    /// longer polled must be dropped before, or it waits for them. If the future is dropped early, the cache is not closed, and the next
    /// one on the device starts empty.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    pub async fn close_async(self) -> Result<(), CacheError> {
        self.close_waiting(Waiting::Task).await
    }

    /// As [`close`](Self::close), for a shared cache and with a deadline, for a shutdown that must end even if the device does not respond.
    /// Blocks the thread for at most `limit`.
    ///
    /// From the start of the call, inserts are refused as [`Closed`](crate::Refusal::Closed); gets and removes work. A remove after the
    /// call returned is not persisted: the next cache recovers the key. Closing a closed cache has no effect.
    ///
    /// After [`CacheError::Unfinished`] the call can be repeated. Dropping the cache then does not wait for its threads: they end when the
    /// device responds, and keep it open until then.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use flashwright_cache::device::MemoryDevice;
    /// # use flashwright_cache::{Cache, CacheError, InsertOptions};
    /// # let flash = Arc::new(MemoryDevice::new(64 << 20));
    /// let cache = Arc::new(Cache::builder().dram_bytes(4 << 20).flash(flash).open()?);
    /// let for_handlers = Arc::clone(&cache);
    /// for_handlers.insert_blocking(b"key", b"value", InsertOptions::default());
    /// match cache.close_within(Duration::from_secs(10)) {
    ///     Err(CacheError::Unfinished { dram_items, waiting_bytes }) => println!("{dram_items} items, {waiting_bytes} bytes"),
    ///     closed => closed?,
    /// }
    /// # Ok::<(), CacheError>(())
    /// ```
    ///
    /// # Errors
    /// As [`close`](Self::close), and [`CacheError::Unfinished`] with the items that were not written in time, and
    /// [`CacheError::Closing`] while another call closes the cache.
    pub fn close_within(&self, limit: Duration) -> Result<(), CacheError> {
        event_loop::wait_for(self.close_within_async(limit))
    }

    /// As [`close_within`](Self::close_within), as a task. The deadline uses the system's clock.
    ///
    /// # Errors
    /// As [`close_within`](Self::close_within).
    pub async fn close_within_async(&self, limit: Duration) -> Result<(), CacheError> {
        within(limit, self.close_waiting(Waiting::Task)).await.unwrap_or_else(|| {
            self.background.detach();
            let waiting_bytes = self.stats().flash.map_or(0, |flash| flash.waiting_bytes());
            Err(CacheError::Unfinished { dram_items: self.engine.dram.len(), waiting_bytes })
        })
    }

    async fn close_waiting(&self, waiting: Waiting) -> Result<(), CacheError> {
        self.engine.assert_not_in_callback("close");
        let Some(in_progress) = self.engine.closing.begin()? else { return Ok(()) };
        let alone = !self.background.has_threads();
        let Some(flash) = &self.engine.flash else {
            in_progress.end();
            return Ok(());
        };
        let lost_before = flash.lost_items();
        self.engine.empty_dram(waiting, alone).await;
        // Threads and tasks must end before the final drain, or they would write after it.
        self.background.end().await;
        self.write_snapshots(flash, waiting).await?;
        in_progress.end();
        flash.lost_since(lost_before)
    }

    async fn write_snapshots(&self, flash: &FlashTier, waiting: Waiting) -> Result<(), CacheError> {
        let has_removed = &self.engine.closing.has_removed;
        for _ in 0..MOST_SNAPSHOTS {
            has_removed.store(false, Ordering::SeqCst);
            flash.destroy_forgotten(waiting).await;
            let now_seconds = self.engine.clock.unix_seconds();
            for pair in &flash.pairs {
                pair.close(now_seconds, waiting).await?;
            }
            if !has_removed.load(Ordering::SeqCst) {
                return Ok(());
            }
        }
        Err(CacheError::StillRemoving)
    }
}

/// Waits for `future` for at most `limit`.
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    match select(std::pin::pin!(future), timer::sleep(&*TIMER, limit_ns)).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}
