//! Properties of all flash caches, and traces computed by hand.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

/// Random calls: the cache holds only inserted objects that were not removed, within its capacity.
fn check_contents<F: FlashCache>(make: impl Fn(u64) -> F) {
    for seed in 0..20 {
        let mut rng = StdRng::seed_from_u64(seed);
        let capacity = rng.random_range(200..4000);
        let mut cache = make(capacity);
        let weight_at_most = rng.random_range(1..=cache.weight_at_most().min(60)) as u32;
        let mut held = BTreeMap::new();
        for _ in 0..4000 {
            let object = rng.random_range(0..600_u32).min(rng.random_range(0..600));
            assert_eq!(cache.holds(object), held.contains_key(&object), "seed {seed}, object {object}");
            match held.contains_key(&object) {
                true if rng.random_range(0..20) == 0 => {
                    cache.remove(object);
                    held.remove(&object);
                }
                true if rng.random_range(0..20) == 0 => {
                    let written_weight = cache.written_weight();
                    cache.expire(object);
                    held.remove(&object);
                    assert_eq!(cache.written_weight(), written_weight, "seed {seed}: written to expire");
                }
                true => cache.hit(object),
                false => {
                    let weight = rng.random_range(1..=weight_at_most);
                    cache.insert(&[WeightedObject { object, weight }]);
                    held.retain(|&object, _| cache.holds(object));
                    held.extend(cache.holds(object).then_some((object, weight)));
                    assert!(held.contains_key(&object), "seed {seed}: the inserted object is absent");
                }
            }
            let weight: u64 = held.values().map(|&weight| u64::from(weight)).sum();
            assert!(weight <= capacity, "seed {seed}: {weight} of {capacity}");
        }
    }
}

#[test]
fn every_flash_cache_holds_inserted_objects_within_its_capacity() {
    check_contents(|capacity| Log::new(capacity, capacity / 10));
    check_contents(|capacity| Sets::new(capacity, 100));
    let rules = KangarooRules { log_share: 0.3, set_weight: 100, block_weight: 100, threshold: 2 };
    check_contents(|capacity| Kangaroo::new(capacity, rules));
    for readmission_share in [0.0, 0.25] {
        check_contents(|capacity| HashLog::new(capacity, small_pages(capacity / 3, readmission_share)));
    }
}

/// Regions of one page without headers.
fn small_pages(region_weight: u64, readmission_share: f64) -> HashLogRules {
    let page_weight = region_weight;
    HashLogRules { region_weight, page_weight, page_overhead: 0, object_overhead: 0, readmission_share }
}

/// Regions of 45 have four objects of 10, since half an object of the page stays unused.
#[test]
fn hash_log_evicts_the_oldest_region_and_readmits_objects_that_were_hit() {
    for (readmission_share, expected) in [(0.0, vec![4, 5, 6, 7, 8]), (0.25, vec![1, 4, 5, 6, 7, 8])] {
        let mut cache = HashLog::new(90, small_pages(45, readmission_share));
        insert(&mut cache, 0..8);
        assert_eq!((held(&cache).len(), cache.written_weight()), (8, 45));
        cache.hit(1);
        insert(&mut cache, 8..9);
        assert_eq!((held(&cache), cache.written_weight()), (expected, 90));
    }
}

/// Two blocks of log of two objects each, and one set of four.
#[test]
fn kangaroo_moves_objects_of_one_set_together_and_drops_an_object_alone() {
    let rules = KangarooRules { log_share: 0.5, set_weight: 40, block_weight: 20, threshold: 2 };
    let mut cache = Kangaroo::new(80, rules);
    insert(&mut cache, 0..4);
    assert_eq!((held(&cache), cache.written_weight()), (vec![0, 1, 2, 3], 40));
    insert(&mut cache, 4..5);
    assert_eq!((held(&cache), cache.written_weight()), (vec![0, 1, 2, 3, 4], 90));
    let mut cache = Kangaroo::new(80, KangarooRules { threshold: 5, ..rules });
    insert(&mut cache, 0..4);
    cache.hit(1);
    insert(&mut cache, 4..5);
    assert_eq!(
        (held(&cache), cache.written_weight()),
        (vec![1, 2, 3, 4], 60),
        "object 1 was hit, object 0 was not"
    );
}

/// 300-byte objects in pages of 4 KiB: 4096 bytes hold 12.85 of them.
#[test]
fn hash_log_writes_headers_and_the_unused_ends_of_pages() {
    let mut cache = HashLog::new(4 << 20, HashLogRules::of_engine(4 << 20, 0.0));
    let count = 100_000;
    (0..count).for_each(|object| cache.insert(&[WeightedObject { object, weight: 300 }]));
    let amplification = cache.written_weight() as f64 / f64::from(count * 300);
    assert!((1.05..1.08).contains(&amplification), "{amplification}");
}

fn insert(cache: &mut impl FlashCache, objects: std::ops::Range<u32>) {
    objects.for_each(|object| cache.insert(&[WeightedObject { object, weight: 10 }]));
}

fn held(cache: &impl FlashCache) -> Vec<u32> {
    (0..100).filter(|object| cache.holds(*object)).collect()
}

#[test]
fn log_evicts_its_oldest_block_regardless_of_hits() {
    let mut cache = Log::new(60, 20);
    insert(&mut cache, 0..6);
    cache.hit(0);
    assert_eq!(held(&cache), [0, 1, 2, 3, 4, 5]);
    insert(&mut cache, 6..7);
    assert_eq!((held(&cache), cache.written_weight()), (vec![2, 3, 4, 5, 6], 70));
}

#[test]
fn objects_of_one_set_inserted_together_share_one_write_of_the_set() {
    let mut cache = Sets::new(30, 30);
    insert(&mut cache, 0..3);
    assert_eq!((held(&cache), cache.written_weight()), (vec![0, 1, 2], 90));
    cache.insert(&[3, 4].map(|object| WeightedObject { object, weight: 10 }));
    assert_eq!((held(&cache), cache.written_weight()), (vec![2, 3, 4], 120));
}

/// Ten times as many objects as fit: if hashes spread them, every set is full.
#[test]
fn hashes_fill_all_sets() {
    let (sets, a_set) = (100, 20);
    let mut cache = Sets::new(sets * a_set * 10, a_set * 10);
    let objects = 10 * (sets * a_set) as u32;
    insert(&mut cache, 0..objects);
    let held = (0..objects).filter(|&object| cache.holds(object)).count() as u64;
    assert_eq!(held, sets * a_set, "all sets are full");
}

#[test]
fn object_found_on_flash_is_not_promoted_to_dram() {
    use crate::simulate::{Access, Simulator as _};
    let rules = FlashRules { dram_weight: 20, object_overhead: 5, ..FlashRules::default() };
    let mut cache = Flash::new(Log::new(100, 50), rules);
    let ask = |object| Access { object, weight: 5, now_seconds: 0, is_removal: false, is_set: false };
    // Two fit into DRAM; 0 falls to flash for 2 and is found there.
    cache.run(&[0, 1, 2, 0, 1].map(ask), &[]);
    let counts = cache.counts();
    assert_eq!((counts.hits, counts.inserts, counts.insert_weight, counts.written_weight), (2, 1, 10, 10));
    assert!(cache.flash().holds(0) && !cache.flash().holds(1));
}
