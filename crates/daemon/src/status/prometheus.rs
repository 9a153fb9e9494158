//! Figures in Prometheus's text format, which servers scrape and node_exporter's textfile collector reads.
//!
//! The collector does not support OpenMetrics, which the crate `prometheus-client` writes; other crates keep live registries, while this
//! converts a finished status.

use block::sets::Counters;
use block::volume::IoCounts;
use device::counters::{self, CounterTable, Kind, Path, Reading};
use device::prometheus::Metrics;
use serde_json::Value;

use Kind::{State as Gauge, Sum as Counter};

use super::requests;
use crate::settings::shown;

/// Position in the status, type and meaning of each figure other than the counters of a volume. Percentages are omitted: Prometheus
/// computes them from counters, over any time.
const METRICS: &[(&str, Kind, &str)] = &[
    ("/up_seconds", Gauge, "Seconds since the server started."),
    ("/counted_seconds", Gauge, "Seconds since the server started or zero_stats reset the counters."),
    (
        "/recovery/recovery_seconds",
        Gauge,
        "Seconds that opening the cache took, with recovery if it was not closed.",
    ),
    (
        "/recovery/rolled_back_blocks",
        Gauge,
        "Written blocks that opening the cache dropped because the last flush was incomplete on flash.",
    ),
    (
        "/recovery/lost_last_entry",
        Gauge,
        "1 if opening the cache dropped the last record of writes because it is damaged on flash.",
    ),
    (
        "/recovery/damaged_blocks",
        Gauge,
        "Blocks of the last acknowledged flush that opening the cache found damaged on flash.",
    ),
    ("/state/closed", Gauge, "1 if the cache was closed cleanly, 0 if opening it recovers it."),
    ("/state/flash_errors", Gauge, "Errors of flash that prevent writes to it."),
    ("/state/flash_errors_seconds", Gauge, "Seconds since the first of these flash errors."),
    (
        "/state/disk_errors",
        Gauge,
        "Errors of the disk since it was last healthy; it is healthy again after a minute without errors.",
    ),
    ("/state/disk_errors_seconds", Gauge, "Seconds since the first of these disk errors."),
    ("/state/capacity_blocks", Gauge, "Blocks that the cache can hold."),
    ("/state/held_blocks", Gauge, "Blocks in the cache."),
    ("/state/dirty_blocks", Gauge, "Cached blocks that are newer than those on the disk."),
    (
        "/state/uncommitted_blocks",
        Gauge,
        "Clean cached blocks that a crash would drop, because their insertion is not committed yet.",
    ),
    ("/state/hot_blocks", Gauge, "Cached blocks in hot lists; only with lru2q."),
    ("/state/warm_blocks", Gauge, "Cached blocks in warm lists; only with lru2q."),
    ("/state/memory_bytes", Gauge, "Bytes of memory used for cached blocks."),
    ("/state/journal_used_blocks", Gauge, "Blocks of the journal in use."),
    ("/state/journal_blocks", Gauge, "Blocks of the journal."),
    (
        "/state/latency_ns_p99",
        Gauge,
        "99th percentile of the last reads and writes, nanoseconds, while a latency gate is set.",
    ),
    (
        "/state/clean_seconds_left",
        Gauge,
        "Seconds until all dirty blocks are on the disk, at the rate of recent cleaning.",
    ),
    ("/rules/kept_out_connections", Gauge, "Open connections of clients whose blocks are not cached."),
    (
        "/rules/kept_out_requests",
        Counter,
        "Requests of clients whose blocks are not cached, but for discards and flushes.",
    ),
    ("/counters/lru_promotions", Counter, "Blocks moved to a hot list."),
    ("/counters/lru_demotions", Counter, "Blocks moved from a hot list."),
    ("/flash/bytes_read", Counter, "Bytes read from flash since it was opened."),
    ("/flash/bytes_host", Counter, "Bytes written to flash since it was opened."),
    ("/flash/bytes_trimmed", Counter, "Bytes trimmed of flash since it was opened."),
    ("/flash/bytes_media", Counter, "Bytes written by the media of flash since it was opened, if known."),
    ("/disk/bytes_read", Counter, "Bytes read from the disk since it was opened."),
    ("/disk/bytes_host", Counter, "Bytes written to the disk since it was opened."),
    ("/disk/bytes_trimmed", Counter, "Bytes trimmed of the disk since it was opened."),
    ("/disk/bytes_media", Counter, "Bytes written by the media of the disk since it was opened, if known."),
    ("/connections/open", Gauge, "Connections open now."),
    ("/connections/accepted", Counter, "Connections accepted."),
    (
        "/connections/turned_away",
        Counter,
        "Connections refused because there were too many and none was idle.",
    ),
    (
        "/connections/displaced",
        Counter,
        "Connections closed to make room for new ones: the longest idle, or slow in the handshake.",
    ),
    (
        "/connections/dropped",
        Counter,
        "Connections dropped for breaking the protocol, timing out or failing.",
    ),
    ("/connections/bytes_in_flight", Gauge, "Bytes of requests in flight."),
    (
        "/fuse/failed",
        Gauge,
        "1 if the FUSE session failed: its directory is unmounted until the server is restarted.",
    ),
];

