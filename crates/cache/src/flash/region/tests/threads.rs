//! Concurrent threads: writers that lock their key as the hybrid cache does, readers, and background workers.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use device::MemoryDevice;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::races::poll_once;
use super::*;

const KEYS: u64 = 400;

/// The last version of each key, `None` after a remove. The lock is the key's lock.
struct Keys(Vec<Mutex<Last>>);

#[derive(Clone, Copy, Default, PartialEq)]
struct Last {
    version: Option<u64>,
    /// Distinguishes a removed key from one that was written and removed again.
    changes: u64,
}

impl Last {
    fn set(&mut self, version: Option<u64>) {
        *self = Self { version, changes: self.changes + 1 };
    }
}

fn write(store: &RegionStore, keys: &Keys, seed: u64, steps: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    for step in 0..steps {
        let key = random.random_range(0..KEYS);
        let version = seed << 32 | step;
        if random.random_range(0..10) == 0 {
            let mut last = keys.0[key as usize].lock();
            forget(store, key);
            last.set(None);
            continue;
        }
        let (bytes, content) = (key.to_le_bytes(), value(key, version));
        let item = FlashItem {
            key: &bytes,
            hash: KeyHash::of(&bytes),
            value: &[&content],
            expiry_seconds: 0,
            tag: 0,
        };
        let staged = loop {
            match store.stage(&item) {
                Ok(staged) => break staged,
                Err(Refusal::Full) => block_on(store.wait_ready()),
                Err(refusal) => panic!("{refusal}"),
            }
        };
        let mut last = keys.0[key as usize].lock();
        store.commit(staged);
        last.set(Some(version));
    }
}

fn read(store: &RegionStore, keys: &Keys, seed: u64, steps: u64) -> u64 {
    let mut random = StdRng::seed_from_u64(seed);
    let mut found = 0;
    for step in 0..steps {
        let key = random.random_range(0..KEYS);
        let before = *keys.0[key as usize].lock();
        let lookup = get(store, key);
        let after = *keys.0[key as usize].lock();
        match lookup {
            Lookup::Found(seen) if before == after => {
                let version =
                    before.version.unwrap_or_else(|| panic!("seed {seed} step {step}: removed and found"));
                assert_eq!(*seen, value(key, version), "seed {seed} step {step} key {key}");
                found += 1;
            }
            // Written concurrently: any whole version is valid. Its checksum has been verified.
            Lookup::Found(_) | Lookup::Miss => {}
            other => panic!("seed {seed} step {step}: {other:?}"),
        }
    }
    found
}

fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() + Send + 'scope,
) -> ScopedJoinHandle<'scope, ()> {
    Builder::new().name(name.into()).spawn_scoped(scope, work).expect("a thread")
}

fn work_until(store: &RegionStore, stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        if step(store) == Progress::Idle {
            std::thread::yield_now();
        }
    }
}

fn run(config: RegionConfig) {
    let device = Arc::new(MemoryDevice::new(config.capacity_bytes));
    let store = &open(device, config);
    let keys = &Keys((0..KEYS).map(|_| Mutex::default()).collect());
    let stop = &AtomicBool::new(false);
    // Readers must hit even if the writers are slow.
    for key in 0..KEYS {
        put_version(store, key, 0);
        keys.0[key as usize].lock().set(Some(0));
    }
    std::thread::scope(|scope| {
        let writers = (1..=3).map(|seed| spawn(scope, "writer", move || write(store, keys, seed, 2_500)));
        let readers =
            (4..=5).map(|seed| spawn(scope, "reader", move || assert!(read(store, keys, seed, 5_000) > 100)));
        let clients: Vec<_> = writers.chain(readers).collect();
        (0..2).for_each(|_| drop(spawn(scope, "worker", move || work_until(store, stop))));
        let ended: Vec<_> = clients.into_iter().map(ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::SeqCst);
        ended.into_iter().for_each(|ended| ended.expect("the thread's own assertion"));
    });
    let stats = store.stats();
    assert!(stats.regions_reclaimed > 50, "it must wrap around: {stats:?}");
    assert_accounts_balance(store);
    for key in 0..KEYS {
        if let Some(seen) = get(store, key).found() {
            let version = keys.0[key as usize].lock().version.expect("removed and found");
            assert_eq!(*seen, value(key, version));
        }
    }
}

