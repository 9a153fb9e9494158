//! Compares the text and JSON of a run with golden files, because scripts read their lines and names.
//!
//! After an intended change: `UPDATE_GOLDEN=1 cargo test -p flashwright --test cli golden`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::FLASHWRIGHT;

/// One thread and enough memory: the counts follow from the seed alone.
const REPEATABLE: &str = r#"{
  "cache_config": { "cacheSizeMB": 64, "numPools": 2, "poolSizes": [0.5, 0.5] },
  "test_config": { "numOps": 20000, "numThreads": 1, "numKeys": 5000, "checkConsistency": true, "enableLookaside": true,
    "keySizeRange": [8, 16], "keySizeRangeProbability": [1.0], "valSizeRange": [100, 800], "valSizeRangeProbability": [1.0],
    "opPoolDistribution": [0.7, 0.3], "keyPoolDistribution": [0.5, 0.5],
    "getRatio": 0.8, "setRatio": 0.1, "delRatio": 0.05, "updateRatio": 0.03, "couldExistRatio": 0.02 }
}"#;

/// Everything that a report can contain: flash with arenas, chains, slab release, counters.
const HYBRID: &str = r#"{
  "cache_config": { "cacheSizeMB": 8, "poolRebalanceIntervalSec": 1, "nvmCacheSizeMB": 128, "navyRegionSizeMB": 1, "navyBlockSize": 4096,
    "printNvmCounters": true, "htBucketPower": 20,
    "navyArenas": [{ "name": "a", "sizePct": 50, "bigHashPct": 20 }, { "name": "b", "sizePct": 50, "bigHashPct": 50 }] },
  "test_config": { "numOps": 10000, "numThreads": 2, "numKeys": 5000, "checkConsistency": true, "enableLookaside": true,
    "keySizeRange": [8, 16], "keySizeRangeProbability": [1.0], "valSizeRange": [100, 8000], "valSizeRangeProbability": [1.0],
    "chainedItemLengthRange": [1, 3], "chainedItemLengthRangeProbability": [1.0],
    "chainedItemValSizeRange": [100, 1000], "chainedItemValSizeRangeProbability": [1.0],
    "getRatio": 0.7, "setRatio": 0.15, "delRatio": 0.05, "addChainedRatio": 0.1 }
}"#;

/// A run of `config`: its text and its result.
fn run(config: &str) -> (String, Value) {
    let directory = tempfile::tempdir().unwrap();
    let (file, result) = (directory.path().join("config.json"), directory.path().join("result.json"));
    std::fs::write(&file, config).unwrap();
    let output = Command::new(FLASHWRIGHT)
        .args(["bench", file.to_str().unwrap(), "--seed", "7", "--report_api_latency", "--json"])
        .arg(&result)
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{lines}{}", String::from_utf8_lossy(&output.stderr));
    let (_, lines) = lines.split_once("Running ").expect("the config is followed by what runs");
    (format!("Running {lines}"), serde_json::from_str(&std::fs::read_to_string(result).unwrap()).unwrap())
}

/// Replaces numbers, with the spaces before them, by `#`. Digits in a word (`p50`) are kept.
fn masked(line: &str) -> String {
    let letters: Vec<char> = line.chars().collect();
    let digit_at = |i: usize| letters.get(i).is_some_and(char::is_ascii_digit);
    let (mut out, mut i) = (String::new(), 0);
    while i < letters.len() {
        let in_word = i > 0 && (letters[i - 1].is_alphanumeric() || letters[i - 1] == '_');
        if !digit_at(i) || in_word {
            out.push(letters[i]);
            i += 1;
            continue;
        }
        while digit_at(i) || (i < letters.len() && matches!(letters[i], ',' | '.') && digit_at(i + 1)) {
            i += 1;
        }
        out.truncate(out.trim_end_matches(' ').len() + usize::from(out.ends_with(' ')));
        out.push('#');
    }
    out
}

/// Every name of a JSON tree with the type of its value, in the file's order.
fn names(value: &Value, at: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| names(value, &format!("{at}.{name}"), out)),
        Value::Array(list) => match list.first() {
            Some(first) => names(first, &format!("{at}[]"), out),
            None => out.push(format!("{at}[]")),
        },
        Value::Null => out.push(format!("{at}: null")),
        Value::Bool(_) => out.push(format!("{at}: bool")),
        Value::Number(_) => out.push(format!("{at}: number")),
        Value::String(_) => out.push(format!("{at}: string")),
    }
}

fn compare(name: &str, found: &str) {
    let file: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, found).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap();
    let differing = found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
    assert!(
        found == expected,
        "{name} differs, first in {differing:?}; if this is meant: UPDATE_GOLDEN=1\n{found}"
    );
}

#[test]
fn same_seed_prints_the_same_counts() {
    let (lines, result) = run(REPEATABLE);
    // Values that depend on time and memory layout.
    let volatile = |line: &str| ["latency", "/s, ", "Fraction"].iter().any(|text| line.contains(text));
    let lines: Vec<String> =
        lines.lines().map(|line| if volatile(line) { masked(line) } else { line.to_owned() }).collect();
    compare("repeatable.txt", &(lines.join("\n") + "\n"));
    let counts = serde_json::to_string_pretty(&result["totals"]["counts"]).unwrap();
    compare("repeatable_counts.json", &(counts + "\n"));
}

#[test]
fn hybrid_run_prints_all_lines_and_writes_all_names() {
    let (lines, result) = run(HYBRID);
    let released =
        |line: &&str| !["Released ", "  Moves ", "  Evictions "].iter().any(|it| line.starts_with(it));
    // Results other than `stored` depend on thread timing.
    let ends = |line: String| match line.split_once(" stored, ") {
        Some((stored, _)) => format!("{stored} stored, …"),
        None => line,
    };
    let lines: Vec<String> = lines.lines().filter(released).map(masked).map(ends).collect();
    compare("hybrid.txt", &(lines.join("\n") + "\n"));
    let mut all = Vec::new();
    names(&result, "", &mut all);
    // Whether any operation was timed in the first fifth of a second is chance.
    let timed = |name: String| match name.split_once("_ns: ") {
        Some((before, _)) if name.starts_with(".intervals[].") => format!("{before}_ns"),
        _ => name,
    };
    let mut all: Vec<String> = all.into_iter().map(timed).collect();
    // Figures of the machine vary, and the config's keys are in docs/cachebench-keys.md.
    all.retain(|name| !name.starts_with(".environment.") && !name.starts_with(".config."));
    compare("hybrid_names.txt", &(all.join("\n") + "\n"));
}

#[test]
fn mask_replaces_numbers_only() {
    assert_eq!(
        masked("NVM Read  Latency    p50      :     132.35 us"),
        "NVM Read  Latency    p50      : # us"
    );
    assert_eq!(masked("get       : 1,234,567/s, success   :  98.70%"), "get       : #/s, success   : #%");
    assert_eq!(masked("Items in RAM  : 7, 8 done."), "Items in RAM  : #, # done.");
}
