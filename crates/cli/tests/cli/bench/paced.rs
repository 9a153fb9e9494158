//! Replays at the times of the trace.

use serde_json::Value;

use super::{config, err, flashwright, out};

const REPLAY: &str = r#"{ "cache_config": { "cacheSizeMB": 8, "nvmCacheSizeMB": 32, "navyRegionSizeMB": 1, "navyBlockSize": 4096 },
  "test_config": { "generator": "replay", "numOps": 100000, "numThreads": 3, "traceFileName": "trace.csv", "enableLookaside": true,
    "timestampFactor": 1000, "traceSpeed": 10 } }"#;

/// A trace with one request every forty minutes.
fn trace() -> String {
    let row = |number: u64| format!("key{},GET,100,{}\n", number % 17, 5_000_000 + number * 2_400_000);
    std::iter::once("key,op,size,op_time\n".to_owned()).chain((0..4).map(row)).collect()
}

fn run(directory: &tempfile::TempDir, file: &str, flags: &[&str]) -> Value {
    std::fs::write(directory.path().join("trace.csv"), trace()).unwrap();
    let output = flashwright(&[&["bench", file, "--json", "-"], flags].concat());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    serde_json::from_str(&out(&output)).unwrap()
}

/// Catches a regression: an hour without requests is reported as a stall.
#[test]
fn timed_replay_follows_the_trace_in_virtual_time() {
    let (directory, file) = config("replay.json", REPLAY);
    for mode in ["strict", "none"] {
        let mode = format!("test_config.replayGeneratorConfig.replaySerializationMode={mode}");
        let flags = ["--device", "sim:test", "--set", "test_config.traceSpeed=0.5", "--set", &mode];
        let result = run(&directory, &file, &flags);
        let totals = &result["totals"];
        assert_eq!(totals["ops"], 4);
        let seconds = totals["seconds"].as_f64().unwrap();
        assert!((seconds - 14_400.0).abs() < 0.1, "two hours at half speed: {seconds}");
        let arrivals = &totals["arrivals"];
        assert_eq!((&arrivals["mode"], &arrivals["kept_up"]), (&"trace".into(), &true.into()));
        assert_eq!(totals["latency_ns"]["from"], "due");
        assert_eq!(totals["latency_ns"]["service"]["get"]["count"], 4);
    }
}

#[test]
fn too_fast_trace_is_replayed_late_with_a_warning() {
    let (directory, file) = config("replay.json", REPLAY);
    let result = run(&directory, &file, &["--set", "test_config.traceSpeed=1e300"]);
    assert_eq!(result["totals"]["ops"], 4);
    let flags = ["--set", "test_config.traceSpeed=1e-300", "--timeout-seconds", "1"];
    let result = run(&directory, &file, &flags);
    assert_eq!(result["verdict"]["stopped"], "timeout", "the timeout must end the run");
    assert_eq!(result["totals"]["arrivals"]["backlog_ops"], Value::Null);
}

#[test]
fn timed_replay_of_a_trace_without_times_is_refused() {
    let (directory, file) = config("replay.json", REPLAY);
    std::fs::write(directory.path().join("trace.csv"), "key,op,size\na,GET,10\n").unwrap();
    let output = flashwright(&["bench", &file]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("trace.csv: its requests have no timestamps"), "{}", err(&output));
}