#[test]
fn threads_see_the_last_version_or_nothing() {
    run(RegionConfig { clean_regions: 3, buffers: 6, ..small() });
    run(RegionConfig { order: OrderConfig::Lru, ..small() });
}

#[test]
fn threads_see_the_last_version_or_nothing_with_reinsertion() {
    let reinsertion = Reinsertion::Hits { at_least: 1 };
    run(RegionConfig { reinsertion, separate_reinserted: true, buffers: 6, ..small() });
}

#[test]
fn threads_see_the_last_version_or_nothing_ripq() {
    run(ripq(|_| {}));
    run(ripq(|config| *config = RipqConfig { single_point: true, ..RipqConfig::plain(Caching::GDSF) }));
    run(blockcache());
}

/// An item committed and written during a clear stays or is removed, and no index entry refers to another location.
#[test]
fn index_locations_are_valid_after_clears_beside_writers() {
    let tiny = RegionConfig { region_bytes: 8 << 10, max_write_bytes: 8 << 10, ..small() };
    for config in [tiny.clone(), RegionConfig { order: ripq(|_| {}).order, buffers: 6, ..tiny }] {
        let device = Arc::new(MemoryDevice::new(config.capacity_bytes));
        let store = &open(device, config);
        let keys = &Keys((0..KEYS).map(|_| Mutex::default()).collect());
        let (stop, written) = (&AtomicBool::new(false), &AtomicBool::new(false));
        std::thread::scope(|scope| {
            let writers: Vec<_> =
                (1..=2).map(|seed| spawn(scope, "writer", move || write(store, keys, seed, 4_000))).collect();
            let worker = spawn(scope, "worker", move || work_until(store, stop));
            let clear = move || {
                while !written.load(Ordering::SeqCst) {
                    store.clear();
                    std::thread::yield_now();
                }
            };
            let clearers: Vec<_> = (0..4).map(|_| spawn(scope, "clearer", clear)).collect();
            let ended: Vec<_> = writers.into_iter().map(ScopedJoinHandle::join).collect();
            written.store(true, Ordering::SeqCst);
            clearers.into_iter().for_each(|clearer| clearer.join().expect("a clear ends"));
            stop.store(true, Ordering::SeqCst);
            worker.join().expect("a step ends");
            ended.into_iter().for_each(|ended| ended.expect("the thread's own assertion"));
        });
        assert_accounts_balance(store);
        for key in 0..KEYS {
            let is_there = store.may_contain(KeyHash::of(&key.to_le_bytes()));
            assert_eq!(get(store, key).found().is_some(), is_there, "key {key}");
        }
    }
}

/// Catches a regression: a region opened during the search for regions to wait for is included, and no insert closes
/// it, so the task waits forever.
#[test]
fn settle_beside_the_last_insert_completes() {
    let store = &open(Arc::new(MemoryDevice::new(small().capacity_bytes)), small());
    let mut random = StdRng::seed_from_u64(1);
    for round in 0..3_000 {
        while step(store) != Progress::Idle {}
        let both = &AtomicUsize::new(0);
        let meet = || {
            both.fetch_add(1, Ordering::SeqCst);
            while both.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
        };
        let late = random.random_range(0..100);
        let mut settling = pin!(store.settle());
        let at_once = std::thread::scope(|scope| {
            spawn(scope, "writer", move || {
                meet();
                put_version(store, round % KEYS, round);
            });
            meet();
            (0..late).for_each(|_| std::hint::spin_loop());
            poll_once(settling.as_mut()).is_some()
        });
        while step(store) != Progress::Idle {}
        assert!(at_once || poll_once(settling).is_some(), "round {round}");
    }
}
