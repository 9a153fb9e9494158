//! Clients that send invalid data, stall or flood the server: each affects only its own connection, with limited memory.

use std::io::Write;
use std::sync::{Arc, Mutex};

use device::{IoError, MemoryDevice};
use flashwright_block::export::{Context, DeviceExport, Export, Extent, Operation, Reply, Shape};
use flashwright_block::nbd::Options;

use crate::client::*;

const SIZE_BYTES: u64 = 64 << 20;
const TOTAL_BYTES: usize = 40 << 20;

pub fn served(options: Options) -> Served {
    Served::new(Arc::new(DeviceExport::new(Arc::new(MemoryDevice::new(SIZE_BYTES)))), options)
}

pub fn assert_serves(served: &Served) {
    let mut client = Client::connect(&served.socket(), true, &[]);
    assert_eq!(client.call(READ, 0, 4096, 4096, &[]).data, [0; 4096]);
    assert_eq!(client.call(WRITE, 0, 4096, 4096, &[0; 4096]).error, 0);
}

#[test]
fn malformed_request_closes_the_connection() {
    let served = served(Options::default());
    let mut client = Client::connect(&served.socket(), true, &[]);
    client.socket.write_all(&[0x55; 28]).unwrap();
    assert!(client.is_closed_by_server());
    while served.server.counts().dropped == 0 {
        std::thread::yield_now();
    }
    assert_eq!(
        served.server.last_dropped().unwrap(),
        "a client was disconnected: it sent an invalid request"
    );
    assert_serves(&served);
}

#[test]
fn stalled_client_is_disconnected() {
    let limits = Options { client_timeout_seconds: 1, handshake_timeout_seconds: 1, ..Options::default() };
    let served = served(limits);
    let mut amid_handshake = Client::greeted(&served.socket());
    let mut amid_head = Client::connect(&served.socket(), true, &[]);
    amid_head.socket.write_all(&request(READ, 0, 1, 0, 512)[..20]).unwrap();
    let mut amid_payload = Client::connect(&served.socket(), true, &[]);
    amid_payload.send(WRITE, 0, 1, 0, 32 << 20, &[1; 1000]);
    let mut idle = Client::connect(&served.socket(), true, &[]);
    for stalled in [&mut amid_handshake, &mut amid_head, &mut amid_payload] {
        assert!(stalled.is_closed_by_server());
    }
    assert_eq!(idle.call(READ, 0, 0, 512, &[]).error, 0, "who owes nothing may be silent");
}

#[test]
fn client_that_does_not_read_replies_is_limited_to_its_own_budget() {
    let options = Options { total_bytes: TOTAL_BYTES, bytes_per_connection: 24 << 20, ..Options::default() };
    let served = served(options);
    let mut deaf: Vec<Client> = (0..4).map(|_| Client::connect(&served.socket(), true, &[])).collect();
    for client in &mut deaf {
        client.socket.set_nonblocking(true).unwrap();
        // Writes as long as the socket accepts data: the server stops reading at its limits.
        let flood = request(READ, 0, 1, 0, 8 << 20).repeat(4096);
        while client.socket.write(&flood).is_ok() {}
    }
    while served.server.counts().bytes_in_flight < 32 << 20 {
        std::thread::yield_now();
    }
    for _ in 0..20 {
        assert_serves(&served);
        let taken = served.server.counts().bytes_in_flight;
        assert!(taken <= TOTAL_BYTES as u64 + (128 << 10), "{taken} bytes in flight");
    }
}

/// A partly sent reply must not keep the connection's thread busy or prevent the server from stopping.
#[test]
fn client_that_disconnects_within_a_reply_is_closed() {
    for (client_timeout_seconds, dies) in [(60, true), (1, false)] {
        let served = served(Options { client_timeout_seconds, ..Options::default() });
        let mut client = Client::connect(&served.socket(), true, &[]);
        for cookie in 0..4 {
            client.send(READ, 0, cookie, 0, 8 << 20, &[]);
        }
        // Reads a part of the first reply, with the socket full.
        std::io::Read::read_exact(&mut client.socket, &mut [0; 1000]).unwrap();
        let client = (!dies).then_some(client);
        while served.server.counts().open > 0 {
            std::thread::yield_now();
        }
        assert_eq!(served.server.counts().bytes_in_flight, 0);
        assert_serves(&served);
        served.server.stop();
        drop(client);
    }
}

