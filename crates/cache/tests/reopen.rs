//! What a clean close keeps, and what a crash must not bring back.

use std::sync::Arc;

use device::{Device, MemoryDevice};
use flashwright_cache::{Cache, CacheError, FlashConfig, InsertOptions};

const MIB: u64 = 1 << 20;
const ITEMS: u64 = 20_000;

fn open(device: &Arc<MemoryDevice>) -> Cache {
    let device: Arc<dyn Device> = Arc::clone(device) as _;
    let mut flash = FlashConfig::new(device);
    flash.pairs[0].soc_share = 0.5;
    flash.regions.region_bytes = MIB as u32;
    Cache::builder().dram_bytes(MIB).flash_config(flash).open().expect("the configuration fits")
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    let len = if number.is_multiple_of(8) { 4000 } else { 200 };
    number.to_le_bytes().iter().copied().cycle().take(len).collect()
}

fn fill(cache: &Cache) {
    for number in 0..ITEMS {
        cache.insert_blocking(&key(number), &value(number), &InsertOptions::default());
    }
}

/// Keys of `cache` found, each checked.
fn found(cache: &Cache) -> Vec<u64> {
    let numbers = (0..ITEMS).filter(|&number| {
        let item = cache.get_blocking(&key(number));
        assert!(item.as_deref().is_none_or(|item| item == value(number)), "key {number} has another's value");
        item.is_some()
    });
    numbers.collect()
}

#[test]
fn a_clean_close_keeps_what_is_on_flash() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let cache = open(&device);
    fill(&cache);
    let stored = cache.stats().flash.unwrap().puts.stored;
    cache.close().unwrap();
    let cache = open(&device);
    assert!(cache.stats().flash.unwrap().recovered);
    let kept = found(&cache).len() as u64;
    assert!(kept * 100 >= stored * 99, "{kept} of {stored} came back");
}

#[test]
fn what_was_removed_stays_removed_after_a_restart() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let cache = open(&device);
    fill(&cache);
    let removed: Vec<u64> = (0..ITEMS).filter(|number| number % 3 == 0).collect();
    removed.iter().for_each(|&number| {
        cache.remove(&key(number));
    });
    cache.close().unwrap();
    let back = found(&open(&device));
    assert!(!back.is_empty());
    let returned: Vec<_> = back.iter().filter(|number| removed.contains(number)).collect();
    assert!(returned.is_empty(), "removed keys came back: {returned:?}");
}

#[test]
fn a_cache_that_was_not_closed_comes_back_empty() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let cache = open(&device);
    fill(&cache);
    drop(cache);
    let cache = open(&device);
    assert!(!cache.stats().flash.unwrap().recovered);
    assert_eq!(found(&cache), []);
}

#[test]
fn a_snapshot_is_believed_once() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let cache = open(&device);
    fill(&cache);
    cache.close().unwrap();
    drop(open(&device));
    assert_eq!(found(&open(&device)), [], "the crash after the first reopening voids the snapshot");
}

#[test]
fn a_foreign_device_is_refused_by_name() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let mut head = device::IoBuffer::zeroed(4096);
    // The magic number of ext2, ext3 and ext4: 0xEF53 at byte 56 of the superblock at 1024.
    head[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xEF]);
    let write =
        device::Request::Write { offset: 0, data: head.into(), placement: device::PlacementHandle::DEFAULT };
    device.execute(write).unwrap();
    let flash = FlashConfig::new(Arc::clone(&device) as _);
    let refused = Cache::builder().flash_config(flash).open();
    let Err(CacheError::Occupied(reason)) = refused else { panic!("opened over a file system") };
    assert!(reason.contains("ext"), "{reason}");
}
