//! Region policies: which region is given up first.
//!
//! A policy hears of regions, never of items, and does no I/O. The store tells it when a region has been written and
//! with which priority, and when an item in it was read; it answers with a victim.

mod fifo;
mod segmented_fifo;

use super::layout::RegionId;

pub use fifo::Fifo;
pub use segmented_fifo::SegmentedFifo;

/// Decides which region is reclaimed next.
///
/// # Contract
/// * A region is `written` once, then leaves by [`victim`](Self::victim) or [`remove`](Self::remove); only then may it come again.
/// * `victim` answers `None` only when the policy holds nothing.
pub trait RegionOrder: Send {
    /// A region was filled and flushed, at the insertion point of `priority` (0 is the lowest).
    fn written(&mut self, region: RegionId, priority: u8);

    /// An item in the region was read. Called only if [`wants_hits`](Self::wants_hits).
    fn hit(&mut self, region: RegionId);

    /// Whether hits matter. Constant for the policy's life; if not, readers are spared the lock.
    fn wants_hits(&self) -> bool;

    /// Chooses the next region to reclaim and takes it out.
    fn victim(&mut self) -> Option<RegionId>;

    /// The region left for another reason.
    fn remove(&mut self, region: RegionId);

    /// Regions held.
    fn len(&self) -> usize;

    /// Whether the policy holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All regions with the priority they have now: what [`restore`](Self::restore) rebuilds the order from.
    fn in_order(&self) -> Vec<(RegionId, u8)>;

    /// Brings back, in a policy that holds nothing, what [`in_order`](Self::in_order) told before a restart. Regions
    /// that were lost meanwhile are left out.
    fn restore(&mut self, regions: &[(RegionId, u8)]) {
        for &(region, priority) in regions {
            self.written(region, priority);
        }
    }
}

/// A region policy by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrderConfig {
    /// The oldest region first.
    Fifo,
    /// Segments of regions, each first in, first out; from a segment above its share the oldest region falls to the
    /// one below.
    SegmentedFifo {
        /// The segments' shares of all regions, lowest priority first; there are as many priorities.
        shares: Vec<u32>,
    },
}

impl OrderConfig {
    /// Priorities that the policy tells apart.
    #[must_use]
    pub fn priorities(&self) -> usize {
        match self {
            Self::Fifo => 1,
            Self::SegmentedFifo { shares } => shares.len(),
        }
    }

    pub(super) fn is_sound(&self) -> bool {
        match self {
            Self::SegmentedFifo { shares } => !shares.is_empty() && !shares.contains(&0),
            Self::Fifo => true,
        }
    }

    pub(super) fn build(&self) -> Box<dyn RegionOrder> {
        match self {
            Self::Fifo => Box::new(Fifo::default()),
            Self::SegmentedFifo { shares } => Box::new(SegmentedFifo::new(shares)),
        }
    }
}
