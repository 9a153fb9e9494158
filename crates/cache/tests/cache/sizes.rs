//! The sizes of items that a cache stores, in DRAM, buckets and regions.

use std::sync::Arc;

use flashwright_cache::config::CacheConfig;
use flashwright_cache::device::MemoryDevice;
use flashwright_cache::stats::FlashStats;
use flashwright_cache::{Builder, Cache, CacheError, FlashConfig, InsertOptions, Inserted};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn hybrid(flash_bytes: u64) -> Builder {
    Cache::builder().dram_bytes(4 * MIB).flash(Arc::new(MemoryDevice::new(flash_bytes)))
}

fn refused(builder: Builder) -> String {
    match builder.open() {
        Err(CacheError::Config(message)) => message,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("the cache must be refused"),
    }
}

fn filled_with_small_items(builder: Builder) -> FlashStats {
    let cache = builder.open().expect("the configuration is valid");
    for number in 0..60_000_u32 {
        cache.insert_blocking(&number.to_le_bytes(), &[7; 1000], InsertOptions::default());
    }
    cache.settle_blocking().expect("nothing is lost");
    cache.stats().flash.expect("the cache has flash")
}

/// Catches a regression: small items use a tenth of flash, and neither the setting nor the unused space is reported.
#[test]
fn small_items_use_their_configured_share_of_flash() {
    let by_default = filled_with_small_items(hybrid(64 * MIB));
    let (small, large) = (by_default.soc_room, by_default.regions_room);
    assert!(small.bytes < 7 * MIB && small.used_bytes > small.bytes * 9 / 10, "{small:?}");
    assert!(large.bytes > 50 * MIB && large.used_bytes <= 2 * MIB, "{large:?}");
    let requested = filled_with_small_items(hybrid(64 * MIB).small_item_share(0.9));
    let small = requested.soc_room;
    assert!(small.bytes > 55 * MIB && small.used_bytes > 40 * MIB, "{small:?}");
    assert!(requested.soc.unwrap().stored_items > 4 * by_default.soc.unwrap().stored_items);
}

#[test]
fn small_item_share_is_accepted_before_flash_and_refused_without_it() {
    let flash = Arc::new(MemoryDevice::new(64 * MIB));
    let cache = Cache::builder().dram_bytes(4 * MIB).small_item_share(0.5).flash(flash).open().unwrap();
    assert_eq!(cache.stats().flash.unwrap().soc_room.bytes, 32 * MIB);
    assert!(refused(Cache::builder().small_item_share(0.5)).contains("needs flash"));
    assert!(refused(hybrid(64 * MIB).small_item_share(1.5)).contains("between 0 and 1"));
}

/// Catches a regression: a configured largest item is lowered silently, and items of that size are refused later.
#[test]
fn max_item_bytes_beyond_dram_is_refused_with_the_needed_size() {
    let requested = |dram_bytes: u64| Cache::builder().dram_bytes(dram_bytes).max_item_bytes(1 << 20);
    let message = refused(requested(16 * MIB));
    assert!(message.contains("values of at most 262144") && message.contains("67108864 bytes"), "{message}");
    assert!(refused(requested(64 * MIB - 1)).contains("values of at most 524288"));
    let cache = requested(64 * MIB).open().unwrap();
    assert_eq!(cache.max_item_bytes() as u64, MIB);
    let value = vec![7; MIB as usize];
    assert_eq!(cache.insert_blocking(b"key", &value, InsertOptions::default()), Inserted::Stored);
    let message = refused(Cache::builder().memory_budget_bytes(64 * MIB).max_item_bytes(1 << 20));
    assert!(message.contains("left by memory_budget_bytes"), "{message}");
}

#[test]
fn default_largest_item_is_lowered_to_fit_and_reported() {
    let cache = Cache::builder().dram_bytes(16 * MIB).open().unwrap();
    assert_eq!(cache.max_item_bytes() as u64, 256 * KIB);
    let config = CacheConfig { seed: 7, ..CacheConfig::default() };
    assert_eq!(
        Cache::builder().max_item_bytes(1 << 30).config(config).open().unwrap().max_item_bytes() as u64,
        MIB
    );
}

/// Catches a regression: items larger than a region are lost at their eviction from DRAM without a report.
#[test]
fn max_item_bytes_beyond_a_region_is_refused_with_the_needed_size() {
    let requested = |flash_bytes: u64, bytes: u32| {
        let flash = FlashConfig::new(Arc::new(MemoryDevice::new(flash_bytes)));
        (Cache::builder().dram_bytes(256 * MIB).max_item_bytes(bytes), flash)
    };
    let (builder, mut flash) = requested(64 * MIB, 2 << 20);
    let message = refused(builder.clone().flash_config(flash.clone()));
    assert!(message.contains("to 3145728 (now 1048576)"), "{message}");
    flash.regions.region_bytes = 3 << 20;
    let cache = builder.flash_config(flash).open().unwrap();
    let value = vec![7; cache.max_item_bytes()];
    for number in 0..200_u32 {
        cache.insert_blocking(&number.to_le_bytes(), &value, InsertOptions::default());
    }
    let puts = cache.stats().flash.unwrap().puts;
    assert!(puts.stored > 0 && puts.rejected_too_large == 0, "{puts:?}");

    let (builder, flash) = requested(64 * MIB, 1 << 20);
    assert!(refused(builder.flash_config(flash)).contains("would never be written to flash"));
    let (builder, flash) = requested(64 * MIB, 1 << 20);
    assert!(
        builder.flash_config(flash).small_item_share(1.0).open().is_ok(),
        "a cache without regions accepts the size"
    );
    let (builder, flash) = requested(256 * MIB, 1 << 20);
    assert!(builder.flash_config(flash).open().is_ok());
}

#[test]
fn len_counts_items_without_links() {
    let insert = |cache: &Cache, number: u32| {
        cache.insert_blocking(&number.to_le_bytes(), &[7; 1000], InsertOptions::default());
    };
    let cache = Cache::builder().dram_bytes(4 * MIB).open().unwrap();
    assert!(cache.is_empty());
    (0..100).for_each(|number| insert(&cache, number));
    cache.add_chained_blocking(&7_u32.to_le_bytes(), 100, |link| link.fill(8)).unwrap();
    cache.remove(&8_u32.to_le_bytes());
    assert_eq!(cache.len(), 99, "chained items are not counted");

    let cache = hybrid(64 * MIB).open().unwrap();
    (0..6000).for_each(|number| insert(&cache, number));
    cache.settle_blocking().unwrap();
    let found = (0..6000_u32).filter(|number| cache.get_blocking(&number.to_le_bytes()).is_some()).count();
    assert!((found..=12_000).contains(&cache.len()) && found > 5500, "{found} of {}", cache.len());
    cache.clear();
    assert!(cache.is_empty());
}

/// Two items with one address cannot be in one region: the second one goes to the next region, which `settle` has to
/// write too. The hash seed of each cache is random, and most seeds give such items.
#[test]
fn settle_with_items_of_one_address_leaves_none_pending() {
    for run in 0..12 {
        let cache = hybrid(64 * MIB).open().expect("the configuration is valid");
        for number in 0..20_000_u32 {
            cache.insert_blocking(&number.to_le_bytes(), &[0; 300], InsertOptions::default());
        }
        cache.settle_blocking().expect("nothing is lost");
        assert_eq!(cache.stats().flash.map(|flash| flash.waiting_bytes()), Some(0), "run {run}");
    }
}
