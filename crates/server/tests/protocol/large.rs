//! Requests with large values, which are received into the memory of their items: the replies are memcached's.

use std::net::SocketAddr;

use crate::setup::{Client, address, flash, matches, options, serve, serve_in_memory, text};
use crate::twin::Memcached;

/// Lengths of values around the one from which values are received into their items, and longer ones.
const LENGTHS: &[usize] = &[16_300, 16_340, 16_382, 16_383, 16_384, 16_385, 16_400, 20_000, 65_536, 500_000];

/// Requests and their replies. Line ends are written `|`, the value `{v}`, its length `{n}`, and any number `#`.
const CASES: &[[&str; 3]] = &[
    [
        "set and get",
        "set a 5 0 {n}|{v}|get a|gets a|",
        "STORED|VALUE a 5 {n}|{v}|END|VALUE a 5 {n} #|{v}|END|",
    ],
    ["several keys", "set a 0 0 {n}|{v}|get a b a|", "STORED|VALUE a 0 {n}|{v}|VALUE a 0 {n}|{v}|END|"],
    ["touched", "set a 0 0 {n}|{v}|gat 50 a|", "STORED|VALUE a 0 {n}|{v}|END|"],
    [
        "pipelined",
        "set a 0 0 {n}|{v}|set b 0 0 {n}|{v}|set c 0 0 1|1|get c b|",
        "STORED|STORED|STORED|VALUE c 0 1|1|VALUE b 0 {n}|{v}|END|",
    ],
    ["no reply", "set a 0 0 {n} noreply|{v}|get a|", "VALUE a 0 {n}|{v}|END|"],
    ["add", "add a 0 0 {n}|{v}|add a 0 0 {n}|{v}|", "STORED|NOT_STORED|"],
    ["add keeps", "set a 0 0 3|old|add a 0 0 {n}|{v}|get a|", "STORED|NOT_STORED|VALUE a 0 3|old|END|"],
    [
        "replace",
        "replace a 0 0 {n}|{v}|set a 0 0 3|old|replace a 0 0 {n}|{v}|get a|",
        "NOT_STORED|STORED|STORED|VALUE a 0 {n}|{v}|END|",
    ],
    [
        "cas",
        "cas a 0 0 {n} 1|{v}|set a 0 0 3|old|cas a 0 0 {n} 77777777777|{v}|get a|",
        "NOT_FOUND|STORED|EXISTS|VALUE a 0 3|old|END|",
    ],
    ["append", "set a 0 0 3|old|append a 0 0 {n}|{v}|mg a s|", "STORED|STORED|HD s#|"],
    ["prepend to none", "prepend a 0 0 {n}|{v}|get a|", "NOT_STORED|END|"],
    ["expired", "set a 0 0 3|old|set a 0 -1 {n}|{v}|get a|", "STORED|STORED|END|"],
    [
        "without line end",
        "set a 0 0 3|old|set a 0 0 {n}|{v}xxget a|",
        "STORED|CLIENT_ERROR bad data chunk|VALUE a 0 3|old|END|",
    ],
    ["half a line end", "set a 0 0 {n}|{v}\rxget a|", "CLIENT_ERROR bad data chunk|END|"],
    ["too long", "set a 0 0 {n}|{v}xxyy|mn|", "CLIENT_ERROR bad data chunk|ERROR|MN|"],
    ["without line end and reply", "set a 0 0 {n} noreply|{v}xxget a|", "END|"],
    ["ms", "ms a {n} T60 F7 c k Oxy|{v}|mg a f t s k v|", "HD c# ka Oxy|VA {n} f7 t# s{n} ka|{v}|"],
    [
        "ms with a key in base64",
        "ms Zm9v {n} b k|{v}|mg Zm9v b k s|get foo|",
        "HD kZm9v b|HD kZm9v b s{n}|VALUE foo 0 {n}|{v}|END|",
    ],
    ["quiet ms", "ms a {n} q|{v}|mn|mg a s|", "MN|HD s{n}|"],
    ["ms of other modes", "ms a {n} ME|{v}|ms a {n} MR|{v}|ms a {n} ME|{v}|", "HD|HD|NS|"],
    ["ms compares", "set a 0 0 3|old|ms a {n} C77777777777|{v}|ms b {n} C5|{v}|", "STORED|EX|NF|"],
    ["ms without line end", "ms a {n} q|{v}xxmn|mg a|", "CLIENT_ERROR bad data chunk|MN|EN|"],
    ["invalid ms", "ms a {n} =|{v}|mn|", "CLIENT_ERROR invalid flag|MN|"],
];

fn value(length: usize) -> String {
    (0..length).map(|place| char::from(b'a' + (place * 31 % 26) as u8)).collect()
}

