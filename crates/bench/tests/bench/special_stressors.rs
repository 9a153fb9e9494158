//! CacheBench's special stressors and item destructors: with small configs, scaled-down shipped configs, and deliberately
//! broken caches.
use crate::twin;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::twin::NoWatcher;
use cache::Cursor;
use flashwright_bench::config::cachebench::{load, load_text};
use flashwright_bench::config::plan::StressorPlan;
use flashwright_bench::config::{Config, Loaded, Override};
use flashwright_bench::report::RunReport;
use flashwright_bench::run::destructors::Destructors;
use flashwright_bench::run::engine::{CallMode, EngineItem, EngineTarget};
use flashwright_bench::run::stressors::Stressor;
use flashwright_bench::run::target::{SetHow, SetOutcome, Snapshot, Target};
use flashwright_bench::run::{Instance, InstanceOptions, InstanceReport, run_all};
use flashwright_bench::session::{Session, SessionOptions};

fn run(config: &Config, scale: u32) -> RunReport {
    let options = SessionOptions { scale, ..SessionOptions::default() };
    Session::open(config, options).unwrap().run(config, &mut NoWatcher).unwrap()
}

fn own(text: &str) -> Config {
    match load_text(Path::new("c.json"), text, &[]) {
        Ok(Loaded::Config(config)) => *config,
        other => panic!("{other:?}"),
    }
}

/// A shipped CacheBench config with changes; `None` with a message if it is not available.
fn shipped(file: &str, changes: &[&str]) -> Option<Config> {
    let root = match std::env::var_os("FLASHWRIGHT_SHARED") {
        Some(shared) => Some(PathBuf::from(shared)),
        None => Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .map(|parent| parent.join("shared"))
            .find(|shared| shared.join("cachelib_test_configs").is_dir()),
    };
    let Some(path) = root.map(|root| root.join("cachelib_test_configs").join(file)) else {
        println!("skipped: CacheBench's shipped configs are not available");
        return None;
    };
    let overrides: Vec<Override> = changes.iter().map(|it| it.parse().unwrap()).collect();
    match load(&path, &overrides) {
        Ok(Loaded::Config(config)) => Some(*config),
        other => panic!("{}: {other:?}", path.display()),
    }
}

fn destructors(report: &RunReport) -> (u64, u64, u64) {
    let counts = report.instances[0].destructors.as_ref().unwrap();
    let check = counts.check.as_ref().unwrap();
    assert_eq!((check.invalid, check.missing), (0, 0), "{:?}", check.described);
    (check.items, counts.from_dram, counts.from_flash)
}

fn figure(report: &RunReport, name: &str) -> u64 {
    let stressor = report.instances[0].stressor.as_ref().unwrap();
    stressor.figures.iter().find(|(figure, ..)| *figure == name).unwrap().2
}

const DESTRUCTORS: &str = r#"{
    "cache_config": { "cacheSizeMB": 8, "nvmCacheSizeMB": 24, "navyRegionSizeMB": 1, "enableItemDestructorCheck": true },
    "test_config": { "numOps": 30000, "numThreads": 4, "numKeys": 5000,
        "keySizeRange": [8, 32], "keySizeRangeProbability": [1.0],
        "valSizeRange": [1, 500, 3000, 12000], "valSizeRangeProbability": [0.5, 0.2, 0.3],
        "chainedItemLengthRange": [1, 4], "chainedItemLengthRangeProbability": [1.0],
        "chainedItemValSizeRange": [1, 1000], "chainedItemValSizeRangeProbability": [1.0],
        "getRatio": 0.3, "setRatio": 0.3, "delRatio": 0.2, "updateRatio": 0.1, "addChainedRatio": 0.1 }
}"#;

#[test]
fn destructor_runs_once_per_item_in_dram_and_flash() {
    let report = run(&own(DESTRUCTORS), 1);
    assert!(report.passed(), "{:?}", report.failures());
    let (items, from_dram, from_flash) = destructors(&report);
    assert!(items > 30_000 && from_flash > 1000, "{items} items, {from_flash} from flash");
    assert_eq!(items, from_dram + from_flash);
}

