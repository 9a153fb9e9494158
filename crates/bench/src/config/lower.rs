//! Converts a config as typed to a plan for the run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cache::config::LogOptions;
use cache::{RecoverAfter, SmallItems};
use workload::RequestKind;
use workload::generate::{self, BucketRule, GeneratorConfig, Mix, PoolConfig, Popularity, Table};
use workload::trace::Cut;

use super::amounts::{mib, narrow};
use super::cachebench::{Config, ConfigError};
use super::check;
use super::findings::{Diagnostic, join};
use super::instance::InstanceConfig;
use super::keys::{CacheConfig, Distribution, TestConfig};
use super::names;
use super::plan::{
    AdmissionPlan, ArrivalsPlan, CachePlan, ClassesPlan, DestructorPlan, EventsPlan, EvictionPlan, FlashPlan,
    InstancePlan, LearnedPlan, LimitsPlan, ObjectsPlan, RebalancePlan, RebalanceStrategy, ReplayPlan,
    RunPlan, RunSettings, SizeLimitPlan, StressorPlan, SweepPlan, TraceFormat, WarmupPlan, WorkloadPlan,
};
use super::region_policy;
use crate::run::objects;

/// Number of workers of CacheBench's `high_refcount`.
const REFERENCE_WORKERS: usize = 10_000;

/// Converts a checked config to a plan.
///
/// # Errors
/// A feature that is not supported, a trace file that does not exist, or a number that is too large.
pub fn lower(config: &Config) -> Result<RunPlan, ConfigError> {
    let plan = lower_without_traces(config)?;
    refuse_missing(config)?;
    Ok(plan)
}

/// Like [`lower`], but accepts traces that do not exist yet.
///
/// # Errors
/// As [`lower`], except for missing traces.
pub fn lower_without_traces(config: &Config) -> Result<RunPlan, ConfigError> {
    refuse_later(config)?;
    let mut problems = Vec::new();
    let instances = config.instances.iter().filter_map(|instance| {
        lower_instance(instance)
            .map_err(|message| problems.push(Diagnostic { at: instance.at.clone(), message }))
            .ok()
    });
    let instances: Vec<_> = instances.collect();
    let plan = RunPlan { instances, card: config.card.clone() };
    refuse(config, problems)?;
    Ok(plan)
}

fn refuse_later(config: &Config) -> Result<(), ConfigError> {
    refuse(config, config.later.iter().map(unsupported).collect())
}

/// The error for a key that needs a feature which is not supported.
#[must_use]
pub fn unsupported(later: &Diagnostic) -> Diagnostic {
    let Diagnostic { at, message: feature } = later;
    let message = if at.ends_with(".generator") {
        format!("needs {feature}, which is not supported yet; known are workload, online and the replays")
    } else {
        format!("needs {feature}, which is not supported yet; --set {at}=null runs without it")
    };
    Diagnostic { at: at.clone(), message }
}

fn refuse_missing(config: &Config) -> Result<(), ConfigError> {
    refuse(config, missing_traces(config))
}

fn refuse(config: &Config, problems: Vec<Diagnostic>) -> Result<(), ConfigError> {
    if problems.is_empty() { Ok(()) } else { Err(ConfigError { file: config.file.clone(), problems }) }
}

/// The binary traces that `config` writes instead of running: the replay that is converted, and the path. Empty if the config
/// is a run.
///
/// # Errors
/// A missing trace, or a config with both runs and conversions.
pub fn binary_traces(config: &Config) -> Result<Vec<(ReplayPlan, PathBuf)>, ConfigError> {
    if !config.instances.iter().any(|instance| instance.test.writes_binary_trace()) {
        return Ok(Vec::new());
    }
    refuse_later(config)?;
    refuse_missing(config)?;
    let lowered = |instance: &InstanceConfig| {
        let at = join(&instance.at, "test_config.replayGeneratorConfig.binaryFileName");
        let failed = |message: String| ConfigError {
            file: config.file.clone(),
            problems: vec![Diagnostic { at: at.clone(), message }],
        };
        if !instance.test.writes_binary_trace() {
            return Err(failed("is missing: another instance writes a binary trace, so all must".to_owned()));
        }
        let plan = replay(instance).map_err(failed)?;
        Ok((plan, instance.directory.join(&instance.test.replay.binary_file)))
    };
    config.instances.iter().map(lowered).collect()
}

