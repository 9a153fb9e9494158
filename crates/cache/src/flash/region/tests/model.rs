//! Compares random operations of one thread with a map.

use std::collections::HashMap;

use device::MemoryDevice;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

/// Runs `steps` random operations on `keys` keys and returns the versions that readers may see.
fn churn(store: &RegionStore, seed: u64, steps: u64, keys: u64) -> HashMap<u64, u64> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut versions = HashMap::new();
    for version in 0..steps {
        let key = random.random_range(0..keys);
        match random.random_range(0..100) {
            0..50 => {
                put_version(store, key, version);
                versions.insert(key, version);
            }
            50..60 => {
                let known = versions.remove(&key).is_some();
                assert!(known || !forget(store, key), "seed {seed} step {version}: came back from nowhere");
                forget(store, key);
            }
            60..90 => {
                check(store, &versions, key, &format!("seed {seed} step {version}"));
            }
            90..97 => drop(step(store)),
            97 => {
                let item_key = key.to_le_bytes();
                let item = FlashItem {
                    key: &item_key,
                    hash: KeyHash::of(&item_key),
                    value: &[b"never committed"],
                    expiry_seconds: 0,
                    tag: 0,
                };
                if let Ok(staged) = store.stage(&item) {
                    store.abandon(staged);
                }
            }
            98 => drain(store),
            _ => work_until_idle(store),
        }
    }
    versions
}

fn check(store: &RegionStore, versions: &HashMap<u64, u64>, key: u64, at: &str) -> bool {
    match (get(store, key), versions.get(&key)) {
        (Lookup::Found(seen), Some(&version)) => {
            assert_eq!(*seen, value(key, version), "{at}: key {key}");
            assert_eq!(seen.tag, 3);
            true
        }
        (Lookup::Found(_), None) => panic!("{at}: key {key} was removed and is found"),
        (Lookup::Miss, _) => false,
        (other, _) => panic!("{at}: key {key}: {other:?}"),
    }
}

fn assert_model(config: &RegionConfig, block_bytes: u32) {
    for seed in 0..4 {
        let device = Arc::new(MemoryDevice::with_block_bytes(config.capacity_bytes, block_bytes));
        let store = open(device, config.clone());
        let versions = churn(&store, seed, 6_000, 700);
        let found = (0..700).filter(|&key| check(&store, &versions, key, "at the end")).count();
        assert_eq!(found, store.len(), "seed {seed}: the index holds what is found and no more");
        assert!(found * 4 > versions.len(), "seed {seed}: only {found} of {} found", versions.len());
        assert!(
            store.stats().regions_reclaimed > 48,
            "seed {seed}: it must wrap around: {:?}",
            store.stats()
        );
        assert_accounts_balance(&store);
    }
}

#[test]
fn readers_see_the_last_version_or_nothing_fifo() {
    assert_model(&small(), 512);
}

#[test]
fn readers_see_the_last_version_or_nothing_lru() {
    assert_model(&RegionConfig { order: OrderConfig::Lru, ..small() }, 512);
}

#[test]
fn readers_see_the_last_version_or_nothing_with_large_blocks_and_small_units() {
    assert_model(&RegionConfig { unit_bytes: 16, trim: true, ..small() }, 4096);
}

#[test]
fn readers_see_the_last_version_or_nothing_with_reinsertion_by_hits() {
    let order = OrderConfig::SegmentedFifo { shares: vec![2, 1, 1] };
    let reinsertion = Reinsertion::Hits { at_least: 1 };
    assert_model(&RegionConfig { order, reinsertion, buffers: 8, ..small() }, 512);
}

#[test]
fn readers_see_the_last_version_or_nothing_with_reinsertion_by_chance() {
    let reinsertion = Reinsertion::Percent { percent: 30, seed: 1 };
    assert_model(&RegionConfig { reinsertion, separate_reinserted: true, ..small() }, 512);
}

#[test]
fn readers_see_the_last_version_or_nothing_blockcache() {
    assert_model(&blockcache(), 512);
}

#[test]
fn readers_see_the_last_version_or_nothing_ripq() {
    assert_model(&ripq(|_| {}), 512);
    let plain = RipqConfig { sections: 3, ..RipqConfig::plain(Caching::Lru) };
    let config = ripq(|config| *config = plain);
    assert_model(&RegionConfig { buffers: 4, transfers_at_once: 1, ..config }, 4096);
}

