//! A clean shutdown and a new store on the same device.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use device::{IoSlice, MemoryDevice};

use super::super::recovery::RestoreError;
use super::*;

fn restore(
    device: &Arc<MemoryDevice>,
    config: RegionConfig,
    snapshot: &[u8],
) -> Result<RegionStore, RestoreError> {
    let clock = Arc::new(VirtualClock::default());
    block_on(RegionStore::restore(Arc::clone(device) as _, clock, config, snapshot, Waiting::Thread))
}

/// A store that wrapped around, with removed and replaced items, and its expected content.
fn used(device: &Arc<MemoryDevice>, config: &RegionConfig) -> (RegionStore, HashMap<u64, u64>) {
    let store = open(Arc::clone(device) as _, config.clone());
    for version in 0..2_000 {
        put_version(&store, version % 500, version);
        if version % 7 == 0 {
            forget(&store, version / 2 % 500);
        }
        get(&store, version % 50);
        work_until_idle(&store);
    }
    drain(&store);
    let versions = (0..500).filter_map(|key| {
        let seen = get(&store, key).found()?;
        let version = (0..2_000).rev().find(|version| version % 500 == key && *seen == value(key, *version));
        Some((key, version.expect("a version of this key")))
    });
    let versions = versions.collect();
    (store, versions)
}

fn configs() -> [RegionConfig; 7] {
    let sfifo = OrderConfig::SegmentedFifo { shares: vec![2, 1, 1] };
    let hits = Reinsertion::Hits { at_least: 1 };
    [
        small(),
        RegionConfig { order: OrderConfig::Lru, ..small() },
        RegionConfig { order: sfifo, reinsertion: hits, buffers: 6, ..small() },
        blockcache(),
        ripq(|_| {}),
        ripq(|config| config.caching = Caching::GDSF),
        ripq(|config| config.single_point = true),
    ]
}

#[test]
fn restart_finds_all_items_and_no_removed_ones() {
    for config in configs() {
        let device = Arc::new(MemoryDevice::new(config.capacity_bytes));
        let (store, versions) = used(&device, &config);
        let snapshot = store.snapshot();
        let clean = store.clean_regions();
        let next_sequence = store.next_sequence.load(Ordering::Relaxed);
        drop(store);
        let again = restore(&device, config, &snapshot).unwrap();
        assert_eq!(again.next_sequence.load(Ordering::Relaxed), next_sequence, "no filling is named twice");
        assert_eq!(again.len(), versions.len());
        assert_eq!(again.clean_regions(), clean);
        assert_eq!(again.stats().items_restored, versions.len() as u64);
        for key in 0..500 {
            let seen = get(&again, key).found().map(|seen| seen.to_vec());
            assert_eq!(seen, versions.get(&key).map(|&version| value(key, version)), "key {key}");
        }
    }
}

#[test]
fn region_left_out_of_a_snapshot_is_reused_as_clean() {
    for config in configs() {
        let device = Arc::new(MemoryDevice::new(config.capacity_bytes));
        let (store, versions) = used(&device, &config);
        let [least, whole] = [0, u64::MAX].map(|most_bytes| store.snapshot_within(most_bytes).bytes());
        assert_eq!(store.snapshot_within(whole).bytes(), whole);
        let one_less = store.snapshot_within(whole - 1).bytes();
        assert!(whole - one_less < (whole - least) / 8, "one region of more than ten: {one_less} of {whole}");
        let most_bytes = u64::midpoint(least, whole);
        let outgoing = store.snapshot_within(most_bytes);
        let snapshot: Vec<u8> = outgoing.pieces().flatten().collect();
        assert!(snapshot.len() as u64 == outgoing.bytes() && outgoing.bytes() <= most_bytes);
        drop(outgoing);
        let clean = store.clean_regions();
        drop(store);
        let again = restore(&device, config, &snapshot).unwrap();
        assert!(again.clean_regions() > clean, "{} are clean, as {clean} were", again.clean_regions());
        assert!((1..versions.len()).contains(&again.len()), "{} of {}", again.len(), versions.len());
        for key in 0..500 {
            let seen = get(&again, key).found();
            assert!(seen.is_none_or(|seen| *seen == value(key, versions[&key])), "key {key}");
        }
        for version in 2_000..4_000 {
            put_version(&again, version % 500, version);
            work_until_idle(&again);
        }
        let newest = get(&again, 499).found().expect("it is the newest");
        assert_eq!(*newest, value(499, 3_999));
    }
}