fn lower_instance(instance: &InstanceConfig) -> Result<InstancePlan, String> {
    Ok(InstancePlan {
        cache: cache(&component_as_cache(&instance.cache), &instance.test)?,
        workload: workload(instance)?,
        run: run(&instance.test, &instance.cache)?,
    })
}

/// A cache component of CacheBench is one tier. `RAM` is a cache without flash. For a flash component `cacheSizeMB` is the size
/// of flash, and the engine gets a small DRAM cache in front: the larger of 64 MiB and 1/64 of flash, but at most a quarter of
/// flash, so that DRAM does not serve everything.
fn component_as_cache(typed: &CacheConfig) -> CacheConfig {
    let mut cache = typed.clone();
    match typed.allocator.as_str() {
        "RAM" => cache.allocator = "LRU".to_owned(),
        "flash" | "consistent_flash" => {
            cache.allocator = "LRU".to_owned();
            cache.nvm_size_mib = typed.cache_size_mib;
            let usual = (typed.cache_size_mib / 64).max(64);
            cache.cache_size_mib = usual.min(typed.cache_size_mib.div_ceil(4));
        }
        _ => {}
    }
    cache
}

fn cache(typed: &CacheConfig, test: &TestConfig) -> Result<CachePlan, String> {
    if test.name == names::OBJECT_CACHE {
        return object_cache(typed);
    }
    cache_of_items(typed)
}

/// A cache of fixed-size items that represent objects, with enough DRAM for the maximum number of objects.
fn object_cache(typed: &CacheConfig) -> Result<CachePlan, String> {
    let mut plan = cache_of_items(typed)?;
    let mut objects = ObjectsPlan {
        max_objects: typed.custom.l1_entries,
        max_key_bytes: typed.custom.max_key_bytes,
        tracks_bytes: typed.custom.size_tracking,
        size_limit: (typed.custom.total_object_bytes > 0).then(|| SizeLimitPlan {
            bytes: typed.custom.total_object_bytes,
            interval: Duration::from_millis(typed.custom.size_interval_ms),
        }),
    };
    let item_bytes = objects::item_bytes(&objects);
    if objects.max_objects == 0 {
        objects.max_objects = (plan.dram_bytes / u64::from(item_bytes)).max(1);
    }
    plan.dram_bytes = objects::dram_bytes(&objects);
    plan.classes.explicit_bytes = vec![item_bytes];
    plan.objects = Some(objects);
    Ok(plan)
}

fn cache_of_items(typed: &CacheConfig) -> Result<CachePlan, String> {
    let explicit: Result<Vec<u32>, String> =
        typed.alloc_sizes_bytes.iter().map(|bytes| narrow(*bytes, "cache_config.allocSizes")).collect();
    Ok(CachePlan {
        dram_bytes: mib(typed.cache_size_mib, "cache_config.cacheSizeMB")?,
        pool_shares: typed.pool_shares.clone(),
        classes: ClassesPlan {
            factor: typed.alloc_factor,
            min_bytes: narrow(typed.min_alloc_bytes, "cache_config.minAllocSize")?,
            max_bytes: narrow(typed.max_alloc_bytes, "cache_config.maxAllocSize")?,
            explicit_bytes: explicit?,
        },
        eviction: EvictionPlan {
            policy: typed.allocator.clone(),
            refresh_seconds: narrow(typed.lru_refresh_seconds, "cache_config.lruRefreshSec")?,
            update_on_read: typed.lru_update_on_read,
            insertion_point: narrow(typed.lru_insertion_point, "cache_config.lruIpSpec")?,
            hot_percent: narrow(typed.lru2q_hot_percent, "cache_config.lru2qHotPct")?,
            cold_percent: narrow(typed.lru2q_cold_percent, "cache_config.lru2qColdPct")?,
        },
        rebalance: rebalance(typed)?,
        flash: (typed.nvm_size_mib > 0).then(|| flash(typed)).transpose()?,
        persist_dir: (!typed.cache_dir.is_empty()).then(|| PathBuf::from(&typed.cache_dir)),
        events: (!typed.event_file.is_empty()).then(|| events(typed)).transpose()?,
        destructor: destructor(typed),
        objects: None,
    })
}