#[test]
fn readers_see_the_last_version_or_nothing_ripq_with_absolute_priorities() {
    assert_model(&ripq(|config| config.caching = Caching::GDSF), 512);
    assert_model(&ripq(|config| config.caching = Caching::LfuDa), 512);
}

#[test]
fn readers_see_the_last_version_or_nothing_ripq_with_one_point() {
    assert_model(&ripq(|config| config.single_point = true), 512);
}

#[test]
fn items_that_fit_are_all_found() {
    let device = Arc::new(MemoryDevice::new(small().capacity_bytes));
    let store = open(device, small());
    (0..300).for_each(|key| put_version(&store, key, 1));
    for flushed in [false, true] {
        for key in 0..300 {
            assert_eq!(*get(&store, key).found().expect("nothing had to leave"), value(key, 1));
        }
        if !flushed {
            assert!(store.stats().hits_in_memory > 0);
            drain(&store);
        }
    }
    assert_eq!(store.len(), 300);
    assert_eq!(store.stats().evictions, 0);
}

#[test]
fn regions_are_reclaimed_in_fill_order() {
    let device = Arc::new(MemoryDevice::new(small().capacity_bytes));
    let store = open(device, small());
    // Seven entries of 9 KB fill a region; the rest of it is too small for an eighth.
    let big = vec![1; 9_000];
    for key in 0..7 * 40_u64 {
        put(&store, &key.to_le_bytes(), &big, 0);
        work_until_idle(&store);
    }
    let there: Vec<_> = (0..280).filter(|&key| get(&store, key).found().is_some()).collect();
    assert_eq!(there, (there[0]..280).collect::<Vec<_>>(), "the newest, without gaps");
    assert_eq!(there[0] % 7, 0, "whole regions left");
    assert_eq!(there.len(), 7 * (24 - 2), "all but the clean regions are in use");
}

#[test]
fn frequently_read_items_survive_reclaim() {
    let reinsertion = Reinsertion::Hits { at_least: 2 };
    let device = Arc::new(MemoryDevice::new(small().capacity_bytes));
    let store = open(device, RegionConfig { reinsertion, separate_reinserted: true, ..small() });
    for key in 0..2_000 {
        put_version(&store, key, 0);
        (0..2).for_each(|_| assert!(get(&store, key % 10).found().is_some() || key < 10));
        work_until_idle(&store);
    }
    assert!(store.stats().reinsertions >= 10, "{:?}", store.stats());
    assert_eq!(store.stats().reinsertions_failed, 0);
    (0..10).for_each(|key| assert_eq!(*get(&store, key).found().unwrap(), value(key, 0)));
    assert!(get(&store, 11).found().is_none(), "who is not read leaves");
}

#[test]
fn eviction_callback_receives_every_selected_item_and_no_other() {
    let reported = Arc::new(parking_lot::Mutex::new(HashMap::new()));
    let sink = Arc::clone(&reported);
    let device = Arc::new(MemoryDevice::new(small().capacity_bytes));
    let store =
        open(device, small()).with_eviction_callback(Arc::new(move |item: &FlashItem<'_>, take_out| {
            assert!(take_out(), "the item is not forgotten meanwhile");
            let key = u64::from_le_bytes(item.key.try_into().unwrap());
            assert_eq!(*item.value, [&value(key, 0)[..]]);
            assert!(sink.lock().insert(key, ()).is_none(), "key {key} left twice");
        }));
    for key in 0..1500 {
        put_version(&store, key, 0);
        if key % 10 == 0 {
            forget(&store, key);
        }
        work_until_idle(&store);
    }
    assert!(reported.lock().len() > 500);
    for key in 0..1500 {
        let left = reported.lock().contains_key(&key);
        assert_eq!(left, key % 10 != 0 && get(&store, key).found().is_none(), "key {key}");
    }
}

