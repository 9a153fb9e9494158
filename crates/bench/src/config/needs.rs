//! Warns about a key that is set while the condition under which it has an effect is false.
//!
//! The definition of a key in [`super::keys`] names its [`Condition`]; the documentation and the warnings are generated from it.

use policy::eviction::Kind;
use serde_json::Map;

use super::condition::Condition;
use super::findings::{Findings, join};
use super::instance::InstanceConfig;
use super::keys::{CacheConfig, Distribution, TestConfig};
use super::names::REPLAYS;
use super::schema::{Section, Status};

/// The place of a key in a config.
struct Place<'a> {
    cache: &'a CacheConfig,
    test: &'a TestConfig,
    /// The distribution that has the key, if it is a distribution key.
    distribution: &'a Distribution,
    /// Index of the pool that `distribution` belongs to.
    pool: usize,
}

/// Returns `message` unless `is_so`.
fn unless(is_so: bool, message: &'static str) -> Option<&'static str> {
    (!is_so).then_some(message)
}

/// Returns why `condition` is false; `None` if it is true.
#[expect(clippy::too_many_lines, reason = "one arm for each condition")]
fn missing(condition: Condition, it: &Place<'_>) -> Option<&'static str> {
    match condition {
        // Flash.
        Condition::Flash => unless(it.cache.has_flash(), "nvmCacheSizeMB is 0, there is no flash"),
        Condition::FlashBehindDram => unless(
            !it.cache.is_flash_component(),
            "allocator names a flash component, whose size is cacheSizeMB",
        ),
        Condition::FlashPath => {
            let is_there = !it.cache.nvm_paths.is_empty();
            missing(Condition::Flash, it).or(unless(is_there, "nvmCachePaths is empty, flash is in memory"))
        }
        Condition::OnePair => {
            let is_one = it.cache.navy_arenas.is_empty();
            missing(Condition::Flash, it).or(unless(is_one, "the arenas have shares of their own"))
        }
        Condition::Buckets => {
            let (arenas, alone) = (&it.cache.navy_arenas, it.cache.navy_big_hash_percent);
            let has = if arenas.is_empty() {
                alone > 0
            } else {
                arenas.iter().any(|arena| arena.big_hash_percent > 0)
            };
            missing(Condition::Flash, it)
                .or(unless(has, "navyBigHashSizePct is 0, there is no small-object engine"))
        }
        Condition::SmallItemLog => {
            let is_log = it.cache.small_item_engine == "log";
            missing(Condition::Buckets, it).or(unless(is_log, "navySmallItemEngine is not `log`"))
        }
        Condition::Regions => {
            let has = !it.cache.navy_arenas.is_empty() || it.cache.navy_big_hash_percent < 100;
            missing(Condition::Flash, it)
                .or(unless(has, "navyBigHashSizePct is 100, there is no large-object engine"))
        }
        Condition::UsualRegions => {
            let is_usual = it.cache.region_policy.is_empty();
            missing(Condition::Regions, it).or(unless(
                is_usual,
                "with navyRegionPolicy the region size is navyRegionPolicyConfig.blockMB",
            ))
        }
        Condition::RegionPolicy => missing(Condition::Regions, it)
            .or(unless(!it.cache.region_policy.is_empty(), "navyRegionPolicy is empty")),
        Condition::BlockCache => {
            let is_it = it.cache.region_policy == "blockcache";
            missing(Condition::Regions, it).or(unless(is_it, "navyRegionPolicy is not `blockcache`"))
        }
        Condition::ItemQueue => {
            let is_it = matches!(it.cache.region_policy.as_str(), "ripq" | "sipq");
            missing(Condition::Regions, it).or(unless(is_it, "navyRegionPolicy is neither `ripq` nor `sipq`"))
        }
        Condition::Placement => {
            missing(Condition::Flash, it).or(unless(it.cache.device_fdp, "deviceEnableFDP is false"))
        }
        // DRAM.
        Condition::Lru => unless(kind(it) == Kind::Lru, "allocator is not LRU"),
        Condition::Lru2q => unless(kind(it) == Kind::Lru2q, "allocator is not LRU2Q"),
        Condition::LruFamily => {
            let is_one = matches!(kind(it), Kind::Lru | Kind::Lru2q | Kind::TinyLfu);
            unless(is_one, "allocator is none of LRU, LRU2Q and TinyLFU")
        }
        Condition::Rebalancing => {
            let is_on = it.cache.pool_rebalance_interval_seconds > 0;
            unless(is_on, "poolRebalanceIntervalSec is 0, no memory moves between size classes")
        }
        Condition::ComparedClasses => {
            let compares = |name: &&str| it.cache.rebalance_strategy.eq_ignore_ascii_case(name);
            let is_one = ["tail-age", "hits"].iter().any(compares);
            missing(Condition::Rebalancing, it)
                .or(unless(is_one, "rebalanceStrategy is random, which does not compare classes"))
        }
        Condition::NoSizes => {
            unless(it.cache.alloc_sizes_bytes.is_empty(), "allocSizes lists the size classes")
        }
        Condition::EventFile => unless(!it.cache.event_file.is_empty(), "eventTrackerFilePath is empty"),
        Condition::ObjectCache => {
            unless(it.test.name == "object_cache", "test_config.name is not `object_cache`")
        }
        // The run.
        Condition::Trace => unless(!it.test.needs_distribution(), "this generator reads no trace"),
        Condition::TraceFile => {
            let message = "this generator reads no trace; set `generator` to `replay`";
            let is_read = unless(!it.test.names_binary_trace(), "binaryFileName is read instead");
            missing(Condition::Trace, it).and(Some(message)).or(is_read)
        }
        Condition::Copies => {
            missing(Condition::Trace, it).or(unless(it.test.replay.amplification > 1, "ampFactor is 1"))
        }
        Condition::Pieces => {
            unless(it.test.generator == "piecewise-replay", "only for the generator `piecewise-replay`")
        }
        Condition::Chunks => {
            unless(it.test.generator == "block-replay", "only for the generator `block-replay`")
        }
        Condition::Generator => {
            unless(!REPLAYS.contains(&it.test.generator.as_str()), "a replay requests what is in its trace")
        }
        Condition::Checking => unless(it.test.check_consistency, "checkConsistency is false"),
        Condition::FlashWarmup => unless(it.test.check_warmup, "checkNvmCacheWarmUp is false"),
        Condition::Rate => unless(it.test.rate_per_second > 0, "opRatePerSec is 0, there is no limit"),
        Condition::PauseLength => unless(it.test.delay_ns > 0, "opDelayNs is 0"),
        Condition::PauseBatch => unless(it.test.delay_batch > 0, "opDelayBatch is 0"),
        Condition::WrittenValues => {
            unless(it.test.populate_item, "populateItem is false, values are not written")
        }
        Condition::Iterator => {
            unless(!it.test.iterator_mode.eq_ignore_ascii_case("disabled"), "dramIteratorMode is `disabled`")
        }
        // Distributions.
        Condition::PoolInUse => {
            let is_used = it.pool == 0 || missing(Condition::Generator, it).is_none();
            unless(is_used, "a replay uses only the first pool")
        }
        Condition::Chains => missing(Condition::Generator, it)
            .or(unless(it.distribution.add_chained_ratio > 0.0, "addChainedRatio is 0")),
        Condition::Popularity => {
            let (buckets, file) = (&it.distribution.popularity_buckets, &it.distribution.popularity_file);
            let is_there = !buckets.is_empty() || !file.is_empty();
            missing(Condition::Generator, it).or(unless(is_there, "there are no popularityBuckets"))
        }
        Condition::NoPopularityFile => {
            let is_own = it.distribution.popularity_file.is_empty();
            missing(Condition::Generator, it).or(unless(is_own, "popDistFile replaces them"))
        }
        Condition::NoSizesFile => {
            let is_own = it.distribution.value_sizes_file.is_empty();
            missing(Condition::Generator, it).or(unless(is_own, "valSizeDistFile replaces them"))
        }
    }
}

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
        if let Status::HonouredIf(condition) = status
            && let Some(message) = missing(condition, place)
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
