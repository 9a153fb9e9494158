//! Config values as CacheBench reads them, keys of forks, and pools without a share.

use std::process::Command;

use serde_json::Value;

use super::{config, err, flashwright, json};

const TWO_POOLS: &str = r#"{ "cache_config": { "cacheSizeMB": 64, "numPools": 2, "poolSizes": [0.3, 0.7] },
  "test_config": { "numOps": 1000, "numThreads": 1, "numKeys": 1000, "keyPoolDistribution": [0.5, 0.5], "enableLookaside": true,
    "keySizeRange": [8, 16], "keySizeRangeProbability": [1.0], "valSizeRange": [100, 200], "valSizeRangeProbability": [1.0],
    "getRatio": 1.0 } }"#;

#[test]
fn strings_and_booleans_are_read_as_numbers_with_one_warning() {
    let (_directory, file) = config("small.json", super::SMALL);
    let sets = [
        r#"cache_config.nvmCacheSizeMB="32""#,
        "cache_config.cacheSizeMB=16.0",
        "test_config.enableLookaside=1",
        r#"test_config.checkConsistency="true""#,
        r#"test_config.getRatio="0.8""#,
    ];
    let flags: Vec<&str> = sets.iter().flat_map(|set| ["--set", *set]).collect();
    let result = json(&[&["bench", &file][..], &flags].concat());
    let (cache, test) = (&result["config"]["cache_config"], &result["config"]["test_config"]);
    assert_eq!((&cache["nvmCacheSizeMB"], &cache["cacheSizeMB"]), (&32.into(), &16.into()));
    assert_eq!((&test["enableLookaside"], &test["checkConsistency"]), (&true.into(), &true.into()));
    let warnings = result["totals"]["warnings"].as_array().unwrap();
    let about: Vec<_> = warnings.iter().filter(|it| it.as_str().unwrap().contains("another type")).collect();
    assert_eq!(about.len(), 1, "{warnings:?}");
    assert!(about[0].as_str().unwrap().contains(r#"nvmCacheSizeMB"#), "{about:?}");
}

#[test]
fn values_that_cachebench_rejects_are_rejected() {
    let (_directory, file) = config("small.json", super::SMALL);
    for set in [
        r#"test_config.numOps="many""#,
        "test_config.numOps=1.5",
        "test_config.numOps=-1",
        "test_config.numOps=[1]",
        r#"test_config.enableLookaside="maybe""#,
        r#"test_config.getRatio="inf""#,
    ] {
        let output = flashwright(&["bench", &file, "--validate", "--set", set]);
        let key = set.split('=').next().unwrap();
        assert_eq!(output.status.code(), Some(2), "{set}");
        assert!(err(&output).contains(&format!("{key}: expected ")), "{}", err(&output));
    }
}

#[test]
fn value_above_32_bits_is_clamped_with_a_warning() {
    let (_directory, file) = config("small.json", super::SMALL);
    for key in ["nvmAdmissionRetentionTimeThreshold", "memoryOnlyTTL", "lruRefreshSec", "deviceMaxWriteSize"]
    {
        let result = json(&["bench", &file, "--set", &format!("cache_config.{key}=72000000000")]);
        assert_eq!(result["config"]["cache_config"][key], 4_294_967_295_u64);
        let warnings = result["totals"]["warnings"].to_string();
        assert!(warnings.contains("72000000000 is above the maximum, 4294967295"), "{warnings}");
    }
}

#[test]
fn unknown_keys_are_skipped_on_request_and_removed_by_null() {
    let text = super::SMALL.replacen('{', r#"{ "fork": 1,"#, 1);
    let text = text.replacen(r#""numOps""#, r#""simulTraceTimeStamp": true, "numOp": 3, "numOps""#, 1);
    let (_directory, file) = config("fork.json", &text);
    let output = flashwright(&["bench", &file]);
    let message = err(&output);
    assert!(output.status.code() == Some(2) && message.contains("--ignore-unknown"), "{message}");
    let result = json(&["bench", &file, "--ignore-unknown"]);
    let warnings = result["totals"]["warnings"].as_array().unwrap();
    let about: Vec<&str> =
        warnings.iter().filter_map(|it| it.as_str()).filter(|it| it.contains("unknown")).collect();
    assert_eq!(about.len(), 1, "{warnings:?}");
    let names = ["fork", "test_config.simulTraceTimeStamp", "test_config.numOp (similar to `numOps`)"];
    assert!(names.iter().all(|name| about[0].contains(name)), "{about:?}");
    let removed = super::SMALL.replacen(r#""numOps""#, r#""simulTraceTimeStamp": true, "numOps""#, 1);
    let (_directory, file) = config("fork.json", &removed);
    let result = json(&["bench", &file, "--set", "test_config.simulTraceTimeStamp=null"]);
    assert_eq!(result["verdict"]["passed"], true);
    let output = flashwright(&["bench", &file, "--validate", "--set", "test_config.numOps=null"]);
    assert!(err(&output).contains("test_config.numOps: is 0 or missing"), "{}", err(&output));
}

#[test]
fn pools_without_a_share_of_operations_get_no_requests() {
    let (_directory, file) = config("pools.json", TWO_POOLS);
    for generator in ["workload", "online"] {
        let result = json(&["bench", &file, "--set", &format!("test_config.generator={generator}")]);
        assert_eq!((&result["totals"]["ops"], &result["totals"]["gets"]), (&1000.into(), &1000.into()));
        let warnings = result["totals"]["warnings"].to_string();
        assert!(warnings.contains("opPoolDistribution: has 1 share(s) for numPools 2"), "{warnings}");
        // Half of the keys belong to the other pool.
        assert!(
            result["totals"]["items_dram"].as_u64().unwrap() <= 500,
            "{}",
            result["totals"]["items_dram"]
        );
    }
    let output = flashwright(&["bench", &file, "--set", "test_config.opPoolDistribution=[0.2, 0.3, 0.5]"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn unavailable_memory_is_refused_before_the_run() {
    let (_directory, file) = config("small.json", super::SMALL);
    for (flags, key) in [
        (&["--set", "cache_config.cacheSizeMB=260000"][..], "cache_config.cacheSizeMB"),
        (
            &["--device", "memory:", "--set", "cache_config.nvmCacheSizeMB=500000"],
            "cache_config.nvmCacheSizeMB",
        ),
        (&["--device", "sim:pm9d3", "--set", "cache_config.cacheSizeMB=260000"], "cache_config.cacheSizeMB"),
    ] {
        for validate in [&["--validate"][..], &[]] {
            let output = flashwright(&[&["bench", &file][..], flags, validate].concat());
            let text = err(&output);
            assert_eq!(output.status.code(), Some(2), "{text}");
            assert!(
                text.contains(&format!("{key}: the run takes ")) && text.contains("--scale 1/"),
                "{text}"
            );
        }
    }
}

#[test]
fn run_with_all_inserts_rejected_fails_with_one_remedy() {
    let (_directory, file) = config("small.json", super::SMALL);
    let large =
        ["--set", "test_config.valSizeRange=[5242880, 5242881]", "--set", "cache_config.cacheSizeMB=512"];
    let output = flashwright(&[&["bench", &file][..], &large].concat());
    let (said, text) = (super::out(&output), err(&output));
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(said.contains("inserts into DRAM were refused (too large): nothing was stored"), "{said}");
    let remedy = "no chunk can be larger than 4 MiB: request smaller values, or chained items";
    assert!(text.contains(remedy) && said.contains(remedy), "{text}{said}");
    assert!(!said.contains("raise") && !said.contains("Finished!"), "{said}");
}

#[test]
fn em_dash_before_a_flag_is_accepted_with_a_warning() {
    let (directory, file) = config("small.json", super::SMALL);
    let stats = directory.path().join("run.log");
    let output = flashwright(&["bench", &file, &format!("\u{2014}progress_stats_file={}", stats.display())]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(err(&output).contains("`\u{2014}progress_stats_file` begins with"), "{}", err(&output));
    assert!(std::fs::read_to_string(&stats).unwrap().contains("== Test Results =="));
}

/// A limit on file sizes replaces a full disk.
#[test]
fn full_disk_leaves_complete_interval_rows_and_is_reported() {
    let (directory, file) = config("small.json", super::SMALL);
    let intervals = directory.path().join("run.csv");
    let run = "trap '' XFSZ; ulimit -f 2; exec \"$@\"";
    let slow = ["--set", "test_config.opRatePerSec=4000", "--set", "test_config.opRateBurstSize=1"];
    let output = Command::new("sh")
        .args(["-c", run, "sh", super::FLASHWRIGHT, "bench", &file, "--device", "memory:", "--json", "-"])
        .args(["--intervals", intervals.to_str().unwrap()])
        .args(slow)
        .output()
        .unwrap();
    let message = err(&output);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.contains("warning: writing ") && message.contains("no further intervals are written"),
        "{message}"
    );
    let text = std::fs::read_to_string(&intervals).unwrap();
    let columns = |line: &str| line.split(',').count();
    let header = columns(text.lines().next().unwrap());
    assert!(text.ends_with('\n') && text.lines().all(|line| columns(line) == header), "{text}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(result["verdict"]["unwritten"][0].as_str().unwrap().contains("run.csv"), "{}", result["verdict"]);
}
