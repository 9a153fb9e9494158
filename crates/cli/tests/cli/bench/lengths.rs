//! The end of a run and the start of its measurement. In virtual time the warm-up does not change the run.

use serde_json::Value;

use super::{config, err, flashwright, out};

const RUN: &str = r#"{ "cache_config": { "cacheSizeMB": 4, "nvmCacheSizeMB": 16, "navyRegionSizeMB": 1, "navyBlockSize": 4096 },
  "test_config": { "numOps": 8000, "numThreads": 4, "numKeys": 8000, "enableLookaside": true, "checkConsistency": true, "generator": "online",
    "keySizeRange": [8, 16], "keySizeRangeProbability": [1.0], "valSizeRange": [100, 8000], "valSizeRangeProbability": [1.0],
    "getRatio": 0.8, "setRatio": 0.2 } }"#;

fn run(text: &str, changes: &[&str]) -> Value {
    let (_directory, file) = config("run.json", text);
    let set = changes.iter().flat_map(|change| ["--set", change]);
    let flags: Vec<&str> =
        ["bench", &file, "--device", "sim:test", "--json", "-"].into_iter().chain(set).collect();
    let output = flashwright(&flags);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    serde_json::from_str(&out(&output)).unwrap()
}

fn count(result: &Value, path: &str) -> u64 {
    result.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {result:#}"))
}

#[test]
fn warm_up_and_measured_part_add_up_to_the_run() {
    let whole = run(RUN, &[]);
    let (ops, written) = (count(&whole, "/totals/ops"), count(&whole, "/totals/flash_bytes_host"));
    assert_eq!((ops, &whole["totals"]["warmup"]), (32_000, &Value::Null));
    // Operations are per thread; there are four threads.
    for (warmup, ops_at_least, mib_at_least) in
        [("warmupOps=3000", 12_000, 1), ("warmupFlashWriteMB=20", 1000, 20)]
    {
        let part = run(RUN, &[&format!("test_config.{warmup}")]);
        let warm = |name: &str| count(&part, &format!("/totals/warmup/{name}"));
        assert_eq!(part["totals"]["warmup"]["ended"], true);
        let is_warm = warm("ops") >= ops_at_least && warm("flash_bytes_host") >= mib_at_least << 20;
        assert!(is_warm, "{}", part["totals"]["warmup"]);
        assert_eq!(count(&part, "/totals/ops") + warm("ops"), ops);
        assert_eq!(count(&part, "/totals/flash_bytes_host") + warm("flash_bytes_host"), written);
        // A drive counts writes that are still in flight.
        let of_drive = count(&part, "/drive/host_bytes") + warm("flash_bytes_host");
        assert!(of_drive.abs_diff(written) <= 2 << 20, "{of_drive} for {written}");
        let seconds = |of: &Value, path: &str| of.pointer(path).and_then(Value::as_f64).unwrap();
        let both = seconds(&part, "/totals/seconds") + seconds(&part, "/totals/warmup/seconds");
        assert!((both - seconds(&whole, "/totals/seconds")).abs() < 1e-6);
        // Each of four threads can be within a get when the warm-up ends.
        let timed = count(&part, "/totals/latency_ns/cache/get/count");
        assert!(
            timed.abs_diff(count(&part, "/totals/gets")) <= 4,
            "{timed}: operations of the warm-up are not timed"
        );
        let device = count(&part, "/totals/latency_ns/device/write/count");
        assert!(device < count(&whole, "/totals/latency_ns/device/write/count"));
        let amplification = part["totals"]["alwa"].as_f64().unwrap();
        assert!((0.9..20.0).contains(&amplification), "{amplification}");
        assert_eq!(
            count(&part, "/totals/items_flash"),
            count(&whole, "/totals/items_flash"),
            "states are as they are"
        );
    }
}

/// CacheBench's key for a warm-up by flash evictions.
#[test]
fn warm_up_ends_after_the_configured_flash_evictions() {
    let check = "test_config.checkNvmCacheWarmUp=true";
    let warm = |evictions: &str| {
        let policy = format!("test_config.nvmCacheWarmupCheckPolicy.evictionCountThreshold={evictions}");
        let result = run(RUN, &[check, &policy]);
        (result["totals"]["warmup"]["ended"] == true, count(&result, "/totals/ops"))
    };
    let (soon, later, never) = (warm("1"), warm("1000"), warm("1000000000"));
    assert!(soon.0 && later.0 && soon.1 < 32_000 && later.1 < soon.1, "{soon:?} {later:?}");
    assert_eq!(never, (false, 32_000));
    let result = run(RUN, &[check]);
    assert_eq!(count(&result, "/totals/ops"), soon.1, "one is the default");
}

/// A trace with a request per second, one in five gets for a new key; replayed at its own times, sped up.
fn timed_replay(begin: u64, rows: u64) -> (tempfile::TempDir, String) {
    let text = r#"{ "cache_config": { "cacheSizeMB": 4, "nvmCacheSizeMB": 16, "navyRegionSizeMB": 1, "navyBlockSize": 4096 },
      "test_config": { "generator": "replay", "traceFileName": "trace.csv", "numOps": 1000000, "numThreads": 2, "enableLookaside": true,
        "timestampFactor": 1, "traceSpeed": 1000, "checkNvmCacheWarmUp": true } }"#;
    let (directory, file) = config("timed.json", text);
    let row = |row: u64| {
        format!("{},key{},GET,4000\n", begin + row, if row.is_multiple_of(5) { row } else { row % 97 })
    };
    let rows: String = (0..rows).map(row).collect();
    std::fs::write(directory.path().join("trace.csv"), format!("op_time,key,op,size\n{rows}")).unwrap();
    (directory, file)
}

