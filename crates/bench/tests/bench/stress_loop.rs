//! The stress loop with a simple target: it follows the config, and detects a faulty target.
use crate::twin;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::twin::{MapTarget, NoWatcher};
use device::Clock;
use device::timer::SystemTimer;
use flashwright_bench::config::cachebench::load_text;
use flashwright_bench::config::lower::lower;
use flashwright_bench::config::plan::{RunSettings, WorkloadPlan};
use flashwright_bench::config::{Loaded, Override};
use flashwright_bench::run::latency::Timed;
use flashwright_bench::run::pace::Waiter;
use flashwright_bench::run::stop::{Stop, StopReason};
use flashwright_bench::run::{Instance, InstanceOptions, InstanceReport, run_all};
use parking_lot::Mutex;
use workload::generate::{Online, PreparedAccesses};
use workload::{Request, RequestKind, Source, Workload, WorkloadError};

const CONFIG: &str = r#"{
  "cache_config": { "cacheSizeMB": 64 },
  "test_config": { "numOps": 20000, "numThreads": 3, "numKeys": 500,
    "keySizeRange": [8, 16], "keySizeRangeProbability": [1.0], "valSizeRange": [1, 300], "valSizeRangeProbability": [1.0],
    "chainedItemLengthRange": [1, 4], "chainedItemLengthRangeProbability": [1.0],
    "chainedItemValSizeRange": [1, 100], "chainedItemValSizeRangeProbability": [1.0],
    "getRatio": 0.6, "setRatio": 0.3, "delRatio": 0.1 }
}"#;

fn run(target: MapTarget, changes: &[&str], timeout: Option<Duration>) -> InstanceReport {
    let overrides: Vec<Override> = changes.iter().map(|change| change.parse().unwrap()).collect();
    let Ok(Loaded::Config(config)) = load_text(Path::new("c.json"), CONFIG, &overrides) else {
        panic!("bad config")
    };
    let plan = lower(&config).unwrap().instances.remove(0);
    let workload: Box<dyn Workload> = match &plan.workload {
        WorkloadPlan::Online(config) => Box::new(Online::new(config).unwrap()),
        WorkloadPlan::Prepared { config, ops } => Box::new(PreparedAccesses::new(config, *ops).unwrap()),
        WorkloadPlan::Replay(_) | WorkloadPlan::Stressor(_) => panic!("not here"),
    };
    let options = InstanceOptions { chains: true, ..twin::options() };
    let instance = Instance::new(target, plan.run, workload, options);
    run_all(&[Arc::new(instance)], timeout, &mut NoWatcher).unwrap().remove(0)
}

fn sound() -> MapTarget {
    MapTarget { capacity_items: 300, ..MapTarget::default() }
}

#[test]
fn run_does_configured_number_and_mix_of_operations() {
    let counts = run(sound(), &[], None).counts;
    assert_eq!(counts.ops, 60_000);
    assert_eq!(counts.gets + counts.sets + counts.deletes, 60_000);
    assert!((0.59..0.61).contains(&(counts.gets as f64 / 60_000.0)), "{counts:?}");
    assert!((0.09..0.11).contains(&(counts.deletes as f64 / 60_000.0)), "{counts:?}");
    assert_eq!(counts.get_hits_dram + counts.get_misses, counts.gets);
}

/// Counts workers that have started, and how many had when the first one made its 200th request.
#[derive(Clone, Default)]
struct StartCounter {
    begun: Arc<AtomicUsize>,
    least: Arc<Mutex<Option<usize>>>,
}

struct CountedSource {
    roll: StartCounter,
    requests: u64,
    key: [u8; 8],
}

impl Workload for StartCounter {
    fn sources(&self, workers: usize, _seed: u64) -> Result<Vec<Box<dyn Source>>, WorkloadError> {
        let source =
            |worker: usize| CountedSource { roll: self.clone(), requests: 0, key: worker.to_le_bytes() };
        Ok((0..workers).map(|worker| Box::new(source(worker)) as Box<dyn Source>).collect())
    }

    fn key_count(&self) -> Option<u64> {
        None
    }
}

impl Source for CountedSource {
    fn next(&mut self) -> Option<Request<'_>> {
        self.requests += 1;
        match self.requests {
            1 => drop(self.roll.begun.fetch_add(1, Ordering::SeqCst)),
            200 => drop(self.roll.least.lock().get_or_insert(self.roll.begun.load(Ordering::SeqCst))),
            _ => {}
        }
        Some(Request {
            kind: RequestKind::Get,
            key: &self.key,
            key_id: 0,
            value_bytes: 1,
            chain_bytes: &[],
            ttl_seconds: None,
            pool: 0,
            time_ns: None,
            repeat: 1,
            tenant: None,
            part: None,
        })
    }
}

