//! The photo CDN's workload: documented properties and calibration.

use std::collections::HashMap;

use flashwright_workload::generate::cdn::{Ageing, Cdn, CdnConfig, FOOTPRINT_BYTES, ORIGIN_CACHE_BYTES};
use flashwright_workload::generate::zipf::{ZipfAccesses, ZipfConfig};
use flashwright_workload::trace::{Access, Accesses, Survey};
use policy::eviction::{Fifo, Lru, Slru};
use policy::simulate::{Request, run, run_clairvoyant};

fn all(accesses: &mut dyn Accesses) -> Vec<Access> {
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while accesses.next_batch(&mut batch).unwrap() {
        all.extend_from_slice(&batch);
    }
    assert_eq!(accesses.report().accesses, all.len() as u64);
    all
}

/// The default workload, scaled down.
fn smaller(divisor: u64) -> CdnConfig {
    let whole = CdnConfig::default();
    CdnConfig { requests: whole.requests / divisor, objects: whole.objects / divisor, ..whole }
}

#[test]
fn accesses_depend_on_the_seed_alone() {
    let config = CdnConfig { requests: 20_011, ..smaller(100) };
    let once = all(&mut Cdn::new(&config, 7));
    assert_eq!(once.len(), 20_011);
    assert_eq!(once, all(&mut Cdn::new(&config, 7)));
    assert_ne!(once, all(&mut Cdn::new(&config, 8)));
}

#[test]
fn times_increase_and_end_near_the_span() {
    for (seed, daily_swing) in [(1, 0.0), (2, 0.5), (3, 1.0)] {
        let config = CdnConfig { daily_swing, ..smaller(50) };
        let accesses = all(&mut Cdn::new(&config, seed));
        assert!(accesses.is_sorted_by_key(|access| access.time_ns), "seed {seed}");
        let end = accesses.last().unwrap().time_ns as f64 / 1e9 / config.span_seconds as f64;
        assert!((0.8..1.25).contains(&end), "ended at {end} of the span, seed {seed}");
    }
}

/// Catches a regression: with few albums, the most popular ones are never drawn: a third of the requests is missing,
/// and a run of twenty thousand requests takes six spans.
#[test]
fn runs_of_few_photos_end_near_the_span() {
    // By chance, some runs of few photos have more popular albums than others.
    for (requests, objects, longest) in [(1_000, 3, 3.0), (20_000, 6_000, 1.6), (100_000, 3_000, 1.6)] {
        for seed in 1..=8 {
            let config = CdnConfig { requests, objects, ..CdnConfig::default() };
            let accesses = all(&mut Cdn::new(&config, seed));
            let end = accesses.last().unwrap().time_ns as f64 / 1e9 / config.span_seconds as f64;
            assert!(
                (1.0 / longest..longest).contains(&end),
                "{requests} requests, {objects} photos, seed {seed}: {end}"
            );
        }
    }
}

#[test]
fn daily_variation_changes_times_only() {
    let keys = |daily_swing| -> Vec<u64> {
        let config = CdnConfig { daily_swing, ..smaller(200) };
        all(&mut Cdn::new(&config, 1)).iter().map(|access| access.key).collect()
    };
    assert_eq!(keys(0.0), keys(0.9));
}

#[test]
fn run_begins_in_the_steady_state() {
    // Without very popular albums, which would dominate some hours.
    let config = CdnConfig { zipf_exponent: 0.3, album_objects: 1.0, daily_swing: 0.0, ..smaller(20) };
    let accesses = all(&mut Cdn::new(&config, 1));
    let span_ns = u128::from(config.span_seconds) * 1_000_000_000;
    let mut eighths = [0.0f64; 9];
    for access in &accesses {
        eighths[(u128::from(access.time_ns) * 8 / span_ns).min(8) as usize] += 8.0 / accesses.len() as f64;
    }
    assert!(eighths[..7].iter().all(|share| (0.97..1.03).contains(share)), "{eighths:?}");
}

#[test]
fn photos_are_requested_most_while_new() {
    let config = CdnConfig {
        ageing: Ageing { scale: 0.01, exponent: 1.0, end: 0.5 },
        daily_swing: 0.0,
        ..smaller(20)
    };
    let accesses = all(&mut Cdn::new(&config, 1));
    let span = config.span_seconds as f64 * 1e9;
    // Photos first seen in the second quarter: most are new, and all their requests fall into the run.
    let mut first: HashMap<u64, f64> = HashMap::new();
    let (mut young, mut old, mut too_old) = (0, 0, 0);
    for access in &accesses {
        let now = access.time_ns as f64 / span;
        let born = *first.entry(access.key).or_insert(now);
        if (0.25..0.45).contains(&born) {
            match now - born {
                age if age < 0.02 => young += 1,
                age if age < 0.5001 => old += 1,
                _ => too_old += 1,
            }
        }
    }
    assert!(young > old, "{young} requests within the first fiftieth, {old} in the 25 behind");
    assert_eq!(too_old, 0, "no requests after the maximum age");
}

