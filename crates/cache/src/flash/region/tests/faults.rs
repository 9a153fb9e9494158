//! A device that fails or returns wrong data: damage is detected or harmless, and never returned.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use device::MemoryDevice;
use device::wrap::{FaultDevice, Faults};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

const NONE: Faults = Faults {
    failed_reads: 0.0,
    failed_writes: 0.0,
    failed_flushes: 0.0,
    flipped_reads: 0.0,
    flipped_writes: 0.0,
    stuck: 0.0,
};
const READS_FAIL: Faults = Faults { failed_reads: 1.0, ..NONE };
const WRITES_FAIL: Faults = Faults { failed_writes: 1.0, ..NONE };

fn faulty(seed: u64, faults: Faults) -> Arc<FaultDevice> {
    let inner = Arc::new(MemoryDevice::new(small().capacity_bytes));
    Arc::new(FaultDevice::new(inner, seed, faults))
}

#[test]
fn random_faults_never_serve_a_wrong_value() {
    assert_serves_no_wrong_value(RegionConfig {
        order: OrderConfig::SegmentedFifo { shares: vec![3, 1] },
        reinsertion: Reinsertion::Hits { at_least: 1 },
        ..small()
    });
}

#[test]
fn random_faults_never_serve_a_wrong_value_ripq() {
    assert_serves_no_wrong_value(ripq(|_| {}));
}

fn assert_serves_no_wrong_value(config: RegionConfig) {
    // Regions fail often in this test, and none may be retired.
    let config = RegionConfig { retire_after_failures: u8::MAX, ..config };
    let faults =
        Faults { failed_reads: 0.02, failed_writes: 0.02, flipped_reads: 0.05, flipped_writes: 0.2, ..NONE };
    let mut damaged_headers = 0;
    for seed in 0..6 {
        let device = faulty(seed, faults);
        let store = open(Arc::clone(&device) as Arc<dyn Device>, config.clone());
        let found = churn_with_faults(&store, seed);
        let stats = store.stats();
        assert!(device.injected() > 100 && found > 500, "seed {seed}: {found} found, {stats:?}");
        assert!(stats.value_checksum_errors > 0, "seed {seed}: {stats:?}");
        assert!(stats.table_checksum_errors > 0 && stats.write_errors > 0, "seed {seed}: {stats:?}");
        assert_accounts_balance(&store);
        damaged_headers += stats.header_checksum_errors;
    }
    assert!(damaged_headers > 0, "headers are hit now and then too");
}

/// Writes, removes and reads at random; returns the number of reads with the expected value.
fn churn_with_faults(store: &RegionStore, seed: u64) -> u64 {
    let mut random = StdRng::seed_from_u64(seed);
    let mut versions = HashMap::new();
    let mut found = 0;
    for version in 0..6_000 {
        let key = random.random_range(0..500);
        match random.random_range(0..10) {
            0..5 => {
                put_version(store, key, version);
                versions.insert(key, version);
            }
            5 => {
                forget(store, key);
                versions.remove(&key);
            }
            _ => match (get(store, key), versions.get(&key)) {
                (Lookup::Found(seen), Some(&version)) => {
                    assert_eq!(*seen, value(key, version), "seed {seed}");
                    found += 1;
                }
                (Lookup::Found(_), None) => panic!("seed {seed}: key {key} was removed and is found"),
                (Lookup::WrongKey | Lookup::Expired, _) => panic!("seed {seed}: believed a damaged entry"),
                (Lookup::Miss | Lookup::Damaged | Lookup::Failed(_), _) => {}
            },
        }
        work_until_idle(store);
    }
    found
}

/// Flips a stored bit.
fn flip(device: &MemoryDevice, offset: u64, bit: u8) {
    let device: &dyn Device = device;
    let block = offset / 512 * 512;
    let mut bytes = device.read(block, 512).wait().unwrap();
    bytes[(offset - block) as usize] ^= 1 << bit;
    device.write(block, bytes).wait().unwrap();
}

