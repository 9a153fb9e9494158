//! The calls that an eviction callback may make, and the state of the cache after a callback that panics or makes
//! another one.
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};

use device::MemoryDevice;
use flashwright_cache::config::{Removal, RemoveCallback};
use flashwright_cache::{Builder, Cache, FlashConfig, InsertOptions, Inserted};
use futures_util::FutureExt;

const DEFAULT_OPTIONS: InsertOptions = InsertOptions { pool: 0, ttl_seconds: None };
const MIB: u64 = 1 << 20;
/// Lengths of two values: the first is stored in buckets, the second in regions.
const LENGTHS: [usize; 2] = [300, 3000];

/// The reference through which a callback reaches its own cache.
type Home = Arc<OnceLock<Weak<Cache>>>;

fn memory_only() -> Builder {
    Cache::builder().dram_bytes(4 * MIB).max_item_bytes(16 << 10)
}

fn hybrid() -> Builder {
    let mut flash = FlashConfig::new(Arc::new(MemoryDevice::new(8 * MIB)));
    flash.regions.region_bytes = 128 << 10;
    flash.pending_bytes = 64 << 10;
    memory_only().flash_config(flash)
}

fn put(cache: &Cache, number: u64, len: usize) -> Inserted {
    cache.insert_blocking(&number.to_le_bytes(), &vec![number as u8; len], DEFAULT_OPTIONS)
}

/// A cache whose eviction callback calls `callback` with the cache.
fn cache_with_callback(
    builder: Builder,
    callback: impl Fn(&Cache, &[u8], Removal) + Send + Sync + 'static,
) -> Arc<Cache> {
    let home = Home::default();
    let inside = Arc::clone(&home);
    let on_evict: RemoveCallback = Arc::new(move |key, _, why| {
        if let Some(cache) = inside.get().and_then(Weak::upgrade) {
            callback(&cache, key, why);
        }
    });
    let cache = Arc::new(builder.on_evict(on_evict).open().unwrap());
    home.set(Arc::downgrade(&cache)).unwrap();
    cache
}

/// Takes the cache out of its `Arc`, after all callbacks have dropped their references.
fn into_sole_owner(mut cache: Arc<Cache>) -> Cache {
    loop {
        match Arc::try_unwrap(cache) {
            Ok(owned) => return owned,
            Err(shared) => cache = shared,
        }
        std::thread::yield_now();
    }
}

/// Runs `body` on another thread and fails if it takes longer than 60 s.
fn assert_completes(body: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let watched = move || {
        body();
        done.send(()).unwrap();
    };
    let thread = std::thread::Builder::new().spawn(watched).unwrap();
    let in_time = ended.recv_timeout(std::time::Duration::from_secs(60));
    assert_ne!(in_time, Err(mpsc::RecvTimeoutError::Timeout), "the test body hangs");
    thread.join().unwrap_or_else(|panic| resume_unwind(panic));
}

#[test]
fn callback_may_read_and_remove_in_its_cache() {
    assert_completes(|| {
        let callbacks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&callbacks);
        let cache = cache_with_callback(hybrid(), move |cache, key, _| {
            let number = u64::from_le_bytes(key.try_into().unwrap());
            for near in [number.wrapping_sub(700), number + 400] {
                let item = cache.get_blocking(&near.to_le_bytes());
                assert!(item.is_none_or(|item| item.iter().all(|byte| *byte == near as u8)));
            }
            cache.remove(&(number + 1).to_le_bytes());
            counted.fetch_add(1, Ordering::Relaxed);
        });
        std::thread::scope(|scope| {
            for client in 0..3 {
                let cache = &cache;
                scope.spawn(move || {
                    (0..5000).for_each(|at| _ = put(cache, at * 3 + client, LENGTHS[at as usize % 2]));
                });
            }
        });
        assert!(callbacks.load(Ordering::Relaxed) > 1000);
    });
}

/// The eviction of an item of one size class moves its slab to another class. If the callback ran under the lock of
/// that class, its insert would wait for that lock forever.
#[test]
fn insert_in_an_eviction_callback_is_refused_without_waiting() {
    for builder in [memory_only(), hybrid()] {
        assert_completes(move || {
            let refused = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&refused);
            let cache = cache_with_callback(builder, move |cache, key, _| {
                let note = [b"a note of ", key].concat();
                let insert = || cache.insert_blocking(&note, b"a new value", DEFAULT_OPTIONS);
                let panic = catch_unwind(AssertUnwindSafe(insert)).unwrap_err();
                let message = panic.downcast_ref::<String>().unwrap();
                assert!(
                    message.contains("on_evict must not insert an item into the cache that calls it"),
                    "{message}"
                );
                counted.fetch_add(1, Ordering::Relaxed);
            });
            (0..4000).for_each(|number| assert_eq!(put(&cache, number, 3000), Inserted::Stored));
            assert!(refused.load(Ordering::Relaxed) > 100);
        });
    }
}

