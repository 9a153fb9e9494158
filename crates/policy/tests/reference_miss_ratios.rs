//! Real traces, against the miss ratios that libCacheSim 0.3.5 gives for them (and, for FIFO, LRU, SIEVE and Belady,
//! an independent script). The traces are large and not in this repository: `FLASHWRIGHT_SHARED` names the folder that
//! holds `traces/`, or a folder `shared` beside one of ours is taken.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test: a bad row fails it, a missing folder is reported"
)]

use std::fs::File;
use std::path::{Path, PathBuf};

use flashwright_policy::eviction::Kind;
use flashwright_policy::eviction::clairvoyant::next_uses;
use flashwright_policy::simulate::flash::{Flash, FlashRules, Kangaroo, KangarooRules, Log, Sets};
use flashwright_policy::simulate::{
    Access, Counts, Policy, Request, RuleBook, Settings, Simulator, numbered,
};

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
    let found = named.or_else(beside).filter(|traces| traces.join("reference_miss_ratios.csv").is_file());
    if found.is_none() {
        println!("skipped: no folder with reference_miss_ratios.csv (set FLASHWRIGHT_SHARED)");
    }
    found
}

fn references(traces: &Path, trace: &str) -> Vec<Reference> {
    let mut reader = csv::Reader::from_path(traces.join("reference_miss_ratios.csv")).unwrap();
    let rows = reader.records().map(|row| row.unwrap()).filter(|row| &row[0] == trace && &row[10] == "0");
    let reference = |row: csv::StringRecord| Reference {
        trace: row[0].to_owned(),
        capacity_bytes: row[5].parse().unwrap(),
        policy: row[6].to_owned(),
        printed: [row[8].to_owned(), row[9].to_owned()],
    };
    rows.map(reference).collect()
}

/// The trace; where `first_size`, each request with the size at the key's first appearance.
fn accesses(traces: &Path, file: &str, first_size: bool) -> Vec<Access> {
    let packed = File::open(traces.join(file)).unwrap();
    let mut reader = csv::Reader::from_reader(zstd::Decoder::new(packed).unwrap());
    let mut first_sizes: Vec<u32> = Vec::new();
    let request = |row: csv::StringRecord| {
        let (key, size): (usize, u32) = (row[1].parse().unwrap(), row[3].parse().unwrap());
        if key == first_sizes.len() {
            first_sizes.push(size); // keys are numbered by first appearance
        }
        let weight = if first_size { first_sizes[key] } else { size };
        Request { key: key as u64, weight, now_seconds: 0 }
    };
    numbered(&reader.records().map(|row| row.unwrap()).map(request).collect::<Vec<_>>())
}

/// Our policy.
fn ours(policy: &str) -> Policy {
    let kind = match policy {
        "FIFO" => Kind::Fifo,
        "LRU" => Kind::ExactLru,
        "SIEVE" => Kind::Sieve,
        "SLRU4" => "slru-4".parse().unwrap(),
        "S3FIFO" => Kind::S3Fifo,
        "GDSF" => Kind::Gdsf,
        "Belady" => return Policy::Clairvoyant,
        "BeladySize" => return Policy::ClairvoyantSized,
        other => panic!("no policy of ours is {other}"),
    };
    Policy::Eviction(kind)
}

fn simulated(policy: Policy, settings: &Settings, capacity: u64, accesses: &[Access]) -> Counts {
    let mut simulator = policy.simulator(capacity, settings);
    let objects = accesses.iter().map(|access| u64::from(access.object));
    let next_uses = if simulator.needs_future() { next_uses(objects) } else { Vec::new() };
    simulator.run(accesses, &next_uses);
    simulator.counts()
}

fn check(trace: &str, file: &str) {
    let Some(traces) = traces_folder() else { return };
    let accesses = accesses(&traces, file, trace.ends_with("_fs"));
    let rows = references(&traces, trace);
    assert!(!rows.is_empty(), "no reference for {trace}");
    for Reference { trace, capacity_bytes, policy: name, printed } in rows {
        if name == "BeladySize" && accesses.len() > 500_000 {
            continue; // lots drawn for every miss: too long for a test
        }
        let counts = simulated(ours(&name), &Settings::default(), capacity_bytes, &accesses);
        let ours = [counts.miss_ratio(), counts.weight_miss_ratio()].map(|ratio| format!("{ratio:.6}"));
        if name == "BeladySize" {
            // The reference samples at random. Where the cache holds fewer entries than the sample, ours examines all of
            // them: a lower miss ratio is no error.
            assert!(counts.miss_ratio() < printed[0].parse::<f64>().unwrap() + 0.001, "{trace}: {ours:?}");
        } else {
            assert_eq!(ours, printed, "{trace}, {name}, {capacity_bytes} bytes");
        }
    }
}

#[test]
fn web_objects_miss_as_in_the_reference() {
    check("web_adaptsize_fs", "caffeine/web_adaptsize.csv.zst");
}

#[test]
fn web_objects_of_changing_size_miss_as_in_the_reference() {
    check("web_adaptsize", "caffeine/web_adaptsize.csv.zst");
}

#[test]
fn virtual_disk_blocks_miss_as_in_the_reference() {
    check("block_cloudphysics_io_fs", "libcachesim/block_cloudphysics_io.csv.zst");
}

