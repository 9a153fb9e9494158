//! A run that ends before its trace counts and reports the requests that are missing.

use serde_json::Value;

use super::{config, json};

/// 1,000 requests for one key, then 10 for distinct keys.
fn hot_key_trace() -> (tempfile::TempDir, String) {
    let text = r#"{ "cache_config": { "cacheSizeMB": 64 }, "test_config": { "generator": "replay", "numOps": 100, "numThreads": 2,
        "traceFileName": "trace.csv", "enableLookaside": true } }"#;
    let (directory, file) = config("replay.json", text);
    let hot = "hot,GET,10,1,3\n".repeat(1000);
    let others: String = (0..10).map(|key| format!("k{key},GET,10,1,2\n")).collect();
    std::fs::write(
        directory.path().join("trace.csv"),
        format!("key,op,size,op_count,key_size\n{hot}{others}"),
    )
    .unwrap();
    (directory, file)
}

fn trace(result: &Value, name: &str) -> u64 {
    result["totals"]["trace"][name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {:#}", result["totals"]["trace"]))
}

fn remarks(result: &Value) -> String {
    result["verdict"]["remarks"].to_string()
}

#[test]
fn num_ops_below_a_hot_key_reports_the_requests_not_made() {
    let (_directory, file) = hot_key_trace();
    for device in [&[][..], &["--device", "sim:test", "--set", "cache_config.nvmCacheSizeMB=64"]] {
        let result = json(&[&["bench", &file][..], device].concat());
        let made = result["totals"]["ops"].as_u64().unwrap();
        assert!((100..=110).contains(&made), "{made}");
        assert_eq!((trace(&result, "requests"), trace(&result, "requests_not_made")), (1010, 1010 - made));
        let text = format!("{} of 1,010 requests", 1010 - made);
        let remarks = remarks(&result);
        assert!(remarks.contains(&text) && remarks.contains("numOps, 100 per thread"), "{remarks}");
        assert!(remarks.contains("numOps 1,010 executes them all"), "{remarks}");
    }
    let all = json(&["bench", &file, "--set", "test_config.numOps=1010"]);
    assert_eq!((&all["totals"]["ops"], trace(&all, "requests_not_made")), (&1010.into(), 0));
    assert!(!remarks(&all).contains("not executed"), "{}", remarks(&all));
}

#[test]
fn num_ops_limits_every_replay_order_and_repeated_rows() {
    let (directory, file) = hot_key_trace();
    for mode in ["none", "relaxed"] {
        let mode = format!("test_config.replayGeneratorConfig.replaySerializationMode={mode}");
        let result = json(&["bench", &file, "--set", &mode]);
        let made = result["totals"]["ops"].as_u64().unwrap();
        assert_eq!(made + trace(&result, "requests_not_made"), 1010, "{mode}");
        assert!(remarks(&result).contains("not executed"), "{}", remarks(&result));
    }
    // One row of 1,000 repetitions, amplified by 2.
    std::fs::write(directory.path().join("trace.csv"), "key,op,size,op_count,key_size\nhot,GET,10,1000,3\n")
        .unwrap();
    let result = json(&[
        "bench",
        &file,
        "--set",
        "test_config.replayGeneratorConfig.ampFactor=2",
        "--set",
        "test_config.numThreads=1",
    ]);
    assert_eq!((&result["totals"]["ops"], trace(&result, "requests_not_made")), (&100.into(), 1900));
}

#[test]
fn trace_longer_than_num_ops_reports_the_missing_requests() {
    let (directory, file) = hot_key_trace();
    let rows: String = (0..100_000).map(|row| format!("k{row},GET,10,1,5\n")).collect();
    std::fs::write(directory.path().join("trace.csv"), format!("key,op,size,op_count,key_size\n{rows}"))
        .unwrap();
    let result = json(&["bench", &file, "--set", "test_config.numThreads=1"]);
    assert_eq!(
        (trace(&result, "requests_not_made"), &result["totals"]["trace"]["read_to_end"]),
        (0, &false.into())
    );
    assert!(remarks(&result).contains("only its first 100 requests"), "{}", remarks(&result));
    // An endless replay ends at numOps.
    let result = json(&[
        "bench",
        &file,
        "--set",
        "test_config.numThreads=1",
        "--set",
        "test_config.repeatTraceReplay=true",
    ]);
    assert!(!remarks(&result).contains("trace"), "{}", remarks(&result));
}

#[test]
fn timeout_reports_the_requests_not_made() {
    let (_directory, file) = hot_key_trace();
    let slow = [
        "--set",
        "test_config.opRatePerSec=1",
        "--set",
        "test_config.opRateBurstSize=1",
        "--timeout-seconds",
        "1",
    ];
    let result = json(&[&["bench", &file][..], &slow, &["--set", "test_config.numOps=5000"]].concat());
    let made = result["totals"]["ops"].as_u64().unwrap();
    assert_eq!(result["verdict"]["stopped"], "timeout");
    assert!(made < 10 && trace(&result, "requests_not_made") == trace(&result, "requests") - made);
    assert!(remarks(&result).contains("time limit reached"), "{}", remarks(&result));
}

#[test]
fn replay_ops_replay_only_the_named_operations() {
    let (directory, file) = hot_key_trace();
    let rows: String =
        (0..300).map(|row| format!("k{row},{},10,2,5\n", ["GET", "SET", "DELETE"][row % 3])).collect();
    std::fs::write(directory.path().join("trace.csv"), format!("key,op,size,op_count,key_size\n{rows}"))
        .unwrap();
    let run = |ops: &str| {
        json(&[
            "bench",
            &file,
            "--set",
            "test_config.numOps=10000",
            "--set",
            &format!("test_config.replayOps={ops}"),
        ])
    };
    let counts =
        |result: &Value| ["gets", "sets", "deletes"].map(|name| result["totals"][name].as_u64().unwrap());
    let writes = run(r#"["set"]"#);
    assert_eq!((counts(&writes), trace(&writes, "filtered_rows")), ([0, 200, 0], 200));
    assert_eq!((trace(&writes, "requests"), trace(&writes, "requests_not_made")), (200, 0));
    let [gets, filled, deletes] = counts(&run(r#"["GET", "DELETE"]"#));
    assert_eq!((gets, deletes), (200, 200));
    assert!((1..=100).contains(&filled), "only missed gets are filled: {filled}");
    let output = super::flashwright(&["bench", &file, "--set", r#"test_config.replayOps=["PUT"]"#]);
    let text = super::err(&output);
    assert!(output.status.code() == Some(2) && text.contains("replayOps[0]: unknown name `PUT`"), "{text}");
}
