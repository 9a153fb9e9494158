//! Checks values of a config: lengths, sums, ranges and names.

use std::path::Path;

use device::names::nearest;

use super::findings::{Findings, join};
use super::instance::InstanceConfig;
use super::keys::{CacheConfig, TestConfig};
use super::names::{
    ADMISSIONS, ALLOCATORS, ARRIVALS, COMPONENTS, GENERATORS, PLACEMENT_HANDLES, RECOVER_AFTER,
    REGION_POLICIES, REPLAY_OPS, REPLAYS, SERIALIZATIONS, SMALL_ITEM_ENGINES, STRESSORS,
};
use super::needs;

mod cuts;
mod distributions;
mod learned;
mod paths;
mod stressors;
mod sweeps;
mod tiers;
mod totals;

pub use distributions::{popularity, sizes};
pub use learned::features;

/// The keys of lone gets and sets contain the worker's number, which has 15 bits.
const MAX_THREADS: u64 = 1 << 15;
/// CacheLib's slab size: no chunk is larger.
pub const LARGEST_CLASS_BYTES: u64 = 4 << 20;

/// Checks one instance.
pub fn instance(instance: &InstanceConfig, findings: &mut Findings) {
    let cache_at = join(&instance.at, "cache_config");
    let test_at = join(&instance.at, "test_config");
    cache(&instance.cache, &instance.test, &cache_at, findings);
    flash(&instance.cache, &cache_at, findings);
    test(&instance.test, &instance.cache, &test_at, findings);
    if instance.cache.use_trace_timestamp && instance.test.needs_distribution() {
        let message = "only for replays: a generator has no timestamps";
        findings.problem(&join(&cache_at, "useTraceTimeStamp"), message);
    }
    stressors::check(instance, &cache_at, &test_at, findings);
    stressors::check_objects(instance, &cache_at, &test_at, findings);
    if runs_here(&instance.test) {
        lengths(instance, &test_at, findings);
        if instance.cache.cache_size_mib == 0 {
            findings.problem(&join(&cache_at, "cacheSizeMB"), "is 0 or missing: a cache needs DRAM");
        }
    }
    for (i, pool) in instance.pools.iter().enumerate() {
        let alone = instance.test.pool_distributions.is_empty();
        let at = if alone { test_at.clone() } else { format!("{test_at}.poolDistributions[{i}]") };
        distributions::check(pool, instance.test.needs_distribution(), &at, findings);
    }
    needs::check(instance, findings);
}

/// Checks the instances together: total sizes, and files that they must not share.
pub fn together(instances: &[InstanceConfig], findings: &mut Findings) {
    totals::check(instances, findings);
    for (i, one) in instances.iter().enumerate() {
        let misses = one.miss_trace();
        if misses.is_some() && instances[..i].iter().any(|other| other.miss_trace() == misses) {
            let at = join(&join(&one.at, "test_config"), "missTraceFile");
            findings.problem(&at, "is also the file of another instance: each instance needs its own");
        }
        if one.cache.nvm_size_mib > 0 {
            paths::check_shared(one, &instances[..i], findings);
        }
    }
}

/// Whether the default stressor and a supported generator can run this test.
pub fn runs_here(test: &TestConfig) -> bool {
    let here = matches!(test.generator.as_str(), "" | "workload" | "online")
        || REPLAYS.contains(&test.generator.as_str());
    test.uses_default_stressor() && here && !test.writes_binary_trace()
}

