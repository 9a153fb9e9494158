//! Connection slots: clients that hold connections without using them do not exclude others.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use device::MemoryDevice;
use flashwright_block::export::DeviceExport;
use flashwright_block::nbd::{Address, Offered, Options, Server};
use rustix::net::{AddressFamily, SocketType};

use crate::client::*;
use crate::hostile::{Holding, assert_serves, served};

/// Otherwise they would exclude all other clients until the time limit.
#[test]
fn half_open_connections_at_the_limit_do_not_block_a_new_client() {
    let served = served(Options::default());
    let half_open: Vec<Client> = (0..64).map(|_| Client::greeted(&served.socket())).collect();
    assert_serves(&served);
    let counts = served.server.counts();
    assert_eq!((counts.displaced, counts.turned_away), (64 - 16 + 1, 0));
    drop(half_open);
}

/// Idle connections must not exclude new clients.
#[test]
fn new_client_at_the_limit_displaces_an_idle_connection() {
    let served = served(Options::default());
    let mut idle: Vec<Client> = (0..64).map(|_| Client::connect(&served.socket(), true, &[])).collect();
    // The second connection has the longest idle time: a handshake may end on the server after later ones have begun.
    for client in idle.iter_mut().enumerate().filter(|(number, _)| *number != 1).map(|(_, client)| client) {
        assert_eq!(client.call(READ, 0, 0, 512, &[]).error, 0);
    }
    let mut new = Client::connect(&served.socket(), true, &[]);
    assert_eq!(new.call(READ, 0, 0, 512, &[]).error, 0);
    assert!(idle[1].is_closed_by_server());
    for client in idle.iter_mut().skip(2).chain(&mut [new]) {
        assert_eq!(client.call(READ, 0, 0, 512, &[]).error, 0);
    }
    assert_eq!(idle[0].call(READ, 0, 0, 512, &[]).error, 0);
    let counts = served.server.counts();
    assert_eq!((counts.displaced, counts.turned_away, counts.dropped), (1, 0, 0));
}

/// A request in flight may take as long as the disk needs.
#[test]
fn new_client_is_refused_if_all_connections_are_busy() {
    let export = Arc::new(Holding::default());
    let options = Options { max_connections: 2, handshake_timeout_seconds: 2, ..Options::default() };
    let served = Served::new(export.clone(), options);
    let mut busy = [(); 2].map(|()| Client::connect(&served.socket(), true, &[]));
    for (cookie, client) in (0..).zip(&mut busy) {
        client.send(TRIM, 0, cookie, 0, 4096, &[]);
    }
    while export.0.lock().unwrap().len() < 2 {
        std::thread::yield_now();
    }
    let mut refused = Client::greeted(&served.socket());
    std::io::Write::write_all(&mut refused.socket, &3u32.to_be_bytes()).unwrap();
    let (result, why) = refused.ask(7, &[0; 6]);
    assert_eq!((result, &why[..]), (1 << 31 | 2, &b"too many clients are connected"[..]));
    assert!(refused.is_closed_by_server());
    std::mem::take(&mut *export.0.lock().unwrap()).into_iter().for_each(|reply| reply.send(Ok(None)));
    for client in &mut busy {
        assert_eq!(client.reply(0).error, 0);
    }
    while served.server.counts().turned_away == 0 {
        std::thread::yield_now();
    }
    assert_eq!(served.server.counts().displaced, 0);
}

