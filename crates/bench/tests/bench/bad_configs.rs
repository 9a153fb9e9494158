//! Errors and warnings for invalid configs.
use std::path::Path;

use flashwright_bench::config::cachebench::load_text;
use flashwright_bench::config::keys::tables;
use flashwright_bench::config::lower::lower_without_traces;
use flashwright_bench::config::plan::{AdmissionPlan, InstancePlan, OrderPlan, StressorPlan, WorkloadPlan};
use flashwright_bench::config::schema::{KeyInfo, Status};
use flashwright_bench::config::{Config, Loaded, Override};
use flashwright_bench::session::{Session, SessionOptions};
use serde_json::Value;

/// A small valid config, which the tests change.
const RIGHT: &str = r#"{
  "cache_config": { "cacheSizeMB": 64 },
  "test_config": { "numOps": 10, "numThreads": 1, "numKeys": 100, "keySizeRange": [8, 16], "keySizeRangeProbability": [1.0],
    "valSizeRange": [1, 100], "valSizeRangeProbability": [1.0], "getRatio": 0.5, "setRatio": 0.5 }
}"#;

fn with(changes: &[&str]) -> Result<Config, String> {
    let overrides: Vec<Override> = changes.iter().map(|change| change.parse().unwrap()).collect();
    match load_text(Path::new("c.json"), RIGHT, &overrides) {
        Ok(Loaded::Config(config)) => Ok(*config),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

#[track_caller]
fn refused(changes: &[&str], message: &str) {
    let said = with(changes).expect_err("must be refused");
    assert!(said.contains(message), "{said}");
}

#[test]
fn base_config_has_no_warnings() {
    let config = with(&[]).unwrap();
    assert!(config.warnings.is_empty() && config.later.is_empty());
}

#[test]
fn unknown_key_suggests_nearest_key() {
    refused(
        &["cache_config.cacheSizeMb=1"],
        "c.json: cache_config.cacheSizeMb: unknown key; did you mean `cacheSizeMB`?",
    );
    refused(&["test_config.getRation=1"], "test_config.getRation: unknown key; did you mean `getRatio`?");
    refused(&["test_config.xyzzy=1"], "c.json: test_config.xyzzy: unknown key");
}

#[test]
fn key_in_wrong_section_names_its_section() {
    refused(
        &["test_config.nvmCacheSizeMB=1"],
        "test_config.nvmCacheSizeMB: unknown key here: it belongs in cache_config",
    );
    refused(&["cache_config.numOps=1"], "cache_config.numOps: unknown key here: it belongs in test_config");
}

#[test]
fn misspelt_key_in_wrong_section_suggests_the_key_and_its_section() {
    refused(
        &["test_config.navyBigHashSizePtc=1"],
        "c.json: test_config.navyBigHashSizePtc: unknown key; did you mean `navyBigHashSizePct` of cache_config?",
    );
    refused(&["cache_config.nmThreads=1"], "cache_config.nmThreads: unknown key; did you mean");
}

#[test]
fn wrong_type_is_reported_with_path() {
    refused(
        &[r#"cache_config.cacheSizeMB="64 MB""#],
        r#"cache_config.cacheSizeMB: expected a whole number, 0 or more, found the string "64 MB""#,
    );
    refused(&["cache_config.cacheSizeMB=-1"], "expected a whole number, 0 or more, found `-1`");
    refused(
        &["test_config.valSizeRange=[1,null]"],
        "test_config.valSizeRange[1]: expected a number, found null",
    );
    refused(&["cache_config.moveOnSlabRelease=[]"], "cache_config.moveOnSlabRelease: expected true or false");
}

#[test]
fn misspelt_name_suggests_nearest_name() {
    for (key, given, meant) in [
        ("cache_config.rebalanceStrategy", "tail_age", "tail-age"),
        ("cache_config.allocator", "S3-FIFO", "S3FIFO"),
        ("test_config.generator", "onlin", "online"),
    ] {
        refused(&[&format!("{key}={given}")], &format!("unknown name `{given}`; did you mean `{meant}`?"));
    }
}

/// The plan of a cache with flash after `changes`.
fn plan(changes: &[&str]) -> InstancePlan {
    let flash = "cache_config.nvmCacheSizeMB=512";
    lower_without_traces(&with(&[&[flash], changes].concat()).unwrap()).unwrap().instances.remove(0)
}

/// Names are case-insensitive.
#[test]
fn names_are_case_insensitive() {
    assert!(matches!(plan(&["test_config.generator=Online"]).workload, WorkloadPlan::Online(_)));
    refused(&["test_config.generator=Online", "test_config.numThreads=0"], "numThreads: is 0 or missing");
    let replay = ["test_config.generator=Replay", "test_config.traceFileName=t"];
    let strict = "test_config.replayGeneratorConfig.replaySerializationMode=Strict";
    let WorkloadPlan::Replay(replay) = plan(&[&replay[..], &[strict]].concat()).workload else { panic!() };
    assert!(replay.strict_order);
    assert!(plan(&["test_config.name=Async"]).run.tasks);
    let stressor = plan(&["test_config.name=High_Refcount"]).workload;
    assert!(matches!(stressor, WorkloadPlan::Stressor(StressorPlan::References)));
    let flash = |change: &str| plan(&[change]).cache.flash.unwrap();
    assert!(matches!(flash("cache_config.navyRegionPolicy=RIPQ").order, OrderPlan::Ripq(_)));
    assert_eq!(flash("cache_config.flashAdmission=Reject-First").admission, AdmissionPlan::RejectFirst);
    let half = AdmissionPlan::Probability(0.5);
    assert_eq!(flash("cache_config.flashAdmission=Probability:0.5").admission, half);
    assert!(flash(r#"cache_config.devicePlacementHandles=["Metadata"]"#).placement_extras.metadata);
}

#[test]
fn admission_policy_warns_of_unused_rate_and_refuses_unused_argument() {
    const RATE: &str = "cache_config.navyAdmissionWriteRateMB=10";
    const FLASH: &str = "cache_config.nvmCacheSizeMB=64";
    for policy in ["always", "probability:0.5", "reject-first"] {
        let config = with(&[FLASH, RATE, &format!("cache_config.flashAdmission={policy}")]).unwrap();
        assert_eq!(config.warnings[0].at, "cache_config.navyAdmissionWriteRateMB", "{policy}");
    }
    assert!(with(&[FLASH, RATE, "cache_config.flashAdmission=dynamic-random"]).unwrap().warnings.is_empty());
    assert!(with(&[FLASH, RATE]).unwrap().warnings.is_empty());
    for policy in ["always:0.5", "reject-first:2", "dynamic-random:7"] {
        refused(&[RATE, &format!("cache_config.flashAdmission={policy}")], "takes no argument after a colon");
    }
}

#[test]
fn chain_longer_than_limit_is_refused() {
    let chains = |lengths: &str| {
        let chained = [
            format!("test_config.chainedItemLengthRange={lengths}"),
            "test_config.chainedItemLengthRangeProbability=[1]".to_owned(),
            "test_config.chainedItemValSizeRange=[1,100]".to_owned(),
            "test_config.chainedItemValSizeRangeProbability=[1]".to_owned(),
        ];
        with(&chained.each_ref().map(String::as_str)).map(drop)
    };
    assert_eq!(chains("[1,1048577]"), Ok(()));
    assert_eq!(chains("[1048576]"), Ok(()));
    for lengths in ["[1,1e12]", "[1048577]"] {
        let said = chains(lengths).unwrap_err();
        assert!(said.contains("chainedItemLengthRange: a chain has at most 1,048,576 items"), "{said}");
    }
}

#[test]
fn lists_of_different_lengths_are_refused() {
    refused(&["cache_config.numPools=2"], "cache_config.poolSizes: has 1 share(s) for numPools 2");
    refused(&["cache_config.poolSizes=[1.5]"], "together at most 1");
    refused(&["test_config.keySizeRange=[8]"], "test_config.keySizeRange: 1 value(s) for 1 weight(s)");
    refused(
        &["test_config.popularityBuckets=[1,2]"],
        "test_config.popularityBuckets: 2 bucket(s) for 0 weight(s)",
    );
    refused(&["test_config.getRatio=0", "test_config.setRatio=0"], "not all 0");
}

#[test]
fn conflicting_flash_keys_are_refused() {
    refused(&["cache_config.navyBigHashBucketSize=5000"], "must be a power of two");
    let both =
        ["cache_config.navyHitsReinsertionThreshold=1", "cache_config.navyProbabilityReinsertionThreshold=5"];
    refused(&both, "cannot be combined with navyProbabilityReinsertionThreshold");
    refused(&["cache_config.navySmallItemMaxSize=4096"], "must be below navyBigHashBucketSize");
    refused(&["cache_config.flashAdmission=probability:2"], "P from 0 to 1");
}

#[test]
fn all_errors_are_reported_together() {
    let said = with(&["cache_config.nonsense=1", "test_config.numThreads=0"]).unwrap_err();
    assert_eq!(said.lines().count(), 2, "{said}");
}

#[test]
fn missing_size_file_is_reported_with_key() {
    refused(
        &["test_config.valSizeDistFile=none.json"],
        "test_config.valSizeDistFile: none.json cannot be read",
    );
}

#[test]
fn legacy_key_is_accepted_with_warning() {
    let config = with(&["cache_config.rebalanceMinRatio=0.1"]).unwrap();
    assert_eq!(config.warnings.len(), 1);
    assert_eq!(config.warnings[0].at, "cache_config.rebalanceMinRatio");
}

#[test]
fn legacy_key_of_kvcache_trace_configs_is_accepted_with_warning() {
    let config = with(&["cache_config.enableChainedItem=true"]).unwrap();
    let warned: Vec<_> = config.warnings.iter().map(|it| it.at.as_str()).collect();
    assert_eq!(warned, ["cache_config.enableChainedItem"]);
    let config = with(&["test_config.enableChainedItem=true"]).unwrap();
    assert_eq!(config.warnings[0].at, "test_config.enableChainedItem");
}

#[test]
fn old_placement_key_suggests_its_new_name() {
    refused(&["cache_config.devicePlacement=true"], "unknown key; did you mean `deviceEnableFDP`?");
}

#[test]
fn unsupported_feature_is_valid_and_listed() {
    let config = with(&["cache_config.navyEnableAccessTimeMap=true"]).unwrap();
    assert_eq!(config.later.len(), 1);
    assert!(with(&["cache_config.navyEnableAccessTimeMap=false"]).unwrap().later.is_empty());
}

#[test]
fn config_as_run_includes_defaults_and_overrides_and_reloads_equal() {
    let config = with(&["cache_config.cacheSizeMB=128"]).unwrap();
    let as_run = config.as_run();
    assert_eq!(as_run["cache_config"]["cacheSizeMB"], 128);
    assert_eq!(as_run["cache_config"]["navyRegionSizeMB"], 16);
    let Ok(Loaded::Config(again)) = load_text(Path::new("c.json"), &as_run.to_string(), &[]) else {
        panic!()
    };
    assert_eq!(again.as_run(), as_run);
    assert!(again.later.is_empty(), "{:?}", again.later);
}

/// Checks that a config without invalid keys is refused when it is checked for a run.
#[track_caller]
fn cannot_run(changes: &[&str], message: &str) {
    let config = with(changes).expect("every key is right by itself");
    let said = Session::check(&config, 1).expect_err("must be refused").to_string();
    assert!(said.starts_with("c.json: ") && said.contains(message), "{said}");
}

#[test]
fn session_check_refuses_config_that_cannot_run() {
    assert!(Session::check(&with(&[]).unwrap(), 1).is_ok());
    cannot_run(
        &["cache_config.cacheSizeMB=1000000000000000"],
        "cacheSizeMB: 1000000000000000 MiB is too large",
    );
    cannot_run(
        &["test_config.keySizeRange=[8,10000]"],
        "test_config.keySizeRange: keys of 9999 bytes; at most 255",
    );
    let replay = "test_config.generator=replay";
    cannot_run(&[replay, "test_config.traceFileName=."], "test_config.traceFileName: . is not a file");
    cannot_run(&[replay, "test_config.traceFileName=gone"], "test_config.traceFileName: gone does not exist");
    cannot_run(&["test_config.keySizeRange=[0,0]"], "test_config.keySizeRange: keys of 0 bytes");
    cannot_run(&["test_config.numKeys=1000000000000000000"], "test_config.numKeys: 1000000000000000000 keys");
}

#[test]
fn more_threads_than_the_limit_are_refused() {
    refused(&["test_config.numThreads=32769"], "test_config.numThreads: must be at most 32768");
    refused(&["test_config.numThreads=1000000000"], "test_config.numThreads: must be at most 32768");
}

#[test]
fn wrong_type_is_reported_once() {
    for change in ["cache_config.cacheSizeMB=64MB", "test_config.keySizeRange=8", "cache_config.numPools=-1"]
    {
        let said = with(&[change]).unwrap_err();
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(": expected "), "{said}");
    }
}

#[test]
fn trace_file_without_replay_is_warned_about() {
    let config = with(&["test_config.traceFileName=trace.csv"]).unwrap();
    assert_eq!(config.warnings[0].at, "test_config.traceFileName");
    assert!(config.warnings[0].message.starts_with("has no effect: this generator reads no trace"));
}

#[test]
fn flash_paths_without_size_are_warned_about() {
    const PATHS: &str = "cache_config.nvmCachePaths=[\"/mnt/ssd/flash\"]";
    let warnings = with(&[PATHS]).unwrap().warnings;
    assert_eq!(warnings[0].at, "cache_config.nvmCachePaths");
    assert_eq!(warnings[0].message, "has no effect: nvmCacheSizeMB is 0, there is no flash");
    assert!(with(&[PATHS, "cache_config.nvmCacheSizeMB=64"]).unwrap().warnings.is_empty());
}

#[test]
fn warmup_check_without_flash_is_warned_about() {
    const CHECK: &str = "test_config.checkNvmCacheWarmUp=true";
    const POLICY: &str = "test_config.nvmCacheWarmupCheckPolicy.evictionCountThreshold=5";
    const FLASH: &str = "cache_config.nvmCacheSizeMB=64";
    let warnings_of = |changes: &[&str]| {
        let warnings = with(changes).unwrap().warnings;
        warnings.into_iter().map(|it| format!("{}: {}", it.at, it.message)).collect::<Vec<_>>()
    };
    let unread = "test_config.nvmCacheWarmupCheckPolicy: has no effect: checkNvmCacheWarmUp is false";
    assert_eq!(warnings_of(&[FLASH, POLICY]), [unread]);
    let no_flash = "test_config.checkNvmCacheWarmUp: has no effect: nvmCacheSizeMB is 0, there is no flash";
    assert_eq!(warnings_of(&[CHECK]), [no_flash]);
    assert_eq!(warnings_of(&[CHECK, POLICY, FLASH]), [""; 0]);
}

#[test]
fn byte_order_mark_is_ignored() {
    let marked = format!("\u{feff}{RIGHT}");
    assert!(load_text(Path::new("c.json"), &marked, &[]).is_ok());
}

#[test]
fn invalid_open_loop_is_refused() {
    const RATE: &str = "test_config.opRatePerSec=1000";
    let open = |changes: &[&str], message: &str| {
        refused(&[&["test_config.arrivals=poisson"], changes].concat(), message);
    };
    refused(&["test_config.arrivals=poison"], "unknown name `poison`; did you mean `poisson`?");
    refused(&["test_config.arrivals=7"], "expected a string");
    open(&[], "test_config.arrivals: needs a rate in opRatePerSec");
    open(&[RATE, "test_config.opRateBurstSize=5"], "opRateBurstSize: only for `closed` arrivals");
    open(
        &[RATE, "test_config.opDelayBatch=1", "test_config.opDelayNs=5"],
        "opDelayNs: only for `closed` arrivals",
    );
    open(
        &[RATE, "test_config.generator=replay", "test_config.traceFileName=t"],
        "replaySerializationMode to `none`",
    );
    assert!(with(&["test_config.arrivals=Uniform", RATE]).is_ok());
}

#[test]
fn invalid_trace_speed_is_refused() {
    const SPEED: &str = "test_config.traceSpeed=2.5";
    const TRACE: [&str; 3] = [SPEED, "test_config.generator=replay", "test_config.traceFileName=t"];
    let beside = |change: &str, message: &str| refused(&[&TRACE[..], &[change]].concat(), message);
    assert!(with(&TRACE).is_ok());
    refused(&[SPEED], "traceSpeed: only for replays");
    refused(&["test_config.traceSpeed=fast"], "expected a number");
    beside("test_config.traceSpeed=-1", "must be 0 or more");
    beside("test_config.arrivals=poisson", "cannot be combined with arrivals");
    beside("test_config.opRatePerSec=5", "cannot be combined with opRatePerSec");
}

#[test]
fn invalid_piece_and_chunk_sizes_are_refused() {
    let with_trace = |generator: &str, change: &str| {
        let generator = format!("test_config.generator={generator}");
        with(&[&generator, "test_config.traceFileName=t", change])
    };
    let beside = |generator: &str, change: &str, message: &str| {
        let said = with_trace(generator, change).expect_err("must be refused");
        assert!(said.contains(message) && said.lines().count() == 1, "{said}");
    };
    const REPLAY: &str = "test_config.replayGeneratorConfig";
    let chunk = |change: &str| format!("{REPLAY}.{change}");
    beside("block-replay", &chunk("chunkSizeKB=0"), "chunkSizeKB: must be 1 to blockSizeKB");
    beside("block-replay", &chunk("blockSizeKB=127"), "chunkSizeKB: must be 1 to blockSizeKB");
    beside("block-replay", &chunk("blockSizeKB=18446744073709551615"), "chunkSizeKB: must be 1 to");
    beside("block-replay", &chunk("blockSizeKB=134217729"), "cuts a block into more than 1,048,576 chunks");
    beside("piecewise-replay", "test_config.cachePieceSize=0", "cachePieceSize: must be above 0");
    beside("piecewise-replay", "test_config.maxCachePieces=1048577", "must be at most 1,048,576");
    for (generator, change) in [
        ("block-replay", chunk("blockSizeKB=134217728").as_str()),
        ("piecewise-replay", "test_config.maxCachePieces=0"),
        ("replay", "test_config.cachePieceSize=0"),
    ] {
        assert!(with_trace(generator, change).is_ok(), "{generator} {change}");
    }
}

#[test]
fn unknown_or_unsupported_trace_format_is_refused() {
    let with_format = |generator: &str, format: &str| {
        let format = format!("test_config.replayGeneratorConfig.traceFormat={format}");
        with(&[&format!("test_config.generator={generator}"), "test_config.traceFileName=t", &format])
    };
    let said = with_format("replay", "twiter").unwrap_err();
    assert!(said.contains("traceFormat: unknown name `twiter`; did you mean `twitter`?"), "{said}");
    let said = with_format("block-replay", "cdn").unwrap_err();
    assert!(said.contains("traceFormat: only for the generator `replay`"), "{said}");
    for format in ["auto", "MSR", "kvcache", "oracle-general"] {
        assert!(with_format("replay", format).is_ok(), "{format}");
    }
}

/// The default applies to CacheBench's key-value traces; other formats have their own unit.
#[test]
fn time_unit_is_that_of_the_format_unless_given() {
    let units = |changes: &[&str]| {
        let config = with(&[&["test_config.traceFileName=t"], changes].concat()).unwrap();
        let as_run = config.as_run();
        let Ok(Loaded::Config(again)) = load_text(Path::new("c.json"), &as_run.to_string(), &[]) else {
            panic!()
        };
        let units = |config: &Config| config.instances[0].time_units_per_second();
        assert_eq!(units(&again), units(&config), "as it runs again");
        units(&config)
    };
    let replay = "test_config.generator=replay";
    assert_eq!(units(&[replay]), Some(1000));
    assert_eq!(units(&[replay, "test_config.replayGeneratorConfig.traceFormat=twitter"]), None);
    assert_eq!(units(&["test_config.generator=block-replay"]), None);
    assert_eq!(
        units(&["test_config.generator=block-replay", "test_config.timestampFactor=1000"]),
        Some(1000)
    );
}

#[test]
fn limits_without_measured_requests_are_refused() {
    refused(&["test_config.maxFlashWriteMB=5"], "maxFlashWriteMB: only for a cache with flash");
    refused(&["test_config.warmupFlashWriteMB=5"], "warmupFlashWriteMB: only for a cache with flash");
    refused(&["test_config.numOps=10", "test_config.warmupOps=10"], "warmupOps: must be below numOps");
    refused(&["test_config.traceLoops=2"], "traceLoops: only for replays");
    let limits = ["test_config.maxFlashWriteMB=5", "test_config.warmupFlashWriteMB=5"];
    refused(&[&["cache_config.nvmCacheSizeMB=64"], &limits[..]].concat(), "must be below maxFlashWriteMB");
    refused(&["test_config.warmupSeconds=-1"], "warmupSeconds: expected a");
    assert!(with(&["test_config.steadyRoundOps=18446744073709551615"]).is_ok());
}

/// Large numbers must not overflow when they are added or multiplied.
#[test]
fn huge_numbers_are_refused_or_harmless() {
    const FLASH: [&str; 3] =
        ["cache_config.cacheSizeMB=16", "cache_config.nvmCacheSizeMB=64", "cache_config.navyBlockSize=4096"];
    const NUMBERS: [u64; 6] = [1 << 31, u32::MAX as u64, 1 << 32, (1 << 43) - 1, 1 << 45, u64::MAX];
    let (mut refused, mut opened) = (0, 0);
    for (place, key_infos, defaults) in tables() {
        // Distribution keys also occur in `test_config`. Keys of list elements cannot be set by a path without an index.
        let place = place.split(' ').next().unwrap();
        let is_tried = |key_info: &&KeyInfo| {
            let is_count = defaults.get(key_info.key).is_some_and(Value::is_u64);
            is_count
                && matches!(key_info.status, Status::Honoured | Status::HonouredIf(_))
                && !place.ends_with("[]")
        };
        for (key_info, number) in
            key_infos.iter().filter(is_tried).flat_map(|key_info| NUMBERS.map(|it| (key_info, it)))
        {
            let change = format!("{place}.{}={number}", key_info.key);
            let mut changes = FLASH.to_vec();
            if place.contains("navyRegionPolicyConfig") {
                changes.push("cache_config.navyRegionPolicy=ripq");
            }
            changes.push(&change);
            match with(&changes) {
                Ok(config) if Session::open(&config, SessionOptions::default()).is_ok() => opened += 1,
                Ok(_) => refused += 1,
                Err(message) => {
                    assert!(!message.contains("unknown key"), "{change}: {message}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 50 && opened > 50, "{refused} refused, {opened} opened");
}

/// Two flash sizes of 2^43 MiB overflow a 64-bit byte count when they are added.
#[test]
fn sizes_with_overflowing_sum_are_refused() {
    let of = |size: &str| RIGHT.replacen("\"cacheSizeMB\": 64", size, 1);
    let as_component = |text: String| text.replace("\"numOps\"", "\"name\": \"cache_component\", \"numOps\"");
    let load = |sizes: &[&str]| {
        let text = format!("[{}]", sizes.iter().map(|size| of(size)).collect::<Vec<_>>().join(","));
        let text = if text.contains("allocator") { as_component(text) } else { text };
        load_text(Path::new("c.json"), &text, &["sim:test".parse().map(Override::Device).unwrap()])
    };
    let half = r#""cacheSizeMB": 64, "nvmCacheSizeMB": 4398046511104"#;
    let whole = r#""cacheSizeMB": 64, "nvmCacheSizeMB": 8796093022208"#;
    let striped = r#""cacheSizeMB": 64, "nvmCacheSizeMB": 4398046511104, "nvmCachePaths": ["/a", "/b"]"#;
    let component = r#""allocator": "flash", "cacheSizeMB": 8796093022207"#;
    let memory = r#""cacheSizeMB": 4398046511104"#;
    for (sizes, at, message) in [
        (&[half, half][..], "[1].cache_config.nvmCacheSizeMB", "8796093022208 MiB of flash in total, with"),
        (&[component, half], "[1].cache_config.nvmCacheSizeMB", "13194139533311 MiB of flash in total, with"),
        (&[memory, memory], "[1].cache_config.cacheSizeMB", "8796093022208 MiB of DRAM in total, with"),
    ] {
        let said = load(sizes).expect_err("must be refused").to_string();
        assert!(said.starts_with(&format!("c.json: {at}: {message}")), "{said}");
        assert!(said.ends_with("the maximum is 8796093022207 MiB"), "{said}");
    }
    let Ok(Loaded::Config(config)) = load(&[whole, whole]) else { panic!("each is refused by itself") };
    let said = Session::check(&config, 1).err().unwrap().to_string();
    let message = "cache_config.nvmCacheSizeMB: 8796093022208 MiB is too large";
    assert_eq!(said, format!("c.json: [0]: {message}\nc.json: [1]: {message}"));
    // The total is checked with the config's own paths, not with a drive that replaces them.
    let said = load_text(Path::new("c.json"), &of(striped), &[]).expect_err("must be refused").to_string();
    assert!(
        said.starts_with("c.json: cache_config.nvmCacheSizeMB: 8796093022208 MiB of flash in total"),
        "{said}"
    );
    let Ok(Loaded::Config(config)) = load(&[striped]) else { panic!("half of the size is valid") };
    let said = Session::open(&config, SessionOptions::default()).err().unwrap().to_string();
    assert!(said.contains("nvmCacheSizeMB: needs 4611686018427387904 bytes, and the drive has "), "{said}");
}

/// The sum overflows to 100.
#[test]
fn arena_shares_with_overflowing_sum_are_refused() {
    let arena =
        |name: &str, percent: u64| format!(r#"{{"name": "{name}", "sizePct": {percent}, "bigHashPct": 10}}"#);
    let arenas = format!("cache_config.navyArenas=[{},{}]", arena("a", 1 << 63), arena("b", (1 << 63) + 100));
    refused(
        &["cache_config.nvmCacheSizeMB=64", &arenas],
        "navyArenas: sizePct must be above 0 and add up to 100",
    );
}