fn cache(cache: &CacheConfig, test: &TestConfig, at: &str, findings: &mut Findings) {
    if COMPONENTS.contains(&cache.allocator.as_str()) && test.name == "cache_component" {
        let message = "the default stressor runs instead of the coroutine one; a flash component gets a small DRAM cache in front";
        findings.warning(&join(at, "allocator"), message);
    } else {
        one_of(&cache.allocator, &ALLOCATORS, &join(at, "allocator"), findings);
    }
    if !cache.rebalance_strategy.is_empty() {
        let strategies = ["tail-age", "hits", "random"];
        one_of(&cache.rebalance_strategy, &strategies, &join(at, "rebalanceStrategy"), findings);
    }
    if !cache.shm_type.is_empty() {
        one_of(&cache.shm_type, &["none", "tmp", "sysv", "posix"], &join(at, "shmType"), findings);
    }
    if !cache.cache_dir.is_empty() && (cache.nvm_size_mib == 0 || cache.nvm_paths.is_empty()) {
        findings.warning(
            &join(at, "cacheDir"),
            "the cache is not persistent: DRAM is saved to flash, and nvmCachePaths is empty",
        );
    }
    if Path::new(&cache.cache_dir).is_file() {
        findings.problem(&join(at, "cacheDir"), format!("{} is a file, not a directory", cache.cache_dir));
    }
    paths::check_duplicates(&cache.nvm_paths, &join(at, "nvmCachePaths"), findings);
    events(cache, at, findings);
    pools(cache, at, findings);
    classes(cache, at, findings);
    tiers::check(cache, at, findings);
    if cache.lru2q_hot_percent.saturating_add(cache.lru2q_cold_percent) > 99 {
        findings.problem(
            &join(at, "lru2qHotPct"),
            "hot and cold together must be at most 99, so that the warm queue has a share",
        );
    }
}

fn events(cache: &CacheConfig, at: &str, findings: &mut Findings) {
    let keys =
        [("eventTrackerSamplingRate", cache.event_sampling), ("eventTrackerQueueSize", cache.event_queue)];
    for (key, _) in keys.into_iter().filter(|(_, value)| *value == 0) {
        findings.problem(&join(at, key), "must be at least 1");
    }
}

fn pools(cache: &CacheConfig, at: &str, findings: &mut Findings) {
    let shares = &cache.pool_shares;
    if cache.pool_count == 0 || cache.pool_count > 64 {
        findings
            .problem(&join(at, "numPools"), format!("is {}; a cache has 1 to 64 pools", cache.pool_count));
    }
    if shares.len() as u64 != cache.pool_count {
        let message = format!("has {} share(s) for numPools {}", shares.len(), cache.pool_count);
        findings.problem(&join(at, "poolSizes"), message);
    }
    let sum: f64 = shares.iter().sum();
    if shares.iter().any(|share| *share <= 0.0) || sum > 1.000_001 {
        findings.problem(
            &join(at, "poolSizes"),
            format!("shares must be above 0 and together at most 1; they are {sum}"),
        );
    }
}

fn classes(cache: &CacheConfig, at: &str, findings: &mut Findings) {
    if cache.alloc_factor <= 1.0 {
        findings.problem(&join(at, "allocFactor"), format!("is {}; must be above 1", cache.alloc_factor));
    }
    let (min, max) = (cache.min_alloc_bytes, cache.max_alloc_bytes);
    if min == 0 || min > max || max > LARGEST_CLASS_BYTES {
        let message = format!(
            "minAllocSize {min} and maxAllocSize {max} must be from 1 to {LARGEST_CLASS_BYTES}, and minAllocSize at most maxAllocSize"
        );
        findings.problem(&join(at, "maxAllocSize"), message);
    }
    let sizes = &cache.alloc_sizes_bytes;
    if !sizes.is_sorted_by(|a, b| a < b) || sizes.iter().any(|size| *size == 0 || *size > LARGEST_CLASS_BYTES)
    {
        findings
            .problem(&join(at, "allocSizes"), format!("must be ascending, from 1 to {LARGEST_CLASS_BYTES}"));
    }
}