fn replayed(file: &str, policy: &[&str], code: i32) -> (Value, String) {
    let policy = policy.iter().map(|part| format!("test_config.nvmCacheWarmupCheckPolicy.{part}"));
    let policy: Vec<String> = policy.flat_map(|change| ["--set".to_owned(), change]).collect();
    let flags = ["bench", file, "--device", "sim:test", "--json", "-"].into_iter();
    let output = flashwright(&flags.chain(policy.iter().map(String::as_str)).collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(code), "{}", err(&output));
    (serde_json::from_str(&out(&output)).unwrap_or(Value::Null), err(&output))
}

#[test]
fn warm_up_ends_at_a_trace_time() {
    let (begin, rows) = (1_700_000_000, 20_000);
    let (_directory, file) = timed_replay(begin, rows);
    let at = |seconds: u64| format!("requestTimestampThreshold={}", begin + seconds);
    for seconds in [0, 5000, 19_000] {
        let (result, _) = replayed(&file, &[&at(seconds)], 0);
        let warm = count(&result, "/totals/warmup/ops");
        // Checked every hundredth of a second, which is ten seconds of the trace, and at each thread's next request.
        assert!((seconds..=seconds + 13).contains(&warm), "{warm} for {seconds}");
        assert_eq!(count(&result, "/totals/ops") + warm, rows);
    }
    let (never, _) = replayed(&file, &[&at(rows)], 0);
    assert_eq!((&never["totals"]["warmup"]["ended"], count(&never, "/totals/ops")), (&false.into(), rows));
    // Both thresholds must be reached.
    let ops = |policy: &[&str]| count(&replayed(&file, policy, 0).0, "/totals/ops");
    let (many, one) = ("evictionCountThreshold=2000", "evictionCountThreshold=1");
    let by_evictions = ops(&[many]);
    assert!((100..19_000).contains(&by_evictions), "{by_evictions}");
    assert_eq!(ops(&[many, &at(10)]), by_evictions);
    assert_eq!(ops(&[one, &at(19_000)]), ops(&[&at(19_000)]));
}

