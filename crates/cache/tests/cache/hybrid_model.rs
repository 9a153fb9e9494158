//! Compares the cache with a plain map, in both directions: a returned value is the last one inserted under its key, and a removed key
//! is never found, while items move between DRAM and flash.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::MemoryDevice;
use flashwright_cache::config::LogOptions;
use flashwright_cache::{Cache, FlashConfig, InsertOptions, Layer, SmallItems};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const MIB: u64 = 1 << 20;

const LOG: SmallItems =
    SmallItems::Log(LogOptions { expected_item_bytes: 400, readmission_share: 0.25, regions: None });

fn cache(seed: u64, small_items: SmallItems) -> Cache {
    let mut flash = FlashConfig::new(Arc::new(MemoryDevice::new(64 * MIB)));
    flash.pairs[0].soc_share = 0.5;
    flash.regions.region_bytes = MIB as u32;
    flash.pending_bytes = 256 << 10;
    flash.small_items = Some(small_items);
    Cache::builder()
        .dram_bytes(4 * MIB)
        .flash_config(flash)
        .seed(seed)
        .open()
        .expect("the configuration fits")
}

fn value(key: u64, version: u64, len: usize) -> Vec<u8> {
    let pattern = [key.to_le_bytes(), version.to_le_bytes(), (len as u64).to_le_bytes()].concat();
    pattern.iter().copied().cycle().take(len.max(24)).collect()
}

fn len_of(key: u64) -> usize {
    // Three of four values are small and go to buckets, the others to regions.
    if key.is_multiple_of(4) { 3000 + (key as usize * 37) % 9000 } else { 50 + (key as usize * 13) % 900 }
}

#[test]
fn get_returns_only_the_last_inserted_value() {
    for (seed, small_items) in (0..4).map(|seed| (seed, if seed < 2 { SmallItems::Sets } else { LOG })) {
        let cache = cache(seed, small_items);
        let mut random = StdRng::seed_from_u64(seed);
        let mut model: HashMap<u64, u64> = HashMap::new();
        let (mut hits_flash, mut hits) = (0, 0);
        for version in 0..40_000_u64 {
            let key = random.random_range(0..6_000_u64);
            let name = format!("key-{key}");
            match random.random_range(0..10) {
                0..=3 => {
                    cache.insert_blocking(
                        name.as_bytes(),
                        &value(key, version, len_of(key)),
                        InsertOptions::default(),
                    );
                    model.insert(key, version);
                }
                4 => {
                    cache.remove(name.as_bytes());
                    model.remove(&key);
                }
                _ => {
                    let Some(found) = cache.get_blocking(name.as_bytes()) else { continue };
                    hits += 1;
                    hits_flash += u64::from(found.layer() == Layer::Flash);
                    let expected = model.get(&key).map(|&version| value(key, version, len_of(key)));
                    assert_eq!(Some(&found[..]), expected.as_deref(), "seed {seed}, key {key}");
                }
            }
        }
        assert!(
            hits > 10_000 && hits_flash > 1_000,
            "seed {seed}: {hits} hits, {hits_flash} of them from flash"
        );
        let puts = cache.stats().flash.unwrap().puts;
        assert!(puts.stored > 0, "{puts:?}");
    }
}

#[test]
fn threads_never_read_a_version_older_than_an_acknowledged_one() {
    for small_items in [SmallItems::Sets, LOG] {
        threads_read_acknowledged_versions(&cache(9, small_items));
    }
}

fn threads_read_acknowledged_versions(cache: &Cache) {
    const KEYS: u64 = 3_000;
    let acknowledged: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let acknowledged = &acknowledged;
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(thread);
                for version in 1..15_000_u64 {
                    // Each key has one writer, so its versions only grow; every thread reads all keys.
                    let own = random.random_range(0..KEYS / 4) * 4 + thread;
                    let name = format!("key-{own}");
                    if version % 3 == 0 {
                        let bytes = value(own, version, len_of(own));
                        cache.insert_blocking(name.as_bytes(), &bytes, InsertOptions::default());
                        acknowledged[own as usize].store(version, Ordering::SeqCst);
                    } else {
                        let key = random.random_range(0..KEYS);
                        let least = acknowledged[key as usize].load(Ordering::SeqCst);
                        let Some(found) = cache.get_blocking(format!("key-{key}").as_bytes()) else {
                            continue;
                        };
                        let seen = u64::from_le_bytes(found[8..16].try_into().expect("eight bytes"));
                        assert!(seen >= least, "key {key}: version {seen} after {least} was acknowledged");
                        assert_eq!(&found[..], value(key, seen, len_of(key)));
                    }
                }
            });
        }
    });
    assert!(cache.stats().gets.hits_flash > 100, "{:?}", cache.stats().gets);
}