fn flash(cache: &CacheConfig, at: &str, findings: &mut Findings) {
    let mut refuse = |broken: bool, key: &str, message: &str| {
        if broken {
            findings.problem(&join(at, key), message);
        }
    };
    let bucket = cache.navy_bucket_bytes;
    let block = cache.navy_block_bytes;
    refuse(!block.is_power_of_two() || block < 512, "navyBlockSize", "must be a power of two, at least 512");
    refuse(!(1..=1024).contains(&cache.navy_region_mib), "navyRegionSizeMB", "must be 1 to 1024");
    refuse(cache.navy_big_hash_percent > 100, "navyBigHashSizePct", "must be 0 to 100");
    refuse(!bucket.is_power_of_two(), "navyBigHashBucketSize", "must be a power of two");
    refuse(
        !(1..=2048).contains(&cache.small_item_log_item_bytes),
        "navySmallItemLogItemSize",
        "must be 1 to 2048 bytes",
    );
    refuse(
        cache.small_item_log_readmission_percent > 90,
        "navySmallItemLogReadmissionPct",
        "must be 0 to 90",
    );
    let small = cache.navy_small_item_max_bytes;
    refuse(
        cache.navy_big_hash_percent > 0 && small >= bucket,
        "navySmallItemMaxSize",
        "must be below navyBigHashBucketSize: a bucket holds whole items",
    );
    let both = cache.navy_hits_reinsertion > 0 && cache.navy_probability_reinsertion > 0;
    refuse(
        both,
        "navyHitsReinsertionThreshold",
        "cannot be combined with navyProbabilityReinsertionThreshold",
    );
    refuse(
        cache.navy_probability_reinsertion > 100,
        "navyProbabilityReinsertionThreshold",
        "must be 0 to 100",
    );
    let one_of_two = (cache.navy_max_reads == 0) != (cache.navy_max_writes == 0);
    refuse(
        one_of_two,
        "navyMaxNumReads",
        "navyMaxNumReads and navyMaxNumWrites must both be 0 or both above 0",
    );
    refuse(cache.navy_clean_regions == 0, "navyCleanRegions", "must be at least 1");
    refuse(
        cache.navy_segment_ratio.contains(&0),
        "navySegmentedFifoSegmentRatio",
        "a segment's share must be above 0",
    );
    refuse(cache.device_max_write_bytes == 0, "deviceMaxWriteSize", "must be above 0");
    admission(cache, at, findings);
    arenas(cache, at, findings);
    one_of(&cache.small_item_engine, &SMALL_ITEM_ENGINES, &join(at, "navySmallItemEngine"), findings);
    one_of(&cache.recover_after, &RECOVER_AFTER, &join(at, "navyRecoverAfter"), findings);
    region_policy(cache, at, findings);
}

fn region_policy(cache: &CacheConfig, at: &str, findings: &mut Findings) {
    for name in &cache.placement_handles {
        one_of(name, &PLACEMENT_HANDLES, &join(at, "devicePlacementHandles"), findings);
    }
    if cache.region_policy.is_empty() {
        return;
    }
    one_of(&cache.region_policy, &REGION_POLICIES, &join(at, "navyRegionPolicy"), findings);
    let settings = &cache.region_policy_config;
    let inside = join(at, "navyRegionPolicyConfig");
    let mut refuse = |broken: bool, at: String, message: &str| {
        if broken {
            findings.problem(&at, message);
        }
    };
    let alone = cache.navy_segment_ratio.is_empty();
    refuse(!alone, join(at, "navyRegionPolicy"), "cannot be combined with navySegmentedFifoSegmentRatio");
    let reinserts = cache.navy_hits_reinsertion > 0 || cache.navy_probability_reinsertion > 0;
    let decides = matches!(cache.region_policy.as_str(), "mcdipper-lru" | "ripq" | "sipq");
    refuse(
        reinserts && decides,
        join(at, "navyRegionPolicy"),
        "this policy has its own reinsertion rule; remove the reinsertion threshold",
    );
    refuse(!(1..=1024).contains(&settings.block_mib), join(&inside, "blockMB"), "must be 1 to 1024");
    refuse(!(1..=255).contains(&settings.segments), join(&inside, "segments"), "must be 1 to 255");
    let points = 1..=cache::config::regions::MAX_POINTS as u64;
    refuse(!points.contains(&settings.insertion_points), join(&inside, "insertionPoints"), "must be 1 to 16");
    for (key, share) in [
        ("hotBlockRatio", settings.hot_block_ratio),
        ("reinsertionTarget", settings.reinsertion_target),
        ("coldBlockRatio", settings.cold_block_ratio),
        ("movingAverage", settings.moving_average),
        ("deadBlockRatio", settings.dead_block_ratio),
    ] {
        refuse(!(0.0..=1.0).contains(&share), join(&inside, key), "must be 0 to 1");
    }
    if let Err(unknown) = settings.caching.parse::<cache::config::regions::Caching>() {
        findings.problem(&join(&inside, "caching"), unknown.to_string());
    }
}

