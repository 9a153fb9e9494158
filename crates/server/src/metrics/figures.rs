//! The figures of a cache server in Prometheus's text format.

use std::fmt::{Display, Write as _};
use std::sync::{Arc, Weak};

use cache::Stats;

use super::Source;
use crate::counters::Counter;
use crate::latency::{BOUNDS_NS, Kind as RequestKind, Latency};
use crate::prefixes::{PrefixCounts, Prefixes};
use crate::server::Shared;
use Kind::{Counter as Total, Gauge};

/// The type of a metric.
#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// A figure of the cache: name, type, help, value. The value is `None` if the cache has no such part.
type Figure = (&'static str, Kind, &'static str, fn(&Stats) -> Option<u64>);

/// The figures of the cache. Ratios are left out: Prometheus divides counters over any interval.
const FIGURES: &[Figure] = &[
    ("get_hits_dram_total", Total, "Gets that found their item in DRAM.", |stats| Some(stats.gets.hits_dram)),
    ("get_hits_flash_total", Total, "Gets that found their item on flash.", |stats| {
        Some(stats.gets.hits_flash)
    }),
    ("items_stored_total", Total, "Items stored.", |stats| Some(stats.inserts.stored)),
    ("items_refused_total", Total, "Items that the cache refused.", |stats| Some(stats.inserts.rejected())),
    ("dram_evictions_total", Total, "Items evicted from DRAM.", |stats| {
        Some(stats.pools.iter().map(|pool| pool.total().evictions).sum())
    }),
    ("dram_bytes", Gauge, "Memory for items in DRAM.", |stats| Some(stats.dram_memory.arena_bytes)),
    ("dram_used_bytes", Gauge, "Memory for items in DRAM, in use.", |stats| {
        Some(stats.dram_memory.used_slab_bytes)
    }),
    ("flash_healthy", Gauge, "1 if all of flash accepts writes, else 0.", |stats| {
        Some(u64::from(stats.flash.as_ref()?.health.is_healthy()))
    }),
    ("flash_admitted_bytes_total", Total, "Keys and values that flash accepted from DRAM.", |stats| {
        Some(stats.flash.as_ref()?.puts.logical_bytes)
    }),
    ("flash_written_bytes_total", Total, "Bytes written to the flash device.", |stats| {
        Some(stats.flash.as_ref()?.device.written_bytes)
    }),
    ("flash_read_bytes_total", Total, "Bytes read from the flash device.", |stats| {
        Some(stats.flash.as_ref()?.device.read_bytes)
    }),
    ("flash_lost_items_total", Total, "Items lost to failed writes or damage.", |stats| {
        Some(stats.flash.as_ref()?.lost_items())
    }),
    ("flash_bytes", Gauge, "Flash for items.", |stats| {
        let flash = stats.flash.as_ref()?;
        Some(flash.soc_room.bytes + flash.regions_room.bytes)
    }),
    ("flash_used_bytes", Gauge, "Flash for items, in use.", |stats| {
        let flash = stats.flash.as_ref()?;
        Some(flash.soc_room.used_bytes + flash.regions_room.used_bytes)
    }),
];

/// The figures of a server, until it is closed. Does not keep the server's cache open.
pub struct Figures {
    shared: Weak<Shared>,
}

impl Figures {
    /// The figures of `shared`.
    pub fn of(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::downgrade(shared) }
    }
}

impl Source for Figures {
    fn text(&self) -> String {
        let mut text = Text(String::new());
        if let Some(shared) = self.shared.upgrade() {
            write(&mut text, &shared);
        }
        text.0
    }

    fn health(&self) -> Result<(), String> {
        let shared = self.shared.upgrade().ok_or("the server is closed")?;
        match shared.store.cache().health() {
            Some(health) if !health.is_healthy() => {
                let reason =
                    health.last_error.unwrap_or_else(|| "regions of flash are out of service".into());
                Err(format!("flash does not accept writes: {reason}"))
            }
            _ => Ok(()),
        }
    }
}

