//! A layout of a cache on a drive, and the rules of its simulation.

use cache::config::LogOptions;
use cache::config::regions::RegionConfig;
use cache::internals::log::{self, LogConfig};
use cache::internals::region::ENTRY_HEADER_BYTES;
use cache::internals::soc::{BUCKET_HEADER_BYTES, ENTRY_BYTES};
use policy::simulate::flash::{HashLogRules, HybridRules};

/// A layout, at full size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layout {
    /// DRAM of the cache, bytes.
    pub dram_bytes: u64,
    /// Share of the drive that the cache takes; the rest is never written.
    pub utilization: f64,
    /// Bytes of the cache on flash.
    pub flash_bytes: u64,
    /// Share of `flash_bytes` for small objects.
    pub small_share: f64,
    /// Admission probability of objects that DRAM evicts.
    pub admission: f64,
    /// The engine for small objects.
    pub small: SmallEngine,
    /// Settings that all layouts of a prediction share.
    pub settings: Settings,
}

/// An engine for small objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmallEngine {
    /// Set-associative buckets.
    Sets,
    /// A log in hash order, with an index in DRAM.
    Log,
}

impl SmallEngine {
    /// The name in flags and results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sets => "sets",
            Self::Log => "log",
        }
    }
}

/// Settings of a cache that are the same in all layouts of a prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Largest small object, key included.
    pub small_at_most: u32,
    /// Size of a set.
    pub set_bytes: u32,
    /// Bloom filter of a set.
    pub filter_bytes: u32,
    /// Size of a region of large objects at full size; `None` selects a 512th of their flash, from 256 KiB to 16 MiB.
    pub region_bytes: Option<u32>,
    /// Whether a miss is fetched and stored.
    pub fills_misses: bool,
    /// The log of small objects.
    pub log: LogOptions,
}

impl Default for Settings {
    /// CacheBench's defaults.
    fn default() -> Self {
        Self {
            small_at_most: SMALL_AT_MOST,
            set_bytes: SET_BYTES,
            filter_bytes: 8,
            region_bytes: None,
            fills_misses: true,
            log: LogOptions::default(),
        }
    }
}

/// Size of a set of small objects: CacheLib's default, and the page size of most drives.
pub const SET_BYTES: u32 = 4096;
/// Largest small object, key included: CacheBench's default.
pub const SMALL_AT_MOST: u32 = 2048;
/// Largest region of large objects, and the number of regions that smaller flash is divided into.
const REGION_BYTES: u64 = 16 << 20;
const REGIONS: u64 = 512;
const LEAST_REGION_BYTES: u64 = 256 << 10;
/// The smallest region of the engine at any scale.
pub(super) const ENGINE_REGION_BYTES: u64 = 64 << 10;
/// DRAM overhead of an item: header and index, as measured for the engine with LRU (docs/benchmarks.md).
const DRAM_OVERHEAD_BYTES: u32 = 59;

impl Layout {
    /// The largest size of a large object on flash, at `1/scale`.
    pub(super) fn item_bytes_at_most(&self, scale: u32) -> u64 {
        let rules = self.rules(scale, 0);
        u64::from(rules.large_at_most).min(rules.large_weight)
    }

    /// Bytes of flash for small objects, at full size.
    fn small_bytes(&self) -> u64 {
        (self.flash_bytes as f64 * self.small_share) as u64
    }

    /// Number of regions of the log for small objects at full size, as the engine selects it: regions of 1 to 512 MiB.
    fn log_regions(&self) -> u64 {
        let usual = || (self.small_bytes() >> 20).clamp(16, 448).max(self.small_bytes() >> 29);
        self.settings.log.regions.map_or_else(usual, u64::from)
    }

    /// DRAM of the engine for small objects in addition to the cache's own, at full size: filters of sets, or the index and the open
    /// regions of a log.
    #[must_use]
    pub fn small_dram_bytes(&self) -> u64 {
        let bytes = self.small_bytes();
        match self.small {
            SmallEngine::Sets => {
                bytes / u64::from(self.settings.set_bytes) * u64::from(self.settings.filter_bytes)
            }
            SmallEngine::Log if bytes < LEAST_LOG_BYTES => 0,
            SmallEngine::Log => {
                let LogOptions { expected_item_bytes, readmission_share, regions } = self.settings.log;
                let usual = LogConfig::new(0, bytes, 0);
                let (index, buffers) =
                    log::memory_of(&LogConfig { expected_item_bytes, readmission_share, regions, ..usual });
                index + buffers
            }
        }
    }

