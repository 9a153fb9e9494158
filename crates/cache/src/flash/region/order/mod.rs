//! Region policies: which region is given up first.
//!
//! A policy hears of regions, never of items, and does no I/O. The store tells it when a region has been written and
//! with which priority, and when an item in it was read; it answers with a victim.

mod by_eviction;
mod segmented_fifo;

use super::layout::RegionId;

pub use by_eviction::ByEviction;
pub use segmented_fifo::SegmentedFifo;

/// Decides which region is reclaimed next.
///
/// # Contract
/// * A region is `written` once, then leaves by [`victim`](Self::victim); only then may it come again.
/// * `hit` names only regions that are held.
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

    /// Regions held.
    fn len(&self) -> usize;

    /// Whether the policy holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All regions with the priority they have now, unchanged: what [`restore`](Self::restore) rebuilds the order from.
    fn in_order(&mut self) -> Vec<(RegionId, u8)>;

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
    /// The region that was not read for longest first.
    Lru,
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
            Self::Fifo | Self::Lru => 1,
            Self::SegmentedFifo { shares } => shares.len(),
        }
    }

    pub(super) fn is_sound(&self) -> bool {
        match self {
            Self::SegmentedFifo { shares } => !shares.is_empty() && !shares.contains(&0),
            Self::Fifo | Self::Lru => true,
        }
    }

    fn build(&self) -> Box<dyn RegionOrder> {
        match self {
            Self::Fifo => Box::new(ByEviction::fifo()),
            Self::Lru => Box::new(ByEviction::lru()),
            Self::SegmentedFifo { shares } => Box::new(SegmentedFifo::new(shares)),
        }
    }
}

/// The policy as the store asks it: keeps hits that come too early or too late away from it.
pub(super) struct Ranks {
    policy: Box<dyn RegionOrder>,
    held: Box<[bool]>,
}

impl Ranks {
    pub(super) fn new(config: &OrderConfig, regions: usize) -> Self {
        Self { policy: config.build(), held: vec![false; regions].into() }
    }

    pub(super) fn written(&mut self, region: RegionId, priority: u8) {
        self.held[region.0 as usize] = true;
        self.policy.written(region, priority);
    }

    /// A reader's lock on the region is long gone when the policy hears of the hit, and the region may be too.
    pub(super) fn hit(&mut self, region: RegionId) {
        if self.held[region.0 as usize] {
            self.policy.hit(region);
        }
    }

    pub(super) fn wants_hits(&self) -> bool {
        self.policy.wants_hits()
    }

    pub(super) fn victim(&mut self) -> Option<RegionId> {
        let victim = self.policy.victim()?;
        self.held[victim.0 as usize] = false;
        Some(victim)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.policy.is_empty()
    }

    pub(super) fn in_order(&mut self) -> Vec<(RegionId, u8)> {
        self.policy.in_order()
    }

    pub(super) fn restore(&mut self, regions: &[(RegionId, u8)]) {
        regions.iter().for_each(|(region, _)| self.held[region.0 as usize] = true);
        self.policy.restore(regions);
    }
}
