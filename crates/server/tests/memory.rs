//! Memory of large values: they are in the memory of their items only.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::alloc::System;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use cache::Cache;
use flashwright_server::{Address, Options, Server};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

/// The memory of items is not from this allocator.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CONNECTIONS: usize = 32;

const VALUE_BYTES: usize = 1_000_000;

/// Permitted for a connection: its task and its buffers.
const CONNECTION_BYTES: usize = 64 << 10;

/// Bytes allocated so far, freed or not.
fn allocated_bytes() -> usize {
    ALLOCATOR.stats().bytes_allocated
}

fn exchange(client: &mut TcpStream, request: &[u8], reply: &[u8], buffer: &mut [u8]) {
    client.write_all(request).unwrap();
    let received = &mut buffer[..reply.len()];
    client.read_exact(received).unwrap();
    assert!(received == reply);
}

#[test]
fn large_values_of_many_connections_are_in_memory_once() {
    let cache = Arc::new(Cache::builder().dram_bytes(256 << 20).open().unwrap());
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    let options = Options { listen, threads: 2, ..Options::default() };
    let server = Server::start(Arc::clone(&cache), options).unwrap();
    let Address::Tcp(address) = server.addresses()[0] else { panic!("it listens on TCP") };
    let value = vec![b'v'; VALUE_BYTES];
    let half = VALUE_BYTES / 2;
    let requests: Vec<Vec<u8>> = (0..CONNECTIONS)
        .map(|number| [format!("set {number} 0 0 {VALUE_BYTES}\r\n").as_bytes(), &value, b"\r\n"].concat())
        .collect();
    let gets: Vec<[Vec<u8>; 2]> = (0..CONNECTIONS)
        .map(|number| {
            let line = format!("VALUE {number} 0 {VALUE_BYTES}\r\n");
            let reply = [line.as_bytes(), &value, b"\r\nEND\r\n"].concat();
            [format!("get {number}\r\n").into_bytes(), reply]
        })
        .collect();
    let mut buffer = vec![0; 2 * VALUE_BYTES];
    let mut clients: Vec<TcpStream> =
        (0..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
    clients.iter_mut().for_each(|client| exchange(client, b"mn\r\n", b"MN\r\n", &mut buffer));
    let before = allocated_bytes();
    // All values arrive at the same time.
    for (client, request) in clients.iter_mut().zip(&requests) {
        client.write_all(&request[..half]).unwrap();
    }
    for (client, request) in clients.iter_mut().zip(&requests) {
        exchange(client, &request[half..], b"STORED\r\n", &mut buffer);
    }
    for (client, [request, reply]) in clients.iter_mut().zip(&gets) {
        exchange(client, request, reply, &mut buffer);
    }
    let allocated = allocated_bytes() - before;
    let permitted = CONNECTIONS * CONNECTION_BYTES;
    assert!(allocated < permitted, "{allocated} bytes beside the items, {permitted} permitted");
    let in_items = cache.stats().dram_total().requested_bytes;
    assert!(in_items < (CONNECTIONS * (VALUE_BYTES + 1000)) as u64, "{in_items} bytes in items");
}
