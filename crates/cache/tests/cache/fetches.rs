//! Fetches whose callers are dropped: with a spawner, without one, and on the cache's own thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use device::MemoryDevice;
use device::wrap::GateDevice;
use event_listener::Event;
use flashwright_cache::{Builder, Cache, Fetched, InsertOptions};
use futures_util::{StreamExt, stream};
use pollster::block_on;
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

const KEY: &[u8] = b"key";
const DEFAULT_OPTIONS: InsertOptions = InsertOptions { pool: 0, ttl_seconds: None };

fn builder() -> Builder {
    Cache::builder().dram_bytes(4 << 20)
}

/// A runtime whose clock jumps to the next timer whenever all of its tasks wait.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O")
}

async fn slow_fetch(fetches: Arc<AtomicUsize>) -> Result<Vec<u8>, ()> {
    fetches.fetch_add(1, Ordering::SeqCst);
    sleep(Duration::from_millis(299)).await;
    Ok(b"value".to_vec())
}

/// Starts callers `gap_ms` apart that each wait at most 200 ms for a fetch of 299 ms. Returns the number of
/// callers that got the value and the number of fetches.
fn callers_with_timeout(runtime: &Runtime, cache: Cache, gap_ms: u64) -> (usize, usize) {
    let (cache, fetches) = (Arc::new(cache), Arc::new(AtomicUsize::new(0)));
    let served = runtime.block_on(async {
        let callers: Vec<_> = (0..50)
            .map(|number| {
                let (cache, fetches) = (Arc::clone(&cache), Arc::clone(&fetches));
                tokio::spawn(async move {
                    sleep(Duration::from_millis(number * gap_ms + 1)).await;
                    let load = cache.get_or_insert_with(KEY, DEFAULT_OPTIONS, || slow_fetch(fetches));
                    timeout(Duration::from_millis(200), load)
                        .await
                        .is_ok_and(|loaded| loaded.is_ok_and(|value| *value == *b"value"))
                })
            })
            .collect();
        let mut served = 0;
        for caller in callers {
            served += usize::from(caller.await.expect("callers do not panic"));
        }
        sleep(Duration::from_millis(300)).await;
        served
    });
    (served, fetches.load(Ordering::SeqCst))
}

/// If each fetch were dropped with its caller, 8 fetches would run and no caller would get the value.
#[test]
fn callers_that_time_out_before_the_fetch_ends_share_one_fetch() {
    for with_spawner in [false, true] {
        let (runtime, mut builder) = (runtime(), builder());
        if with_spawner {
            let handle = runtime.handle().clone();
            builder = builder.spawner(move |task| drop(handle.spawn(task)));
        }
        // The callers of the first 100 ms time out before the fetch ends.
        assert_eq!(callers_with_timeout(&runtime, builder.open().unwrap(), 20), (45, 1), "{with_spawner}");
    }
}

#[test]
fn fetch_on_a_spawner_is_stored_after_all_callers_are_dropped() {
    let runtime = runtime();
    let handle = runtime.handle().clone();
    let cache = builder().spawner(move |task| drop(handle.spawn(task))).open().unwrap();
    let fetches = Arc::new(AtomicUsize::new(0));
    runtime.block_on(async {
        let loads = (0..50).map(|_| {
            let load = cache.get_or_insert_with(KEY, DEFAULT_OPTIONS, || slow_fetch(Arc::clone(&fetches)));
            timeout(Duration::from_millis(200), load)
        });
        assert!(futures_util::future::join_all(loads).await.iter().all(Result::is_err));
        sleep(Duration::from_millis(150)).await;
    });
    assert_eq!(fetches.load(Ordering::SeqCst), 1);
    assert_eq!(cache.get_blocking(KEY).as_deref(), Some(&b"value"[..]));
}

#[cfg(feature = "tokio")]
#[test]
fn fetch_in_a_tokio_runtime_is_stored_after_its_caller_is_dropped() {
    let (runtime, cache, fetches) = (runtime(), builder().open().unwrap(), Arc::new(AtomicUsize::new(0)));
    runtime.block_on(async {
        let load = cache.get_or_insert_with(KEY, DEFAULT_OPTIONS, || slow_fetch(fetches));
        assert!(timeout(Duration::from_millis(200), load).await.is_err());
        sleep(Duration::from_millis(150)).await;
    });
    assert!(cache.contains(KEY));
}