#[test]
fn shipped_item_destructor_configs_pass_scaled_down() {
    for file in ["dram", "navy", "navy_bighash"] {
        let path = format!("feature_stress/item_destructor/{file}.json");
        let changes = ["test_config.numOps=3000", "test_config.numThreads=8"];
        let Some(config) = shipped(&path, &changes) else { return };
        let report = run(&config, 16);
        assert!(report.passed(), "{file}: {:?}", report.failures());
        assert!(destructors(&report).0 > 5000, "{file}: {:?}", destructors(&report));
    }
}

/// Runs a correct cache whose destructor skips or repeats calls.
fn run_with_destructors(skip_one_in: u64, repeat_one_in: u64) -> InstanceReport {
    let destructors = Arc::new(Destructors::new(2, 9, true));
    let (callback, calls) = (destructors.callback(), std::sync::atomic::AtomicU64::new(0));
    let broken: cache::config::ItemDestructor = Arc::new(move |item| {
        let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        if skip_one_in == 0 || !call.is_multiple_of(skip_one_in) {
            callback(item);
        }
        if repeat_one_in > 0 && call.is_multiple_of(repeat_one_in) {
            callback(item);
        }
    });
    let cache = cache::Cache::builder().dram_bytes(8 << 20).item_destructor(broken).open().unwrap();
    let config = own(&DESTRUCTORS.replace("\"nvmCacheSizeMB\": 24, \"navyRegionSizeMB\": 1, ", ""));
    let plan = flashwright_bench::config::lower::lower(&config).unwrap().instances.remove(0);
    let workload = flashwright_bench::run::open::workload(&plan.workload, false).unwrap().workload;
    let mut settings = plan.run;
    settings.threads = 2;
    let options = InstanceOptions { destructors: Some(destructors), ..twin::options() };
    let target = EngineTarget::new(cache, CallMode::Blocking, None);
    let instance = Arc::new(Instance::new(target, settings, workload, options));
    let mut report = run_all(&[Arc::clone(&instance)], None, &mut NoWatcher).unwrap().remove(0);
    instance.finish_destructors(&mut report).unwrap();
    report
}

#[test]
fn skipped_or_repeated_destructor_call_fails() {
    let check = |skip, repeat| run_with_destructors(skip, repeat).destructors.unwrap().check.unwrap();
    assert_eq!(check(0, 0).failures(), Vec::<String>::new());
    let skipped = check(100, 0);
    assert!(skipped.missing > 10 && skipped.invalid == 0, "{skipped:?}");
    let text = skipped.failures().concat();
    assert!(text.starts_with(&format!("Found {} items missing destructor cases", skipped.missing)), "{text}");
    let repeated = check(0, 100);
    assert!(repeated.invalid > 10 && repeated.missing == 0, "{repeated:?}");
    let text = repeated.failures().concat();
    assert!(text.starts_with(&format!("Found {} invalid item destructor cases", repeated.invalid)), "{text}");
}

const REFERENCES: &str = r#"{
    "cache_config": { "cacheSizeMB": 12, "poolRebalanceIntervalSec": 1, "moveOnSlabRelease": true, "rebalanceMinSlabs": 0,
        "allocSizes": [64, 1000000] },
    "test_config": { "name": "high_refcount", "numOps": 20, "numThreads": 2000 }
}"#;

#[test]
fn high_refcount_releases_all_references() {
    let report = run(&own(REFERENCES), 1);
    assert!(report.passed(), "{:?}", report.failures());
    assert_eq!(report.instances[0].counts.ops, 40_000);
    assert!(figure(&report, "most_references") > 1000, "{}", figure(&report, "most_references"));
}

