//! Settings that a run cannot honour exactly are reported.

use std::path::Path;

use serde_json::Value;

use super::{SMALL, config, err, flashwright, json, out};

const LARGE_ITEMS: &str = r#"{ "cache_config": { "cacheSizeMB": 16 },
  "test_config": { "generator": "online", "numOps": 500, "numThreads": 1, "numKeys": 100, "keySizeRange": [8, 9],
    "keySizeRangeProbability": [1.0], "valSizeRange": [600000], "valSizeRangeProbability": [1.0], "setRatio": 1.0 } }"#;

/// Catches a regression: with 16 MiB of DRAM, all values of 600,000 bytes are refused although `maxAllocSize` is 1 MiB, and the run
/// passes.
#[test]
fn refused_large_items_of_a_small_dram_are_reported() {
    let (_directory, file) = config("large.json", LARGE_ITEMS);
    let result = json(&["bench", &file]);
    assert_eq!(result["totals"]["counts"]["set_failures"], 0);
    assert!(result["totals"]["items_dram"].as_u64() > Some(5), "{}", result["totals"]["items_dram"]);
    // Items of many sizes leave most size classes without a slab.
    let mixed = ["--set", "test_config.valSizeRange=[100, 1000000]"];
    for flags in [&["--validate"][..], &["--json", "-"]] {
        let output = flashwright(&[&["bench", &file], &mixed[..], flags].concat());
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let said = err(&output);
        assert!(
            said.contains("cache_config.cacheSizeMB: ") && said.contains("are refused as too large"),
            "{said}"
        );
    }
    let remark = &json(&[&["bench", &file], &mixed[..]].concat())["verdict"]["remarks"];
    assert!(remark.to_string().contains("were refused as too large"), "{remark}");
}

/// A tenth of a 16 MiB region is not a multiple of the page size. Catches a regression: `--validate` does not report
/// this.
#[test]
fn scale_that_does_not_divide_regions_evenly_is_rounded() {
    let sixteen =
        SMALL.replace("\"navyRegionSizeMB\": 1", "\"navyRegionSizeMB\": 16").replace(": 32,", ": 640,");
    let (_directory, file) =
        config("small.json", &sixteen.replace("\"cacheSizeMB\": 8", "\"cacheSizeMB\": 80"));
    let flags = ["bench", &file, "--device", "sim:photo", "--set", "cache_config.navyBlockSize=512"];
    for scale in ["1/3", "1/5", "1/6", "1/10", "1/12"] {
        let of = |more: &[&str]| flashwright(&[&flags[..], &["--scale", scale], more].concat());
        let (validated, run) = (of(&["--validate"]), of(&[]));
        assert_eq!(
            (validated.status.code(), run.status.code()),
            (Some(0), Some(0)),
            "{scale}: {}",
            err(&run)
        );
    }
}

#[test]
fn validate_rejects_flash_that_cannot_be_divided() {
    let (_directory, file) = config("small.json", SMALL);
    let points = "cache_config.navyRegionPolicyConfig.insertionPoints=16";
    let sets = ["--set", "cache_config.navyRegionPolicy=ripq", "--set", points];
    let flags = [&["bench", &file, "--set", "cache_config.nvmCacheSizeMB=1"][..], &sets].concat();
    let both = [flashwright(&[&flags[..], &["--validate"]].concat()), flashwright(&flags)];
    assert!(both.iter().all(|it| it.status.code() == Some(2)), "{}", out(&both[0]));
    assert_eq!(err(&both[0]), err(&both[1]));
}

#[test]
fn update_on_read_setting_is_honoured() {
    let text = LARGE_ITEMS.replace("[600000]", "[10000]").replace("\"numKeys\": 100", "\"numKeys\": 6000");
    let text = text.replace("\"setRatio\": 1.0", "\"getRatio\": 1.0, \"enableLookaside\": true");
    let (_directory, file) = config("skewed.json", &text.replace("\"numOps\": 500", "\"numOps\": 40000"));
    let hits = |changes: &[&str]| {
        let sets = ["cache_config.lruRefreshSec=0", "test_config.popularityBuckets=[600, 5400]"];
        let sets = sets.iter().chain(&["test_config.popularityWeights=[0.7, 0.3]"]).chain(changes);
        let sets: Vec<&str> = sets.flat_map(|it| ["--set", it]).collect();
        json(&[&["bench", &file][..], &sets].concat())["totals"]["hit_ratio"].as_f64().unwrap()
    };
    let (lru, unread) = (hits(&[]), hits(&["cache_config.lruUpdateOnRead=false"]));
    let fifo = hits(&["cache_config.allocator=FIFO"]);
    assert!(lru > fifo + 0.02 && (unread - fifo).abs() < 0.001, "{lru} {unread} {fifo}");
}

