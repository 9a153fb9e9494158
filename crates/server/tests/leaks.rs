//! Memory leaks: connections must free all memory.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::alloc::System;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use cache::{Cache, FlashConfig};
use device::MemoryDevice;
use flashwright_server::{Address, Options, Server};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CONNECTIONS: u32 = 3000;

/// Permitted growth: less than 90 bytes per connection.
const SLACK_BYTES: isize = 256 << 10;

fn live_bytes() -> isize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.cast_signed() - stats.bytes_deallocated.cast_signed()
}

/// Writes and reads by two protocols and ends in one of four ways: `quit`, an end of the data, an unfinished value, or replies that
/// are not read.
fn connect_and_leave(server: &Server, number: u32) {
    let Address::Tcp(address) = &server.addresses()[0] else { panic!("it listens on TCP") };
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let value = "v".repeat(3000);
    let (key, len) = (number % 4000, value.len());
    let mut requests = format!("set key{key} 0 0 {len}\r\n{value}\r\nget key{key} key{}\r\n", key / 2);
    requests +=
        &format!("ms meta{key} {len} T60\r\n{value}\r\nmg meta{key} v t c k\r\nget {}\r\n", "k".repeat(300));
    match number % 4 {
        0 => requests += "quit\r\n",
        1 => {}
        2 => requests += "set unfinished 0 0 50000\r\nvalue",
        _ => requests += &"get key1\r\n".repeat(20),
    }
    client.write_all(requests.as_bytes()).unwrap();
    if number % 4 == 3 {
        return;
    }
    client.shutdown(Shutdown::Write).unwrap();
    let mut replies = Vec::new();
    client.read_to_end(&mut replies).unwrap();
    let replies = String::from_utf8_lossy(&replies);
    assert!(replies.starts_with("STORED\r\nVALUE key") && replies.contains("HD\r\nVA 3000"), "{replies}");
}

fn wait_until_all_left(server: &Server) {
    while server.open_connections() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn memcached_connections_free_all() {
    let mut config = FlashConfig::new(Arc::new(MemoryDevice::new(32 << 20)));
    config.pending_bytes = 1 << 20;
    let builder = Cache::builder().dram_bytes(4 << 20).max_item_bytes(64 << 10);
    let cache = builder.flash_config(config).small_item_share(0.5).open().unwrap();
    let options = Options { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 2, ..Options::default() };
    let server = Server::start(Arc::new(cache), options).unwrap();
    // The device allocates its memory at the first write of each part, so all of it is written first.
    (0..6 * CONNECTIONS).for_each(|number| connect_and_leave(&server, number));
    wait_until_all_left(&server);
    let before = live_bytes();
    (0..CONNECTIONS).for_each(|number| connect_and_leave(&server, number));
    wait_until_all_left(&server);
    let grown = live_bytes() - before;
    assert!(grown < SLACK_BYTES, "{grown} bytes more after {CONNECTIONS} connections");
}
