//! Items that outlive the borrow of their cache.

use std::sync::Arc;

use flashwright_cache::device::MemoryDevice;
use flashwright_cache::{Cache, FlashConfig, InsertOptions, Layer, OwnedItem};

const MIB: u64 = 1 << 20;
const AS_USUAL: InsertOptions = InsertOptions { pool: 0, ttl_seconds: None };

fn cache() -> Cache {
    Cache::builder().dram_bytes(MIB).max_item_bytes(16 << 10).open().expect("it fits")
}

/// A hit could not leave the function that had the cache, or its task, but as a copy.
#[test]
fn an_item_outlives_the_borrow_of_its_cache_and_the_cache() {
    fn handler(cache: &Arc<Cache>) -> OwnedItem {
        cache.get_owned_blocking(b"key").expect("it is there")
    }
    let cache = Arc::new(cache());
    cache.insert_blocking(b"key", &[7; 10_000], InsertOptions { ttl_seconds: Some(60), ..AS_USUAL });
    cache.add_chained_blocking(b"key", 100, |link| link.fill(8)).unwrap();
    let item = handler(&cache);
    assert_eq!((item.layer(), item.pool().0, item.expiry_seconds().is_some()), (Layer::Dram, 0, true));
    drop(cache);
    // It borrows nothing, and goes to another thread as it is.
    let read: Box<dyn FnOnce() -> _ + Send> =
        Box::new(move || (item.to_vec(), item.chain().map(<[u8]>::to_vec).collect()));
    let read = std::thread::scope(|scope| scope.spawn(read).join().unwrap());
    assert_eq!(read, (vec![7; 10_000], vec![vec![8; 100]]));
}

#[test]
fn a_kept_item_stays_as_it_was_while_others_replace_and_push_it_out() {
    let cache = cache();
    cache.insert_blocking(b"key", &[1; 5000], AS_USUAL);
    let held = pollster::block_on(cache.get_owned(b"key")).unwrap();
    let item = cache.get_blocking(b"key").unwrap();
    let kept = cache.keep(item);
    cache.insert_blocking(b"key", &[2; 5000], AS_USUAL);
    for number in 0..2000_u32 {
        cache.insert_blocking(&number.to_le_bytes(), &[3; 5000], AS_USUAL);
    }
    assert!(*held == [1; 5000] && *kept == [1; 5000]);
}

/// Dropped items free their memory. The insert could not evict others, because all items of the class were pinned.
#[test]
fn dropped_owned_item_frees_its_space() {
    let cache = cache();
    let insert = |number: u32| cache.insert_blocking(&number.to_le_bytes(), &[3; 5000], AS_USUAL);
    let mut held = Vec::new();
    let stored = flashwright_cache::Inserted::Stored;
    while insert(held.len() as u32) == stored {
        held.push(cache.get_owned_blocking(&(held.len() as u32).to_le_bytes()).unwrap());
    }
    drop(held);
    assert_eq!(insert(1 << 20), stored);
}

#[test]
fn an_item_read_from_flash_is_kept_as_well() {
    let mut flash = FlashConfig::new(Arc::new(MemoryDevice::new(64 * MIB)));
    flash.pending_bytes = 1 << 20;
    let cache = Cache::builder().dram_bytes(MIB).max_item_bytes(16 << 10).flash_config(flash).open().unwrap();
    for number in 0..500_u32 {
        cache.insert_blocking(&number.to_le_bytes(), &[number as u8; 8000], AS_USUAL);
    }
    for number in 0..500_u32 {
        let item = cache.get_owned_blocking(&number.to_le_bytes()).expect("all fit flash");
        assert_eq!(*item, [number as u8; 8000]);
    }
}

/// An item that is referenced while its cache closes cannot leave DRAM. It used to keep the items behind it from leaving, too.
#[test]
fn items_held_at_the_close_keep_no_others_from_the_restart() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let open = || {
        Cache::builder().dram_bytes(4 * MIB).max_item_bytes(16 << 10).flash(device.clone()).open().unwrap()
    };
    let cache = open();
    for number in 0..300_u32 {
        cache.insert_blocking(&number.to_le_bytes(), &[7; 5000], AS_USUAL);
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
fn an_item_of_another_cache_cannot_be_kept() {
    let (mine, other) = (cache(), cache());
    other.insert_blocking(b"key", b"value", AS_USUAL);
    let item = other.get_blocking(b"key").unwrap();
    drop(mine.keep(item));
}
