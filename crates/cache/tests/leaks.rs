//! Memory that stays allocated after many calls: gets from flash, loads, opens and closes must free all that they
//! allocate.

use std::alloc::System;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use device::file::OpenOptions;
use device::{Device, FileDevice, IoBuffer, MemoryDevice};
use flashwright_cache::{Cache, FlashConfig, InsertOptions, block_on};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The allocator counts for the whole process, so only one test may run at a time.
static ALONE: Mutex<()> = Mutex::new(());

const MIB: u64 = 1 << 20;

/// Less than one byte per get: one leaked allocation of any size exceeds it. An idle cache keeps a few buffers.
const SLACK_BYTES: isize = 96 << 10;

fn live_bytes() -> isize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.cast_signed() - stats.bytes_deallocated.cast_signed()
}

fn assert_frees_all(repetitions: u32, mut once: impl FnMut(u32)) {
    (0..repetitions / 10).for_each(&mut once);
    let before = live_bytes();
    (0..repetitions).for_each(&mut once);
    let grown = live_bytes() - before;
    assert!(grown < SLACK_BYTES, "{grown} bytes more after {repetitions} repetitions");
}

fn open(device: Arc<dyn Device>) -> Cache {
    let mut flash = FlashConfig::new(device);
    flash.pairs[0].soc_share = 0.5;
    flash.regions.region_bytes = MIB as u32;
    flash.pending_bytes = MIB as usize;
    Cache::builder().dram_bytes(4 * MIB).flash_config(flash).open().expect("the configuration fits")
}

/// Keys alternate between small items, which go to buckets, and large ones, which go to regions.
fn insert(cache: &Cache, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let len = if number.is_multiple_of(2) { 200 } else { 4000 };
        cache.insert_blocking(&number.to_le_bytes(), &vec![7; len], InsertOptions::default());
    }
}

/// Catches a regression: each call leaks the table of its requests, 43 MiB in 100,000 calls.
#[test]
fn gets_from_flash_by_block_on_100_000_times_free_all() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().expect("the temporary directory is created");
    let options =
        OpenOptions { create: true, buffered: true, size_bytes: Some(32 * MIB), ..OpenOptions::default() };
    let file = FileDevice::open(directory.path().join("flash"), &options).expect("a file can be created");
    let cache = open(Arc::new(file));
    insert(&cache, 0..6000);
    cache.settle_blocking().expect("the file takes writes");
    let mut from_flash = 0;
    assert_frees_all(100_000, |number| {
        let key = (number.wrapping_mul(7919) % 6000).to_le_bytes();
        let item = block_on(cache.get(&key));
        from_flash += u32::from(item.is_some_and(|item| item.layer() == flashwright_cache::Layer::Flash));
    });
    assert!(from_flash > 10_000, "{from_flash} gets read flash");
}

#[test]
fn loads_that_succeed_fail_or_are_dropped_free_all() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cache = open(Arc::new(MemoryDevice::new(32 * MIB)));
    insert(&cache, 0..6000);
    let options = InsertOptions::default();
    assert_frees_all(100_000, |number| {
        let key = (number % 1000).to_le_bytes();
        if number.is_multiple_of(5) {
            cache.remove(&key);
        }
        match number % 3 {
            0 => drop(block_on(cache.get_or_insert_with(&key, options, async || Ok::<_, ()>(vec![1; 200])))),
            1 => drop(block_on(cache.get_or_insert_with(&key, options, async || Err::<Vec<u8>, _>("down")))),
            _ => {
                let fetch = cache.get_or_insert_with(&key, options, async || {
                    let mut is_ready = false;
                    std::future::poll_fn(|context| {
                        context.waker().wake_by_ref();
                        if std::mem::replace(&mut is_ready, true) { Poll::Ready(()) } else { Poll::Pending }
                    })
                    .await;
                    Ok::<_, ()>(vec![2; 200])
                });
                // Dropped after one poll: a thread of the cache continues the fetch.
                let polled = block_on(futures_util::future::poll_immediate(fetch));
                assert!(polled.is_none_or(|found| found.is_ok()));
            }
        }
    });
}

#[test]
fn opening_and_closing_a_cache_frees_all() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 * MIB));
    // The device allocates its memory at the first write of each part.
    for offset in (0..32 * MIB).step_by(MIB as usize) {
        let data = IoBuffer::zeroed(MIB as usize);
        device.write(offset, data).wait().expect("memory takes writes");
    }
    // Every other cache is closed, the others are dropped.
    assert_frees_all(60, |number| {
        let cache = open(Arc::clone(&device));
        insert(&cache, 0..3000);
        if number.is_multiple_of(2) {
            cache.close().expect("memory takes writes");
        }
    });
}
