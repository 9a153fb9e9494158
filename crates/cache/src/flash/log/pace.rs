//! Pacing of region writes: a sealed region is written in small transfers, at the rate at which the open region fills.
//!
//! A read of an item waits behind transfers that are in progress, so a region is not written in one burst. Its write may last until the
//! open region is full. A transfer is therefore due when the written share of the sealed region is below the filled share of the open
//! one. The regions evicted to make space are read at the same pace, before the write. The pace depends on inserts alone, and needs no
//! clock.

use super::{Filling, HashLog, page};

/// Share of the open region that is filled when the write of the sealed one ends. The rest absorbs a burst of inserts.
const END_SHARE: f64 = 0.875;

/// Progress of a region write, in pages.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    /// Pages read for eviction, and pages written.
    pub done: u64,
    /// Pages of the region, and those of the regions evicted for it.
    pub total: u64,
}

impl Written {
    /// Whether the next transfer is due, for a filled share of the open region. The first transfer is due immediately.
    fn is_due(self, filled_share: f64) -> bool {
        self.done as f64 <= self.total as f64 * filled_share / END_SHARE
    }
}

impl HashLog {
    /// Whether a step has a region to seal, to begin or to continue.
    pub(super) fn is_write_due(&self, filling: &Filling) -> bool {
        match filling.written {
            _ if filling.is_to_be_settled() => true,
            Some(written) => written.is_due(self.filled_share(filling)),
            None => !filling.sealed.is_empty() || self.is_full(filling),
        }
    }

    /// Whether the items of the open region fill its pages. A page, or an eighth of a small region, is kept free: an item without a page
    /// moves to the next region, and always the same hashes would be moved.
    pub(super) fn is_full(&self, filling: &Filling) -> bool {
        filling.page_bytes >= self.open_capacity_bytes(filling)
    }

    fn filled_share(&self, filling: &Filling) -> f64 {
        filling.page_bytes as f64 / self.open_capacity_bytes(filling).max(1) as f64
    }

    /// Bytes of items that fill the open region. A page ends before an item that does not fit, which wastes about half an item; more if
    /// sizes differ, so the waste of the last region is used.
    fn open_capacity_bytes(&self, filling: &Filling) -> u64 {
        let pages = u64::from(self.shape.pages_per_region);
        let room = u64::from(self.shape.page_bytes) - page::HEADER_BYTES as u64;
        let half_item = filling.page_bytes / (2 * filling.items.max(1));
        let waste = filling.waste_per_page.unwrap_or(half_item * 3 / 2);
        let spare = room.min(pages * room / 8);
        (pages * room).saturating_sub(pages * waste.min(room / 2) + spare)
    }
}
