//! Conditions under which a key has an effect, and a warning for a key that is set while its condition is false.
//!
//! The definition of a key in [`super::keys`] names its condition; the documentation and the warnings are generated from it.

use policy::eviction::Kind;
use serde_json::Map;

use super::cachebench::InstanceConfig;
use super::check::{REPLAYS, has_flash, is_flash_component, needs_distribution};
use super::keys::{CacheConfig, Distribution, TestConfig};
use super::schema::{Findings, Section, Status};
use super::text::join;

/// Condition under which a key has an effect.
#[derive(Debug, Clone, Copy)]
pub struct Needs {
    /// The condition in words, such as `with flash`.
    pub when: &'static str,
    /// Returns why the condition is false; `None` if it is true.
    missing: fn(&Place<'_>) -> Option<&'static str>,
}

/// The place of a key in a config.
struct Place<'a> {
    cache: &'a CacheConfig,
    test: &'a TestConfig,
    /// The distribution that has the key, if it is a distribution key.
    distribution: &'a Distribution,
    /// Index of the pool that `distribution` belongs to.
    pool: usize,
}

const fn needs(when: &'static str, missing: fn(&Place<'_>) -> Option<&'static str>) -> Needs {
    Needs { when, missing }
}

/// Returns `message` unless `is_so`.
fn unless(is_so: bool, message: &'static str) -> Option<&'static str> {
    (!is_so).then_some(message)
}

// Flash.

pub(super) const FLASH: Needs =
    needs("with flash", |it| unless(has_flash(it.cache), "nvmCacheSizeMB is 0, there is no flash"));
pub(super) const FLASH_BEHIND_DRAM: Needs = needs("without a flash component", |it| {
    unless(!is_flash_component(it.cache), "allocator names a flash component, whose size is cacheSizeMB")
});
pub(super) const FLASH_PATH: Needs = needs("with nvmCachePaths", |it| {
    let is_there = !it.cache.nvm_paths.is_empty();
    (FLASH.missing)(it).or(unless(is_there, "nvmCachePaths is empty, flash is in memory"))
});
pub(super) const ONE_PAIR: Needs = needs("with flash without navyArenas", |it| {
    let is_one = it.cache.navy_arenas.is_empty();
    (FLASH.missing)(it).or(unless(is_one, "the arenas have shares of their own"))
});
pub(super) const BUCKETS: Needs = needs("with a small-object engine", |it| {
    let (arenas, alone) = (&it.cache.navy_arenas, it.cache.navy_big_hash_percent);
    let has =
        if arenas.is_empty() { alone > 0 } else { arenas.iter().any(|arena| arena.big_hash_percent > 0) };
    (FLASH.missing)(it).or(unless(has, "navyBigHashSizePct is 0, there is no small-object engine"))
});
pub(super) const SMALL_ITEM_LOG: Needs = needs("with `log`", |it| {
    let is_log = it.cache.small_item_engine == "log";
    (BUCKETS.missing)(it).or(unless(is_log, "navySmallItemEngine is not `log`"))
});
pub(super) const REGIONS: Needs = needs("with a large-object engine", |it| {
    let has = !it.cache.navy_arenas.is_empty() || it.cache.navy_big_hash_percent < 100;
    (FLASH.missing)(it).or(unless(has, "navyBigHashSizePct is 100, there is no large-object engine"))
});
pub(super) const USUAL_REGIONS: Needs = needs("without navyRegionPolicy", |it| {
    let is_usual = it.cache.region_policy.is_empty();
    (REGIONS.missing)(it)
        .or(unless(is_usual, "with navyRegionPolicy the region size is navyRegionPolicyConfig.blockMB"))
});
pub(super) const REGION_POLICY: Needs = needs("with navyRegionPolicy", |it| {
    (REGIONS.missing)(it).or(unless(!it.cache.region_policy.is_empty(), "navyRegionPolicy is empty"))
});
pub(super) const BLOCK_CACHE: Needs = needs("with `blockcache`", |it| {
    let is_it = it.cache.region_policy == "blockcache";
    (REGIONS.missing)(it).or(unless(is_it, "navyRegionPolicy is not `blockcache`"))
});
pub(super) const ITEM_QUEUE: Needs = needs("with `ripq` and `sipq`", |it| {
    let is_it = matches!(it.cache.region_policy.as_str(), "ripq" | "sipq");
    (REGIONS.missing)(it).or(unless(is_it, "navyRegionPolicy is neither `ripq` nor `sipq`"))
});
pub(super) const PLACEMENT: Needs = needs("with deviceEnableFDP", |it| {
    (FLASH.missing)(it).or(unless(it.cache.device_fdp, "deviceEnableFDP is false"))
});

// DRAM.

pub(super) const LRU: Needs = needs("with LRU", |it| unless(kind(it) == Kind::Lru, "allocator is not LRU"));
pub(super) const LRU_2Q: Needs =
    needs("with LRU2Q", |it| unless(kind(it) == Kind::Lru2q, "allocator is not LRU2Q"));
pub(super) const LRU_FAMILY: Needs = needs("with LRU, LRU2Q and TinyLFU", |it| {
    let is_one = matches!(kind(it), Kind::Lru | Kind::Lru2q | Kind::TinyLfu);
    unless(is_one, "allocator is none of LRU, LRU2Q and TinyLFU")
});
pub(super) const REBALANCING: Needs = needs("with poolRebalanceIntervalSec", |it| {
    let is_on = it.cache.pool_rebalance_interval_seconds > 0;
    unless(is_on, "poolRebalanceIntervalSec is 0, no memory moves between size classes")
});
pub(super) const COMPARED_CLASSES: Needs = needs("with `tail-age` and `hits`", |it| {
    let compares = |name: &&str| it.cache.rebalance_strategy.eq_ignore_ascii_case(name);
    let is_one = ["tail-age", "hits"].iter().any(compares);
    (REBALANCING.missing)(it)
        .or(unless(is_one, "rebalanceStrategy is random, which does not compare classes"))
});
pub(super) const NO_SIZES: Needs = needs("without allocSizes", |it| {
    unless(it.cache.alloc_sizes_bytes.is_empty(), "allocSizes lists the size classes")
});
pub(super) const EVENT_FILE: Needs = needs("with eventTrackerFilePath", |it| {
    unless(!it.cache.event_file.is_empty(), "eventTrackerFilePath is empty")
});

pub(super) const OBJECT_CACHE: Needs = needs("with `object_cache`", |it| {
    unless(it.test.name == "object_cache", "test_config.name is not `object_cache`")
});

// The run.

pub(super) const TRACE: Needs =
    needs("in a replay", |it| unless(!needs_distribution(it.test), "this generator reads no trace"));
pub(super) const TRACE_FILE: Needs = needs("in a replay", |it| {
    let message = "this generator reads no trace; set `generator` to `replay`";
    let is_read = unless(!it.test.names_binary_trace(), "binaryFileName is read instead");
    (TRACE.missing)(it).and(Some(message)).or(is_read)
});
pub(super) const COPIES: Needs = needs("with ampFactor", |it| {
    (TRACE.missing)(it).or(unless(it.test.replay.amplification > 1, "ampFactor is 1"))
});
pub(super) const PIECES: Needs = needs("in `piecewise-replay`", |it| {
    unless(it.test.generator == "piecewise-replay", "only for the generator `piecewise-replay`")
});
pub(super) const CHUNKS: Needs = needs("in `block-replay`", |it| {
    unless(it.test.generator == "block-replay", "only for the generator `block-replay`")
});
pub(super) const GENERATOR: Needs = needs("without a trace", |it| {
    unless(!REPLAYS.contains(&it.test.generator.as_str()), "a replay requests what is in its trace")
});
pub(super) const CHECKING: Needs =
    needs("with checkConsistency", |it| unless(it.test.check_consistency, "checkConsistency is false"));
pub(super) const FLASH_WARMUP: Needs =
    needs("with checkNvmCacheWarmUp", |it| unless(it.test.check_warmup, "checkNvmCacheWarmUp is false"));
pub(super) const RATE: Needs = needs("with opRatePerSec", |it| {
    unless(it.test.rate_per_second > 0, "opRatePerSec is 0, there is no limit")
});
pub(super) const PAUSE_LENGTH: Needs =
    needs("with opDelayNs", |it| unless(it.test.delay_ns > 0, "opDelayNs is 0"));
pub(super) const PAUSE_BATCH: Needs =
    needs("with opDelayBatch", |it| unless(it.test.delay_batch > 0, "opDelayBatch is 0"));
pub(super) const WRITTEN_VALUES: Needs = needs("with populateItem", |it| {
    unless(it.test.populate_item, "populateItem is false, values are not written")
});
pub(super) const ITERATOR: Needs = needs("with dramIteratorMode", |it| {
    unless(!it.test.iterator_mode.eq_ignore_ascii_case("disabled"), "dramIteratorMode is `disabled`")
});

// Distributions.

pub(super) const POOL_IN_USE: Needs = needs("in a replay for the first pool", |it| {
    let is_used = it.pool == 0 || (GENERATOR.missing)(it).is_none();
    unless(is_used, "a replay uses only the first pool")
});
pub(super) const CHAINS: Needs = needs("with addChainedRatio", |it| {
    (GENERATOR.missing)(it).or(unless(it.distribution.add_chained_ratio > 0.0, "addChainedRatio is 0"))
});
pub(super) const POPULARITY: Needs = needs("with popularityBuckets", |it| {
    let (buckets, file) = (&it.distribution.popularity_buckets, &it.distribution.popularity_file);
    let is_there = !buckets.is_empty() || !file.is_empty();
    (GENERATOR.missing)(it).or(unless(is_there, "there are no popularityBuckets"))
});
pub(super) const NO_POPULARITY_FILE: Needs = needs("without popDistFile", |it| {
    let is_own = it.distribution.popularity_file.is_empty();
    (GENERATOR.missing)(it).or(unless(is_own, "popDistFile replaces them"))
});
pub(super) const NO_SIZES_FILE: Needs = needs("without valSizeDistFile", |it| {
    let is_own = it.distribution.value_sizes_file.is_empty();
    (GENERATOR.missing)(it).or(unless(is_own, "valSizeDistFile replaces them"))
});

/// A component has an LRU cache in front. An unknown name is reported elsewhere.
fn kind(it: &Place<'_>) -> Kind {
    it.cache.allocator.parse().unwrap_or(Kind::Lru)
}

/// Warns about each key of `instance` that is set and has no effect.
pub(super) fn check(instance: &InstanceConfig, findings: &mut Findings) {
    let InstanceConfig { cache, test, distribution, .. } = instance;
    let cache_at = join(&instance.at, "cache_config");
    let test_at = join(&instance.at, "test_config");
    let place = Place { cache, test, distribution, pool: 0 };
    warn_without_effect(cache, &place, &cache_at, findings);
    let at_policy = join(&cache_at, "navyRegionPolicyConfig");
    warn_without_effect(&cache.region_policy_config, &place, &at_policy, findings);
    warn_without_effect(&cache.custom, &place, &join(&cache_at, "customConfigJson"), findings);
    warn_without_effect(test, &place, &test_at, findings);
    warn_without_effect(&test.replay, &place, &join(&test_at, "replayGeneratorConfig"), findings);
    if test.pool_distributions.is_empty() {
        return warn_without_effect(distribution, &place, &test_at, findings);
    }
    for_each_changed::<Distribution>(distribution, |key, _| {
        findings.warning(&join(&test_at, key), "has no effect: poolDistributions replaces it");
    });
    for (pool, distribution) in test.pool_distributions.iter().enumerate() {
        let at = format!("{test_at}.poolDistributions[{pool}]");
        warn_without_effect(distribution, &Place { cache, test, distribution, pool }, &at, findings);
    }
}

fn warn_without_effect<S: Section + Default>(
    section: &S,
    place: &Place<'_>,
    at: &str,
    findings: &mut Findings,
) {
    for_each_changed(section, |key, status| {
        if let Status::HonouredIf(needs) = status
            && let Some(message) = (needs.missing)(place)
        {
            findings.warning(&join(at, key), format!("has no effect: {message}"));
        }
    });
}

/// Calls `report` for each key of `section` whose value is not the default.
fn for_each_changed<S: Section + Default>(section: &S, mut report: impl FnMut(&str, Status)) {
    let (mut values, mut usual) = (Map::new(), Map::new());
    section.write(&mut values);
    S::default().write(&mut usual);
    for key_info in S::KEYS.iter().filter(|key_info| values.get(key_info.key) != usual.get(key_info.key)) {
        report(key_info.key, key_info.status);
    }
}
