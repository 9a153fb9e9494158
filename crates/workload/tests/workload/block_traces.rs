//! Recorded block traces: all formats of one recording contain the same requests.

use std::path::{Path, PathBuf};

use flashwright_workload::block::{BlockKind, BlockRequest};
use flashwright_workload::trace::block::{BlockTrace, BlockTraceOptions, BlockTraceStats};

fn read(path: &Path) -> (Vec<BlockRequest>, BlockTraceStats) {
    let mut trace = BlockTrace::open(&[path], BlockTraceOptions::default()).expect("a trace");
    let requests = trace.by_ref().map(|request| request.expect("a request")).collect();
    (requests, trace.stats().clone())
}

/// The recordings, or `None` with a message if they are missing.
fn recordings() -> Option<PathBuf> {
    let named = std::env::var_os("FLASHWRIGHT_SHARED").map(|folder| PathBuf::from(folder).join("traces"));
    let beside = || {
        let parents = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        parents.map(|parent| parent.join("shared/traces")).find(|folder| folder.is_dir())
    };
    let found = named.or_else(beside).filter(|folder| folder.is_dir());
    if found.is_none() {
        println!("skipped: the recordings are missing");
    }
    found
}

#[test]
fn binary_text_and_csv_of_one_recording_are_equal() {
    let Some(folder) = recordings() else { return };
    let of = |name: &str| read(&folder.join("block").join(name));
    let (text, text_stats) = of("local-mariadb-head20k.blkparse.txt.gz");
    let (binary, binary_stats) = of("local-mariadb-head20k.blktrace.bin.gz");
    assert_eq!((&text_stats.formats, &binary_stats.formats), (&vec!["blkparse"], &vec!["blktrace"]));
    assert!(text.len() > 2000, "{}", text.len());
    let requested = |requests: &[BlockRequest]| -> Vec<(BlockKind, u64, u64)> {
        requests.iter().map(|request| (request.kind, request.first_byte, request.bytes)).collect()
    };
    assert_eq!(requested(&text), requested(&binary));
    let (csv, csv_stats) = of("local-mariadb-sysbench-Q.csv.gz");
    assert_eq!(csv_stats.requests, 48_942);
    let moved = |requests: &[BlockRequest]| -> Vec<(BlockKind, u64, u64)> {
        requested(requests).into_iter().filter(|(kind, ..)| *kind != BlockKind::Flush).collect()
    };
    let (csv, binary) = (moved(&csv), moved(&binary));
    assert_eq!(
        csv[..binary.len()],
        binary[..],
        "the CSV contains the whole recording, the others its beginning"
    );
}

#[test]
fn vscsi_records_are_read_to_the_end() {
    let Some(folder) = recordings() else { return };
    let (requests, stats) = read(&folder.join("libcachesim/cloudPhysicsIO.vscsi.zst"));
    assert_eq!((requests.len(), stats.rows), (113_872, 113_872));
    let reads = requests.iter().filter(|request| request.kind == BlockKind::Read).count();
    assert_eq!(reads, 46_974);
    let hours = requests.last().expect("many").time_ns as f64 / 3.6e12;
    assert!((hours - 2.0).abs() < 0.01, "{hours} hours");
}