    /// The rules of the cache at `1/scale`.
    pub(super) fn rules(&self, scale: u32, seed: u64) -> HybridRules {
        let scaled = |bytes: f64| (bytes / f64::from(scale)) as u64;
        let settings = &self.settings;
        let flash = self.flash_bytes as f64;
        let large = flash * (1.0 - self.small_share);
        let large_weight = scaled(large);
        let region_of = |weight: u64| (weight / REGIONS).clamp(LEAST_REGION_BYTES, REGION_BYTES);
        let small_weight = scaled(flash * self.small_share);
        let log = |weight: u64| {
            let usual = HashLogRules::of_engine(weight, settings.log.readmission_share);
            let page = usual.page_weight;
            HashLogRules { region_weight: (weight / self.log_regions()).max(page) / page * page, ..usual }
        };
        HybridRules {
            dram_weight: scaled(self.dram_bytes as f64),
            dram_overhead: DRAM_OVERHEAD_BYTES,
            small_weight,
            small_at_most: if self.small_share > 0.0 { settings.small_at_most } else { 0 },
            set_weight: settings.set_bytes,
            set_header: BUCKET_HEADER_BYTES as u32,
            small_overhead: ENTRY_BYTES as u32,
            small_log: (self.small == SmallEngine::Log).then(|| log(small_weight)),
            large_weight,
            block_weight: match settings.region_bytes {
                Some(bytes) => u64::from((bytes / scale).max(bytes.min(ENGINE_REGION_BYTES as u32))),
                None => region_of(large_weight),
            },
            large_at_most: settings.region_bytes.unwrap_or_else(|| region_of(large as u64) as u32),
            large_overhead: ENTRY_HEADER_BYTES as u32,
            large_unit: RegionConfig::new(large_weight).unit_bytes,
            fills_misses: settings.fills_misses,
            admission: self.admission,
            seed,
        }
    }
}

/// The smallest log of small objects: four regions of 1 MiB.
const LEAST_LOG_BYTES: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A TiB with a quarter for small objects.
    fn whole() -> Layout {
        Layout {
            dram_bytes: 42 << 30,
            utilization: 1.0,
            flash_bytes: 1 << 40,
            small_share: 0.25,
            admission: 1.0,
            small: SmallEngine::Sets,
            settings: Settings::default(),
        }
    }

    #[test]
    fn dram_of_small_objects_is_filters_or_index_and_open_regions() {
        assert_eq!(whole().small_dram_bytes(), 8 << 26, "a filter of 8 bytes for each of 2^26 sets");
        let log = Layout { small: SmallEngine::Log, ..whole() };
        let bytes_per_object = log.small_dram_bytes() as f64 / (256_u64 << 30) as f64 * 256.0;
        assert!((2.8..5.0).contains(&bytes_per_object), "{bytes_per_object}");
        let tiny = Layout { flash_bytes: 15 << 20, ..log };
        assert_eq!(tiny.small_dram_bytes(), 0, "less than four regions of 1 MiB");
        let regions = |gib: u64| Layout { flash_bytes: gib << 32, ..log }.log_regions();
        assert_eq!([1, 100, 448].map(regions), [448, 448, 896], "of 512 MiB at most");
    }

    #[test]
    fn scaled_layout_keeps_many_regions() {
        let whole = whole();
        let rules = whole.rules(1024, 1);
        assert_eq!((rules.dram_weight, rules.small_weight), (42 << 20, 1 << 28));
        assert_eq!((rules.large_weight, rules.block_weight), (3 << 28, 3 << 19));
        assert_eq!(whole.rules(1, 1).block_weight, REGION_BYTES);
        assert_eq!(whole.rules(1 << 20, 1).block_weight, LEAST_REGION_BYTES);
        assert_eq!((rules.large_at_most, whole.rules(1 << 20, 1).large_at_most), (16 << 20, 16 << 20));
        assert_eq!(
            (rules.small_at_most, Layout { small_share: 0.0, ..whole }.rules(1, 1).small_at_most),
            (SMALL_AT_MOST, 0)
        );
        let of_config = Settings { region_bytes: Some(16 << 20), small_at_most: 640, ..whole.settings };
        let rules = Layout { settings: of_config, small: SmallEngine::Log, ..whole }.rules(64, 1);
        assert_eq!((rules.block_weight, rules.large_at_most, rules.small_at_most), (1 << 18, 16 << 20, 640));
        let log = rules.small_log.map(|log| log.region_weight);
        assert_eq!(log, Some((1 << 32) / 512), "256 GiB in 512 regions of 512 MiB, each at a 64th");
    }
}
