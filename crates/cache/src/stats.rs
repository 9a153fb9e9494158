//! Statistics of a cache, nested like its components.

use device::counters;
pub use device::counters::CounterTable;

pub use crate::dram::{ClassStats, MemoryStats, PoolStats};
pub use crate::flash::puts::PutStats;
pub use crate::flash::region::RegionStats;
use crate::flash::region::{RegionStore, WriteHealth};
pub use crate::flash::soc::SocStats;

counters! {
    /// All counters since the cache was opened.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct Stats {
        /// The DRAM tier, pool by pool.
        pools: part Vec<PoolStats>,
        /// Memory of the DRAM tier.
        dram_memory: part MemoryStats,
        /// Gets by result.
        gets: part GetStats,
        /// Inserts by result.
        inserts: part InsertStats,
        /// Additions of chained items by result.
        chained: part ChainStats,
        /// Background work of the DRAM tier.
        upkeep: part UpkeepStats,
        /// The flash tier; `None` without one.
        flash: part Option<FlashStats>,
    }
}

impl Stats {
    /// The sum of all pools.
    #[must_use]
    pub fn dram_total(&self) -> ClassStats {
        self.pools.iter().fold(ClassStats::default(), |sum, pool| sum.plus(&pool.total()))
    }
}

counters! {
    /// Gets by result. Each get counts as exactly one of the first three.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct GetStats {
        /// Found in DRAM.
        hits_dram: sum u64,
        /// Found on flash.
        hits_flash: sum u64,
        /// Misses.
        misses: sum u64,
        /// Times that a get waited for another get's flash read of the same key.
        coalesced: sum u64,
        /// Flash hits that were copied to DRAM.
        promotions: sum u64 [listed_as "promotions"],
    }
}

impl GetStats {
    /// Completed gets.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.hits_dram + self.hits_flash + self.misses
    }

    /// Hits over gets; `None` before the first.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        ratio(self.hits_dram + self.hits_flash, self.total())
    }

    /// DRAM hits over gets; `None` before the first.
    #[must_use]
    pub fn hit_ratio_dram(&self) -> Option<f64> {
        ratio(self.hits_dram, self.total())
    }

    /// Flash hits over gets that missed DRAM; `None` if there were none.
    #[must_use]
    pub fn hit_ratio_flash(&self) -> Option<f64> {
        ratio(self.hits_flash, self.hits_flash + self.misses)
    }
}

counters! {
    /// Inserts by result. Each insert increments exactly one counter.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct InsertStats, atomics pub(crate) InsertCounters {
        /// Made visible.
        stored: sum u64,
        /// Dropped because the fetch was invalidated: the key was inserted or removed, or the cache cleared, during the fetch.
        overtaken: sum u64,
        /// Skipped: DRAM held an item under the key, and the insert was conditional on its absence.
        present: sum u64,
        /// Refused: larger than the largest size class.
        rejected_too_large: sum u64,
        /// Refused: the key is too long.
        rejected_key_length: sum u64,
        /// Refused: all items that could be evicted are in use.
        rejected_all_pinned: sum u64,
        /// Refused: the pool does not exist.
        rejected_no_such_pool: sum u64,
        /// Refused: flash writes are behind, and the caller did not wait any longer.
        rejected_flash_behind: sum u64,
        /// Refused: the cache is closed.
        rejected_closed: sum u64,
    }
}

impl InsertStats {
    /// Each result with its name in reports, `stored` first.
    #[must_use]
    pub fn ends(&self) -> [(&'static str, u64); 9] {
        [
            ("stored", self.stored),
            ("present", self.present),
            ("dropped_overtaken", self.overtaken),
            ("rejected_too_large", self.rejected_too_large),
            ("rejected_key_length", self.rejected_key_length),
            ("rejected_all_pinned", self.rejected_all_pinned),
            ("rejected_no_such_pool", self.rejected_no_such_pool),
            ("rejected_flash_behind", self.rejected_flash_behind),
            ("rejected_closed", self.rejected_closed),
        ]
    }

    /// Completed inserts.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ends().iter().map(|(_, count)| count).sum()
    }

    /// Refused inserts.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.rejected_too_large
            + self.rejected_key_length
            + self.rejected_all_pinned
            + self.rejected_no_such_pool
            + self.rejected_flash_behind
            + self.rejected_closed
    }
}

counters! {
    /// Additions of chained items by result. Each increments exactly one counter.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct ChainStats, atomics pub(crate) ChainCounters {
        /// Chained.
        stored: sum u64,
        /// Refused: the item to chain to is absent, or was removed in the meantime.
        rejected_no_parent: sum u64,
        /// Refused: larger than the largest size class.
        rejected_too_large: sum u64,
        /// Refused: all items that could be evicted are in use, or chained to an item in use.
        rejected_all_pinned: sum u64,
    }
}