#[test]
fn own_thread_continues_a_fetch_after_its_last_caller_is_dropped() {
    let (cache, answered) = (builder().open().unwrap(), Event::new());
    let answer = answered.listen();
    let mut load = Box::pin(cache.get_or_insert_with(KEY, DEFAULT_OPTIONS, async move || {
        answer.await;
        Ok::<_, ()>(b"value".to_vec())
    }));
    assert!(futures_util::FutureExt::now_or_never(&mut load).is_none());
    drop(load);
    answered.notify(1);
    // A caller that starts now joins the fetch or finds its value.
    let second = async || -> Result<Vec<u8>, ()> { panic!("an unexpected second fetch") };
    assert_eq!(*block_on(cache.get_or_insert_with(KEY, DEFAULT_OPTIONS, second)).unwrap(), *b"value");
    cache.close().unwrap();
}

/// A fetch that never completes must not prevent the cache from closing and releasing its device.
#[test]
fn cache_closes_while_its_own_thread_waits_for_a_fetch() {
    let device: Arc<dyn device::Device> = Arc::new(MemoryDevice::new(8 << 20));
    let cache = builder().flash(Arc::clone(&device)).open().unwrap();
    let never = || std::future::pending::<Result<Vec<u8>, ()>>();
    let mut load = Box::pin(cache.get_or_insert_with(KEY, DEFAULT_OPTIONS, never));
    assert!(futures_util::FutureExt::now_or_never(&mut load).is_none());
    drop(load);
    cache.close().unwrap();
    assert_eq!(Arc::strong_count(&device), 1);
}

/// `buffered` polls the loads that it holds only while its consumer polls the stream.
#[test]
fn consumer_of_buffered_loads_can_load_the_same_keys() {
    let cache = builder().open().unwrap();
    let load = async |number: u32| {
        let fetch = async move || {
            tokio::task::yield_now().await;
            Ok::<_, ()>(number.to_le_bytes().to_vec())
        };
        cache.get_or_insert_with(&number.to_le_bytes(), DEFAULT_OPTIONS, fetch).await.unwrap().to_vec()
    };
    runtime().block_on(async {
        let mut loads = stream::iter(0..32).map(&load).buffered(8);
        let mut number = 0;
        while loads.next().await.is_some() {
            for ahead in number..number + 8 {
                assert_eq!(load(ahead).await, ahead.to_le_bytes());
            }
            number += 1;
        }
    });
}

/// Catches a regression: callers of a completed fetch wait until flash has written the items evicted from DRAM.
#[test]
fn fetched_value_is_returned_while_flash_hangs_and_stored_afterwards() {
    let gate = Arc::new(GateDevice::new(Arc::new(MemoryDevice::new(16 << 20))));
    let cache = builder().flash(Arc::clone(&gate) as _).open().unwrap();
    gate.close(device::RequestKind::Write);
    // Fills DRAM until an insert has waited for 100 ms: by then all flash writes that can start have started.
    let (mut waits, mut number) = (0, 0_u32);
    while waits < 100 {
        number += 1;
        let (key, value) = (number.to_le_bytes(), [7; 3000]);
        let mut insert = Box::pin(cache.insert(&key, &value, DEFAULT_OPTIONS));
        if futures_util::FutureExt::now_or_never(&mut insert).is_some() {
            waits = 0;
        } else {
            waits += 1;
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
    let fetch = async || Ok::<_, ()>(vec![1; 3000]);
    for _ in 0..20 {
        let loaded = block_on(cache.get_or_insert_with(KEY, DEFAULT_OPTIONS, fetch)).unwrap();
        assert!(matches!(loaded, Fetched::Made(_)) && *loaded == [1; 3000]);
        let loaded = cache
            .get_or_insert_with_blocking(KEY, DEFAULT_OPTIONS, || Err("the value is not stored yet"))
            .unwrap();
        assert_eq!(*loaded, [1; 3000]);
    }
    assert!(cache.get_blocking(KEY).is_none());
    gate.open();
    let again = async || -> Result<Vec<u8>, ()> { panic!("an unexpected second fetch") };
    while !matches!(block_on(cache.get_or_insert_with(KEY, DEFAULT_OPTIONS, again)), Ok(Fetched::Found(_))) {
        std::thread::yield_now();
    }
    cache.close().unwrap();
}
