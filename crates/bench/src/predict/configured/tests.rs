//! Values computed by hand for configs, and the order of their requests.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use super::*;
use crate::config::Loaded;
use crate::config::cachebench::load_text;

fn read(folder: &Path, cache: &str, test: &str) -> Configured {
    let text = format!(r#"{{ "cache_config": {{ {cache} }}, "test_config": {{ {test} }} }}"#);
    let loaded = load_text(&folder.join("c.json"), &text, &[]);
    let Loaded::Config(config) = loaded.unwrap() else { panic!("{text}") };
    Configured::of(&config).unwrap()
}

const FLASH: &str = r#""cacheSizeMB": 64, "nvmCacheSizeMB": 4096, "nvmCachePaths": ["/dev/nvme0n1"]"#;
const DRAWN: &str = r#""generator": "online", "numOps": 1000, "numThreads": 2, "numKeys": 1000, "keySizeRange": [16, 17],
    "keySizeRangeProbability": [1.0], "valSizeRange": [200, 201], "valSizeRangeProbability": [1.0], "getRatio": 0.8, "setRatio": 0.2"#;
const REPLAYED: &str = r#""generator": "replay", "numOps": 1000, "numThreads": 2, "traceFileName": "kv.csv""#;

#[test]
fn cache_has_the_values_of_the_config() {
    let folder = tempfile::tempdir().unwrap();
    let cache = r#""cacheSizeMB": 64, "nvmCacheSizeMB": 4096, "nvmCachePaths": ["/dev/nvme0n1", "/dev/nvme1n1"], "navyBigHashSizePct": 25,
        "navySmallItemMaxSize": 640, "navyBigHashBucketSize": 8192, "navyBloomFilterPerBucketSize": 16, "navyRegionSizeMB": 4,
        "flashAdmission": "probability:0.3""#;
    let found = read(folder.path(), cache, &format!(r#"{DRAWN}, "opRatePerSec": 5000, "warmupOps": 100"#));
    assert_eq!((found.dram_bytes, found.flash_bytes), (64 << 20, 2 * (4096 << 20)), "of two devices");
    assert_eq!((found.small_share, found.admission, found.small), (0.25, 0.3, SmallEngine::Sets));
    assert_eq!((found.requests_per_second, found.requests()), (Some(5000.0), 2000));
    assert_eq!(found.warm_up, Some(WarmUp::Share(0.1)));
    assert!(!found.placement && found.warnings.len() == 1, "the order of regions: {:?}", found.warnings);
    let settings = found.settings;
    assert_eq!(
        (settings.small_at_most, settings.set_bytes, settings.filter_bytes, settings.region_bytes),
        (640, 8192, 16, Some(4 << 20))
    );
    assert!(!settings.fills_misses);
    let cache = format!(r#"{FLASH}, "navySmallItemEngine": "log", "navySegmentedFifoSegmentRatio": [1]"#);
    let log = read(folder.path(), &cache, &format!(r#"{DRAWN}, "enableLookaside": true"#));
    assert_eq!((log.small, log.settings.fills_misses, log.admission), (SmallEngine::Log, true, 1.0));
    assert_eq!((log.requests_per_second, log.warm_up, log.warnings.len()), (None, None, 0));
}

/// A replay ends with its trace, so that its warm-up is no share of `numOps`.
#[test]
fn warm_up_of_a_replay_is_a_number_of_requests() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("kv.csv"), "key,op,size\na,GET,1\n").unwrap();
    let of = |more: &str| read(folder.path(), FLASH, &format!("{REPLAYED}{more}"));
    assert_eq!(
        of(r#", "warmupOps": 100"#).warm_up,
        Some(WarmUp::Accesses(200)),
        "100 of each of two threads"
    );
    assert_eq!(of("").warm_up, None);
}

#[test]
fn usual_scale_leaves_half_a_gib_of_flash_and_measured_units() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("kv.csv"), "key,op,size\na,GET,1\n").unwrap();
    let card = Card::load("pm9d3").unwrap();
    let drawn = |mib: u32| {
        let cache =
            format!(r#""cacheSizeMB": 64, "nvmCacheSizeMB": {mib}, "nvmCachePaths": ["/dev/nvme0n1"]"#);
        read(folder.path(), &cache, DRAWN).usual_scale(&card)
    };
    assert_eq!(
        [4096, 8191, 4_000_000].map(drawn),
        [8, 8, 2048],
        "a quarter of 1/8192, the smallest measured"
    );
    assert_eq!(drawn(100), 1);
    assert_eq!(read(folder.path(), FLASH, REPLAYED).usual_scale(&card), 1);
}

/// The requests of `config`, each with its kind, size and time.
fn requests(config: &Configured, at_most: u64) -> Vec<(AccessKind, u64, u64)> {
    let mut accesses = config.accesses(1, at_most, 1).unwrap();
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while accesses.next_batch(&mut batch).unwrap() {
        all.extend(batch.iter().map(|it| (it.kind, it.size_bytes, it.time_ns)));
    }
    assert_eq!(accesses.report().accesses, all.len() as u64);
    all
}

#[test]
fn replayed_rows_are_repeated_and_timed_up_to_the_limit() {
    use AccessKind::{Delete, Get, Set};
    let folder = tempfile::tempdir().unwrap();
    let rows = "key,op,size,op_count,key_size\nalpha,GET,100,3,5\nbe,SET,200,1,2\nalpha,DELETE,0,1,5\ngamma,GET,7,2,5\n";
    std::fs::write(folder.path().join("kv.csv"), rows).unwrap();
    let of = |more: &str| {
        read(
            folder.path(),
            FLASH,
            &format!("{REPLAYED}{more}").replace(r#""numThreads": 2"#, r#""numThreads": 1"#),
        )
    };
    let untimed = requests(&of(""), 100);
    let expected = [(Get, 105), (Get, 105), (Get, 105), (Set, 202), (Delete, 5), (Get, 12), (Get, 12)];
    assert_eq!(untimed.iter().map(|it| (it.0, it.1)).collect::<Vec<_>>(), expected);
    // 1000 requests a second: each row at the time of its first request.
    let timed = requests(&of(r#", "opRatePerSec": 1000"#), 100);
    assert_eq!(timed.iter().map(|it| it.2 / 1_000_000).collect::<Vec<_>>(), [0, 0, 0, 3, 4, 5, 5]);
    assert_eq!(requests(&of(""), 6).len(), 6, "the limit may cut a row's repetitions");
}

#[test]
fn requests_of_two_workers_alternate() {
    let folder = tempfile::tempdir().unwrap();
    // Two pools with keys of different lengths; one thread draws from both, and the seeds of two threads differ.
    let one = read(folder.path(), FLASH, &DRAWN.replace(r#""numThreads": 2"#, r#""numThreads": 1"#));
    let two = read(folder.path(), FLASH, DRAWN);
    let keys = |config: &Configured| {
        let mut batch = Vec::new();
        config.accesses(1, 400, 1).unwrap().next_batch(&mut batch).unwrap();
        batch.iter().map(|it| it.key).collect::<Vec<_>>()
    };
    let (alone, both) = (keys(&one), keys(&two));
    let first: Vec<u64> = both.iter().step_by(2).copied().collect();
    assert_eq!(first, alone[..200], "every other request is the first worker's");
    let second: Vec<u64> = both.iter().skip(1).step_by(2).copied().collect();
    assert_ne!(second, first);
}
