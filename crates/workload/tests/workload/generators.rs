//! The generators through the public interface.

use std::collections::{HashMap, HashSet};

use flashwright_workload::generate::{
    BucketRule, Distribution, GeneratorConfig, Mix, Online, PoolConfig, Popularity, PreparedAccesses, Table,
};
use flashwright_workload::{AHEAD, RequestKind, Source, Workload};
use proptest::prelude::*;

/// A copy of a request that outlives the source's next step.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    kind: RequestKind,
    key: Vec<u8>,
    key_id: u64,
    value_bytes: u64,
    chain_bytes: Vec<u32>,
    ttl_seconds: Option<u32>,
    pool: u16,
}

fn take(source: &mut dyn Source, requests: usize) -> Vec<Seen> {
    let next = |_| {
        let request = source.next().expect("generators never end");
        Seen {
            kind: request.kind,
            key: request.key.to_vec(),
            key_id: request.key_id,
            value_bytes: request.value_bytes,
            chain_bytes: request.chain_bytes.to_vec(),
            ttl_seconds: request.ttl_seconds,
            pool: request.pool,
        }
    };
    (0..requests).map(next).collect()
}

fn requests(workload: &dyn Workload, seed: u64, count: usize) -> Vec<Seen> {
    take(workload.sources(1, seed).unwrap()[0].as_mut(), count)
}

fn distribution() -> Distribution {
    Distribution {
        key_bytes: Table { range: vec![1.0, 8.0, 64.0], weights: vec![0.3, 0.7] },
        value_bytes: Table::uniform(100, 1000),
        chain_items: None,
        chain_value_bytes: None,
        ttl_seconds: None,
        popularity: Popularity::Uniform,
        mix: Mix { get: 1.0, ..Mix::default() },
    }
}

fn config(keys: u64, distribution: Distribution) -> GeneratorConfig {
    GeneratorConfig { keys, pools: vec![PoolConfig { op_share: 1.0, key_share: 1.0, distribution }] }
}

fn both(config: &GeneratorConfig) -> [Box<dyn Workload>; 2] {
    [Box::new(Online::new(config).unwrap()), Box::new(PreparedAccesses::new(config, 10_000_000).unwrap())]
}

/// Checks that ids and keys correspond one to one.
fn assert_one_to_one(seen: &[Seen]) {
    let mut by_id = HashMap::new();
    let mut by_key = HashMap::new();
    for request in seen {
        assert_eq!(by_id.entry(request.key_id).or_insert(&request.key), &&request.key);
        assert_eq!(by_key.entry(&request.key).or_insert(request.key_id), &request.key_id);
    }
}

/// Keys of all kinds: popular, lone, of one byte and of many.
#[test]
fn upcoming_key_is_returned_after_the_documented_distance() {
    let mix = Mix { get: 0.5, set: 0.2, lone_get: 0.2, lone_set: 0.1, ..Mix::default() };
    let workload = Online::new(&config(100, Distribution { mix, ..distribution() })).unwrap();
    let mut source = workload.sources(1, 3).unwrap().remove(0);
    let (mut upcoming, mut keys) = (Vec::new(), Vec::new());
    for _ in 0..1000 {
        upcoming.push(source.upcoming().unwrap().to_vec());
        keys.push(source.next().unwrap().key.to_vec());
    }
    assert_eq!(upcoming[..1000 - AHEAD], keys[AHEAD..]);
}

