//! Warnings about keys that have no effect because another key is missing.
use std::path::Path;

use flashwright_bench::config::cachebench::load_text;
use flashwright_bench::config::{Loaded, Override};

const DRAM_ALONE: &str = r#"{
    "cache_config": { "cacheSizeMB": 64 },
    "test_config": { "numOps": 10, "numThreads": 1, "numKeys": 10, "getRatio": 1.0, "keySizeRange": [8, 9],
        "keySizeRangeProbability": [1.0] }
}"#;
const REPLAY: &str = r#"{
    "cache_config": { "cacheSizeMB": 64 },
    "test_config": { "generator": "replay", "traceFileName": "t.csv", "numOps": 10, "numThreads": 1 }
}"#;

fn warnings(config: &str, changes: &[&str]) -> Vec<String> {
    let overrides: Vec<Override> = changes.iter().map(|it| it.parse().unwrap()).collect();
    match load_text(Path::new("c.json"), config, &overrides) {
        Ok(Loaded::Config(config)) => config.warnings.iter().map(ToString::to_string).collect(),
        other => panic!("{changes:?}: {other:?}"),
    }
}

/// Each of `changes` gives a warning alone, and none together with `beside`.
fn assert_no_effect(config: &str, changes: &[&str], why: &str, beside: &[&str]) {
    for change in changes {
        let key = change.split('=').next().unwrap();
        assert_eq!(warnings(config, &[change]), [format!("{key}: has no effect: {why}")]);
        assert_eq!(warnings(config, &[beside, &[change]].concat()), [""; 0], "{change} beside {beside:?}");
    }
}

#[test]
fn flash_keys_without_flash_are_warned_about() {
    let keys = [
        "cache_config.deviceEnableFDP=true",
        "cache_config.writeAmpDeviceList=[\"nvme0n1\"]",
        "cache_config.memoryOnlyTTL=5",
        "cache_config.navyAdmissionWriteRateMB=5",
        "cache_config.navyRegionPolicy=ripq",
        "cache_config.navyBigHashSizePct=10",
        "cache_config.navyBlockSize=4096",
        "cache_config.navyRegionSizeMB=4",
        "cache_config.navyBigHashBucketSize=8192",
        "cache_config.flashAdmission=reject-first",
        "cache_config.printNvmCounters=true",
        "cache_config.navyRegionPolicyConfig.blockMB=4",
    ];
    let policy = "cache_config.navyRegionPolicy=ripq";
    let (rest, of_policy) = keys.split_at(keys.len() - 1);
    let why = "nvmCacheSizeMB is 0, there is no flash";
    let flash = "cache_config.nvmCacheSizeMB=64";
    assert_no_effect(DRAM_ALONE, rest, why, &[flash]);
    assert!(warnings(DRAM_ALONE, of_policy)[0].ends_with(why));
    assert_eq!(warnings(DRAM_ALONE, &[flash, policy, of_policy[0]]), [""; 0]);
}

#[test]
fn keys_of_unused_flash_engine_or_policy_are_warned_about() {
    let flash = ["cache_config.nvmCacheSizeMB=64"];
    let last = |changes: &[&str]| warnings(DRAM_ALONE, &[&flash, changes].concat()).pop().unwrap_or_default();
    for (change, beside, why) in [
        ("navyBigHashBucketSize=8192", "navyBigHashSizePct=0", "navyBigHashSizePct is 0"),
        ("navyDataChecksum=false", "navyBigHashSizePct=100", "navyBigHashSizePct is 100"),
        (
            "navyRegionPolicyConfig.segments=2",
            "navyRegionPolicy=ripq",
            "navyRegionPolicy is not `blockcache`",
        ),
        ("navyRegionPolicyConfig.caching=lru", "navyRegionPolicy=mcdipper", "navyRegionPolicy is neither"),
        ("navyRegionSizeMB=4", "navyRegionPolicy=ripq", "with navyRegionPolicy the region size"),
        ("devicePlacementHandles=[]", "navyBlockSize=4096", "deviceEnableFDP is false"),
        ("flashBuffered=true", "navyBlockSize=4096", "nvmCachePaths is empty"),
    ] {
        let said = last(&[&format!("cache_config.{beside}"), &format!("cache_config.{change}")]);
        assert!(said.contains(why), "{change} beside {beside}: {said}");
    }
}

#[test]
fn keys_of_unused_dram_features_are_warned_about() {
    let rebalance = ["cache_config.poolRebalanceIntervalSec=1"];
    let stays = "poolRebalanceIntervalSec is 0, no memory moves between size classes";
    let keys = ["cache_config.moveOnSlabRelease=true", "cache_config.rebalanceMinSlabs=3"];
    assert_no_effect(DRAM_ALONE, &keys, stays, &rebalance);
    let hits = ["cache_config.poolRebalanceIntervalSec=1", "cache_config.rebalanceStrategy=hits"];
    assert_no_effect(DRAM_ALONE, &["cache_config.rebalanceDiffRatio=0.5"], stays, &hits);
    let of_2q = ["cache_config.lru2qHotPct=30", "cache_config.lru2qColdPct=30"];
    assert_no_effect(DRAM_ALONE, &of_2q, "allocator is not LRU2Q", &["cache_config.allocator=LRU2Q"]);
    let sieve = ["cache_config.allocator=SIEVE", "cache_config.lruRefreshSec=5"];
    assert!(warnings(DRAM_ALONE, &sieve)[0].starts_with("cache_config.lruRefreshSec: has no effect"));
    let sizes = ["cache_config.allocSizes=[128,1024]", "cache_config.maxAllocSize=4096"];
    assert!(warnings(DRAM_ALONE, &sizes)[0].starts_with("cache_config.maxAllocSize: has no effect"));
}