fn events(typed: &CacheConfig) -> Result<EventsPlan, String> {
    Ok(EventsPlan {
        file: PathBuf::from(&typed.event_file),
        one_in: typed.event_sampling,
        queue: narrow::<u32>(typed.event_queue, "cache_config.eventTrackerQueueSize")? as usize,
    })
}

fn rebalance(typed: &CacheConfig) -> Result<Option<RebalancePlan>, String> {
    if typed.pool_rebalance_interval_seconds == 0 {
        return Ok(None);
    }
    Ok(Some(RebalancePlan {
        interval: Duration::from_secs(typed.pool_rebalance_interval_seconds),
        strategy: match typed.rebalance_strategy.to_ascii_lowercase().as_str() {
            "tail-age" => RebalanceStrategy::TailAge,
            "hits" => RebalanceStrategy::Hits,
            _ => RebalanceStrategy::Random,
        },
        min_slabs: narrow(typed.rebalance_min_slabs, "cache_config.rebalanceMinSlabs")?,
        diff_ratio: typed.rebalance_diff_ratio,
        move_items: typed.move_on_slab_release,
    }))
}

fn flash(typed: &CacheConfig) -> Result<FlashPlan, String> {
    let (region_bytes, region_key) = region_policy::region_bytes(typed)?;
    let mut paths: Vec<PathBuf> = typed.nvm_paths.iter().map(PathBuf::from).collect();
    // Sorted as in CacheBench, so that the stripe does not depend on the order in the config.
    paths.sort();
    // Accepts `nvme0n1` and `/dev/nvme0n1`.
    let in_dev = |name: &String| Path::new("/dev").join(name);
    let mut listed_drives: Vec<PathBuf> = typed.write_amp_devices.iter().map(in_dev).collect();
    listed_drives.sort();
    listed_drives.dedup();
    Ok(FlashPlan {
        bytes_per_device: per_device_bytes(typed, region_bytes)?,
        paths,
        listed_drives,
        block_bytes: narrow(typed.navy_block_bytes, "cache_config.navyBlockSize")?,
        region_bytes,
        region_key,
        pairs: pairs(typed)?,
        bucket_bytes: narrow(typed.navy_bucket_bytes, "cache_config.navyBigHashBucketSize")?,
        filter_bytes: narrow(typed.navy_bloom_bytes, "cache_config.navyBloomFilterPerBucketSize")?,
        small_item_max_bytes: narrow(typed.navy_small_item_max_bytes, "cache_config.navySmallItemMaxSize")?,
        small_items: small_items(typed)?,
        recover_after: recover_after(typed),
        clean_regions: narrow(typed.navy_clean_regions, "cache_config.navyCleanRegions")?,
        order: region_policy::order(typed)?,
        admission: admission(typed)?,
        reinsertion: region_policy::reinsertion(typed)?,
        value_checksums: typed.navy_data_checksum,
        max_write_bytes: narrow(typed.device_max_write_bytes, "cache_config.deviceMaxWriteSize")?,
        min_ttl_seconds: narrow(typed.memory_only_ttl_seconds, "cache_config.memoryOnlyTTL")?,
        retention_seconds: narrow(
            typed.retention_seconds,
            "cache_config.nvmAdmissionRetentionTimeThreshold",
        )?,
        allow_buffered: typed.flash_buffered,
        placement: typed.device_fdp,
        placement_extras: region_policy::placement_extras(typed),
        transfers_at_once: region_policy::transfers_at_once(typed)?,
        write_whole: region_policy::write_whole(typed),
        pending_divisor: 1,
    })
}

