//! The tables, on this server and on Debian's memcached: both give the same replies.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::setup::{Client, matches, options, serve_in_memory, text};
use crate::table::{self, Case, lines};
use crate::table_meta;

/// Checks all cases, each on an empty cache.
fn check(address: SocketAddr, cases: &[Case]) {
    let mut differences = Vec::new();
    for case in cases {
        Client::connect(address).replies(b"flush_all\r\n");
        let replies = Client::connect(address).replies(lines(case.requests).as_bytes());
        if !matches(&lines(case.replies), &replies) {
            let (got, expected) = (text(&replies).replace("\r\n", "|"), case.replies);
            differences.push(format!(
                "{}:\n  requests {}\n  expected {expected}\n  got      {got}",
                case.name, case.requests
            ));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn classic_requests_have_exact_replies() {
    check(crate::setup::address(&serve_in_memory(options())), table::CASES);
}

#[test]
fn meta_requests_have_exact_replies() {
    check(crate::setup::address(&serve_in_memory(options())), table_meta::CASES);
}

/// A running memcached.
pub struct Memcached {
    process: Child,
    pub address: SocketAddr,
}

impl Memcached {
    /// Starts memcached; `None` if it is not installed on this machine.
    pub fn start() -> Option<Self> {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let port = free.port().to_string();
        let arguments = ["-l", "127.0.0.1", "-p", &port, "-U", "0", "-u", "nobody"];
        let started = Command::new("memcached").args(arguments).stderr(Stdio::null()).spawn();
        let mut process = started.ok()?;
        while TcpStream::connect(free).is_err() {
            assert_eq!(process.try_wait().unwrap(), None, "memcached has ended");
            std::thread::yield_now();
        }
        Some(Self { process, address: free })
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn memcached_has_the_expected_replies() {
    let Some(memcached) = Memcached::start() else {
        println!("SKIPPED: there is no memcached on this machine");
        return;
    };
    check(memcached.address, table::CASES);
    check(memcached.address, table_meta::CASES);
}
