//! Workers that are tasks on a few threads.

use std::collections::HashSet;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::{config, endless};
use crate::{err, flashwright, out};

const RUN: &str = r#"{ "cache_config": { "cacheSizeMB": 4, "nvmCacheSizeMB": 32, "navyRegionSizeMB": 1, "navyBlockSize": 4096 },
  "test_config": { "name": "async", "numOps": 500, "numThreads": 200, "numKeys": 6000, "enableLookaside": true, "checkConsistency": true,
    "generator": "online", "keySizeRange": [8, 16], "keySizeRangeProbability": [1.0], "valSizeRange": [100, 8000], "valSizeRangeProbability": [1.0],
    "chainedItemLengthRange": [1, 4], "chainedItemLengthRangeProbability": [1.0],
    "chainedItemValSizeRange": [1, 100], "chainedItemValSizeRangeProbability": [1.0],
    "getRatio": 0.7, "setRatio": 0.2, "delRatio": 0.05, "addChainedRatio": 0.05 } }"#;

fn run(changes: &[&str]) -> Value {
    let (_directory, file) = config("run.json", RUN);
    let set = changes.iter().flat_map(|change| ["--set", change]);
    let flags: Vec<&str> = ["bench", &file, "--json", "-"].into_iter().chain(set).collect();
    let output = flashwright(&flags);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    serde_json::from_str(&out(&output)).unwrap()
}

#[test]
fn tasks_have_the_results_of_threads_without_errors() {
    let (tasks, threads) = (run(&[]), run(&["test_config.name=stressor"]));
    for result in [&tasks, &threads] {
        let totals = &result["totals"];
        assert_eq!((&totals["ops"], &totals["inconsistencies"]), (&100_000.into(), &0.into()));
        assert!(totals["hit_ratio_flash"].as_f64() > Some(0.1), "{totals}");
    }
    let hits = |result: &Value| result["totals"]["hit_ratio"].as_f64().unwrap();
    assert!((hits(&tasks) - hits(&threads)).abs() < 0.05, "{} {}", hits(&tasks), hits(&threads));
}

/// No task completes before another has started.
#[test]
fn tasks_alternate_without_flash_waits() {
    let turns = ["cache_config.nvmCacheSizeMB=0", "test_config.numThreads=50", "test_config.numOps=4000"];
    let (tasks, one) = (
        run(&turns),
        run(&[&turns[..], &["test_config.numThreads=1", "test_config.numOps=200000"]].concat()),
    );
    assert_eq!(tasks["totals"]["ops"], 200_000);
    let hits = |result: &Value| result["totals"]["hit_ratio"].as_f64().unwrap();
    assert!((hits(&tasks) - hits(&one)).abs() < 0.02, "{} {}", hits(&tasks), hits(&one));
}

#[test]
fn rate_limit_applies_to_tasks() {
    let result =
        run(&["test_config.numOps=10", "test_config.opRatePerSec=10000", "test_config.opRateBurstSize=10"]);
    assert!(result["totals"]["seconds"].as_f64() > Some(0.19), "{}", result["totals"]["seconds"]);
}

#[test]
fn trace_replay_with_tasks_is_refused() {
    let (_directory, file) = config("run.json", RUN);
    let replay =
        ["test_config.generator=replay", "test_config.traceFileName=t", "test_config.checkConsistency=false"];
    let set = replay.iter().flat_map(|change| ["--set", change]);
    let output = flashwright(&["bench", &file].into_iter().chain(set).collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("test_config.name: `async` is only for generators"), "{}", err(&output));
}

/// Workers, counted by thread name. A new thread has its parent's name until it sets its own.
#[cfg(target_os = "linux")]
#[test]
fn thousand_tasks_use_few_threads_and_end_on_interrupt() {
    let (directory, file) = config("run.json", RUN);
    let result = directory.path().join("result.json");
    let mut child =
        endless(&file, &result).args(["--quiet", "--set", "test_config.numThreads=1000"]).spawn().unwrap();
    let tasks = format!("/proc/{}/task", child.id());
    let workers = || {
        let names = std::fs::read_dir(&tasks).unwrap();
        let names = names.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|name| name.starts_with("worker-")).collect::<HashSet<_>>().len()
    };
    let mut seen = 0;
    for _ in 0..500 {
        std::thread::park_timeout(Duration::from_millis(20));
        seen = workers();
        if seen > 0 {
            break;
        }
    }
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let processors = std::thread::available_parallelism().unwrap().get();
    assert!((1..=processors).contains(&seen), "{seen} threads for {processors} processors");
}