fn write(text: &mut Text, shared: &Shared) {
    for &counter in Counter::ALL {
        let name = counter.name();
        let name = if name.starts_with("total_") { name.replace("total_", "") } else { name.to_owned() };
        text.figure(&format!("{name}_total"), Total, counter.help(), shared.counters.get(counter));
    }
    text.figure("open_connections", Gauge, "Connections open now.", shared.open_connections());
    let uptime = shared.store.now_seconds().saturating_sub(shared.started_seconds);
    text.figure("uptime_seconds", Gauge, "Time since the server started.", uptime);
    let items = shared.store.cache().len();
    text.figure("items", Gauge, "Items in the cache; one that DRAM and flash both have counts twice.", items);
    let stats = shared.store.cache().stats();
    for (name, kind, help, value) in FIGURES {
        if let Some(value) = value(&stats) {
            text.figure(name, *kind, help, value);
        }
    }
    if shared.options.measure_latency {
        write_latency(text, &shared.latency);
    }
    write_prefixes(text, &shared.prefixes);
}

fn write_latency(text: &mut Text, latency: &Latency) {
    const NAME: &str = "request_seconds";
    text.head(
        NAME,
        "histogram",
        "Time from the arrival of a whole request to its reply, by kind of request.",
    );
    for (kind, name) in RequestKind::ALL {
        let histogram = latency.of(kind);
        let counts = histogram.cumulative();
        let labels = |bound: &str| format!("{NAME}_bucket{{command=\"{name}\",le=\"{bound}\"}}");
        for (bound_ns, count) in BOUNDS_NS.iter().zip(counts) {
            text.value(&labels(&(*bound_ns as f64 / 1e9).to_string()), count);
        }
        let all = counts[BOUNDS_NS.len()];
        text.value(&labels("+Inf"), all);
        text.value(&format!("{NAME}_sum{{command=\"{name}\"}}"), histogram.sum_ns() as f64 / 1e9);
        text.value(&format!("{NAME}_count{{command=\"{name}\"}}"), all);
    }
}

fn write_prefixes(text: &mut Text, prefixes: &Prefixes) {
    type Count = fn(&PrefixCounts) -> u64;
    const COUNTS: [(&str, &str, Count); 4] = [
        ("prefix_gets_total", "Keys with the prefix that were read.", |counts| counts.gets),
        ("prefix_hits_total", "Keys with the prefix that were read and found.", |counts| counts.hits),
        ("prefix_sets_total", "Values stored under keys with the prefix.", |counts| counts.sets),
        ("prefix_deletes_total", "Keys with the prefix that were to be deleted.", |counts| counts.deletes),
    ];
    let all = prefixes.counts();
    for (name, help, count) in COUNTS.iter().filter(|_| !all.is_empty()) {
        text.head(name, "counter", help);
        for (prefix, counts) in &all {
            text.value(&format!("{name}{{prefix=\"{}\"}}", escaped(prefix)), count(counts));
        }
    }
}

/// A value of a label. A byte that is no text, which a key may contain, is shown as `\xNN`.
fn escaped(prefix: &[u8]) -> String {
    prefix.escape_ascii().to_string().replace('\\', "\\\\").replace('"', "\\\"")
}

/// Text in Prometheus's format.
struct Text(String);

impl Text {
    fn figure(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.head(name, kind, help);
        self.value(name, value);
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(
            self.0,
            "# HELP flashwright_serve_{name} {help}\n# TYPE flashwright_serve_{name} {kind}"
        );
    }

    fn value(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.0, "flashwright_serve_{name} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_with_quotes_and_binary_bytes_is_escaped() {
        assert_eq!(escaped(b"a"), "a");
        assert_eq!(escaped(b"\"\\"), r#"\\\"\\\\"#);
        assert_eq!(escaped(b"\xff\n"), r"\\xff\\n");
    }
}
