//! Operations that are ready yield to their executor, and long operations run in several polls.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use device::wrap::GateDevice;
use device::{Device, MemoryDevice, RequestKind};
use flashwright_cache::{Cache, InsertOptions};

const MIB: u64 = 1 << 20;
const OPERATIONS: u32 = 10_000;
const DEFAULT_OPTIONS: InsertOptions = InsertOptions { pool: 0, ttl_seconds: None };

/// Counts how often its task is woken.
#[derive(Default)]
struct Counted(AtomicU32);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Polls `future` to completion, as an executor does: only after a wake. Returns how often it was pending.
fn pendings(future: impl Future) -> u32 {
    let counted = Arc::new(Counted::default());
    let waker = Waker::from(Arc::clone(&counted));
    let (mut future, mut pendings) = (pin!(future), 0);
    while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        pendings += 1;
        assert_eq!(counted.0.load(Ordering::SeqCst), pendings, "a task that yields is woken");
    }
    pendings
}

fn in_dram() -> Cache {
    Cache::builder().dram_bytes(16 * MIB).open().expect("the configuration is valid")
}

/// Without yielding, such a loop holds a runtime's thread for 291 ms.
#[test]
fn loops_of_gets_inserts_and_loads_yield_at_least_once_in_128_operations() {
    let cache = in_dram();
    let key = |number: u32| (number % 100).to_le_bytes();
    let inserts = pendings(async {
        for number in 0..OPERATIONS {
            cache.insert(&key(number), b"value", DEFAULT_OPTIONS).await;
        }
    });
    let gets = pendings(async {
        for number in 0..OPERATIONS {
            assert!(cache.get(&key(number)).await.is_some());
        }
    });
    let misses = pendings(async {
        for number in 0..OPERATIONS {
            assert!(cache.get(&(number + 1000).to_le_bytes()).await.is_none());
        }
    });
    let lives = pendings(async {
        for number in 0..OPERATIONS {
            assert_eq!(cache.set_ttl(&key(number), Some(1000)).await, Ok(true));
        }
    });
    let owned = pendings(async {
        for number in 0..OPERATIONS {
            assert!(cache.get_owned(&key(number)).await.is_some());
        }
    });
    for count in [inserts, gets, misses, lives, owned] {
        assert!((OPERATIONS / 128 - 1..OPERATIONS / 64).contains(&count), "{count} yields");
    }
}

/// Freeing 8 million items in one poll holds the caller's thread for 1.05 s.
#[test]
fn clear_async_yields_between_steps_and_drops_everything() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 * MIB));
    let cache =
        Cache::builder().dram_bytes(8 * MIB).flash(device).open().expect("the configuration is valid");
    for number in 0..20_000_u32 {
        let len = if number.is_multiple_of(2) { 100 } else { 4000 };
        cache.insert_blocking(&number.to_le_bytes(), &vec![7; len], DEFAULT_OPTIONS);
    }
    let yields = pendings(cache.clear_async());
    assert!(yields > 64, "{yields} steps");
    assert!(cache.is_empty());
    assert!((0..20_000_u32).all(|number| cache.get_blocking(&number.to_le_bytes()).is_none()));
    cache.insert_blocking(b"key", b"value", DEFAULT_OPTIONS);
    assert!(cache.get_blocking(b"key").is_some());
}

#[test]
fn clear_async_dropped_before_completion_leaves_a_usable_cache() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 * MIB));
    let cache =
        Cache::builder().dram_bytes(4 * MIB).flash(device).open().expect("the configuration is valid");
    let fill = || {
        for number in 0..10_000_u32 {
            cache.insert_blocking(&number.to_le_bytes(), &[7; 3000], DEFAULT_OPTIONS);
        }
    };
    let waker = Waker::from(Arc::new(Counted::default()));
    for steps in [1, 10, 100, 300, 400, 1000] {
        fill();
        let mut clear = Box::pin(cache.clear_async());
        for _ in 0..steps {
            if clear.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                break;
            }
        }
        drop(clear);
    }
    fill();
    cache.settle_blocking().expect("memory takes writes");
    let found = (0..10_000_u32).filter(|number| cache.get_blocking(&number.to_le_bytes()).is_some()).count();
    assert!(found > 5000, "all regions are in use again: {found} found");
}

#[test]
fn open_async_does_not_block_the_thread_that_polls_it() {
    let gate = Arc::new(GateDevice::new(Arc::new(MemoryDevice::new(64 * MIB))));
    let builder = || Cache::builder().dram_bytes(4 * MIB).flash(Arc::clone(&gate) as Arc<dyn Device>);
    let cache = builder().open().expect("the configuration is valid");
    (0..5000_u32).for_each(|number| {
        cache.insert_blocking(&number.to_le_bytes(), &[7; 4000], DEFAULT_OPTIONS);
    });
    cache.close().expect("memory takes writes");
    gate.close(RequestKind::Read);
    let mut open: Pin<Box<dyn Future<Output = _>>> = Box::pin(builder().open_async());
    let mut polls = 0;
    let cache = loop {
        polls += 1;
        match open.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(cache) => break cache.expect("the cache opens"),
            Poll::Pending => assert!(gate.release_held() > 0, "the open waits for a read"),
        }
    };
    gate.open();
    assert!(polls > 2 && cache.stats().flash.is_some_and(|flash| flash.recovered));
    assert!(cache.get_blocking(&4999_u32.to_le_bytes()).is_some());
}