fn in_full(text: &str, value: &str) -> String {
    text.replace("{v}", value).replace("{n}", &value.len().to_string()).replace('|', "\r\n")
}

fn check(address: SocketAddr, lengths: &[usize]) {
    for &length in lengths {
        let value = value(length);
        for [name, requests, replies] in CASES {
            Client::connect(address).replies(b"flush_all\r\n");
            let got = Client::connect(address).replies(in_full(requests, &value).as_bytes());
            let got_short = text(&got).replace(&value, "{v}").replace("\r\n", "|");
            let expected = in_full(replies, &value);
            assert!(
                matches(&expected, &got),
                "{name}, {length} bytes: {got_short:.300} instead of {replies}"
            );
        }
    }
}

#[test]
fn large_requests_have_exact_replies() {
    check(address(&serve_in_memory(options())), LENGTHS);
    let (short, _) = LENGTHS.split_at(8);
    check(address(&serve(&flash(32 << 20), options())), short);
}

#[test]
fn memcached_has_the_expected_replies_to_large_requests() {
    let Some(memcached) = Memcached::start() else {
        println!("SKIPPED: there is no memcached on this machine");
        return;
    };
    check(memcached.address, LENGTHS);
    disconnect_and_flush(memcached.address);
}

#[test]
fn large_value_cut_at_any_place_is_stored() {
    let server = serve_in_memory(options());
    let mut other = Client::of(&server);
    for length in [16_384, 100_000] {
        let value = value(length);
        let line = format!("set a 9 0 {length}\r\n");
        let request = format!("{line}{value}\r\n");
        let (start, end) = (line.len(), line.len() + length);
        let cuts = [
            1,
            start - 2,
            start - 1,
            start,
            start + 1,
            start + 16_383,
            start + 16_384,
            end - 1,
            end,
            end + 1,
        ];
        for first in cuts {
            for second in cuts.into_iter().filter(|&second| second >= first) {
                let mut client = Client::of(&server);
                for part in [&request[..first], &request[first..second], &request[second..]] {
                    client.send(part.as_bytes());
                    // The server has probably received the part when it has answered another client.
                    assert_eq!(other.line("mn"), "MN");
                }
                let replies = text(&client.replies(b"get a\r\nset a 0 0 1\r\n1\r\n"));
                let expected = format!("STORED\r\nVALUE a 9 {length}\r\n{value}\r\nEND\r\nSTORED\r\n");
                assert!(replies == expected, "{length} bytes cut at {first} and {second}: {replies:.100}");
            }
        }
    }
}

/// A client that disconnects leaves the old value; a flush while a value arrives removes the old one only.
fn disconnect_and_flush(address: SocketAddr) {
    let value = value(100_000);
    let mut other = Client::connect(address);
    assert_eq!(other.line("set a 0 0 3\r\nold"), "STORED");
    for part in [0, 1, 20_000, 100_000] {
        let mut client = Client::connect(address);
        client.send(format!("set a 0 0 100000\r\n{}", &value[..part]).as_bytes());
        assert_eq!(other.line("get a"), "VALUE a 0 3\r\nold\r\nEND");
        drop(client);
        assert_eq!(other.line("get a"), "VALUE a 0 3\r\nold\r\nEND");
    }
    let mut client = Client::connect(address);
    client.send(format!("set b 0 0 100000\r\n{}", &value[..50_000]).as_bytes());
    assert_eq!(other.line("flush_all"), "OK");
    let replies = text(&client.replies(format!("{}\r\nget a\r\nmg b s\r\n", &value[50_000..]).as_bytes()));
    assert_eq!(replies, "STORED\r\nEND\r\nHD s100000\r\n");
}

#[test]
fn unfinished_value_leaves_the_old_one_and_a_flush_does_not_affect_it() {
    disconnect_and_flush(address(&serve_in_memory(options())));
}

#[test]
fn cas_of_a_large_value_stores_it_once() {
    let server = serve_in_memory(options());
    let mut client = Client::of(&server);
    let value = value(100_000);
    assert_eq!(client.line("set a 0 0 3\r\nold"), "STORED");
    let reply = client.line("mg a c");
    let cas = reply.strip_prefix("HD c").unwrap();
    for expected in ["STORED", "EXISTS"] {
        assert_eq!(client.line(&format!("cas a 0 0 100000 {cas}\r\n{value}")), expected);
    }
    // An invalidated item accepts an older number, and then the value is stale.
    assert_eq!(client.line("md a I T30"), "HD");
    assert_eq!(client.line(&format!("ms a 100000 I C{cas}\r\n{value}")), "HD");
    let replies = client.replies(b"mg a s t\r\n");
    assert!(matches("HD s100000 t# X W\r\n", &replies), "{}", text(&replies));
}
