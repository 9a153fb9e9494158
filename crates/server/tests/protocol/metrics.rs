//! `/metrics`, `/health` and the page.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use cache::Cache;
use device::wrap::{FaultDevice, Faults};
use device::{MemoryDevice, RequestKind};
use flashwright_server::metrics::Endpoint;
use flashwright_server::{Counter, Options, Server, Tenant, Tenants};

use crate::setup::{Client, assert_counter, flash, options, serve, text};

fn measured() -> Options {
    Options { measure_latency: true, prefix_delimiter: Some(b':'), ..options() }
}

fn endpoint(server: &Server) -> Endpoint {
    Endpoint::start("127.0.0.1:0".parse().unwrap(), server.figures()).unwrap()
}

/// The head and the body of a reply.
fn get(endpoint: &Endpoint, path: &str) -> (String, String) {
    let mut socket = TcpStream::connect(endpoint.address()).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// The values by name and labels.
fn values(endpoint: &Endpoint) -> HashMap<String, f64> {
    let (head, body) = get(endpoint, "/metrics");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/plain; version=0.0.4"), "{head}");
    let lines = body.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.into(), value.parse().unwrap()))
        .collect()
}

#[test]
fn metrics_count_requests_latency_prefixes_and_flash() {
    let server = serve(&flash(64 << 20), measured());
    let endpoint = endpoint(&server);
    let mut client = Client::of(&server);
    let value = "x".repeat(8000);
    for number in 0..2000 {
        assert_eq!(client.line(&format!("set a:{number} 0 0 8000\r\n{value}")), "STORED");
    }
    client.line("get a:0 b:1");
    assert_counter(&server, Counter::cmd_get, 2);
    let values = values(&endpoint);
    let of = |name: &str| values[&format!("flashwright_serve_{name}")];
    assert_eq!((of("cmd_set_total"), of("cmd_get_total"), of("get_hits_total")), (2000.0, 2.0, 1.0));
    assert_eq!((of("prefix_sets_total{prefix=\"a\"}"), of("prefix_gets_total{prefix=\"b\"}")), (2000.0, 1.0));
    assert_eq!(of("request_seconds_count{command=\"set\"}"), 2000.0);
    assert_eq!(of("request_seconds_bucket{command=\"set\",le=\"+Inf\"}"), 2000.0);
    assert!(of("request_seconds_sum{command=\"set\"}") > 0.0);
    // 16 MB do not fit in 4 MiB of DRAM.
    assert!(
        of("cache_flash_device_written_bytes_total") > 8e6
            && of("cache_flash_puts_logical_bytes_total") > 8e6
    );
    assert_eq!((of("flash_healthy"), of("open_connections"), of("connections_total")), (1.0, 1.0, 1.0));
}

#[test]
fn tenants_have_their_own_counts_and_part_of_dram() {
    let tenants = ["a=a:", "b=b::50%"].map(|text| text.parse::<Tenant>().unwrap());
    let pools = Tenants::new(&tenants).unwrap().pools();
    let cache = Cache::builder().dram_bytes(16 << 20).max_item_bytes(64 << 10).pools(pools).open().unwrap();
    let server = Server::start(Arc::new(cache), Options { tenants: tenants.into(), ..measured() }).unwrap();
    let mut client = Client::of(&server);
    let value = "x".repeat(8000);
    // A tenant with a share keeps its items while others overflow.
    for number in 0..300 {
        assert_eq!(client.line(&format!("set b:{number} 0 0 8000\r\n{value}")), "STORED");
    }
    for number in 0..5000 {
        assert_eq!(client.line(&format!("set c:{number} 0 0 8000\r\n{value}")), "STORED");
    }
    for number in 0..300 {
        assert_ne!(client.line(&format!("get b:{number}")), "END", "{number}");
    }
    client.line("mg a:1 v");
    client.line("delete a:1");
    let stats = text(&client.replies(b"stats tenants\r\n"));
    for line in [
        "a:cmd_get 1",
        "a:get_hits 0",
        "a:cmd_delete 1",
        "b:get_hits 300",
        "b:dram_items 300",
        "b:dram_evictions 0",
    ] {
        assert!(stats.contains(&format!("STAT {line}\r\n")), "{line}: {stats}");
    }
    assert!(!stats.contains("a:dram"), "{stats}");
    let values = values(&endpoint(&server));
    let of = |name: &str| values[&format!("flashwright_serve_{name}")];
    assert_eq!(of("tenant_sets_total{tenant=\"b\"}"), 300.0);
    assert_eq!(of("tenant_dram_items{tenant=\"b\"}"), 300.0);
    assert!(of("cache_pools_classes_evictions_total{pool=\"0\"}") > 1000.0);
}