/// Results once overwrote the config, the trace and each other.
#[test]
fn outputs_never_overwrite_inputs_or_each_other() {
    let (directory, file) = config("small.json", SMALL);
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("trace.csv"), "key,op,size\na,SET,1\n").unwrap();
    let replay = r#"{ "cache_config": { "cacheSizeMB": 8 }, "test_config": { "generator": "replay", "numOps": 9,
        "numThreads": 1, "traceFileName": "trace.csv" } }"#;
    std::fs::write(at("replay.json"), replay).unwrap();
    std::os::unix::fs::symlink("small.json", at("link.jsonl")).unwrap();
    std::os::unix::fs::symlink("later.svg", at("dangling.json")).unwrap();
    for (flags, text) in [
        (vec!["--json", &file], "small.json: would overwrite the input "),
        (vec!["--intervals", &at("link.jsonl")], "link.jsonl: would overwrite the input "),
        (vec!["--progress_stats_file", &file], "small.json: would overwrite the input "),
        (vec!["--json", &at("./one.csv"), "--intervals", &at("one.csv")], "would overwrite the output "),
        (vec!["--json", &at("dangling.json"), "--plot", &at("later.svg")], "would overwrite the output "),
        (vec!["--device", &at("flash"), "--json", &at("flash")], "would overwrite the flash of the run "),
    ] {
        let output = flashwright(&[&["bench", &file], &flags[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {}", out(&output));
        assert!(err(&output).contains(text), "{flags:?}: {}", err(&output));
    }
    let output = flashwright(&["bench", &at("replay.json"), "--json", &at("trace.csv")]);
    assert!(err(&output).contains("trace.csv: would overwrite the input "), "{}", err(&output));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), SMALL);
    assert_eq!(std::fs::read_to_string(at("replay.json")).unwrap(), replay);
    let names = ["one.csv", "later.svg", "flash"];
    assert!(names.iter().all(|name| !Path::new(&at(name)).exists()), "nothing is written");
    let generated =
        flashwright(&["trace", "generate", "zipf", "-o", &at("made.csv"), "--json", &at("made.csv")]);
    assert!(err(&generated).contains("would overwrite the output "), "{}", err(&generated));
    let nowhere = flashwright(&["bench", &file, "--json", "/dev/null", "--intervals", &at("kept.csv")]);
    assert_eq!(nowhere.status.code(), Some(0), "{}", err(&nowhere));
}