fn small_items(typed: &CacheConfig) -> Result<SmallItems, String> {
    if typed.small_item_engine != "log" {
        return Ok(SmallItems::Sets);
    }
    let item_bytes = typed.small_item_log_item_bytes;
    Ok(SmallItems::Log(LogOptions {
        expected_item_bytes: narrow(item_bytes, "cache_config.navySmallItemLogItemSize")?,
        readmission_share: typed.small_item_log_readmission_percent as f64 / 100.0,
        ..LogOptions::default()
    }))
}

/// Unknown names were refused.
fn recover_after(typed: &CacheConfig) -> RecoverAfter {
    match typed.recover_after.as_str() {
        "kill" => RecoverAfter::Kill,
        "power-loss" => RecoverAfter::PowerLoss,
        _ => RecoverAfter::CleanClose,
    }
}

/// Engine pairs of the arenas; without arenas one pair has all of flash.
fn pairs(typed: &CacheConfig) -> Result<Vec<(u8, u8)>, String> {
    if typed.navy_arenas.is_empty() {
        return Ok(vec![(100, narrow(typed.navy_big_hash_percent, "cache_config.navyBigHashSizePct")?)]);
    }
    let key = "cache_config.navyArenas";
    typed
        .navy_arenas
        .iter()
        .map(|it| Ok((narrow(it.size_percent, key)?, narrow(it.big_hash_percent, key)?)))
        .collect()
}

/// One device is used whole. Each of several is rounded down to whole regions, because a stripe is one region.
fn per_device_bytes(typed: &CacheConfig, region_bytes: u32) -> Result<u64, String> {
    let bytes = mib(typed.nvm_size_mib, "cache_config.nvmCacheSizeMB")?;
    let stripe = u64::from(region_bytes);
    let bytes = if typed.nvm_paths.len() > 1 { bytes / stripe * stripe } else { bytes };
    if bytes == 0 {
        Err("cache_config.nvmCacheSizeMB: is less than one region per device".to_owned())
    } else {
        Ok(bytes)
    }
}

fn admission(typed: &CacheConfig) -> Result<AdmissionPlan, String> {
    let rate = typed.navy_admission_mib_per_second;
    let plan = match typed.flash_admission.split_once(':').unwrap_or((&typed.flash_admission, "")) {
        ("probability", chance) => {
            AdmissionPlan::Probability(chance.parse().expect("checked when it was read"))
        }
        ("reject-first", _) => AdmissionPlan::RejectFirst,
        ("" | "dynamic-random", _) if rate > 0 => AdmissionPlan::DynamicRandom {
            bytes_per_second: mib(rate, "cache_config.navyAdmissionWriteRateMB")?,
        },
        _ => AdmissionPlan::Always,
    };
    Ok(plan)
}

fn destructor(typed: &CacheConfig) -> DestructorPlan {
    match (typed.item_destructor_check, typed.item_destructor) {
        (true, _) => DestructorPlan::Checked,
        (_, true) => DestructorPlan::Counted,
        _ => DestructorPlan::None,
    }
}

