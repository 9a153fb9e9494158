//! A pair of engines.

use super::SmallEngine;
use super::pair_store::PairStore;
use super::region::RegionStore;
use crate::stats::PairStats;

/// The two engines of one part of the key space; at least one exists.
pub(crate) struct Pair {
    pub(crate) soc: Option<SmallEngine>,
    pub(crate) regions: Option<RegionStore>,
    pub(crate) store: PairStore,
}

impl Pair {
    /// Largest size of key and value that one of the engines accepts.
    pub(super) fn max_item_bytes(&self) -> usize {
        let soc = self.soc.as_ref().map_or(0, SmallEngine::max_item_bytes);
        soc.max(self.regions.as_ref().map_or(0, RegionStore::max_item_bytes))
    }

    pub(super) fn stats(&self) -> PairStats {
        let mut stats = PairStats::default();
        if let Some(soc) = &self.soc {
            let (room, counts) = (soc.room_bytes(), soc.stats());
            stats.add_engine(room, counts.stored_items, counts.evictions);
            stats.inserted_bytes += counts.logical_written_bytes;
            stats.written_bytes += counts.physical_written_bytes;
        }
        if let Some(regions) = &self.regions {
            let (room, counts) = (regions.room_bytes(), regions.stats());
            stats.add_engine(room, counts.items, counts.evictions);
            stats.inserted_bytes += counts.inserted_bytes;
            stats.written_bytes += counts.written_bytes;
        }
        stats
    }
}
