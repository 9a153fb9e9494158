//! The figures of a run over time.

use serde_json::Value;

use super::super::{err, flashwright, json};
use super::{SMALL, config};
use crate::parquet_files::assert_rows_equal;

fn sum(intervals: &[Value], name: &str) -> u64 {
    intervals.iter().map(|interval| interval[name].as_u64().unwrap()).sum()
}

#[test]
fn intervals_of_a_simulated_run_add_up_and_are_reproducible() {
    let (directory, file) = config("small.json", SMALL);
    let column = |name: &str| {
        let intervals = directory.path().join(name);
        let arguments = ["bench", &file, "--device", "sim:test", "--intervals", intervals.to_str().unwrap()];
        (json(&arguments), std::fs::read_to_string(intervals).unwrap())
    };
    let ((result, lines), (_, csv), (_, again)) = (column("a.jsonl"), column("a.csv"), column("b.csv"));
    assert_eq!(csv, again);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(csv.lines().count(), lines.len() + 1, "one line per interval and the header");
    let kept = result["intervals"].as_array().unwrap();
    for intervals in [&lines, kept] {
        for name in ["ops", "gets", "sets", "flash_bytes_logical", "flash_bytes_host", "flash_bytes_media"] {
            assert_eq!(sum(intervals, name), result["totals"][name].as_u64().unwrap(), "{name}");
        }
        let last = intervals.last().unwrap();
        assert_eq!(last["until_seconds"], result["totals"]["seconds"]);
        assert_eq!(last["flash_bytes_waiting"], result["totals"]["flash_bytes_waiting"]);
        // The run's percentiles lie between the smallest and the largest of its intervals.
        for (layer, operation) in [("cache", "set"), ("device", "read"), ("device", "write")] {
            let all = &result["totals"]["latency_ns"][layer][operation];
            let prefix = if layer == "device" { format!("device_{operation}") } else { operation.to_owned() };
            let of = |share: &str| {
                let name = format!("{prefix}_{share}_ns");
                intervals.iter().filter_map(|it| it[&name].as_u64()).map(|ns| ns as f64).collect::<Vec<_>>()
            };
            let [p50, p99, max] = ["p50", "p99", "max"].map(|share| all[share].as_f64().unwrap());
            let slowest = of("p99").into_iter().fold(0.0, f64::max);
            let fastest = of("p50").into_iter().fold(f64::INFINITY, f64::min);
            // Intervals are exact to 1 part in 16, the run to 1 in 100.
            let near = 1.08;
            assert!(p99 <= slowest * near && slowest <= max * near, "{prefix}: {p99} {slowest} {max}");
            assert!(fastest <= p50 * near, "{prefix}: {fastest} {p50}");
        }
    }
}

#[test]
fn intervals_are_written_as_parquet() {
    let (directory, file) = config("small.json", SMALL);
    let intervals = directory.path().join("intervals.parquet");
    let result = json(&["bench", &file, "--device", "sim:test", "--intervals", intervals.to_str().unwrap()]);
    assert_rows_equal(&intervals, &result["intervals"]);
}

#[test]
fn interval_file_with_unknown_ending_is_refused_before_the_run() {
    let (_directory, file) = config("small.json", SMALL);
    let output = flashwright(&["bench", &file, "--intervals", "intervals.txt", "--json", "never.json"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(err(&output), "error: intervals.txt: an interval file must end in .csv, .jsonl or .parquet\n");
    assert!(!std::path::Path::new("never.json").exists() && !std::path::Path::new("intervals.txt").exists());
}