#[test]
fn replay_keys_with_generator_are_warned_about() {
    let keys = [
        "test_config.repeatTraceReplay=true",
        "test_config.timestampFactor=7",
        "test_config.ignoreOpCount=true",
        "test_config.replayGeneratorConfig.ampFactor=3",
        "test_config.replayGeneratorConfig.fastForwardCount=3",
    ];
    for key in keys {
        let name = key.split('=').next().unwrap();
        assert_eq!(
            warnings(DRAM_ALONE, &[key]),
            [format!("{name}: has no effect: this generator reads no trace")]
        );
        assert_eq!(warnings(REPLAY, &[key]), [""; 0]);
    }
    let pieces = warnings(REPLAY, &["test_config.cachePieceSize=7"]);
    assert_eq!(
        pieces,
        ["test_config.cachePieceSize: has no effect: only for the generator `piecewise-replay`"]
    );
}

#[test]
fn generator_keys_in_replay_are_warned_about() {
    for key in
        ["getRatio=0.5", "loneSetRatio=0.5", "numKeys=5", "keySizeRange=[8, 9]", "opPoolDistribution=[2.0]"]
    {
        let (name, change) = (key.split('=').next().unwrap(), format!("test_config.{key}"));
        let changes = [change.as_str(), "test_config.keySizeRangeProbability=[1.0]"];
        let said = warnings(REPLAY, &changes[..if name == "keySizeRange" { 2 } else { 1 }]);
        let why = ": has no effect: a replay requests what is in its trace";
        assert!(said[0].starts_with(&format!("test_config.{name}")) && said[0].ends_with(why), "{said:?}");
    }
    let pool = "test_config.poolDistributions=[{\"getRatio\": 0.5}]";
    assert!(
        warnings(REPLAY, &[pool])[0].starts_with("test_config.poolDistributions[0].getRatio: has no effect")
    );
}

#[test]
fn run_keys_without_their_condition_are_warned_about() {
    assert_no_effect(
        DRAM_ALONE,
        &["test_config.maxInconsistencyCount=3"],
        "checkConsistency is false",
        &[
            "test_config.checkConsistency=true",
            "test_config.valSizeRange=[9]",
            "test_config.valSizeRangeProbability=[1]",
        ],
    );
    assert_no_effect(
        DRAM_ALONE,
        &["test_config.opDelayNs=9"],
        "opDelayBatch is 0",
        &["test_config.opDelayBatch=1"],
    );
    assert_no_effect(
        DRAM_ALONE,
        &["test_config.opDelayBatch=9"],
        "opDelayNs is 0",
        &["test_config.opDelayNs=1"],
    );
    let rate = "test_config.opRatePerSec=9";
    assert_no_effect(
        DRAM_ALONE,
        &["test_config.opRateBurstSize=9"],
        "opRatePerSec is 0, there is no limit",
        &[rate],
    );
    let written = "populateItem is false, values are not written";
    let zeros = ["test_config.populateItem=false", "test_config.valueCompressibility=0.5"];
    assert_eq!(
        warnings(DRAM_ALONE, &zeros),
        [format!("test_config.valueCompressibility: has no effect: {written}")]
    );
    let walk = "test_config.dramIteratorSleepMs=5";
    assert_no_effect(
        DRAM_ALONE,
        &[walk],
        "dramIteratorMode is `disabled`",
        &["test_config.dramIteratorMode=regular"],
    );
}

#[test]
fn replaced_distribution_keys_are_warned_about() {
    let pool = r#"test_config.poolDistributions=[{"getRatio": 1, "keySizeRange": [8, 9], "keySizeRangeProbability": [1]}]"#;
    let said = warnings(DRAM_ALONE, &[pool]);
    let keys = "test_config.keySizeRange, keySizeRangeProbability, getRatio";
    assert_eq!(said, [format!("{keys}: has no effect: poolDistributions replaces it")]);
    let chain =
        ["test_config.chainedItemLengthRange=[1]", "test_config.chainedItemLengthRangeProbability=[1]"];
    assert!(
        warnings(DRAM_ALONE, &chain).iter().all(|it| it.ends_with("has no effect: addChainedRatio is 0"))
    );
    let legacy = warnings(DRAM_ALONE, &["test_config.useLegacyKeyGen=true"]);
    assert_eq!(legacy, ["test_config.useLegacyKeyGen: has no effect: there are no popularityBuckets"]);
}
