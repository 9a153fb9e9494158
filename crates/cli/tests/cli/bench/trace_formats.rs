//! Replays of traces in formats other than CacheBench's.

use serde_json::Value;

use super::super::out;
use super::{config, err, flashwright};

const REPLAY: &str = r#"{ "cache_config": { "cacheSizeMB": 64, "nvmCacheSizeMB": 64, "navyRegionSizeMB": 1, "navyBlockSize": 4096 },
  "test_config": { "generator": "replay", "numOps": 100000, "numThreads": 2, "traceFileName": "trace", "enableLookaside": true } }"#;

fn run(file: &str, format: &str, more: &[&str]) -> Value {
    let format = format!("test_config.replayGeneratorConfig.traceFormat={format}");
    let output = flashwright(&[&["bench", file, "--json", "-", "--set", &format], more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    serde_json::from_str(&out(&output)).unwrap()
}

#[test]
fn replay_uses_the_named_or_detected_format() {
    let (directory, file) = config("replay.json", REPLAY);
    let trace = directory.path().join("trace");
    let disk: String = (0..60)
        .map(|row| {
            format!(
                "{},usr,0,Read,{},8192,1000\n",
                128_166_372_003_061_629_u64 + row * 10_000_000,
                row % 7 * 8192
            )
        })
        .collect();
    let cache: String = (0..60).map(|row| format!("{row},key{},4,900,3,get,0\n", row % 7)).collect();
    for (text, name, gets, hits) in [(&disk, "msr", 120, 120 - 14), (&cache, "twitter", 60, 60 - 7)] {
        std::fs::write(&trace, text).unwrap();
        for format in [name, "auto"] {
            let result = run(&file, format, &[]);
            let count = |path: &str| result.pointer(path).and_then(Value::as_u64).unwrap();
            assert_eq!(count("/totals/gets"), gets, "{name}");
            assert_eq!(gets - count("/totals/counts/get_misses"), hits, "{name}");
            assert_eq!(result["totals"]["objects"], Value::Null, "each item is its own request");
            let timed = run(&file, format, &["--device", "sim:test", "--set", "test_config.traceSpeed=2"]);
            let seconds = timed["totals"]["seconds"].as_f64().unwrap();
            assert!((seconds - 29.5).abs() < 0.1, "{name}: a second between rows, twice as fast: {seconds}");
        }
    }
}

#[test]
fn trace_of_another_format_names_the_generator_that_reads_it() {
    let (directory, file) = config("replay.json", REPLAY);
    std::fs::write(directory.path().join("trace"), "timestamp,cacheKey,objectSize,TTL\n1,7,100,3600\n")
        .unwrap();
    for flags in [&[][..], &["--set", "test_config.generator=block-replay"]] {
        let output = flashwright(&[&["bench", &file], flags].concat());
        let reported = "the generator `replay` reads it, with replayGeneratorConfig.traceFormat `cdn`";
        assert!(output.status.code() == Some(2) && err(&output).contains(reported), "{}", err(&output));
    }
    assert_eq!(run(&file, "cdn", &[])["totals"]["gets"], 1);
}

/// Catches a regression: without a header every row is counted as invalid, and the run ends without requests.
#[test]
fn headerless_trace_of_another_format_is_refused() {
    let (directory, file) = config("replay.json", REPLAY);
    let trace = directory.path().join("trace");
    let cache: String = (0..60).map(|row| format!("{row},key{},4,900,3,get,0\n", row % 7)).collect();
    std::fs::write(&trace, cache).unwrap();
    let output = flashwright(&["bench", &file]);
    let reported = "traceFileName: ";
    assert!(output.status.code() == Some(2) && err(&output).contains(reported), "{}", err(&output));
    assert!(err(&output).contains("with replayGeneratorConfig.traceFormat `twitter`"), "{}", err(&output));
    let own =
        "key,op,size,op_count,key_size\n".to_owned() + "a,GET,100,0,1\n" + &"a,GET,100,1,1\n".repeat(40);
    std::fs::write(&trace, own).unwrap();
    assert_eq!(run(&file, "kvcache", &[])["totals"]["gets"], 40, "a single invalid row is counted");
}

#[test]
fn undetectable_trace_is_refused_before_devices_are_opened() {
    let (directory, file) = config("replay.json", REPLAY);
    std::fs::write(directory.path().join("trace"), "no such thing\n").unwrap();
    let flags = ["bench", &file, "--set", "test_config.replayGeneratorConfig.traceFormat=auto"];
    for more in [&[][..], &["--validate"]] {
        let output = flashwright(&[&flags[..], more].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(err(&output).contains("matches none of the formats"), "{}", err(&output));
    }
    let more = directory.path().join("more");
    std::fs::write(directory.path().join("trace"), "1,key,3,900,3,get,0\n").unwrap();
    std::fs::write(&more, "ts,key,op,size\n1,a,GET,10\n").unwrap();
    let both =
        ["--set", "test_config.traceFileName=", "--set", "test_config.traceFileNames=[\"trace\",\"more\"]"];
    let output = flashwright(&[&flags[..], &both].concat());
    let reported = err(&output).contains("`plain`") && err(&output).contains("`twitter`");
    assert!(output.status.code() == Some(2) && reported, "{}", err(&output));
}
