//! `copy_into` equals a `get` and a copy.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use flashwright_cache::device::MemoryDevice;
use flashwright_cache::{Cache, InsertOptions};
use policy::eviction::{EvictionConfig, Kind};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// Stepped caches have the same hash seed, so that sketches count alike.
fn open(policy: &str) -> Cache {
    let eviction = EvictionConfig::new(policy.parse::<Kind>().unwrap());
    Cache::builder().dram_bytes(4 << 20).eviction(eviction).open_stepped().unwrap()
}

/// The value's length differs by key: most are small, some exceed the largest copy under the lock.
fn value_of(key: u32) -> Vec<u8> {
    vec![key as u8; if key.is_multiple_of(17) { 6000 } else { 100 + key as usize % 400 }]
}

/// Requests 40,000 keys by `found` and inserts those that it does not find. Returns which were found.
fn hits(cache: &Cache, mut found: impl FnMut(&[u8], u32) -> bool) -> Vec<bool> {
    let mut rng = StdRng::seed_from_u64(11);
    let request = |_| {
        let key = (rng.random::<f64>().powi(3) * 30_000.0) as u32;
        let is_hit = found(&key.to_le_bytes(), key);
        if !is_hit {
            let ttl_seconds = key.is_multiple_of(5).then_some(3600);
            let options = InsertOptions { ttl_seconds, ..InsertOptions::default() };
            cache.insert_blocking(&key.to_le_bytes(), &value_of(key), options);
        }
        is_hit
    };
    (0..40_000).map(request).collect()
}

#[test]
fn copy_into_hits_as_get_does_under_every_policy() {
    for policy in Kind::names() {
        let (got, copied) = (open(policy), open(policy));
        let by_get = hits(&got, |key, _| got.get_blocking(key).is_some());
        let mut value = b"of the key before".to_vec();
        let by_copy = hits(&copied, |key, number| {
            let is_hit = copied.copy_into_blocking(key, &mut value);
            assert_eq!(value, if is_hit { value_of(number) } else { Vec::new() }, "{policy}, key {number}");
            is_hit
        });
        assert!(by_get == by_copy, "{policy}");
        let (got, copied) = (got.stats().gets, copied.stats().gets);
        assert_eq!((got.hits_dram, got.misses), (copied.hits_dram, copied.misses), "{policy}");
        assert!(got.hits_dram > 1000 && got.misses > 1000, "{policy}: {got:?}");
    }
}

#[test]
fn copy_into_finds_items_on_flash() {
    let flash = Arc::new(MemoryDevice::new(64 << 20));
    let cache = Cache::builder().dram_bytes(4 << 20).flash(flash).open().unwrap();
    for key in 0..20_000_u32 {
        cache.insert_blocking(&key.to_le_bytes(), &value_of(key), InsertOptions::default());
    }
    let mut value = Vec::new();
    for key in 0..20_000_u32 {
        if cache.copy_into_blocking(&key.to_le_bytes(), &mut value) {
            assert_eq!(value, value_of(key), "key {key}");
        }
    }
    assert!(cache.stats().gets.hits_flash > 1000, "{:?}", cache.stats().gets);
}