#[test]
fn shipped_high_refcount_passes_with_fewer_operations() {
    let changes = ["test_config.numOps=20"];
    let Some(config) = shipped("integration_tests/high_refcount.json", &changes) else { return };
    let report = run(&config, 1);
    assert!(report.passed(), "{:?}", report.failures());
    assert_eq!(report.instances[0].counts.ops, 200_000, "10,000 workers");
    assert!(figure(&report, "most_references") > 5000, "{}", figure(&report, "most_references"));
}

/// The engine, with a defect.
struct Broken {
    engine: EngineTarget,
    /// One in this many gets leaks its reference; 0 leaks none.
    leak_one_in: u64,
    /// One in this many additions to a chain is reported as done and dropped; 0 drops none.
    lose_one_in: u64,
    calls: std::sync::atomic::AtomicU64,
}

impl Broken {
    fn is_turn(&self, one_in: u64) -> bool {
        let call = self.calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        one_in > 0 && call.is_multiple_of(one_in)
    }
}

impl Target for Broken {
    type Item<'a> = EngineItem<'a>;

    async fn get(&self, key: &[u8]) -> Option<EngineItem<'_>> {
        if self.is_turn(self.leak_one_in) {
            std::mem::forget(self.engine.get(key).await);
        }
        self.engine.get(key).await
    }

    async fn set(&self, key: &[u8], bytes: usize, how: SetHow, fill: impl FnOnce(&mut [u8])) -> SetOutcome {
        self.engine.set(key, bytes, how, fill).await
    }

    async fn chain(&self, key: &[u8], bytes: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        self.is_turn(self.lose_one_in) || self.engine.chain(key, bytes, fill).await
    }

    fn delete(&self, key: &[u8]) -> bool {
        self.engine.delete(key)
    }

    fn could_exist(&self, key: &[u8]) -> bool {
        self.engine.could_exist(key)
    }

    fn scan_dram(&self, from: Cursor, visit: &mut dyn FnMut(u64)) -> Option<Cursor> {
        self.engine.scan_dram(from, visit)
    }

    fn snapshot(&self) -> Snapshot {
        self.engine.snapshot()
    }
}

/// Runs a stressor on an engine with a defect and returns its failures.
fn run_broken(stressor: StressorPlan, text: &str, leak_one_in: u64, lose_one_in: u64) -> Vec<String> {
    let plan = flashwright_bench::config::lower::lower(&own(text)).unwrap().instances.remove(0);
    let workload = flashwright_bench::run::open::workload(&plan.workload, false).unwrap().workload;
    let cache = cache::Cache::builder().dram_bytes(64 << 20).open().unwrap();
    let engine = EngineTarget::new(cache, CallMode::Blocking, None);
    let target = Broken { engine, leak_one_in, lose_one_in, calls: Default::default() };
    let stressor = Stressor::new(stressor, 3, Box::new(|| Err("no other cache".to_owned())));
    let options = InstanceOptions { stressor: Some(stressor), ..twin::options() };
    let mut settings = plan.run;
    (settings.threads, settings.tasks) = (2, false);
    let instance = Arc::new(Instance::new(target, settings, workload, options));
    let mut report = run_all(&[Arc::clone(&instance)], None, &mut NoWatcher).unwrap().remove(0);
    instance.finish_stressor(&mut report);
    report.stressor.unwrap().failures
}

#[test]
fn engine_that_leaks_a_reference_fails_high_refcount() {
    let run = |leak_one_in| run_broken(StressorPlan::References, REFERENCES, leak_one_in, 0);
    assert_eq!(run(0), Vec::<String>::new());
    let failures = run(30);
    assert!(failures[0].contains("a reference was leaked"), "{failures:?}");
}

const MAPS: &str = r#"{
    "cache_config": { "cacheSizeMB": 96, "poolRebalanceIntervalSec": 1, "rebalanceMinSlabs": 1, "allocFactor": 2.0 },
    "test_config": { "name": "NAME", "numOps": 400, "numThreads": 2 }
}"#;