/// A worker that never waits must yield, so that the other workers of its thread can start.
#[test]
fn workers_sharing_a_thread_are_scheduled_fairly() {
    const WORKERS_PER_THREAD: usize = 64;
    let Ok(Loaded::Config(config)) = load_text(Path::new("c.json"), CONFIG, &[]) else {
        panic!("bad config")
    };
    let mut settings = lower(&config).unwrap().instances.remove(0).run;
    let processors = std::thread::available_parallelism().unwrap().get();
    (settings.threads, settings.ops_per_thread, settings.tasks) =
        (WORKERS_PER_THREAD * processors, 400, true);
    let (roll, waiter) = (StartCounter::default(), Waiter::SharedThread(Arc::new(SystemTimer::default())));
    let options = InstanceOptions { waiter, ..twin::options() };
    let instance = Instance::new(sound(), settings, Box::new(roll.clone()), options);
    let report = run_all(&[Arc::new(instance)], None, &mut NoWatcher).unwrap().remove(0);
    assert_eq!(report.counts.gets, (WORKERS_PER_THREAD * processors * 400) as u64);
    let least = roll.least.lock().unwrap();
    assert!(least >= WORKERS_PER_THREAD, "{least} had begun when one was far ahead");
}

/// The iteration pauses for a day and must not keep the run from ending.
#[test]
fn panic_of_workers_ends_dram_iteration() {
    let target = sound();
    std::thread::scope(|scope| {
        let poison = scope.spawn(|| {
            let _locked = target.state.lock();
            panic!("every operation will panic");
        });
        assert!(poison.join().is_err());
    });
    let walk = ["test_config.dramIteratorMode=regular", "test_config.dramIteratorIntervalMs=86400000"];
    let ran = std::panic::AssertUnwindSafe(|| run(target, &walk, None));
    assert!(std::panic::catch_unwind(ran).is_err());
}

#[test]
fn correct_target_passes_consistency_check() {
    for generator in ["workload", "online"] {
        let changes = [
            "test_config.checkConsistency=true".to_owned(),
            format!("test_config.generator={generator}"),
            "test_config.addChainedRatio=0.2".into(),
            "test_config.updateRatio=0.1".into(),
        ];
        let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
        let report = run(sound(), &changes, None);
        assert_eq!(report.counts.inconsistencies, 0, "{:?}", report.inconsistencies);
        assert!(report.counts.add_chained > 1000 && report.counts.get_hits_dram > 1000);
        assert_eq!(report.stopped, None);
    }
}

/// A constant clock, so that the run's mark is always the same: one that ends in a 0 bit.
struct ConstantClock;

impl Clock for ConstantClock {
    fn monotonic_ns(&self) -> u64 {
        0
    }

    fn unix_seconds(&self) -> u32 {
        2
    }
}

/// More than 4096 workers must not overflow the worker bits of a version into the mark of the run.
#[test]
fn values_of_more_than_4096_workers_are_recognised() {
    let check = ["test_config.checkConsistency=true", "test_config.name=async"];
    let check = check.map(|change| change.parse().unwrap());
    let Ok(Loaded::Config(config)) = load_text(Path::new("c.json"), CONFIG, &check) else {
        panic!("bad config")
    };
    let plan = lower(&config).unwrap().instances.remove(0);
    let WorkloadPlan::Prepared { config, ops } = &plan.workload else { panic!("not here") };
    let workload = PreparedAccesses::new(config, *ops).unwrap();
    let settings = RunSettings { threads: 5000, ops_per_thread: 40, ..plan.run };
    let waiter = Waiter::SharedThread(Arc::new(SystemTimer::default()));
    let options = InstanceOptions { waiter, clock: Arc::new(ConstantClock), ..twin::options() };
    let instance = Instance::new(sound(), settings, Box::new(workload), options);
    let report = run_all(&[Arc::new(instance)], None, &mut NoWatcher).unwrap().remove(0);
    assert_eq!(report.counts.inconsistencies, 0, "{:?}", report.inconsistencies);
    assert!(report.counts.get_hits_dram > 1000, "{:?}", report.counts);
}

#[test]
fn lost_sets_or_deletes_are_detected_and_end_the_run() {
    let check = ["test_config.checkConsistency=true"];
    let losing = MapTarget { lose_every: Some(50), ..sound() };
    let report = run(losing, &check, None);
    assert!(report.counts.inconsistencies >= 50, "{:?}", report.counts);
    assert_eq!(report.stopped, Some(StopReason::Inconsistencies));
    assert!(!report.inconsistencies.is_empty());
    let stubborn = MapTarget { ignore_deletes: true, ..sound() };
    assert!(run(stubborn, &check, None).counts.inconsistencies >= 50);
}

