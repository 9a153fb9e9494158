//! Items that outlive the borrow of their cache.

use std::sync::Arc;

use flashwright_cache::device::MemoryDevice;
use flashwright_cache::{Cache, FlashConfig, InsertOptions, Layer, OwnedItem};

const MIB: u64 = 1 << 20;
const DEFAULT_OPTIONS: InsertOptions = InsertOptions { pool: 0, ttl_seconds: None };

fn cache() -> Cache {
    Cache::builder().dram_bytes(MIB).max_item_bytes(16 << 10).open().expect("the configuration is valid")
}

/// An item that borrowed the cache could leave the function or task that owns the cache only as a copy.
#[test]
fn owned_item_outlives_its_cache() {
    fn handler(cache: &Arc<Cache>) -> OwnedItem {
        cache.get_owned_blocking(b"key").expect("the item is found")
    }
    let cache = Arc::new(cache());
    cache.insert_blocking(b"key", &[7; 10_000], InsertOptions { ttl_seconds: Some(60), ..DEFAULT_OPTIONS });
    cache.add_chained_blocking(b"key", 100, |link| link.fill(8)).unwrap();
    let item = handler(&cache);
    assert_eq!((item.layer(), item.pool().0, item.expiry_seconds().is_some()), (Layer::Dram, 0, true));
    drop(cache);
    // The item borrows nothing, so it can move to another thread.
    let read: Box<dyn FnOnce() -> _ + Send> =
        Box::new(move || (item.to_vec(), item.chain().map(<[u8]>::to_vec).collect()));
    let read = std::thread::scope(|scope| scope.spawn(read).join().unwrap());
    assert_eq!(read, (vec![7; 10_000], vec![vec![8; 100]]));
}

#[test]
fn kept_item_is_unchanged_after_replacement_and_eviction() {
    let cache = cache();
    cache.insert_blocking(b"key", &[1; 5000], DEFAULT_OPTIONS);
    let held = pollster::block_on(cache.get_owned(b"key")).unwrap();
    let item = cache.get_blocking(b"key").unwrap();
    let kept = cache.keep(item);
    cache.insert_blocking(b"key", &[2; 5000], DEFAULT_OPTIONS);
    for number in 0..2000_u32 {
        cache.insert_blocking(&number.to_le_bytes(), &[3; 5000], DEFAULT_OPTIONS);
    }
    assert!(*held == [1; 5000] && *kept == [1; 5000]);
}

/// Dropped items free their memory. Before, an insert cannot evict others, because all items of the class are pinned.
#[test]
fn dropped_owned_item_frees_its_space() {
    let cache = cache();
    let insert = |number: u32| cache.insert_blocking(&number.to_le_bytes(), &[3; 5000], DEFAULT_OPTIONS);
    let mut held = Vec::new();
    let stored = flashwright_cache::Inserted::Stored;
    while insert(held.len() as u32) == stored {
        held.push(cache.get_owned_blocking(&(held.len() as u32).to_le_bytes()).unwrap());
    }
    drop(held);
    assert_eq!(insert(1 << 20), stored);
}

#[test]
fn owned_item_can_be_read_from_flash() {
    let mut flash = FlashConfig::new(Arc::new(MemoryDevice::new(64 * MIB)));
    flash.pending_bytes = 1 << 20;
    let cache = Cache::builder().dram_bytes(MIB).max_item_bytes(16 << 10).flash_config(flash).open().unwrap();
    for number in 0..500_u32 {
        cache.insert_blocking(&number.to_le_bytes(), &[number as u8; 8000], DEFAULT_OPTIONS);
    }
    for number in 0..500_u32 {
        let item = cache.get_owned_blocking(&number.to_le_bytes()).expect("all fit flash");
        assert_eq!(*item, [number as u8; 8000]);
    }
}

/// An item that is referenced while its cache closes cannot be evicted from DRAM. Catches a regression: it also keeps
/// the items behind it in DRAM, and those are lost.
#[test]
fn items_pinned_during_close_do_not_prevent_others_from_reopening() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let open = || {
        Cache::builder().dram_bytes(4 * MIB).max_item_bytes(16 << 10).flash(device.clone()).open().unwrap()
    };
    let cache = open();
    for number in 0..300_u32 {
        cache.insert_blocking(&number.to_le_bytes(), &[7; 5000], DEFAULT_OPTIONS);
    }
    let held: Vec<_> = (0..150_u32).map(|number| cache.get_owned_blocking(&number.to_le_bytes())).collect();
    cache.close().unwrap();
    assert!(held.iter().flatten().all(|item| **item == [7; 5000]));
    let cache = open();
    let back = (150..300_u32).filter(|number| cache.get_blocking(&number.to_le_bytes()).is_some()).count();
    assert_eq!(back, 150);
}

#[test]
#[should_panic(expected = "the item is from another cache")]
fn keep_of_an_item_of_another_cache_panics() {
    let (mine, other) = (cache(), cache());
    other.insert_blocking(b"key", b"value", DEFAULT_OPTIONS);
    let item = other.get_blocking(b"key").unwrap();
    drop(mine.keep(item));
}
