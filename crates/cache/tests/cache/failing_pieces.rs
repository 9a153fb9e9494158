//! Refused inserts, and regions and transfers with pieces that fail at the first write.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use device::wrap::{FaultDevice, Faults};
use device::{Completion, Device, ErrorKind, IoError, MemoryDevice, Request};
use flashwright_cache::config::LogOptions;
use flashwright_cache::{Cache, FlashConfig, InsertOptions, Inserted, Layer, Refusal, SmallItems};
use parking_lot::Mutex;
use pollster::block_on;

const MIB: u64 = 1 << 20;
const DEFAULT_OPTIONS: InsertOptions = InsertOptions { pool: 0, ttl_seconds: None };
const PIECE_BYTES: u32 = 16 << 10;

/// Fails the first write to each offset within a region, except the offset of its first piece.
struct FirstWriteFails {
    inner: MemoryDevice,
    seen: Mutex<HashSet<u64>>,
}

impl Device for FirstWriteFails {
    device::forward_device!(inner: geometry, execute, counters, allocate_handle);

    fn submit(&self, request: Request, completion: Completion) {
        if let Request::Write { offset, .. } = &request
            && !offset.is_multiple_of(u64::from(4 * PIECE_BYTES))
            && self.seen.lock().insert(*offset)
        {
            return completion.complete(Err(IoError::new(ErrorKind::Medium, "the first write here")));
        }
        self.inner.submit(request, completion);
    }
}

/// Catches a regression: of several failed pieces, only the first is written again.
#[test]
fn every_failed_piece_of_a_region_is_written_again() {
    let device = FirstWriteFails { inner: MemoryDevice::new(32 * MIB), seen: Mutex::default() };
    let device = Arc::new(device);
    let mut flash = FlashConfig::new(Arc::clone(&device) as _);
    flash.pairs[0].soc_share = 0.0;
    flash.regions.region_bytes = 4 * PIECE_BYTES;
    flash.regions.max_write_bytes = PIECE_BYTES;
    flash.regions.write_attempts = 2;
    flash.region_alignment_bytes = u64::from(4 * PIECE_BYTES);
    let cache =
        Cache::builder().dram_bytes(2 * MIB).max_item_bytes(16 << 10).flash_config(flash).open().unwrap();
    let value = |number: u32| [number.to_le_bytes(), (!number).to_le_bytes()].concat().repeat(375);
    for number in 0..4000_u32 {
        cache.insert_blocking(&number.to_le_bytes(), &value(number), DEFAULT_OPTIONS);
    }
    cache.settle_blocking().unwrap();
    let stats = cache.stats().flash.unwrap();
    assert!(stats.regions.unwrap().write_errors > 300, "{:?}", stats.regions);
    assert_eq!(stats.lost_items(), 0);
    for number in 0..4000_u32 {
        assert_eq!(
            cache.get_blocking(&number.to_le_bytes()).as_deref(),
            Some(&value(number)[..]),
            "{number}"
        );
    }
}

/// Fails writes of more than one page or bucket, so that the cache has to write each page of a transfer separately.
fn whole_transfers_fail() -> Arc<FaultDevice> {
    let device = FaultDevice::new(Arc::new(MemoryDevice::new(32 * MIB)), 0, Faults::default());
    device.fail_where(|request| matches!(request, Request::Write { data, .. } if data.len() > 4096));
    Arc::new(device)
}

/// Catches a regression: of a failed transfer, only the first page is written again.
#[test]
fn every_page_of_a_failed_transfer_of_small_items_is_written_again() {
    for small_items in SMALL_ENGINES {
        let device = whole_transfers_fail();
        let cache =
            Cache::builder().dram_bytes(2 * MIB).max_item_bytes(16 << 10).flash(Arc::clone(&device) as _);
        let cache = cache.small_items(small_items).small_item_share(1.0).open().unwrap();
        let value = |number: u32| [number.to_le_bytes(), (!number).to_le_bytes()].concat().repeat(50);
        for number in 0..20_000_u32 {
            cache.insert_blocking(&number.to_le_bytes(), &value(number), DEFAULT_OPTIONS);
        }
        cache.settle_blocking().unwrap();
        let flash = cache.stats().flash.unwrap();
        assert!(device.injected() > 10, "{small_items:?}: {} failed writes", device.injected());
        assert_eq!(flash.lost_items(), 0, "{small_items:?}");
        let (mut on_flash, mut wrong) = (0, 0);
        for number in 0..20_000_u32 {
            let found = cache.get_blocking(&number.to_le_bytes());
            on_flash += u32::from(found.as_ref().is_some_and(|item| item.layer() == Layer::Flash));
            wrong += u32::from(found.as_deref() != Some(&value(number)[..]));
        }
        assert!(on_flash > 10_000, "{small_items:?}: {on_flash} on flash");
        assert!(wrong < 200, "{small_items:?}: {wrong} of 20,000 are not found");
    }
}

