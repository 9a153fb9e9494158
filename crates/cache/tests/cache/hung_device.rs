//! A device that does not respond: inserts that do not wait, and closing with a deadline.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use device::wrap::GateDevice;
use device::{Device, MemoryDevice, RequestKind};
use flashwright_cache::config::LogOptions;
use flashwright_cache::{Cache, CacheError, FlashConfig, InsertOptions, Inserted, Refusal, SmallItems};

const MIB: u64 = 1 << 20;
const DEFAULT_OPTIONS: InsertOptions = InsertOptions { pool: 0, ttl_seconds: None };
/// A time limit that is reached only if an operation hangs.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);

fn gated() -> Arc<GateDevice> {
    Arc::new(GateDevice::new(Arc::new(MemoryDevice::new(32 * MIB))))
}

fn open(gate: &Arc<GateDevice>) -> Cache {
    open_with(gate, SmallItems::Log(LogOptions::default()))
}

fn open_with(gate: &Arc<GateDevice>, small_items: SmallItems) -> Cache {
    let mut flash = FlashConfig::new(Arc::clone(gate) as Arc<dyn Device>);
    flash.pairs[0].soc_share = 0.5;
    flash.regions.region_bytes = MIB as u32;
    flash.pending_bytes = MIB as usize;
    let builder = Cache::builder().dram_bytes(4 * MIB).flash_config(flash).small_items(small_items);
    builder.open().expect("the configuration fits")
}

