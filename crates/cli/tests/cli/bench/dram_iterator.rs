//! `dramIteratorMode`: iterations over the items in DRAM during the run.

use serde_json::Value;

use super::{config, err, flashwright, out};

/// One second with a hundred items of 8 and 100 bytes.
const RUN: &str = r#"{ "cache_config": { "cacheSizeMB": 8 },
  "test_config": { "generator": "online", "numOps": 10000, "opRatePerSec": 20000, "opRateBurstSize": 200, "numThreads": 2, "numKeys": 100,
    "keySizeRange": [8, 9], "keySizeRangeProbability": [1.0], "valSizeRange": [100, 101], "valSizeRangeProbability": [1.0],
    "getRatio": 0.5, "setRatio": 0.5, "dramIteratorMode": "regular" } }"#;

fn run(changes: &[&str], code: i32) -> (String, String) {
    let (_directory, file) = config("run.json", RUN);
    let set = changes.iter().flat_map(|change| ["--set", change]);
    let flags: Vec<&str> = ["bench", &file, "--json", "-"].into_iter().chain(set).collect();
    let output = flashwright(&flags);
    assert_eq!(output.status.code(), Some(code), "{}", err(&output));
    (out(&output), err(&output))
}

fn result(changes: &[&str]) -> (Value, String) {
    let (result, text) = run(changes, 0);
    (serde_json::from_str(&result).unwrap(), text)
}

#[test]
fn iterations_visit_dram_items_and_are_reported() {
    for mode in ["regular", "lock_group"] {
        let mode_is = format!("test_config.dramIteratorMode={mode}");
        let (result, text) = result(&[&mode_is, "test_config.dramIteratorIntervalMs=1"]);
        let seen = &result["totals"]["dram_iterator"];
        let of = |name: &str| seen[name].as_u64().unwrap_or_else(|| panic!("{name}: {seen}"));
        assert_eq!((&seen["mode"], &result["instances"][0]["dram_iterator"]), (&mode.into(), seen));
        assert!(of("sweeps") > 0 && of("ns") > 0 && of("items") > 0, "{seen}");
        assert!(of("items") <= 100 * of("sweeps") && of("last_sweep_items") <= 100, "{seen}");
        assert_eq!(of("bytes"), 108 * of("items"));
        assert!(text.contains("== DRAM Iterator Stats ==") && text.contains("Items visited :"), "{text}");
        assert_eq!(text.contains("dramIteratorMode: runs as `regular`"), mode == "lock_group", "{text}");
    }
    let (without, text) = result(&["test_config.dramIteratorMode=disabled"]);
    assert!(without["totals"].get("dram_iterator").is_none() && !text.contains("DRAM Iterator"), "{text}");
}

#[test]
fn progress_line_reports_iterations() {
    let (directory, file) = config("run.json", RUN);
    let stats = directory.path().join("stats.log");
    let set = |change: &str| format!("--set=test_config.{change}");
    let flags = [set("dramIteratorIntervalMs=5"), set("numOps=25000"), set("dramIteratorSleepMs=1")];
    let stats_file = ["--progress", "1", "--progress-stats-file", stats.to_str().unwrap()];
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(stats_file).collect();
    let output = flashwright(&[&["bench", &file][..], &flags].concat());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let lines = std::fs::read_to_string(stats).unwrap();
    let line = lines.lines().find(|line| line.starts_with("Instance")).unwrap();
    let text = line.split("DRAM iterator regular: +").nth(1).unwrap_or_else(|| panic!("{line}"));
    assert!(text.ends_with(", 0 sweep exceptions."), "{line}");
}

/// One instance has no iterator; the other's iterator is in a long pause when the run ends.
#[test]
fn iteration_ends_with_the_run() {
    let day = "dramIteratorIntervalMs=86400000";
    let (resting, _) = result(&[&format!("test_config.{day}")]);
    assert_eq!(resting["totals"]["dram_iterator"]["sweeps"], 0);
    assert_eq!(resting["totals"]["dram_iterator"]["last_sweep_items"], Value::Null);
    let (paused, _) =
        result(&["test_config.dramIteratorIntervalMs=1", "test_config.dramIteratorSleepMs=86400000"]);
    // Iterations at the start see few items and complete; the first one that pauses does not.
    assert!(
        paused["totals"]["dram_iterator"]["items"].as_u64() < Some(10),
        "{}",
        paused["totals"]["dram_iterator"]
    );
    let timeout = {
        let (_directory, file) = config("run.json", RUN);
        let endless = ["--set", "test_config.numOps=1000000000", "--timeout-seconds", "1"];
        flashwright(
            &[&["bench", &file, "--json", "-", "--set", &format!("test_config.{day}")], &endless[..]]
                .concat(),
        )
    };
    assert_eq!(timeout.status.code(), Some(0), "{}", err(&timeout));
}

#[test]
fn invalid_iterator_settings_are_rejected() {
    for (changes, text) in [
        (["dramIteratorIntervalMs=0", "numOps=1"], "dramIteratorIntervalMs: must be above 0"),
        (["dramIteratorWorkMs=5", "numOps=1"], "dramIteratorWorkMs: must be 0 if dramIteratorSleepMs is 0"),
        (
            ["dramIteratorMode=regulr", "numOps=1"],
            "dramIteratorMode: unknown name `regulr`; did you mean `regular`?",
        ),
    ] {
        let changes = changes.map(|change| format!("test_config.{change}"));
        let (_, reported) = run(&changes.each_ref().map(String::as_str), 2);
        assert!(reported.contains(text), "{reported}");
    }
}

/// Catches a regression: validation accepts settings that the run refuses.
#[test]
fn validation_rejects_iterators_in_simulated_runs() {
    let (_directory, file) = config("run.json", RUN);
    let set = |change: &'static str| ["--set", change];
    let device = [
        ["--device", "sim:test"],
        set("cache_config.nvmCacheSizeMB=32"),
        set("cache_config.navyRegionSizeMB=1"),
    ];
    let later = [set("test_config.generator=replay"), set("test_config.traceFileName=later.csv")].concat();
    let mode = "test_config.dramIteratorMode: must be `disabled` in a simulated run";
    let off = set("test_config.dramIteratorMode=disabled");
    let cases = [
        (&[][..], mode),
        (&off[..], ""),
        (
            &[off, set("cache_config.cacheDir=/tmp/state")].concat(),
            "cacheDir: a simulated run cannot be persistent",
        ),
        (
            &[off, set("cache_config.nvmCacheSizeMB=1000000")].concat(),
            "nvmCacheSizeMB: needs 1048576000000 bytes",
        ),
    ];
    for (flags, text) in cases {
        let flags = [&["bench", &file], device.as_flattened(), flags].concat();
        for more in [&["--validate"][..], &[&["--validate"], &later[..]].concat(), &[]] {
            if more.is_empty() && text.is_empty() {
                continue;
            }
            let output = flashwright(&[&flags[..], more].concat());
            // A missing trace also stops a run.
            let runs = text.is_empty() && !more.contains(&"test_config.traceFileName=later.csv");
            assert_eq!(output.status.code(), Some(if runs { 0 } else { 2 }), "{more:?}: {}", err(&output));
            assert!(err(&output).contains(text), "{more:?}: {}", err(&output));
            assert!(text != mode || err(&output).contains(&file), "{}", err(&output));
        }
    }
}