#[test]
fn unread_refusals_do_not_accumulate() {
    let served = served(Options { client_timeout_seconds: 2, ..Options::default() });
    let mut client = Client::connect(&served.socket(), true, &[]);
    client.socket.set_nonblocking(true).unwrap();
    let flood = request(READ, 0, 1, SIZE_BYTES, 512).repeat(1000);
    let mut sent = 0u64;
    // The server must stop reading: if it stored every refusal, this loop would not end.
    let mut idle = 0;
    while idle < 50 && sent < 1 << 30 {
        match client.socket.write(&flood) {
            Ok(written) => (sent, idle) = (sent + written as u64, 0),
            Err(_) => {
                idle += 1;
                std::thread::yield_now();
            }
        }
    }
    assert!(sent < 1 << 30, "{sent} bytes of wrong requests were taken");
    assert_serves(&served);
}

/// libnbd treats an early reply to a write as the end of the connection.
#[test]
fn refused_write_is_answered_after_its_payload() {
    let served = served(Options::default());
    let mut client = Client::connect(&served.socket(), true, &[]);
    client.send(WRITE, 0, 7, SIZE_BYTES - 512, 256 << 10, &[1; 100 << 10]);
    client.socket.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
    let early = std::io::Read::read(&mut client.socket, &mut [0; 1]);
    assert_eq!(early.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    client.socket.set_read_timeout(None).unwrap();
    client.socket.write_all(&[1; 156 << 10]).unwrap();
    assert_eq!((client.reply(0).error, client.call(READ, 0, 0, 512, &[]).error), (28, 0));
}

/// `nbdinfo --list` aborts the handshake, which is permitted.
#[test]
fn client_aborting_the_handshake_is_not_counted_as_dropped() {
    let served = served(Options::default());
    let mut client = Client::greeted(&served.socket());
    client.socket.shutdown(std::net::Shutdown::Read).unwrap();
    let abort = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &2u32.to_be_bytes(), &[0; 4]].concat();
    client.socket.write_all(&abort).unwrap();
    while served.server.counts().open > 0 {
        std::thread::yield_now();
    }
    assert_eq!(served.server.counts().dropped, 0, "{:?}", served.server.last_dropped());
}

/// Keeps every request until the test answers it.
#[derive(Default)]
pub struct Holding(pub Mutex<Vec<Reply>>);

impl Export for Holding {
    fn shape(&self) -> Shape {
        Shape {
            size_bytes: SIZE_BYTES,
            block_bytes: 512,
            sector_bytes: 512,
            preferred_bytes: 4096,
            read_only: false,
        }
    }

    fn submit(&self, _: Operation, reply: Reply) {
        self.0.lock().unwrap().push(reply);
    }

    fn extents(&self, _: Context, _: u64, _: u64, _: usize) -> Result<Vec<Extent>, IoError> {
        Ok(Vec::new())
    }
}

/// Each needs up to 256 KiB.
#[test]
fn prefetches_and_zeroing_count_towards_the_memory_limit() {
    let export = Arc::new(Holding::default());
    let served = Served::new(export.clone(), Options::default());
    let mut client = Client::connect(&served.socket(), true, &[]);
    for (number, (command, length)) in
        [(CACHE, 4 << 20), (CACHE, 4096), (WRITE_ZEROES, 4 << 20), (TRIM, 4 << 20)].into_iter().enumerate()
    {
        client.send(command, 0, number as u64, 0, length, &[]);
        while export.0.lock().unwrap().len() <= number {
            std::thread::yield_now();
        }
    }
    let bytes_in_flight = served.server.counts().bytes_in_flight;
    let held = std::mem::take(&mut *export.0.lock().unwrap());
    held.into_iter().for_each(|reply| reply.send(Ok(None)));
    assert_eq!(bytes_in_flight, (256 << 10) + 4096 + (256 << 10));
    while served.server.counts().bytes_in_flight > 0 {
        std::thread::yield_now();
    }
}
