//! Retired regions: tested by a write from time to time, and used again when it succeeds.

use std::sync::Arc;

use device::{IoBuffer, IoError, IoSlice, Request};

use crate::flash::Waiting;

use super::layout::{Layout, RegionId};
use super::stats::Counters;
use super::store::{Content, RegionStore};
use crate::flash::outage::TestPlan;

/// A retired region that is being tested. Puts it back into the list if the test fails or is dropped.
struct Tested<'a> {
    store: &'a RegionStore,
    region: RegionId,
    /// `None` once the test has succeeded.
    plan: Option<TestPlan>,
}

impl Drop for Tested<'_> {
    fn drop(&mut self) {
        if let Some(plan) = self.plan {
            self.store.supply.put_back_retired(self.region, plan);
        }
    }
}

impl RegionStore {
    /// Takes a region out of service.
    pub(super) fn retire(&self, region: RegionId) {
        *self.region(region).content.lock() = Content::Retired;
        Counters::one(&self.counters.regions_retired);
        self.supply.retire_region(region, TestPlan::after_retirement(self.clock.monotonic_ns()));
    }

    /// Tests one of the retired regions whose test is due; whether there was one.
    pub(super) async fn test_retired(&self, waiting: Waiting) -> bool {
        let now_ns = self.clock.monotonic_ns();
        let Some((region, plan)) = self.supply.next_test(now_ns) else { return false };
        let mut tested = Tested { store: self, region, plan: Some(plan.after_failure(now_ns)) };
        if self.overwrite(region, waiting).await.is_err() {
            return true;
        }
        tested.plan = None;
        self.region(region).reset_failures();
        *self.region(region).content.lock() = Content::Clean;
        Counters::one(&self.counters.regions_returned);
        self.supply.return_to_service(region);
        true
    }

    /// Writes zeros over a whole region, piece by piece.
    async fn overwrite(&self, region: RegionId, waiting: Waiting) -> Result<(), IoError> {
        let whole = 0..self.layout.region_bytes as usize;
        let zeros = Arc::new(IoBuffer::zeroed(whole.len().min(self.layout.max_write_bytes as usize)));
        for piece in Layout::pieces(whole, self.layout.max_write_bytes) {
            let offset = self.layout.region_offset(region) + piece.start as u64;
            let data = IoSlice::new(Arc::clone(&zeros), 0..piece.len());
            let placement = self.placement(super::InsertionPoint::NEW);
            let (completion, written) = self.supply.begin_change(region);
            let request = Request::Write { offset, data, placement };
            match waiting {
                Waiting::Thread => completion.complete(self.device.execute(request)),
                Waiting::Task => self.device.submit(request, completion),
            }
            written.await?;
        }
        Ok(())
    }
}
