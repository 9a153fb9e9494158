//! Cost of size classes for a small tier: hit ratios by memory, growth factor and slabs kept by a donor. Values have 64 B to 1 MiB, or 100
//! to 1000 B, or change after a third of the requests to 2 to 20 kB or some 700 B.
//!
//! `cargo bench -p flashwright-cache --bench size_classes`; `-- --mib N --factor F --min-slabs N` for one case, `--factor 0` for the tier's
//! default factor. Time is virtual, with 10,000 requests per second, so that slabs move equally often in every run.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::sync::Arc;

use device::{Clock, VirtualClock};
use flashwright_cache::config::UpkeepConfig;
use flashwright_cache::{Cache, InsertOptions};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

const NS_PER_REQUEST: u64 = 100_000;
const REQUESTS_PER_STEP: u64 = 1_000;

/// Distribution of value sizes, by key.
#[derive(Clone, Copy)]
struct Mix {
    name: &'static str,
    /// Smallest and largest size of each kind of value, and its share of the keys in percent.
    kinds: &'static [(u64, u64, u64)],
    /// The kinds of values after a third of the requests.
    later: &'static [(u64, u64, u64)],
}

const SMALL: &[(u64, u64, u64)] = &[(100, 1_000, 100)];
const ALL: &[(u64, u64, u64)] =
    &[(64, 1_000, 40), (1_000, 16_000, 30), (16_000, 256_000, 20), (256_000, 1_000_000, 10)];

const MIXES: [Mix; 4] = [
    Mix { name: "64 B to 1 MiB", kinds: ALL, later: ALL },
    Mix { name: "100 to 1000 B", kinds: SMALL, later: SMALL },
    Mix { name: "100 B, then 2 kB", kinds: SMALL, later: &[(2_000, 20_000, 100)] },
    Mix { name: "all, then 700 B", kinds: ALL, later: &[(650, 700, 100)] },
];

impl Mix {
    fn value_len(kinds: &[(u64, u64, u64)], key: u64) -> usize {
        let mut random = SmallRng::seed_from_u64(key);
        let mut draw = random.random_range(0..100);
        for &(least, most, share) in kinds {
            if draw < share {
                return random.random_range(least..=most) as usize;
            }
            draw -= share;
        }
        unreachable!("shares come to a hundred")
    }

    fn mean_len(self) -> f64 {
        (0..10_000).map(|key| Self::value_len(self.later, key) as f64).sum::<f64>() / 10_000.0
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)?.parse::<f64>().ok())
    };
    let one_or = |name: &str, all: &[f64]| number(name).map_or_else(|| all.to_vec(), |one| vec![one]);
    // `cargo test` runs benches without `--bench`: then with small sizes, as a smoke test.
    let measured = arguments.iter().any(|argument| argument == "--bench");
    let requests = number("--requests").unwrap_or(if measured { 3e6 } else { 3e3 }) as u64;
    println!(
        "{:<17} {:>6} {:>7} {:>10} {:>9} {:>9}",
        "values", "MiB", "factor", "min slabs", "hit ratio", "used"
    );
    for mix in MIXES {
        for &mib in &one_or("--mib", &[16.0, 64.0, 256.0, 1024.0]) {
            for &factor in &one_or("--factor", &[0.0, 1.035, 1.15, 1.25, 1.35, 1.5]) {
                for &min_slabs in &one_or("--min-slabs", &[0.0, 1.0]) {
                    let (hit_ratio, used) = run(mix, mib as u64, factor, min_slabs as u32, requests);
                    println!(
                        "{:<17} {mib:>6} {factor:>7} {min_slabs:>10} {hit_ratio:>9.4} {used:>9.3}",
                        mix.name
                    );
                }
            }
        }
    }
}

/// The hit ratio of the second half of the requests, and the share of memory used by keys and values at the end.
fn run(mix: Mix, mib: u64, factor: f64, min_slabs: u32, requests: u64) -> (f64, f64) {
    let bytes = mib << 20;
    let clock = Arc::new(VirtualClock::default());
    let cache = open(bytes, factor, min_slabs, &clock);
    // A tenth of all data fits.
    let keys = (10.0 * bytes as f64 / mix.mean_len()).max(10.0);
    let popularity = Zipf::new(keys, 0.9).expect("a Zipf distribution");
    let mut random = SmallRng::seed_from_u64(1);
    let (mut gets, mut hits) = (0, 0);
    for request in 0..requests {
        let key = popularity.sample(&mut random) as u64;
        let is_late = request >= requests / 3;
        let (generation, kinds) = if is_late { (1, mix.later) } else { (0, mix.kinds) };
        let name = format!("{generation}{key:016}");
        let hit = cache.get_blocking(name.as_bytes()).is_some();
        if !hit
            && let Ok(item) =
                cache.allocate_blocking(name.as_bytes(), Mix::value_len(kinds, key), InsertOptions::default())
        {
            cache.insert_new(item);
        }
        if request >= requests / 2 {
            gets += 1;
            hits += u64::from(hit);
        }
        clock.advance_by(NS_PER_REQUEST);
        if request % REQUESTS_PER_STEP == 0 {
            pollster::block_on(cache.step());
        }
    }
    let mut used = 0;
    cache.for_each_key_in_dram(|key| {
        let (generation, number) = key.split_at(1);
        let kinds = if generation == b"1" { mix.later } else { mix.kinds };
        let number =
            std::str::from_utf8(number).ok().and_then(|number| number.parse().ok()).expect("a key of ours");
        used += key.len() + Mix::value_len(kinds, number);
    });
    (f64::from(hits as u32) / f64::from(gets), used as f64 / bytes as f64)
}

fn open(bytes: u64, factor: f64, min_slabs: u32, clock: &Arc<VirtualClock>) -> Cache {
    let mut builder = Cache::builder().dram_bytes(bytes).clock(Arc::clone(clock) as Arc<dyn Clock>);
    if factor > 0.0 {
        builder = builder.alloc_factor(factor);
    }
    let upkeep = UpkeepConfig { rebalance_min_slabs: min_slabs, ..UpkeepConfig::default() };
    builder.upkeep(upkeep).open_stepped().expect("the config is sound")
}
