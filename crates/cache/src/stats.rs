//! Statistics of a cache, nested like its components.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::dram::{MemoryStats, PoolStats};
use crate::error::Refusal;
use crate::flash::region::{RegionStats, RegionStore, Troubles};
use crate::flash::soc::SocStats;
use crate::flash::tier::{FlashTier, PutStats};
use crate::hybrid::Engine;
use crate::thread_counters::ThreadCounters;

/// All counters since the cache was opened.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// Gets by result.
    pub gets: GetStats,
    /// Inserts by result.
    pub inserts: InsertStats,
    /// Additions of chained items by result.
    pub chained: ChainStats,
    /// The DRAM tier, pool by pool.
    pub pools: Vec<PoolStats>,
    /// Memory of the DRAM tier.
    pub dram_memory: MemoryStats,
    /// The flash tier; `None` without one.
    pub flash: Option<FlashStats>,
    /// Background work of the DRAM tier.
    pub upkeep: UpkeepStats,
}

/// Gets by result. Each get counts as exactly one of the first three.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GetStats {
    /// Found in DRAM.
    pub hits_dram: u64,
    /// Found on flash.
    pub hits_flash: u64,
    /// Misses.
    pub misses: u64,
    /// Times that a get waited for another get's flash read of the same key.
    pub coalesced: u64,
    /// Flash hits that were copied to DRAM.
    pub promotions: u64,
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

/// Inserts by result. Each insert increments exactly one counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InsertStats {
    /// Made visible.
    pub stored: u64,
    /// Dropped because the fetch was invalidated: the key was inserted or removed, or the cache cleared, during the fetch.
    pub overtaken: u64,
    /// Skipped: DRAM held an item under the key, and the insert was conditional on its absence.
    pub present: u64,
    /// Refused: larger than the largest size class.
    /// Refused: larger than the largest allocation class.
    pub rejected_too_large: u64,
    /// Refused: the key is too long.
    pub rejected_key_length: u64,
    /// Refused: all items that could be evicted are in use.
    pub rejected_all_pinned: u64,
    /// Refused: the pool does not exist.
    pub rejected_no_such_pool: u64,
    /// Refused: flash writes are behind, and the caller did not wait any longer.
    pub rejected_flash_behind: u64,
    /// Refused: the cache is closed.
    pub rejected_closed: u64,
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

/// Additions of chained items by result. Each increments exactly one counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChainStats {
    /// Chained.
    pub stored: u64,
    /// Refused: the item to chain to is absent, or was removed in the meantime.
    pub rejected_no_parent: u64,
    /// Refused: larger than the largest size class.
    pub rejected_too_large: u64,
    /// Refused: all items that could be evicted are in use, or chained to an item in use.
    pub rejected_all_pinned: u64,
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

/// The flash tier's counters.
#[derive(Debug, Clone, Default)]
pub struct FlashStats {
    /// Items that DRAM evicted, by result.
    pub puts: PutStats,
    /// The small-object engines, summed; `None` without one.
    pub soc: Option<SocStats>,
    /// The region stores, summed; `None` without one.
    pub regions: Option<RegionStats>,
    /// Space of the small-object engines; a bucket counts as used if it is not empty.
    pub soc_room: Room,
    /// Space of the region stores; a region counts as used if it is neither clean nor retired.
    pub regions_room: Room,
    /// Items in the region stores.
    pub items_in_regions: u64,
    /// Counters of the device.
    pub device: device::Counters,
    /// Largest item, key and value, that all pairs accept.
    pub max_item_bytes: u64,
    /// Whether the contents of an earlier cache were recovered.
    pub recovered: bool,
    /// Why the contents of an earlier cache were not recovered, if there were any; the reason of the first such pair.
    pub loss: Option<&'static str>,
    /// Whether the region stores can write.
    pub health: FlashHealth,
}

/// Whether flash accepts writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlashHealth {
    /// Writes fail, so further ones pause for up to 5 seconds each. Items that DRAM evicts in the meantime are dropped once the buffers
    /// are full.
    pub is_failing: bool,
    /// Regions in memory whose last write failed.
    pub regions_to_retry: u64,
    /// Regions out of service, because they failed repeatedly while others could be written. Each is tested by a write after 10 seconds,
    /// then at growing intervals of up to an hour, and soon after every start.
    pub retired_regions: u64,
    /// Bytes of the retired regions.
    pub retired_bytes: u64,
    /// The last failed write since the cache was opened.
    pub last_error: Option<String>,
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
        let Troubles { is_failing, regions_to_retry, last_error } = regions.troubles();
        let retired_regions = regions.retired_regions() as u64;
        self.is_failing |= is_failing;
        self.regions_to_retry += regions_to_retry as u64;
        self.retired_regions += retired_regions;
        self.retired_bytes += retired_regions * u64::from(regions.layout().region_bytes);
        self.last_error = last_error.or(self.last_error.take());
    }
}

/// The space of a part of flash.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// Its size.
    pub bytes: u64,
    /// The part in use.
    pub used_bytes: u64,
}

impl Room {
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
        soc + self.regions.as_ref().map_or(0, RegionStats::waiting_bytes)
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

    /// Application-level write amplification: bytes written to the device over the bytes of accepted items that neither wait nor were
    /// [dropped](Self::unwritten_bytes); `None` before the first write.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        let beside = self.waiting_bytes() + self.unwritten_bytes();
        ratio(self.device.written_bytes, self.puts.logical_bytes.saturating_sub(beside))
    }
}

