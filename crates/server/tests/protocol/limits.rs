//! The options of a server.

use std::sync::Arc;
use std::time::Duration;

use cache::Cache;
use flashwright_server::{Counter, Credentials, Options, Server, StartError};

use crate::setup::{Client, assert_counter, options, serve_in_memory, text};

#[test]
fn address_of_other_machines_is_refused_unless_permitted() {
    let cache = || Arc::new(Cache::builder().dram_bytes(4 << 20).open().unwrap());
    let remote = Options { listen: vec!["0.0.0.0:0".parse().unwrap()], ..options() };
    let refused = Server::start(cache(), remote.clone()).unwrap_err();
    assert!(
        matches!(refused, StartError::Remote(_)) && refused.to_string().contains("--insecure"),
        "{refused}"
    );
    Server::start(cache(), Options { allow_remote: true, ..remote }).unwrap();
    let none = Server::start(cache(), Options { listen: Vec::new(), ..options() }).unwrap_err();
    assert!(matches!(none, StartError::NoAddress));
}

#[test]
fn buffers_smaller_than_an_item_are_refused() {
    let cache = Arc::new(Cache::builder().dram_bytes(64 << 20).open().unwrap());
    let refused = Server::start(cache, Options { buffer_bytes: 1 << 20, ..options() }).unwrap_err();
    assert!(matches!(refused, StartError::Buffers { .. }), "{refused}");
}

#[test]
fn connection_above_the_limit_is_refused_with_an_error() {
    let server = serve_in_memory(Options { max_connections: 2, ..options() });
    let mut clients = [Client::of(&server), Client::of(&server)];
    clients.iter_mut().for_each(|client| assert_eq!(client.line("mn"), "MN"));
    assert_eq!(text(&Client::of(&server).receive_all()), "ERROR Too many open connections\r\n");
    assert_counter(&server, Counter::rejected_connections, 1);
    clients[0].send(b"quit\r\n");
    assert!(clients[0].receive_all().is_empty());
    while server.open_connections() > 1 {
        std::thread::yield_now();
    }
    assert_eq!(Client::of(&server).line("mn"), "MN");
}

#[test]
fn idle_connection_is_closed_at_the_time_limit() {
    let server = serve_in_memory(Options { idle_timeout: Some(Duration::from_millis(50)), ..options() });
    let mut client = Client::of(&server);
    assert_eq!(client.line("get a"), "END");
    assert!(client.receive_all().is_empty());
    assert_counter(&server, Counter::idle_kicks, 1);
}

#[test]
fn client_authenticates_before_anything_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users");
    std::fs::write(&path, "foo:bar\n").unwrap();
    let credentials = Some(Credentials::read(&path).unwrap());
    let server = serve_in_memory(Options { credentials, ..options() });
    let mut client = Client::of(&server);
    let requests = "get a\r\nmg a\r\nset x 0 0 7\r\nfoo baz\r\nset x 0 0 2000\r\n";
    client.send(requests.as_bytes());
    client.send(&[b'x'; 2000]);
    client.send(b"\r\nset x 0 0 7\r\nfoo bar\r\nget x\r\nquit\r\n");
    let unauthenticated = "CLIENT_ERROR unauthenticated\r\n";
    let failure = "CLIENT_ERROR authentication failure\r\n";
    let expected = [unauthenticated, unauthenticated, failure, unauthenticated, "STORED\r\nEND\r\n"].concat();
    assert_eq!(text(&client.receive_all()), expected);
    assert_counter(&server, Counter::auth_cmds, 2);
    assert_counter(&server, Counter::auth_errors, 1);
}

#[test]
fn stats_have_the_names_of_memcached() {
    let server = serve_in_memory(options());
    let mut client = Client::of(&server);
    client.replies(
        b"set a 0 0 1\r\n1\r\nget a b\r\nincr a 1\r\ntouch a 0\r\ndelete a\r\ncas a 0 0 1 1\r\n1\r\n",
    );
    let stats = text(&client.replies(b"stats\r\n"));
    for line in [
        "cmd_get 2",
        "cmd_set 2",
        "get_hits 1",
        "get_misses 1",
        "incr_hits 1",
        "touch_hits 1",
        "delete_hits 1",
        "cas_misses 1",
        "curr_items 0",
        "curr_connections 1",
    ] {
        assert!(stats.contains(&format!("STAT {line}\r\n")), "{line}: {stats}");
    }
    for name in [
        "pid",
        "uptime",
        "time",
        "version",
        "pointer_size",
        "limit_maxbytes",
        "threads",
        "bytes_read",
        "evictions",
    ] {
        assert!(stats.contains(&format!("STAT {name} ")), "{name}: {stats}");
    }
    for kind in ["settings", "items", "slabs", "sizes", "conns"] {
        let stats = text(&client.replies(format!("stats {kind}\r\n").as_bytes()));
        assert!(stats.ends_with("END\r\n"), "{kind}: {stats}");
    }
    assert_eq!(client.line("stats bogus"), "ERROR");
    assert_eq!(client.line("stats reset"), "RESET");
    assert!(text(&client.replies(b"stats\r\n")).contains("STAT cmd_get 0\r\n"));
}