fn run(test: &TestConfig, cache: &CacheConfig) -> Result<RunSettings, String> {
    let arrivals = arrivals(test);
    let closed = !arrivals.is_open();
    let checks_flash = test.check_warmup && cache.has_flash();
    let burst = if test.rate_burst == 0 { test.rate_per_second } else { test.rate_burst };
    Ok(RunSettings {
        threads: workers(test)?,
        // `high_refcount` has thousands of mostly idle workers, so they are tasks.
        tasks: test.name == "async" || test.name == StressorPlan::References.name(),
        ops_per_thread: test.ops_per_thread,
        delay: (test.delay_batch > 0 && test.delay_ns > 0).then_some((test.delay_batch, test.delay_ns)),
        rate: (closed && test.rate_per_second > 0).then_some((test.rate_per_second, burst)),
        arrivals,
        warmup: WarmupPlan {
            ops_per_thread: test.warmup_ops,
            seconds: test.warmup_seconds,
            flash_bytes: mib(test.warmup_flash_mib, "test_config.warmupFlashWriteMB")?,
            flash_evictions: if checks_flash { test.warmup_policy.eviction_count } else { 0 },
            trace_seconds: test.warm_at_trace_seconds(),
        },
        limits: LimitsPlan {
            flash_bytes: mib(test.max_flash_mib, "test_config.maxFlashWriteMB")?,
            steady_round_ops: test.steady_round_ops,
        },
        lookaside: test.lookaside,
        only_set_if_miss: test.only_set_if_miss,
        touch_value: test.touch_value,
        populate: test.populate_item,
        check_consistency: test.check_consistency,
        max_inconsistencies: test.max_inconsistencies,
        zeros_percent: (test.compressibility * 100.0).round() as u8,
        repeated_percent: (test.dedup_ratio * 100.0).round() as u8,
        sweeps: sweeps(test),
        print_flash_counters: cache.print_nvm_counters,
    })
}

/// Number of workers. CacheBench's stressors with their own requests set it themselves; here `numThreads` overrides it.
fn workers(test: &TestConfig) -> Result<usize, String> {
    let given = narrow::<u32>(test.threads, "test_config.numThreads")? as usize;
    Ok(match StressorPlan::named(&test.name) {
        Some(StressorPlan::FastShutdown) => 1,
        Some(StressorPlan::References) if given == 0 => REFERENCE_WORKERS,
        Some(StressorPlan::Map | StressorPlan::RangeMap) if given == 0 => {
            std::thread::available_parallelism().map_or(1, usize::from)
        }
        _ => given,
    })
}

fn sweeps(test: &TestConfig) -> Option<SweepPlan> {
    let is = |mode: &str| test.iterator_mode.eq_ignore_ascii_case(mode);
    (!is("disabled")).then(|| SweepPlan {
        mode: if is("lock_group") { "lock_group" } else { "regular" },
        interval: Duration::from_millis(test.iterator_interval_ms),
        sleep: Duration::from_millis(test.iterator_sleep_ms),
        work: Duration::from_millis(test.iterator_work_ms),
    })
}

fn arrivals(test: &TestConfig) -> ArrivalsPlan {
    let per_second = test.rate_per_second;
    if test.trace_speed > 0.0 {
        return ArrivalsPlan::Trace { speed: test.trace_speed };
    }
    match test.arrivals.to_ascii_lowercase().as_str() {
        "uniform" => ArrivalsPlan::Uniform { per_second },
        "poisson" => ArrivalsPlan::Poisson { per_second },
        _ => ArrivalsPlan::Closed,
    }
}

fn workload(instance: &InstanceConfig) -> Result<WorkloadPlan, String> {
    let test = &instance.test;
    if let Some(stressor) = StressorPlan::named(&test.name) {
        return Ok(WorkloadPlan::Stressor(stressor));
    }
    match test.generator.as_str() {
        name if names::REPLAYS.contains(&name) => {
            replay(instance).map(|plan| WorkloadPlan::Replay(Box::new(plan)))
        }
        "online" => generator(instance).map(WorkloadPlan::Online),
        _ => {
            let ops = test.ops_per_thread.saturating_mul(test.threads);
            Ok(WorkloadPlan::Prepared { config: generator(instance)?, ops })
        }
    }
}

