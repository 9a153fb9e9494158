//! What clients asked for, and how long it took: one part of a status.

use std::fmt::Write as _;

use bench::report::text::noun;
use block::export::{Meter, RequestKind, Requests};
use serde_json::{Map, Value, json};

/// Shares that latencies are told of, and their names.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)];

/// Bounds of Prometheus's classes of latency, in doublings of 256 ns: from 16 us to 4.3 s.
const DOUBLINGS: [u32; 10] = [6, 8, 10, 12, 14, 16, 18, 20, 22, 24];

/// And those of size, in bytes.
const SIZES: [u64; 6] = [512, 1024, 2048, 4096, 8192, 16_384];

/// What Flashcache's `iosize_hist` has no size for.
const LONGER: &str = "more";

/// Each kind by its name.
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

/// For people: a line a kind of which there were any, failed or not.
pub fn text(requests: &Value) -> String {
    let mut text = String::new();
    for kind in RequestKind::ALL {
        let told = &requests[kind.name()];
        let [count, errors] = ["requests", "errors"].map(|name| told[name].as_u64().unwrap_or(0));
        if count + errors == 0 {
            continue;
        }
        let _ = write!(text, "  {:<28} {count}", kind.name());
        if count > 0 {
            text += &how_long(told);
        }
        if errors > 0 {
            let _ = write!(text, "; {errors} {}", noun(errors, "error"));
        }
        text.push('\n');
    }
    text
}

fn how_long(told: &Value) -> String {
    let us = |name: &str| told["latency_ns"][name].as_f64().unwrap_or(0.0) / 1e3;
    format!(
        ", {} bytes; us: mean {:.0}, p50 {:.0}, p99 {:.0}, max {:.0}",
        told["bytes"],
        us("mean"),
        us("p50"),
        us("p99"),
        us("max"),
    )
}

/// Classes of a histogram, each with its bound and how many are within it, and the sum of all.
type Rows = (Vec<(String, u64)>, String);

/// For Prometheus: histograms of latency and of size, and errors, each kind by a label.
pub fn prometheus(requests: &Value, volume: &str) -> String {
    let mut text = String::new();
    let Some(kinds) = requests.as_object() else { return text };
    let mut histogram = |name: &str, about: &str, rows: &dyn Fn(&Value) -> Rows| {
        let metric = format!("flashwright_block_{name}");
        let _ = writeln!(text, "# HELP {metric} {about}\n# TYPE {metric} histogram");
        for (kind, told) in kinds {
            let labels = format!("{volume},kind=\"{kind}\"");
            let (rows, sum) = rows(told);
            for (bound, count) in rows {
                let _ = writeln!(text, "{metric}_bucket{{{labels},le=\"{bound}\"}} {count}");
            }
            let count = &told["requests"];
            let _ = writeln!(text, "{metric}_bucket{{{labels},le=\"+Inf\"}} {count}");
            let _ = writeln!(text, "{metric}_sum{{{labels}}} {sum}\n{metric}_count{{{labels}}} {count}");
        }
    };
    histogram("request_seconds", "Requests of clients, by how long they took.", &|told| {
        let within = DOUBLINGS.map(|doublings| {
            let bound = Requests::bound_ns(doublings);
            let count = told["within_ns"][bound.to_string()].as_u64().unwrap_or(0);
            ((bound as f64 / 1e9).to_string(), count)
        });
        (within.to_vec(), (told["total_ns"].as_f64().unwrap_or(0.0) / 1e9).to_string())
    });
    histogram("request_bytes", "Requests of clients, by their length.", &|told| {
        let sizes = told["iosize_hist"].as_object().into_iter().flatten();
        let sizes: Vec<(u64, u64)> =
            sizes.filter_map(|(bytes, count)| Some((bytes.parse().ok()?, count.as_u64()?))).collect();
        let up_to =
            |bound: u64| sizes.iter().filter(|(bytes, _)| *bytes <= bound).map(|(_, count)| count).sum();
        let rows = SIZES.map(|bound| (bound.to_string(), up_to(bound)));
        (rows.to_vec(), told["bytes"].to_string())
    });
    let metric = "flashwright_block_request_errors_total";
    let _ = writeln!(text, "# HELP {metric} Requests of clients that failed.\n# TYPE {metric} counter");
    for (kind, told) in kinds {
        let _ = writeln!(text, "{metric}{{{volume},kind=\"{kind}\"}} {}", told["errors"]);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use block::export::{DeviceExport, Export, Operation, Reply};
    use device::{MemoryDevice, VirtualClock};

    use super::*;

    #[test]
    fn prometheus_gets_histograms_that_add_up() {
        let meter = Meter::new();
        let device = Arc::new(DeviceExport::new(Arc::new(MemoryDevice::new(1 << 20))));
        let export = meter.of(device, Arc::new(VirtualClock::default()));
        for len in [512, 4096, 65536] {
            export.submit(Operation::Read { offset: 0, len }, Reply::new(drop));
        }
        let told = of_meter(&meter);
        assert_eq!(told["read"]["iosize_hist"], json!({ "512": 1, "4096": 1, "more": 1 }));
        assert_eq!(told["write"]["latency_ns"]["p99"], Value::Null);
        let text = prometheus(&told, "volume=\"7f\"");
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
    /// People were told of no error, and of a kind of which there were only errors nothing at all.
    #[test]
    fn errors_are_told_of_each_kind_in_words_and_for_prometheus() {
        let meter = Meter::new();
        let device = Arc::new(DeviceExport::new(Arc::new(MemoryDevice::new(1 << 20))));
        let export = meter.of(device, Arc::new(VirtualClock::default()));
        for offset in [0, 1 << 20, 2 << 20] {
            export.submit(Operation::Read { offset, len: 512 }, Reply::new(drop));
        }
        export.submit(Operation::Trim { offset: 1 << 20, len: 512, durable: false }, Reply::new(drop));
        let told = of_meter(&meter);
        let words = text(&told);
        let lines: Vec<&str> = words.lines().map(str::trim_start).collect();
        assert!(lines[0].starts_with("read ") && lines[0].contains(" 1, 512 bytes; us: mean "), "{words}");
        assert!(lines[0].ends_with("; 2 errors"), "{words}");
        assert!(lines[1].starts_with("trim ") && lines[1].ends_with(" 0; 1 error"), "{words}");
        assert_eq!(lines.len(), 2, "{words}");
        let text = prometheus(&told, "volume=\"7f\"");
        for line in [
            "# TYPE flashwright_block_request_errors_total counter\n",
            "flashwright_block_request_errors_total{volume=\"7f\",kind=\"read\"} 2\n",
            "flashwright_block_request_errors_total{volume=\"7f\",kind=\"write\"} 0\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
