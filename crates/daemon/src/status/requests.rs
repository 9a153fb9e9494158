//! Counts, sizes and latencies of clients' requests, a part of the status.

use std::fmt::Write as _;

use block::export::{Meter, RequestKind, Requests};
use device::counters::Kind;
use device::names::noun;
use device::prometheus::{Label, Metrics};
use serde_json::{Map, Value, json};

/// Reported latency quantiles.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)];

/// Bounds of Prometheus's latency buckets, in doublings of 256 ns: from 16 us to 4.3 s.
const DOUBLINGS: [u32; 10] = [6, 8, 10, 12, 14, 16, 18, 20, 22, 24];

/// Bounds of the size buckets, in bytes.
const SIZES: [u64; 6] = [512, 1024, 2048, 4096, 8192, 16_384];

/// Sizes beyond those of Flashcache's `iosize_hist`.
const LONGER: &str = "more";

/// Figures of each kind of request, by name.
pub fn of_meter(meter: &Meter) -> Value {
    let kinds = RequestKind::ALL.into_iter();
    Value::Object(kinds.map(|kind| (kind.name().into(), of_kind(&meter.of_kind(kind)))).collect())
}

fn of_kind(seen: &Requests) -> Value {
    let mean = (seen.requests > 0).then(|| seen.total_ns / seen.requests.max(1));
    let mut latency: Map<String, Value> =
        QUANTILES.iter().map(|(name, share)| ((*name).into(), seen.quantile_ns(*share).into())).collect();
    latency.insert("mean".into(), mean.into());
    latency.insert("max".into(), (seen.requests > 0).then_some(seen.longest_ns).into());
    let within =
        DOUBLINGS.map(|doublings| (Requests::bound_ns(doublings).to_string(), seen.within(doublings)));
    let within: Map<String, Value> = within.into_iter().map(|(bound, count)| (bound, count.into())).collect();
    let sizes: Map<String, Value> = seen
        .sizes()
        .map(|(bytes, count)| (bytes.map_or_else(|| LONGER.into(), |bytes| bytes.to_string()), count.into()))
        .collect();
    json!({
        "requests": seen.requests,
        "bytes": seen.bytes,
        "errors": seen.errors,
        "total_ns": seen.total_ns,
        "latency_ns": latency,
        "within_ns": within,
        "iosize_hist": sizes,
    })
}

/// Figures as text: a line per kind that has requests, failed or not.
pub fn text(requests: &Value) -> String {
    let mut text = String::new();
    for kind in RequestKind::ALL {
        let figures = &requests[kind.name()];
        let [count, errors] = ["requests", "errors"].map(|name| figures[name].as_u64().unwrap_or(0));
        if count + errors == 0 {
            continue;
        }
        let _ = write!(text, "  {:<28} {count}", kind.name());
        if count > 0 {
            text += &latency_text(figures);
        }
        if errors > 0 {
            let _ = write!(text, "; {errors} {}", noun(errors, "error"));
        }
        text.push('\n');
    }
    text
}

fn latency_text(figures: &Value) -> String {
    let us = |name: &str| figures["latency_ns"][name].as_f64().unwrap_or(0.0) / 1e3;
    format!(
        ", {} bytes; us: mean {:.0}, p50 {:.0}, p99 {:.0}, max {:.0}",
        figures["bytes"],
        us("mean"),
        us("p50"),
        us("p99"),
        us("max"),
    )
}

