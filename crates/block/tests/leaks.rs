//! Memory leaks: connections must free all memory.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::alloc::System;
use std::sync::{Arc, Mutex, PoisonError};

use device::file::OpenOptions;
use device::timer::SystemTimer;
use device::{Device, FileDevice};
use flashwright_block::export::{ByteExport, DeviceExport, Export, VolumeExport};
use flashwright_block::nbd::Options;
use flashwright_block::volume::{Volume, VolumeConfig};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[allow(dead_code, reason = "other tests need more of the client")]
#[path = "nbd/client.rs"]
mod client;

use client::{Client, DISCONNECT, READ, Served, WRITE};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The allocator counts for the whole process, so only one test may run at a time.
static ALONE: Mutex<()> = Mutex::new(());

const CONNECTIONS: u32 = 3000;

/// Queue depth of each client.
const DEPTH: u64 = 64;

/// Permitted growth: less than 90 bytes per connection. The leak that this test was written for took 6.6 KB.
const SLACK_BYTES: isize = 256 << 10;

fn live_bytes() -> isize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.cast_signed() - stats.bytes_deallocated.cast_signed()
}

fn file(directory: &tempfile::TempDir, name: &str) -> Arc<dyn Device> {
    let options =
        OpenOptions { create: true, buffered: true, size_bytes: Some(8 << 20), ..OpenOptions::default() };
    Arc::new(FileDevice::open(directory.path().join(name), &options).unwrap())
}

/// One connection with a burst of requests. Every third client disconnects without reading its replies.
fn connect_and_leave(served: &Served, number: u32) {
    let mut client = Client::connect(&served.socket(), number.is_multiple_of(2), &[]);
    for cookie in 0..DEPTH {
        client.send(READ, 0, cookie, cookie * 4096, 4096, &[]);
    }
    if number.is_multiple_of(3) {
        return;
    }
    for _ in 0..DEPTH {
        assert_eq!(client.reply(4096).error, 0);
    }
    assert_eq!(client.call(WRITE, 0, 4096, 4096, &[7; 4096]).error, 0);
    client.send(DISCONNECT, 0, 0, 0, 0, &[]);
    assert!(client.is_closed_by_server());
}

/// Waits until the threads of closed connections have ended.
fn wait_until_all_left(served: &Served) {
    while served.server.counts().open > 0 {
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
    // A connection's thread is joined when the next client connects.
    drop(Client::connect(&served.socket(), false, &[]));
    while served.server.counts().open > 0 {
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
}

fn assert_connections_free_all(export: Arc<dyn Export>) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let served = Served::new(export, Options::default());
    (0..CONNECTIONS / 20).for_each(|number| connect_and_leave(&served, number));
    wait_until_all_left(&served);
    let before = live_bytes();
    (0..CONNECTIONS).for_each(|number| connect_and_leave(&served, number));
    wait_until_all_left(&served);
    let grown = live_bytes() - before;
    assert!(grown < SLACK_BYTES, "{grown} bytes more after {CONNECTIONS} connections");
}

#[test]
fn nbd_connections_to_a_file_free_all() {
    let directory = tempfile::tempdir().unwrap();
    let file = file(&directory, "disk");
    assert_connections_free_all(Arc::new(ByteExport::new(Arc::new(DeviceExport::new(file)))));
}

#[test]
fn nbd_connections_to_a_volume_free_all() {
    let directory = tempfile::tempdir().unwrap();
    let (flash, disk) = (file(&directory, "flash"), file(&directory, "disk"));
    let volume = pollster::block_on(async {
        let config = VolumeConfig { ways: 64, ..VolumeConfig::default() };
        Volume::create(&flash, &disk, &config, 1).await.unwrap();
        Volume::open(flash, disk, Arc::new(SystemTimer::default())).await.unwrap().0
    });
    assert_connections_free_all(Arc::new(VolumeExport::new(volume).unwrap()));
}
