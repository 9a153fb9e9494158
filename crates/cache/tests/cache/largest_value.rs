//! Values of `max_item_bytes`, and of one byte less or more, in DRAM and on flash, before and after a restart.

use std::sync::Arc;

use flashwright_cache::config::LogOptions;
use flashwright_cache::config::regions::{Caching, RegionConfig};
use flashwright_cache::device::{Device, MemoryDevice};
use flashwright_cache::{
    Builder, Cache, FlashConfig, InsertOptions, Inserted, Layer, Refusal, SmallItems, block_on,
};

const MIB: u64 = 1 << 20;

fn value(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect()
}

fn insert(cache: &Cache, key: &[u8], len: usize) -> Inserted {
    cache.insert_blocking(key, &value(key.len() as u8, len), InsertOptions::default())
}

fn is_intact(cache: &Cache, key: &[u8], len: usize) -> bool {
    block_on(cache.get(key)).is_some_and(|item| *item == value(key.len() as u8, len))
}

/// Keys of one byte, of memcached's longest key, and of the longest key that the cache accepts beside the value.
fn keys() -> [Vec<u8>; 3] {
    [1, 250, 255].map(|len| vec![b'k'; len])
}

fn refused_as_too_large(ended: Inserted, bytes: usize, max_bytes: usize) {
    assert_eq!(ended, Inserted::Rejected(Refusal::TooLarge { bytes, max_bytes }));
}

#[test]
fn value_of_the_limit_is_stored_in_dram_and_one_byte_more_is_refused() {
    for (dram_bytes, limit) in
        [(4 * MIB, 10_007), (4 * MIB, 64 << 10), (64 * MIB, 1 << 20), (64 * MIB, 999_999)]
    {
        let cache = Cache::builder().dram_bytes(dram_bytes).max_item_bytes(limit).open().unwrap();
        let limit = limit as usize;
        assert_eq!(cache.max_item_bytes(), limit);
        for key in keys() {
            for len in [limit - 1, limit] {
                assert_eq!(insert(&cache, &key, len), Inserted::Stored, "{len} of {limit}");
                assert!(is_intact(&cache, &key, len));
            }
            refused_as_too_large(insert(&cache, &key, limit + 1), limit + 1, limit);
            assert!(cache.get_blocking(&key).is_none(), "a refused insert removes the old value");
        }
        let long_key = vec![b'k'; 355];
        assert_eq!(insert(&cache, &long_key, limit - 100), Inserted::Stored);
        refused_as_too_large(insert(&cache, &long_key, limit), limit + 100, limit);
    }
}

#[test]
fn value_of_the_default_limit_is_stored() {
    for (dram_bytes, limit) in [(16 * MIB, 256 << 10), (64 * MIB, 1 << 20), (1024 * MIB, 1 << 20)] {
        let cache = Cache::builder().dram_bytes(dram_bytes).open().unwrap();
        assert_eq!(cache.max_item_bytes(), limit, "{dram_bytes} bytes of DRAM");
        assert_eq!(insert(&cache, b"key", limit), Inserted::Stored);
        refused_as_too_large(insert(&cache, b"key", limit + 1), limit + 1, limit);
    }
}

#[test]
fn draft_and_chained_item_of_the_limit_are_accepted() {
    let cache = Cache::builder().dram_bytes(16 * MIB).max_item_bytes(64 << 10).open().unwrap();
    let limit = 64 << 10;
    let draft = cache.allocate_blocking(b"key", limit, InsertOptions::default()).unwrap();
    cache.insert_new(draft);
    cache.add_chained_blocking(b"key", limit, |link| link.fill(8)).unwrap();
    assert!(cache.add_chained_blocking(b"key", limit + 1, |link| link.fill(8)).is_err());
    assert!(cache.allocate_blocking(b"key", limit + 1, InsertOptions::default()).is_err());
}

/// Writes values around the limit, evicts them to flash, and finds them there, before and after a restart.
fn check_on_flash(limit: usize, builder: impl Fn(&Arc<dyn Device>) -> Builder, name: &str) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 * MIB));
    let open = || builder(&device).max_item_bytes(limit as u32).open().expect(name);
    let cache = open();
    let stored: Vec<(Vec<u8>, usize)> = keys()
        .into_iter()
        .flat_map(|key| {
            [limit - 1, limit].map(|len| ([&key[..key.len() - 1], &len.to_le_bytes()[..1]].concat(), len))
        })
        .collect();
    for (key, len) in &stored {
        assert_eq!(insert(&cache, key, *len), Inserted::Stored, "{name}");
    }
    refused_as_too_large(insert(&cache, b"large", limit + 1), limit + 1, limit);
    cache.close().expect(name);
    let cache = open();
    for (key, len) in &stored {
        let item = cache.get_blocking(key);
        let layer = item.as_ref().map(|item| item.layer());
        assert_eq!(layer, Some(Layer::Flash), "{name}: {len} bytes under a key of {}", key.len());
        assert!(is_intact(&cache, key, *len), "{name}");
    }
    let puts = cache.stats().flash.expect("the cache has flash").puts;
    assert_eq!(puts.rejected_too_large, 0, "{name}");
}

#[test]
fn value_of_the_limit_survives_on_flash_in_each_engine() {
    let log = || SmallItems::Log(LogOptions::default());
    for (name, small_items) in [("sets", SmallItems::Sets), ("log", log())] {
        for limit in [100, 2048 - 255] {
            let small = |device: &Arc<dyn Device>| {
                let builder = Cache::builder().dram_bytes(4 * MIB).flash(Arc::clone(device));
                builder.small_items(small_items).small_item_share(0.5)
            };
            check_on_flash(limit, small, &format!("{name}, {limit}"));
        }
    }
    for (name, small_items) in [("sets alone", SmallItems::Sets), ("log alone", log())] {
        for limit in [1000, 2048, 3000] {
            let alone = |device: &Arc<dyn Device>| {
                let builder = Cache::builder().dram_bytes(4 * MIB).flash(Arc::clone(device));
                builder.small_items(small_items).small_item_share(1.0)
            };
            check_on_flash(limit, alone, &format!("{name}, {limit}"));
        }
    }
    type Make = fn(u64) -> RegionConfig;
    let regions: [(&str, Make); 4] = [
        ("default", RegionConfig::new),
        ("mcdipper", RegionConfig::mcdipper),
        ("blockcache", RegionConfig::blockcache),
        ("ripq", |bytes| RegionConfig::ripq(bytes, Caching::Slru { segments: 4 })),
    ];
    for (name, make) in regions {
        for limit in [2048, 4096, 64 << 10, 500_000] {
            let large = |device: &Arc<dyn Device>| {
                let mut flash = FlashConfig::new(Arc::clone(device));
                flash.regions = RegionConfig { region_bytes: MIB as u32, ..make(50 * MIB) };
                Cache::builder().dram_bytes(64 * MIB).flash_config(flash).small_item_share(0.1)
            };
            check_on_flash(limit, large, &format!("{name}, {limit}"));
        }
    }
}
