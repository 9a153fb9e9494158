//! Background work and its intervals.

use crate::dram::Rebalance;

/// What is done in the background, and how often.
#[derive(Debug, Clone, PartialEq)]
pub struct UpkeepConfig {
    /// Milliseconds between steps of the reaper that removes expired items; 0 is never.
    pub reap_interval_ms: u64,
    /// Items a step of the reaper looks at.
    pub reap_items: u64,
    /// Milliseconds between steps that move slabs from one size class to another; 0 is never.
    pub rebalance_interval_ms: u64,
    /// Which slab moves where.
    pub rebalance: RebalanceBy,
    /// Slabs that a class keeps, but for an item that would find none in its class: it may take another's last. With one, classes
    /// that nobody uses any more keep as many as there are classes.
    pub rebalance_min_slabs: u32,
    /// Difference below which nothing moves, as a share.
    pub rebalance_min_difference_ratio: f64,
    /// Whether the coldest items of a class that gives a slab leave, and the others of the slab move into their chunks; else all of
    /// the slab leave.
    pub move_on_release: bool,
}

/// Which slab moves where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebalanceBy {
    /// From the class that takes longest to give each of its chunks to a new item to the one that does so soonest.
    TailAge,
    /// From the class with the fewest hits a slab to the one with the most.
    Hits,
    /// From any to any.
    Random,
}

impl Default for UpkeepConfig {
    fn default() -> Self {
        Self {
            reap_interval_ms: 5_000,
            reap_items: 100_000,
            rebalance_interval_ms: 1_000,
            rebalance: RebalanceBy::TailAge,
            rebalance_min_slabs: 0,
            rebalance_min_difference_ratio: 0.25,
            move_on_release: false,
        }
    }
}

impl UpkeepConfig {
    /// The rule for one step; `drawn` is a random number.
    pub(crate) fn rule(&self, drawn: u64) -> Rebalance {
        use crate::dram::Strategy;
        let min_difference_ratio = self.rebalance_min_difference_ratio;
        let strategy = match self.rebalance {
            RebalanceBy::TailAge => Strategy::TailAge { min_difference_ratio },
            RebalanceBy::Hits => Strategy::Hits { min_difference_ratio, min_difference: 1 },
            RebalanceBy::Random => Strategy::Random { drawn },
        };
        Rebalance { strategy, min_slabs: self.rebalance_min_slabs, move_on_release: self.move_on_release }
    }
}
