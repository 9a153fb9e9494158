//! A device that fails and lies: what was damaged is noticed or harmless, never served.

use std::collections::HashMap;

use device::wrap::{FaultDevice, Faults};
use device::{IoBuffer, IoSlice, MemoryDevice, PlacementHandle};
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
    // Regions fail often here, and each of them must go on.
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

/// Writes, removes and reads at random; answers how many reads found what they should.
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

/// Flips a bit of what is stored.
fn flip(device: &MemoryDevice, offset: u64, bit: u8) {
    let device: &dyn Device = device;
    let block = offset / 512 * 512;
    let mut bytes = device.read(block, IoBuffer::zeroed(512)).wait().unwrap().unwrap();
    bytes[(offset - block) as usize] ^= 1 << bit;
    device.write(block, IoSlice::from(bytes), PlacementHandle::DEFAULT).wait().unwrap();
}

#[test]
fn a_failed_write_is_tried_again() {
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
fn a_region_that_cannot_be_written_takes_its_items_with_it() {
    let device = faulty(0, NONE);
    let store = open(Arc::clone(&device) as Arc<dyn Device>, small());
    (0..10).for_each(|key| put_version(&store, key, 0));
    device.set_faults(WRITES_FAIL);
    drain(&store);
    device.set_faults(NONE);
    assert_eq!((store.stats().regions_lost, store.stats().items_lost), (1, 10));
    (0..10).for_each(|key| assert!(matches!(get(&store, key), Lookup::Miss)));
    assert_eq!(store.clean_regions(), 24, "the region gets another chance");
    assert_accounts_balance(&store);
    (0..500).for_each(|key| put_version(&store, key, 1));
}

#[test]
fn regions_that_keep_failing_are_retired_until_the_store_says_it_is_worn_out() {
    let device = faulty(0, NONE);
    let store = open(Arc::clone(&device) as Arc<dyn Device>, small());
    device.set_faults(WRITES_FAIL);
    let bytes = [0; 60_000];
    let item = FlashItem { key: b"k", hash: KeyHash::of(b"k"), value: &[&bytes], expiry_seconds: 0, tag: 0 };
    let refusal = loop {
        match store.stage(&item) {
            Ok(staged) => store.commit(staged),
            Err(Refusal::Full) => assert_ne!(step(&store), Progress::Idle),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refusal, Refusal::WornOut);
    assert_eq!(store.stats().regions_retired, 23);
    block_on(store.wait_ready());
}

#[test]
fn a_failed_read_is_told_and_the_next_may_succeed() {
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
fn a_region_whose_table_cannot_be_read_is_reclaimed_all_the_same() {
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
fn every_flipped_byte_of_a_region_is_noticed_or_harmless() {
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
        // Reclaim it: the table is noticed too, and no item stays behind either way.
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
fn a_write_that_never_arrived_is_noticed() {
    let device = Arc::new(MemoryDevice::new(small().capacity_bytes));
    let store = open(Arc::clone(&device) as Arc<dyn Device>, small());
    put_version(&store, 1, 0);
    drain(&store);
    // The blocks hold what another store, with another identity, wrote at the same place.
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