#[test]
fn restart_keeps_the_reclaim_order() {
    for config in configs() {
        let device = Arc::new(MemoryDevice::new(config.capacity_bytes));
        let (store, _) = used(&device, &config);
        let again = restore(&device, config, &store.snapshot()).unwrap();
        let mut victims = 0;
        while let Some(victim) = store.policy.lock().victim() {
            assert_eq!(again.policy.lock().victim(), Some(victim));
            victims += 1;
        }
        assert!(victims > 15 && again.policy.lock().is_empty());
    }
}

#[test]
fn restored_store_works_and_is_restored_again() {
    let device = Arc::new(MemoryDevice::new(small().capacity_bytes));
    let (mut store, _) = used(&device, &small());
    for round in 0..5 {
        store = restore(&device, small(), &store.snapshot()).unwrap();
        for key in 0..200 {
            put_version(&store, key + 1000, round);
            work_until_idle(&store);
        }
        drain(&store);
        for key in 0..200 {
            let seen = get(&store, key + 1000).found();
            assert!(seen.is_none_or(|seen| *seen == value(key + 1000, round)));
        }
    }
    assert_accounts_balance(&store);
}

#[test]
fn damaged_region_loses_only_its_own_items() {
    let device = Arc::new(MemoryDevice::new(small().capacity_bytes));
    let (store, versions) = used(&device, &small());
    let snapshot = store.snapshot();
    let (victim, _) = store.policy.lock().in_order()[3];
    let end = store.layout().region_offset(victim) + u64::from(store.layout().region_bytes);
    drop(store);
    let zeros = IoSlice::from(device::IoBuffer::zeroed(512));
    (&*device as &dyn Device).write(end - 512, zeros).wait().unwrap();
    let again = restore(&device, small(), &snapshot).unwrap();
    let stats = again.stats();
    assert_eq!(stats.table_checksum_errors, 1);
    assert!(
        stats.items_unrestored > 0 && again.len() as u64 == versions.len() as u64 - stats.items_unrestored
    );
    for (key, version) in versions {
        let seen = get(&again, key).found();
        assert!(seen.is_none_or(|seen| *seen == value(key, version)));
    }
    assert_accounts_balance(&again);
    (0..500).for_each(|key| put_version(&again, key, 1));
}

#[test]
fn different_layout_is_refused_with_the_difference() {
    let device = Arc::new(MemoryDevice::new(small().capacity_bytes));
    let store = open(Arc::clone(&device) as _, small());
    let refused = |config| match restore(&device, config, &store.snapshot()) {
        Err(RestoreError::Layout { setting, .. }) => setting,
        other => panic!("{:?}", other.map(|_| ())),
    };
    assert_eq!(refused(RegionConfig { unit_bytes: 128, ..small() }), "unit_bytes");
    assert_eq!(refused(RegionConfig { region_bytes: 32 << 10, ..small() }), "region_bytes");
    assert_eq!(refused(RegionConfig { capacity_bytes: 23 * (64 << 10), ..small() }), "region count");
}

#[test]
fn new_store_ignores_items_of_the_old_one() {
    let device = Arc::new(MemoryDevice::new(small().capacity_bytes));
    let (old, _) = used(&device, &small());
    drop(old);
    let clock = Arc::new(VirtualClock::default());
    let new = RegionStore::create(Arc::clone(&device) as _, clock, small(), StoreId(99)).unwrap();
    assert!((0..500).all(|key| matches!(get(&new, key), Lookup::Miss)));
}