#[test]
fn map_stressors_pass_under_eviction() {
    for name in ["cachelib_map", "cachelib_range_map"] {
        let report = run(&own(&MAPS.replace("NAME", name)), 1);
        assert!(report.passed(), "{name}: {:?}", report.failures());
        let instance = &report.instances[0];
        assert_eq!(instance.counts.ops, 800);
        assert!(instance.counts.get_hits_dram > 50, "{name}: {:?}", instance.counts);
        assert!(instance.snapshot.stats.dram_total().evictions > 20, "{name}");
        assert!(figure(&report, "most_entries") > 1000, "{name}");
    }
}

#[test]
fn shipped_map_configs_pass_with_fewer_operations() {
    for file in ["cachelib_map", "cachelib_map_asan", "cachelib_range_map", "cachelib_range_map_asan"] {
        let changes = ["test_config.numOps=60", "test_config.numThreads=2"];
        let Some(config) = shipped(&format!("integration_tests/{file}.json"), &changes) else { return };
        let report = run(&config, 8);
        assert!(report.passed(), "{file}: {:?}", report.failures());
        assert_eq!(report.instances[0].counts.ops, 120);
    }
}

#[test]
fn engine_that_loses_a_chained_item_fails_the_map_stressors() {
    for (stressor, name) in
        [(StressorPlan::Map, "cachelib_map"), (StressorPlan::RangeMap, "cachelib_range_map")]
    {
        let run = |lose_one_in| run_broken(stressor, &MAPS.replace("NAME", name), 0, lose_one_in);
        assert_eq!(run(0), Vec::<String>::new());
        let failures = run(500);
        assert!(failures[0].contains("chained items were found"), "{failures:?}");
    }
}

#[test]
fn shipped_fast_shutdown_passes_scaled_down() {
    let own_config = own(
        r#"{ "cache_config": { "cacheSizeMB": 16, "poolRebalanceIntervalSec": 1, "moveOnSlabRelease": true,
        "rebalanceMinSlabs": 0, "rebalanceStrategy": "tail-age", "allocSizes": [64, 100] },
        "test_config": { "name": "fast_shutdown", "numOps": 4 } }"#,
    );
    let shipped = shipped("integration_tests/fast_shutdown.json", &[]);
    for (config, scale, shutdowns) in [(Some(own_config), 1, 3), (shipped, 64, 4)] {
        let Some(config) = config else { return };
        let report = run(&config, scale);
        assert!(report.passed(), "{:?}", report.failures());
        assert_eq!(figure(&report, "shutdowns"), shutdowns);
        assert!(figure(&report, "slab_releases_given_up") >= shutdowns);
    }
}

const OBJECTS: &str = r#"{
    "cache_config": { "cacheSizeMB": 64, "customConfigJson": { "l1EntriesLimit": 3000, "objectSizeTrackingEnabled": true } },
    "test_config": { "name": "object_cache", "numOps": 20000, "numThreads": 3, "numKeys": 6000, "enableLookaside": true,
        "touchValue": true, "keySizeRange": [16, 17], "keySizeRangeProbability": [1.0],
        "valSizeRange": [128, 512, 2048], "valSizeRangeProbability": [0.6, 0.4],
        "getRatio": 0.82, "setRatio": 0.1, "delRatio": 0.03, "updateRatio": 0.05 }
}"#;

#[test]
fn object_cache_keeps_objects_up_to_its_limit() {
    let report = run(&own(OBJECTS), 1);
    assert!(report.passed(), "{:?}", report.failures());
    let (objects, bytes) = (figure(&report, "objects"), figure(&report, "object_bytes"));
    assert!((2700..=3000).contains(&objects), "{objects} objects");
    assert!((128 * objects..2048 * objects).contains(&bytes), "{bytes} bytes in {objects} objects");
    let counts = report.instances[0].counts;
    assert!(counts.get_hits_dram > 5000 && counts.get_misses > 5000, "{counts:?}");
}