#[test]
fn seed_and_worker_determine_the_requests() {
    for workload in both(&config(1000, distribution())) {
        let run = |seed: u64| -> Vec<Vec<Seen>> {
            workload.sources(3, seed).unwrap().iter_mut().map(|source| take(source.as_mut(), 500)).collect()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        assert_ne!(run(1)[0], run(1)[1]);
    }
}

#[test]
fn key_properties_are_equal_for_all_workers_and_seeds() {
    let distribution = Distribution {
        chain_items: Some(Table::uniform(1, 5)),
        chain_value_bytes: Some(Table::uniform(10, 5000)),
        ttl_seconds: Some(Table::uniform(10, 100)),
        mix: Mix { get: 1.0, set: 1.0, add_chained: 1.0, update: 1.0, ..Mix::default() },
        ..distribution()
    };
    for workload in both(&config(500, distribution)) {
        let mut properties = HashMap::new();
        for seed in 0..3 {
            for source in &mut workload.sources(2, seed).unwrap() {
                for seen in take(source.as_mut(), 3000) {
                    assert!((1..5).contains(&seen.chain_bytes.len()));
                    assert!(seen.chain_bytes.iter().all(|bytes| (10..5000).contains(bytes)));
                    let of_key = (seen.key, seen.value_bytes, seen.chain_bytes, seen.ttl_seconds);
                    assert_eq!(properties.entry(seen.key_id).or_insert_with(|| of_key.clone()), &of_key);
                }
            }
        }
        assert_eq!(properties.len() as u64, workload.key_count().unwrap());
    }
}

#[test]
fn online_keys_are_unique_and_have_at_least_eight_bytes() {
    let seen = requests(&Online::new(&config(20_000, distribution())).unwrap(), 1, 300_000);
    assert_one_to_one(&seen);
    let keys: HashSet<&[u8]> = seen.iter().map(|request| request.key.as_slice()).collect();
    assert_eq!(keys.len(), 20_000);
    assert!(keys.iter().all(|key| (8..64).contains(&key.len())));
    let short = keys.iter().filter(|key| key.len() == 8).count();
    assert!(
        (5900..6500).contains(&short),
        "{short}: 30 % are drawn below 8 and raised to it, 1.25 % are drawn as 8"
    );
}

#[test]
fn number_of_keys_equals_that_of_cachebench() {
    // CacheBench's simple_test.json: it printed "Created 897,355 keys" for this million.
    let half = |key_share| PoolConfig { op_share: 0.5, key_share, distribution: distribution() };
    let config = GeneratorConfig { keys: 1_000_000, pools: vec![half(0.4), half(0.6)] };
    let keys = PreparedAccesses::new(&config, 3_200_000).unwrap().key_count().unwrap();
    assert!(keys.abs_diff(897_355) < 2000, "{keys}");
}

#[test]
fn number_of_words_matches_drawing_and_removing_duplicates() {
    // The reference: draws letters at random, removes duplicates, counts by length.
    let short = Distribution { key_bytes: Table::uniform(1, 6), ..distribution() };
    let mut random = 1u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    let word = |_| -> Vec<u8> { (0..1 + next() % 5).map(|_| b'a' + (next() % 26) as u8).collect() };
    let drawn: HashSet<Vec<u8>> = (0..50_000).map(word).collect();
    let ours: HashSet<Vec<u8>> =
        requests(&PreparedAccesses::new(&config(50_000, short), 1 << 32).unwrap(), 1, 600_000)
            .into_iter()
            .map(|seen| seen.key)
            .collect();
    for length in 1..6 {
        let count = |keys: &HashSet<Vec<u8>>| keys.iter().filter(|key| key.len() == length).count() as f64;
        let (twin, ours) = (count(&drawn), count(&ours));
        assert!((twin - ours).abs() < 5.0 + twin * 0.03, "{length} letters: {ours} against {twin}");
    }
}

#[test]
fn words_are_lower_case_with_unique_ids_across_pools() {
    let half = |key_share| PoolConfig { op_share: 0.5, key_share, distribution: distribution() };
    let config = GeneratorConfig { keys: 30_000, pools: vec![half(0.4), half(0.6)] };
    let seen = requests(&PreparedAccesses::new(&config, 1 << 30).unwrap(), 5, 300_000);
    assert_one_to_one(&seen);
    assert!(seen.iter().all(|request| request.key.iter().all(u8::is_ascii_lowercase)));
    assert!(seen.iter().all(|request| (1..64).contains(&request.key.len())));
    let letter_in = |pool| {
        let ones = seen.iter().filter(|request| request.pool == pool && request.key.len() == 1);
        ones.map(|request| request.key.clone()).collect::<HashSet<_>>().len()
    };
    assert_eq!([letter_in(0), letter_in(1)], [26, 26], "both pools have all words of one letter");
}

#[test]
fn lone_keys_are_requested_once_and_lie_outside_the_population() {
    let lone = Distribution {
        key_bytes: Table::uniform(16, 40),
        mix: Mix { get: 1.0, lone_get: 1.0, lone_set: 1.0, ..Mix::default() },
        ..distribution()
    };
    for workload in both(&config(1000, lone)) {
        let mut lone_keys = HashSet::new();
        let mut usual_keys = HashSet::new();
        for seed in 0..2 {
            for source in &mut workload.sources(3, seed).unwrap() {
                for seen in take(source.as_mut(), 5000) {
                    if seen.kind.is_lone() {
                        assert!(lone_keys.insert(seen.key), "requested twice");
                    } else {
                        usual_keys.insert(seen.key);
                    }
                }
            }
        }
        assert!(lone_keys.is_disjoint(&usual_keys));
        assert!((19_000..21_000).contains(&lone_keys.len()), "two thirds of 30,000: {}", lone_keys.len());
    }
}

#[test]
fn pools_have_their_shares_of_keys_and_operations() {
    let pool = |op_share, key_share| PoolConfig { op_share, key_share, distribution: distribution() };
    let config = GeneratorConfig { keys: 1000, pools: vec![pool(3.0, 0.4), pool(1.0, 0.6)] };
    let seen = requests(&Online::new(&config).unwrap(), 1, 40_000);
    let of_pool = |pool: u16| seen.iter().filter(move |request| request.pool == pool);
    assert!((29_500..30_500).contains(&of_pool(0).count()));
    assert!(of_pool(0).all(|request| request.key_id < 400));
    assert!(of_pool(1).all(|request| (400..1000).contains(&request.key_id)));
}

#[test]
fn mean_size_of_popular_keys_equals_that_of_the_distribution() {
    // A heavy tail: 1 % of the values contain most of the bytes.
    let tail = Table { range: vec![10.0, 100.0, 1000.0, 500_000.0], weights: vec![0.9, 0.09, 0.01] };
    let mean = tail.sizes().unwrap().mean();
    let heavy = Distribution {
        value_bytes: tail,
        popularity: Popularity::Buckets {
            counts: vec![1000.0, 10_000.0, 1_000_000.0],
            weights: vec![1.0, 1.0, 1.0],
            rule: BucketRule::Exact,
        },
        ..distribution()
    };
    let mut sizes = HashMap::new();
    for seen in requests(&Online::new(&config(1_011_000, heavy)).unwrap(), 1, 400_000) {
        sizes.insert(seen.key_id, seen.value_bytes);
    }
    // With independent draws, the mean of so small a sample would be off by 40 %.
    let hot: Vec<u64> = sizes.iter().filter(|(id, _)| **id < 1000).map(|(_, size)| *size).collect();
    let hot_mean = hot.iter().sum::<u64>() as f64 / hot.len() as f64;
    assert!(hot.len() > 990);
    assert!((hot_mean / mean - 1.0).abs() < 0.15, "{hot_mean} against {mean}");
}

#[test]
fn prepared_list_omits_some_keys_and_repeats_others() {
    // The list has as many accesses as there are keys: 1/e of the keys are not in it.
    let keys = 20_000;
    let long = Distribution { key_bytes: Table::constant(20), ..distribution() };
    let config = config(keys, long);
    let distinct =
        |seen: Vec<Seen>| seen.into_iter().map(|request| request.key_id).collect::<HashSet<_>>().len();
    let prepared = distinct(requests(&PreparedAccesses::new(&config, keys).unwrap(), 3, 400_000));
    let share = prepared as f64 / keys as f64;
    assert!((share - 0.632).abs() < 0.01, "{share}");
    assert_eq!(distinct(requests(&Online::new(&config).unwrap(), 3, 400_000)), keys as usize);
}

#[test]
fn trillions_of_keys_need_no_memory() {
    let config =
        config(14_463_466_000_000, Distribution { key_bytes: Table::uniform(16, 255), ..distribution() });
    for workload in both(&config) {
        let seen = requests(workload.as_ref(), 1, 20_000);
        assert_one_to_one(&seen);
        assert!(seen.iter().all(|request| (16..255).contains(&request.key.len())));
    }
}

#[test]
fn invalid_configuration_reports_its_position() {
    let message = |config: &GeneratorConfig| Online::new(config).err().expect("no workload").to_string();
    let broken = |change: fn(&mut Distribution)| {
        let mut distribution = distribution();
        change(&mut distribution);
        message(&config(10, distribution))
    };
    assert_eq!(
        broken(|d| d.key_bytes.weights.clear()),
        "pool 0: key_bytes: 3 range values with 0 weights; there must be as many as weights (single values) or one more (edges of intervals)"
    );
    assert_eq!(
        broken(|d| d.mix = Mix::default()),
        "pool 0: mix: all weights are 0, so there is nothing to draw"
    );
    assert_eq!(
        broken(|d| d.key_bytes = Table::constant(300)),
        "pool 0: key_bytes: keys of 300 bytes; at most 255 are supported"
    );
    assert!(
        broken(|d| d.mix.add_chained = 1.0).starts_with("pool 0: chain_items: operations add chained items")
    );
    assert_eq!(message(&GeneratorConfig { keys: 1, pools: vec![] }), "pools: at least one pool is needed");
    assert_eq!(
        message(&config(0, distribution())),
        "pool 0: key_share: the pool gets operations but none of the 0 keys"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn keys_and_ids_correspond_in_any_population(
        keys in 1..3000u64, low in 1..20u64, width in 1..30u64, share in 0.05..0.95f64, seed in any::<u64>(),
    ) {
        let pool = |key_share| PoolConfig {
            op_share: 1.0,
            key_share,
            distribution: Distribution { key_bytes: Table::uniform(low, low + width), ..distribution() },
        };
        let config = GeneratorConfig { keys: keys + 40, pools: vec![pool(share), pool(1.0 - share)] };
        for workload in both(&config) {
            let seen = requests(workload.as_ref(), seed, 4000);
            assert_one_to_one(&seen);
            prop_assert!(workload.key_count().unwrap() <= keys + 40);
        }
    }
}
