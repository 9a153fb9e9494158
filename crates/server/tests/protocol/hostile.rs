//! Clients that violate the protocol or block the server: other clients are served as usual.

use std::time::Duration;

use std::hash::{BuildHasher, Hasher};

use flashwright_server::{Counter, Options};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::setup::{Client, assert_counter, flash, matches, options, serve, serve_in_memory, text};

#[test]
fn endless_line_is_refused_and_closed() {
    let server = serve_in_memory(options());
    let mut client = Client::of(&server);
    client.send(&[b'x'; 3000]);
    assert_eq!(text(&client.receive_all()), "CLIENT_ERROR line too long\r\n");
}

#[test]
fn line_longer_than_the_budget_is_closed_at_the_time_limit() {
    let limits = Options { client_timeout: Duration::from_millis(200), buffer_bytes: 72 << 10, ..options() };
    let server = serve(&flash(32 << 20), limits);
    let mut client = Client::of(&server);
    assert_eq!(client.line(&format!("get{}", " key".repeat(15_000))), "END");
    client.try_send(format!("get{}\r\n", " key".repeat(50_000)).as_bytes());
    assert!(client.receive_all().is_empty());
}

#[test]
fn http_request_closes_the_connection() {
    let server = serve_in_memory(options());
    let mut client = Client::of(&server);
    client.send(b"mn\r\nDELETE HTTP/1.1\r\nmn\r\n");
    assert_eq!(text(&client.receive_all()), "MN\r\n");
}

#[test]
fn binary_request_is_refused_in_the_binary_protocol() {
    let server = serve_in_memory(options());
    let mut client = Client::of(&server);
    let mut request = [0; 24];
    (request[0], request[1], request[15]) = (0x80, 0x0b, 7);
    client.send(&request);
    let reply = client.receive_all();
    assert_eq!((reply[0], reply[1], reply[7], reply[15]), (0x81, 0x0b, 0x81, 7));
    assert!(text(&reply[24..]).starts_with("the binary protocol is not supported"));
    assert_eq!(usize::from(reply[11]), reply.len() - 24);
}

#[test]
fn too_large_value_is_refused_and_the_old_one_removed() {
    let server = serve(&flash(32 << 20), options());
    let mut client = Client::of(&server);
    let value = "x".repeat(65 << 10);
    assert_eq!(client.line("set a 0 0 1\r\n1"), "STORED");
    for (mode, kept) in [("add", true), ("set", false)] {
        let reply = client.line(&format!("{mode} a 0 0 {}\r\n{value}", value.len()));
        assert_eq!(reply, "SERVER_ERROR object too large for cache");
        assert_eq!(client.line("mg a"), if kept { "HD" } else { "EN" });
    }
    assert_eq!(
        client.line(&format!("ms a {}\r\n{value}", value.len())),
        "SERVER_ERROR object too large for cache"
    );
    assert_counter(&server, Counter::store_too_large, 3);
}

#[test]
fn key_of_250_bytes_is_accepted_and_a_longer_one_refused() {
    let server = serve_in_memory(options());
    let mut client = Client::of(&server);
    let (longest, longer) = ("k".repeat(250), "k".repeat(251));
    assert_eq!(client.line(&format!("set {longest} 0 0 1\r\n1")), "STORED");
    for command in ["get", "gets", "delete", "mg", "md", "ma", "me"] {
        let refused = client.line(&format!("{command} {longer}"));
        assert_eq!(refused, "CLIENT_ERROR bad command line format", "{command}");
    }
    assert_eq!(client.line(&format!("mg {longest}")), "HD");
}

#[test]
fn stalled_request_is_closed_at_the_time_limit() {
    let server = serve_in_memory(Options { client_timeout: Duration::from_millis(50), ..options() });
    let mut client = Client::of(&server);
    client.send(b"set a 0 0 100\r\nabc");
    assert!(client.receive_all().is_empty());
    assert_eq!(Client::of(&server).line("get a"), "END");
}

#[test]
fn client_that_reads_no_replies_is_closed_and_delays_no_other() {
    let server = serve_in_memory(Options { client_timeout: Duration::from_millis(200), ..options() });
    let mut other = Client::of(&server);
    let value = "x".repeat(500 << 10);
    assert_eq!(other.line(&format!("set a 0 0 {}\r\n{value}", value.len())), "STORED");
    let mut slow: Vec<Client> = (0..8).map(|_| Client::of(&server)).collect();
    slow.iter_mut().for_each(|client| client.send("get a\r\n".repeat(100).as_bytes()));
    for _ in 0..200 {
        assert_eq!(other.line("set b 0 0 1\r\n1"), "STORED");
    }
    while server.open_connections() > 1 {
        std::thread::yield_now();
    }
}

#[test]
fn pipelined_flood_is_answered_in_order() {
    let server = serve(&flash(32 << 20), options());
    let mut client = Client::of(&server);
    let mut requests = String::new();
    let mut expected = String::new();
    for number in 0..5000 {
        requests += &format!(
            "set k{number} 0 0 4\r\n{number:04}\r\nget k{number}\r\nmg k{number} q v\r\nmg none q\r\n"
        );
        expected +=
            &format!("STORED\r\nVALUE k{number} 0 4\r\n{number:04}\r\nEND\r\nVA 4\r\n{number:04}\r\n");
    }
    assert!(matches(&expected, &client.replies(requests.as_bytes())));
}

#[test]
fn random_bytes_never_stop_the_server() {
    let seed = std::hash::RandomState::new().build_hasher().finish();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let server = serve(&flash(32 << 20), options());
    let words = [
        "get ",
        "set ",
        "ms ",
        "mg ",
        "ma ",
        "a",
        "b",
        " 0",
        " 1",
        " 5",
        " -1",
        " T",
        " N30",
        " v",
        "\r\n",
        "\n",
        "\0",
        "incr ",
        " noreply",
        "gat ",
        " q",
        "flush_all",
    ];
    for _ in 0..200 {
        let mut bytes = Vec::new();
        for _ in 0..random.random_range(1..200) {
            match random.random_range(0..10) {
                0 => bytes.push(random.random()),
                _ => bytes.extend_from_slice(words[random.random_range(0..words.len())].as_bytes()),
            }
        }
        bytes.extend_from_slice(b"\r\nquit\r\n");
        let mut client = Client::of(&server);
        client.send(&bytes);
        drop(client);
    }
    let mut client = Client::of(&server);
    assert_eq!(client.line("set a 0 0 1\r\n1"), "STORED");
    server.close(Duration::from_secs(20)).unwrap();
}
