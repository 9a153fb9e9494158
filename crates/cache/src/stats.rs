//! What the cache counted, nested like the rooms it comes from.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::dram::{MemoryStats, PoolStats};
use crate::error::Refusal;
use crate::flash::region::{RegionStats, RegionStore, Troubles};
use crate::flash::soc::SocStats;
use crate::flash::tier::{FlashTier, PutStats};
use crate::hybrid::Engine;
use crate::thread_counters::ThreadCounters;

/// A snapshot of everything counted since the cache was opened.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// How gets ended.
    pub gets: GetStats,
    /// How inserts ended.
    pub inserts: InsertStats,
    /// How chaining pieces to items ended.
    pub chained: ChainStats,
    /// The DRAM tier, pool by pool.
    pub pools: Vec<PoolStats>,
    /// Where the DRAM tier's memory is.
    pub dram_memory: MemoryStats,
    /// The flash tier; `None` without one.
    pub flash: Option<FlashStats>,
    /// Background work done for the DRAM tier.
    pub upkeep: UpkeepStats,
}

/// How gets ended: each as exactly one of the first three.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GetStats {
    /// Found in DRAM.
    pub hits_dram: u64,
    /// Found on flash.
    pub hits_flash: u64,
    /// Found nowhere.
    pub misses: u64,
    /// Times a get waited for another's flash read of the same key.
    pub coalesced: u64,
    /// Flash hits that were taken back into DRAM.
    pub promotions: u64,
}

impl GetStats {
    /// Gets that ended.
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

    /// Flash hits over the gets that DRAM did not answer; `None` before the first.
    #[must_use]
    pub fn hit_ratio_flash(&self) -> Option<f64> {
        ratio(self.hits_flash, self.hits_flash + self.misses)
    }
}

/// How inserts ended: each as exactly one of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InsertStats {
    /// Made visible.
    pub stored: u64,
    /// Dropped because a load was overtaken: the key was inserted or removed, or the cache cleared, while its value was
    /// fetched.
    pub overtaken: u64,
    /// Not needed: DRAM held an item under the key, and the insert was to be made only if not.
    pub present: u64,
    /// Refused: larger than the largest allocation class.
    pub rejected_too_large: u64,
    /// Refused: the key is too long.
    pub rejected_key_length: u64,
    /// Refused: everything that could make room is in use.
    pub rejected_all_pinned: u64,
    /// Refused: there is no such pool.
    pub rejected_no_such_pool: u64,
    /// Refused: flash is behind with its writes, and the caller did not wait any longer.
    pub rejected_flash_behind: u64,
    /// Refused: the cache is closed.
    pub rejected_closed: u64,
}

impl InsertStats {
    /// Each end by its name in reports, `stored` first.
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

    /// Inserts that ended.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ends().iter().map(|(_, count)| count).sum()
    }

    /// Inserts that were refused, for whatever reason.
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

/// How chaining a piece to an item ended: each as exactly one of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChainStats {
    /// Chained.
    pub stored: u64,
    /// Refused: there is no item to chain to, or none any more.
    pub rejected_no_parent: u64,
    /// Refused: larger than the largest allocation class.
    pub rejected_too_large: u64,
    /// Refused: everything that could make room is in use, or chained to what is.
    pub rejected_all_pinned: u64,
}

impl ChainStats {
    /// Each end by its name in reports, `stored` first.
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
    /// What became of DRAM's victims.
    pub puts: PutStats,
    /// The small-object engines, added up; `None` without one.
    pub soc: Option<SocStats>,
    /// The region stores, added up; `None` without one.
    pub regions: Option<RegionStats>,
    /// The small-object engines' part of flash; a bucket with anything in it is used.
    pub soc_room: Room,
    /// The region stores' part of flash; a region that is neither clean nor retired is used.
    pub regions_room: Room,
    /// Items in the region stores.
    pub items_in_regions: u64,
    /// What the device counted.
    pub device: device::Counters,
    /// Key and value of the largest item that all of it takes.
    pub max_item_bytes: u64,
    /// Whether the cache came back with what an earlier one left.
    pub recovered: bool,
    /// Why it did not, where an earlier one had left something; of several pairs, the first that did not.
    pub loss: Option<&'static str>,
    /// Whether the region stores can write.
    pub health: FlashHealth,
}

