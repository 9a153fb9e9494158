//! Large values of several clients: the memory that they occupy while they arrive, and its release.

use std::sync::Arc;
use std::time::Duration;

use cache::Cache;
use device::Device;
use flashwright_server::{Credentials, Options, Server, Tenant, Tenants};

use crate::setup::{Client, flash, matches, options, serve, text};

const VALUE_BYTES: usize = 1_000_000;

/// A server without flash, with 64 MiB of DRAM, and its cache.
fn serve_with_cache(options: Options) -> (Server, Arc<Cache>) {
    let pools = Tenants::new(&options.tenants).unwrap().pools();
    let builder = Cache::builder().dram_bytes(64 << 20);
    let cache = Arc::new(if pools.len() > 1 { builder.pools(pools) } else { builder }.open().unwrap());
    (Server::start(Arc::clone(&cache), options).unwrap(), cache)
}

/// Items in DRAM, with those that are not visible yet.
fn items(cache: &Cache) -> u64 {
    cache.stats().dram_total().items
}

fn wait_for_items(cache: &Cache, count: u64) {
    while items(cache) != count {
        std::thread::yield_now();
    }
}

/// A client that stops in the middle of a large value.
fn stalled(server: &Server, key: &str) -> Client {
    let mut client = Client::of(server);
    client.send(format!("set {key} 0 0 {VALUE_BYTES}\r\nbeginning").as_bytes());
    client
}

fn large(key: &str) -> String {
    format!("set {key} 0 0 {VALUE_BYTES}\r\n{}", "v".repeat(VALUE_BYTES))
}

#[test]
fn stalled_value_is_released_at_the_time_limit() {
    let limit = Duration::from_millis(100);
    let (server, cache) = serve_with_cache(Options { client_timeout: limit, ..options() });
    let mut clients: Vec<Client> = (0..4).map(|number| stalled(&server, &number.to_string())).collect();
    clients.iter_mut().for_each(|client| assert!(client.receive_all().is_empty()));
    wait_for_items(&cache, 0);
    assert_eq!(Client::of(&server).line(&large("a")), "STORED");
}

#[test]
fn value_that_arrives_byte_by_byte_is_released_at_the_time_limit() {
    let limit = Duration::from_millis(100);
    let (server, cache) = serve_with_cache(Options { client_timeout: limit, ..options() });
    let (mut slow, mut other) = (stalled(&server, "a"), Client::of(&server));
    wait_for_items(&cache, 1);
    while items(&cache) > 0 {
        assert_eq!(other.line("mn"), "MN");
        slow.try_send(b"x");
    }
}

#[test]
fn disconnected_client_releases_its_value() {
    let (server, cache) = serve_with_cache(options());
    let client = stalled(&server, "a");
    wait_for_items(&cache, 1);
    drop(client);
    wait_for_items(&cache, 0);
}

#[test]
fn values_of_stalled_clients_take_a_quarter_of_dram_and_others_are_stored() {
    let (server, cache) = serve_with_cache(options());
    let clients: Vec<Client> = (0..40).map(|number| stalled(&server, &number.to_string())).collect();
    wait_for_items(&cache, 16);
    let mut other = Client::of(&server);
    for number in 0..60 {
        let key = format!("other{number}");
        assert_eq!(other.line(&large(&key)), "STORED");
        assert_eq!(other.line(&format!("mg {key} s")), format!("HD s{VALUE_BYTES}"));
        assert_eq!(other.line(&format!("set small{number} 0 0 1\r\n1")), "STORED");
    }
    drop(clients);
}

#[test]
fn values_wait_until_the_time_limit_for_the_budget_of_stalled_clients() {
    let limit = Duration::from_millis(500);
    let buffer_bytes = (1 << 20) + (1 << 19);
    let (server, cache) = serve_with_cache(Options { client_timeout: limit, buffer_bytes, ..options() });
    let stalled = stalled(&server, "a");
    wait_for_items(&cache, 1);
    let mut other = Client::of(&server);
    (0..10).for_each(|_| assert_eq!(other.line("mn"), "MN"));
    assert_eq!(other.line(&large("b")), "STORED");
    assert_eq!(other.line("mg a"), "EN");
    drop(stalled);
}

