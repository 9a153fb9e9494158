//! The event tracker, which records events of keys during a run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::super::{FLASHWRIGHT, err, flashwright, json, out};
use super::{SMALL, config, shipped};

/// Event and result, key, second, and time of the run.
type Row = ((String, String), String, u64, u64);

/// The rows of an event file.
fn rows(file: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("Ts,Event,Result,Key,ValueBytes,TtlSeconds,RunNs"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells.len(), 7, "{line}");
        let name = (cells[1].to_owned(), cells[2].to_owned());
        (name, cells[3].to_owned(), cells[0].parse().unwrap(), cells[6].parse().unwrap())
    };
    lines.map(row).collect()
}

fn set(file: &Path) -> String {
    format!("cache_config.eventTrackerFilePath={}", file.display())
}

/// A run of `SMALL`, and its rows.
fn tracked(one_in: u64, extra: &[&str]) -> (Value, Vec<Row>) {
    let (directory, file) = config("small.json", SMALL);
    let events = directory.path().join("events.csv");
    let (path, one_in) = (set(&events), format!("cache_config.eventTrackerSamplingRate={one_in}"));
    let queue = "cache_config.eventTrackerQueueSize=1000000";
    let arguments = ["bench", &file, "--set", &path, "--set", &one_in, "--set", queue];
    let result = json(&[&arguments, extra].concat());
    (result, rows(&events))
}

#[test]
fn number_of_rows_equals_the_counts_of_the_run() {
    for extra in [&[][..], &["--device", "sim:test"]] {
        let (result, rows) = tracked(1, extra);
        let totals = &result["totals"];
        let count = |names: &[(&str, &str)]| {
            let is_one =
                |row: &&Row| names.iter().any(|(event, result)| row.0.0 == *event && row.0.1 == *result);
            rows.iter().filter(is_one).count() as u64
        };
        let counted = |name: &str| totals[name].as_u64().unwrap();
        let (dram, flash) = (count(&[("FIND", "FOUND")]), count(&[("NVM_FIND", "FOUND")]));
        let misses = count(&[("FIND", "NOT_FOUND")]);
        assert_eq!(dram, totals["counts"]["get_hits_dram"].as_u64().unwrap());
        assert_eq!(flash, totals["counts"]["get_hits_flash"].as_u64().unwrap());
        assert_eq!(misses, totals["counts"]["get_misses"].as_u64().unwrap());
        assert_eq!(dram + flash + misses, counted("gets"));
        assert!(flash > 0 && misses > 0);
        let inserts = count(&[("INSERT_OR_REPLACE", "INSERTED"), ("INSERT_OR_REPLACE", "REPLACED")]);
        assert_eq!(inserts, counted("sets"));
        let removed = count(&[("REMOVE", "REMOVED"), ("NVM_REMOVE", "REMOVED")]);
        let nothing = count(&[("REMOVE", "NOT_FOUND")]);
        assert_eq!(removed + nothing, counted("deletes"));
        assert_eq!(nothing, totals["counts"]["delete_misses"].as_u64().unwrap());
        assert_eq!(
            count(&[("NVM_INSERT", "INSERTED")]),
            totals["flash_put_ends"]["stored"].as_u64().unwrap()
        );
        assert_eq!(count(&[("NVM_INSERT", "CLEAN")]), totals["flash_put_ends"]["clean"].as_u64().unwrap());
        assert_eq!(
            count(&[("INSERT_FROM_NVM", "INSERTED")]),
            result["instances"][0]["details"]["promotions"].as_u64().unwrap()
        );
        let events = &result["instances"][0]["events"];
        let all = rows.len() as u64;
        for (name, expected) in [("tracked", all), ("written", all), ("dropped", 0), ("lost", 0)] {
            assert_eq!(events[name].as_u64(), Some(expected), "{name}");
        }
        let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
        rows.iter()
            .for_each(|((event, result), ..)| *by_name.entry(format!("{event},{result}")).or_default() += 1);
        assert_eq!(events["counts"], serde_json::to_value(by_name).unwrap());
        assert!(rows.is_sorted_by_key(|row| row.3), "rows are in order of time");
    }
}