/// Whether flash takes writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlashHealth {
    /// Writes fail, and others pause for up to 5 seconds each time. Items that leave DRAM meanwhile are dropped once the buffers are
    /// full.
    pub is_failing: bool,
    /// Regions in memory whose last write failed.
    pub regions_to_retry: u64,
    /// Regions out of service now, because they failed repeatedly while others could be written. Each is tested by a write
    /// after 10 seconds, then ever more rarely up to once an hour, and soon after every start.
    pub retired_regions: u64,
    /// Bytes of the retired regions.
    pub retired_bytes: u64,
    /// The last failed write since the cache was opened.
    pub last_error: Option<String>,
}

impl FlashHealth {
    /// Whether all regions are in service and no write waits to be made again.
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

/// A part of flash.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// What it has.
    pub bytes: u64,
    /// What of that is in use.
    pub used_bytes: u64,
}

impl Room {
    pub(crate) fn add(&mut self, (bytes, used_bytes): (u64, u64)) {
        self.bytes += bytes;
        self.used_bytes += used_bytes;
    }
}

impl FlashStats {
    /// Items that were stored and then lost to failed writes or damage, as far as they could be counted.
    #[must_use]
    pub fn lost_items(&self) -> u64 {
        let soc = self.soc.as_ref().map_or(0, |soc| soc.lost_items);
        soc + self.regions.as_ref().map_or(0, |regions| regions.items_lost)
    }

    /// Of [`PutStats::stored`], items whose write failed, so that they were never on flash.
    #[must_use]
    pub fn unwritten_items(&self) -> u64 {
        let soc = self.soc.as_ref().map_or(0, |soc| soc.unwritten_items);
        soc + self.regions.as_ref().map_or(0, |regions| regions.unwritten_items)
    }

    /// Each end of an offer to flash by its name in reports, `stored` first; each offer has exactly one.
    #[must_use]
    pub fn put_ends(&self) -> [(&'static str, u64); 10] {
        self.puts.ends(self.unwritten_items())
    }

    /// Of [`PutStats::logical_bytes`], those that wait in memory to be written.
    #[must_use]
    pub fn waiting_bytes(&self) -> u64 {
        let soc = self.soc.as_ref().map_or(0, SocStats::waiting_bytes);
        soc + self.regions.as_ref().map_or(0, RegionStats::waiting_bytes)
    }

    /// Of [`PutStats::logical_bytes`], those that wait no longer and were not written: their items were replaced, removed or
    /// cleared meanwhile, or the write that they waited for failed.
    #[must_use]
    pub fn unwritten_bytes(&self) -> u64 {
        let soc = self.soc.as_ref().map_or(0, |soc| soc.unwritten_bytes + soc.replaced_bytes);
        soc + self.regions.as_ref().map_or(0, |regions| regions.unwritten_bytes)
    }

    /// Completed writes of buckets and regions: bytes of keys and values, then bytes written. Both grow in the same step,
    /// so the ratio of their growth over any interval is a write amplification. [`PutStats::logical_bytes`] and the device's
    /// counters grow at different times.
    #[must_use]
    pub fn settled_bytes(&self) -> (u64, u64) {
        let soc = self.soc.as_ref().map_or((0, 0), |soc| (soc.settled_bytes, soc.physical_written_bytes));
        let regions = self.regions.as_ref().map_or((0, 0), |regions| {
            (regions.settled_bytes.saturating_sub(regions.unwritten_bytes), regions.settled_written_bytes)
        });
        (soc.0 + regions.0, soc.1 + regions.1)
    }

    /// Bytes the cache wrote to the device over the bytes of the items that it took and that neither wait nor were
    /// [given up](Self::unwritten_bytes) on the way (application-level write amplification); `None` before the first.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        let beside = self.waiting_bytes() + self.unwritten_bytes();
        ratio(self.device.written_bytes, self.puts.logical_bytes.saturating_sub(beside))
    }
}

/// Background work done for the DRAM tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UpkeepStats {
    /// Expired items the reaper removed.
    pub reaped: u64,
    /// Slabs that moved from one class to another.
    pub slabs_released: u64,
    /// Items moved to another slab of their class so that theirs could go.
    pub moves: u64,
    /// Items that could not be moved.
    pub moves_failed: u64,
    /// Items evicted so that a slab could go: those in it, or colder ones whose chunks its items moved into.
    pub release_evictions: u64,
    /// Items that could not be evicted then.
    pub release_evictions_failed: u64,
}

/// Counters of gets and inserts.
pub(crate) struct Counters {
    usual: ThreadCounters,
    unusual: Unusual,
}

/// What the usual ends of gets and inserts are counted as.
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

/// Inserts, and pieces to be chained, that did not end as they should.
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
            // No item has such a key or is in such a pool, and a closed cache takes no piece.
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
    /// DRAM counts its hits at the first look, and the engine those at the second: a get counts once.
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