#[test]
fn virtual_disk_blocks_of_changing_size_miss_as_in_the_reference() {
    check("block_cloudphysics_io", "libcachesim/block_cloudphysics_io.csv.zst");
}

#[test]
fn llm_prefix_blocks_miss_as_in_the_reference() {
    check("llm_mooncake_conversation", "mooncake/llm_mooncake_conversation.csv.zst");
}

#[test]
fn key_values_miss_as_in_the_reference() {
    check("kv_twitter_c52_1m", "libcachesim/kv_twitter_c52_1m.csv.zst");
}

/// Trace, whether sizes are those of first appearances, capacity in bytes, miss ratio by requests and by bytes of libCacheSim 0.3.5.
const CACHEUS: &[(&str, bool, u64, [&str; 2])] = &[
    ("libcachesim/kv_twitter_c52_1m.csv.zst", false, 292_272, ["0.338530", "0.360932"]),
    ("libcachesim/kv_twitter_c52_1m.csv.zst", false, 2_922_721, ["0.207119", "0.211759"]),
    ("libcachesim/block_cloudphysics_io.csv.zst", true, 20_297_697, ["0.824039", "0.977834"]),
    ("libcachesim/block_cloudphysics_io.csv.zst", true, 202_976_972, ["0.753671", "0.891361"]),
    ("caffeine/web_adaptsize.csv.zst", true, 2_788_542, ["0.736232", "0.711034"]),
    ("caffeine/web_adaptsize.csv.zst", true, 27_885_423, ["0.623375", "0.626415"]),
];

#[test]
fn cacheus_misses_as_in_the_reference() {
    let Some(traces) = traces_folder() else { return };
    let settings = Settings { seed: 1, ..Settings::default() };
    for &(file, first_size, capacity_bytes, printed) in CACHEUS {
        let accesses = accesses(&traces, file, first_size);
        let counts = simulated(Policy::Eviction(Kind::Cacheus), &settings, capacity_bytes, &accesses);
        let ours = [counts.miss_ratio(), counts.weight_miss_ratio()].map(|ratio| format!("{ratio:.6}"));
        assert_eq!(ours, printed, "{file}, {capacity_bytes} bytes");
    }
}

/// The paper's rules do not fill the main queue directly, and count ghosts in another way. After the cache has turned
/// over a few times, little of the difference remains.
#[test]
fn paper_variant_of_s3_fifo_misses_nearly_like_the_simulator_of_its_authors() {
    let Some(traces) = traces_folder() else { return };
    let accesses = accesses(&traces, "libcachesim/kv_twitter_c52_1m.csv.zst", false);
    let settings = Settings { rule_book: RuleBook::Paper, ..Settings::default() };
    let rows = references(&traces, "kv_twitter_c52_1m").into_iter().filter(|row| row.policy == "S3FIFO");
    for Reference { capacity_bytes, printed, .. } in rows {
        let counts = simulated(Policy::Eviction(Kind::S3Fifo), &settings, capacity_bytes, &accesses);
        let (ours, reference) = (counts.miss_ratio(), printed[0].parse::<f64>().unwrap());
        assert!((ours - reference).abs() < 0.001, "{ours:.6}, not {reference}, at {capacity_bytes} bytes");
    }
}

/// The Kangaroo paper's simulator, with its assumptions: DRAM before the flash, 44 bytes with every object, none larger than
/// 2047.
#[test]
fn flash_designs_miss_and_write_as_in_the_reference() {
    let Some(traces) = traces_folder() else { return };
    let accesses = accesses(&traces, "libcachesim/kv_twitter_c52_1m.csv.zst", false);
    let mut rows = csv::Reader::from_path(traces.join("reference_flash_designs.csv")).unwrap();
    let mut compared = 0;
    for row in rows.records().map(|row| row.unwrap()) {
        let (dram, flash): (u64, u64) = (row[3].parse().unwrap(), row[4].parse().unwrap());
        let rules =
            |dram_weight| FlashRules { dram_weight, object_overhead: 44, object_weight_at_most: 2047 };
        let index = (flash as f64 * 0.012887) as u64;
        let mut simulator: Box<dyn Simulator> = match &row[5][..2] {
            "LS" => Box::new(Flash::new(Log::new(flash, 256 << 10), rules(dram - index))),
            "SA" => Box::new(Flash::new(Sets::new(flash, 4096), rules(dram))),
            "Ka" => Box::new(Flash::new(Kangaroo::new(flash, KangarooRules::default()), rules(dram))),
            _ => continue,
        };
        // Kangaroo's simulator has a log of 2.8 blocks here, ours of two: it writes 13 % more.
        let (misses_differ, writes_differ) = if &row[5][..2] == "Ka" { (0.01, 0.15) } else { (0.001, 0.01) };
        simulator.run(&accesses, &[]);
        let counts = simulator.counts();
        let (misses, writes): (f64, f64) = (row[9].parse().unwrap(), row[12].parse().unwrap());
        let our_writes = counts.written_weight as f64 / counts.insert_weight as f64;
        assert!(
            (counts.miss_ratio() - misses).abs() < misses_differ,
            "{}: {} misses",
            &row[5],
            counts.miss_ratio()
        );
        assert!((our_writes / writes - 1.0).abs() < writes_differ, "{}: {our_writes} written", &row[5]);
        compared += 1;
    }
    assert_eq!(compared, 3);
}
