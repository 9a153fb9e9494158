//! Binary traces: created from CSV traces, and replayed.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use super::{err, flashwright, json, out};

const CACHE: &str = r#""cache_config": { "cacheSizeMB": 4 }"#;

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn trace(rows: u64) -> String {
    let mut text = "key,op,size,op_count,key_size,ttl\n".to_owned();
    for row in 0..rows {
        let mixed = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17;
        let (op, size) = (["GET", "GET", "SET", "DELETE"][mixed as usize % 4], mixed % 20_000);
        writeln!(text, "{},{op},{size},{},24,0", mixed % 3000, 1 + mixed % 3).unwrap();
    }
    text
}

/// The figures of a replay that show its requests and hits.
fn outcome(result: &Value) -> Vec<&Value> {
    let figures = ["ops", "gets", "sets", "deletes", "hit_ratio", "items_dram", "evictions_dram"];
    figures.iter().map(|name| &result["totals"][name]).collect()
}

#[test]
fn binary_trace_replays_like_the_csv() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "one.csv", &trace(9000));
    write(folder.path(), "two.csv", &trace(3000));
    let make = r#"{ "test_config": { "generator": "replay", "traceFileNames": ["one.csv", "two.csv"], "repeatTraceReplay": true,
        "replayGeneratorConfig": { "binaryFileName": "both.fwt.zst", "ampFactor": 2, "fastForwardCount": 100 } } }"#;
    let make = write(folder.path(), "make.json", make);
    let made = &json(&["bench", &make])["binary_traces"][0];
    assert_eq!((made["requests"].as_u64(), made["rows"].as_u64()), (Some(2 * 11_900), Some(12_000)));
    let run = |name: &str, rest: &str| {
        let text = format!(
            r#"{{ {CACHE}, "test_config": {{ "numOps": 1000000, "numThreads": 1, "enableLookaside": true, {rest} }} }}"#
        );
        json(&["bench", &write(folder.path(), name, &text)])
    };
    let csv = run(
        "csv.json",
        r#""generator": "replay", "traceFileNames": ["one.csv", "two.csv"],
            "replayGeneratorConfig": { "ampFactor": 2, "fastForwardCount": 100 }"#,
    );
    let by_its_key = run(
        "key.json",
        r#""generator": "binary-replay", "replayGeneratorConfig": { "binaryFileName": "both.fwt.zst" }"#,
    );
    let as_trace = run("trace.json", r#""generator": "binary-replay", "traceFileName": "both.fwt.zst""#);
    assert!(csv["totals"]["ops"].as_u64() > Some(30_000));
    assert_eq!(outcome(&by_its_key), outcome(&csv));
    assert_eq!(outcome(&as_trace), outcome(&csv));
}

#[test]
fn binary_trace_errors_are_reported_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let csv = write(folder.path(), "one.csv", &trace(10));
    let make = r#"{ "test_config": { "generator": "replay", "traceFileName": "one.csv",
        "replayGeneratorConfig": { "binaryFileName": "one.fwt" } } }"#;
    let make = write(folder.path(), "make.json", make);
    let refused = |arguments: &[&str], text: &str| {
        let output = flashwright(&[&["bench"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{}", out(&output));
        assert!(err(&output).contains(text), "{}", err(&output));
    };
    let into = |name: &str| format!("test_config.replayGeneratorConfig.binaryFileName={name}");
    refused(&[&make, "--set", &into("one.csv")], "would overwrite the input trace");
    refused(&[&make, "--set", &into("no/such/one.fwt")], "no/such/one.fwt");
    refused(&[&make, "--set", "test_config.generator=online"], "only for the generators `replay`");
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), trace(10));
    assert_eq!(flashwright(&["bench", "--validate", &make]).status.code(), Some(0));
    assert!(!folder.path().join("one.fwt").exists(), "validation writes nothing");
    let run = format!(
        r#"{{ {CACHE}, "test_config": {{ "generator": "binary-replay", "numOps": 10, "numThreads": 1, "traceFileName": "one.csv" }} }}"#
    );
    let run = write(folder.path(), "run.json", &run);
    refused(&[&run], "this is a `kvcache` trace, but a `binary` trace is needed here");
    json(&["bench", &make]);
    let mut bytes = std::fs::read(folder.path().join("one.fwt")).unwrap();
    bytes[8] = 9;
    std::fs::write(folder.path().join("one.fwt"), bytes).unwrap();
    let row_of = |key: &str| {
        format!("{key}: {}: it is a binary trace of version 9", folder.path().join("one.fwt").display())
    };
    refused(&[&run, "--set", "test_config.traceFileName=one.fwt"], &row_of("test_config.traceFileName"));
    let key = "test_config.replayGeneratorConfig.binaryFileName";
    refused(&[&run, "--set", &into("one.fwt")], &row_of(key));
}

/// As shipped with CacheBench: one config creates the trace, the other replays it with sixteen threads, some without any key of the
/// trace.
#[test]
fn shipped_binary_trace_configs_complete() {
    let Some(shipped) = super::shipped() else { return };
    let shipped = shipped.join("trace_replay/kvcache");
    let folder = tempfile::tempdir().unwrap();
    let copied =
        |name: &str| write(folder.path(), name, &std::fs::read_to_string(shipped.join(name)).unwrap());
    copied("kv_traces_1.csv");
    let made = json(&["bench", &copied("config_kvtrace_gen_binary.json")]);
    assert_eq!(made["binary_traces"][0]["accesses"], 691);
    let (ops, directory) = ("test_config.numOps=5000", folder.path().display());
    let directory = format!("cache_config.cacheDir={directory}");
    let replay = copied("config_kvtrace_replay_binary.json");
    let result = json(&["bench", &replay, "--set", ops, "--set", &directory]);
    assert!(result["totals"]["ops"].as_u64() >= Some(70_000), "{}", result["totals"]["ops"]);
}
