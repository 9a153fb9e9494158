//! Item destructors are called exactly once for every item that leaves the cache, from DRAM and from flash.
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Waker};

use device::{Clock, MemoryDevice, VirtualClock};
use flashwright_cache::config::{Destroyed, LogOptions, Removal};
use flashwright_cache::{Builder, Cache, FlashConfig, InsertOptions, Inserted, Layer, SmallItems, block_on};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const NO_TTL: InsertOptions = InsertOptions { pool: 0, ttl_seconds: None };
const MIB: u64 = 1 << 20;

/// Counts the destructor calls of each item by the number at the start of its value.
#[derive(Default)]
struct Ledger {
    next: AtomicUsize,
    calls: Mutex<Vec<Vec<(Removal, Layer)>>>,
}

impl Ledger {
    fn new_value(&self, len: usize) -> (usize, Vec<u8>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut value = vec![number as u8; len.max(8)];
        value[..8].copy_from_slice(&(number as u64).to_le_bytes());
        (number, value)
    }

    fn destroyed(&self, Destroyed { value, reason, layer, .. }: &Destroyed<'_>) {
        let number = u64::from_le_bytes(value[..8].try_into().unwrap()) as usize;
        assert!(value[8..].iter().all(|byte| *byte == number as u8), "the value is the item's own");
        let mut calls = self.calls.lock();
        if calls.len() <= number {
            calls.resize(number + 1, Vec::new());
        }
        calls[number].push((*reason, *layer));
    }

    fn calls_of(&self, number: usize) -> Vec<(Removal, Layer)> {
        self.calls.lock().get(number).cloned().unwrap_or_default()
    }
}