fn admission(cache: &CacheConfig, at: &str, findings: &mut Findings) {
    let at_key = join(at, "flashAdmission");
    let (name, argument) = cache.flash_admission.split_once(':').unwrap_or((&cache.flash_admission, ""));
    if cache.flash_admission.contains(':') && ["always", "dynamic-random", "reject-first"].contains(&name) {
        findings.problem(&at_key, format!("`{name}` takes no argument after a colon"));
    }
    let has_rate = cache.has_flash() && cache.navy_admission_mib_per_second > 0;
    if has_rate && ["always", "probability", "reject-first"].contains(&name) {
        let message = format!("is ignored: flashAdmission is `{name}`, which does not use a rate");
        findings.warning(&join(at, "navyAdmissionWriteRateMB"), message);
    }
    match name {
        "" | "always" | "reject-first" => {}
        "dynamic-random" => {
            if cache.navy_admission_mib_per_second == 0 {
                findings.problem(&at_key, "dynamic-random needs a rate in navyAdmissionWriteRateMB");
            }
        }
        "probability" => {
            if !argument.parse::<f64>().is_ok_and(|chance| (0.0..=1.0).contains(&chance)) {
                findings.problem(&at_key, "expected probability:P with P from 0 to 1");
            }
        }
        other => {
            one_of(other, &ADMISSIONS, &at_key, findings);
        }
    }
}

fn arenas(cache: &CacheConfig, at: &str, findings: &mut Findings) {
    let arenas = &cache.navy_arenas;
    if arenas.is_empty() {
        return;
    }
    let at = join(at, "navyArenas");
    let names_differ = arenas
        .iter()
        .enumerate()
        .all(|(i, a)| !a.name.is_empty() && arenas[..i].iter().all(|b| a.name != b.name));
    if arenas.len() < 2 || !names_differ {
        findings.problem(&at, "needs at least two arenas with different names");
    }
    let sum = arenas.iter().fold(0_u64, |sum, arena| sum.saturating_add(arena.size_percent));
    if sum != 100 || arenas.iter().any(|arena| arena.size_percent == 0 || arena.big_hash_percent > 99) {
        findings.problem(
            &at,
            format!("sizePct must be above 0 and add up to 100 (it is {sum}), bigHashPct at most 99"),
        );
    }
}

