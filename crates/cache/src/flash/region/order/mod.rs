//! Orders of regions: which one is reclaimed first.
//!
//! An order handles regions, never items, and does no I/O. [`ByOrder`](super::policy::ByOrder) makes a region policy from an order.

mod by_eviction;
mod segmented_fifo;
mod segmented_lru;

use super::layout::RegionId;

pub use by_eviction::ByEviction;
pub use segmented_fifo::SegmentedFifo;
pub use segmented_lru::SegmentedLru;

/// Decides which region is reclaimed next.
///
/// # Contract
/// * A region is `written` once, then removed by [`victim`](Self::victim); only then may it be written again.
/// * `hit` names only regions that are held.
/// * `victim` returns `None` only when the order is empty.
pub trait RegionOrder: Send {
    /// A region was filled and flushed, at the insertion point of `priority` (0 is the lowest).
    fn written(&mut self, region: RegionId, priority: u8);

    /// An item in the region was read. Called only if [`wants_hits`](Self::wants_hits).
    fn hit(&mut self, region: RegionId);

    /// Whether the order uses hits. Constant for its lifetime; if not, readers skip the lock.
    fn wants_hits(&self) -> bool;

    /// Chooses the next region to reclaim and removes it.
    fn victim(&mut self) -> Option<RegionId>;

    /// Regions held.
    fn len(&self) -> usize;

    /// Whether the order holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All regions with their current priority; [`restore`](Self::restore) rebuilds the order from them.
    fn in_order(&mut self) -> Vec<(RegionId, u8)>;

    /// Restores the regions that [`in_order`](Self::in_order) listed before a restart, into an empty order. Lost regions are omitted.
    fn restore(&mut self, regions: &[(RegionId, u8)]) {
        for &(region, priority) in regions {
            self.written(region, priority);
        }
    }
}
