//! Memory after many calls: event loops, requests, opens and closes must free all allocations.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::alloc::System;
use std::sync::{Arc, Mutex, PoisonError};

use flashwright_device::event_loop::{EventLoop, block_on, wait_for};
use flashwright_device::file::{Engine, OpenOptions};
use flashwright_device::{Device, FileDevice, IoBuffer, Request};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The allocator counts for the whole process, so only one test may run at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Less than one byte per repetition: one leaked allocation of any size exceeds it.
const SLACK_BYTES: isize = 32 << 10;

fn live_bytes() -> isize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.cast_signed() - stats.bytes_deallocated.cast_signed()
}

/// Runs `once` often and asserts that the live heap does not grow after the first runs have filled pools and thread-locals.
fn assert_frees_all(repetitions: u32, mut once: impl FnMut(u32)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    (0..repetitions / 20).for_each(&mut once);
    let before = live_bytes();
    (0..repetitions).for_each(&mut once);
    let grown = live_bytes() - before;
    assert!(grown < SLACK_BYTES, "{grown} bytes more after {repetitions} repetitions");
}

fn file(directory: &tempfile::TempDir, engine: Option<Engine>) -> Arc<FileDevice> {
    let options = OpenOptions {
        create: true,
        buffered: true,
        size_bytes: Some(1 << 20),
        engine,
        ..OpenOptions::default()
    };
    Arc::new(FileDevice::open(directory.path().join("file"), &options).unwrap())
}

fn read(number: u32) -> Request {
    Request::read(u64::from(number % 256) * 4096, 4096)
}

async fn read_some(device: &Arc<dyn Device>, requests: u32) {
    let started: Vec<_> = (0..requests).map(|number| device.start(read(number))).collect();
    for pending in started {
        assert!(!pending.await.unwrap().is_empty());
    }
}

/// Catches a regression: each call leaks its request table: 43 MiB after 100,000 calls.
#[test]
fn block_on_with_device_io_100_000_times_frees_all() {
    let directory = tempfile::tempdir().unwrap();
    let device: Arc<dyn Device> = file(&directory, None);
    assert_frees_all(100_000, |number| block_on(read_some(&device, 1 + number % 3)));
}

#[test]
fn wait_for_with_device_io_100_000_times_frees_all() {
    let directory = tempfile::tempdir().unwrap();
    let device: Arc<dyn Device> = file(&directory, None);
    assert_frees_all(100_000, |_| wait_for(read_some(&device, 1)));
}

/// The future is dropped with requests in flight; the event loop waits for them.
#[test]
fn block_on_a_future_that_abandons_its_requests_frees_all() {
    let directory = tempfile::tempdir().unwrap();
    let device: Arc<dyn Device> = file(&directory, None);
    assert_frees_all(20_000, |number| {
        block_on(async { drop((0..5).map(|i| device.start(read(number + i))).collect::<Vec<_>>()) });
    });
}

#[test]
fn event_loop_dropped_with_requests_in_flight_frees_all() {
    let directory = tempfile::tempdir().unwrap();
    let device: Arc<dyn Device> = file(&directory, None);
    assert_frees_all(20_000, |number| {
        let event_loop = EventLoop::new([]);
        for offset in 0..8 {
            drop(device.start(read(number + offset)));
        }
        drop(event_loop);
    });
}

#[test]
fn threads_that_use_a_device_and_end_free_all() {
    let directory = tempfile::tempdir().unwrap();
    let device: Arc<dyn Device> = file(&directory, None);
    assert_frees_all(2_000, |_| {
        let device = Arc::clone(&device);
        let thread = std::thread::Builder::new().spawn(move || {
            block_on(read_some(&device, 4));
            device.start(read(0)).wait().unwrap()
        });
        drop(thread.unwrap().join().unwrap());
    });
}

#[test]
fn opening_and_closing_a_file_frees_all_with_either_engine() {
    let directory = tempfile::tempdir().unwrap();
    for engine in [Engine::IoUring, Engine::ThreadPool] {
        let options = OpenOptions { engine: Some(engine), ..OpenOptions::default() };
        drop(file(&directory, None));
        if FileDevice::open(directory.path().join("file"), &OpenOptions { buffered: true, ..options })
            .is_err()
        {
            continue; // io_uring is not permitted here.
        }
        assert_frees_all(1_000, |number| {
            let device: Arc<dyn Device> = file(&directory, Some(engine));
            let page = IoBuffer::zeroed(4096);
            device.write(0, page).wait().unwrap();
            block_on(read_some(&device, 1 + number % 8));
        });
    }
}