fn test(test: &TestConfig, cache: &CacheConfig, at: &str, findings: &mut Findings) {
    if !test.generator.is_empty() {
        one_of(&test.generator, &GENERATORS, &join(at, "generator"), findings);
    }
    if !test.name.is_empty() {
        one_of(&test.name, &STRESSORS, &join(at, "name"), findings);
    }
    one_of(
        &test.replay.serialization,
        &SERIALIZATIONS,
        &join(at, "replayGeneratorConfig.replaySerializationMode"),
        findings,
    );
    for (number, op) in test.replay_ops.iter().enumerate() {
        one_of(op, &REPLAY_OPS, &join(at, &format!("replayOps[{number}]")), findings);
    }
    sweeps::check(test, at, findings);
    learned::check(test, at, findings);
    check_supported(test, at, findings);
    let mut refuse = |broken: bool, key: &str, message: &str| {
        let at = join(at, key);
        // A value of the wrong type was reported already, and is the default here.
        let refused = findings.problems.iter().any(|problem| problem.at == at);
        if broken && !refused {
            findings.problem(&at, message);
        }
    };
    let replay = test.generator.ends_with("replay");
    let both = !test.trace_file.is_empty() && !test.trace_files.is_empty();
    refuse(both, "traceFileName", "cannot be combined with traceFileNames");
    refuse(
        replay && !test.names_binary_trace() && test.trace_file.is_empty() && test.trace_files.is_empty(),
        "traceFileName",
        "is missing: there is nothing to replay",
    );
    refuse(
        replay && test.check_consistency,
        "checkConsistency",
        "must be false in a replay: a trace has no values to compare",
    );
    // A task that waits for the trace's next rows would block the other tasks of its thread.
    refuse(
        replay && test.name == "async",
        "name",
        "`async` is only for generators of requests, not for replays",
    );
    refuse(test.timestamp_factor == 0, "timestampFactor", "must be above 0");
    refuse(test.replay.amplification == 0, "replayGeneratorConfig.ampFactor", "must be at least 1");
    refuse(!(0.0..=1.0).contains(&test.compressibility), "valueCompressibility", "must be 0 to 1");
    refuse(!(0.0..=1.0).contains(&test.dedup_ratio), "valueDedupRatio", "must be 0 to 1");
    if runs_here(test) {
        refuse(test.threads > MAX_THREADS, "numThreads", &format!("must be at most {MAX_THREADS}"));
        refuse(test.threads == 0, "numThreads", "is 0 or missing: nothing would run");
        refuse(test.ops_per_thread == 0, "numOps", "is 0 or missing: nothing would run");
    }
    let pools = cache.pool_count;
    let pools_in_use = test.needs_distribution();
    let op_pools = test.op_pools.len() as u64;
    refuse(
        pools_in_use && (op_pools > pools || op_pools == 0),
        "opPoolDistribution",
        &format!("has {op_pools} share(s) for numPools {pools}"),
    );
    refuse(
        pools_in_use && test.key_pools.len() as u64 != pools,
        "keyPoolDistribution",
        &format!("has {} share(s) for numPools {pools}", test.key_pools.len()),
    );
    refuse(pools_in_use && test.key_count == 0, "numKeys", "is 0 or missing: there is nothing to request");
    let in_use = matches!(test.generator.as_str(), "replay" | "binary-replay");
    refuse(
        !in_use && !test.replay.binary_file.is_empty(),
        "replayGeneratorConfig.binaryFileName",
        "only for the generators `replay`, which writes it, and `binary-replay`, which reads it",
    );
    if pools_in_use && (1..pools).contains(&op_pools) {
        let message = format!(
            "has {op_pools} share(s) for numPools {pools}: the other pools get no requests, as in CacheBench"
        );
        findings.warning(&join(at, "opPoolDistribution"), message);
    }
    cuts::check(test, at, findings);
    arrivals(test, at, findings);
    check_run_limits(test, cache, at, findings);
}

/// Checks the keys that end a run or its warm-up.
fn check_run_limits(test: &TestConfig, cache: &CacheConfig, at: &str, findings: &mut Findings) {
    let mut refuse = |broken: bool, key: &str, message: &str| {
        if broken {
            findings.problem(&join(at, key), message);
        }
    };
    let no_flash = !cache.has_flash();
    let message = "only for a cache with flash, and nvmCacheSizeMB is 0";
    refuse(no_flash && test.max_flash_mib > 0, "maxFlashWriteMB", message);
    refuse(no_flash && test.warmup_flash_mib > 0, "warmupFlashWriteMB", message);
    let limit = test.max_flash_mib;
    refuse(
        limit > 0 && test.warmup_flash_mib >= limit,
        "warmupFlashWriteMB",
        "must be below maxFlashWriteMB, or the figures cover no requests",
    );
    let all = test.ops_per_thread > 0 && test.warmup_ops >= test.ops_per_thread;
    refuse(all, "warmupOps", "must be below numOps, or the figures cover no requests");
    refuse(test.trace_loops > 0 && test.needs_distribution(), "traceLoops", "only for replays");
    check_flash_warmup(test, no_flash, at, findings);
}

