//! The three workloads of an evaluation, modelled on the kinds of workload that Facebook's guide uses to validate SSDs. The
//! values are our own; `docs/evaluate.md` gives the source of each.
//!
//! Each workload has more data than flash, so that all of flash is used, and DRAM of 2.3 % of flash, so that flash is the
//! bottleneck. Regions are evicted in FIFO order: with any other order, write amplification depends on the number of regions in
//! a reclaim unit, which a scaled drive changes.

use std::fmt::Write as _;

/// A workload of the evaluation.
#[derive(Debug, PartialEq)]
pub struct Profile {
    /// Name on the command line.
    pub name: &'static str,
    /// Description.
    pub title: &'static str,
    /// Small-object cache, percent of flash.
    soc_percent: u32,
    /// Whether a get that misses is followed by a set.
    fills: bool,
    /// Groups of objects.
    pools: &'static [Pool],
}

/// A group of objects. The shares of operations are in thousandths.
#[derive(Debug, PartialEq)]
struct Pool {
    /// Share of all operations.
    operations: f64,
    /// Edges of the ranges of value sizes, and the share of each range.
    value_bytes: &'static [u32],
    shares: &'static [f64],
    /// Bytes of all objects, relative to flash.
    working_set: f64,
    get: u32,
    /// Gets of keys that are requested only once.
    get_once: u32,
    set: u32,
    delete: u32,
}

/// The profiles, in the order in which they run.
pub const PROFILES: [Profile; 3] = [
    Profile {
        name: "kv",
        title: "a key-value cache of small objects, four gets per set",
        soc_percent: 4,
        fills: false,
        pools: &[
            Pool { operations: 0.68, value_bytes: &[50, 800], shares: &[1.0], ..KV },
            Pool { operations: 0.32, value_bytes: &[3000, 9000], shares: &[1.0], ..KV },
        ],
    },
    Profile {
        name: "cdn",
        title: "a CDN's cache of large objects: it writes what it missed",
        soc_percent: 0,
        fills: true,
        pools: &[Pool {
            operations: 1.0,
            value_bytes: &[2048, 16_384, 65_536],
            shares: &[0.55, 0.45],
            working_set: 3.0,
            get: 900,
            get_once: 100,
            set: 0,
            delete: 0,
        }],
    },
    Profile {
        name: "graph",
        title: "a social graph's leader: tiny objects, filled, changed and deleted",
        soc_percent: 65,
        fills: true,
        pools: &[
            Pool { operations: 0.5, value_bytes: &[50, 500, 2500], shares: &[0.9, 0.1], ..GRAPH },
            Pool {
                operations: 0.5,
                value_bytes: &[20, 200, 2000, 25_000],
                shares: &[0.75, 0.2, 0.05],
                ..GRAPH
            },
        ],
    },
];

const KV: Pool = Pool {
    operations: 0.0,
    value_bytes: &[],
    shares: &[],
    working_set: 2.0,
    get: 800,
    get_once: 0,
    set: 200,
    delete: 0,
};
const GRAPH: Pool = Pool {
    operations: 0.0,
    value_bytes: &[],
    shares: &[],
    working_set: 2.0,
    get: 650,
    get_once: 150,
    set: 150,
    delete: 50,
};

/// DRAM relative to flash: 43 GB for 1.88 TB in the FDP paper, 42 GB for 930 GB in the source of Meta's traces.
const DRAM_SHARE: f64 = 0.023;
/// The cache addresses 256 GiB of DRAM with its smallest items of 64 bytes.
const MAX_DRAM_MIB: u64 = 255 << 10;
/// The cache numbers buckets in 32 bits.
const MAX_BUCKETS: u64 = u32::MAX as u64;
const MIN_DRAM_MIB: u64 = 16;
/// Mean key length in bytes.
const KEY_BYTES: f64 = 28.0;
/// A rate above any that can be reached: requests are made at full speed until a rate is set.
pub const UNLIMITED: u64 = 1_000_000_000;
/// Burst size that does not limit a rate: after a stall of the drive the delayed operations are made up for, as in a service,
/// and the stall is visible in the latencies.
const BURST: u64 = UNLIMITED;