#[test]
fn value_of_a_tenant_arrives_in_its_pool() {
    let tenants = vec!["a=a::20%".parse::<Tenant>().unwrap()];
    let (server, cache) = serve_with_cache(Options { tenants, ..options() });
    let mut client = Client::of(&server);
    let value = "v".repeat(100_000);
    let in_pools = || cache.stats().pools.iter().map(|pool| pool.total().items).collect::<Vec<_>>();
    assert_eq!(client.line(&format!("set a:1 0 0 100000\r\n{value}")), "STORED");
    assert_eq!(in_pools(), [0, 1]);
    assert_eq!(client.line(&format!("set b:1 0 0 100000\r\n{value}")), "STORED");
    assert_eq!(in_pools(), [1, 1]);
    // Clients that stall leave most of the pool to others.
    let clients: Vec<Client> = (0..20).map(|number| stalled(&server, &format!("a:s{number}"))).collect();
    wait_for_items(&cache, 5);
    for number in 0..20 {
        assert_eq!(client.line(&large(&format!("a:{number}"))), "STORED");
        assert_eq!(client.line(&format!("mg a:{number} s")), format!("HD s{VALUE_BYTES}"));
    }
    drop(clients);
}

#[test]
fn value_without_memory_is_refused_discarded_and_the_old_one_removed() {
    let cache = Arc::new(Cache::builder().dram_bytes(4 << 20).max_item_bytes(64 << 10).open().unwrap());
    let server = Server::start(Arc::clone(&cache), options()).unwrap();
    let mut client = Client::of(&server);
    let value = "v".repeat(60_000);
    let mut pinned = Vec::new();
    for number in 0.. {
        let reply = client.line(&format!("set {number} 0 0 60000\r\n{value}"));
        if reply != "STORED" {
            break;
        }
        pinned.push(cache.get_owned_blocking(number.to_string().as_bytes()).unwrap());
    }
    let no_memory = "SERVER_ERROR out of memory storing object";
    for (mode, kept) in [("add", true), ("replace", true), ("set", false)] {
        let replies = client.replies(format!("{mode} 0 0 0 60000\r\n{value}\r\nmg 0\r\n").as_bytes());
        assert_eq!(text(&replies), format!("{no_memory}\r\n{}\r\n", if kept { "HD" } else { "EN" }));
    }
    assert_eq!(client.line(&format!("ms 1 60000 q\r\n{value}")), no_memory);
    drop(pinned);
    assert_eq!(client.line(&format!("set 0 0 0 60000\r\n{value}")), "STORED");
}

#[test]
fn large_value_before_authentication_is_refused_and_discarded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users");
    std::fs::write(&path, "foo:bar\n").unwrap();
    let credentials = Some(Credentials::read(&path).unwrap());
    let (server, cache) = serve_with_cache(Options { credentials, ..options() });
    let mut client = Client::of(&server);
    client.send(format!("{}\r\nset x 0 0 7\r\nfoo bar\r\n{}\r\nquit\r\n", large("a"), large("b")).as_bytes());
    let replies = client.receive_all();
    assert_eq!(text(&replies), "CLIENT_ERROR unauthenticated\r\nSTORED\r\nSTORED\r\n");
    assert_eq!((items(&cache), cache.contains(b"b")), (1, true));
}

#[test]
fn close_discards_unfinished_values() {
    let flash: Arc<dyn Device> = flash(32 << 20);
    let server = serve(&flash, options());
    let mut client = Client::of(&server);
    assert_eq!(client.line("set a 0 0 3\r\nold"), "STORED");
    client.send(format!("set a 0 0 60000\r\n{}", "v".repeat(30_000)).as_bytes());
    assert_eq!(Client::of(&server).line("mg a s"), "HD s3");
    server.close(Duration::from_secs(20)).unwrap();
    assert!(client.receive_all().is_empty());
    let server = serve(&flash, options());
    assert!(matches("VALUE a 0 3\r\nold\r\nEND\r\n", &Client::of(&server).replies(b"get a\r\n")));
}
