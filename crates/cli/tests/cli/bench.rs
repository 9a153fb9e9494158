//! The command as scripts use it: exit codes, output streams, and readable JSON.

mod binary;
mod dram_iterator;
mod events;
mod files;
mod instances;
mod intervals;
mod lengths;
mod metrics;
mod misses;
mod missing_requests;
mod paced;
mod promises;
mod remarks;
mod repeated_blocks;
mod several_items;
mod tasks;
mod trace_formats;
mod trace_time;
mod validate;
mod values;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{FLASHWRIGHT, err, flashwright, json, out, receives_sighup};

/// A config in its own directory.
fn config(name: &str, text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let file: PathBuf = directory.path().join(name);
    std::fs::write(&file, text).unwrap();
    (directory, file.to_str().unwrap().to_owned())
}

/// The configs shipped with CacheBench, at `$FLASHWRIGHT_SHARED/cachelib_test_configs` or in a directory `shared` beside a parent of this
/// crate; if they are missing, the test is skipped with a message.
fn shipped() -> Option<PathBuf> {
    let named = std::env::var_os("FLASHWRIGHT_SHARED").map(PathBuf::from);
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|parent| parent.join("shared"));
    let configs = named.into_iter().chain(beside()).map(|shared| shared.join("cachelib_test_configs"));
    let found = configs.into_iter().find(|configs| configs.is_dir());
    if found.is_none() {
        println!("skipped: CacheBench's shipped configs are not here");
    }
    found
}

const SMALL: &str = r#"{
  "cache_config": { "cacheSizeMB": 8, "nvmCacheSizeMB": 32, "navyRegionSizeMB": 1, "navyBlockSize": 4096 },
  "test_config": { "numOps": 4000, "numThreads": 2, "numKeys": 5000, "checkConsistency": true, "enableLookaside": true,
    "keySizeRange": [8, 16], "keySizeRangeProbability": [1.0], "valSizeRange": [100, 8000], "valSizeRangeProbability": [1.0],
    "getRatio": 0.8, "setRatio": 0.15, "delRatio": 0.05 }
}"#;