/// Size and settings of the cache for a profile, before scaling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CacheSetup {
    /// Size of flash.
    pub flash_mib: u64,
    /// Divisor by which a run scales the sizes.
    pub scale: u32,
    /// Whether writes use placement.
    pub placement: bool,
    /// Maximum requests in flight.
    pub workers: u32,
    /// Whether every value found is checked against the value that was set.
    pub checked: bool,
}

impl Profile {
    /// CacheBench config of the profile.
    #[must_use]
    pub fn config(&self, setup: &CacheSetup) -> String {
        let CacheSetup { flash_mib, placement, workers, checked, .. } = *setup;
        let keys: Vec<f64> = self.pools.iter().map(|pool| pool.keys(flash_mib)).collect();
        let all_keys: f64 = keys.iter().sum();
        let key_shares: Vec<f64> = keys.iter().map(|keys| keys / all_keys).collect();
        let operations: Vec<f64> = self.pools.iter().map(|pool| pool.operations).collect();
        let pools: Vec<String> =
            self.pools.iter().zip(&keys).map(|(pool, keys)| pool.config(*keys)).collect();
        let dram_mib = ((flash_mib as f64 * DRAM_SHARE) as u64).clamp(MIN_DRAM_MIB, MAX_DRAM_MIB);
        let (region_mib, largest) = (self.region_mib(setup), self.largest_bytes() + 4096);
        let bucket = self.bucket_bytes(setup);
        let (soc, fills, numbers) = (self.soc_percent, self.fills, self.pools.len());
        let mut text = String::new();
        let _ = write!(
            text,
            r#"{{ "cache_config": {{
  "cacheSizeMB": {dram_mib}, "maxAllocSize": {largest}, "allocFactor": 1.2,
  "numPools": {numbers}, "poolSizes": {operations:?},
  "nvmCacheSizeMB": {flash_mib}, "navyBigHashSizePct": {soc}, "navyBigHashBucketSize": {bucket}, "navySmallItemMaxSize": 2048,
  "navyBlockSize": 4096,
  "navyRegionSizeMB": {region_mib}, "navySegmentedFifoSegmentRatio": [1], "deviceEnableFDP": {placement}
}}, "test_config": {{
  "generator": "online", "numOps": 1000000000000, "numThreads": {workers}, "numKeys": {all_keys:.0},
  "opRatePerSec": {UNLIMITED}, "opRateBurstSize": {BURST}, "enableLookaside": {fills}, "checkConsistency": {checked},
  "keyPoolDistribution": {key_shares:?}, "opPoolDistribution": {operations:?},
  "poolDistributions": [{}]
}} }}"#,
            pools.join(",")
        );
        text
    }

    /// Region size after scaling.
    #[must_use]
    pub fn region_bytes(&self, setup: &CacheSetup) -> f64 {
        self.region_mib(setup) as f64 * 1_048_576.0 / f64::from(setup.scale)
    }

    /// Bucket size: 4 KiB, doubled until the cache can address all buckets.
    fn bucket_bytes(&self, setup: &CacheSetup) -> u64 {
        let soc_mib = setup.flash_mib * u64::from(self.soc_percent) / 100 / u64::from(setup.scale);
        let least = (soc_mib << 20).div_ceil(MAX_BUCKETS);
        least.next_power_of_two().max(4096)
    }

    fn largest_bytes(&self) -> u64 {
        let edges = self.pools.iter().filter_map(|pool| pool.value_bytes.last());
        edges.max().copied().unwrap_or(0).into()
    }

    /// Region size: CacheBench's 16 MiB, or eight of the largest objects after scaling if that is more, because the unused ends
    /// of smaller regions would waste a third of flash. At most 1/64 of flash.
    fn region_mib(&self, setup: &CacheSetup) -> u64 {
        let for_objects = (8 * self.largest_bytes() * u64::from(setup.scale)).div_ceil(1 << 20);
        let most = (setup.flash_mib / 64).clamp(1, 1024);
        for_objects.max(16).min(most)
    }
}

