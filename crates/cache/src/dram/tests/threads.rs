//! Concurrent threads, with the interleavings of the machine. `races` explores schedules with `shuttle`.

use std::collections::HashSet;
use std::sync::Mutex;

use policy::eviction::S3Fifo;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;

/// A value whose bytes identify its key and version.
fn value_of(key: u32, version: u32, len: usize) -> Vec<u8> {
    let mut value = [key.to_le_bytes(), version.to_le_bytes()].concat();
    value.resize(len.max(8), (key ^ version) as u8);
    value
}

fn assert_is_value_of(value: &[u8], key: u32) {
    assert_eq!(value[..4], key.to_le_bytes(), "a value of another key");
    let version = u32::from_le_bytes(value[4..8].try_into().unwrap());
    assert!(value[8..].iter().all(|&byte| byte == (key ^ version) as u8), "a torn value");
}

fn tier(policy: PolicyFactory) -> Dram {
    let mut config = DramConfig::new(8 << 16, policy);
    config.slab_bytes = Some(1 << 16);
    config.alloc_sizes = vec![512, 2048, 8192];
    Dram::new(&config, Arc::new(VirtualClock::default())).unwrap()
}

#[test]
fn threads_read_only_bytes_of_their_key_and_all_memory_is_freed() {
    let ops = if cfg!(miri) { 40 } else { 40_000 };
    let policies: [PolicyFactory; 2] = [queue(HitRule::Every), Arc::new(|| Box::new(S3Fifo::new(0)))];
    for policy in policies {
        let dram = tier(policy);
        std::thread::scope(|scope| {
            for seed in 0..3 {
                let dram = &dram;
                scope.spawn(move || one_thread(dram, seed, ops));
            }
            scope.spawn(|| {
                for drawn in 0..ops / 100 {
                    let how = Rebalance {
                        strategy: Strategy::Random { drawn: u64::from(drawn) * 0x1_0000_0001 },
                        min_slabs: 0,
                        move_on_release: drawn % 2 == 0,
                    };
                    dram.rebalance_step(POOL, &how, &Discard);
                    dram.reap_step(100);
                    dram.scan(Cursor::default(), 100, &mut |item| {
                        assert_is_value_of(item, u32::from_le_bytes(item.key().try_into().unwrap()));
                    });
                }
            });
        });
        assert_all_memory_is_freed(&dram);
    }
}

fn one_thread(dram: &Dram, seed: u64, ops: u32) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut pins: Vec<(u32, Handle<'_>)> = Vec::new();
    for version in 0..ops {
        let number = rng.random_range(0..500_u32);
        let key = number.to_le_bytes();
        // Of the same key, or of another one: a prefetch never affects the result.
        let soon = KeyHash::of(&(number ^ (version & 1)).to_le_bytes());
        dram.prefetch_line(soon);
        dram.prefetch_item(soon);
        match rng.random_range(0..12) {
            10.. => {
                let value = value_of(number, version, [100, 1000][rng.random_range(0..2)]);
                let hash = KeyHash::of(&key);
                if let Ok(mut draft) = dram.allocate_child(POOL, hash, value.len(), &Discard) {
                    draft.copy_from_slice(&value);
                    let refused = dram.lock(hash).add_child(&key, draft);
                    drop(refused);
                }
            }
            0..5 => {
                if let Some(found) = get(dram, &key) {
                    assert_is_value_of(&found, number);
                    found.chain().for_each(|child| assert_is_value_of(child, number));
                    if pins.len() < 4 {
                        pins.push((number, found));
                    }
                }
            }
            5..8 => {
                let len = [100, 1000, 5000][rng.random_range(0..3)];
                // For a moment, all chunks of a class may be in use; the insert is then refused.
                let _ = put(dram, &key, &value_of(number, version, len));
            }
            8 => drop(dram.lock(KeyHash::of(&key)).unlink(&key)),
            _ => {
                for (number, pin) in pins.drain(..) {
                    assert_is_value_of(&pin, number);
                    pin.chain().for_each(|child| assert_is_value_of(child, number));
                }
            }
        }
    }
}

/// A spill that records the evicted keys.
#[derive(Default)]
struct Below {
    keys: Mutex<HashSet<Vec<u8>>>,
}

impl Spill for Below {
    type Staged = Vec<u8>;

    fn stage(&self, victim: &Victim<'_>) -> Stage<Vec<u8>> {
        Stage::Ready(victim.key().to_vec())
    }

    fn commit(&self, staged: Vec<u8>, _: &Victim<'_>) {
        self.keys.lock().unwrap().insert(staged);
    }

    fn abandon(&self, _: Vec<u8>, _: &Victim<'_>) {}
}

#[test]
fn key_being_evicted_is_always_in_one_of_the_tiers() {
    let keys = if cfg!(miri) { 30 } else { 20_000_u32 };
    let dram = tier(Arc::new(|| Box::new(S3Fifo::new(0))));
    let below = Below::default();
    let written = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..keys {
                let key = number.to_le_bytes();
                while put_through(&dram, &key, &value_of(number, 0, 300), 0, &below).is_err() {}
                written.store(number + 1, std::sync::atomic::Ordering::Release);
            }
        });
        scope.spawn(|| {
            let mut rng = SmallRng::seed_from_u64(7);
            loop {
                let written = written.load(std::sync::atomic::Ordering::Acquire);
                if written == keys {
                    break;
                }
                let number = rng.random_range(0..written.max(1)).max(written.saturating_sub(1200));
                let key = number.to_le_bytes();
                let somewhere = get(&dram, &key).is_some() || below.keys.lock().unwrap().contains(&key[..]);
                assert!(somewhere || written == 0, "key {number} is in neither tier");
            }
        });
    });
    assert_all_memory_is_freed(&dram);
}