impl ChainStats {
    /// Each result with its name in reports, `stored` first.
    #[must_use]
    pub fn ends(&self) -> [(&'static str, u64); 4] {
        [
            ("stored", self.stored),
            ("rejected_no_parent", self.rejected_no_parent),
            ("rejected_too_large", self.rejected_too_large),
            ("rejected_all_pinned", self.rejected_all_pinned),
        ]
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

counters! {
    /// The flash tier's counters.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct FlashStats {
        /// Items that DRAM evicted, by result.
        puts: part PutStats,
        /// The small-object engines, summed; `None` without one.
        soc: part Option<SocStats>,
        /// The region stores, summed; `None` without one.
        regions: part Option<RegionStats>,
        /// Space of the small-object engines; a bucket counts as used if it is not empty.
        soc_room: part FlashSpace,
        /// Space of the region stores; a region counts as used if it is neither clean nor retired.
        regions_room: part FlashSpace,
        /// Key and value bytes of accepted items that were written: without those that wait in memory, and those dropped before
        /// they were written. Write amplification refers to these.
        written_logical_bytes: sum u64,
        /// Counters of the device.
        device: part device::Counters,
        /// Largest item, key and value, that all pairs accept.
        max_item_bytes: other u64 [|mine, theirs| *mine.min(theirs)],
        /// Whether the contents of an earlier cache were recovered.
        recovered: other bool [|mine, theirs| *mine && *theirs],
        /// Why the contents of an earlier cache were not recovered, if there were any; the reason of the first such pair.
        loss: other Option<&'static str> [|mine, theirs| mine.or(*theirs)],
        /// Whether the region stores can write.
        health: part FlashHealth,
    }
}

counters! {
    /// Whether flash accepts writes.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct FlashHealth {
        /// Writes fail, so further ones pause for up to 5 seconds each. Items that DRAM evicts in the meantime are dropped once the buffers
        /// are full.
        is_failing: other bool [|mine, theirs| *mine || *theirs],
        /// Regions in memory whose last write failed.
        regions_to_retry: state u64,
        /// Regions out of service, because they failed repeatedly while others could be written. Each is tested by a write after 10
        /// seconds, then at growing intervals of up to an hour, and soon after every start.
        retired_regions: state u64,
        /// Bytes of the retired regions.
        retired_bytes: state u64,
        /// The last failed write since the cache was opened.
        last_error: other Option<String> [|mine, theirs| theirs.clone().or_else(|| mine.clone())],
    }
}

impl FlashHealth {
    /// Whether all regions are in service and no write is to be repeated.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        !self.is_failing && self.regions_to_retry == 0 && self.retired_regions == 0
    }

    pub(crate) fn add_buckets(&mut self, is_failing: bool, last_error: Option<String>) {
        self.is_failing |= is_failing;
        self.last_error = last_error.or(self.last_error.take());
    }

    pub(crate) fn add(&mut self, regions: &RegionStore) {
        let WriteHealth { is_failing, regions_to_retry, last_error } = regions.write_health();
        let retired_regions = regions.retired_regions() as u64;
        self.is_failing |= is_failing;
        self.regions_to_retry += regions_to_retry as u64;
        self.retired_regions += retired_regions;
        self.retired_bytes += retired_regions * u64::from(regions.layout().region_bytes);
        self.last_error = last_error.or(self.last_error.take());
    }
}

counters! {
    /// The space of a part of flash.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct FlashSpace {
        /// Its size.
        bytes: state u64,
        /// The part in use.
        used_bytes: state u64,
    }
}

counters! {
    /// One pair of engines: those of a [partition](crate::Builder::flash_partition), or of the keys without one.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct PairStats {
        /// Size of its part of flash, without metadata.
        bytes: state u64,
        /// The part in use: buckets or pages that are not empty, and regions that are neither clean nor retired.
        used_bytes: state u64,
        /// Items that can be read, at most.
        items: state u64,
        /// Key and value bytes of the accepted items.
        inserted_bytes: sum u64,
        /// Bytes written.
        written_bytes: sum u64,
        /// Live items evicted.
        evictions: sum u64,
    }
}

impl PairStats {
    pub(crate) fn add_engine(&mut self, (bytes, used_bytes): (u64, u64), items: u64, evictions: u64) {
        self.bytes += bytes;
        self.used_bytes += used_bytes;
        self.items += items;
        self.evictions += evictions;
    }
}

impl FlashSpace {
    pub(crate) fn add(&mut self, (bytes, used_bytes): (u64, u64)) {
        self.bytes += bytes;
        self.used_bytes += used_bytes;
    }
}

impl FlashStats {
    /// Items that were stored and then lost to failed writes or damage, as far as their number is known.
    #[must_use]
    pub fn lost_items(&self) -> u64 {
        let soc = self.soc.as_ref().map_or(0, |soc| soc.lost_items);
        soc + self.regions.as_ref().map_or(0, |regions| regions.items_lost)
    }

    /// Items in [`PutStats::stored`] whose write failed, so that they never reached flash.
    #[must_use]
    pub fn unwritten_items(&self) -> u64 {
        let soc = self.soc.as_ref().map_or(0, |soc| soc.unwritten_items);
        soc + self.regions.as_ref().map_or(0, |regions| regions.unwritten_items)
    }