#[test]
fn consistency_check_works_without_populate_item() {
    let check = ["test_config.checkConsistency=true", "test_config.populateItem=false"];
    assert_eq!(run(sound(), &check, None).counts.inconsistencies, 0);
    let losing = MapTarget { lose_every: Some(50), ..sound() };
    assert!(run(losing, &check, None).counts.inconsistencies >= 50);
}

/// The limit applies to each instance, and ends only that instance.
#[test]
fn inconsistent_instance_does_not_end_others() {
    let check = [
        "test_config.checkConsistency=true".parse().unwrap(),
        "test_config.maxInconsistencyCount=60".parse().unwrap(),
    ];
    let Ok(Loaded::Config(config)) = load_text(Path::new("c.json"), CONFIG, &check) else {
        panic!("bad config")
    };
    let plan = lower(&config).unwrap().instances.remove(0);
    let WorkloadPlan::Prepared { config, ops } = &plan.workload else { panic!("not here") };
    let of_run = Stop::default();
    let instance = |target| {
        let workload = PreparedAccesses::new(config, *ops).unwrap();
        let options = InstanceOptions { stop: of_run.for_instance(), ..twin::options() };
        Arc::new(Instance::new(target, plan.run.clone(), Box::new(workload), options))
    };
    let losing = MapTarget { lose_every: Some(50), ..sound() };
    let reports = run_all(&[instance(losing), instance(sound())], None, &mut NoWatcher).unwrap();
    assert_eq!(reports[0].stopped, Some(StopReason::Inconsistencies));
    assert!(reports[0].counts.inconsistencies >= 60);
    assert_eq!((reports[1].stopped, reports[1].counts.ops), (None, 60_000));
}

#[test]
fn flipped_byte_is_detected() {
    let flipping = MapTarget { flip_every: Some(1000), ..sound() };
    let report = run(flipping, &["test_config.checkConsistency=true"], None);
    assert!(report.counts.inconsistencies > 0);
}

#[test]
fn lookaside_sets_after_each_miss() {
    let report = run(
        sound(),
        &["test_config.enableLookaside=true", "test_config.setRatio=0", "test_config.delRatio=0"],
        None,
    );
    assert_eq!(report.counts.sets, report.counts.get_misses);
    assert!(report.counts.get_hits_dram > 0);
}

#[test]
fn only_set_if_miss_skips_existing_keys() {
    let report = run(sound(), &["test_config.onlySetIfMiss=true"], None);
    assert!(report.counts.sets_skipped > 0 && report.counts.sets > 0);
}

#[test]
fn could_exist_operations_are_counted() {
    let report = run(sound(), &["test_config.couldExistRatio=0.5"], None);
    assert!(report.counts.could_exist > 0 && report.counts.could_exist_misses < report.counts.could_exist);
}

#[test]
fn one_operation_in_sixteen_is_timed() {
    let report = run(sound(), &[], None);
    let timed = report.latencies.gets().count() + report.latencies.of(Timed::Set).count();
    let deletes = report.latencies.of(Timed::Delete).count();
    let all = (timed + deletes) as f64 / 60_000.0;
    assert!((0.9 / 16.0..1.1 / 16.0).contains(&all), "{all}");
}

/// With lookaside, gets and sets alternate, so timing every 16th operation would never time a set.
#[test]
fn sets_after_misses_are_timed_if_every_get_misses() {
    const NO_CHAINS: [&str; 2] = ["chainedItemLengthRange=[]", "chainedItemLengthRangeProbability=[]"];
    let [lengths, shares] = NO_CHAINS;
    let misses = ["enableLookaside=true", "setRatio=0", "delRatio=0", lengths, shares];
    let misses = misses.map(|change| format!("test_config.{change}"));
    let report = run(MapTarget::default(), &misses.each_ref().map(String::as_str), None);
    assert_eq!((report.counts.get_misses, report.counts.sets), (60_000, 60_000));
    for what in [Timed::GetMiss, Timed::Set] {
        let timed = report.latencies.of(what).count() as f64 / 60_000.0;
        assert!((0.9 / 16.0..1.1 / 16.0).contains(&timed), "{what:?}: {timed}");
    }
}

#[test]
fn timeout_ends_run_with_report() {
    let endless =
        ["test_config.numOps=1000000000000", "test_config.opDelayBatch=1", "test_config.opDelayNs=1000000"];
    let report = run(sound(), &endless, Some(Duration::from_millis(1)));
    assert_eq!(report.stopped, Some(StopReason::Timeout));
    assert!(report.counts.ops > 0);
}