/// DRAM only and one thread, so that sampling does not change the run.
#[test]
fn sampled_keys_have_all_rows_and_others_none() {
    let alone = ["--set", "cache_config.nvmCacheSizeMB=0", "--set", "test_config.numThreads=1"];
    let ((_, all), (_, some)) = (tracked(1, &alone), tracked(10, &alone));
    let story = |row: &Row| (row.0.clone(), row.1.clone());
    let keys: BTreeSet<&str> = some.iter().map(|row| row.1.as_str()).collect();
    let of_them: Vec<_> = all.iter().filter(|row| keys.contains(row.1.as_str())).map(story).collect();
    assert_eq!(some.iter().map(story).collect::<Vec<_>>(), of_them);
    let all: BTreeSet<&str> = all.iter().map(|row| row.1.as_str()).collect();
    let expected = all.len() / 10;
    assert!(keys.len().abs_diff(expected) < expected / 3, "{} of {}", keys.len(), all.len());
}

#[test]
fn simulated_run_has_reproducible_rows() {
    let run = || tracked(3, &["--device", "sim:test", "--set", "cache_config.eventTrackerQueueSize=1"]);
    let ((result, rows), (_, again)) = (run(), run());
    assert_eq!(rows, again);
    let (first, last) = (&rows[0], rows.last().unwrap());
    assert!(last.3 as f64 / 1e9 <= result["totals"]["seconds"].as_f64().unwrap());
    assert!(last.2 - first.2 <= last.3 / 1_000_000_000 + 1, "both clocks are virtual");
    assert_eq!(result["instances"][0]["events"]["dropped"], 0);
}

#[test]
fn foreign_event_file_is_refused_and_unchanged() {
    let (directory, file) = config("small.json", SMALL);
    let precious = directory.path().join("precious.csv");
    std::fs::write(&precious, "key,op,size\n").unwrap();
    let results = directory.path().join("result.json");
    let lost = "precious.csv is not an event file and would be overwritten; use another file\n";
    let nowhere = directory.path().join("no/events.csv");
    for (events, text) in [
        (&precious, lost),
        (&nowhere, "no is not a directory\n"),
        (&directory.path().to_owned(), " is not a file\n"),
    ] {
        for flags in [&["--json", results.to_str().unwrap()][..], &["--validate"]] {
            let output = flashwright(&[&["bench", &file, "--set", &set(events)], flags].concat());
            assert_eq!(output.status.code(), Some(2));
            let said = err(&output);
            assert!(said.contains("cache_config.eventTrackerFilePath: ") && said.ends_with(text), "{said}");
            assert!(!out(&output).contains("Test Results") && !results.exists());
        }
    }
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "key,op,size\n");
    let events = directory.path().join("events.csv");
    for flag in ["--json", "--progress-stats-file"] {
        let output = flashwright(&["bench", &file, "--set", &set(&events), flag, events.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            err(&output).contains("events.csv: would overwrite the events of the run "),
            "{}",
            err(&output)
        );
    }
    let full = flashwright(&["bench", &file, "--set", &set(Path::new("/dev/full"))]);
    assert_eq!(full.status.code(), Some(2));
    assert!(err(&full).starts_with("error: writing /dev/full: "), "{}", err(&full));
    assert!(!out(&full).contains("Test Results"));
}

