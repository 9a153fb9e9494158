//! Values larger than DRAM, written and read as parts.

use std::sync::Arc;

use device::MemoryDevice;
use flashwright_cache::{Builder, Cache, InsertOptions};
use pollster::block_on;

const MIB: u64 = 1 << 20;
const DEFAULT_OPTIONS: InsertOptions = InsertOptions { pool: 0, ttl_seconds: None };

fn builder() -> Builder {
    Cache::builder().dram_bytes(16 * MIB)
}

fn hybrid(flash_bytes: u64) -> Cache {
    builder().flash(Arc::new(MemoryDevice::new(flash_bytes))).open().expect("the configuration is valid")
}

/// The bytes at `offset` of the value with this number.
fn piece(number: u64, offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64).map(|at| (at / 7 + number * 13) as u8).collect()
}

async fn store(cache: &Cache, key: &[u8], number: u64, bytes: u64) {
    let mut writer = cache.insert_parts(key, DEFAULT_OPTIONS);
    let mut offset = 0;
    while offset < bytes {
        // Reads at offsets that are not multiples of the part size.
        let len = (bytes - offset).min(333_333) as usize;
        writer.write(&piece(number, offset, len)).await.expect("the cache has space");
        offset += len as u64;
    }
    writer.finish().await.expect("the cache has space");
}

/// The length of the value, if it is stored completely and its bytes are right.
async fn length_of(cache: &Cache, key: &[u8], number: u64) -> Option<u64> {
    let mut reader = cache.get_parts(key).await?;
    let mut offset = 0;
    while let Some(part) = reader.next().await.ok()? {
        assert_eq!(*part, piece(number, offset, part.len()));
        offset += part.len() as u64;
    }
    assert_eq!(offset, reader.len());
    Some(offset)
}

#[test]
fn value_of_100_mib_passes_through_16_mib_of_dram() {
    let cache = hybrid(256 * MIB);
    block_on(async {
        store(&cache, b"large", 1, 100 * MIB).await;
        assert_eq!(length_of(&cache, b"large", 1).await, Some(100 * MIB));
    });
    assert!(cache.stats().gets.hits_flash > 200, "{:?}", cache.stats().gets);
    cache.close().unwrap();
}

#[test]
fn values_of_any_length_are_read_back() {
    let cache = hybrid(64 * MIB);
    for bytes in [0, 1, 4096, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, 3 * MIB] {
        block_on(store(&cache, b"key", bytes, bytes));
        assert_eq!(block_on(length_of(&cache, b"key", bytes)), Some(bytes));
    }
}

#[test]
fn replaced_value_is_read_until_the_new_one_is_finished_and_its_parts_are_removed() {
    let cache = builder().open().unwrap();
    block_on(async {
        store(&cache, b"key", 1, 2 * MIB).await;
        let items = cache.len();
        let mut writer = cache.insert_parts(b"key", DEFAULT_OPTIONS);
        writer.write(&piece(2, 0, 3 << 20)).await.unwrap();
        assert_eq!(length_of(&cache, b"key", 1).await, Some(2 * MIB));
        let mut reader = cache.get_parts(b"key").await.unwrap();
        writer.finish().await.unwrap();
        let missing = reader.next().await.unwrap_err();
        assert_eq!((missing.part, missing.parts as usize), (0, items - 1));
        assert_eq!(length_of(&cache, b"key", 2).await, Some(3 * MIB));
        assert!(cache.remove_parts(b"key").await);
        assert!(cache.get_parts(b"key").await.is_none());
    });
    assert_eq!(cache.len(), 0);
}

#[test]
fn writer_dropped_unfinished_leaves_no_items() {
    let cache = builder().open().unwrap();
    let mut writer = cache.insert_parts(b"key", DEFAULT_OPTIONS);
    block_on(writer.write(&[1; 1 << 20])).unwrap();
    assert!(cache.len() > 2);
    drop(writer);
    assert_eq!(cache.len(), 0);
}

#[test]
fn plain_item_is_not_read_as_a_value_in_parts() {
    let cache = builder().open().unwrap();
    for len in [0, 31, 32, 33] {
        cache.insert_blocking(b"key", &vec![0; len], DEFAULT_OPTIONS);
        assert!(block_on(cache.get_parts(b"key")).is_none());
    }
}

#[test]
fn read_of_a_value_with_a_missing_part_names_the_part() {
    let cache = builder().max_item_bytes(64 << 10).open().unwrap();
    block_on(async {
        store(&cache, b"key", 1, MIB).await;
        let mut keys = Vec::new();
        cache.for_each_key_in_dram(|key| keys.push(key.to_vec()));
        keys.retain(|key| key.len() > 3);
        // The last four bytes of a part's key are its number.
        keys.sort_by_key(|key| key[key.len() - 4..].to_vec());
        assert!(cache.remove(&keys[2]));
        let mut reader = cache.get_parts(b"key").await.unwrap();
        assert!(reader.next().await.is_ok() && reader.next().await.is_ok());
        let missing = reader.next().await.unwrap_err();
        assert!(missing.to_string().starts_with("part 2 of "), "{missing}");
    });
}