#[test]
fn failed_write_is_repeated() {
    let device = faulty(1, Faults { failed_writes: 0.5, ..NONE });
    let config = RegionConfig { write_attempts: 50, ..small() };
    let store = open(Arc::clone(&device) as Arc<dyn Device>, config);
    (0..10).for_each(|key| put_version(&store, key, 0));
    drain(&store);
    assert!(store.stats().write_errors > 0);
    assert_eq!((store.stats().regions_flushed, store.stats().regions_lost), (1, 0));
    (0..10).for_each(|key| assert_eq!(*get(&store, key).found().unwrap(), value(key, 0)));
}

#[test]
fn region_that_cannot_be_written_at_the_end_loses_its_items() {
    let device = faulty(0, NONE);
    let store = open(Arc::clone(&device) as Arc<dyn Device>, small());
    (0..10).for_each(|key| put_version(&store, key, 0));
    device.set_faults(WRITES_FAIL);
    drain(&store);
    device.set_faults(NONE);
    assert_eq!((store.stats().regions_lost, store.stats().items_lost), (1, 10));
    (0..10).for_each(|key| assert!(matches!(get(&store, key), Lookup::Miss)));
    assert_eq!(store.clean_regions(), 24, "the region is used again");
    assert_accounts_balance(&store);
    (0..500).for_each(|key| put_version(&store, key, 1));
}

const SECOND: u64 = 1_000_000_000;

/// Inserts items until the store refuses one. Returns the number of inserted items. Runs background steps, but time stands still.
fn fill_until_refused(store: &RegionStore, first_key: u64) -> (u64, Refusal) {
    for key in first_key.. {
        let (name, value) = (key.to_le_bytes(), value(key, 0));
        let item =
            FlashItem { key: &name, hash: KeyHash::of(&name), value: &[&value], expiry_seconds: 0, tag: 3 };
        loop {
            match store.stage(&item) {
                Ok(staged) => break store.commit(staged),
                Err(Refusal::Full) => assert_ne!(step(store), Progress::Idle, "full and nothing to do"),
                Err(refusal) => return (key - first_key, refusal),
            }
        }
    }
    unreachable!("keys do not end")
}

/// Catches a regression: a file system that is full for 20 seconds retires 114 regions permanently, each after three failures.
#[test]
fn writes_that_fail_for_20_seconds_lose_nothing_in_memory_and_retire_nothing() {
    let (device, clock) = (faulty(0, NONE), Arc::new(VirtualClock::default()));
    let store = open_at(Arc::clone(&device) as Arc<dyn Device>, small(), Arc::clone(&clock) as _);
    device.set_faults(WRITES_FAIL);
    let (taken, refusal) = fill_until_refused(&store, 0);
    assert_eq!(refusal, Refusal::Failing, "new items need not wait for the device");
    block_on(store.wait_ready());
    let write_health = store.write_health();
    assert!(write_health.is_failing && write_health.regions_to_retry > 0, "{write_health:?}");
    assert!(write_health.last_error.is_some_and(|error| error.contains("injected")));
    let attempts = |store: &RegionStore| store.stats().write_errors;
    for second in 0..20 {
        let before = attempts(&store);
        clock.advance_by(SECOND);
        work_until_idle(&store);
        assert!(
            attempts(&store) - before < 100,
            "pauses grow: {} in second {second}",
            attempts(&store) - before
        );
    }
    assert!((0..taken).all(|key| get(&store, key).found().is_some()), "they are readable in memory");
    device.set_faults(NONE);
    clock.advance_by(6 * SECOND);
    work_until_idle(&store);
    let stats = store.stats();
    assert_eq!((stats.items_lost, stats.regions_lost, stats.regions_retired), (0, 0, 0), "{stats:?}");
    assert!(!store.write_health().is_failing && store.write_health().regions_to_retry == 0);
    drain(&store);
    (0..taken).for_each(|key| assert_eq!(*get(&store, key).found().unwrap(), value(key, 0)));
    (taken..taken + 500).for_each(|key| put_version(&store, key, 0));
    assert_accounts_balance(&store);
}

