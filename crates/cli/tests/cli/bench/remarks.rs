//! Lost, skipped and ignored data of a run is reported at its end with the reason.

use serde_json::Value;

use super::super::out;
use super::{config, err, flashwright, json};

const REPLAY: &str = r#"{ "cache_config": { "cacheSizeMB": 64 },
  "test_config": { "generator": "replay", "numOps": 100000, "numThreads": 1, "traceFileName": "trace.csv", "enableLookaside": true } }"#;

fn remarks(result: &Value) -> String {
    result["verdict"]["remarks"].to_string()
}

#[test]
fn skipping_most_rows_of_a_trace_is_reported() {
    let (directory, file) = config("replay.json", REPLAY);
    let rows: String = (0..400)
        .map(|row| format!("k{row},{},10,1,20\n", if row % 4 == 0 { "GET" } else { "SEND" }))
        .collect();
    let text = format!("key,op,size,op_count,key_size\n{rows}k,GET,,1,20\n");
    std::fs::write(directory.path().join("trace.csv"), text).unwrap();
    let output = flashwright(&["bench", &file]);
    let said = out(&output);
    assert!(
        said.contains("Warning: 301 of 401 rows of the trace (75.1 %) were skipped as invalid"),
        "{said}"
    );
    let result = json(&["bench", &file]);
    let message = remarks(&result);
    assert!(
        message.contains("300 because the operation is not a known one (first: ")
            && message.contains("trace.csv:3: `SEND`"),
        "{message}"
    );
    assert!(message.contains("; 1 because column `size` is missing (first: "), "{message}");
    let rejected = &result["totals"]["trace"]["rejected"];
    assert_eq!(
        (&rejected[0]["rows"], rejected[1]["reason"].as_str()),
        (&300.into(), Some("column `size` is missing"))
    );
}

/// Catches a regression: the message names `navyRegionSizeMB`, which is not set.
#[test]
fn unfitting_policy_blocks_are_reported_by_their_key() {
    let (_directory, file) = config("small.json", super::SMALL);
    let sets = ["--set", "cache_config.navyRegionPolicy=ripq", "--set"];
    let blocks = "cache_config.navyRegionPolicyConfig.blockMB=64";
    let output = flashwright(&[&["bench", &file, "--validate"][..], &sets, &[blocks]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let said = err(&output);
    assert!(
        said.contains("cache_config.navyRegionPolicyConfig.blockMB: flash has room for too few"),
        "{said}"
    );
    assert!(!said.contains("navyRegionSizeMB: flash"), "{said}");
}

/// Catches a regression: items replaced in the bucket queue count as written although only a superblock is written,
/// which gives a write amplification of 0.0005.
#[test]
fn write_amplification_is_absent_before_the_first_write() {
    let few = r#"{ "cache_config": { "cacheSizeMB": 8, "nvmCacheSizeMB": 64 },
      "test_config": { "numOps": 20000, "numThreads": 2, "numKeys": 20000, "keySizeRange": [8, 16], "keySizeRangeProbability": [1.0],
        "valSizeRange": [100, 1500], "valSizeRangeProbability": [1.0], "getRatio": 0.5, "setRatio": 0.4, "delRatio": 0.1,
        "enableLookaside": true } }"#;
    let (_directory, file) = config("few.json", few);
    let totals = &json(&["bench", &file])["totals"];
    let of = |name: &str| totals[name].as_u64().unwrap();
    assert!(of("flash_bytes_waiting") > 0, "{totals:#}");
    assert!(of("flash_bytes_host") < 1 << 20, "{totals:#}");
    assert_eq!(of("flash_bytes_logical"), of("flash_bytes_waiting"));
    assert_eq!(totals["alwa"], Value::Null);
}

#[test]
fn trace_without_valid_requests_is_reported_with_file_and_reason() {
    let (directory, file) = config("replay.json", REPLAY);
    let text: String = (0..40).map(|row| format!("{row},x,7,9\n")).collect();
    std::fs::write(directory.path().join("trace.csv"), text).unwrap();
    for flags in [&[][..], &["--validate"]] {
        let output = flashwright(&[&["bench", &file], flags].concat());
        let said = err(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains("test_config.traceFileName: ")
                && said.contains("trace.csv: none of its first 40 rows"),
            "{said}"
        );
        assert!(
            said.contains("row 1: `x` is not a known operation")
                && said.contains("traceFormat (as in `csv:time,key,-,size`)"),
            "{said}"
        );
    }
}

#[test]
fn misspelt_column_is_reported() {
    let (directory, file) = config("replay.json", REPLAY);
    std::fs::write(
        directory.path().join("trace.csv"),
        "key,op,size,opcount,key_size,colour\na,GET,10,3,20,red\n",
    )
    .unwrap();
    for flags in [&["--json", "-"][..], &["--validate"]] {
        let output = flashwright(&[&["bench", &file], flags].concat());
        let said = err(&output);
        for text in [
            "trace.csv: column `opcount` is not used; did you mean `op_count`?",
            "trace.csv: column `colour` is not used",
            "trace.csv: no column `op_count`: each row is one request",
        ] {
            assert!(said.contains(text), "{said}");
        }
    }
    assert!(json(&["bench", &file])["totals"]["warnings"].to_string().contains("did you mean `op_count`?"));
    std::fs::write(
        directory.path().join("trace.csv"),
        "key,op,size,op_count,key_size,cache_hits\na,GET,10,3,20,1\n",
    )
    .unwrap();
    assert_eq!(json(&["bench", &file])["totals"]["warnings"].to_string(), "[]");
}

const LARGE: &str = r#"{ "cache_config": { "cacheSizeMB": 16, "nvmCacheSizeMB": 64, "navyRegionSizeMB": 1, "navyBlockSize": 4096 },
  "test_config": { "generator": "online", "numOps": 4000, "numThreads": 1, "numKeys": 2000, "keySizeRange": [8, 9],
    "keySizeRangeProbability": [1.0], "valSizeRange": [20000], "valSizeRangeProbability": [1.0], "setRatio": 1.0 } }"#;

