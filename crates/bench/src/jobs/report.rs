//! The outcome of jobs as JSON and as text.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::run::{JobFigures, KindFigures, Outcome};
use crate::evaluate::criteria::time_text;
use crate::report::numbers::grouped;
use crate::report::numbers::percentiles;

const KINDS: [&str; 3] = ["read", "write", "trim"];

/// Names are stable; an unknown figure is null.
#[must_use]
pub fn json(outcome: &Outcome, page_bytes: u32) -> Value {
    let stats = &outcome.stats;
    let handles = stats.streams.iter().enumerate().map(|(handle, stream)| {
        json!({
            "handle": handle,
            "host_pages": stream.host_pages,
            "relocated_pages": stream.relocated_pages,
            "dlwa": stream.dlwa(),
        })
    });
    let phases = outcome.phases.iter().map(|phase| {
        json!({
            "begin_seconds": phase.begin_ns as f64 / 1e9,
            "end_seconds": phase.end_ns as f64 / 1e9,
            "host_bytes": phase.stats.host_bytes,
            "media_bytes": phase.stats.media_pages() * u64::from(page_bytes),
            "dlwa": phase.stats.dlwa(page_bytes),
        })
    });
    json!({
        "was_stopped": outcome.was_stopped,
        "virtual_seconds": outcome.elapsed_ns as f64 / 1e9,
        "host_bytes": stats.host_bytes,
        "media_bytes": stats.media_pages() * u64::from(page_bytes),
        "dlwa": stats.dlwa(page_bytes),
        "dlwa_last_tenth": last_tenth(outcome),
        "gc_events": stats.gc_events,
        "relocated_pages": stats.relocated_pages,
        "erases": stats.erases,
        "jobs": outcome.jobs.iter().map(job).collect::<Vec<Value>>(),
        "phases": phases.collect::<Vec<Value>>(),
        "handles": handles.collect::<Vec<Value>>(),
        "intervals": outcome.intervals.iter().map(super::curve::Interval::json).collect::<Vec<Value>>(),
    })
}

/// Write amplification over the last tenth of the host's writes.
#[must_use]
pub fn last_tenth(outcome: &Outcome) -> Option<f64> {
    let last = outcome.intervals.last()?;
    let from = last.host_bytes as f64 * 0.9;
    let first = outcome.intervals.iter().rfind(|interval| interval.host_bytes as f64 <= from);
    let (host, media) = first.map_or((0, 0), |first| (first.host_bytes, first.media_bytes));
    (last.host_bytes > host).then(|| (last.media_bytes - media) as f64 / (last.host_bytes - host) as f64)
}

fn seconds(job: &JobFigures) -> f64 {
    let measured = job.span_ns.map_or(0, |(begin, end)| (end - begin).saturating_sub(job.ramp_ns));
    measured as f64 / 1e9
}

fn job(job: &JobFigures) -> Value {
    let mut figures = json!({
        "name": job.name,
        "clones": job.clones,
        "begin_seconds": job.span_ns.map(|span| span.0 as f64 / 1e9),
        "end_seconds": job.span_ns.map(|span| span.1 as f64 / 1e9),
    });
    for (name, kind) in KINDS.into_iter().zip(&job.kinds) {
        figures[name] = kind_json(kind, seconds(job));
    }
    figures
}

fn kind_json(kind: &KindFigures, seconds: f64) -> Value {
    let count = kind.latency.count();
    if count == 0 {
        return Value::Null;
    }
    json!({
        "requests": count,
        "bytes": kind.bytes,
        "requests_per_second": count as f64 / seconds.max(1e-9),
        "bytes_per_second": kind.bytes as f64 / seconds.max(1e-9),
        "latency_ns": percentiles(&kind.latency),
    })
}

/// The result as text.
#[must_use]
pub fn text(result: &Value) -> String {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let mut text = String::new();
    if result["was_stopped"] == true {
        text += "stopped early: the figures cover the requests up to then\n";
    }
    for job in result["jobs"].as_array().into_iter().flatten() {
        let name = job["name"].as_str().unwrap_or("");
        let clones = match job["clones"].as_u64() {
            Some(clones) if clones > 1 => format!(" ({clones} clones)"),
            _ => String::new(),
        };
        let _ = writeln!(text, "{name}{clones}");
        for kind in KINDS {
            let figures = &job[kind];
            if figures.is_null() {
                continue;
            }
            let latency =
                |name: &str| time_text(Duration::from_nanos(number(&figures["latency_ns"][name]) as u64));
            let _ = writeln!(
                text,
                "  {kind:5} {} requests/s, {:.1} MB/s, latency mean {}, p50 {}, p99 {}, p99.9 {}, max {}",
                grouped(number(&figures["requests_per_second"]).round() as u64),
                number(&figures["bytes_per_second"]) / 1e6,
                latency("mean"),
                latency("p50"),
                latency("p99"),
                latency("p999"),
                latency("max"),
            );
        }
    }
    let phases = result["phases"].as_array().filter(|phases| phases.len() > 1);
    for (number_of, phase) in phases.into_iter().flatten().enumerate() {
        if let Some(dlwa) = phase["dlwa"].as_f64() {
            let host = number(&phase["host_bytes"]) / 1e9;
            let _ =
                writeln!(text, "phase {}: write amplification {dlwa:.4} over {host:.3} GB", number_of + 1);
        }
    }
    for handle in result["handles"].as_array().filter(|handles| handles.len() > 1).into_iter().flatten() {
        if let Some(dlwa) = handle["dlwa"].as_f64() {
            let _ = writeln!(text, "handle {}: write amplification {dlwa:.4}", handle["handle"]);
        }
    }
    text + &totals(result)
}

fn totals(result: &Value) -> String {
    let number = |name: &str| result[name].as_f64();
    let Some(dlwa) = number("dlwa") else {
        return format!(
            "virtual time         {:.3} s, nothing was written\n",
            number("virtual_seconds").unwrap_or(0.0)
        );
    };
    format!(
        "write amplification  {dlwa:.4}, {:.4} in the last tenth of the host's writes\nhost writes          {:.3} GB\nmedia writes         {:.3} GB\nvirtual time         {:.3} s\n",
        number("dlwa_last_tenth").unwrap_or(dlwa),
        number("host_bytes").unwrap_or(0.0) / 1e9,
        number("media_bytes").unwrap_or(0.0) / 1e9,
        number("virtual_seconds").unwrap_or(0.0),
    )
}