/// A permanent failure must not occupy the buffers permanently.
#[test]
fn writes_that_fail_for_an_hour_lose_their_items_and_retire_nothing() {
    let (device, clock) = (faulty(0, NONE), Arc::new(VirtualClock::default()));
    let store = open_at(Arc::clone(&device) as Arc<dyn Device>, small(), Arc::clone(&clock) as _);
    device.set_faults(WRITES_FAIL);
    let mut key = 0;
    for _ in 0..720 {
        key += fill_until_refused(&store, key).0;
        clock.advance_by(5 * SECOND);
        work_until_idle(&store);
    }
    let stats = store.stats();
    assert!(stats.regions_lost > 100 && stats.regions_retired == 0, "{stats:?}");
    device.set_faults(NONE);
    clock.advance_by(6 * SECOND);
    work_until_idle(&store);
    (key..key + 500).for_each(|key| put_version(&store, key, 0));
    assert_accounts_balance(&store);
}

/// Fails all writes of the region with number `bad`; the test can change the number.
fn fail_writes_of(device: &FaultDevice, bad: &Arc<AtomicU64>) {
    let (bad, region_bytes) = (Arc::clone(bad), u64::from(small().region_bytes));
    device.fail_where(move |request| match request {
        device::Request::Write { offset, .. } => offset / region_bytes < bad.load(Ordering::Relaxed),
        _ => false,
    });
}

#[test]
fn region_that_fails_alone_is_retired_and_returns_after_a_test_write() {
    let (device, bad) = (faulty(0, NONE), Arc::new(AtomicU64::new(1)));
    let store = open(Arc::clone(&device) as Arc<dyn Device>, small());
    fail_writes_of(&device, &bad);
    let mut key = 0;
    while store.retired_regions() == 0 {
        put_version(&store, key, 0);
        key += 1;
        work_until_idle(&store);
    }
    let stats = store.stats();
    assert_eq!((stats.regions_retired, stats.regions_lost, stats.regions_returned), (1, 1, 0), "{stats:?}");
    let (bytes, used) = store.room_bytes();
    assert!(bytes == 24 << 16 && used < 24 << 16, "a retired region is not in use");
    bad.store(0, Ordering::Relaxed);
    while store.retired_regions() > 0 {
        step(&store);
    }
    assert_eq!(store.stats().regions_returned, 1);
    (key..key + 1500).for_each(|key| put_version(&store, key, 0));
    assert_accounts_balance(&store);
}

#[test]
fn retired_regions_are_restored_and_tested_immediately() {
    let (device, bad) = (faulty(0, NONE), Arc::new(AtomicU64::new(1)));
    let store = open(Arc::clone(&device) as Arc<dyn Device>, small());
    fail_writes_of(&device, &bad);
    for key in 0.. {
        if store.retired_regions() > 0 {
            break;
        }
        put_version(&store, key, 0);
        work_until_idle(&store);
    }
    drain(&store);
    let snapshot = store.snapshot();
    drop(store);
    let restored = || {
        let clock = Arc::new(VirtualClock::default());
        let device = Arc::clone(&device) as Arc<dyn Device>;
        block_on(RegionStore::restore(device, clock, small(), &snapshot, Waiting::Thread)).unwrap()
    };
    let still_bad = restored();
    assert_eq!(still_bad.retired_regions(), 1);
    assert_eq!(
        (step(&still_bad), step(&still_bad)),
        (Progress::Tested, Progress::Idle),
        "the next test is later"
    );
    assert_eq!((still_bad.retired_regions(), still_bad.stats().regions_returned), (1, 0));
    drop(still_bad);
    bad.store(0, Ordering::Relaxed);
    let good = restored();
    work_until_idle(&good);
    assert_eq!((good.retired_regions(), good.stats().regions_returned), (0, 1));
}

/// Each region starts to fail after the previous one is retired.
#[test]
fn store_is_worn_out_when_its_regions_fail_one_by_one() {
    let (device, bad) = (faulty(0, NONE), Arc::new(AtomicU64::new(1)));
    let store = open(Arc::clone(&device) as Arc<dyn Device>, small());
    fail_writes_of(&device, &bad);
    let bytes = [0; 60_000];
    let item = FlashItem { key: b"k", hash: KeyHash::of(b"k"), value: &[&bytes], expiry_seconds: 0, tag: 0 };
    loop {
        match store.stage(&item) {
            Ok(staged) => store.commit(staged),
            Err(Refusal::Full | Refusal::Failing) => drop(step(&store)),
            Err(refusal) => break assert_eq!(refusal, Refusal::WornOut),
        }
        bad.store(store.stats().regions_retired + 1, Ordering::Relaxed);
    }
    assert_eq!((store.retired_regions(), store.stats().regions_retired), (23, 23));
    block_on(store.wait_ready());
    bad.store(0, Ordering::Relaxed);
    while store.retired_regions() > 0 {
        step(&store);
    }
    assert!(store.ready());
}

