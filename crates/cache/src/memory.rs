//! Memory accounting of a cache: the maximum, computed before it opens, and the current use.

use std::fmt;

use crate::Cache;
use crate::config::{CacheConfig, FlashConfig, LogOptions, SmallItems};
use crate::dram::{INDEX_LEAST_BYTES, INDEX_MOST_BYTES_PER_ITEM};
use crate::error::CacheError;
use crate::flash::log::{self, LogConfig};
use crate::flash::region::OrderConfig;

/// Memory by purpose, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Slabs: items in DRAM.
    pub slab_bytes: u64,
    /// Index of the items in DRAM.
    pub dram_index_bytes: u64,
    /// State of the eviction policies.
    pub policy_bytes: u64,
    /// Index of the items in regions.
    pub flash_index_bytes: u64,
    /// Filters of the buckets.
    pub filter_bytes: u64,
    /// Small items that wait for their bucket to be written.
    pub waiting_bytes: u64,
    /// Buffers of regions that are being filled or written.
    pub buffer_bytes: u64,
}

/// The smallest item, header included, that is assumed in regions if no engine stores small items.
const LEAST_REGION_ITEM_BYTES: u64 = 256;
/// A record in the region index, with its share of free space; a record with a rank is larger.
const RECORD_BYTES: u64 = 12;
const RANKED_RECORD_BYTES: u64 = 15;
/// Size of an empty region index, and the state per region.
const REGION_INDEX_BYTES: u64 = 128 << 10;
const REGION_BYTES: u64 = 128;

impl Memory {
    /// The sum.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.slab_bytes + self.dram_index_bytes + self.policy_bytes + self.beside_dram_bytes()
    }

    fn beside_dram_bytes(&self) -> u64 {
        self.flash_index_bytes + self.filter_bytes + self.waiting_bytes + self.buffer_bytes
    }

    /// The maximum for `config`: every chunk of DRAM has the smallest size, and every item in regions is as small as possible. With
    /// buckets, items in regions are larger than [`small_item_max_bytes`](FlashConfig::small_item_max_bytes). Not included are keys of
    /// more than 255 bytes, whose items go to regions at any size, the index of chains, and removals that wait to be written.
    #[must_use]
    pub fn at_most(config: &CacheConfig) -> Self {
        let dram = &config.dram;
        let least = dram.alloc_sizes.first().copied().unwrap_or(dram.min_item_bytes).max(1);
        let chunks = dram.dram_bytes / u64::from(least);
        let flash = config.flash.as_ref().map(Self::of_flash).unwrap_or_default();
        Self {
            slab_bytes: dram.dram_bytes,
            dram_index_bytes: (chunks as f64 * INDEX_MOST_BYTES_PER_ITEM) as u64 + INDEX_LEAST_BYTES,
            policy_bytes: chunks * dram.policy_bytes_per_slot() + dram.slab_table_bytes(),
            ..flash
        }
    }

    fn of_flash(flash: &FlashConfig) -> Self {
        let capacity = flash.device.geometry().capacity_bytes as f64;
        let share = |of: fn(f64) -> f64| {
            let shares = flash.pairs.iter().map(|pair| pair.device_share * of(pair.soc_share));
            (capacity * shares.sum::<f64>()) as u64
        };
        let (bucket_space, region_space) = (share(|soc| soc), share(|soc| 1.0 - soc));
        let buckets = bucket_space / u64::from(flash.bucket_bytes.max(1));
        let (small_index_bytes, small_buffer_bytes) = match &flash.small_items_or_default() {
            // Each bucket has a filter and one bit.
            SmallItems::Sets if buckets > 0 => (
                buckets * u64::from(flash.filter_bytes_per_bucket) + buckets.div_ceil(64) * 8,
                flash.pending_bytes as u64,
            ),
            SmallItems::Sets => (0, 0),
            SmallItems::Log(options) => of_logs(flash, options),
        };
        let with_regions = flash.pairs.iter().filter(|pair| pair.soc_share < 1.0).count() as u64;
        let least = if buckets > 0 { flash.small_item_max_bytes as u64 } else { 0 };
        let items = region_space / least.max(LEAST_REGION_ITEM_BYTES);
        let regions = &flash.regions;
        let record_bytes =
            if matches!(regions.order, OrderConfig::Ripq(_)) { RANKED_RECORD_BYTES } else { RECORD_BYTES };
        let region_count = region_space / u64::from(regions.region_bytes.max(1));
        Self {
            flash_index_bytes: items * record_bytes
                + region_count * REGION_BYTES
                + with_regions * REGION_INDEX_BYTES,
            filter_bytes: small_index_bytes,
            waiting_bytes: small_buffer_bytes,
            buffer_bytes: with_regions * u64::from(regions.buffers) * u64::from(regions.region_bytes),
            ..Self::default()
        }
    }
}