/// Reports traces that do not exist. The config itself is valid: its trace may be made later.
#[must_use]
pub fn missing_traces(config: &Config) -> Vec<Diagnostic> {
    let replays = |instance: &&InstanceConfig| names::REPLAYS.contains(&instance.test.generator.as_str());
    let missing = |instance: &InstanceConfig| {
        let (key, files) = trace_files(instance);
        let at = join(&instance.at, &format!("test_config.{key}"));
        let gone = files.into_iter().filter(|file| !file.exists());
        let value = if key.ends_with("Names") { "'[\"FILE\"]'" } else { "FILE" };
        let absent = |file: PathBuf| {
            format!("{} does not exist; name another with --set {at}={value}", file.display())
        };
        gone.map(|file| Diagnostic { at: at.clone(), message: absent(file) }).collect::<Vec<_>>()
    };
    config.instances.iter().filter(replays).flat_map(missing).collect()
}

/// The trace files of a replay, and the key that names them.
pub(super) fn trace_files(instance: &InstanceConfig) -> (&'static str, Vec<PathBuf>) {
    let test = &instance.test;
    let (key, single, several) = match test.names_binary_trace() {
        true => ("replayGeneratorConfig.binaryFileName", &test.replay.binary_file, &[][..]),
        false if test.trace_file.is_empty() && !test.trace_files.is_empty() => {
            ("traceFileNames", &test.trace_file, &test.trace_files[..])
        }
        false => ("traceFileName", &test.trace_file, &test.trace_files[..]),
    };
    let single = std::slice::from_ref(single).iter().filter(|name| !name.is_empty());
    (key, single.chain(several).map(|name| instance.directory.join(name)).collect())
}

fn replay(instance: &InstanceConfig) -> Result<ReplayPlan, String> {
    let test = &instance.test;
    let (key, files) = trace_files(instance);
    // A missing file is reported elsewhere.
    if let Some(wrong) = files.iter().find(|file| file.exists() && !file.is_file()) {
        return Err(format!("test_config.{key}: {} is not a file", wrong.display()));
    }
    let (format, cut) = trace_kind(test);
    Ok(ReplayPlan {
        named_by: key,
        files,
        format,
        cut,
        amplification: narrow(test.replay.amplification, "test_config.replayGeneratorConfig.ampFactor")?,
        cachebench_amplification: test.replay.cachebench_amplification,
        size_amplification: narrow(
            test.replay.size_amplification,
            "test_config.replayGeneratorConfig.ampSizeFactor",
        )?,
        ttl_seconds: times_to_live(&instance.pools[0])?,
        fast_forward: test.replay.fast_forward,
        loops: match (test.trace_loops, test.repeat_trace) {
            (0, true) => None,
            (loops, _) => Some(loops.max(1)),
        },
        ops: (!test.replay_ops.is_empty()).then(|| replay_ops(&test.replay_ops)),
        ignore_op_count: test.ignore_op_count,
        strict_order: test.replay.serialization == "strict",
        timed: test.trace_speed > 0.0,
        clock_follows: instance.cache.use_trace_timestamp,
        warms_by_time: test.warm_at_trace_seconds() > 0,
        miss_trace: instance.miss_trace(),
        time_units_per_second: instance.time_units_per_second(),
        learned: learned(instance),
    })
}

/// Converts names that were checked when the config was read.
fn replay_ops(names: &[String]) -> Vec<RequestKind> {
    let kind = |name: &String| match name.to_ascii_uppercase().as_str() {
        "GET" => RequestKind::Get,
        "SET" => RequestKind::Set,
        _ => RequestKind::Delete,
    };
    names.iter().map(kind).collect()
}