/// Background work of the DRAM tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UpkeepStats {
    /// Expired items removed by the reaper.
    pub reaped: u64,
    /// Slabs moved from one class to another.
    pub slabs_released: u64,
    /// Items moved to another slab of their class because theirs was released.
    pub moves: u64,
    /// Failed moves.
    pub moves_failed: u64,
    /// Items evicted for the release of a slab: items in it, or colder ones into whose chunks its items moved.
    pub release_evictions: u64,
    /// Failed evictions.
    pub release_evictions_failed: u64,
}

/// Counters of gets and inserts.
pub(crate) struct Counters {
    usual: ThreadCounters,
    unusual: Unusual,
}

/// Frequent results of gets and inserts, which each thread counts separately.
#[derive(Debug, Clone, Copy)]
enum Usual {
    HitDram,
    HitFlash,
    Miss,
    Coalesced,
    Promotion,
    Stored,
    Chained,
}

const USUAL: usize = Usual::Chained as usize + 1;

/// Inserts and additions of chained items with other results.
#[derive(Default)]
struct Unusual {
    overtaken: AtomicU64,
    present: AtomicU64,
    too_large: AtomicU64,
    key_length: AtomicU64,
    all_pinned: AtomicU64,
    no_such_pool: AtomicU64,
    flash_behind: AtomicU64,
    closed: AtomicU64,
    unchained_no_parent: AtomicU64,
    unchained_too_large: AtomicU64,
    unchained_all_pinned: AtomicU64,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self { usual: ThreadCounters::new(USUAL), unusual: Unusual::default() }
    }

    pub(crate) fn stored(&self) {
        self.usual.count(Usual::Stored as usize);
    }

    pub(crate) fn overtaken(&self) {
        self.unusual.overtaken.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn present(&self) {
        self.unusual.present.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn rejected(&self, why: Refusal) {
        let counter = match why {
            Refusal::TooLarge { .. } => &self.unusual.too_large,
            Refusal::KeyLength(_) => &self.unusual.key_length,
            Refusal::AllPinned => &self.unusual.all_pinned,
            Refusal::NoSuchPool(_) => &self.unusual.no_such_pool,
            Refusal::FlashBehind => &self.unusual.flash_behind,
            Refusal::Closed => &self.unusual.closed,
            Refusal::NoParent => unreachable!("an insert needs no parent"),
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn inserts(&self) -> InsertStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let unusual = &self.unusual;
        InsertStats {
            stored: self.sum(Usual::Stored),
            overtaken: read(&unusual.overtaken),
            present: read(&unusual.present),
            rejected_too_large: read(&unusual.too_large),
            rejected_key_length: read(&unusual.key_length),
            rejected_all_pinned: read(&unusual.all_pinned),
            rejected_no_such_pool: read(&unusual.no_such_pool),
            rejected_flash_behind: read(&unusual.flash_behind),
            rejected_closed: read(&unusual.closed),
        }
    }

    pub(crate) fn chained(&self, ended: Result<(), Refusal>) {
        let counter = match ended {
            Ok(()) => return self.usual.count(Usual::Chained as usize),
            Err(Refusal::TooLarge { .. }) => &self.unusual.unchained_too_large,
            Err(Refusal::AllPinned) => &self.unusual.unchained_all_pinned,
            // The other reasons cannot occur for a chained item, because no parent has such a key or pool.
            Err(
                Refusal::NoParent
                | Refusal::KeyLength(_)
                | Refusal::NoSuchPool(_)
                | Refusal::FlashBehind
                | Refusal::Closed,
            ) => &self.unusual.unchained_no_parent,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn chains(&self) -> ChainStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ChainStats {
            stored: self.sum(Usual::Chained),
            rejected_no_parent: read(&self.unusual.unchained_no_parent),
            rejected_too_large: read(&self.unusual.unchained_too_large),
            rejected_all_pinned: read(&self.unusual.unchained_all_pinned),
        }
    }

    pub(crate) fn hit_dram(&self) {
        self.usual.count(Usual::HitDram as usize);
    }

    pub(crate) fn hit_flash(&self) {
        self.usual.count(Usual::HitFlash as usize);
    }

    pub(crate) fn miss(&self) {
        self.usual.count(Usual::Miss as usize);
    }

    pub(crate) fn coalesced(&self) {
        self.usual.count(Usual::Coalesced as usize);
    }

    pub(crate) fn promoted(&self) {
        self.usual.count(Usual::Promotion as usize);
    }

    pub(crate) fn snapshot(&self) -> GetStats {
        GetStats {
            hits_dram: self.sum(Usual::HitDram),
            hits_flash: self.sum(Usual::HitFlash),
            misses: self.sum(Usual::Miss),
            coalesced: self.sum(Usual::Coalesced),
            promotions: self.sum(Usual::Promotion),
        }
    }

    fn sum(&self, end: Usual) -> u64 {
        self.usual.sum(end as usize)
    }
}

impl Engine {
    /// Hits of the first DRAM lookup are counted by DRAM, those of the second, under the key's lock, by the engine. A get counts once.
    fn gets(&self) -> GetStats {
        let mut gets = self.counters.snapshot();
        gets.hits_dram += self.dram.hits();
        gets
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            gets: self.gets(),
            inserts: self.counters.inserts(),
            chained: self.counters.chains(),
            pools: self.dram.stats(),
            dram_memory: self.dram.memory(),
            flash: self.flash.as_ref().map(FlashTier::stats),
            upkeep: self.upkeep.stats(),
        }
    }
}