#[test]
fn object_cache_keeps_the_total_size_of_objects_near_its_limit() {
    // 3,000 objects of the config's sizes have about 1.8 MB.
    let limit =
        r#""totalObjectSizeLimit": 400000, "sizeControllerIntervalMs": 1, "objectSizeTrackingEnabled""#;
    let report = run(&own(&OBJECTS.replace(r#""objectSizeTrackingEnabled""#, limit)), 1);
    assert!(report.passed(), "{:?}", report.failures());
    let (objects, bytes, most) =
        (figure(&report, "objects"), figure(&report, "object_bytes"), figure(&report, "object_limit"));
    assert!((300_000..500_000).contains(&bytes), "{bytes} bytes in {objects} objects of at most {most}");
    assert!(objects <= most && most < 1000, "{objects} objects, at most {most}");
    assert_eq!(report.instances[0].counts.set_failures, 0, "memory was found for each object");
}

#[test]
fn shipped_object_cache_passes_with_fewer_operations() {
    let Some(config) = shipped("integration_tests/object_cache.json", &["test_config.numOps=20000"]) else {
        return;
    };
    let report = run(&config, 1);
    assert!(report.passed(), "{:?}", report.failures());
    assert_eq!(report.instances[0].counts.ops, 80_000);
    let objects = figure(&report, "objects");
    assert!((15_000..=20_000).contains(&objects), "{objects} objects");
}

/// A replay of 200 sets, every fourth of 5000 bytes and the others of 100, and a model with one tree, which rejects the large ones.
/// `split` is JSON that makes the tree's split one by category; `features` declares the model's feature `bytes`.
fn learned_replay(folder: &Path, split: &str, features: &str) -> Loaded {
    let rows: String =
        (0..200).map(|row| format!("key{row},SET,{},1\n", if row % 4 == 0 { 5000 } else { 100 })).collect();
    std::fs::write(folder.join("trace.csv"), format!("key,op,size,op_count\n{rows}")).unwrap();
    let model = format!(
        r#"{{ "learner": {{ "feature_names": ["bytes"],
        "gradient_booster": {{ "model": {{ "tree_info": [0], "trees": [{{ "left_children": [1, -1, -1], "right_children": [2, -1, -1],
            "split_indices": [0, 0, 0], "split_conditions": [1000.0, 2.0, -2.0], "default_left": [0, 0, 0] {split} }}] }} }},
        "learner_model_param": {{ "base_score": "5E-1", "num_class": "0", "num_feature": "1" }},
        "objective": {{ "name": "binary:logistic" }} }} }}"#
    );
    std::fs::write(folder.join("model.json"), model).unwrap();
    let text = format!(
        r#"{{ "cache_config": {{ "cacheSizeMB": 8 }},
        "test_config": {{ "generator": "replay", "traceFileName": "trace.csv", "numOps": 200, "numThreads": 1,
            "replayGeneratorConfig": {{ "mlAdmissionConfig": {{ "modelPath": "model.json", {features}, "admitCategory": 1 }} }} }} }}"#
    );
    load_text(&folder.join("run.json"), &text, &[]).unwrap()
}