/// For Prometheus: histograms of latency and size, and error counts, with the kind as label.
pub fn add_metrics(metrics: &mut Metrics, requests: &Value, volume: Label<'_>) {
    let Some(kinds) = requests.as_object() else { return };
    for (kind, figures) in kinds {
        let labels = [volume, ("kind", kind)];
        let count = figures["requests"].as_u64().unwrap_or(0);
        let within = DOUBLINGS.map(|doublings| {
            let bound_ns = Requests::bound_ns(doublings);
            (bound_ns as f64 / 1e9, figures["within_ns"][bound_ns.to_string()].as_u64().unwrap_or(0))
        });
        let seconds = figures["total_ns"].as_f64().unwrap_or(0.0) / 1e9;
        metrics.histogram(
            ("request_seconds", "Client requests by latency."),
            &labels,
            within,
            (seconds, count),
        );
        let sizes = figures["iosize_hist"].as_object().into_iter().flatten();
        let sizes: Vec<(u64, u64)> =
            sizes.filter_map(|(bytes, count)| Some((bytes.parse().ok()?, count.as_u64()?))).collect();
        let up_to = |bound: u64| {
            (bound as f64, sizes.iter().filter(|(bytes, _)| *bytes <= bound).map(|(_, count)| count).sum())
        };
        let help = "Client requests by length.";
        metrics.histogram(("request_bytes", help), &labels, SIZES.map(up_to), (&figures["bytes"], count));
        metrics.sample("request_errors", Kind::Sum, "Failed client requests.", &labels, &figures["errors"]);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use block::export::{DeviceExport, Export, Operation, Reply};
    use device::{MemoryDevice, VirtualClock};

    use super::*;

    #[test]
    fn prometheus_histograms_are_cumulative() {
        let meter = Meter::new();
        let device = Arc::new(DeviceExport::new(Arc::new(MemoryDevice::new(1 << 20))));
        let export = meter.of(device, Arc::new(VirtualClock::default()));
        for len in [512, 4096, 65536] {
            export.submit(Operation::Read { offset: 0, len }, Reply::new(drop));
        }
        let figures = of_meter(&meter);
        assert_eq!(figures["read"]["iosize_hist"], json!({ "512": 1, "4096": 1, "more": 1 }));
        assert_eq!(figures["write"]["latency_ns"]["p99"], Value::Null);
        let mut metrics = Metrics::new("flashwright_block");
        add_metrics(&mut metrics, &figures, ("volume", "7f"));
        let text = metrics.into_text();
        for line in [
            "# TYPE flashwright_block_request_seconds histogram\n",
            "flashwright_block_request_seconds_bucket{volume=\"7f\",kind=\"read\",le=\"0.000016384\"} 3\n",
            "flashwright_block_request_seconds_count{volume=\"7f\",kind=\"read\"} 3\n",
            "flashwright_block_request_bytes_bucket{volume=\"7f\",kind=\"read\",le=\"2048\"} 1\n",
            "flashwright_block_request_bytes_bucket{volume=\"7f\",kind=\"read\",le=\"16384\"} 2\n",
            "flashwright_block_request_bytes_bucket{volume=\"7f\",kind=\"read\",le=\"+Inf\"} 3\n",
            "flashwright_block_request_bytes_sum{volume=\"7f\",kind=\"read\"} 70144\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
    /// Catches a regression: errors are missing from the text.
    #[test]
    fn errors_of_each_kind_are_reported_as_text_and_metrics() {
        let meter = Meter::new();
        let device = Arc::new(DeviceExport::new(Arc::new(MemoryDevice::new(1 << 20))));
        let export = meter.of(device, Arc::new(VirtualClock::default()));
        for offset in [0, 1 << 20, 2 << 20] {
            export.submit(Operation::Read { offset, len: 512 }, Reply::new(drop));
        }
        export.submit(Operation::Trim { offset: 1 << 20, len: 512, durable: false }, Reply::new(drop));
        let figures = of_meter(&meter);
        let message = text(&figures);
        let lines: Vec<&str> = message.lines().map(str::trim_start).collect();
        assert!(lines[0].starts_with("read ") && lines[0].contains(" 1, 512 bytes; us: mean "), "{message}");
        assert!(lines[0].ends_with("; 2 errors"), "{message}");
        assert!(lines[1].starts_with("trim ") && lines[1].ends_with(" 0; 1 error"), "{message}");
        assert_eq!(lines.len(), 2, "{message}");
        let mut metrics = Metrics::new("flashwright_block");
        add_metrics(&mut metrics, &figures, ("volume", "7f"));
        let text = metrics.into_text();
        for line in [
            "# TYPE flashwright_block_request_errors_total counter\n",
            "flashwright_block_request_errors_total{volume=\"7f\",kind=\"read\"} 2\n",
            "flashwright_block_request_errors_total{volume=\"7f\",kind=\"write\"} 0\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