fn learned(instance: &InstanceConfig) -> Option<Box<LearnedPlan>> {
    let typed = &instance.test.replay.ml_admission;
    let plan = || LearnedPlan {
        model: instance.directory.join(&typed.model),
        features: check::features(typed),
        admitted_class: typed.category,
        target_recall: typed.recall,
    };
    (!typed.model.is_empty()).then(|| Box::new(plan()))
}

/// TTLs of rows without one.
fn times_to_live(typed: &Distribution) -> Result<Option<Table>, String> {
    let ttl = optional_table(&typed.ttl_seconds, &typed.ttl_weights);
    match ttl.as_ref().map(Table::sizes) {
        Some(Err(problem)) => Err(format!("test_config.ttlSecsRange: {problem}")),
        _ => Ok(ttl),
    }
}

/// Format of a trace, and the pieces of its requests.
fn trace_kind(test: &TestConfig) -> (TraceFormat, Cut) {
    let replay = &test.replay;
    match test.generator.as_str() {
        "piecewise-replay" => (
            TraceFormat::Named("cdn".to_owned()),
            Cut::Pieces { piece_bytes: test.piece_bytes, most: test.max_pieces },
        ),
        "block-replay" => {
            let (chunk_bytes, block_bytes) = (replay.chunk_kib << 10, replay.block_kib << 10);
            (TraceFormat::Named("storage".to_owned()), Cut::Chunks { chunk_bytes, block_bytes })
        }
        "binary-replay" => (TraceFormat::Binary, Cut::Pages),
        _ if replay.format.eq_ignore_ascii_case("auto") => (TraceFormat::Detected, Cut::Pages),
        _ => (TraceFormat::Named(replay.format.to_ascii_lowercase()), Cut::Pages),
    }
}

fn generator(instance: &InstanceConfig) -> Result<GeneratorConfig, String> {
    let test = &instance.test;
    let op_shares = test.op_pools.iter().chain(std::iter::repeat(&0.0));
    let shares = op_shares.zip(&test.key_pools).enumerate();
    let pools = shares.map(|(i, (op_share, key_share))| PoolConfig {
        op_share: *op_share,
        key_share: *key_share,
        distribution: distribution(instance.pools.get(i).unwrap_or(&instance.pools[0])),
    });
    Ok(GeneratorConfig { keys: test.key_count, pools: pools.collect() })
}

fn distribution(typed: &Distribution) -> generate::Distribution {
    generate::Distribution {
        key_bytes: table(&typed.key_sizes, &typed.key_size_weights),
        value_bytes: optional_table(&typed.value_sizes, &typed.value_size_weights)
            .unwrap_or_else(|| Table::constant(0)),
        chain_items: optional_table(&typed.chain_lengths, &typed.chain_length_weights),
        chain_value_bytes: optional_table(&typed.chain_value_sizes, &typed.chain_value_size_weights),
        ttl_seconds: optional_table(&typed.ttl_seconds, &typed.ttl_weights),
        popularity: popularity(typed),
        mix: Mix {
            get: typed.get_ratio,
            set: typed.set_ratio,
            delete: typed.delete_ratio,
            add_chained: typed.add_chained_ratio,
            lone_get: typed.lone_get_ratio,
            lone_set: typed.lone_set_ratio,
            update: typed.update_ratio,
            could_exist: typed.could_exist_ratio,
        },
    }
}

fn popularity(typed: &Distribution) -> Popularity {
    if typed.popularity_buckets.is_empty() {
        return Popularity::Normal;
    }
    Popularity::Buckets {
        counts: typed.popularity_buckets.clone(),
        weights: typed.popularity_weights.clone(),
        rule: if typed.legacy_key_generator { BucketRule::Legacy } else { BucketRule::Flattened },
    }
}

fn table(range: &[f64], weights: &[f64]) -> Table {
    Table { range: range.to_vec(), weights: weights.to_vec() }
}

fn optional_table(range: &[f64], weights: &[f64]) -> Option<Table> {
    (!range.is_empty()).then(|| table(range, weights))
}
