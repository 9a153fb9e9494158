//! `useTraceTimeStamp`: items expire by the trace's time, while the run takes milliseconds.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::{config, err, flashwright, json};

/// Runs a trace with its config and these additional cache and test settings.
fn run(trace: &str, cache: &str, test: &str, flags: &[&str]) -> Value {
    let (directory, file) = config("run.json", &text(cache, test));
    std::fs::write(directory.path().join("trace.csv"), trace).unwrap();
    json(&[&["bench", &file], flags].concat())
}

fn text(cache: &str, test: &str) -> String {
    format!(
        r#"{{ "cache_config": {{ "cacheSizeMB": 8, "useTraceTimeStamp": true {cache} }},
        "test_config": {{ "generator": "replay", "traceFileName": "trace.csv", "numOps": 1000000,
        "numThreads": 1, "timestampFactor": 1 {test} }} }}"#
    )
}

/// Gets, hits and sets.
fn counts(result: &Value) -> (u64, u64, u64) {
    let of = |name: &str| result["totals"][name].as_u64().unwrap();
    let hits = result["totals"]["hit_ratio"].as_f64().unwrap() * of("gets") as f64;
    (of("gets"), hits.round() as u64, of("sets"))
}

const FLASH: &str = r#", "nvmCacheSizeMB": 32, "navyRegionSizeMB": 1, "navyBlockSize": 4096"#;
const HEADER: &str = "op_time,key,op,size,ttl\n";

#[test]
fn expiry_matches_a_trace_computed_by_hand() {
    // `a` expires at 1060, `b` at 1010, `c` never. A timestamp that goes back does not restore `b`.
    let rows = "1000,a,SET,100,60\n1000,b,SET,100,10\n1000,c,SET,100,0\n1009,b,GET,100,0\n1010,b,GET,100,0\n\
                1005,b,GET,100,0\n1059,a,GET,100,0\n1060,a,GET,100,0\n4000000000,c,GET,100,0\n";
    let trace = format!("{HEADER}{rows}");
    for (flash, flags) in [("", &[][..]), (FLASH, &["--device", "sim:test"])] {
        // `b` at 1009, `a` at 1059, and `c`.
        assert_eq!(counts(&run(&trace, flash, "", flags)), (6, 3, 3), "{flags:?}");
    }
    // Real time has not advanced: nothing has expired.
    let (directory, file) = config("run.json", &text("", ""));
    std::fs::write(directory.path().join("trace.csv"), &trace).unwrap();
    let by_machine = json(&["bench", &file, "--set", "cache_config.useTraceTimeStamp=false"]);
    assert_eq!(counts(&by_machine), (6, 6, 3));
}

/// A day of requests for few keys, and the expected hits of a cache without evictions.
fn a_day() -> (String, (u64, u64, u64)) {
    let (mut text, mut expires) = (HEADER.to_owned(), HashMap::new());
    let (mut gets, mut hits, mut sets) = (0, 0, 0);
    for row in 0..20_000_u64 {
        let mixed = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let (time, key) = (600_000_000 + row * 86_400 / 20_000, mixed % 300);
        let ttl = [0, 30, 600, 7200][(mixed >> 12) as usize % 4];
        let is_set = mixed >> 17 & 3 == 0;
        writeln!(text, "{time},key{key},{},{},{ttl}", if is_set { "SET" } else { "GET" }, 50 + key).unwrap();
        let found = expires.get(&key).is_some_and(|expiry| *expiry > time);
        gets += u64::from(!is_set);
        hits += u64::from(!is_set && found);
        // A missed get is followed by a set with the TTL of its row.
        if is_set || !found {
            sets += 1;
            expires.insert(key, if ttl == 0 { u64::MAX } else { time + ttl });
        }
    }
    (text, (gets, hits, sets))
}

#[test]
fn day_of_ttls_matches_a_simulation() {
    let (trace, expected) = a_day();
    assert!(expected.1 > 1000 && expected.0 - expected.1 > 1000, "{expected:?}: the TTLs cause misses");
    let lookaside = r#", "enableLookaside": true"#;
    assert_eq!(counts(&run(&trace, "", lookaside, &[])), expected);
    assert_eq!(counts(&run(&trace, FLASH, lookaside, &["--device", "sim:test"])), expected);
}

/// CacheBench's threads wait for each other at every step of the trace's time.
#[test]
fn threads_at_different_trace_times_do_not_block_each_other() {
    let (trace, (gets, ..)) = a_day();
    // Some threads own no key and so make no requests.
    let (test, cache) =
        (r#", "enableLookaside": true, "numThreads": 400"#, r#", "tickerSynchingSeconds": 1"#);
    assert_eq!(counts(&run(&trace, cache, test, &[])).0, gets);
    assert_eq!(counts(&run(&trace, &format!("{cache}{FLASH}"), test, &["--device", "sim:test"])).0, gets);
}

#[test]
fn trace_time_without_timestamps_or_with_a_generator_is_refused() {
    let refused = |trace: &str, set: &[&str], message: &str| {
        let (directory, file) =
            config("run.json", &text(r#", "nvmCacheSizeMB": 32, "nvmCachePaths": ["flash"]"#, ""));
        std::fs::write(directory.path().join("trace.csv"), trace).unwrap();
        let flash = directory.path().join("flash");
        let path = format!(r#"cache_config.nvmCachePaths=["{}"]"#, flash.display());
        let output = flashwright(&[&["bench", &file, "--set", &path], set].concat());
        assert_eq!(output.status.code(), Some(2), "{}", err(&output));
        assert!(err(&output).contains(message), "{}", err(&output));
        assert!(!flash.exists(), "nothing was written");
    };
    refused("key,op,size\na,GET,1\n", &[], "its requests have no timestamps");
    let late = format!("{HEADER}5000000000,a,GET,1,0\n");
    refused(&late, &[], "cache_config.useTraceTimeStamp: the trace begins after the year 2106");
    let online = ["--set", "test_config.generator=online", "--set", "test_config.numKeys=1"];
    refused(HEADER, &online, "cache_config.useTraceTimeStamp: only for replays");
}
