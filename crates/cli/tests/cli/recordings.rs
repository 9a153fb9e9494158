//! Recordings of block devices as commands read them: per-CPU files, and files without queue events.

use std::path::Path;

use super::{err, flashwright, json};

const QUEUE: u32 = 1;
const ISSUE: u32 = 7;

/// A blktrace record of a read of 4096 bytes.
fn record(action: u32, time_ns: u64, sector: u64) -> Vec<u8> {
    let mut out = vec![0; 48];
    out[..4].copy_from_slice(&0x6561_7407_u32.to_le_bytes());
    out[8..16].copy_from_slice(&time_ns.to_le_bytes());
    out[16..24].copy_from_slice(&sector.to_le_bytes());
    out[24..28].copy_from_slice(&4096_u32.to_le_bytes());
    out[28..32].copy_from_slice(&(1 << 16 | action).to_le_bytes());
    out[36..40].copy_from_slice(&(8_u32 << 20).to_le_bytes());
    out
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> String {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn simulate_and_info_merge_per_cpu_files_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let of = |cpu: u64| {
        (0..1000_u64).flat_map(|page| record(QUEUE, page * 100 + cpu, page * 8)).collect::<Vec<u8>>()
    };
    let files = [0, 1].map(|cpu| write(folder.path(), &format!("sda.blktrace.{cpu}"), &of(cpu)));
    let [first, second] = [&files[0], &files[1]].map(String::as_str);
    let simulated = json(&["simulate", first, second, "-p", "lru", "-s", "40960", "--warmup", "0"]);
    let hits = simulated["rows"][0]["object_hit_ratio"].as_f64();
    assert_eq!(hits, Some(0.5), "{simulated}");
    let info = json(&["trace", "info", first, second]);
    assert_eq!((&info["requests"], &info["reading"]["backward_times"]), (&2000.into(), &0.into()));
    assert_eq!(info["reading"]["notes"][0], "2 files are merged by time");
}

#[test]
fn recordings_without_queue_events_are_read_by_their_issue_events_with_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..1000_u64).flat_map(|at| record(ISSUE, at * 100, at * 8)).collect();
    let file = write(folder.path(), "issued", &bytes);
    let info = json(&["trace", "info", &file]);
    assert_eq!(info["requests"], 1000);
    let note = info["reading"]["notes"][0].as_str().unwrap();
    assert!(note.contains("no queue (Q) events: issue (D) events are used"), "{note}");
    let replayed = json(&["block", "replay", &file, "--cache-size", "16MiB"]);
    assert_eq!(replayed["trace"]["requests"], 1000);
    assert!(replayed["notes"][0].as_str().unwrap().contains("issue (D) events are used"), "{replayed}");
    for command in [&["trace", "info"][..], &["simulate"], &["block", "replay"]] {
        let output = flashwright(&[command, &[file.as_str(), "--events", "queue"]].concat());
        assert!(
            !output.status.success() && err(&output).contains("has no requests"),
            "{command:?}: {}",
            err(&output)
        );
    }
    let output = flashwright(&["trace", "info", &file, "--events", "queue"]);
    assert!(err(&output).contains("; without --events, the events that it has are used"), "{}", err(&output));
    let csv = write(folder.path(), "t.csv", b"ts,key,op,size\n1,7,GET,100\n");
    let output = flashwright(&["trace", "info", &csv, "--events", "issue"]);
    assert!(err(&output).contains("`issue` events cannot be chosen"), "{}", err(&output));
}