#[test]
fn expired_item_is_neither_found_nor_reinserted() {
    let clock = Arc::new(VirtualClock::default());
    let reinsertion = Reinsertion::Percent { percent: 100, seed: 0 };
    let device = Arc::new(MemoryDevice::new(small().capacity_bytes));
    let config = RegionConfig { reinsertion, separate_reinserted: true, ..small() };
    let store = open_at(device, config, Arc::clone(&clock) as _);
    let expiry = VirtualClock::EPOCH_UNIX_SECONDS + 10;
    for key in 0..60_u64 {
        put(&store, &key.to_le_bytes(), &value(key, 0), expiry);
    }
    drain(&store);
    assert!(get(&store, 1).found().is_some());
    clock.advance_by(10_000_000_000);
    assert!(matches!(get(&store, 1), Lookup::Expired));
    assert!(matches!(get(&store, 1), Lookup::Miss), "and forgotten");
    let reinserted = store.stats().reinsertions;
    let mut filler = 1000;
    while store.stats().evicted_expired < 59 {
        put(&store, &u64::to_le_bytes(filler), &[0; 5000], 0);
        work_until_idle(&store);
        filler += 1;
        assert!(filler < 5000, "{:?}", store.stats());
    }
    assert!(store.stats().reinsertions >= reinserted);
    (0..60).for_each(|key| assert!(matches!(get(&store, key), Lookup::Miss)));
}

#[test]
fn clear_frees_all_ranks_of_an_item_queue() {
    let config = ripq(|_| {});
    let device = Arc::new(MemoryDevice::new(config.capacity_bytes));
    let store = open(device, config);
    let empty_bytes = store.memory().region_bytes;
    let mut memory_bytes = 0;
    for round in 0..300 {
        memory_bytes = memory_bytes.max(if round < 20 { store.memory().region_bytes } else { 0 });
        (0..60).for_each(|key| put_version(&store, key, round));
        drain(&store);
        (0..40).for_each(|key| assert_eq!(*get(&store, key).found().unwrap(), value(key, round)));
        store.clear();
        assert!(store.is_empty() && (0..60).all(|key| matches!(get(&store, key), Lookup::Miss)));
        assert_accounts_balance(&store);
    }
    assert!(store.stats().raises > 1000, "{:?}", store.stats());
    assert!(memory_bytes > empty_bytes, "the ranks of the queue take memory");
    assert!(store.memory().region_bytes <= memory_bytes, "{} bytes", store.memory().region_bytes);
}

#[test]
fn largest_item_of_a_region_is_accepted_and_a_larger_one_refused() {
    let device = Arc::new(MemoryDevice::new(small().capacity_bytes));
    let store = open(device, small());
    let largest = vec![5; store.max_item_bytes() - 3];
    put(&store, b"key", &largest, 0);
    let item =
        FlashItem { key: b"keys", hash: KeyHash::of(b"keys"), value: &[&largest], expiry_seconds: 0, tag: 0 };
    assert!(matches!(store.stage(&item), Err(Refusal::TooLarge)));
    let long_key = vec![1; MAX_KEY_BYTES + 1];
    let item = FlashItem { key: &long_key, ..item };
    assert!(matches!(store.stage(&item), Err(Refusal::TooLarge)));
    for _ in 0..2 {
        let read = block_on(store.read(KeyHash::of(b"key"), b"key", Waiting::Task));
        assert_eq!(*read.found().unwrap(), *largest);
        drain(&store);
    }
}

#[test]
fn key_with_the_same_hash_bits_is_distinguished() {
    let device = Arc::new(MemoryDevice::new(small().capacity_bytes));
    let store = open(device, small());
    let hash = KeyHash::of(b"one");
    let item = FlashItem { key: b"one", hash, value: &[b"1"], expiry_seconds: 0, tag: 0 };
    store.commit(store.stage(&item).unwrap());
    for _ in 0..2 {
        assert!(matches!(block_on(store.read(hash, b"two", Waiting::Thread)), Lookup::WrongKey));
        assert!(block_on(store.read(hash, b"one", Waiting::Thread)).found().is_some());
        drain(&store);
    }
    assert_eq!(store.stats().wrong_key, 2);
}

#[test]
fn large_objects_are_written_about_once_and_packed_densely() {
    let config = RegionConfig { region_bytes: 4 << 20, ..RegionConfig::new(64 << 20) };
    let device = Arc::new(MemoryDevice::with_block_bytes(64 << 20, 4096));
    let store = open(device, config);
    let mut random = StdRng::seed_from_u64(9);
    for key in 0..4000_u64 {
        let len = random.random_range(16 << 10..64 << 10);
        put(&store, &key.to_le_bytes(), &vec![key as u8; len], 0);
    }
    drain(&store);
    let stats = store.stats();
    let amplification = stats.write_amplification().unwrap();
    assert!(amplification <= 1.06, "{amplification:.4}: {stats:?}");
    let regions = stats.regions_flushed as f64 * f64::from(4 << 20);
    let density = stats.inserted_bytes as f64 / regions;
    assert!(density >= 0.94, "{density:.4}");
}
