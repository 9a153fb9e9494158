//! Region policies: where an item is inserted, what a hit changes, which region is reclaimed, and which of its items are reinserted.
//!
//! The store is the mechanism: it fills regions, writes them, finds items and reclaims regions. The policy makes the decisions. There are
//! two kinds. [`ByOrder`] ranks regions: FIFO, LRU, segmented FIFO and segmented LRU over them (McDipper, the large-object cache,
//! BlockCache), with reinsertion by hits or by chance. [`Ripq`] ranks items: each has a place in one queue, which may differ from that of
//! its region.
//!
//! A policy does no I/O and reads no clock. It is called under one lock, which is never held during a transfer.

mod by_order;

use super::config::RegionConfig;
use super::order::{ByEviction, SegmentedFifo, SegmentedLru};
use super::order_config::OrderConfig;
use super::ripq::Ripq;
use super::{InsertionPoint, Layout, RegionId};
use crate::KeyHash;

pub use by_order::ByOrder;

/// The rank in an item's index record: the number of the virtual block that is the item's place in the queue. 0 means that its region is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rank(pub u16);

impl Rank {
    /// No virtual block: the item's position in the queue is that of its region.
    pub const NONE: Self = Self(0);

    /// Whether the item's place is its region.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

/// An item that is in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resident {
    /// The region that holds the item.
    pub region: RegionId,
    /// The item's virtual block, if it has one.
    pub rank: Rank,
    /// Reads since it was inserted, as far as the index counts them.
    pub hits: u8,
    /// Its size in units of the layout, as the index records it: rounded up, to the same value each time.
    pub units: u32,
}

/// Where an item is inserted into the queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Placing {
    /// Distance from the end of the queue: 0 is the lowest of the policy's levels.
    pub level: u8,
    /// The absolute priority, if the policy uses one.
    pub worth: f64,
}

impl Placing {
    /// At the lowest level.
    pub const LOWEST: Self = Self { level: 0, worth: 0.0 };
}

/// A hit that moves an item to another place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Raise {
    /// The item's new rank.
    pub rank: Rank,
    /// The absolute priority, if the policy uses one.
    pub worth: f64,
}

/// The notifications that a policy needs. Constant for its lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Hits.
    pub hits: bool,
    /// Every insert, move and removal of an item, and a rank in each index record. Such a policy protects items: the store drops an item
    /// that the policy keeps only if the device fails.
    pub items: bool,
}

/// A region policy.
///
/// # Contract
/// * A region is [`written`](Self::written) once, then removed by [`victim`](Self::victim); only then may it be written again or
///   [`returned`](Self::returned).
/// * With [`Needs::items`]: each item [enters](Self::enter) before readers find it, and [leaves](Self::left) after that. The rank and units
///   passed when it leaves are those returned and passed before.
/// * `victim` returns `None` only when the policy holds no region.
pub trait RegionPolicy: Send {
    /// The notifications that the policy needs.
    fn needs(&self) -> Needs;

    /// Where a new item of `units` units is inserted.
    fn arrival(&mut self, units: u32) -> Placing {
        let _ = units;
        Placing::LOWEST
    }

    /// An item with placing `placing` was added to `region`, which is filled at `point`; returns its rank. The two levels differ if there
    /// are fewer points than levels, or if a point had no space.
    fn enter(&mut self, region: RegionId, point: InsertionPoint, placing: Placing, units: u32) -> Rank {
        let _ = (region, point, placing, units);
        Rank::NONE
    }

    /// An item was removed from the index.
    fn left(&mut self, item: &Resident) {
        let _ = item;
    }

    /// An item was read; its hit count includes this read. The policy may move the item, but never to a lower section.
    fn hit(&mut self, item: &Resident) -> Option<Raise>;

    /// The item's record was changed as [`hit`](Self::hit) requested; `item` is the state before the change.
    fn raised(&mut self, item: &Resident, raise: Raise) {
        let _ = (item, raise);
    }

    /// Called for each item of a region that is being reclaimed: the placing for its reinsertion, or `None` to evict it. `draw` is a
    /// number that differs between reclaims of the same item and is reproducible between runs.
    fn survives(&mut self, item: &Resident, hash: KeyHash, draw: u64) -> Option<Placing>;

    /// A region was filled and flushed.
    fn written(&mut self, region: RegionId, point: InsertionPoint);

    /// Chooses the next region to reclaim and removes it.
    fn victim(&mut self) -> Option<RegionId>;

    /// Returns a victim whose reclaim was dropped before its end.
    fn returned(&mut self, region: RegionId, point: InsertionPoint) {
        self.written(region, point);
    }

    /// Removes all regions, because their items are cleared.
    fn take_all_regions(&mut self) -> Vec<RegionId> {
        std::iter::from_fn(|| self.victim()).collect()
    }

    /// Regions held.
    fn len(&self) -> usize;

    /// Whether the policy holds no region.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All regions with their priority, next victim first; changes nothing.
    fn in_order(&mut self) -> Vec<(RegionId, u8)>;

    /// The state that a restart needs in addition to [`in_order`](Self::in_order).
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// The first step of a restart: restores the result of [`save`](Self::save). Returns whether saved ranks are still valid.
    fn recall(&mut self, saved: &[u8]) -> bool {
        let _ = saved;
        false
    }

    /// The last step of a restart, after all items have [entered](Self::reenter): restores the recovered regions, in the order of
    /// [`in_order`](Self::in_order).
    fn restore(&mut self, regions: &[(RegionId, u8)]);

    /// Adds an item after a restart, with its earlier rank if known; returns its rank.
    fn reenter(&mut self, item: &Resident) -> Rank {
        let _ = item;
        Rank::NONE
    }

    /// The policy's counters, for the statistics.
    fn policy_counts(&self) -> PolicyCounts {
        PolicyCounts::default()
    }
}

/// Counters of a policy's decisions besides the choice of victims.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PolicyCounts {
    /// Items given a higher place by a hit.
    pub raises: u64,
    /// Regions moved from the end of the queue to its head, because too many of their items are in use.
    pub deferrals: u64,
    /// Regions reclaimed early because few of their items had to be rewritten.
    pub cold_victims: u64,
    /// Regions reclaimed early because they were mostly dead.
    pub compactions: u64,
    /// Memory of the policy in bytes.
    pub memory_bytes: u64,
}

/// The policy of a store.
pub(super) fn build(config: &RegionConfig, layout: &Layout) -> Box<dyn RegionPolicy> {
    let regions = layout.region_count as usize;
    let by_order = |order| Box::new(ByOrder::new(order, config, regions));
    match &config.order {
        OrderConfig::Fifo => by_order(Box::new(ByEviction::fifo())),
        OrderConfig::Lru => by_order(Box::new(ByEviction::lru())),
        OrderConfig::SegmentedFifo { shares } => by_order(Box::new(SegmentedFifo::new(shares))),
        OrderConfig::SegmentedLru { segments } => by_order(Box::new(SegmentedLru::new(*segments, regions))),
        OrderConfig::Ripq(ripq) => Box::new(Ripq::new(ripq, layout)),
        OrderConfig::Own(own) => by_order((own.build)(regions)),
    }
}
