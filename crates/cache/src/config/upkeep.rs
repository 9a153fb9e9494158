//! Background work and its intervals.

use crate::dram::Rebalance;

/// Configuration of background work.
#[derive(Debug, Clone, PartialEq)]
pub struct UpkeepConfig {
    /// Milliseconds between steps of the reaper, which removes expired items; 0 disables it.
    pub reap_interval_ms: u64,
    /// Items visited per step of the reaper.
    pub reap_items: u64,
    /// Milliseconds between steps of the rebalancer, which moves slabs between size classes; 0 disables it.
    pub rebalance_interval_ms: u64,
    /// How donor and receiver of a slab are selected.
    pub rebalance: RebalanceBy,
    /// Slabs that a class keeps when it is rebalanced; an insert into a class without a slab may still take the last one of another
    /// class. With 1, every class that was ever used keeps a slab.
    pub rebalance_min_slabs: u32,
    /// Smallest relative difference between donor and receiver for which a slab moves.
    pub rebalance_min_difference_ratio: f64,
    /// Whether a released slab's items are moved into chunks freed by evicting the coldest items of the class; otherwise all items of the
    /// slab are evicted.
    pub move_on_release: bool,
}

/// How donor and receiver of a slab are selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebalanceBy {
    /// From the class that takes longest to reassign each of its chunks to the one that takes shortest.
    TailAge,
    /// From the class with the fewest hits per slab to the one with the most.
    Hits,
    /// Donor and receiver are drawn at random.
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