#[test]
fn sizes_match_published_photo_sizes_and_depend_on_the_object() {
    let accesses = all(&mut Cdn::new(&smaller(20), 1));
    let mut sizes: HashMap<u64, u64> = HashMap::new();
    for access in &accesses {
        assert_eq!(*sizes.entry(access.key).or_insert(access.size_bytes), access.size_bytes);
    }
    let below = sizes.values().filter(|size| **size < 32 << 10).count() as f64 / sizes.len() as f64;
    assert!((0.77..0.83).contains(&below), "{below} are below 32 KiB");
    let mean = sizes.values().sum::<u64>() as f64 / sizes.len() as f64;
    assert!((23_000.0..27_000.0).contains(&mean), "mean {mean}");
    let other = all(&mut Cdn::new(&smaller(20), 2));
    let same =
        other.iter().filter_map(|access| sizes.get(&access.key).map(|size| *size == access.size_bytes));
    assert!(
        same.clone().count() > 1000 && same.into_iter().all(|same| same),
        "another seed has the same sizes"
    );
}

#[test]
fn footprint_scales_with_the_requests() {
    let seeds = 1..=3;
    let bytes: u64 = seeds
        .clone()
        .map(|seed| {
            let mut sizes = std::collections::HashMap::new();
            sizes.extend(all(&mut Cdn::new(&smaller(50), seed)).iter().map(|it| (it.key, it.size_bytes)));
            sizes.values().sum::<u64>()
        })
        .sum();
    let share = bytes as f64 / seeds.count() as f64 * 50.0 / FOOTPRINT_BYTES as f64;
    assert!((0.8..1.25).contains(&share), "{share}");
}

#[test]
fn album_is_requested_as_a_whole() {
    let config = CdnConfig { album_objects: 1.0, ..smaller(200) };
    let alone = all(&mut Cdn::new(&config, 1));
    let follows = |accesses: &[Access]| {
        accesses.windows(2).filter(|two| two[1].key == two[0].key + 1).count() as f64 / accesses.len() as f64
    };
    assert!(follows(&alone) < 0.05);
    // With similar popularity, because otherwise the lengths of the few most popular albums would decide.
    let albums = CdnConfig { album_objects: 10.0, zipf_exponent: 0.3, ..smaller(200) };
    let albums = all(&mut Cdn::new(&albums, 1));
    assert!(
        (0.88..0.92).contains(&follows(&albums)),
        "nine of ten requests follow one for the previous photo"
    );
}

/// The hit ratios of the table in `generate/cdn.rs`, for the first part of the same run.
#[test]
fn hit_ratios_match_the_calibration() {
    let config = CdnConfig::default().lasting(500_000);
    let requests: Vec<Request> = all(&mut Cdn::new(&config, 1))
        .iter()
        .map(|access| Request {
            key: access.key,
            weight: access.size_bytes as u32,
            now_seconds: (access.time_ns / 1_000_000_000) as u32,
        })
        .collect();
    let percent = |misses: f64| 100.0 * (1.0 - misses);
    let origin = ORIGIN_CACHE_BYTES;
    let fifo = percent(run(Fifo::new(), origin, &requests).miss_ratio());
    let lru = percent(run(Lru::exact(), origin, &requests).miss_ratio());
    let s4lru = percent(run(Slru::new(4, origin), origin, &requests).miss_ratio());
    let clairvoyant = percent(run_clairvoyant(origin, &requests).miss_ratio());
    let context = format!("FIFO {fifo:.1}, LRU {lru:.1}, S4LRU {s4lru:.1}, Clairvoyant {clairvoyant:.1}");
    assert!((31.0..35.0).contains(&fifo), "{context}");
    assert!((3.0..7.0).contains(&(lru - fifo)), "{context}");
    assert!((14.0..20.0).contains(&(s4lru - fifo)), "{context}");
    assert!((5.0..13.0).contains(&(clairvoyant - s4lru)), "{context}");
}

#[test]
fn zipf_accesses_have_the_configured_exponent() {
    let config = ZipfConfig { requests: 300_000, objects: 10_000, exponent: 0.9, size_bytes: 512 };
    let mut survey = Survey::default();
    survey.add(&all(&mut ZipfAccesses::new(config, 1).unwrap()));
    assert_eq!((survey.requests(), survey.footprint_bytes), (300_000, survey.objects() * 512));
    assert!(survey.objects() > 9_000 && survey.objects() <= 10_000);
    let exponent = survey.zipf_exponent().unwrap();
    assert!((0.85..0.95).contains(&exponent), "{exponent}");
    assert!(ZipfAccesses::new(ZipfConfig { objects: 0, ..config }, 1).is_err());
    assert!(ZipfAccesses::new(ZipfConfig { exponent: -1.0, ..config }, 1).is_err());
}
