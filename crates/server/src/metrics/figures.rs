//! The figures of a cache server in Prometheus's text format.

use std::sync::{Arc, Weak};

use device::counters::Kind::{State, Sum};
use device::prometheus::Metrics;

use super::Source;
use crate::counters::Counter;
use crate::latency::{BOUNDS_NS, Kind as RequestKind, Latency};
use crate::prefixes::PrefixCounts;
use crate::shared::Shared;
use crate::tenants::TenantFigures;

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
        let mut metrics = Metrics::new("flashwright_serve");
        if let Some(shared) = self.shared.upgrade() {
            add_all(&mut metrics, &shared);
        }
        metrics.into_text()
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

fn add_all(metrics: &mut Metrics, shared: &Shared) {
    for &counter in Counter::ALL {
        let name = counter.name();
        let name = name.strip_prefix("total_").unwrap_or(name);
        metrics.sample(name, Sum, counter.help(), &[], shared.counters.get(counter));
    }
    let mut state = |name: &str, help: &str, value: u64| metrics.sample(name, State, help, &[], value);
    state("open_connections", "Connections open now.", shared.open_connections() as u64);
    let uptime_seconds = shared.store.now_seconds().saturating_sub(shared.started_seconds);
    state("uptime_seconds", "Seconds since the server started.", uptime_seconds.into());
    let cache = shared.store.cache();
    state("items", "Items in the cache; one that DRAM and flash both have counts twice.", cache.len() as u64);
    let stats = cache.stats();
    if let Some(flash) = &stats.flash {
        let is_healthy = flash.health.is_healthy();
        state("flash_healthy", "1 if all of flash accepts writes, else 0.", is_healthy.into());
    }
    metrics.table("cache", &stats, &[], "class");
    if shared.options.measure_latency {
        add_latency(metrics, &shared.latency);
    }
    for (prefix, counts) in shared.prefixes.counts() {
        add_counts(metrics, "prefix", &shown(&prefix), counts);
    }
    let pairs = cache.pair_stats();
    for TenantFigures { name, pool, flash_pair, counts } in shared.store.tenants().figures() {
        add_counts(metrics, "tenant", name, counts);
        if let Some(pool) = pool.and_then(|pool| stats.pools.get(usize::from(pool))) {
            metrics.table("tenant_dram", &pool.total(), &[("tenant", name)], "");
        }
        if let Some(pair) = flash_pair.and_then(|pair| pairs.get(pair)) {
            metrics.table("tenant_flash", pair, &[("tenant", name)], "");
        }
    }
}

fn add_latency(metrics: &mut Metrics, latency: &Latency) {
    let help = "Time from the arrival of a whole request to its reply, by kind of request.";
    for (kind, name) in RequestKind::ALL {
        let histogram = latency.of(kind);
        let counts = histogram.cumulative();
        let buckets = BOUNDS_NS.iter().map(|&bound_ns| bound_ns as f64 / 1e9).zip(counts);
        let seconds = histogram.sum_ns() as f64 / 1e9;
        let all = counts[BOUNDS_NS.len()];
        metrics.histogram(("request_seconds", help), &[("command", name)], buckets, (seconds, all));
    }
}

/// Requests for the keys with a prefix or of a tenant.
fn add_counts(metrics: &mut Metrics, kind: &str, name: &str, counts: PrefixCounts) {
    let PrefixCounts { gets, hits, sets, deletes } = counts;
    let mut count = |figure: &str, help: &str, value: u64| {
        metrics.sample(&format!("{kind}_{figure}"), Sum, help, &[(kind, name)], value);
    };
    count("gets", "Keys that were read.", gets);
    count("hits", "Keys that were read and found.", hits);
    count("sets", "Values stored, or attempted to be.", sets);
    count("deletes", "Keys that were to be deleted.", deletes);
}

/// A prefix as text. A byte that is no text, which a key may contain, is shown as `\xNN`.
fn shown(prefix: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in prefix.utf8_chunks() {
        shown += chunk.valid();
        shown += &chunk.invalid().escape_ascii().to_string();
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_bytes_of_a_prefix_are_shown_as_numbers() {
        assert_eq!(shown("caf\u{e9}\"".as_bytes()), "caf\u{e9}\"");
        assert_eq!(shown(b"a\xff\n"), "a\\xff\n");
    }
}
