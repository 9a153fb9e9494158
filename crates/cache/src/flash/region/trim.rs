//! The trim of an emptied region, if trims are enabled, before the region is clean.

use device::Request;

use crate::flash::Waiting;

use super::layout::RegionId;
use super::stats::Counters;
use super::store::{Content, RegionStore};

impl RegionStore {
    /// Marks the content of a region as dead. Readers with an older address detect this before the trim or the next filling overwrites
    /// it.
    pub(super) fn free_region(&self, region: RegionId) {
        *self.region(region).content.lock() = Content::Clean;
        if self.config.trim {
            self.supply.give_untrimmed(region);
        } else {
            self.supply.give_region(region);
        }
    }

    /// Trims one reclaimed region; returns whether there was one. It is clean when its trim completes, even if the future is dropped, and
    /// without a trim if the journal cannot be written.
    pub(super) async fn trim_next(&self, waiting: Waiting) -> bool {
        let Some(region) = self.supply.next_untrimmed() else { return false };
        // A trim that a power cut interrupts leaves parts of the region, which must not be recovered.
        if self.sync_journal().is_err() {
            Counters::one(&self.counters.trim_errors);
            self.supply.give_region(region);
            return true;
        }
        let (completion, trimmed) = self.supply.begin_change(region);
        self.supply.give_region(region);
        let (offset, len) = (self.layout.region_offset(region), u64::from(self.layout.region_bytes));
        let request = Request::Trim { offset, len };
        match waiting {
            Waiting::Thread => completion.complete(self.device.execute(request)),
            Waiting::Task => self.device.submit(request, completion),
        }
        if trimmed.await.is_err() {
            Counters::one(&self.counters.trim_errors);
        }
        true
    }
}
