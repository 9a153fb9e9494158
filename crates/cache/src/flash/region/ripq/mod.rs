//! RIPQ, a restricted insertion priority queue: a priority queue of items that writes only whole regions.
//!
//! The queue is a sequence of blocks, divided into K sections. A *device block* is a region. A *virtual block* is a place for items whose
//! priority rose since they were written: their bytes stay in their region, and only their index records name the virtual block. At the
//! head of each section, one region is being filled (the insertion point) and one virtual block receives raised items. When a region
//! reaches the end of the queue, its items that name a virtual block are rewritten at the insertion point of that block's section; the
//! others are evicted. So an item is on flash once, and several raises cost one write.
//!
//! ```text
//!  head                                                                                     end
//!  | section K-1                       | section K-2            |  …  | section 0            |
//!  | [open] (virtual) [#] (v) [#] [#]  | [open] (virtual) [#] … |     | [open] (virtual) [#] | ─► reclaimed
//!      ▲ insert(x, 1)     ▲ increase     ▲ insert(x, (K-1)/K)         blocks move this way ─►
//! ```
//!
//! Source: Tang, Huang, Lloyd, Kumar, Li: "RIPQ: Advanced Photo Caching on Flash for Facebook", FAST '15 (abstract and
//! slides); Zhou, Tang, Huang, Lloyd: "The Evolution of Advanced Caching in the Facebook CDN", 2016 (the article), parts III
//! and IV.
//!
//! Deviations: a section stays equal to the others by handing its last block to the next section, not by splits and merges, so insertion
//! points keep their positions. With relative priorities, an upper section below its share is left as it is, as segmented LRU leaves a
//! segment that few items reach; the lowest section has the rest. With absolute priorities, blocks also move up, and the boundaries
//! between sections are the map from absolute to relative priorities: each block stores the mean priority of its items, which orders it
//! within its section. There, sections nearer to the end are smaller.

mod blocks;
mod caching;
mod config;
mod queue;
mod saved;
#[cfg(test)]
mod tests;

use super::layout::Layout;
use super::policy::{Needs, Placing, PolicyCounts, Raise, Rank, RegionPolicy, Resident};
use super::{InsertionPoint, RegionId};
use crate::KeyHash;

use blocks::Counted;
use queue::Queue;

pub use caching::{Caching, CachingPolicy, Object, OwnCaching, Priority, QueueState, UnknownCaching};
pub use config::{EarlyReclaim, RipqConfig};

/// Maximum number of hot regions moved to the head before a reclaim.
const MOST_DEFERRALS: u32 = 2;

/// Weight of the newest victim in the moving average of victims' priorities.
const FLOOR_COEFFICIENT: f64 = 0.05;

/// See the module.
pub struct Ripq {
    caching: Box<dyn CachingPolicy>,
    config: RipqConfig,
    queue: Queue,
    unit_bytes: f64,
    /// Units of a region.
    region_units: u32,
    /// The absolute priority of evicted items: a moving average of the means of regions. The mean of a single region is noisy, and an L
    /// that only rises would follow the highest of them.
    floor: f64,
    /// Moving average of the share of reclaimed regions that is written again.
    average: f64,
    /// The region that is reclaimed early because it is mostly dead, and the place of its live items.
    compacted: Option<(RegionId, Placing)>,
    policy_counts: PolicyCounts,
}

impl Ripq {
    /// An empty queue.
    ///
    /// # Panics
    /// If the configuration is invalid.
    #[must_use]
    pub fn new(config: &RipqConfig, layout: &Layout) -> Self {
        assert_eq!(config.fault(), None, "a configuration is checked before it is used");
        let region_units = layout.region_bytes / layout.unit_bytes;
        Self {
            caching: config.caching.build(config.sections),
            queue: Queue::new(
                config.sections,
                layout.region_count as usize,
                region_units,
                config.caching.is_absolute(),
            ),
            config: *config,
            unit_bytes: f64::from(layout.unit_bytes),
            region_units,
            floor: 0.0,
            average: 0.0,
            compacted: None,
            policy_counts: PolicyCounts::default(),
        }
    }

    fn object(&self, units: u32, hits: u8) -> Object {
        Object { bytes: f64::from(units) * self.unit_bytes, uses: f64::from(hits) + 1.0 }
    }

    /// The insertion point of a priority: the lowest one that is at least as high.
    fn placing(&self, priority: Priority) -> Placing {
        match priority {
            Priority::Relative(share) => Placing { level: self.level_of(share), worth: 0.0 },
            Priority::Absolute(worth) => Placing { level: self.queue.level_of_worth(worth), worth },
        }
    }

    fn level_of(&self, share: f64) -> u8 {
        let sections = f64::from(self.config.sections);
        // Rounding of thirds and the like must not select the next point.
        let point = (share * sections - 1e-9).ceil().clamp(1.0, sections);
        point as u8 - 1
    }

    /// The section that regions of an insertion point join.
    fn home(&self, point: InsertionPoint) -> u8 {
        if self.config.single_point { self.level_of(self.config.caching.single_point()) } else { point.0 }
    }

    /// Share of a region that would be written again.
    fn reinsertion_ratio(&self, region: RegionId) -> f64 {
        f64::from(self.queue.region(region).moved) / f64::from(self.region_units)
    }

    /// Removes and returns the region whose compaction frees the most space, if any frees enough. All its live items keep their places.
    fn compact(&mut self) -> Option<RegionId> {
        let least = self.config.compact_above? * f64::from(self.region_units);
        let (dead_units, region) = self.queue.deadest()?;
        if dead_units as f64 <= least {
            return None;
        }
        let block = self.queue.region(region);
        self.compacted = Some((region, Placing { level: block.section, worth: block.worth() }));
        self.queue.leave(region);
        self.policy_counts.compactions += 1;
        Some(region)
    }

