//! What the cache counted, nested like the rooms it comes from.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::KeyHash;
use crate::dram::{MemoryStats, PoolStats};
use crate::flash::region::RegionStats;
use crate::flash::soc::SocStats;
use crate::flash::tier::PutStats;

/// A snapshot of everything counted since the cache was opened.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// How gets ended.
    pub gets: GetStats,
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
    /// Items in the region stores.
    pub items_in_regions: u64,
    /// What the device counted.
    pub device: device::Counters,
    /// Whether the cache came back with what an earlier one left.
    pub recovered: bool,
}

impl FlashStats {
    /// Of [`PutStats::logical_bytes`], those that wait in memory to be written.
    #[must_use]
    pub fn waiting_bytes(&self) -> u64 {
        let soc = self.soc.as_ref().map_or(0, SocStats::waiting_bytes);
        soc + self.regions.as_ref().map_or(0, RegionStats::waiting_bytes)
    }

    /// Bytes the cache wrote to the device over the bytes of the items that it took and that wait no longer
    /// (application-level write amplification); `None` before the first.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        ratio(self.device.written_bytes, self.puts.logical_bytes.saturating_sub(self.waiting_bytes()))
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
    /// Items evicted so that their slab could go.
    pub release_evictions: u64,
    /// Items that could not be evicted then.
    pub release_evictions_failed: u64,
}

/// Counters of gets, striped by key so that threads seldom meet on one.
pub(crate) struct Counters {
    stripes: Box<[Stripe]>,
}

const STRIPE_BITS: u32 = 6;

#[derive(Default)]
#[repr(align(128))]
struct Stripe {
    hits_dram: AtomicU64,
    hits_flash: AtomicU64,
    misses: AtomicU64,
    coalesced: AtomicU64,
    promotions: AtomicU64,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Self { stripes: std::iter::repeat_with(Stripe::default).take(1 << STRIPE_BITS).collect() }
    }

    pub(crate) fn hit_dram(&self, hash: KeyHash) {
        self.stripe(hash).hits_dram.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn hit_flash(&self, hash: KeyHash) {
        self.stripe(hash).hits_flash.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn miss(&self, hash: KeyHash) {
        self.stripe(hash).misses.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn coalesced(&self, hash: KeyHash) {
        self.stripe(hash).coalesced.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn promoted(&self, hash: KeyHash) {
        self.stripe(hash).promotions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> GetStats {
        let mut sum = GetStats::default();
        for stripe in &self.stripes {
            sum.hits_dram += stripe.hits_dram.load(Ordering::Relaxed);
            sum.hits_flash += stripe.hits_flash.load(Ordering::Relaxed);
            sum.misses += stripe.misses.load(Ordering::Relaxed);
            sum.coalesced += stripe.coalesced.load(Ordering::Relaxed);
            sum.promotions += stripe.promotions.load(Ordering::Relaxed);
        }
        sum
    }

    fn stripe(&self, hash: KeyHash) -> &Stripe {
        &self.stripes[hash.shard(STRIPE_BITS)]
    }
}
