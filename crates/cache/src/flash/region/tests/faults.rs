//! A device that fails and lies: what was damaged is noticed or harmless, never served.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use device::{
    Completion, Counters, ErrorKind, Geometry, IoBuffer, IoError, IoSlice, MemoryDevice, PlacementHandle,
    Request,
};

use super::*;

/// Fails writes or reads while it is told to.
struct Failing {
    inner: MemoryDevice,
    reads: AtomicBool,
    /// Writes to fail from now on.
    writes: AtomicU32,
}

impl Failing {
    fn new(capacity_bytes: u64) -> Arc<Self> {
        let inner = MemoryDevice::new(capacity_bytes);
        Arc::new(Self { inner, reads: AtomicBool::new(false), writes: AtomicU32::new(0) })
    }

    fn fails(&self, request: &Request) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        match request {
            Request::Read { .. } => self.reads.load(Ordering::SeqCst),
            Request::Write { .. } => {
                self.writes.try_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
            }
            _ => false,
        }
    }
}

impl Device for Failing {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request, completion: Completion) {
        if self.fails(&request) {
            return completion.complete(Err(IoError::new(ErrorKind::Medium, "told to fail")));
        }
        self.inner.submit(request, completion);
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
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
    let device = Failing::new(small().capacity_bytes);
    let store = open(Arc::clone(&device) as Arc<dyn Device>, small());
    (0..10).for_each(|key| put_version(&store, key, 0));
    device.writes.store(2, Ordering::SeqCst);
    drain(&store);
    assert_eq!((store.stats().write_errors, store.stats().regions_lost), (2, 0));
    (0..10).for_each(|key| assert_eq!(*get(&store, key).found().unwrap(), value(key, 0)));
}

#[test]
fn a_region_that_cannot_be_written_takes_its_items_with_it() {
    let device = Failing::new(small().capacity_bytes);
    let store = open(Arc::clone(&device) as Arc<dyn Device>, small());
    (0..10).for_each(|key| put_version(&store, key, 0));
    device.writes.store(1000, Ordering::SeqCst);
    drain(&store);
    device.writes.store(0, Ordering::SeqCst);
    assert_eq!((store.stats().regions_lost, store.stats().items_lost), (1, 10));
    (0..10).for_each(|key| assert!(matches!(get(&store, key), Lookup::Miss)));
    assert_eq!(store.clean_regions(), 24, "the region gets another chance");
    assert_accounts_balance(&store);
    (0..500).for_each(|key| put_version(&store, key, 1));
}

#[test]
fn regions_that_keep_failing_are_retired_until_the_store_says_it_is_worn_out() {
    let device = Failing::new(small().capacity_bytes);
    let store = open(Arc::clone(&device) as Arc<dyn Device>, small());
    device.writes.store(u32::MAX, Ordering::SeqCst);
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
    let device = Failing::new(small().capacity_bytes);
    let store = open(Arc::clone(&device) as Arc<dyn Device>, small());
    put_version(&store, 1, 0);
    drain(&store);
    device.reads.store(true, Ordering::SeqCst);
    assert!(matches!(get(&store, 1), Lookup::Failed(_)));
    device.reads.store(false, Ordering::SeqCst);
    assert!(get(&store, 1).found().is_some());
    assert_eq!(store.stats().read_errors, 1);
}

#[test]
fn a_region_whose_table_cannot_be_read_is_reclaimed_all_the_same() {
    let device = Failing::new(small().capacity_bytes);
    let store = open(Arc::clone(&device) as Arc<dyn Device>, small());
    device.reads.store(true, Ordering::SeqCst);
    for key in 0..1500 {
        put_version(&store, key, 0);
        work_until_idle(&store);
    }
    device.reads.store(false, Ordering::SeqCst);
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