impl Pool {
    fn keys(&self, flash_mib: u64) -> f64 {
        self.working_set * flash_mib as f64 * 1_048_576.0 / (self.mean_bytes() + KEY_BYTES)
    }

    fn mean_bytes(&self) -> f64 {
        let middles = self.value_bytes.windows(2).map(|edges| f64::from(edges[0] + edges[1]) / 2.0);
        middles.zip(self.shares).map(|(middle, share)| middle * share).sum()
    }

    /// The most popular 5 % of keys get half of the requests, the next 25 % get 30 %.
    fn config(&self, keys: f64) -> String {
        let (hot, warm, cold) = (0.05 * keys, 0.25 * keys, 0.7 * keys);
        let [get, get_once, set, delete] =
            [self.get, self.get_once, self.set, self.delete].map(|parts| f64::from(parts) / 1000.0);
        let (sizes, shares) = (self.value_bytes, self.shares);
        format!(
            r#"{{
  "getRatio": {get}, "loneGetRatio": {get_once}, "setRatio": {set}, "delRatio": {delete},
  "keySizeRange": [16, 40], "keySizeRangeProbability": [1.0],
  "valSizeRange": {sizes:?}, "valSizeRangeProbability": {shares:?},
  "popularityBuckets": [{hot}, {warm}, {cold}], "popularityWeights": [0.5, 0.3, 0.2] }}"#
        )
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Loaded, cachebench::load_text};

    #[test]
    fn profile_configs_load_without_warnings_and_can_run() {
        for (profile, flash_mib) in PROFILES.iter().zip([64, 1000, 16_000_000]) {
            // At full size, and scaled down to 32 MiB.
            for scale in [1, flash_mib as u32 / 32] {
                let setup = CacheSetup { flash_mib, scale, placement: false, workers: 64, checked: true };
                let loaded = load_text(Path::new(profile.name), &profile.config(&setup), &[]);
                let Ok(Loaded::Config(config)) = loaded else { panic!("{}: {loaded:?}", profile.name) };
                assert!(config.warnings.is_empty() && config.later.is_empty(), "{:?}", config.warnings);
                crate::session::Session::check(&config, scale).unwrap();
            }
        }
    }

    /// The graph profile has more than 2^32 buckets of 4 KiB on this drive.
    #[test]
    fn every_profile_can_run_on_61_tb() {
        for profile in &PROFILES {
            for scale in [1, 4, 1024] {
                let setup = CacheSetup {
                    flash_mib: 58_593_750,
                    scale,
                    placement: false,
                    workers: 64,
                    checked: false,
                };
                let loaded = load_text(Path::new(profile.name), &profile.config(&setup), &[]);
                let Ok(Loaded::Config(config)) = loaded else { panic!("{}: {loaded:?}", profile.name) };
                crate::session::Session::check(&config, scale).unwrap();
                let is_large = profile.name == "graph" && scale == 1;
                assert_eq!(profile.bucket_bytes(&setup), if is_large { 16_384 } else { 4096 });
            }
        }
    }

    #[test]
    fn profile_shares_add_up_to_one() {
        for profile in &PROFILES {
            assert!((profile.pools.iter().map(|pool| pool.operations).sum::<f64>() - 1.0).abs() < 1e-9);
            for pool in profile.pools {
                assert_eq!(pool.get + pool.get_once + pool.set + pool.delete, 1000);
                assert!((pool.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
                assert_eq!(pool.value_bytes.len(), pool.shares.len() + 1);
            }
        }
    }
}