fn on_flash(directory: &Path, paths: &[&str], beside: &str) -> String {
    let paths: Vec<String> = paths.iter().map(|name| format!("{:?}", directory.join(name))).collect();
    let state = format!("{:?}", directory.join("state"));
    let keys = format!(r#""flashBuffered": true, "nvmCachePaths": [{}],{beside}"#, paths.join(","));
    let text = SMALL.replace("\"checkConsistency\": true,", "");
    text.replace("\"navyBlockSize\"", &format!("{} \"navyBlockSize\"", keys.replace("STATE", &state)))
}

#[test]
fn same_flash_under_two_names_is_detected() {
    let (directory, file) = config("small.json", "");
    let at = |name: &str| directory.path().join(name);
    std::os::unix::fs::symlink("flash", at("link")).unwrap();
    for paths in [["flash", "flash"], ["flash", "link"], ["./flash", "flash"]] {
        std::fs::write(&file, on_flash(directory.path(), &paths, "")).unwrap();
        for flags in [&["--validate"][..], &[]] {
            let output = flashwright(&[&["bench", &file], flags].concat());
            let said = err(&output);
            assert_eq!(output.status.code(), Some(2), "{paths:?}: {}", out(&output));
            assert!(
                said.contains("nvmCachePaths[1]: ") && said.contains(" is the same file or drive as [0], "),
                "{said}"
            );
        }
        assert!(!at("flash").exists(), "nothing is written");
    }
    std::fs::write(&file, on_flash(directory.path(), &["link"], "")).unwrap();
    let said = err(&flashwright(&["bench", &file]));
    assert!(said.contains("link: is a symlink to flash, which does not exist"), "{said}");
    let (one, other) =
        (on_flash(directory.path(), &["flash"], ""), on_flash(directory.path(), &["link"], ""));
    std::fs::write(at("flash"), "").unwrap();
    std::fs::write(&file, format!("[{one}, {other}]")).unwrap();
    let said = err(&flashwright(&["bench", &file]));
    assert!(
        said.contains("[1].cache_config.nvmCachePaths: ") && said.contains("use one name for it"),
        "{said}"
    );
}

/// Catches a regression: the text report does not state whether a cache was recovered.
#[test]
fn unrecovered_persistent_cache_is_reported() {
    let (directory, file) = config("small.json", "");
    let run = |changes: &[&str]| {
        std::fs::write(&file, on_flash(directory.path(), &["flash"], r#" "cacheDir": STATE,"#)).unwrap();
        let sets = changes.iter().flat_map(|it| ["--set", it]);
        let output = flashwright(&["bench", &file].into_iter().chain(sets).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        out(&output)
    };
    let text = "was not recovered; this run started with an empty one: ";
    assert!(!run(&[]).contains(text) && !run(&[]).contains(text));
    let larger = run(&["cache_config.nvmCacheSizeMB=40"]);
    assert!(larger.contains(&format!("{text}the earlier cache divided flash differently")), "{larger}");
    std::fs::write(directory.path().join("state"), "").unwrap();
    let output = flashwright(&["bench", &file, "--validate"]);
    assert!(err(&output).contains("state is a file, not a directory"), "{}", err(&output));
}

#[test]
fn validation_rejects_several_memory_tiers() {
    let (_directory, file) = config("small.json", SMALL);
    let tiers = ["--set", r#"cache_config.memoryTiers=[{"ratio": 1}, {"ratio": 1}]"#];
    let output = flashwright(&[&["bench", &file, "--validate"], &tiers[..]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("cache_config.memoryTiers: has 2 tiers"), "{}", err(&output));
}

/// 0 was shown while thousands of readable items waited in memory.
#[test]
fn small_items_queued_for_their_bucket_are_counted() {
    let text = LARGE_ITEMS.replace("[600000]", "[100]").replace("\"numKeys\": 100", "\"numKeys\": 100000");
    let text = text.replace(
        "\"cacheSizeMB\": 16",
        "\"cacheSizeMB\": 2, \"nvmCacheSizeMB\": 64, \"navyBlockSize\": 4096",
    );
    let (_directory, file) = config("waiting.json", &text.replace("\"numOps\": 500", "\"numOps\": 30000"));
    let totals = &json(&["bench", &file, "--device", "memory:"])["totals"];
    let stored = totals["flash_put_ends"]["stored"].as_u64().or(totals["puts_stored"].as_u64());
    let items = totals["items_flash"].as_u64().unwrap();
    assert!(items > 5000, "{items} of {stored:?}");
}

#[test]
fn configured_ttl_applies_to_replays() {
    let rows: String = (0..2000).map(|row| format!("{},k{},GET,100\n", row * 10, row % 10)).collect();
    let text = r#"{ "cache_config": { "cacheSizeMB": 8, "useTraceTimeStamp": true }, "test_config": { "generator": "replay",
        "numOps": 9000, "numThreads": 1, "traceFileName": "trace.csv", "timestampFactor": 1, "enableLookaside": true } }"#;
    let (directory, file) = config("replay.json", text);
    std::fs::write(directory.path().join("trace.csv"), format!("op_time,key,op,size\n{rows}")).unwrap();
    let hits = |changes: &[&str]| {
        let sets = changes.iter().flat_map(|it| ["--set", it]);
        let result: Value = json(&["bench", &file].into_iter().chain(sets).collect::<Vec<_>>());
        result["totals"]["hit_ratio"].as_f64().unwrap()
    };
    // Each key recurs every 100 seconds.
    let short = ["test_config.ttlSecsRange=[50]", "test_config.ttlSecsRangeProbability=[1]"];
    let long = ["test_config.ttlSecsRange=[5000000]", "test_config.ttlSecsRangeProbability=[1]"];
    assert!(hits(&[]) > 0.99 && hits(&long) > 0.99);
    assert!(hits(&short) < 0.01, "{}", hits(&short));
}