#[test]
fn learned_admission_skips_rejected_sets() {
    let by_value = ("", r#""numericFeatures": { "bytes": "size" }"#);
    let by_category = (
        r#", "categories": [5000], "categories_nodes": [0], "categories_segments": [0], "categories_sizes": [1]"#,
        r#""categoricalFeatures": { "bytes": "size" }"#,
    );
    for (split, features) in [by_value, by_category] {
        let folder = tempfile::tempdir().unwrap();
        let Loaded::Config(config) = learned_replay(folder.path(), split, features) else {
            panic!("bad config")
        };
        assert_eq!(config.warnings, []);
        let report = run(&config, 1);
        let counts = report.instances[0].counts;
        assert_eq!((counts.ops, counts.sets, counts.sets_skipped), (200, 150, 50), "{features}");
        assert_eq!(report.instances[0].snapshot.stats.dram_total().items, 150);
    }
}

#[test]
fn wrong_feature_of_learned_admission_is_refused_with_its_key() {
    let at = "test_config.replayGeneratorConfig.mlAdmissionConfig=";
    for (admission, words) in [
        (
            r#"{"modelPath": "m", "categoricalFeatures": {"who": "usecase"}}"#,
            r#"categoricalFeatures.who: "usecase" is not a column that can be a feature; known are size, key_size, ttl, op_time"#,
        ),
        (
            r#"{"modelPath": "m", "categoricalFeatures": {"a": "ttl"}, "numericFeatures": {"a": "size"}}"#,
            "categoricalFeatures.a: is in numericFeatures, too",
        ),
        (r#"{"categoricalFeatures": {"a": "ttl"}}"#, "modelPath: is missing"),
    ] {
        let replay =
            [&format!("{at}{admission}"), "test_config.generator=replay", "test_config.traceFileName=t"];
        let refusal = refused(OBJECTS, &replay.map(|change| change as &str));
        assert!(refusal.contains(words), "{admission}: {refusal}");
    }
}

fn refused(text: &str, changes: &[&str]) -> String {
    let overrides: Vec<Override> = changes.iter().map(|it| it.parse().unwrap()).collect();
    load_text(Path::new("c.json"), text, &overrides).unwrap_err().to_string()
}

#[test]
fn two_memory_tiers_are_refused_with_the_flags_for_one() {
    let tiers = r#"cache_config.memoryTiers=[{"ratio": 1}, {"ratio": 3}]"#;
    let text = refused(OBJECTS, &["test_config.name=stressor", tiers]);
    assert!(text.contains("memoryTiers: has 2 tiers, and the engine has one in DRAM"), "{text}");
    assert!(text.contains("--set cache_config.memoryTiers=[]"), "{text}");
    assert!(text.contains("cacheSizeMB=16 and nvmCacheSizeMB=48"), "{text}");
    let one = ["test_config.name=stressor", tiers, "cache_config.memoryTiers=[]"];
    let overrides: Vec<Override> = one.iter().map(|it| it.parse().unwrap()).collect();
    assert!(matches!(load_text(Path::new("c.json"), OBJECTS, &overrides), Ok(Loaded::Config(_))));
}

#[test]
fn keys_that_a_stressor_does_not_allow_are_refused() {
    let custom = |key: &str, value: u64| format!("cache_config.customConfigJson={{\"{key}\": {value}}}");
    let message = refused(OBJECTS, &[&custom("totalObjectSizeLimit", 1000)]);
    assert!(
        message.contains("sizeControllerIntervalMs: is 0: totalObjectSizeLimit needs the interval"),
        "{message}"
    );
    let message = refused(OBJECTS, &[&custom("sizeControllerIntervalMs", 1000)]);
    assert!(message.contains("totalObjectSizeLimit: is 0: set it together with"), "{message}");
    for (text, change, message) in [
        (REFERENCES, "test_config.numOps=0", "numOps: is 0 or missing"),
        (REFERENCES, "test_config.generator=online", "generator: must be left out"),
        (
            REFERENCES,
            "cache_config.enableItemDestructorCheck=true",
            "enableItemDestructorCheck: must be false",
        ),
        (OBJECTS, "cache_config.nvmCacheSizeMB=100", "nvmCacheSizeMB: must be left out"),
        (OBJECTS, "test_config.addChainedRatio=0.1", "addChainedRatio: must be 0"),
        (OBJECTS, "cache_config.customConfigJson.maxKeySizeBytes=0", "maxKeySizeBytes: must be 1 to 255"),
        (REFERENCES, "test_config.name=high_refcout", "did you mean `high_refcount`?"),
    ] {
        let refusal = refused(text, &[change]);
        assert!(refusal.contains(message), "{change}: {refusal}");
    }
}