#[test]
fn tenant_keeps_its_part_of_flash_while_others_overflow() {
    let tenants = ["a=a", "b=b:/40%"].map(|text| text.parse::<Tenant>().unwrap());
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let mut builder = Cache::builder().dram_bytes(4 << 20).max_item_bytes(64 << 10).flash(device);
    for (prefix, share) in Tenants::new(&tenants).unwrap().flash_partitions() {
        builder = builder.flash_partition(prefix, share);
    }
    let cache = Arc::new(builder.open().unwrap());
    let server = Server::start(cache.clone(), Options { tenants: tenants.into(), ..measured() }).unwrap();
    let mut client = Client::of(&server);
    let value = "x".repeat(8000);
    for number in 0..1000 {
        assert_eq!(client.line(&format!("set b{number} 0 0 8000\r\n{value}")), "STORED");
    }
    for number in 0..20_000 {
        assert_eq!(client.line(&format!("set a{number} 0 0 8000\r\n{value}")), "STORED");
    }
    cache.settle_blocking().unwrap();
    for number in 0..1000 {
        assert_ne!(client.line(&format!("get b{number}")), "END", "{number}");
    }
    let stats = text(&client.replies(b"stats tenants\r\n"));
    assert!(stats.contains("STAT b:flash_evictions 0\r\n") && !stats.contains("a:flash"), "{stats}");
    let values = values(&endpoint(&server));
    let of = |name: &str| values[&format!("flashwright_serve_tenant_flash_{name}{{tenant=\"b\"}}")];
    assert!(of("items") >= 1000.0 && of("used_bytes") >= 8e6 && of("used_bytes") <= of("bytes"));
    let mib = of("bytes") / f64::from(1 << 20);
    assert!((23.0..25.6).contains(&mib), "40 % of 64 MiB, without metadata: {mib}");
}

#[test]
fn dashboard_queries_only_metrics_that_exist() {
    let builder = Cache::builder().dram_bytes(4 << 20).flash(flash(64 << 20)).flash_partition("b", 0.4);
    let tenants = vec!["b=b:/40%".parse().unwrap()];
    let server = Server::start(Arc::new(builder.open().unwrap()), Options { tenants, ..measured() }).unwrap();
    Client::of(&server).line("get b:0");
    let values = values(&endpoint(&server));
    let dashboard = include_str!("../../../../examples/grafana/flashwright-serve.json");
    let mut metrics = 0;
    for (at, _) in dashboard.match_indices("flashwright_serve_") {
        let rest = &dashboard[at..];
        let name = &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap()];
        let exists = values.keys().any(|key| key.split('{').next() == Some(name));
        assert!(exists, "the dashboard queries {name}, which does not exist");
        metrics += 1;
    }
    assert!(metrics > 10, "{metrics} metrics in the dashboard");
}

#[test]
fn failing_flash_is_unhealthy_with_the_reason() {
    let device = Arc::new(FaultDevice::new(flash(64 << 20), 1, Faults::default()));
    let server = serve(&(Arc::clone(&device) as _), measured());
    let endpoint = endpoint(&server);
    let (head, body) = get(&endpoint, "/health");
    assert!(head.starts_with("HTTP/1.1 200") && body == "ok\n", "{head} {body}");
    device.fail_where(|request| matches!(request.kind(), RequestKind::Write));
    let mut client = Client::of(&server);
    let value = "x".repeat(8000);
    let is_unhealthy = (0..5000).any(|number| {
        client.line(&format!("set {number} 0 0 8000\r\n{value}"));
        number % 100 == 0 && get(&endpoint, "/health").0.starts_with("HTTP/1.1 503")
    });
    assert!(is_unhealthy);
    let (_, body) = get(&endpoint, "/health");
    assert!(body.starts_with("flash does not accept writes: "), "{body}");
    let (head, body) = get(&endpoint, "/");
    assert!(head.contains("text/html") && body.contains("<h1>flashwright</h1>"), "{head}");
    assert!(get(&endpoint, "/x").0.starts_with("HTTP/1.1 404"));
    drop((server, client));
    // The server ends its threads in the background.
    while get(&endpoint, "/health").1 != "the server is closed\n" {
        std::thread::yield_now();
    }
    assert!(get(&endpoint, "/health").0.starts_with("HTTP/1.1 503"));
}