/// Alert rules for these metrics, in Prometheus's format.
pub const ALERT_RULES: &str = include_str!("alerts.yml");

/// Labels of the info metric, which is always 1, and their positions in the status.
const INFO: [(&str, &str); 8] = [
    ("version", "/version"),
    ("format", "/volume/format"),
    ("disk", "/volume/disk_label"),
    ("block_bytes", "/volume/block_bytes"),
    ("ways", "/volume/ways"),
    ("placement", "/volume/placement"),
    ("mode", "/tuning/mode"),
    ("policy", "/tuning/policy"),
];

/// The metrics of a status. Unknown figures are omitted: a flash device that is not served is neither healthy nor failed.
pub fn text(status: &Value) -> String {
    let volume = ("volume", status["volume"]["uuid"].as_str().unwrap_or_default());
    let mut metrics = Metrics::new("flashwright_block");
    let known: Vec<(&str, String)> =
        INFO.iter().filter_map(|(name, at)| Some((*name, shown(status.pointer(at)?)?))).collect();
    let labels: Vec<_> =
        std::iter::once(volume).chain(known.iter().map(|(name, value)| (*name, &**value))).collect();
    metrics.sample("info", Gauge, "Version, format and settings of the cache, as labels.", &labels, 1);
    if let Some(health) = status["state"]["health"].as_str() {
        let help = "1 if flash accepts writes and the disk has no errors, else 0.";
        metrics.sample("healthy", Gauge, help, &[volume], u8::from(health == "healthy"));
    }
    for (at, kind, help) in METRICS {
        if let Some(value) = status.pointer(at).and_then(number) {
            metrics.sample(&name_of(at), *kind, help, &[volume], value);
        }
    }
    for_each_counter(|name, counter| {
        if let Some(value) = number(&status["counters"][name]) {
            metrics.sample(name, counter.kind, counter.help, &[volume], value);
        }
    });
    requests::add_metrics(&mut metrics, &status["requests"], volume);
    metrics.into_text()
}

/// Calls `visit` with the declaration of each counter of a volume.
fn for_each_counter(mut visit: impl FnMut(&str, &'static counters::Counter)) {
    let visit = &mut |it: Reading<'_>| visit(it.name, it.counter);
    Counters::visit(None, &Path::default(), visit);
    IoCounts::visit(None, &Path::default(), visit);
}

/// Metrics of connections keep the prefix `connections`; the others have no prefix.
fn name_of(at: &str) -> String {
    let name =
        at.trim_start_matches("/state/").trim_start_matches("/counters/").trim_start_matches("/recovery/");
    name.trim_start_matches('/').replace('/', "_")
}

fn number(value: &Value) -> Option<String> {
    match value {
        Value::Bool(holds) => Some(u8::from(*holds).to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn alert_rules_use_existing_metrics() {
        let suffix = |kind: Kind| if kind == Counter { "_total" } else { "" };
        let names = METRICS.iter().map(|(at, kind, _)| format!("{}{}", name_of(at), suffix(*kind)));
        let mut names: Vec<String> =
            names.chain(["info", "healthy", "request_errors_total"].map(str::to_owned)).collect();
        for_each_counter(|name, counter| names.push(format!("{name}{}", suffix(counter.kind))));
        let mut used = 0;
        for line in ALERT_RULES.lines().filter(|line| line.trim_start().starts_with("expr:")) {
            for rest in line.split("flashwright_block_").skip(1) {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                assert!(names.iter().any(|name| *name == rest[..end]), "{} in {line}", &rest[..end]);
                used += 1;
            }
        }
        assert!(used >= 13, "{used} metrics");
    }

    #[test]
    fn metric_has_help_and_type_and_labels_are_escaped() {
        let status = json!({
            "volume": { "uuid": "7f", "format": 1, "disk_label": "a\"b\\c\nd" },
            "tuning": { "mode": "write-back" },
            "state": { "closed": true },
            "counters": { "reads": 9_007_199_254_740_993_u64, "read_hit_percent": 3.5 },
            "connections": { "open": 2, "dropped": 1, "last_dropped": null },
        });
        let lines = r#"# HELP flashwright_block_info Version, format and settings of the cache, as labels.
# TYPE flashwright_block_info gauge
flashwright_block_info{volume="7f",format="1",disk="a\"b\\c\nd",mode="write-back"} 1
# HELP flashwright_block_closed 1 if the cache was closed cleanly, 0 if opening it recovers it.
# TYPE flashwright_block_closed gauge
flashwright_block_closed{volume="7f"} 1
# HELP flashwright_block_connections_open Connections open now.
# TYPE flashwright_block_connections_open gauge
flashwright_block_connections_open{volume="7f"} 2
# HELP flashwright_block_connections_dropped_total Connections dropped for breaking the protocol, timing out or failing.
# TYPE flashwright_block_connections_dropped_total counter
flashwright_block_connections_dropped_total{volume="7f"} 1
# HELP flashwright_block_reads_total Blocks requested by reads.
# TYPE flashwright_block_reads_total counter
flashwright_block_reads_total{volume="7f"} 9007199254740993
"#;
        assert_eq!(text(&status), lines);
    }
}
