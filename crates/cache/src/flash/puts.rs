//! Results of offers of items from DRAM to flash.

use std::sync::atomic::{AtomicU64, Ordering};

use device::counters;

/// Result of an offer of an item from DRAM to flash. [`PutStats`] describes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PutEnd {
    /// Accepted by an engine.
    Stored,
    /// Not written: flash already holds the same bytes.
    Clean,
    /// Not written: the item expired before it was copied to an engine.
    Expired,
    /// Time to live below the configured minimum.
    ShortLived,
    /// Refused by the admission policy.
    NotAdmitted,
    /// Larger than the engine's largest item.
    TooLarge,
    /// Too few regions are in service, as the others are retired.
    WornOut,
    /// Writes fail, and the buffers are full: of regions that await a retry, or of small items.
    Failing,
    /// Changed or used during the eviction: the copy was abandoned.
    Overtaken,
    /// Not decided: flash writes are behind, the item stays in DRAM and is offered again.
    HeldBack,
}

/// Results of offers of items that DRAM evicted.
#[derive(Debug, Default)]
pub(super) struct Puts {
    /// By [`PutEnd`].
    ended: [AtomicU64; PutEnd::HeldBack as usize + 1],
    pub(super) stayed: AtomicU64,
    pub(super) logical_bytes: AtomicU64,
}

impl Puts {
    pub(super) fn count(&self, end: PutEnd) {
        self.ended[end as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The results of offers so far.
    pub(super) fn stats(&self) -> PutStats {
        // Each counter is read once, so that sums and parts agree.
        let counts = self.ended.each_ref().map(|counter| counter.load(Ordering::Relaxed));
        let ended = |end: PutEnd| counts[end as usize];
        PutStats {
            offered: counts.iter().sum::<u64>() - ended(PutEnd::HeldBack),
            stored: ended(PutEnd::Stored),
            clean: ended(PutEnd::Clean),
            rejected_expired: ended(PutEnd::Expired),
            rejected_short_lived: ended(PutEnd::ShortLived),
            rejected_admission: ended(PutEnd::NotAdmitted),
            rejected_too_large: ended(PutEnd::TooLarge),
            rejected_worn_out: ended(PutEnd::WornOut),
            rejected_failing: ended(PutEnd::Failing),
            overtaken: ended(PutEnd::Overtaken),
            stayed: self.stayed.load(Ordering::Relaxed),
            held_back: ended(PutEnd::HeldBack),
            logical_bytes: self.logical_bytes.load(Ordering::Relaxed),
        }
    }
}

counters! {
    /// Outcomes of the items that DRAM evicted. Each offer has exactly one outcome, apart from those held back.
    #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
    pub struct PutStats {
        /// Completed offers.
        offered: sum u64,
        /// Accepted by an engine.
        stored: sum u64,
        /// Not written because flash holds the same bytes already.
        clean: sum u64,
        /// Items that expired before they were copied to an engine.
        rejected_expired: sum u64,
        /// Refused by the admission policy.
        rejected_admission: sum u64 [listed_as "flash_rejected_admission"],
        /// Time to live below the configured minimum.
        rejected_short_lived: sum u64 [listed_as "flash_rejected_short_lived"],
        /// Larger than the engine's largest item.
        rejected_too_large: sum u64 [listed_as "flash_rejected_too_large"],
        /// Too few regions are in service: the others could not be written and are retired.
        rejected_worn_out: sum u64,
        /// Writes fail, and the buffers are full: of regions that await a retry, or of small items.
        rejected_failing: sum u64,
        /// Replaced, removed or read during the eviction: the copy was abandoned.
        overtaken: sum u64,
        /// Overtaken items that stayed in DRAM because a reader used them; the others were replaced or removed.
        stayed: sum u64,
        /// Offers without a decision: the buffers were full, the item stayed in DRAM and the insert waited.
        held_back: sum u64 [listed_as "flash_held_back"],
        /// Key and value bytes of the items stored.
        logical_bytes: sum u64,
    }
}

impl PutStats {
    /// Results with their names in reports, `stored` first. `unwritten_items` of the stored ones could not be written.
    #[must_use]
    pub fn ends(&self, unwritten_items: u64) -> [(&'static str, u64); 10] {
        [
            ("stored", self.stored.saturating_sub(unwritten_items)),
            ("clean", self.clean),
            ("dropped_overtaken", self.overtaken),
            ("dropped_write_failed", unwritten_items.min(self.stored)),
            ("rejected_expired", self.rejected_expired),
            ("rejected_short_lived", self.rejected_short_lived),
            ("rejected_admission", self.rejected_admission),
            ("rejected_too_large", self.rejected_too_large),
            ("rejected_worn_out", self.rejected_worn_out),
            ("rejected_failing", self.rejected_failing),
        ]
    }
}