/// The callback runs within a step. A second step that waited for the first would never return.
#[test]
fn step_in_an_eviction_callback_is_refused_without_waiting() {
    assert_completes(|| {
        let refused = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&refused);
        let home = Home::default();
        let inside = Arc::clone(&home);
        let on_evict: RemoveCallback = Arc::new(move |_, _, _| {
            let Some(cache) = inside.get().and_then(Weak::upgrade) else { return };
            let step = || pollster::block_on(cache.step());
            let panic = catch_unwind(AssertUnwindSafe(step)).unwrap_err();
            let message = panic.downcast_ref::<String>().unwrap();
            assert!(message.contains("on_evict must not step the cache that calls it"), "{message}");
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let cache = Arc::new(hybrid().on_evict(on_evict).open_stepped().unwrap());
        home.set(Arc::downgrade(&cache)).unwrap();
        for number in 0..8000 {
            put(&cache, number, LENGTHS[number as usize % 2]);
            while pollster::block_on(cache.step()) {}
        }
        assert!(refused.load(Ordering::Relaxed) > 100);
    });
}

#[test]
fn callback_panic_on_a_background_thread_is_contained() {
    for len in LENGTHS {
        assert_completes(move || {
            let panics = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&panics);
            let cache = cache_with_callback(hybrid(), move |_, _, why| {
                if why == Removal::EvictedFromFlash {
                    counted.fetch_add(1, Ordering::Relaxed);
                    resume_unwind(Box::new("a mistake in the callback"));
                }
            });
            let inserts = 40 * MIB / len as u64;
            for number in 0..inserts {
                assert_eq!(put(&cache, number, len), Inserted::Stored);
            }
            assert!(panics.load(Ordering::Relaxed) > 1000);
            into_sole_owner(cache).close().unwrap();
        });
    }
}

/// Catches a regression: the panic aborts the eviction half way and leaks the chunk of the item.
#[test]
fn callback_panic_during_an_insert_reaches_the_caller_after_the_eviction() {
    assert_completes(|| {
        let panics = Arc::new(AtomicBool::new(false));
        let armed = Arc::clone(&panics);
        let cache = cache_with_callback(memory_only(), move |_, _, _| {
            if armed.load(Ordering::Relaxed) {
                resume_unwind(Box::new("a mistake in the callback"));
            }
        });
        let fill = || (0..4000).for_each(|number| _ = put(&cache, number, 3000));
        let items = || {
            cache
                .stats()
                .pools
                .iter()
                .map(|pool| pool.classes.iter().map(|class| class.items).sum::<u64>())
                .sum::<u64>()
        };
        fill();
        let full = items();
        panics.store(true, Ordering::Relaxed);
        for number in 0..2 * full {
            let ended = catch_unwind(AssertUnwindSafe(|| put(&cache, 10_000 + number, 3000)));
            assert!(
                ended.is_ok_and(|ended| ended == Inserted::Stored) || items() < full,
                "the panic reaches the caller"
            );
        }
        panics.store(false, Ordering::Relaxed);
        fill();
        assert_eq!(items(), full, "all of the memory is in use again");
        // The hash seed is random: an item with a colliding fingerprint can keep one of the first items in the main
        // queue.
        let keys = (0..4000).chain(10_000..10_000 + 2 * full);
        let kept = keys.filter(|number: &u64| cache.contains(&number.to_le_bytes())).count() as u64;
        assert_eq!(kept, full, "every item in memory can be found");
    });
}

#[test]
fn last_reference_dropped_in_a_callback_closes_the_cache() {
    assert_completes(|| {
        let (inside, entered) = mpsc::channel();
        let (left, outside) = mpsc::channel::<()>();
        let (inside, outside) = (parking_lot::Mutex::new(inside), parking_lot::Mutex::new(outside));
        let first = AtomicBool::new(true);
        let cache = cache_with_callback(hybrid(), move |_, _, why| {
            if why == Removal::EvictedFromFlash && first.swap(false, Ordering::Relaxed) {
                inside.lock().send(()).unwrap();
                outside.lock().recv().unwrap();
            }
        });
        // While the callback blocks, no region accepts items, so inserts must not wait for one.
        let mut number = 0;
        while entered.try_recv().is_err() {
            let key = u64::to_le_bytes(number);
            let _ = cache.insert(&key, &[7; 3000], DEFAULT_OPTIONS).now_or_never();
            number += 1;
        }
        let engine = Arc::downgrade(&cache);
        drop(cache);
        assert!(engine.upgrade().is_some(), "the callback holds the last reference");
        left.send(()).unwrap();
        while engine.strong_count() > 0 {
            std::thread::yield_now();
        }
    });
}

/// The memory of a draft belongs to the cache that allocated it; another cache would look for it in its own memory.
#[test]
#[should_panic(expected = "in the tier that allocated it")]
fn new_item_is_inserted_into_its_own_cache() {
    let (here, there) = (memory_only().open().unwrap(), memory_only().open().unwrap());
    let mut item = there.allocate_blocking(b"key", 5, DEFAULT_OPTIONS).unwrap();
    item.copy_from_slice(b"value");
    here.insert_new(item);
}

#[test]
fn visitor_that_removes_and_inserts_sees_each_key_once() {
    let cache = memory_only().open().unwrap();
    (0..1000).for_each(|number| assert_eq!(put(&cache, number, 300), Inserted::Stored));
    let keys = |visit: &mut dyn FnMut(u64)| {
        cache.for_each_key_in_dram(|key| visit(u64::from_le_bytes(key.try_into().unwrap())));
    };
    let mut seen = Vec::new();
    keys(&mut |number| {
        if number < 1000 {
            seen.push(number);
            put(&cache, number + 1000, 300);
            assert!(cache.remove(&number.to_le_bytes()));
        }
    });
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..1000));
    let mut left = Vec::new();
    keys(&mut |number| left.push(number));
    left.sort_unstable();
    assert!(left.into_iter().eq(1000..2000));
}