    /// Moves a hot region to the section that its items were raised to, and then examines the next region. The article moves it to the
    /// head of the queue, but under segmented LRU that is above what most of its items earned: cold ones would stay there. Few regions in
    /// a row: otherwise the queue would advance so fast that no item is read again before it reaches the end. Not with absolute
    /// priorities: a region that moves as a whole loses the differences between its items.
    fn defer_hot(&mut self) {
        let Some(hot_above) = self.config.hot_above.filter(|_| !self.config.caching.is_absolute()) else {
            return;
        };
        for _ in 0..MOST_DEFERRALS {
            match self.queue.last_region() {
                Some(region) if self.reinsertion_ratio(region) > hot_above => self.queue.defer(region),
                _ => return,
            }
            self.policy_counts.deferrals += 1;
        }
    }

    /// A region near the end with few items to reinsert, if recent reclaims reinserted too much.
    fn cold(&self) -> Option<RegionId> {
        let early_reclaim =
            self.config.early_reclaim.filter(|early_reclaim| self.average > early_reclaim.above)?;
        let near = self.queue.len().div_ceil(usize::from(self.config.sections));
        self.queue
            .last_regions(near)
            .find(|&region| self.reinsertion_ratio(region) < early_reclaim.cold_below)
    }
}

impl RegionPolicy for Ripq {
    fn needs(&self) -> Needs {
        Needs { hits: true, items: true }
    }

    fn arrival(&mut self, units: u32) -> Placing {
        let state = QueueState { behind: 0.0, floor: self.floor };
        let priority = self.caching.insert(&self.object(units, 0), &state);
        self.placing(priority)
    }

    fn enter(&mut self, region: RegionId, point: InsertionPoint, placing: Placing, units: u32) -> Rank {
        let home = self.home(point);
        self.queue.begin(region, home);
        let rank = if placing.level > home { self.queue.active(placing.level) } else { Rank::NONE };
        self.queue.add(region, rank, Counted { units, worth: placing.worth });
        rank
    }

    fn left(&mut self, item: &Resident) {
        self.queue.take(item.region, item.rank, item.units);
    }

    fn hit(&mut self, item: &Resident) -> Option<Raise> {
        let section = self.queue.section_of(item.region, item.rank);
        let behind = f64::from(section) / f64::from(self.config.sections);
        let state = QueueState { behind, floor: self.floor };
        let priority = self.caching.hit(&self.object(item.units, item.hits), &state);
        let Placing { level, worth } = self.placing(priority);
        if level < section || (level == section && self.queue.is_at_head(item.region, item.rank)) {
            return None;
        }
        let rank = self.queue.active(level);
        (!rank.is_none()).then_some(Raise { rank, worth })
    }

    fn raised(&mut self, item: &Resident, raise: Raise) {
        self.policy_counts.raises += 1;
        self.queue.take(item.region, item.rank, item.units);
        self.queue.add(item.region, raise.rank, Counted { units: item.units, worth: raise.worth });
    }

    fn survives(&mut self, item: &Resident, _hash: KeyHash, _draw: u64) -> Option<Placing> {
        let raised =
            self.queue.virtual_place(item.region, item.rank).map(|(level, worth)| Placing { level, worth });
        let compacted = self.compacted.filter(|&(region, _)| region == item.region);
        raised.or(compacted.map(|(_, placing)| placing))
    }

    fn written(&mut self, region: RegionId, point: InsertionPoint) {
        let home = self.home(point);
        self.queue.join(region, home);
    }

    fn victim(&mut self) -> Option<RegionId> {
        self.compacted = None;
        if let Some(region) = self.compact() {
            return Some(region);
        }
        self.defer_hot();
        let cold = self.cold();
        let victim = cold.or_else(|| self.queue.last_region())?;
        if cold.is_some() && self.queue.last_region() != cold {
            self.policy_counts.cold_victims += 1;
        }
        let ratio = self.reinsertion_ratio(victim).min(1.0);
        let coefficient = self.config.early_reclaim.map_or(1.0, |early_reclaim| early_reclaim.coefficient);
        self.average = coefficient * ratio + (1.0 - coefficient) * self.average;
        self.floor += FLOOR_COEFFICIENT * (self.queue.region(victim).worth() - self.floor);
        self.queue.leave(victim);
        Some(victim)
    }

    /// These removals are not reclaims: they do not update the averages or counters.
    fn take_all_regions(&mut self) -> Vec<RegionId> {
        let next = || self.queue.last_region().inspect(|&region| self.queue.leave(region));
        std::iter::from_fn(next).collect()
    }

    /// Returns the region to the end of the queue.
    fn returned(&mut self, region: RegionId, _point: InsertionPoint) {
        self.queue.return_to_end(region);
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn in_order(&mut self) -> Vec<(RegionId, u8)> {
        self.queue.regions_in_order()
    }

    fn save(&self) -> Vec<u8> {
        saved::encode(&self.queue, self.floor, self.average)
    }

    fn recall(&mut self, saved: &[u8]) -> bool {
        let Some(saved) = saved::decode(saved, &self.queue) else { return false };
        self.floor = saved.floor;
        self.average = saved.average;
        self.queue.recall(saved.begun, &saved.sections);
        true
    }

    fn restore(&mut self, regions: &[(RegionId, u8)]) {
        self.queue.restore(regions);
    }

    fn reenter(&mut self, item: &Resident) -> Rank {
        self.queue.reenter(item.region, item.rank, item.units)
    }

    fn policy_counts(&self) -> PolicyCounts {
        PolicyCounts { memory_bytes: self.queue.memory_bytes() as u64, ..self.policy_counts }
    }
}
