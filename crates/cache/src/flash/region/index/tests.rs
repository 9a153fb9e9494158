//! Compares the index with a map; checks its memory and the distribution of keys.

use std::collections::HashMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

fn item(address: u64) -> Found {
    Found { address: Address(address), size: SizeHint(address as u8), hits: 0, rank: Rank::NONE }
}

fn key(number: u64) -> KeyHash {
    KeyHash::of(&number.to_le_bytes())
}

fn assert_keeps_every_bit<const BYTES: usize>(parts: &[(u32, u64, u8, u8, u16)]) {
    for &(fingerprint, address, size, hits, rank) in parts {
        let found = Found { address: Address(address), size: SizeHint(size), hits, rank: Rank(rank) };
        let record = Record::<BYTES>::new(Fingerprint(fingerprint), found);
        assert!(record.fingerprint() == Fingerprint(fingerprint));
        assert_eq!(record.found(), found);
    }
}

#[test]
fn index_record_keeps_every_bit_of_its_fields() {
    let far = (1 << 40) - 1;
    let parts = [
        (0, 0, 0, 0, 0),
        (Fingerprint::MASK, 0, 0, 0, 0),
        (0, far, 0, 0, 0),
        (0, 0, 255, 0, 0),
        (0, 0, 0, 7, 0),
    ];
    assert_keeps_every_bit::<NARROW>(&parts);
    assert_keeps_every_bit::<WIDE>(&parts);
    assert_keeps_every_bit::<WIDE>(&[(0, 0, 0, 255, 0), (0, 0, 0, 0, u16::MAX), (1, far, 1, 1, 1)]);
}

#[test]
fn narrow_index_record_truncates_its_fields() {
    let found = Found { hits: 9, rank: Rank(3), ..item(5) };
    assert_eq!(Record::<NARROW>::new(Fingerprint(1), found).found(), Found { hits: 7, ..item(5) });
}

#[test]
fn index_equals_a_map() {
    assert_agrees_with_a_map(false, MAX_HITS);
}

#[test]
fn index_with_ranks_equals_a_map() {
    assert_agrees_with_a_map(true, MAX_WIDE_HITS);
}

fn assert_agrees_with_a_map(has_ranks: bool, max_hits: u8) {
    let keys = if cfg!(miri) { 300 } else { 30_000 };
    for seed in 0..if cfg!(miri) { 1 } else { 4 } {
        let mut random = StdRng::seed_from_u64(seed);
        let index = Index::new(has_ranks);
        let mut map: HashMap<u64, Found> = HashMap::new();
        for step in 0..if cfg!(miri) { 1_500 } else { 60_000_u64 } {
            let number = random.random_range(0..keys);
            let now = Found { rank: Rank(if has_ranks { step as u16 } else { 0 }), ..item(step) };
            match random.random_range(0..10) {
                0..5 => {
                    let before = map.insert(number, now);
                    assert_eq!(index.insert(key(number), now), before, "seed {seed} step {step}");
                }
                5..7 => {
                    let before = map.remove(&number);
                    assert_eq!(index.remove(key(number)), before, "seed {seed} step {step}");
                }
                7 => {
                    let seen = map.get_mut(&number).map(|found| {
                        let before = *found;
                        found.hits = found.hits.saturating_add(1).min(max_hits);
                        before
                    });
                    assert_eq!(index.hit(key(number)), seen, "seed {seed} step {step}");
                }
                8 => {
                    let at = map.get(&number).map_or(Address(1), |found| found.address);
                    let moved = index.replace_at(key(number), at, now);
                    assert_eq!(moved, map.get(&number).copied());
                    map.entry(number).and_modify(|found| *found = now);
                    let elsewhere = Address(u64::from(u32::MAX));
                    assert_eq!(index.replace_at(key(number), elsewhere, item(0)), None);
                    index.rank_at(key(number), elsewhere, |_| unreachable!("it is not there"));
                    if has_ranks && let Some(found) = map.get_mut(&number) {
                        found.rank = Rank(7);
                        index.rank_at(key(number), now.address, |seen| (seen == now).then_some(Rank(7)));
                    }
                }
                _ => {
                    assert_eq!(index.remove_at(key(number), Address(u64::from(u32::MAX))), None);
                    let at = map.remove(&number);
                    assert_eq!(at.and_then(|found| index.remove_at(key(number), found.address)), at);
                }
            }
        }
        assert_eq!(index.len(), map.len());
        let mut left = 0;
        index.for_each(|found| {
            left += 1;
            assert!(map.values().any(|other| *other == found) || left > 200, "seed {seed}");
        });
        assert_eq!(left, map.len());
        for number in 0..keys {
            assert_eq!(index.get(key(number)), map.get(&number).copied(), "seed {seed} key {number}");
        }
    }
}

/// Catches a regression: all keys of a store that is one of 16 are in every 16th partition.
#[test]
#[cfg_attr(miri, ignore = "a million steps of safe code")]
fn keys_of_one_store_of_many_spread_over_all_partitions() {
    let index = Index::new(false);
    let keys = (0..).map(key).filter(|hash| hash.remix().is_multiple_of(16));
    for (hash, address) in keys.take(200_000).zip(0..) {
        index.insert(hash, item(address));
    }
    let Shards::Narrow(shards) = &index.shards else { panic!("it was made without ranks") };
    let longest = |shard: &Mutex<Shard<NARROW>>| {
        shard.lock().partitions.iter().map(|partition| partition.0.len()).max()
    };
    let longest = shards.iter().filter_map(longest).max().expect("there are partitions");
    assert!(longest < 3 * MEAN_RECORDS, "{longest} records in one partition");
}

#[test]
#[cfg_attr(miri, ignore = "a hundred thousand steps of safe code")]
fn removal_of_an_address_range_keeps_all_others() {
    let index = Index::new(false);
    (0..50_000).for_each(|number| assert_eq!(index.insert(key(number), item(number)), None));
    let mut shown = 0;
    assert_eq!(index.remove_range(&(Address(100)..Address(20_100)), |_| shown += 1), 20_000);
    assert_eq!(shown, 20_000);
    for number in 0..50_000 {
        assert_eq!(index.get(key(number)).is_none(), (100..20_100).contains(&number));
    }
    assert_eq!(index.len(), 30_000);
}

#[test]
#[cfg_attr(miri, ignore = "about memory in bulk")]
fn index_takes_less_than_twelve_bytes_per_item() {
    assert_costs_at_most(false, 12.0);
}

#[test]
#[cfg_attr(miri, ignore = "about memory in bulk")]
fn index_with_ranks_takes_less_than_sixteen_bytes_per_item() {
    assert_costs_at_most(true, 16.0);
}

fn assert_costs_at_most(has_ranks: bool, most_bytes: f64) {
    let index = Index::new(has_ranks);
    let mut number = 0;
    for count in [30_000, 70_000, 150_000, 300_000, 700_000, 1_000_000] {
        while number < count {
            index.insert(key(number), item(number));
            number += 1;
        }
        let per_item = index.memory_bytes() as f64 / index.len() as f64;
        assert!(per_item <= most_bytes, "{per_item:.2} bytes an item at {count} items");
    }
    // A few of a million keys collide with others.
    let removed = (0..950_000).filter(|&number| index.remove(key(number)).is_some()).count();
    assert!(removed > 949_900, "{removed} found");
    assert!(index.memory_bytes() < 2_500_000, "removed items leave {} bytes", index.memory_bytes());
}