#[test]
fn json_on_standard_output_is_the_only_output() {
    let (_directory, file) = config("small.json", SMALL);
    let output = flashwright(&["bench", &file, "--json", "-", "--seed", "7"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let result: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(result["command"], "bench");
    assert_eq!(result["seed"], 7);
    assert_eq!(result["world"], "real");
    assert_eq!(result["verdict"]["passed"], true);
    assert_eq!(result["totals"]["ops"], 8000);
    assert_eq!(result["instances"].as_array().unwrap().len(), 1);
    assert!(
        result["totals"]["flash_bytes_host"].as_u64().unwrap() > 0,
        "DRAM is small: something went to flash"
    );
    assert_eq!(
        result["totals"]["flash_bytes_media"],
        Value::Null,
        "memory does not tell what its medium wrote"
    );
    assert!(err(&output).contains("== Test Results =="), "text goes to standard error");
}

#[test]
fn cachebench_flags_are_accepted_and_its_lines_printed() {
    let (directory, file) = config("small.json", SMALL);
    let stats = directory.path().join("stats.log");
    let stats = stats.to_str().unwrap();
    let flags = [
        "bench",
        "-json_test_config",
        &file,
        "--progress_stats_file",
        stats,
        "-progress",
        "1",
        "--timeout_seconds=60",
    ];
    let output = flashwright(&flags);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let lines = out(&output);
    for line in [
        "===JSON Config===",
        "== Allocator Stats ==",
        "Cache Gets    : ",
        "NVM Read  Latency    p50      : ",
        "Finished!",
    ] {
        assert!(lines.contains(line), "{line} is missing in:\n{lines}");
    }
    let stats = std::fs::read_to_string(stats).unwrap();
    assert!(
        stats.starts_with("=== Starting new run ===\n") && stats.contains("== Test Results =="),
        "{stats}"
    );
}

#[test]
fn unwritable_output_is_reported_before_the_run() {
    let (_directory, file) = config("small.json", SMALL);
    for flag in ["--json", "--plot", "--progress-stats-file"] {
        let output = flashwright(&["bench", &file, flag, "/nowhere/at/all.svg"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(err(&output).contains("writing /nowhere/at/all.svg: "), "{}", err(&output));
        assert!(!out(&output).contains("Test Results"));
    }
    let output = flashwright(&["bench", &file, "--plot", "run.pdf"]);
    assert_eq!((output.status.code(), out(&output)), (Some(2), String::new()));
    assert_eq!(err(&output), "error: run.pdf: a plot's name must end in .svg or .png\n");
}

#[test]
fn device_without_flash_settings_is_reported() {
    let (_directory, file) = config("ram.json", &SMALL.replace("\"nvmCacheSizeMB\": 32, ", ""));
    let output =
        flashwright(&["bench", &file, "--device", "memory:", "--report_ac_memory_usage_stats", "raw"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(err(&output).contains("--device: has no effect"), "{}", err(&output));
    let lines = out(&output);
    assert!(lines.contains("pid 0 cid ") && lines.contains(" usageFraction: 1.00\n"), "{lines}");
}

#[test]
fn plot_of_a_run_is_written() {
    let (directory, file) = config("small.json", SMALL);
    let picture = directory.path().join("run.svg");
    let output = flashwright(&["bench", &file, "--quiet", "--plot", picture.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let picture = std::fs::read_to_string(picture).unwrap();
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
    for text in ["8,000 operations in ", "Hit ratio", "DRAM alone", "get dram", "device write", "99 %"] {
        assert!(picture.contains(text), "{text} is missing");
    }
    assert!(!picture.contains("NaN") && !picture.contains("inf"), "every coordinate must be a number");
    let pixels = directory.path().join("run.png");
    let output = flashwright(&["bench", &file, "--quiet", "--plot", pixels.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(std::fs::read(pixels).unwrap().starts_with(b"\x89PNG\r\n"));
}

#[test]
fn quiet_prints_nothing() {
    let (_directory, file) = config("small.json", SMALL);
    let output = flashwright(&["bench", &file, "-q"]);
    assert_eq!((output.status.code(), out(&output), err(&output)), (Some(0), String::new(), String::new()));
}

#[test]
fn validate_does_not_run() {
    let (_directory, file) = config("small.json", SMALL);
    let output = flashwright(&["bench", &file, "--validate"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(out(&output).contains("valid, 1 instance(s)"));
    assert!(!out(&output).contains("Test Results"));
}

#[test]
fn config_mistake_exits_2_with_file_key_and_nearest_name() {
    let (_directory, file) = config("bad.json", &SMALL.replace("numThreads", "numThread"));
    let output = flashwright(&["bench", &file]);
    assert_eq!(output.status.code(), Some(2));
    let text = err(&output);
    assert!(
        text.contains("bad.json: test_config.numThread: unknown key; did you mean `numThreads`?"),
        "{text}"
    );
    assert!(out(&output).is_empty());
}

#[test]
fn unsupported_feature_fails_run_and_validation() {
    let (_directory, file) = config("small.json", SMALL);
    let later = "--set=cache_config.navyEnableAccessTimeMap=true";
    let text = "navyEnableAccessTimeMap: needs access time map, which is not supported yet; \
        --set cache_config.navyEnableAccessTimeMap=null runs without it";
    for more in [&["--validate"][..], &[]] {
        let run = flashwright(&[&["bench", &file, later][..], more].concat());
        assert_eq!(run.status.code(), Some(2));
        assert!(err(&run).contains(text), "{}", err(&run));
    }
}

#[test]
fn unsupported_placement_exits_2_with_the_reason() {
    let (directory, file) = config("small.json", SMALL);
    let fdp = "--set=cache_config.deviceEnableFDP=true";
    let path = directory.path().join("flash").display().to_string();
    for (device, text) in
        [("memory:", "memory devices do not support it"), (&*path, "files do not support it")]
    {
        let run = flashwright(&["bench", &file, fdp, "--device", device]);
        assert_eq!(run.status.code(), Some(2));
        assert!(err(&run).contains("no placement") && err(&run).contains(text), "{}", err(&run));
    }
}

#[test]
fn wrong_flag_and_missing_file_exit_2() {
    assert_eq!(flashwright(&["bench", "--nonsense"]).status.code(), Some(2));
    let output = flashwright(&["bench", "/nowhere/none.json"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("/nowhere/none.json: cannot be read"));
}

#[test]
fn built_in_example_is_valid() {
    let output = flashwright(&["bench", "--validate"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).contains("examples/hybrid.json: valid"));
}

/// An endless run.
fn endless(file: &str, result: &Path) -> Command {
    let mut command = Command::new(FLASHWRIGHT);
    command.args(["bench", file, "--json"]).arg(result);
    for set in ["numOps=1000000000", "opDelayBatch=1", "opDelayNs=2000000"] {
        command.args(["--set", &format!("test_config.{set}")]);
    }
    command
}

/// Sends the signal twice, as `timeout` does; the command must count both as one. Returns the exit code and the result.
fn ended_by(signal: &str, mut command: Command, result: &Path) -> (Option<i32>, Value) {
    let mut child = command.spawn().unwrap();
    // Signals are handled before devices are opened; that the run has started is detected by waiting only.
    std::thread::park_timeout(std::time::Duration::from_millis(1500));
    for _ in 0..2 {
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
    let code = child.wait().unwrap().code();
    (code, serde_json::from_str(&std::fs::read_to_string(result).unwrap()).unwrap())
}

#[test]
fn interrupt_ends_the_run_with_a_full_report() {
    let (directory, file) = config("small.json", SMALL);
    let result = directory.path().join("result.json");
    let mut command = endless(&file, &result);
    command.arg("--quiet");
    let (code, result) = ended_by("-INT", command, &result);
    assert_eq!((code, &result["verdict"]["stopped"]), (Some(0), &"interrupt".into()));
}

#[test]
fn closed_terminal_ends_the_run_with_its_result() {
    if !receives_sighup() {
        return;
    }
    let (directory, file) = config("small.json", SMALL);
    let result = directory.path().join("result.json");
    let mut command = endless(&file, &result);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    command.stdout(full).stderr(std::process::Stdio::null());
    let (code, result) = ended_by("-HUP", command, &result);
    assert_eq!((code, &result["verdict"]["stopped"]), (Some(2), &"interrupt".into()));
}

#[test]
fn persistent_cache_is_recovered_by_the_next_run() {
    let (directory, file) =
        config("small.json", &SMALL.replace("\"checkConsistency\": true,", "\"onlySetIfMiss\": true,"));
    let paths =
        format!("cache_config.nvmCachePaths=[{:?}]", directory.path().join("flash").to_str().unwrap());
    let state = format!("cache_config.cacheDir={}", directory.path().join("state").display());
    let run = || {
        let sets = ["--set", &paths, "--set", &state, "--set", "cache_config.flashBuffered=true"];
        let output = flashwright(&[&["bench", &file, "--quiet", "--json", "-"][..], &sets].concat());
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        serde_json::from_str::<Value>(&out(&output)).unwrap()["totals"].clone()
    };
    let (first, second) = (run(), run());
    assert_eq!(
        (&first["flash_recovered"], &second["flash_recovered"]),
        (&Value::Bool(false), &Value::Bool(true))
    );
    assert!(second["hit_ratio_flash"].as_f64() > first["hit_ratio_flash"].as_f64(), "{first} {second}");
}

#[test]
fn chains_are_verified_through_flash() {
    let chained = SMALL.replace("\"getRatio\"", "\"addChainedRatio\": 0.2, \"chainedItemLengthRange\": [1, 5], \"chainedItemLengthRangeProbability\": [1.0], \"chainedItemValSizeRange\": [50, 3000], \"chainedItemValSizeRangeProbability\": [1.0], \"getRatio\"");
    let (_directory, file) = config("chained.json", &chained);
    let output = flashwright(&["bench", &file, "--quiet", "--json", "-"]);
    assert_eq!(output.status.code(), Some(0), "{}", out(&output));
    let result: Value = serde_json::from_str(&out(&output)).unwrap();
    let counts = &result["totals"]["counts"];
    assert!(
        counts["add_chained"].as_u64() > Some(1000) && counts["get_hits_flash"].as_u64() > Some(100),
        "{counts}"
    );
    assert_eq!(counts["add_chained_failures"], 0);
}

#[test]
fn every_region_policy_runs_and_writes_whole_blocks_by_default() {
    let (_directory, file) = config("small.json", SMALL);
    let flash_bytes = |policy: &str, whole: bool| {
        let sets = [
            format!("cache_config.navyRegionPolicy={policy}"),
            format!("cache_config.navyRegionPolicyConfig.writeWhole={whole}"),
            "cache_config.navyRegionPolicyConfig.blockMB=1".to_owned(),
            "cache_config.navyBigHashSizePct=0".to_owned(),
            "cache_config.cacheSizeMB=64".to_owned(),
            "test_config.numThreads=1".to_owned(),
            "test_config.valSizeRange=[279000,281000]".to_owned(),
            "test_config.numOps=1000".to_owned(),
        ];
        // In virtual time, where reinsertions do not depend on thread timing.
        let mut arguments = vec!["bench", file.as_str(), "--seed", "7", "--device", "sim:test"];
        arguments.extend(sets.iter().flat_map(|set| ["--set", set.as_str()]));
        let result = json(&arguments);
        assert_eq!(result["verdict"]["passed"], true, "{policy}: {}", result["verdict"]);
        result["totals"]["flash_bytes_host"].as_u64().unwrap()
    };
    for policy in ["mcdipper", "mcdipper-lru", "blockcache", "ripq", "sipq"] {
        // A block has space for three values, and a fifth of it stays unused.
        let (whole, holes) = (flash_bytes(policy, true), flash_bytes(policy, false));
        assert!(
            whole * 100 > holes * 115,
            "{policy}: {whole} bytes of whole blocks, {holes} without the holes"
        );
    }
}

/// Catches a regression: the number and contents of intervals follow the machine's clock.
#[test]
fn stats_file_and_plot_of_a_simulated_run_are_reproducible() {
    let paced = r#"{ "cache_config": { "cacheSizeMB": 8, "nvmCacheSizeMB": 32, "navyRegionSizeMB": 1, "navyBlockSize": 4096 },
      "test_config": { "numOps": 1900, "numThreads": 2, "numKeys": 5000, "opRatePerSec": 1000, "opRateBurstSize": 1,
        "keySizeRange": [8, 16], "keySizeRangeProbability": [1.0], "valSizeRange": [100, 8000], "valSizeRangeProbability": [1.0],
        "getRatio": 0.5, "setRatio": 0.5 } }"#;
    let (directory, file) = config("paced.json", paced);
    let run = |number: u32| {
        let path = |name: &str| directory.path().join(format!("{number}-{name}")).display().to_string();
        let (stats, picture) = (path("stats.log"), path("run.svg"));
        let results = ["--progress", "1", "--progress-stats-file", &stats, "--plot", &picture];
        let output = flashwright(&[&["bench", &file, "--device", "sim:test"][..], &results].concat());
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        (std::fs::read_to_string(stats).unwrap(), std::fs::read_to_string(picture).unwrap())
    };
    let (stats, picture) = run(1);
    let intervals: Vec<_> = stats.lines().filter(|line| line.contains("ops completed")).collect();
    assert_eq!(intervals.len(), 3, "3800 requests at 1000 a second, and an interval a second: {stats}");
    assert!(intervals[1].contains(" 00:00:02 "), "{}", intervals[1]);
    assert_eq!(run(2), (stats, picture));
}

#[test]
fn invalid_trace_rows_are_counted_and_reported() {
    let replay = r#"{ "cache_config": { "cacheSizeMB": 8 }, "test_config": { "generator": "replay", "numOps": 100, "numThreads": 2,
      "traceFileName": "trace.csv", "enableLookaside": true } }"#;
    let (directory, file) = config("replay.json", replay);
    let trace = "key,op,size,op_count,key_size\na,GET,10,3,16\nb,JUMP,10,1,16\nc,SET,20,1,16\n";
    std::fs::write(directory.path().join("trace.csv"), trace).unwrap();
    let output = flashwright(&["bench", &file, "--json", "-"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let result: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(result["totals"]["ops"], 4, "op_count repeats a request");
    assert_eq!(
        (&result["totals"]["trace"]["rows"], &result["totals"]["trace"]["rejected_rows"]),
        (&2.into(), &1.into())
    );
    assert!(result["totals"]["trace"]["messages"][0].as_str().unwrap().contains("trace.csv:3"));
    assert!(err(&output).contains("(parse error: 1)"));
}

#[test]
fn replay_without_requests_fails() {
    let replay = r#"{ "cache_config": { "cacheSizeMB": 8 }, "test_config": { "generator": "replay", "numOps": 100, "numThreads": 2,
      "traceFileName": "trace.csv", "enableLookaside": true } }"#;
    let (directory, file) = config("replay.json", replay);
    std::fs::write(directory.path().join("trace.csv"), "key,op,size\na,JUMP,10\n").unwrap();
    for flags in [&[][..], &["--quiet"]] {
        let output = flashwright(&[&["bench", &file], flags].concat());
        assert_eq!((output.status.code(), out(&output)), (Some(2), String::new()));
        let said = err(&output);
        assert!(
            said.contains("trace.csv: its only row is not a request of a `kvcache` trace; row 2: `JUMP`"),
            "{said}"
        );
    }
}

#[test]
fn completely_skipped_trace_is_reported_as_skipped() {
    let replay = r#"{ "cache_config": { "cacheSizeMB": 8 }, "test_config": { "generator": "replay", "numOps": 100, "numThreads": 2,
      "traceFileName": "trace.csv", "replayGeneratorConfig": { "fastForwardCount": 5 } } }"#;
    let (directory, file) = config("replay.json", replay);
    std::fs::write(directory.path().join("trace.csv"), "key,op,size\na,GET,10\nb,GET,10\n").unwrap();
    let output = flashwright(&["bench", &file, "--quiet"]);
    assert_eq!(output.status.code(), Some(1));
    let reported =
        "failed: None of the 2 requests read from the trace was executed: fastForwardCount skipped them";
    assert!(err(&output).starts_with(reported), "{}", err(&output));
}

#[test]
fn full_disk_error_names_the_stats_file() {
    let (_directory, file) = config("small.json", SMALL);
    let output = flashwright(&["bench", &file, "--quiet", "--progress_stats_file", "/dev/full"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("error: writing /dev/full: No space left"), "{}", err(&output));
}

#[test]
fn missing_drive_is_not_created() {
    let (directory, file) = config("small.json", SMALL);
    let deep = directory.path().join("not/there/flash");
    for (device, said) in [
        ("/dev/no_such_drive", "/dev/no_such_drive: no such device"),
        (deep.to_str().unwrap(), "No such file or directory"),
        ("sim:", "names no card"),
        ("sim:no_such_card", "no such card"),
    ] {
        let output = flashwright(&["bench", &file, "--device", device]);
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""), "{device}");
        let error = err(&output);
        assert!(error.contains(said) && error.lines().count() == 1, "{device}: {error}");
    }
    assert!(!directory.path().join("not").exists());
}

#[test]
fn studies_are_listed_as_json_and_a_misspelt_name_gets_a_suggestion() {
    let listed = flashwright(&["study", "--json", "-"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert!(listed["studies"].as_array().unwrap().iter().any(|it| it["study"] == "fdp-fig6"));
    let wrong = flashwright(&["study", "fdp-fig66"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert_eq!(err(&wrong), "error: unknown study `fdp-fig66`; did you mean `fdp-fig6`?\n");
    let among_others = flashwright(&["study", "fdp-table2", "fdp-fig66"]);
    assert_eq!((among_others.status.code(), err(&among_others)), (Some(2), err(&wrong)));
}

#[test]
fn study_on_a_trace_has_values_without_verdict() {
    let directory = tempfile::tempdir().unwrap();
    let inside = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (trace, figures) = (inside("trace.csv"), inside("figures"));
    let generated = flashwright(&[
        "trace",
        "generate",
        "cdn",
        "-q",
        "--requests",
        "12000",
        "--objects",
        "9000",
        "-o",
        &trace,
    ]);
    assert!(generated.status.success(), "{}", err(&generated));
    for (name, points) in [("cdn-fig8", 4), ("cdn-fig2", 18)] {
        let study = ["study", name, "--trace", &trace, "--figures", &figures, "--json", "-"];
        let made = flashwright(&study);
        assert_eq!(made.status.code(), Some(0), "{}", err(&made));
        let result: Value = serde_json::from_slice(&made.stdout).unwrap();
        assert_eq!(result["config"]["reading"]["trace"][0], trace.as_str());
        let reported = result["points"].as_array().unwrap();
        assert_eq!(reported.len(), points, "{reported:?}");
        for point in reported {
            assert!(point["ours"].is_f64(), "{point}");
            assert!(point["paper"].is_null() && point["ok"].is_null(), "{point}");
        }
        let note = result["notes"][0].as_str().unwrap();
        assert!(note.contains("12000 requests, footprint "), "{note}");
        let warns = result["notes"][1].as_str().is_some_and(|note| note.contains("fewer than 8 objects"));
        assert_eq!(warns, name == "cdn-fig2", "{}", result["notes"]);
    }
    let two = flashwright(&[
        "study",
        "cdn-fig8",
        "cdn-fig1",
        "--trace",
        &trace,
        "--figures",
        &figures,
        "--json",
        "-",
    ]);
    let result: Value = serde_json::from_slice(&two.stdout).unwrap();
    let names: Vec<_> = result["studies"].as_array().unwrap().iter().map(|it| &it["study"]).collect();
    assert_eq!(names, ["cdn-fig8", "cdn-fig1"], "in the order given");
}

#[test]
fn unusable_study_trace_is_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let inside = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (trace, figures) = (inside("trace.csv"), inside("figures"));
    std::fs::write(&trace, "ts,key,op,size\n0,1,GET,100\n1,1,GET,100\n").unwrap();
    let absent = inside("absent.csv");
    let footprint = "2 requests, footprint 100 bytes";
    for (arguments, said) in [
        (vec!["fdp-fig5", "--trace", &trace], "fdp-fig5 takes no trace"),
        (vec!["cdn-fig9", "--trace", &absent], "absent.csv: No such file"),
        (vec!["cdn-fig9", "--trace", "-"], "standard input can be read only once"),
        (vec!["cdn-fig9", "--trace", &trace, "--format", "plian"], "unknown format `plian`"),
        (vec!["cdn-fig9", "--format", "plain"], "--trace <FILE>"),
        (vec!["cdn-fig9", "--trace", &trace], footprint),
        (vec!["cdn-fig2", "--trace", &trace], footprint),
    ] {
        let refused = flashwright(&[&["study", "--figures", &figures], arguments.as_slice()].concat());
        assert_eq!((refused.status.code(), out(&refused).as_str()), (Some(2), ""), "{arguments:?}");
        let error = err(&refused);
        assert!(error.contains(said) && error.lines().count() == 1, "{arguments:?}: {error}");
    }
}

#[test]
fn study_with_unwritable_result_does_not_run() {
    let directory = tempfile::tempdir().unwrap();
    let nowhere = directory.path().join("not/there.json");
    let figures = directory.path().join("figures");
    let figures = figures.to_str().unwrap();
    let said = |more: &[&str]| flashwright(&[&["study", "fdp-table2", "--figures", figures], more].concat());
    let refused = said(&["--json", nowhere.to_str().unwrap()]);
    assert_eq!((refused.status.code(), out(&refused).as_str()), (Some(2), ""), "{}", err(&refused));
    let made = said(&[]);
    assert_eq!(made.status.code(), Some(0), "{}", err(&made));
    assert!(out(&made).contains("1081.1"), "{}", out(&made));
    for picture in ["fdp-table2.svg", "fdp-table2.png"] {
        assert!(directory.path().join("figures").join(picture).exists(), "{picture}");
    }
}

/// Catches a regression: these flags report "invalid digit found in string" instead of the expected values.
#[test]
fn negative_numbers_are_rejected_with_the_expected_values() {
    let (_directory, file) = config("small.json", SMALL);
    for flag in ["--seed", "--timeout-seconds", "--progress"] {
        let output = flashwright(&["bench", &file, flag, "-1"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(err(&output).contains("\"-1\" is not a whole number: write 1000000"), "{}", err(&output));
    }
}
