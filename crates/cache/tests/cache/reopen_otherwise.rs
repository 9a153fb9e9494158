//! The reason that a cache reports when it opens empty on a device that another configuration divided differently.

use std::sync::Arc;

use device::MemoryDevice;
use flashwright_cache::config::LogOptions;
use flashwright_cache::config::regions::{Caching, RegionConfig};
use flashwright_cache::{Cache, FlashConfig, InsertOptions, SmallItems};

const MIB: u64 = 1 << 20;

fn open(device: &Arc<MemoryDevice>, change: impl FnOnce(&mut FlashConfig)) -> Cache {
    let mut flash = FlashConfig::new(Arc::clone(device) as _);
    flash.regions.region_bytes = MIB as u32;
    change(&mut flash);
    Cache::builder().dram_bytes(4 * MIB).flash_config(flash).open().expect("the configuration is valid")
}

/// The loss reported by a cache that was closed and is opened with one changed setting.
fn loss(change: impl FnOnce(&mut FlashConfig)) -> &'static str {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let cache = open(&device, |_| ());
    cache.insert_blocking(b"key", b"value", InsertOptions::default());
    cache.close().expect("the device works");
    open(&device, change).stats().flash.and_then(|flash| flash.loss).expect("the cache reopened empty")
}

/// Catches a regression: for any changed setting, the reason names the size of flash, of regions or of buckets.
#[test]
fn loss_names_the_changed_setting() {
    let named = [
        (loss(|flash| flash.bucket_bytes = 8192), "bucket_bytes"),
        (loss(|flash| flash.pairs[0].soc_share = 0.2), "soc_share"),
        (loss(|flash| flash.pairs[0].soc_share = 1.0), "soc_share"),
        (loss(|flash| flash.pairs[0].device_share = 0.5), "another size"),
        (loss(|flash| flash.regions.region_bytes *= 2), "region_bytes"),
        (loss(|flash| flash.filter_bytes_per_bucket = 16), "filter_bytes_per_bucket"),
        (loss(|flash| flash.regions.unit_bytes = 128), "unit_bytes"),
        (loss(|flash| flash.small_item_max_bytes = 300), "small_item_max_bytes"),
        (loss(|flash| flash.metadata_bytes = Some(4 << 20)), "metadata_bytes"),
    ];
    for (loss, name) in named {
        assert!(loss.contains(name), "{name} has changed, but the loss is: {loss}");
    }
    let ripq = loss(|flash| {
        let regions = RegionConfig::ripq(64 * MIB, Caching::Lru);
        flash.regions = RegionConfig { region_bytes: MIB as u32, ..regions };
    });
    assert!(ripq.contains("the order of regions"), "{ripq}");
}

/// Closes a cache with `first`, and opens another on its device with `then`. Returns the reason for an empty start.
fn loss_between_engines(first: Option<SmallItems>, then: Option<SmallItems>) -> Option<&'static str> {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let cache = open(&device, |flash| flash.small_items = first);
    cache.insert_blocking(b"key", b"value", InsertOptions::default());
    cache.close().expect("the device works");
    let cache = open(&device, |flash| flash.small_items = then);
    let flash = cache.stats().flash.expect("the cache has flash");
    assert_eq!(flash.recovered, flash.loss.is_none());
    assert_eq!(cache.get_blocking(b"key").is_some(), flash.recovered);
    flash.loss
}

#[test]
fn cache_without_a_configured_engine_keeps_the_engine_of_the_device() {
    let log = Some(SmallItems::Log(LogOptions::default()));
    for first in [Some(SmallItems::Sets), log, None] {
        assert_eq!(loss_between_engines(first, None), None, "{first:?}");
    }
    assert_eq!(loss_between_engines(None, log), None, "a log is the default");
}

#[test]
fn cache_with_another_engine_than_the_device_starts_empty_with_the_reason() {
    let log = Some(SmallItems::Log(LogOptions::default()));
    for (first, then) in [(Some(SmallItems::Sets), log), (log, Some(SmallItems::Sets))] {
        let loss = loss_between_engines(first, then).expect("the cache reopened empty");
        assert!(loss.contains("small_items"), "{loss}");
    }
}

#[test]
fn compatible_configuration_change_keeps_the_items() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    open(&device, |_| ()).close().unwrap();
    let stats = open(&device, |flash| flash.pending_bytes = 1 << 20).stats().flash.unwrap();
    assert!(stats.recovered && stats.loss.is_none());
}