fn key(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

/// A value that is small for even numbers and large for odd ones.
fn value(number: u32) -> Vec<u8> {
    vec![number as u8; if number.is_multiple_of(2) { 300 } else { 6000 }]
}

/// Inserts without waiting until no item can be evicted from DRAM. Returns the numbers of the stored items.
fn fill_until_behind(cache: &Cache) -> Vec<u32> {
    let mut stored = Vec::new();
    let mut refused_in_a_row = 0;
    for number in 0.. {
        match cache.try_insert(&key(number), &value(number), DEFAULT_OPTIONS) {
            Inserted::Stored => {
                stored.push(number);
                refused_in_a_row = 0;
            }
            Inserted::Rejected(refusal) => {
                assert_eq!(refusal, Refusal::FlashBehind);
                refused_in_a_row += 1;
            }
        }
        if refused_in_a_row == 20 {
            break;
        }
    }
    stored
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs `body` on another thread and fails if it takes longer than a limit.
fn in_time<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = channel();
    let thread = std::thread::Builder::new().spawn(move || {
        let _ = done.send(body());
    });
    let output = result.recv_timeout(LONG).expect("the operation hangs");
    thread.expect("a thread can be started").join().expect("the thread does not panic");
    output
}

#[test]
fn bounded_inserts_are_refused_and_counted_while_the_device_hangs() {
    let gate = gated();
    let cache = open(&gate);
    gate.close(RequestKind::Write);
    let stored = fill_until_behind(&cache);
    let (victim, newest) = (key(1_000_001), *stored.last().expect("DRAM took some"));
    let large = value(1);
    let before = cache.stats().inserts;
    assert!(before.rejected_flash_behind >= 20 && before.rejected() == before.rejected_flash_behind);
    let within = cache.insert_within_blocking(&victim, &large, DEFAULT_OPTIONS, SHORT);
    assert_eq!(within, Inserted::Rejected(Refusal::FlashBehind));
    assert!(cache.get_blocking(&key(newest)).is_some());
    let replaced = cache.insert_within_blocking(&key(newest), &vec![9; 6000], DEFAULT_OPTIONS, SHORT);
    if replaced == Inserted::Rejected(Refusal::FlashBehind) {
        assert!(cache.get_blocking(&key(newest)).is_none(), "a refused insert removes the old value");
    }
    let after = cache.stats().inserts;
    assert!(after.rejected_flash_behind > before.rejected_flash_behind);
    assert_eq!(after.ends().iter().map(|(_, count)| count).sum::<u64>(), after.total());
    gate.open();
    let inserted = cache.insert_within_blocking(&victim, &large, DEFAULT_OPTIONS, LONG);
    assert_eq!(inserted, Inserted::Stored);
}

/// The caller replaces the old value, so a get after the dropped insert must not return it.
#[test]
fn insert_dropped_while_it_waits_removes_the_old_value() {
    let gate = gated();
    let cache = open(&gate);
    gate.close(RequestKind::Write);
    let stored = fill_until_behind(&cache);
    let mut removed = 0;
    for &number in stored.iter().rev().take(50) {
        assert!(cache.get_blocking(&key(number)).is_some());
        let large = vec![9; 6000];
        let name = key(number);
        let mut insert = Box::pin(cache.insert(&name, &large, DEFAULT_OPTIONS));
        match poll_once(insert.as_mut()) {
            Poll::Ready(ended) => assert_eq!(ended, Inserted::Stored),
            Poll::Pending => {
                drop(insert);
                removed += 1;
                assert!(cache.get_blocking(&key(number)).is_none(), "{number} has its old value");
            }
        }
    }
    assert!(removed > 0, "some inserts had to wait");
    gate.open();
}

/// Catches a regression: the close waits until the device responds, and requires the last reference to the cache.
#[test]
fn close_within_of_a_hung_device_returns_at_the_deadline() {
    for small_items in [SmallItems::Sets, SmallItems::Log(LogOptions::default())] {
        let gate = gated();
        let cache = Arc::new(open_with(&gate, small_items));
        gate.close(RequestKind::Write);
        let stored = fill_until_behind(&cache);
        let shared = Arc::clone(&cache);
        let closed = in_time(move || shared.close_within(SHORT));
        let Err(CacheError::Unfinished { dram_items, waiting_bytes }) = closed else { panic!("{closed:?}") };
        assert!(dram_items > 100 && waiting_bytes > 100_000, "{dram_items} items, {waiting_bytes} bytes");
        assert!(dram_items <= stored.len());
        assert_eq!(cache.try_insert(b"key", b"value", DEFAULT_OPTIONS), Inserted::Rejected(Refusal::Closed));
        // The cache's threads wait for the device; dropping the cache does not wait for them.
        in_time(move || drop(cache));
        gate.open();
    }
}

#[test]
fn close_within_can_be_repeated_when_the_device_responds_again() {
    let gate = gated();
    let cache = Arc::new(open(&gate));
    (0..2000).for_each(|number| {
        cache.insert_blocking(&key(number), &value(number), DEFAULT_OPTIONS);
    });
    gate.close(RequestKind::Write);
    assert!(matches!(cache.close_within(SHORT), Err(CacheError::Unfinished { .. })));
    gate.open();
    cache.close_within(LONG).expect("the device responds");
    cache.close_within(SHORT).expect("the cache is closed already");
    let found =
        |cache: &Cache| (0..2000).filter(|&number| cache.get_blocking(&key(number)).is_some()).count();
    assert!(found(&cache) > 1000, "a closed cache can be read");
    drop(cache);
    let cache = open(&gate);
    assert!(cache.stats().flash.is_some_and(|flash| flash.recovered));
    assert!(found(&cache) > 1000);
}

/// Catches a regression: the close joins the background threads within a poll and blocks its runtime until the device
/// responds.
#[test]
fn close_async_does_not_block_the_thread_that_polls_it() {
    let gate = gated();
    let cache = open(&gate);
    gate.close(RequestKind::Write);
    // The write of a full region hangs. No other item is in DRAM.
    let mut inserted = 0;
    while gate.held() == 0 {
        let _ = cache.try_insert(&key(inserted), &value(1), DEFAULT_OPTIONS);
        inserted += 1;
    }
    for number in 0..inserted {
        cache.remove(&key(number));
    }
    let closed = in_time(move || {
        let mut close = Box::pin(cache.close_async());
        assert!(poll_once(close.as_mut()).is_pending());
        gate.open();
        flashwright_cache::block_on(close)
    });
    closed.expect("the device responds");
}

/// Each round removes the key after another number of the writes that closing makes.
#[test]
fn key_removed_during_close_is_absent_after_reopen() {
    for passes in 0..8 {
        let gate = gated();
        let cache = Arc::new(open(&gate));
        (0..300).for_each(|number| {
            cache.insert_blocking(&key(number), &value(number), DEFAULT_OPTIONS);
        });
        gate.close(RequestKind::Write);
        let (shared, removed_key) = (Arc::clone(&cache), key(7));
        let close = std::thread::Builder::new().spawn(move || shared.close_within(LONG)).expect("a thread");
        for _ in 0..passes {
            while gate.held() == 0 && !close.is_finished() {
                std::thread::park_timeout(Duration::from_micros(100));
            }
            gate.release_held();
        }
        while gate.held() == 0 && !close.is_finished() {
            std::thread::park_timeout(Duration::from_micros(100));
        }
        let is_closing = !close.is_finished();
        cache.remove(&removed_key);
        gate.open();
        let closed = close.join().expect("the thread does not panic");
        drop(cache);
        let cache = open(&gate);
        let is_back = cache.get_blocking(&removed_key).is_some();
        assert!(!is_closing || !is_back, "after {passes} writes: {closed:?}");
    }
}