    /// Each result of an offer to flash with its name in reports, `stored` first. Each offer has exactly one.
    #[must_use]
    pub fn put_ends(&self) -> [(&'static str, u64); 10] {
        self.puts.ends(self.unwritten_items())
    }

    /// The part of [`PutStats::logical_bytes`] that waits in memory to be written.
    #[must_use]
    pub fn waiting_bytes(&self) -> u64 {
        let soc = self.soc.as_ref().map_or(0, SocStats::waiting_bytes);
        soc + self.regions.as_ref().map_or(0, |regions| regions.waiting_bytes)
    }

    /// The part of [`PutStats::logical_bytes`] that will not be written: the items were replaced, removed or cleared while they waited, or
    /// their write failed.
    #[must_use]
    pub fn unwritten_bytes(&self) -> u64 {
        let soc = self.soc.as_ref().map_or(0, |soc| soc.unwritten_bytes + soc.replaced_bytes);
        soc + self.regions.as_ref().map_or(0, |regions| regions.unwritten_bytes)
    }

    /// Completed writes of buckets and regions: key and value bytes, and bytes written. Both are updated together, so the ratio of their
    /// growth over any interval is a write amplification. [`PutStats::logical_bytes`] and the device's counters are updated at other
    /// times.
    #[must_use]
    pub fn settled_bytes(&self) -> (u64, u64) {
        let soc = self.soc.as_ref().map_or((0, 0), |soc| (soc.settled_bytes, soc.physical_written_bytes));
        let regions = self.regions.as_ref().map_or((0, 0), |regions| {
            (regions.settled_bytes.saturating_sub(regions.unwritten_bytes), regions.settled_written_bytes)
        });
        (soc.0 + regions.0, soc.1 + regions.1)
    }

    /// Application-level write amplification: bytes written to the device over [`written_logical_bytes`](Self::written_logical_bytes);
    /// `None` before the first write.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        ratio(self.device.written_bytes, self.written_logical_bytes)
    }

    /// Key and value bytes that flash accepted, without those dropped before they were written. Over an interval, the bytes that waited
    /// at its beginning are included.
    #[must_use]
    pub fn logical_bytes(&self) -> u64 {
        self.written_logical_bytes + self.waiting_bytes()
    }

    /// The part of [`PutStats::logical_bytes`] that was written or still waits. Its growth over an interval is the bytes accepted in it;
    /// it decreases by items that are replaced or removed before they are written.
    #[must_use]
    pub fn accepted_bytes(&self) -> u64 {
        self.puts.logical_bytes.saturating_sub(self.unwritten_bytes())
    }

    /// Replaces the counters of errors and of lost items by those of `whole`.
    pub fn copy_errors_of(&mut self, whole: &Self) {
        self.device.errors = whole.device.errors;
        if let (Some(mine), Some(all)) = (&mut self.soc, &whole.soc) {
            (mine.lost_items, mine.checksum_errors) = (all.lost_items, all.checksum_errors);
        }
        if let (Some(mine), Some(all)) = (&mut self.regions, &whole.regions) {
            mine.items_lost = all.items_lost;
            mine.header_checksum_errors = all.header_checksum_errors;
            mine.value_checksum_errors = all.value_checksum_errors;
            mine.table_checksum_errors = all.table_checksum_errors;
        }
    }

    /// Items on flash, including small items that wait in memory to be written.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.soc.map_or(0, |soc| soc.stored_items) + self.regions.map_or(0, |regions| regions.items)
    }

    /// Evicted items.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.soc.map_or(0, |soc| soc.evictions) + self.regions.map_or(0, |regions| regions.evictions)
    }

    /// Removals that found an item on flash.
    #[must_use]
    pub fn removes(&self) -> u64 {
        self.soc.map_or(0, |soc| soc.removes) + self.regions.map_or(0, |regions| regions.forgotten)
    }

    /// Buckets, regions and items whose checksum did not match.
    #[must_use]
    pub fn checksum_errors(&self) -> u64 {
        let of_regions = |regions: RegionStats| {
            regions.header_checksum_errors + regions.value_checksum_errors + regions.table_checksum_errors
        };
        self.soc.map_or(0, |soc| soc.checksum_errors) + self.regions.map_or(0, of_regions)
    }

    pub(crate) fn set_written_logical_bytes(&mut self) {
        let beside = self.waiting_bytes() + self.unwritten_bytes();
        self.written_logical_bytes = self.puts.logical_bytes.saturating_sub(beside);
    }
}

counters! {
    /// Background work of the DRAM tier.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct UpkeepStats, atomics pub(crate) UpkeepCounters {
        /// Expired items removed by the reaper.
        reaped: sum u64 [listed_as "reaped"],
        /// Slabs moved from one class to another.
        slabs_released: sum u64,
        /// Items moved to another slab of their class because theirs was released.
        moves: sum u64,
        /// Failed moves.
        moves_failed: sum u64,
        /// Items evicted for the release of a slab: items in it, or colder ones into whose chunks its items moved.
        release_evictions: sum u64,
        /// Failed evictions.
        release_evictions_failed: sum u64,
    }
}
