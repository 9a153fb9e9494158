//! Compares the log with a map: a value found is the last one of its key, and a key absent from the map is never found.

use std::collections::HashMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

#[derive(Clone)]
struct Expected {
    value: String,
    expiry_seconds: u32,
}

struct Run {
    hits: usize,
    live_misses: usize,
    stats: SocStats,
}

/// Runs one random history. One in `drain_one_in` operations drains the log, which begins a new region.
fn run(seed: u64, keys: usize, readmission_share: f64, fingerprint_bits: u32, drain_one_in: u32) -> Run {
    let mut random = StdRng::seed_from_u64(seed);
    let device = memory();
    let config = LogConfig { readmission_share, ..config() };
    let open = || colliding_log(&device, config, fingerprint_bits);
    let mut log = open();
    let mut expected: HashMap<usize, Expected> = HashMap::new();
    let (mut hits, mut live_misses) = (0, 0);
    let mut stats = SocStats::default();
    for now in NOW..NOW + 40_000 {
        let number = random.random_range(0..keys);
        let key = format!("key-{number}");
        match random.random_range(0..100) {
            0..35 => {
                let expiry_seconds = if random.random() { 0 } else { now + random.random_range(0..4000) };
                let value = format!("{now}.").repeat(random.random_range(0..80));
                // The hybrid cache removes the flash copy of a key before it stores a newer version.
                forget(&log, &key);
                put(&log, &key, &value, expiry_seconds);
                expected.insert(number, Expected { value, expiry_seconds });
            }
            35..45 => {
                let is_live = get_at(&log, &key, now).is_some();
                assert!(forget(&log, &key) || !is_live, "seed {seed} at {now}: {key}");
                expected.remove(&number);
            }
            45..48 => {
                block_on(log.step(Waiting::Thread, now));
            }
            48 if random.random_ratio(100, drain_one_in) => block_on(log.drain(Waiting::Thread, now)),
            49 if random.random_ratio(1, 200) => {
                log.clear();
                expected.clear();
            }
            50 if random.random_ratio(100, 4 * drain_one_in) => {
                block_on(log.drain(Waiting::Thread, now));
                let snapshot: Vec<u8> = log.snapshot().flatten().collect();
                stats.add(&log.stats());
                log = open();
                log.restore(&snapshot).expect("its own snapshot");
            }
            _ => {
                let live =
                    expected.get(&number).filter(|it| it.expiry_seconds == 0 || it.expiry_seconds > now);
                match (get_at(&log, &key, now), live) {
                    (Some(found), Some(live)) => {
                        assert_eq!(found, live.value, "seed {seed} at {now}: {key} is stale");
                        hits += 1;
                    }
                    (Some(_), None) => panic!("seed {seed} at {now}: {key} was removed or has expired"),
                    (None, Some(_)) => live_misses += 1,
                    (None, None) => {}
                }
            }
        }
    }
    stats.add(&log.stats());
    Run { hits, live_misses, stats }
}

#[test]
fn reads_return_the_last_value_or_nothing() {
    for seed in 0..4 {
        let run = run(seed, 4000, 0.0, 11, 1000);
        assert!(run.hits > 100 && run.stats.evictions > 0, "seed {seed}");
        assert_eq!(run.stats.checksum_errors + run.stats.stale_buckets, 0, "seed {seed}");
    }
}

#[test]
fn reads_with_readmission_return_the_last_value_or_nothing() {
    for seed in 10..14 {
        let run = run(seed, 4000, 0.25, 11, 1000);
        assert!(run.stats.readmitted_items > 0, "seed {seed}");
    }
}

#[test]
fn reads_with_colliding_fingerprints_return_the_last_value_or_nothing() {
    for seed in 20..24 {
        let run = run(seed, 4000, 0.25, 2, 1000);
        assert!(run.stats.filter_false_positives > 100, "seed {seed}");
        assert!(run.hits > 0);
    }
}

#[test]
fn items_that_fit_the_log_are_all_found() {
    for seed in 30..33 {
        let run = run(seed, 150, 0.0, 11, 100_000);
        // A removal may also remove a colliding item, rarely.
        assert!(run.live_misses * 50 < run.hits, "seed {seed}: {} of {}", run.live_misses, run.hits);
    }
}