const SMALL_ENGINES: [SmallItems; 2] = [
    SmallItems::Sets,
    SmallItems::Log(LogOptions { expected_item_bytes: 256, readmission_share: 0.0, regions: None }),
];

/// A cache whose items are on flash in sets, in the log, or in regions.
fn open_engine(device: &Arc<dyn Device>, engine: Option<SmallItems>) -> Cache {
    let mut flash = FlashConfig::new(Arc::clone(device));
    flash.regions.region_bytes = 256 << 10;
    let builder = Cache::builder().dram_bytes(2 * MIB).max_item_bytes(16 << 10).flash_config(flash);
    match engine {
        Some(small_items) => builder.small_items(small_items).small_item_share(0.9).open().unwrap(),
        None => builder.small_item_share(0.0).open().unwrap(),
    }
}

type Insert = fn(&Cache, &[u8], &[u8], InsertOptions) -> Inserted;

/// All functions that insert an item.
const FORMS: [(&str, Insert); 5] = [
    ("insert", |cache, key, value, options| block_on(cache.insert(key, value, options))),
    ("insert_blocking", |cache, key, value, options| cache.insert_blocking(key, value, options)),
    ("try_insert", |cache, key, value, options| cache.try_insert(key, value, options)),
    ("insert_within", |cache, key, value, options| {
        block_on(cache.insert_within(key, value, options, Duration::from_secs(60)))
    }),
    ("insert_within_blocking", |cache, key, value, options| {
        cache.insert_within_blocking(key, value, options, Duration::from_secs(60))
    }),
];

/// An insert replaces the old value. If it is refused, a get must not return the old value.
#[test]
fn refused_insert_removes_the_old_value() {
    for engine in SMALL_ENGINES.map(Some).into_iter().chain([None]) {
        for on_flash in [false, true] {
            for (form, insert) in FORMS {
                check_refused_inserts(engine, on_flash, form, insert);
            }
        }
    }
}

fn check_refused_inserts(engine: Option<SmallItems>, on_flash: bool, form: &str, insert: Insert) {
    let case = format!("{form}, {engine:?}, on flash: {on_flash}");
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 * MIB));
    let cache = open_engine(&device, engine);
    // The old value has the size class of the items that evict it.
    let old = [7; 900];
    for key in [&b"large"[..], b"pool", b"kept"] {
        assert_eq!(cache.insert_blocking(key, &old, DEFAULT_OPTIONS), Inserted::Stored);
    }
    if on_flash {
        for number in 0..5000_u32 {
            _ = cache.insert_blocking(&number.to_le_bytes(), &[0; 900], DEFAULT_OPTIONS);
        }
        cache.settle_blocking().unwrap();
        assert!(cache.contains(b"large") && cache.contains(b"pool"), "{case}");
    }
    let refused = insert(&cache, b"large", &vec![1; 20 << 10], DEFAULT_OPTIONS);
    assert!(matches!(refused, Inserted::Rejected(Refusal::TooLarge { .. })), "{case}: {refused:?}");
    let no_pool = InsertOptions { pool: 9, ..DEFAULT_OPTIONS };
    assert_eq!(
        insert(&cache, b"pool", b"new", no_pool),
        Inserted::Rejected(Refusal::NoSuchPool(9)),
        "{case}"
    );
    let assert_removed = |cache: &Cache| {
        assert!(cache.get_blocking(b"large").is_none() && cache.get_blocking(b"pool").is_none(), "{case}");
    };
    assert_removed(&cache);
    let kept = cache.get_blocking(b"kept").expect(&case);
    assert_eq!((&kept[..], kept.layer() == Layer::Flash), (&old[..], on_flash), "{case}");
    drop(kept);
    cache.close().expect(&case);
    let cache = open_engine(&device, engine);
    assert_removed(&cache);
    assert_eq!(cache.get_blocking(b"kept").as_deref(), Some(&old[..]), "{case}");
}
