//! Real traces, against the miss ratios that libCacheSim 0.3.5 gives for them (and, for FIFO, LRU, SIEVE and Belady,
//! an independent script). The traces are large and not in this repository: `FLASHWRIGHT_SHARED` names the folder that
//! holds `traces/`, or a folder `shared` beside one of ours is taken.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test: a bad row fails it, a missing folder is said"
)]

use std::fs::File;
use std::path::{Path, PathBuf};

use flashwright_policy::eviction::{EvictionConfig, Kind, build};
use flashwright_policy::simulate::{self, Counts, Request};

/// A row of the reference: trace, capacity, miss ratio by requests and by bytes.
struct Reference {
    trace: String,
    capacity_bytes: u64,
    policy: String,
    printed: [String; 2],
}

fn traces_folder() -> Option<PathBuf> {
    let named = std::env::var_os("FLASHWRIGHT_SHARED").map(|shared| Path::new(&shared).join("traces"));
    let beside = || {
        let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        folders.map(|folder| folder.join("shared/traces")).find(|traces| traces.is_dir())
    };
    named.or_else(beside).filter(|traces| traces.join("reference_miss_ratios.csv").is_file())
}

fn references(traces: &Path, trace: &str) -> Vec<Reference> {
    let mut reader = csv::Reader::from_path(traces.join("reference_miss_ratios.csv")).unwrap();
    let rows = reader.records().map(|row| row.unwrap()).filter(|row| &row[0] == trace);
    let reference = |row: csv::StringRecord| Reference {
        trace: row[0].to_owned(),
        capacity_bytes: row[5].parse().unwrap(),
        policy: row[6].to_owned(),
        printed: [row[8].to_owned(), row[9].to_owned()],
    };
    rows.map(reference).collect()
}

/// The trace, each request with the size at the key's first appearance.
fn requests(traces: &Path, file: &str) -> Vec<Request> {
    let packed = File::open(traces.join(file)).unwrap();
    let mut reader = csv::Reader::from_reader(zstd::Decoder::new(packed).unwrap());
    let mut first_sizes: Vec<u32> = Vec::new();
    let request = |row: csv::StringRecord| {
        let (key, size): (usize, u32) = (row[1].parse().unwrap(), row[3].parse().unwrap());
        if key == first_sizes.len() {
            first_sizes.push(size); // keys are numbered by first appearance
        }
        Request { key: key as u64, weight: first_sizes[key], now_seconds: 0 }
    };
    reader.records().map(|row| row.unwrap()).map(request).collect()
}

/// Our counts where the reference's policy is ours to the letter.
fn ours(reference: &Reference, requests: &[Request]) -> Option<Counts> {
    let kind = match reference.policy.as_str() {
        "FIFO" => Kind::Fifo,
        "LRU" => Kind::ExactLru,
        "SIEVE" => Kind::Sieve,
        "Belady" => return Some(simulate::run_clairvoyant(reference.capacity_bytes, requests)),
        _ => return None,
    };
    let policy = build(&EvictionConfig::new(kind), reference.capacity_bytes);
    Some(simulate::run(policy, reference.capacity_bytes, requests))
}

fn check(trace: &str, file: &str) {
    let Some(traces) = traces_folder() else {
        println!("skipped: no folder with reference_miss_ratios.csv (set FLASHWRIGHT_SHARED)");
        return;
    };
    let requests = requests(&traces, file);
    let mut compared = 0;
    for reference in references(&traces, trace) {
        let Some(counts) = ours(&reference, &requests) else { continue };
        let ours = [counts.miss_ratio(), counts.weight_miss_ratio()].map(|ratio| format!("{ratio:.6}"));
        let Reference { trace, policy, capacity_bytes, printed } = &reference;
        assert_eq!(&ours, printed, "{trace}, {policy}, {capacity_bytes} bytes");
        compared += 1;
    }
    assert!(compared > 0, "no reference for {trace}");
}

#[test]
fn web_objects_miss_as_in_the_reference() {
    check("web_adaptsize_fs", "caffeine/web_adaptsize.csv.zst");
}

#[test]
fn virtual_disk_blocks_miss_as_in_the_reference() {
    check("block_cloudphysics_io_fs", "libcachesim/block_cloudphysics_io.csv.zst");
}

#[test]
fn llm_prefix_blocks_miss_as_in_the_reference() {
    check("llm_mooncake_conversation", "mooncake/llm_mooncake_conversation.csv.zst");
}

#[test]
fn key_values_miss_as_in_the_reference() {
    check("kv_twitter_c52_1m", "libcachesim/kv_twitter_c52_1m.csv.zst");
}

/// The reference simulator fills the main queue directly while the cache is not yet full, and its ghosts do not count what
/// came back; the paper does neither, nor do we. Once the cache has turned over a few times little of that is left.
#[test]
fn s3_fifo_misses_nearly_as_its_authors_simulator_on_key_values() {
    let Some(traces) = traces_folder() else {
        println!("skipped: no folder with reference_miss_ratios.csv (set FLASHWRIGHT_SHARED)");
        return;
    };
    let requests = requests(&traces, "libcachesim/kv_twitter_c52_1m.csv.zst");
    let rows = references(&traces, "kv_twitter_c52_1m").into_iter().filter(|row| row.policy == "S3FIFO");
    for Reference { capacity_bytes, printed, .. } in rows {
        let policy = build(&EvictionConfig::new(Kind::S3Fifo), capacity_bytes);
        let ours = simulate::run(policy, capacity_bytes, &requests).miss_ratio();
        let reference: f64 = printed[0].parse().unwrap();
        assert!((ours - reference).abs() < 0.001, "{ours:.6}, not {reference}, at {capacity_bytes} bytes");
    }
}