#[test]
fn warm_up_by_trace_time_requires_timestamps_but_no_flash() {
    let (directory, file) = timed_replay(0, 3000);
    let text =
        std::fs::read_to_string(&file).unwrap().replace(r#""nvmCacheSizeMB": 16"#, r#""nvmCacheSizeMB": 0"#);
    std::fs::write(&file, &text).unwrap();
    let both = ["requestTimestampThreshold=1000", "evictionCountThreshold=5"];
    let (result, message) = replayed(&file, &both, 0);
    assert!(
        message.contains("evictionCountThreshold: has no effect: nvmCacheSizeMB is 0, there is no flash"),
        "{message}"
    );
    assert!((1000..=1013).contains(&count(&result, "/totals/warmup/ops")), "{}", result["totals"]["warmup"]);

    let online = RUN.replace("\"online\"", "\"online\", \"checkNvmCacheWarmUp\": true");
    let (_made_up, run) = config("run.json", &online);
    let (_, message) = replayed(&run, &both, 2);
    assert!(
        message.contains("requestTimestampThreshold: only for replays: a generator has no timestamps"),
        "{message}"
    );
    std::fs::write(&file, text.replace(r#""traceSpeed": 1000,"#, "")).unwrap();
    std::fs::write(directory.path().join("trace.csv"), "key,op,size\na,GET,1\n").unwrap();
    let (_, message) = replayed(&file, &both, 2);
    assert!(message.contains("its requests have no timestamps"), "{message}");
}

#[test]
fn flash_only_cache_becomes_warm() {
    let alone = [
        "test_config.name=cache_component",
        "cache_config.allocator=flash",
        "cache_config.cacheSizeMB=16",
        "cache_config.nvmCacheSizeMB=0",
    ];
    let changes = [&alone[..], &["test_config.checkNvmCacheWarmUp=true"]].concat();
    let (cold, warm) = (run(RUN, &alone), run(RUN, &changes));
    assert_eq!(warm["totals"]["warmup"]["ended"], true);
    assert!(count(&warm, "/totals/ops") < count(&cold, "/totals/ops"));
}

#[test]
fn run_that_ends_before_it_is_warm_is_reported() {
    let result = run(RUN, &["test_config.warmupSeconds=100000"]);
    assert_eq!(result["totals"]["warmup"]["ended"], false);
    assert_eq!(count(&result, "/totals/ops"), 32_000);
    let remark = result["verdict"]["remarks"][0].as_str().unwrap();
    assert!(remark.starts_with("The run ended during warm-up"), "{remark}");
}

#[test]
fn run_of_an_instance_ends_after_the_configured_writes() {
    let result = run(RUN, &["test_config.maxFlashWriteMB=24"]);
    assert_eq!(result["verdict"]["stopped"], "flash_written");
    let written = count(&result, "/totals/flash_bytes_host");
    assert!((24 << 20..34 << 20).contains(&written), "{written}");
    let both = format!("[{RUN}, {RUN}]");
    let result = run(&both, &["[1].test_config.maxFlashWriteMB=10"]);
    assert_eq!(count(&result, "/instances/0/ops"), 32_000);
    assert!(count(&result, "/instances/1/ops") < 32_000);
}

#[test]
fn run_ends_when_steady_and_flash_was_overwritten() {
    let long = ["test_config.numOps=400000", "test_config.steadyRoundOps=4000"];
    let result = run(RUN, &long);
    assert_eq!(result["verdict"]["stopped"], "steady");
    assert!(count(&result, "/totals/flash_bytes_host") > 16 << 20);
    assert!(count(&result, "/totals/ops") < 1_600_000);
}

#[test]
fn result_reports_whether_the_run_was_long_enough() {
    let remarks = |result: &Value| result["verdict"]["remarks"].to_string();
    let short = run(RUN, &["test_config.numOps=1000", "test_config.warmupOps=100"]);
    assert_eq!(short["steady"]["flash_filled"], false);
    assert!(remarks(&short).contains("Flash was not filled once ("), "{}", remarks(&short));
    let long = run(RUN, &["test_config.numOps=40000", "test_config.warmupOps=10000"]);
    let steady = &long["steady"];
    let number = |value: &Value| value.as_f64().unwrap();
    let (seconds, warm) = (number(&long["totals"]["seconds"]), number(&long["totals"]["warmup"]["seconds"]));
    assert!((number(&steady["from_seconds"]) - warm - seconds / 2.0).abs() < 1e-9);
    assert!((number(&steady["part_seconds"]) * 10.0 - seconds).abs() < 1e-9);
    for name in ["hit_ratio", "throughput_ops_per_second", "alwa", "dlwa"] {
        assert_eq!(steady[name]["steady"], true, "{steady:#}");
        let (last, all) = (number(&steady[name]["last"]), number(&long["totals"][name]));
        assert!((last / all - 1.0).abs() < 0.1, "{name} is {last} at the end and {all} in all");
    }
    assert_eq!((&steady["flash_filled"], remarks(&long)), (&true.into(), "[]".to_owned()));
}

#[test]
fn trace_is_replayed_the_configured_number_of_times() {
    let replay = r#"{ "cache_config": { "cacheSizeMB": 8 }, "test_config": { "generator": "replay", "numOps": 100000, "numThreads": 2,
      "traceFileName": "trace.csv", "traceLoops": 3 } }"#;
    for repeat in ["false", "true"] {
        let (directory, file) = config("replay.json", replay);
        std::fs::write(directory.path().join("trace.csv"), "key,op,size\na,GET,10\nb,SET,20\n").unwrap();
        let repeat = format!("test_config.repeatTraceReplay={repeat}");
        let output = flashwright(&["bench", &file, "--set", &repeat, "--json", "-"]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let result: Value = serde_json::from_str(&out(&output)).unwrap();
        assert_eq!(count(&result, "/totals/ops"), 6);
    }
}