#[test]
fn new_client_at_the_limit_displaces_a_stalled_connection() {
    let served = served(Options {
        max_connections: 2,
        client_timeout_seconds: 600,
        handshake_timeout_seconds: 1,
        ..Options::default()
    });
    let mut stalled = [(); 2].map(|()| Client::connect(&served.socket(), true, &[]));
    stalled[0].send(WRITE, 0, 1, 0, 1 << 20, &[1; 1000]);
    // Requests more than the socket's buffer holds, and reads none of it.
    for cookie in 0..8 {
        stalled[1].send(READ, 0, cookie, 0, 4 << 20, &[]);
    }
    // The first attempt may come before both clients have stalled long enough.
    let mut new = [(); 2].map(|()| {
        loop {
            let mut client = Client::greeted(&served.socket());
            std::io::Write::write_all(&mut client.socket, &3u32.to_be_bytes()).unwrap();
            let mut result = client.ask(7, &[0; 6]);
            while result.0 == 3 {
                result = client.result();
            }
            if result.0 == 1 {
                break client;
            }
        }
    });
    assert!(stalled[0].is_closed_by_server());
    for client in &mut new {
        assert_eq!(
            client.call(READ, 0, 0, 0, &[]).error,
            22,
            "an empty read is refused, so the client is served"
        );
    }
    assert_eq!(served.server.counts().displaced, 2);
}

/// A client that connects from the loopback address 127.0.0.`host`.
fn from_host(host: u8, server: std::net::SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &std::net::SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
    rustix::net::connect(&socket, &server).unwrap();
    TcpStream::from(socket)
}

#[test]
fn connections_are_limited_per_address() {
    let export = Arc::new(Holding::default());
    let offered = vec![Offered { name: "disk".into(), description: String::new(), export: export.clone() }];
    let options = Options { max_connections: 4, handshake_timeout_seconds: 1, ..Options::default() };
    let server = Server::start(&Address::Tcp("127.0.0.1:0".parse().unwrap()), offered, options).unwrap();
    let Address::Tcp(address) = *server.address() else { panic!("the server listens on TCP") };
    let mut busy: Vec<Client> = (0..3).map(|_| Client::over(from_host(1, address), "", true, &[])).collect();
    for client in &mut busy {
        client.send(TRIM, 0, 1, 0, 4096, &[]);
    }
    while export.0.lock().unwrap().len() < 3 {
        std::thread::yield_now();
    }
    let mut fourth = Client::over_greeted(from_host(1, address));
    std::io::Write::write_all(&mut fourth.socket, &3u32.to_be_bytes()).unwrap();
    assert_eq!(fourth.ask(7, &[0; 6]).0, 1 << 31 | 2, "three quarters of the slots are taken by its address");
    let _other = Client::over(from_host(2, address), "", true, &[]);
    assert_eq!(server.counts().displaced, 0);
    std::mem::take(&mut *export.0.lock().unwrap()).into_iter().for_each(|reply| reply.send(Ok(None)));
}

/// A client with a single connection keeps it.
#[test]
fn address_with_most_idle_connections_is_displaced_first() {
    let export = Arc::new(DeviceExport::new(Arc::new(MemoryDevice::new(1 << 20))));
    let offered = vec![Offered { name: "disk".into(), description: String::new(), export }];
    let options = Options { max_connections: 4, ..Options::default() };
    let server = Server::start(&Address::Tcp("127.0.0.1:0".parse().unwrap()), offered, options).unwrap();
    let Address::Tcp(address) = *server.address() else { panic!("the server listens on TCP") };
    let mut single = Client::over(from_host(1, address), "", true, &[]);
    let _many: Vec<Client> = (0..3).map(|_| Client::over(from_host(2, address), "", true, &[])).collect();
    let _new = Client::over(from_host(3, address), "", true, &[]);
    assert_eq!(server.counts().displaced, 1);
    assert_eq!(single.call(READ, 0, 0, 512, &[]).error, 0, "it has been idle the longest, and is served");
}

#[test]
fn slow_handshake_is_disconnected() {
    let served = served(Options::default());
    assert_eq!(Options::default().handshake_timeout_seconds, 5);
    let mut silent = UnixStream::connect(served.socket()).unwrap();
    let mut greeting = Vec::new();
    std::io::Read::read_to_end(&mut silent, &mut greeting).unwrap();
    assert_eq!(greeting.len(), 18);
    while served.server.counts().open > 0 {
        std::thread::yield_now();
    }
    assert_eq!(
        served.server.last_dropped().unwrap(),
        "a client was disconnected: it did not finish the handshake"
    );
}
