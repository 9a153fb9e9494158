//! A region that was emptied, on its way to the clean ones: the device is told first that nobody will read it any more,
//! if it is to be told.

use device::Request;

use crate::flash::Waiting;

use super::layout::RegionId;
use super::stats::Counters;
use super::store::{Content, RegionStore};

impl RegionStore {
    /// Nothing of what a region holds on flash counts any more. Readers still on their way to it learn so before it
    /// goes: by the trim, or by whoever fills it next.
    pub(super) fn give_up(&self, region: RegionId) {
        *self.region(region).content.lock() = Content::Clean;
        if self.config.trim {
            self.supply.give_untrimmed(region);
        } else {
            self.supply.give_region(region);
        }
    }

    /// Trims one of the regions that were given up; whether there was one. It is clean when its trim has ended, though
    /// nobody may wait for that any more.
    pub(super) async fn trim_next(&self, waiting: Waiting) -> bool {
        let Some(region) = self.supply.next_untrimmed() else { return false };
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
