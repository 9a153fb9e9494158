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
use super::order::{ByEviction, RegionOrder, SegmentedFifo, SegmentedLru};
use super::ripq::{Ripq, RipqConfig};
use super::{InsertionPoint, Layout, RegionId};
use crate::KeyHash;

pub use by_order::ByOrder;

/// What an item's index record says of its place, if that is another than its region's: the number of a virtual block.
/// 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rank(pub u16);

impl Rank {
    /// The item's place is its region's.
    pub const NONE: Self = Self(0);

    /// Whether the item's place is its region's.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

/// An item that is in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resident {
    /// The region that holds it.
    pub region: RegionId,
    /// Its own place, if it has one.
    pub rank: Rank,
    /// Reads since it was inserted, as far as the index counts them.
    pub hits: u8,
    /// Its size in units of the layout, as the index knows it: rounded up a little, the same each time.
    pub units: u32,
}

/// Where an item is to go in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Placing {
    /// Distance from the end of the queue: 0 is the lowest of the policy's levels.
    pub level: u8,
    /// The priority behind it, where the policy has one.
    pub worth: f64,
}

impl Placing {
    /// At the lowest level.
    pub const LOWEST: Self = Self { level: 0, worth: 0.0 };
}

/// A hit gives an item another place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Raise {
    /// What its record is to say.
    pub rank: Rank,
    /// The priority behind it.
    pub worth: f64,
}

/// What a policy has to hear. Constant for its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Hits.
    pub hits: bool,
    /// Every item that comes, moves or leaves; and room in each index record for its rank. Such a policy protects items:
    /// the store gives one up that the policy wants to keep only if the device fails.
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
    /// What the policy has to hear.
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

    /// An item was read (and that hit is counted). The policy may change its place, but never to a lower section.
    fn hit(&mut self, item: &Resident) -> Option<Raise>;

    /// The item's record was changed as [`hit`](Self::hit) requested; `item` is from before.
    fn raised(&mut self, item: &Resident, raise: Raise) {
        let _ = (item, raise);
    }

    /// The item's region is being reclaimed. `None` lets the item go. `draw` is a number that is another each time this
    /// item comes by, and the same in each run.
    fn survives(&mut self, item: &Resident, hash: KeyHash, draw: u64) -> Option<Placing>;

    /// A region was filled and flushed.
    fn written(&mut self, region: RegionId, point: InsertionPoint);

    /// Chooses the next region to reclaim and takes it out.
    fn victim(&mut self) -> Option<RegionId>;

    /// A victim whose reclaim was dropped half way is back.
    fn returned(&mut self, region: RegionId, point: InsertionPoint) {
        self.written(region, point);
    }

    /// Takes all regions out: nothing in them is wanted any more.
    fn give_all_up(&mut self) -> Vec<RegionId> {
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

    /// What beside [`in_order`](Self::in_order) a restart needs.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// The first step of a restart: takes up what [`save`](Self::save) gave. Says whether ranks of that time are known.
    fn recall(&mut self, saved: &[u8]) -> bool {
        let _ = saved;
        false
    }

    /// The last step of a restart, after the items have [entered](Self::reenter): the regions that were recovered, as
    /// [`in_order`](Self::in_order) listed them.
    fn restore(&mut self, regions: &[(RegionId, u8)]);

    /// Adds an item after a restart, with its earlier rank if known; returns its rank.
    fn reenter(&mut self, item: &Resident) -> Rank {
        let _ = item;
        Rank::NONE
    }

    /// What the policy did beyond choosing, for the statistics.
    fn deeds(&self) -> PolicyCounts {
        PolicyCounts::default()
    }
}

/// What a policy did beyond choosing victims.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PolicyCounts {
    /// Items given a higher place by a hit.
    pub raises: u64,
    /// Regions at the end of the queue that were moved to its head, too many of their items being in use.
    pub deferrals: u64,
    /// Regions reclaimed early because few of their items had to be rewritten.
    pub cold_victims: u64,
    /// Regions reclaimed early because they were mostly dead.
    pub compactions: u64,
    /// Memory of the policy, bytes.
    pub memory_bytes: u64,
}

/// A region policy by name.
#[derive(Debug, Clone, PartialEq)]
pub enum OrderConfig {
    /// The oldest region first. With reinsertion by hits it comes near LRU: McDipper.
    Fifo,
    /// The region that was not read for longest first.
    Lru,
    /// Segments of regions, each first in, first out; from a segment above its share the oldest region falls to the
    /// one below.
    SegmentedFifo {
        /// The segments' shares of all regions, lowest priority first; there are as many priorities.
        shares: Vec<u32>,
    },
    /// Segmented LRU over regions: a hit promotes the whole region. BlockCache.
    SegmentedLru {
        /// Segments of equal shares.
        segments: u8,
    },
    /// A priority queue of items, approximated by regions: RIPQ.
    Ripq(RipqConfig),
    /// An order of regions from outside.
    Own(OwnOrder),
}

/// An order of regions from outside of this crate. Two of one name are taken for the same.
#[derive(Debug, Clone, Copy)]
pub struct OwnOrder {
    /// Its name in results.
    pub name: &'static str,
    /// Builds the order for a number of regions.
    pub build: fn(regions: usize) -> Box<dyn RegionOrder>,
}

impl PartialEq for OwnOrder {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl OrderConfig {
    /// Regions that are filled side by side for items of different priorities.
    #[must_use]
    pub fn priorities(&self) -> usize {
        match self {
            Self::Fifo | Self::Lru | Self::SegmentedLru { .. } | Self::Own(_) => 1,
            Self::SegmentedFifo { shares } => shares.len(),
            Self::Ripq(config) => config.points(),
        }
    }

    /// Whether the policy itself decides which items survive a reclaim.
    #[must_use]
    pub fn protects_items(&self) -> bool {
        matches!(self, Self::Ripq(_))
    }

    /// The setting that is out of range, if any.
    pub(super) fn fault(&self) -> Option<String> {
        match self {
            Self::Fifo | Self::Lru | Self::Own(_) => None,
            Self::SegmentedFifo { shares } => (shares.is_empty() || shares.contains(&0))
                .then(|| "every segment needs a share of at least 1".to_owned()),
            Self::SegmentedLru { segments } => {
                (*segments == 0).then(|| "a segmented LRU needs at least one segment".to_owned())
            }
            Self::Ripq(config) => config.fault(),
        }
    }
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
