//! The seed of the hashes of keys: each cache has its own seed and stores it on flash.

use std::collections::HashSet;
use std::sync::Arc;

use device::MemoryDevice;
use flashwright_cache::config::PairConfig;
use flashwright_cache::config::regions::RegionConfig;
use flashwright_cache::{Builder, Cache, FlashConfig, InsertOptions, KeyHash};

const MIB: u64 = 1 << 20;

fn builder() -> Builder {
    Cache::builder().dram_bytes(4 * MIB).max_item_bytes(16 << 10)
}

/// Inserts small and large items; the last ones are still in DRAM.
fn fill(cache: &Cache) {
    for number in 0..4000_u32 {
        let value = vec![number as u8; if number.is_multiple_of(4) { 3000 } else { 300 }];
        cache.insert_blocking(&number.to_le_bytes(), &value, InsertOptions::default());
    }
}

fn found(cache: &Cache) -> usize {
    (0..4000_u32).filter(|number| cache.get_blocking(&number.to_le_bytes()).is_some()).count()
}

/// A client that knows the hash function and the seed can choose keys of one shard.
#[test]
fn keys_with_equal_top_bits_under_one_seed_spread_under_another() {
    let cache = builder().open().unwrap();
    let top_bits = |hash: KeyHash| hash.0 >> 56;
    let chosen = (0_u64..).map(u64::to_le_bytes).filter(|key| top_bits(KeyHash::of(key)) == 0).take(2000);
    let seen: HashSet<u64> = chosen.map(|key| top_bits(cache.key_hash(&key))).collect();
    assert!(seen.len() > 200, "2000 keys share {} of 256 values", seen.len());
}

#[test]
fn opened_caches_have_different_seeds_and_stepped_caches_equal_ones() {
    let hash = |cache: &Cache| cache.key_hash(b"key");
    let [one, other] = [(); 2].map(|()| builder().open().unwrap());
    assert_ne!(hash(&one), hash(&other));
    assert_eq!(hash(&builder().open_stepped().unwrap()), KeyHash::of(b"key"));
    assert_eq!(hash(&builder().hash_seed(7).open_stepped().unwrap()), KeyHash::seeded(b"key", 7));
    assert_eq!(KeyHash::seeded(b"key", 0), KeyHash::of(b"key"));
}

#[test]
fn reopened_items_keep_their_hash_seed() {
    for pairs in [1, 3] {
        let device = Arc::new(MemoryDevice::new(48 * MIB));
        let open = |builder: Builder| {
            let mut flash = FlashConfig::new(Arc::clone(&device) as _);
            flash.regions = RegionConfig { region_bytes: 256 << 10, ..RegionConfig::new(0) };
            let share = PairConfig { device_share: 1.0 / f64::from(pairs), soc_share: 0.3 };
            flash.pairs = vec![share; pairs as usize];
            builder.flash_config(flash).open().unwrap()
        };
        let cache = open(builder());
        let hash = cache.key_hash(b"key");
        fill(&cache);
        cache.close().unwrap();
        for builder in [builder(), builder().hash_seed(7)] {
            let cache = open(builder);
            assert_eq!(cache.key_hash(b"key"), hash);
            assert!(cache.stats().flash.unwrap().recovered);
            assert!(found(&cache) > 3900, "{pairs} pairs: {} of 4000", found(&cache));
            cache.close().unwrap();
        }
        // A cache that was not closed reopens empty, with a new seed.
        drop(open(builder()));
        let cache = open(builder());
        assert_ne!(cache.key_hash(b"key"), hash);
        assert_eq!(found(&cache), 0);
        fill(&cache);
        assert!(found(&cache) > 3900);
    }
}