#[test]
fn failed_read_is_reported_and_the_next_may_succeed() {
    let device = faulty(0, NONE);
    let store = open(Arc::clone(&device) as Arc<dyn Device>, small());
    put_version(&store, 1, 0);
    drain(&store);
    device.set_faults(READS_FAIL);
    assert!(matches!(get(&store, 1), Lookup::Failed(_)));
    device.set_faults(NONE);
    assert!(get(&store, 1).found().is_some());
    assert_eq!(store.stats().read_errors, 1);
}

#[test]
fn region_with_an_unreadable_table_is_reclaimed() {
    let device = faulty(0, NONE);
    let store = open(Arc::clone(&device) as Arc<dyn Device>, small());
    device.set_faults(READS_FAIL);
    for key in 0..1500 {
        put_version(&store, key, 0);
        work_until_idle(&store);
    }
    device.set_faults(NONE);
    let stats = store.stats();
    assert!(stats.items_lost > 500 && stats.evictions == 0, "{stats:?}");
    let found = (0..1500).filter(|&key| match get(&store, key) {
        Lookup::Found(seen) => *seen == value(key, 0),
        Lookup::Miss => false,
        other => panic!("key {key}: {other:?}"),
    });
    assert_eq!(found.count(), store.len());
    assert_accounts_balance(&store);
}

#[test]
fn every_flipped_byte_of_a_region_is_detected_or_harmless() {
    let config = RegionConfig { region_bytes: 4096, max_write_bytes: 4096, ..RegionConfig::new(16 * 4096) };
    for at in 0..4096 {
        let device = Arc::new(MemoryDevice::new(config.capacity_bytes));
        let store = open(Arc::clone(&device) as Arc<dyn Device>, config.clone());
        for key in 0..3_u64 {
            put(&store, &key.to_le_bytes(), &[key as u8; 900], 0);
        }
        drain(&store);
        flip(&device, at, (at % 8) as u8);
        let damaged = (0..3_u64).filter(|&key| match get(&store, key) {
            Lookup::Found(seen) => {
                assert_eq!(*seen, [key as u8; 900], "byte {at}");
                false
            }
            Lookup::Damaged => true,
            other => panic!("byte {at}: {other:?}"),
        });
        let damaged = damaged.count();
        let entry_bytes = 32 + 8 + 900;
        let in_entry = at < 3 * 960 && at % 960 < entry_bytes;
        assert_eq!(damaged, usize::from(in_entry), "byte {at}");
        // A reclaim of the region detects the damaged table too, and leaves no item in the index.
        let mut key = 100_u64;
        while store.stats().regions_reclaimed == 0 {
            put(&store, &key.to_le_bytes(), &[0; 900], 0);
            work_until_idle(&store);
            key += 1;
        }
        let in_table = at >= 4096 - table::table_bytes(3) as u64;
        assert_eq!(store.stats().table_checksum_errors, u64::from(in_table), "byte {at}");
        (0..3).for_each(|key| assert!(matches!(get(&store, key), Lookup::Miss)));
        assert_accounts_balance(&store);
    }
}

#[test]
fn lost_write_is_detected() {
    let device = Arc::new(MemoryDevice::new(small().capacity_bytes));
    let store = open(Arc::clone(&device) as Arc<dyn Device>, small());
    put_version(&store, 1, 0);
    drain(&store);
    // The blocks hold data that a store with another identity wrote at the same offsets.
    let other = RegionStore::create(
        Arc::clone(&device) as Arc<dyn Device>,
        Arc::new(VirtualClock::default()),
        small(),
        StoreId(8),
    )
    .unwrap();
    put_version(&other, 1, 1);
    drain(&other);
    assert!(matches!(get(&store, 1), Lookup::Damaged));
    assert_eq!(*get(&other, 1).found().unwrap(), value(1, 1));
}
