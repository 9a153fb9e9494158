//! Background work, one step at a time: flushes, reclaims, trims and tests, and waiting until there is some.

use crate::flash::Waiting;

use super::flush::Persistence;
use super::store::{Content, Progress, Region, RegionStore, reserve};

/// Time between two wake-ups for the same retry or test.
const WAKE_AGAIN_NS: u64 = 10_000_000;

impl RegionStore {
    /// Does the most urgent piece of background work: flushes a sealed region, reclaims one, or tests a retired one.
    ///
    /// If the future is dropped, a later step continues the flush or repeats the reclaim. Its submitted requests complete anyway, and the
    /// region is not filled before that.
    pub async fn step(&self, waiting: Waiting) -> Progress {
        if self.destroy_one(waiting).await {
            return Progress::Destroyed;
        }
        if let Some(sealed) = self.supply.next_sealed(self.clock.monotonic_ns()) {
            self.flush(sealed, waiting, Persistence::Retry).await;
            return Progress::Flushed;
        }
        if self.trim_next(waiting).await {
            return Progress::Reclaimed;
        }
        let reclaimed = match self.supply.start_reclaim(self.clean_target()) {
            Some(_reclaiming) => self.reclaim_one(waiting).await,
            None => false,
        };
        if reclaimed {
            self.trim_next(waiting).await;
            return Progress::Reclaimed;
        }
        if self.test_retired(waiting).await { Progress::Tested } else { Progress::Idle }
    }

    /// Wakes [`wait_work`](Self::wait_work) if a pause has ended or a test is due. Returns the nanoseconds until the next of them.
    ///
    /// The store has no timer of its own: the caller must repeat the call within that time.
    pub(crate) fn wake_if_due(&self, now_ns: u64) -> Option<u64> {
        let due_ns = self.supply.next_due_ns()?;
        if due_ns <= now_ns {
            self.supply.work.notify(usize::MAX);
        }
        Some(due_ns.saturating_sub(now_ns).max(WAKE_AGAIN_NS))
    }

    /// Waits until [`step`](Self::step) has work.
    pub async fn wait_work(&self) {
        while !self.has_work() {
            let work = self.supply.work.listen();
            if self.has_work() {
                return;
            }
            work.await;
        }
    }

    fn has_work(&self) -> bool {
        let now_ns = self.clock.monotonic_ns();
        self.pending_destructors.is_any()
            || self.supply.has_sealed(now_ns)
            || self.supply.has_test(now_ns)
            || self.supply.has_untrimmed()
            || (self.supply.needs_reclaim(self.clean_target()) && !self.policy.lock().is_empty())
    }

    fn clean_target(&self) -> usize {
        self.config.clean_regions as usize + reserve(&self.config)
    }

    /// Closes the open regions and writes everything in memory. Requests in flight of dropped steps complete too: otherwise they could
    /// overwrite data of the next store.
    ///
    /// For a clean shutdown: a region that cannot be written now is lost. The device is not flushed. Does not wait for items that are
    /// staged but not committed.
    pub async fn drain(&self, waiting: Waiting) {
        self.destroy_all(waiting).await;
        self.close_regions();
        while let Some(sealed) = self.supply.next_sealed_or_paused() {
            self.flush(sealed, waiting, Persistence::Lose).await;
        }
        while self.trim_next(waiting).await {}
        loop {
            let region_returned = self.supply.region_returned.listen();
            if !self.supply.is_changing() {
                return;
            }
            region_returned.await;
        }
    }

    /// Waits until every item committed before the call is on flash or lost. Writes the open regions as they are. Another task must call
    /// `step` concurrently.
    pub async fn settle(&self) {
        let filling = |region: &Region| match &*region.content.lock() {
            Content::Buffered(buffer) => Some(buffer.filling),
            _ => None,
        };
        // Listed before they are closed: a region opened in between would be listed and stay open.
        let in_memory: Vec<_> =
            self.regions.iter().filter_map(|region| Some((region, filling(region)?))).collect();
        self.close_regions();
        for (region, now) in in_memory {
            loop {
                let region_returned = self.supply.region_returned.listen();
                if filling(region) != Some(now) {
                    break;
                }
                region_returned.await;
            }
        }
        self.destroy_all(Waiting::Task).await;
    }

    /// Closes the open regions, so that all of them are flushed.
    pub(super) fn close_regions(&self) {
        for point in &self.points {
            if let Some(buffer) = point.open.lock().take() {
                buffer.close();
            }
        }
    }
}
