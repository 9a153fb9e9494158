//! Compares the cache with a simple model: for each bucket a list of items, oldest first, and a list of pending
//! changes.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::super::bucket::{HEADER_BYTES, entry_bytes, expired};
use super::*;

#[derive(Clone, Debug, PartialEq)]
struct TwinItem {
    key: String,
    value: String,
    expiry: u32,
}

/// A pending change: an item, or the removal of a key.
enum TwinWaiter {
    Item(TwinItem),
    Removal(String),
}

#[derive(Default)]
struct Twin {
    buckets: BTreeMap<BucketId, Vec<TwinItem>>,
    waiting: BTreeMap<BucketId, Vec<TwinWaiter>>,
}

impl Twin {
    fn put(&mut self, bucket: BucketId, item: TwinItem) {
        let waiting = self.waiting.entry(bucket).or_default();
        waiting.retain(|waiter| !matches!(waiter, TwinWaiter::Item(other) if other.key == item.key));
        waiting.push(TwinWaiter::Item(item));
    }

    fn forget(&mut self, bucket: BucketId, key: &str) {
        let waiting = self.waiting.entry(bucket).or_default();
        waiting.retain(|waiter| !matches!(waiter, TwinWaiter::Item(other) if other.key == key));
        waiting.push(TwinWaiter::Removal(key.into()));
    }

    fn get(&self, bucket: BucketId, key: &str, now: u32) -> Option<String> {
        let live = |item: &TwinItem| (!expired(item.expiry, now)).then(|| item.value.clone());
        for waiter in self.waiting.get(&bucket).into_iter().flatten().rev() {
            match waiter {
                TwinWaiter::Item(item) if item.key == key => return live(item),
                TwinWaiter::Removal(removed) if removed == key => return None,
                _ => {}
            }
        }
        self.buckets.get(&bucket)?.iter().find(|item| item.key == key).and_then(live)
    }

    fn settle(&mut self, now: u32) {
        for (bucket, waiting) in std::mem::take(&mut self.waiting) {
            // A removal of a key that is not on flash leaves the bucket unchanged, including expired items.
            let content = self.buckets.entry(bucket).or_default();
            content.retain(|item| !expired(item.expiry, now));
            for waiter in waiting {
                match waiter {
                    TwinWaiter::Removal(key) => content.retain(|item| item.key != key),
                    TwinWaiter::Item(item) => append(content, item, now),
                }
            }
        }
    }
}

fn append(content: &mut Vec<TwinItem>, item: TwinItem, now: u32) {
    content.retain(|other| other.key != item.key);
    if expired(item.expiry, now) {
        return;
    }
    let size = |item: &TwinItem| entry_bytes(item.key.len(), item.value.len());
    while content.iter().map(size).sum::<usize>() + size(&item) > 4096 - HEADER_BYTES {
        content.remove(0);
    }
    content.push(item);
}

fn run(seed: u64, filter_bytes_per_bucket: u32) {
    let mut rng = StdRng::seed_from_u64(seed);
    let device = gate();
    let config = SocConfig { filter_bytes_per_bucket, pending_limit_bytes: 1 << 20, ..config(5) };
    let mut soc = soc_on(&device, config);
    let mut twin = Twin::default();
    let keys: Vec<String> = (0..150).map(|n| format!("key-{n}")).collect();
    let bucket_of = |soc: &Soc, key: &str| soc.address(KeyHash::of(key.as_bytes())).bucket;
    for now in NOW..NOW + 600 {
        let key = &keys[rng.random_range(0..keys.len())];
        let bucket = bucket_of(&soc, key);
        match rng.random_range(0..20) {
            0..10 => {
                let expiry = if rng.random() { 0 } else { now + rng.random_range(0..200) };
                let value = format!("{now}").repeat(rng.random_range(0..100));
                put_until(&soc, key, &value, expiry);
                twin.put(bucket, TwinItem { key: key.clone(), value, expiry });
            }
            10..13 => {
                let live = twin.get(bucket, key, now).is_some();
                assert!(forget(&soc, key) || !live, "seed {seed} at {now}: {key} was there");
                twin.forget(bucket, key);
            }
            13 => {
                block_on(soc.drain(Waiting::Thread, now));
                twin.settle(now);
                assert_eq!(soc.pending_bytes(), 0, "seed {seed} at {now}");
            }
            14 if soc.stats().pending_entries == 0 => {
                let snapshot: Vec<u8> = soc.snapshot().flatten().collect();
                soc = soc_on(&device, config);
                soc.restore(&snapshot).expect("its own snapshot");
            }
            _ => {
                let found = get_at(&soc, key, now);
                assert_eq!(found, twin.get(bucket, key, now), "seed {seed} at {now}: {key}");
            }
        }
    }
    block_on(soc.drain(Waiting::Thread, NOW + 600));
    twin.settle(NOW + 600);
    for key in &keys {
        let expected = twin.get(bucket_of(&soc, key), key, NOW + 600);
        assert_eq!(get_at(&soc, key, NOW + 600), expected, "seed {seed} at the end: {key}");
        assert!(expected.is_none() || soc.may_contain(KeyHash::of(key.as_bytes())));
    }
    assert_eq!((soc.stats().checksum_errors, soc.stats().read_errors), (0, 0));
}

#[test]
fn cache_returns_the_same_results_as_a_simple_model() {
    for seed in 0..60 {
        run(seed, [0, 8, 24][seed as usize % 3]);
    }
}
