//! Parts of flash for keys with a prefix.

use std::sync::Arc;

use flashwright_cache::device::MemoryDevice;
use flashwright_cache::{Builder, Cache, CacheError, InsertOptions};

const MIB: u64 = 1 << 20;

fn hybrid(device: &Arc<MemoryDevice>) -> Builder {
    // With a fixed seed, the same keys collide in the log at each run.
    Cache::builder().dram_bytes(4 * MIB).small_item_share(0.5).hash_seed(1).flash(device.clone())
}

/// Inserts items of `bytes` bytes with this prefix and numbers, and waits until flash has them.
fn insert(cache: &Cache, prefix: &str, numbers: std::ops::Range<u32>, bytes: usize) {
    for number in numbers {
        cache.insert_blocking(
            format!("{prefix}{number}").as_bytes(),
            &vec![7; bytes],
            InsertOptions::default(),
        );
    }
    cache.settle_blocking().unwrap();
}

/// How many of the items are found.
fn found(cache: &Cache, prefix: &str, numbers: std::ops::Range<u32>) -> usize {
    numbers.filter(|number| cache.get_blocking(format!("{prefix}{number}").as_bytes()).is_some()).count()
}

#[test]
fn keys_of_a_partition_survive_a_flood_of_other_keys() {
    for bytes in [1000, 20_000] {
        let count = 6 * MIB as u32 / bytes;
        let flood = 0..200 * MIB as u32 / bytes;
        let kept = |share: f64| {
            let builder = hybrid(&Arc::new(MemoryDevice::new(64 * MIB)));
            let cache =
                if share > 0.0 { builder.flash_partition("a:", share) } else { builder }.open().unwrap();
            insert(&cache, "a:", 0..count, bytes as usize);
            insert(&cache, "b", flood.clone(), bytes as usize);
            let pairs = cache.pair_stats();
            if let [others, partition] = pairs[..] {
                assert!(
                    partition.used_bytes <= partition.bytes && partition.bytes <= 24 * MIB,
                    "{partition:?}"
                );
                assert!(
                    partition.items >= u64::from(count) * 9 / 10 && partition.evictions == 0,
                    "{partition:?}"
                );
                assert!(others.evictions > 0 && others.inserted_bytes > 150 * MIB, "{others:?}");
            }
            found(&cache, "a:", 0..count)
        };
        assert!(kept(0.0) < count as usize / 20, "the flood evicts them without a partition");
        assert!(
            kept(0.375) >= count as usize * 999 / 1000,
            "{bytes} bytes; keys of the log with one hash may replace each other"
        );
    }
}

#[test]
fn flood_of_a_partition_evicts_no_other_keys() {
    let cache = hybrid(&Arc::new(MemoryDevice::new(64 * MIB))).flash_partition("a:", 0.375).open().unwrap();
    insert(&cache, "b", 0..6000, 1000);
    insert(&cache, "a:", 0..200_000, 1000);
    assert!(found(&cache, "b", 0..6000) >= 5994, "keys of the log with one hash may replace each other");
}

#[test]
fn partitions_recover_as_they_were_and_other_ones_start_empty() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let open = |prefix: &str| hybrid(&device).flash_partition(prefix, 0.375).open().unwrap();
    let cache = open("a:");
    insert(&cache, "a:", 0..1000, 1000);
    insert(&cache, "b", 0..1000, 1000);
    cache.close().unwrap();
    let cache = open("a:");
    assert!(cache.stats().flash.unwrap().recovered);
    assert!(found(&cache, "a:", 0..1000) >= 999 && found(&cache, "b", 0..1000) >= 999);
    assert!(cache.remove(b"a:7") && cache.get_blocking(b"a:7").is_none());
    cache.close().unwrap();
    let cache = open("b");
    let flash = cache.stats().flash.unwrap();
    assert!(!flash.recovered && flash.loss.is_some(), "{:?}", flash.loss);
    assert_eq!(found(&cache, "b", 0..1000), 0);
}

#[test]
fn wrong_partitions_are_refused_with_the_reason() {
    let refused = |builder: Builder| match builder.open() {
        Err(CacheError::Config(message)) => message,
        other => panic!("{other:?}"),
    };
    let with = |parts: &[(&str, f64)]| {
        let builder = hybrid(&Arc::new(MemoryDevice::new(64 * MIB)));
        refused(
            parts.iter().fold(builder, |builder, (prefix, share)| builder.flash_partition(*prefix, *share)),
        )
    };
    assert!(with(&[("a", 0.0)]).contains("must each be above 0"));
    assert!(with(&[("a", 0.5), ("b", 0.5)]).contains("leave a part of flash to other keys"));
    assert!(with(&[("a", f64::NAN)]).contains("must each be above 0"));
    assert!(with(&[("a", 0.1), ("a", 0.1)]).contains("\"a\" is listed twice"));
    assert!(refused(Cache::builder().flash_partition("a", 0.5)).contains("needs flash"));
    let small = with(&[("a", 0.001)]);
    assert!(
        small.contains("the part of flash for keys with the prefix \"a\": ") && small.contains("too small"),
        "{small}"
    );
}