/// Catches a regression: all evictions from DRAM are dropped, and the run passes silently.
#[test]
fn dropping_items_too_large_for_flash_is_reported() {
    let (_directory, file) = config("large.json", LARGE);
    let with = |sets: &[&str]| {
        let sets: Vec<&str> = sets.iter().flat_map(|it| ["--set", it]).collect();
        remarks(&json(&[&["bench", &file][..], &sets].concat()))
    };
    assert!(!with(&[]).contains("too large"));
    let buckets = with(&["cache_config.navyBigHashSizePct=100"]);
    assert!(
        buckets
            .contains("items on their way to flash (all) were dropped as too large for flash (at most 4,0"),
        "{buckets}"
    );
    assert!(buckets.contains("lower navyBigHashSizePct"), "{buckets}");
    let chains = [
        "test_config.setRatio=0",
        "test_config.addChainedRatio=1",
        "test_config.numOps=300",
        "test_config.chainedItemLengthRange=[200]",
        "test_config.chainedItemLengthRangeProbability=[1.0]",
        "test_config.chainedItemValSizeRange=[8000]",
        "test_config.chainedItemValSizeRangeProbability=[1.0]",
    ];
    let chained = with(&chains);
    assert!(chained.contains("chained items included): raise navyRegionSizeMB"), "{chained}");
}

#[test]
fn unchained_pieces_are_reported_with_reason() {
    let (_directory, file) = config("large.json", LARGE);
    let sets = [
        "cache_config.nvmCacheSizeMB=0",
        "test_config.valSizeRange=[2000]",
        "test_config.setRatio=0",
        "test_config.addChainedRatio=1",
        "test_config.numOps=300",
        "test_config.chainedItemLengthRange=[3]",
        "test_config.chainedItemLengthRangeProbability=[1.0]",
        "test_config.chainedItemValSizeRange=[3000000]",
        "test_config.chainedItemValSizeRangeProbability=[1.0]",
    ];
    let sets: Vec<&str> = sets.iter().flat_map(|it| ["--set", it]).collect();
    let result = json(&[&["bench", &file][..], &sets].concat());
    let totals = &result["totals"];
    assert_eq!(totals["counts"]["add_chained_failures"], 300);
    assert_eq!(totals["chain_ends"]["rejected_too_large"], 300, "{}", totals["chain_ends"]);
    let message = remarks(&result);
    assert!(message.contains("300 of 300 additions to chains (all) were refused as too large"), "{message}");
}

#[test]
fn negated_cachebench_flag_is_accepted() {
    let (_directory, file) = config("large.json", LARGE);
    let more = ["-progress=7", "--progress=5", "--progress_stats_file="];
    for flag in ["--noreport_api_latency", "--report_api_latency=0"] {
        let output = flashwright(&[&["bench", &file, flag], &more[..]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert!(!out(&output).contains("Cache Find API latency"));
    }
    let output = flashwright(&["bench", &file, "--noreport_api_latency", "-report_api_latency=yes"]);
    assert!(out(&output).contains("Cache Find API latency"), "the last one counts: {}", err(&output));
}