/// Memory of the logs of all pairs: the index, and items waiting to be written.
fn of_logs(flash: &FlashConfig, options: &LogOptions) -> (u64, u64) {
    let capacity = flash.device.geometry().capacity_bytes as f64;
    let shares =
        flash.pairs.iter().map(|pair| pair.device_share * pair.soc_share).filter(|share| *share > 0.0);
    let configs = shares.map(|share| LogConfig {
        page_bytes: flash.bucket_bytes,
        regions: options.regions,
        expected_item_bytes: options.expected_item_bytes,
        ..LogConfig::new(0, (capacity * share) as u64, 0)
    });
    let geometry = flash.device.geometry();
    let valid = configs.filter(|config| config.check(&geometry).is_ok());
    valid.map(|config| log::memory_of(&config)).fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
}

impl CacheConfig {
    /// Sets the size of DRAM to the rest of the memory budget, if there is a budget.
    pub(crate) fn within_budget(mut self) -> Result<Self, CacheError> {
        let Some(budget_bytes) = self.memory_budget_bytes else { return Ok(self) };
        self.dram.dram_bytes = 0;
        let beside = Memory::at_most(&self);
        let left = budget_bytes.saturating_sub(beside.total_bytes());
        self.dram.dram_bytes = 1 << 30;
        let a_gib = Memory::at_most(&self);
        let dear = (a_gib.total_bytes() - beside.total_bytes()) as f64 / f64::from(1 << 30);
        self.dram.dram_bytes = (left as f64 / dear) as u64;
        if self.dram.dram_bytes < LEAST_SLAB_BYTES {
            let least = (LEAST_SLAB_BYTES as f64 * dear).ceil() as u64;
            return Err(CacheError::Config(format!(
                "a memory budget of {budget_bytes} bytes leaves {left} for items in DRAM, their index and policy; the \
                 minimum is {least}, with a budget of {}. The rest of the cache needs {beside}",
                least + beside.total_bytes(),
            )));
        }
        Ok(self)
    }
}

/// Lower limit of DRAM: 64 slabs of the smallest size.
const LEAST_SLAB_BYTES: u64 = 64 * (64 << 10);

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.slab_bytes, "slabs"),
            (self.dram_index_bytes, "index of DRAM"),
            (self.policy_bytes, "eviction policies"),
            (self.flash_index_bytes, "index of regions"),
            (self.filter_bytes, "filters of buckets"),
            (self.waiting_bytes, "waiting small items"),
            (self.buffer_bytes, "region buffers"),
        ];
        write!(f, "{} bytes: ", self.total_bytes())?;
        let shown: Vec<String> = parts
            .iter()
            .filter(|(bytes, _)| *bytes > 0)
            .map(|(bytes, name)| format!("{bytes} {name}"))
            .collect();
        f.write_str(&shown.join(", "))
    }
}

impl Cache {
    /// The current memory use. Buffers and indexes count in full; slabs and their tables count only if used, because the system allocates
    /// their pages on first use.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let dram = self.engine.dram.memory();
        let mut memory = Memory {
            slab_bytes: dram.used_slab_bytes,
            dram_index_bytes: dram.index_bytes,
            policy_bytes: dram.policy_bytes,
            ..Memory::default()
        };
        for pair in self.engine.flash.iter().flat_map(|flash| flash.pairs.iter()) {
            if let Some(soc) = &pair.soc {
                memory.waiting_bytes += soc.buffer_limit_bytes() as u64;
                memory.filter_bytes += soc.index_bytes() as u64;
            }
            if let Some(regions) = &pair.regions {
                let regions = regions.memory();
                memory.buffer_bytes += regions.buffer_bytes as u64;
                memory.flash_index_bytes += (regions.index_bytes + regions.region_bytes) as u64;
            }
        }
        memory
    }
}