fn with_ledger(builder: Builder) -> (Builder, Arc<Ledger>) {
    let ledger = Arc::new(Ledger::default());
    let recorder = Arc::clone(&ledger);
    let destructor = Arc::new(move |item: &Destroyed<'_>| recorder.destroyed(item));
    (builder.item_destructor(destructor), ledger)
}

fn dram_alone() -> Builder {
    Cache::builder().dram_bytes(4 * MIB).max_item_bytes(16 << 10)
}

/// The engines for small items: sets, and logs with and without readmission.
fn engines() -> [SmallItems; 3] {
    let log = |readmission_share| {
        SmallItems::Log(LogOptions { readmission_share, expected_item_bytes: 400, regions: None })
    };
    [SmallItems::Sets, log(0.0), log(0.25)]
}

fn hybrid(flash_mib: u64, small_items: SmallItems) -> Builder {
    let mut flash = FlashConfig::new(Arc::new(MemoryDevice::new(flash_mib * MIB)));
    flash.regions.region_bytes = 128 << 10;
    flash.pending_bytes = 64 << 10;
    flash.pairs[0].soc_share = 0.4;
    flash.small_items = Some(small_items);
    dram_alone().flash_config(flash)
}

/// Inserts an item and returns its number.
fn insert(cache: &Cache, ledger: &Ledger, key: u64, len: usize, options: &InsertOptions) -> usize {
    let (number, value) = ledger.new_value(len);
    assert_eq!(cache.insert_blocking(&key.to_le_bytes(), &value, options), Inserted::Stored);
    number
}

/// Inserts items of other keys, which evict earlier ones from DRAM, and waits until those are written to flash.
fn push_to_flash(cache: &Cache, ledger: &Ledger) {
    for len in [300, 3000] {
        for other in 0..6 * MIB / len {
            insert(cache, ledger, (1 << 40) + len * (1 << 20) + other, len as usize, &NO_TTL);
        }
    }
    cache.settle_blocking().unwrap();
}

#[test]
fn replaced_and_removed_items_in_dram_are_destroyed_immediately() {
    let (builder, ledger) = with_ledger(dram_alone());
    let cache = builder.open().unwrap();
    let old = insert(&cache, &ledger, 1, 100, &NO_TTL);
    let new = insert(&cache, &ledger, 1, 100, &NO_TTL);
    assert_eq!(
        (ledger.calls_of(old), ledger.calls_of(new)),
        (vec![(Removal::Replaced, Layer::Dram)], vec![])
    );
    assert!(cache.remove(&1_u64.to_le_bytes()));
    assert_eq!(ledger.calls_of(new), [(Removal::Removed, Layer::Dram)]);
    let cleared = insert(&cache, &ledger, 2, 100, &NO_TTL);
    cache.clear();
    assert_eq!(ledger.calls_of(cleared), [(Removal::Cleared, Layer::Dram)]);
}

#[test]
fn item_only_on_flash_is_destroyed_with_its_value_after_remove_or_replace() {
    for (len, small_items) in [300, 3000].into_iter().zip(engines()).chain([(300, engines()[1])]) {
        let (builder, ledger) = with_ledger(hybrid(32, small_items));
        let cache = builder.open().unwrap();
        let [removed, replaced] = [1, 2].map(|key| insert(&cache, &ledger, key, len, &NO_TTL));
        push_to_flash(&cache, &ledger);
        assert_eq!((ledger.calls_of(removed), ledger.calls_of(replaced)), (vec![], vec![]));
        assert!(cache.remove(&1_u64.to_le_bytes()));
        insert(&cache, &ledger, 2, len, &NO_TTL);
        cache.settle_blocking().unwrap();
        assert_eq!(ledger.calls_of(removed), [(Removal::Removed, Layer::Flash)], "{len}");
        assert_eq!(ledger.calls_of(replaced), [(Removal::Replaced, Layer::Flash)], "{len}");
    }
}

#[test]
fn item_in_dram_and_on_flash_is_destroyed_once() {
    for (len, small_items) in [300, 3000].into_iter().zip(engines()).chain([(300, engines()[2])]) {
        let (builder, ledger) = with_ledger(hybrid(32, small_items));
        let cache = builder.open().unwrap();
        let number = insert(&cache, &ledger, 1, len, &NO_TTL);
        push_to_flash(&cache, &ledger);
        assert!(cache.get_blocking(&1_u64.to_le_bytes()).is_some(), "the get promotes the item to DRAM");
        assert!(cache.remove(&1_u64.to_le_bytes()));
        cache.settle_blocking().unwrap();
        for round in 0..4 {
            push_to_flash(&cache, &ledger);
            assert_eq!(ledger.calls_of(number), [(Removal::Removed, Layer::Dram)], "{len}, round {round}");
        }
    }
}

/// Between the steps of a clear, items on flash are evicted by inserts.
#[test]
fn items_in_dram_and_on_flash_are_destroyed_once_by_a_clear() {
    for (len, small_items) in [300, 3000].into_iter().zip(engines()) {
        let (builder, ledger) = with_ledger(hybrid(32, small_items));
        let cache = builder.open().unwrap();
        let numbers: Vec<_> = (0..20).map(|key| insert(&cache, &ledger, key, len, &NO_TTL)).collect();
        push_to_flash(&cache, &ledger);
        // A get promotes the item to DRAM, from where it may be evicted again.
        (0..20_u64).for_each(|key| drop(cache.get_blocking(&key.to_le_bytes())));
        let destroyed = || numbers.iter().filter(|&&number| !ledger.calls_of(number).is_empty());
        let mut clear = pin!(cache.clear_async());
        while destroyed().count() == 0 {
            assert!(clear.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        let of_dram: Vec<_> = destroyed().collect();
        (0..4).for_each(|_| push_to_flash(&cache, &ledger));
        block_on(clear);
        for number in of_dram {
            assert_eq!(ledger.calls_of(*number), [(Removal::Cleared, Layer::Dram)], "{len}, item {number}");
        }
    }
}

/// A clear drops the regions from which the values would be read. Sets call the destructor only when they write the bucket.
#[test]
fn items_removed_from_a_log_or_regions_just_before_a_clear_are_destroyed_with_their_values() {
    let [sets, log, _] = engines();
    for (len, small_items) in [(3000, sets), (300, log), (3000, log)] {
        let (builder, ledger) = with_ledger(hybrid(32, small_items));
        let cache = builder.open().unwrap();
        // So many that the background work has not called all destructors before the clear.
        let numbers: Vec<_> = (0..2000).map(|key| insert(&cache, &ledger, key, len, &NO_TTL)).collect();
        push_to_flash(&cache, &ledger);
        (0..2000_u64).for_each(|key| _ = cache.remove(&key.to_le_bytes()));
        cache.clear();
        for number in numbers {
            assert_eq!(ledger.calls_of(number).len(), 1, "{len}, {small_items:?}, item {number}");
        }
    }
}

#[test]
fn expired_item_is_destroyed_once_from_dram_and_from_flash() {
    for small_items in engines() {
        let clock = Arc::new(VirtualClock::default());
        let shown: Arc<dyn Clock> = Arc::clone(&clock) as _;
        let (builder, ledger) = with_ledger(hybrid(32, small_items).clock(shown));
        let cache = builder.open().unwrap();
        let for_a_minute = InsertOptions { pool: 0, ttl_seconds: Some(60) };
        let on_flash =
            [(1, 300), (2, 3000)].map(|(key, len)| insert(&cache, &ledger, key, len, &for_a_minute));
        push_to_flash(&cache, &ledger);
        let in_dram = insert(&cache, &ledger, 3, 300, &for_a_minute);
        clock.advance_by(61_000_000_000);
        assert!(cache.get_blocking(&3_u64.to_le_bytes()).is_none());
        assert_eq!(ledger.calls_of(in_dram), [(Removal::Expired, Layer::Dram)]);
        for _ in 0..6 {
            push_to_flash(&cache, &ledger);
        }
        let expired = [(Removal::Expired, Layer::Flash)];
        assert_eq!(on_flash.map(|number| ledger.calls_of(number)), [expired, expired], "{small_items:?}");
    }
}

#[test]
fn refused_insert_destroys_the_old_item_only() {
    let (builder, ledger) = with_ledger(dram_alone());
    let cache = builder.open().unwrap();
    let old = insert(&cache, &ledger, 1, 100, &NO_TTL);
    let (refused, value) = ledger.new_value(1 << 20);
    assert_ne!(cache.insert_blocking(&1_u64.to_le_bytes(), &value, NO_TTL), Inserted::Stored);
    assert_eq!(
        (ledger.calls_of(old), ledger.calls_of(refused)),
        (vec![(Removal::Removed, Layer::Dram)], vec![])
    );
}

/// Runs one thread of the stress test; returns the numbers of the items it inserted.
fn stress(cache: &Cache, ledger: &Ledger, clock: Option<&VirtualClock>, seed: u64) -> Vec<usize> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut stored = Vec::new();
    for turn in 0..25_000 {
        let key = random.random_range(0..1500_u64);
        let name = key.to_le_bytes();
        // Each key has one size or two, so that an item can move from buckets to regions.
        let len = if random.random_bool(0.1) { 4000 } else { 200 + (key as usize % 7) * 900 };
        match random.random_range(0..100) {
            0..35 => {
                let ttl_seconds = random.random_bool(0.2).then(|| random.random_range(0..20));
                stored.push(insert(cache, ledger, key, len, &InsertOptions { pool: 0, ttl_seconds }));
            }
            35..40 => {
                let (number, value) = ledger.new_value(len);
                let mut item = cache.allocate_blocking(&name, value.len(), NO_TTL).unwrap();
                item.copy_from_slice(&value);
                if cache.insert_new_if_absent(item) {
                    stored.push(number);
                }
            }
            40..80 => drop(cache.get_blocking(&name)),
            80..85 => _ = cache.add_chained_blocking(&name, 500, |link| link.fill(1)),
            85..88 => _ = cache.set_ttl_blocking(&name, Some(30)),
            _ => _ = cache.remove(&name),
        }
        if let Some(clock) = clock.filter(|_| turn % 1000 == 0) {
            clock.advance_by(1_000_000_000);
        }
    }
    stored
}

fn check_stress(builder: Builder, what: &str) {
    let seed = AtomicU64::new(7);
    let clock = Arc::new(VirtualClock::default());
    let shown: Arc<dyn Clock> = Arc::clone(&clock) as _;
    let (builder, ledger) = with_ledger(builder.clock(shown));
    let cache = builder.open().unwrap();
    let stored: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|number| {
                let (cache, ledger, clock) = (&cache, &ledger, &clock);
                let seed = seed.fetch_add(1, Ordering::Relaxed);
                scope.spawn(move || stress(cache, ledger, (number == 0).then_some(&**clock), seed))
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    (0..1500_u64).for_each(|key| _ = cache.remove(&key.to_le_bytes()));
    cache.settle_blocking().unwrap();
    let mut expected = vec![0; ledger.next.load(Ordering::Relaxed)];
    stored.iter().for_each(|number| expected[*number] = 1);
    for (number, expected) in expected.into_iter().enumerate() {
        let calls = ledger.calls_of(number);
        assert_eq!(calls.len(), expected, "{what}: item {number}: {calls:?}");
    }
}

#[test]
fn every_item_is_destroyed_exactly_once_under_threads() {
    check_stress(dram_alone(), "DRAM alone");
    for small_items in engines() {
        check_stress(hybrid(8, small_items), &format!("{small_items:?}"));
    }
}
