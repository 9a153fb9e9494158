//! What all flash caches promise, and traces worked by hand.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

/// Random calls; what is held can only be what came in and did not have to leave, and it fits. `check` looks inside.
fn keeps_its_promises<F: FlashCache>(make: impl Fn(u64) -> F, check: impl Fn(&F, &BTreeMap<u32, u32>)) {
    for seed in 0..20 {
        let mut rng = StdRng::seed_from_u64(seed);
        let capacity = rng.random_range(200..4000);
        let mut cache = make(capacity);
        let weight_at_most = rng.random_range(1..=cache.weight_at_most().min(60)) as u32;
        let mut held = BTreeMap::new();
        for step in 0..4000 {
            let object = rng.random_range(0..600_u32).min(rng.random_range(0..600));
            assert_eq!(cache.holds(object), held.contains_key(&object), "seed {seed}, object {object}");
            match held.contains_key(&object) {
                true if rng.random_range(0..20) == 0 => {
                    cache.remove(object);
                    held.remove(&object);
                }
                true => cache.hit(object),
                false => {
                    let weight = rng.random_range(1..=weight_at_most);
                    cache.insert(&[Newcomer { object, weight }]);
                    held.retain(|&object, _| cache.holds(object));
                    held.extend(cache.holds(object).then_some((object, weight)));
                    assert!(held.contains_key(&object), "seed {seed}: the newcomer is not there");
                }
            }
            let weight: u64 = held.values().map(|&weight| u64::from(weight)).sum();
            assert!(weight <= capacity, "seed {seed}: {weight} of {capacity}");
            if step % 16 == 0 {
                check(&cache, &held);
            }
        }
    }
}

#[test]
fn every_flash_cache_holds_what_came_in_and_no_more_than_fits() {
    keeps_its_promises(|capacity| Mcdipper::new(capacity, capacity / 10), |_, _| ());
    keeps_its_promises(|capacity| BlockCache::new(capacity, capacity / 10, 4), |_, _| ());
    keeps_its_promises(|capacity| Sets::new(capacity, 100), |_, _| ());
}

#[test]
fn ripqs_sums_are_right_and_objects_are_in_one_place() {
    for on_top in [OnTop::Lru, OnTop::Slru(4), OnTop::Gdsf] {
        for points in [1, 3, 8] {
            keeps_its_promises(|capacity| Ripq::new(capacity, capacity / 20, points, on_top), Ripq::check);
        }
    }
}

fn insert(cache: &mut impl FlashCache, objects: std::ops::Range<u32>) {
    objects.for_each(|object| cache.insert(&[Newcomer { object, weight: 10 }]));
}

fn held(cache: &impl FlashCache) -> Vec<u32> {
    (0..100).filter(|object| cache.holds(*object)).collect()
}

#[test]
fn mcdipper_overwrites_the_oldest_block_whatever_was_hit_in_it() {
    let mut cache = Mcdipper::new(60, 20);
    insert(&mut cache, 0..6);
    cache.hit(0);
    assert_eq!(held(&cache), [0, 1, 2, 3, 4, 5]);
    insert(&mut cache, 6..7);
    assert_eq!((held(&cache), cache.written_weight()), (vec![2, 3, 4, 5, 6], 70));
}

#[test]
fn block_cache_lifts_a_whole_block_and_evicts_another() {
    // Two segments of the sealed blocks 0 1, 2 3, 4 5; 6 is in the open one.
    let mut cache = BlockCache::new(80, 20, 2);
    insert(&mut cache, 0..7);
    cache.hit(1);
    insert(&mut cache, 7..9);
    assert_eq!(held(&cache), [0, 1, 4, 5, 6, 7, 8]);
    assert_eq!(cache.written_weight(), 80);
}

#[test]
fn a_set_is_written_whole_and_once_for_newcomers_that_come_together() {
    let mut cache = Sets::new(30, 30);
    insert(&mut cache, 0..3);
    assert_eq!((held(&cache), cache.written_weight()), (vec![0, 1, 2], 90));
    cache.insert(&[3, 4].map(|object| Newcomer { object, weight: 10 }));
    assert_eq!((held(&cache), cache.written_weight()), (vec![2, 3, 4], 120));
}

#[test]
fn ripq_moves_what_was_hit_only_when_its_block_is_overwritten() {
    // Two segments, two insertion points: newcomers to the lower section.
    let mut queue = Ripq::new(60, 20, 2, OnTop::Slru(2));
    insert(&mut queue, 0..6);
    queue.hit(0);
    assert_eq!((queue.section(0), queue.section(1)), (1, 0));
    let before = queue.written_weight();
    queue.hit(0);
    assert_eq!((queue.section(0), queue.written_weight()), (1, before), "no higher place, nothing written");
    // 6 needs room: block 0 1 is overwritten, 1 leaves, and 0 goes to the upper section's open block.
    insert(&mut queue, 6..7);
    assert_eq!(held(&queue), [0, 2, 3, 4, 5, 6]);
    insert(&mut queue, 7..11);
    assert!(queue.holds(0) && !queue.holds(3), "{:?}", held(&queue));
}

#[test]
fn an_object_found_on_flash_does_not_come_back_to_dram() {
    use crate::simulate::{Access, Simulator as _};
    let rules = FlashRules { dram_weight: 20, object_overhead: 5, ..FlashRules::default() };
    let mut cache = Flash::new(Mcdipper::new(100, 50), rules);
    let ask = |object| Access { object, weight: 5, now_seconds: 0, is_removal: false };
    // Two fit into DRAM; 0 falls to flash for 2 and is found there.
    cache.run(&[0, 1, 2, 0, 1].map(ask), &[]);
    let counts = cache.counts();
    assert_eq!((counts.hits, counts.inserts, counts.insert_weight, counts.written_weight), (2, 1, 10, 10));
    assert!(cache.flash().holds(0) && !cache.flash().holds(1));
}
