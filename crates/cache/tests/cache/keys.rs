//! Listing the keys on flash, and removing all keys with a prefix.

use std::collections::HashSet;
use std::sync::Arc;

use device::MemoryDevice;
use flashwright_cache::config::{LogOptions, UpkeepConfig};
use flashwright_cache::{Cache, CacheError, FlashConfig, InsertOptions, SmallItems};
use pollster::block_on;

const MIB: u64 = 1 << 20;
const DEFAULT_OPTIONS: InsertOptions = InsertOptions { pool: 0, ttl_seconds: None };

fn config(device: &Arc<MemoryDevice>) -> FlashConfig {
    let mut flash = FlashConfig::new(Arc::clone(device) as _);
    flash.regions.region_bytes = 256 << 10;
    flash.pending_bytes = 256 << 10;
    // Every bucket has space for all items that hash to it.
    flash.pairs[0].soc_share = 0.5;
    flash
}

fn open(device: &Arc<MemoryDevice>) -> Cache {
    open_with(device, SmallItems::Sets)
}

fn open_with(device: &Arc<MemoryDevice>, small_items: SmallItems) -> Cache {
    Cache::builder()
        .dram_bytes(2 * MIB)
        .max_item_bytes(16 << 10)
        .flash_config(config(device))
        .small_items(small_items)
        // Rebalancing would move items from DRAM to flash between two listings of the keys.
        .upkeep(UpkeepConfig { rebalance_interval_ms: 0, ..UpkeepConfig::default() })
        .open()
        .expect("the configuration is valid")
}

fn key(number: u32) -> Vec<u8> {
    format!("user/{}/{number}", number % 10).into_bytes()
}

/// Inserts small and large items; most of them are evicted to flash.
fn fill(cache: &Cache) {
    for number in 0..6000_u32 {
        let value = vec![number as u8; if number.is_multiple_of(5) { 3000 } else { 300 }];
        cache.insert_blocking(&key(number), &value, DEFAULT_OPTIONS);
    }
}

fn found(cache: &Cache) -> Vec<u32> {
    (0..6000).filter(|&number| cache.get_blocking(&key(number)).is_some()).collect()
}

#[test]
fn listed_keys_equal_the_keys_that_gets_find() {
    for small_items in [SmallItems::Sets, SmallItems::Log(LogOptions::default())] {
        let cache = open_with(&Arc::new(MemoryDevice::new(64 * MIB)), small_items);
        fill(&cache);
        for number in (0..6000).step_by(7) {
            cache.remove(&key(number));
        }
        for settled in [false, true] {
            if settled {
                cache.settle_blocking().unwrap();
            }
            let (mut in_dram, mut on_flash) = (HashSet::new(), HashSet::new());
            cache.for_each_key_in_dram(|key| _ = in_dram.insert(key.to_vec()));
            block_on(cache.for_each_key_on_flash(|key| _ = on_flash.insert(key.to_vec())));
            let mut again = HashSet::new();
            cache.for_each_key_on_flash_blocking(|key| _ = again.insert(key.to_vec()));
            assert!(on_flash.len() > 3000, "{} on flash", on_flash.len());
            let listed: HashSet<Vec<u8>> = in_dram.union(&on_flash).cloned().collect();
            let expected: HashSet<Vec<u8>> = found(&cache).into_iter().map(key).collect();
            let what = format!("{small_items:?}, settled {settled}");
            assert!(on_flash == again && listed == expected, "{what}: {} listed", listed.len());
            // The removal of an item also removes another item with the same fingerprint.
            let lost = (0..6000).filter(|number| number % 7 != 0).count() - expected.len();
            assert!(lost < 100, "{what}: {lost} lost");
        }
    }
}

#[test]
fn removed_prefix_is_absent_from_dram_and_flash_and_after_restart() {
    for small_items in [SmallItems::Sets, SmallItems::Log(LogOptions::default())] {
        let device = Arc::new(MemoryDevice::new(64 * MIB));
        let cache = open_with(&device, small_items);
        fill(&cache);
        let before = found(&cache);
        assert!(before.len() > 5900, "{}", before.len());
        assert!(cache.remove_prefix_blocking(b"user/3/") >= 590);
        assert!(block_on(cache.remove_prefix(b"user/4/")) >= 590);
        assert_eq!(cache.remove_prefix_blocking(b"nobody"), 0);
        let expected: Vec<u32> =
            before.into_iter().filter(|number| ![3, 4].contains(&(number % 10))).collect();
        assert_eq!(found(&cache), expected);
        cache.insert_blocking(&key(3), b"new", DEFAULT_OPTIONS);
        assert_eq!(cache.get_blocking(&key(3)).as_deref(), Some(&b"new"[..]));
        cache.close().unwrap();
        let cache = open_with(&device, small_items);
        assert!(found(&cache).iter().all(|number| *number == 3 || ![3, 4].contains(&(number % 10))));
    }
}

#[test]
fn empty_prefix_removes_every_key() {
    let cache = open(&Arc::new(MemoryDevice::new(64 * MIB)));
    fill(&cache);
    cache.remove_prefix_blocking(b"");
    assert_eq!(found(&cache), []);
}

/// The fetch reads its source before the keys are removed.
#[test]
fn fetch_started_before_its_prefix_is_removed_is_not_stored() {
    let cache = open(&Arc::new(MemoryDevice::new(64 * MIB)));
    let answered = event_listener::Event::new();
    let answer = answered.listen();
    let mut load = Box::pin(cache.get_or_insert_with(b"user/1", DEFAULT_OPTIONS, async move || {
        answer.await;
        Ok::<_, ()>(b"old".to_vec())
    }));
    assert!(futures_util::FutureExt::now_or_never(&mut load).is_none());
    cache.remove_prefix_blocking(b"user/");
    answered.notify(1);
    assert_eq!(*block_on(load).unwrap(), *b"old");
    assert!(cache.get_blocking(b"user/1").is_none());
}

/// Two caches on one device would overwrite each other's items.
#[test]
fn second_cache_on_a_device_is_refused_until_the_first_is_closed() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let cache = open(&device);
    let second =
        Cache::builder().dram_bytes(2 * MIB).max_item_bytes(16 << 10).flash_config(config(&device)).open();
    let Err(CacheError::Occupied(why)) = second else { panic!("the cache must be refused") };
    assert!(why.starts_with("the flash device is in use by another cache"), "{why}");
    cache.insert_blocking(b"key", b"value", DEFAULT_OPTIONS);
    cache.close().unwrap();
    let cache = open(&device);
    assert!(cache.get_blocking(b"key").is_some());
    drop(cache);
    drop(open(&device));
    let two: Vec<Arc<MemoryDevice>> = (0..2).map(|_| Arc::new(MemoryDevice::new(64 * MIB))).collect();
    let caches: Vec<Cache> = two.iter().map(open).collect();
    drop(caches);
}