/// A file size limit of the shell replaces a full disk: written rows are complete, and the missing ones are reported.
#[test]
fn full_disk_loses_whole_rows_and_is_reported() {
    let (directory, file) = config("small.json", SMALL);
    let events = directory.path().join("events.csv");
    // The shell's unit is 512 or 1024 bytes. A simulated run writes 4096 rows per call, some 200 KB.
    let limited = "ulimit -f 1000; trap '' XFSZ; exec \"$0\" \"$@\"";
    let output = std::process::Command::new("sh")
        .args(["-c", limited, FLASHWRIGHT, "bench", &file, "--json", "-", "--set", &set(&events)])
        .args(["--device", "sim:test", "--set", "test_config.numOps=20000"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    assert!(err(&output).contains("events.csv"), "{}", err(&output));
    let result: Value = serde_json::from_str(&out(&output)).unwrap();
    let count = |name: &str| result["totals"]["events"][name].as_u64().unwrap();
    assert!(count("lost") > 0 && count("written") > 0);
    assert_eq!(count("tracked"), count("written") + count("lost") + count("dropped"));
    assert_eq!(rows(&events).len() as u64, count("written"));
    assert!(std::fs::read_to_string(&events).unwrap().ends_with('\n'));
}

#[test]
fn older_event_file_is_replaced_only_by_a_run_that_starts() {
    let (directory, file) = config("small.json", SMALL);
    let (events, precious) = (directory.path().join("events.csv"), directory.path().join("precious.bin"));
    let older = "Ts,Event,Result,Key\n1,FIND,FOUND,key\n";
    std::fs::write(&precious, "a user's").unwrap();
    let flash = format!("file:{}", precious.display());
    let run = |extra: &[&str]| flashwright(&[&["bench", &file, "--set", &set(&events)], extra].concat());
    assert_eq!(run(&["--device", &flash]).status.code(), Some(2));
    assert!(!events.exists());
    std::fs::write(&events, older).unwrap();
    assert_eq!(run(&["--device", &flash]).status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(&events).unwrap(), older);
    assert_eq!(run(&[]).status.code(), Some(0));
    assert!(rows(&events).len() > 1000);
}

#[test]
fn each_instance_has_an_event_file() {
    let two = format!("[{SMALL}, {SMALL}]");
    let (directory, file) = config("two.json", &two);
    let (one, other) = (directory.path().join("one.csv"), directory.path().join("other.csv"));
    let output = flashwright(&["bench", &file, "--set", &set(&one)]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err(&output).contains("instance 1: ")
            && err(&output).ends_with("one.csv is also the event file of another instance\n")
    );
    assert!(!one.exists());
    let (first, second) = (format!("[0].{}", set(&one)), format!("[1].{}", set(&other)));
    let result = json(&["bench", &file, "--set", &first, "--set", &second, "--device", "memory:"]);
    let written = |place: &Value| place["events"]["written"].as_u64().unwrap();
    let (instances, both) = (&result["instances"], rows(&one).len() + rows(&other).len());
    assert_eq!(written(&instances[0]), rows(&one).len() as u64);
    assert_eq!(written(&instances[0]) + written(&instances[1]), both as u64);
    assert_eq!(written(&result["totals"]), both as u64);
}

#[test]
fn invalid_tracker_settings_are_rejected() {
    let (_directory, file) = config("small.json", SMALL);
    for key in ["eventTrackerSamplingRate", "eventTrackerQueueSize"] {
        let none = flashwright(&["bench", &file, "--validate", "--set", &format!("cache_config.{key}=0")]);
        assert_eq!(none.status.code(), Some(2));
        assert!(err(&none).ends_with(&format!("cache_config.{key}: must be at least 1\n")), "{}", err(&none));
        let alone = flashwright(&["bench", &file, "--validate", "--set", &format!("cache_config.{key}=7")]);
        assert_eq!(alone.status.code(), Some(0));
        assert!(
            err(&alone)
                .ends_with(&format!("cache_config.{key}: has no effect: eventTrackerFilePath is empty\n"))
        );
    }
}

#[test]
fn shipped_tracker_config_completes() {
    let Some(configs) = shipped() else { return };
    let file = configs.join("feature_stress/event_tracker_dram_navy.json");
    let directory = tempfile::tempdir().unwrap();
    let events = directory.path().join("events.csv");
    let output = flashwright(&["bench", file.to_str().unwrap(), "--set", &set(&events)]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let written = rows(&events).len();
    let block = format!("== Event Tracker Counters Map ==\nevent_tracker_tracked  :  {written}\n");
    assert!(written > 50 && out(&output).contains(&block), "{}", out(&output));
}

#[test]
fn unwritable_events_leave_a_persistent_cache_intact() {
    let (directory, file) = config("small.json", SMALL);
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (kept, flash) =
        (format!("cache_config.cacheDir={}", at("kept")), format!("file:{}", at("flash.bin")));
    let arguments = ["bench", &file, "--set", &kept, "--device", &flash];
    assert_eq!(json(&arguments)["instances"][0]["flash_recovered"], false);
    let refused = flashwright(&[&arguments[..], &["--set", &set(Path::new("/dev/full"))]].concat());
    assert_eq!(refused.status.code(), Some(2), "{}", err(&refused));
    assert_eq!(json(&arguments)["instances"][0]["flash_recovered"], true);
}