/// Checks `checkNvmCacheWarmUp` and its thresholds.
fn check_flash_warmup(test: &TestConfig, no_flash: bool, at: &str, findings: &mut Findings) {
    if !test.check_warmup {
        return;
    }
    let at_policy = join(at, "nvmCacheWarmupCheckPolicy");
    let by_time = test.warmup_policy.timestamp > 0;
    if by_time && test.needs_distribution() {
        let message = "only for replays: a generator has no timestamps";
        findings.problem(&join(&at_policy, "requestTimestampThreshold"), message);
    }
    let message = "has no effect: nvmCacheSizeMB is 0, there is no flash";
    if no_flash && !by_time {
        findings.warning(&join(at, "checkNvmCacheWarmUp"), message);
    } else if no_flash && test.warmup_policy.eviction_count > 0 {
        findings.warning(&join(&at_policy, "evictionCountThreshold"), message);
    }
}

/// Checks the keys of an open loop, and keys that need a closed one.
fn arrivals(test: &TestConfig, at: &str, findings: &mut Findings) {
    one_of(&test.arrivals, &ARRIVALS, &join(at, "arrivals"), findings);
    if test.trace_speed != 0.0 {
        return check_trace_speed(test, at, findings);
    }
    if test.arrivals.eq_ignore_ascii_case("closed") {
        return;
    }
    let mut refuse = |broken: bool, key: &str, message: &str| {
        if broken {
            findings.problem(&join(at, key), message);
        }
    };
    refuse(test.rate_per_second == 0, "arrivals", "needs a rate in opRatePerSec");
    refuse(
        test.rate_burst > 0,
        "opRateBurstSize",
        "only for `closed` arrivals: an open loop does not wait for answers",
    );
    let delayed = test.delay_batch > 0 && test.delay_ns > 0;
    refuse(delayed, "opDelayNs", "only for `closed` arrivals: an open loop does not wait for answers");
    let by_key = REPLAYS.contains(&test.generator.as_str()) && test.replay.serialization == "strict";
    refuse(
        by_key,
        "arrivals",
        "cannot keep its rate if each thread has its own keys: set replayGeneratorConfig.replaySerializationMode to `none`",
    );
}

fn check_trace_speed(test: &TestConfig, at: &str, findings: &mut Findings) {
    let mut refuse = |broken: bool, message: &str| {
        if broken {
            findings.problem(&join(at, "traceSpeed"), message);
        }
    };
    let closed = test.arrivals.eq_ignore_ascii_case("closed");
    let delayed = test.delay_batch > 0 && test.delay_ns > 0;
    refuse(test.trace_speed < 0.0, "must be 0 or more");
    refuse(test.needs_distribution(), "only for replays: a generator has no timestamps");
    refuse(!closed, "cannot be combined with arrivals: the trace sets the times of requests");
    refuse(
        test.rate_per_second > 0,
        "cannot be combined with opRatePerSec: the trace sets the times of requests",
    );
    refuse(delayed, "cannot be combined with opDelayNs: the trace sets the times of requests");
}

fn check_supported(test: &TestConfig, at: &str, findings: &mut Findings) {
    let feature = match test.generator.as_str() {
        "simple-flash-benchmark" => "simple flash benchmark",
        _ => "",
    };
    if !feature.is_empty() {
        findings.later(&join(at, "generator"), feature);
    }
}

fn lengths(instance: &InstanceConfig, at: &str, findings: &mut Findings) {
    let count = instance.test.pool_distributions.len() as u64;
    let pools = instance.cache.pool_count;
    if count > 1 && count != pools {
        let message =
            format!("has {count} distributions for numPools {pools}; give one for all, or one for each");
        findings.problem(&join(at, "poolDistributions"), message);
    }
}

fn one_of(name: &str, names: &[&str], at: &str, findings: &mut Findings) {
    if names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return;
    }
    let message = match nearest(name, names.iter().copied()) {
        Some(near) => format!("unknown name `{name}`; did you mean `{near}`?"),
        None => format!("unknown name `{name}`; known are {}", names.join(", ")),
    };
    findings.problem(at, message);
}
