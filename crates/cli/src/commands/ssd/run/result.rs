//! What `ssd run` came to, as JSON and in words.

use std::fmt::Write as _;

use clap::ValueEnum as _;
use serde_json::{Value, json};
use ssd::model::dlwa;
use ssd::{Shape, Stats, VictimPolicy};

use super::{Arguments, PatternName};

/// The result file's own keys.
pub(super) fn json(arguments: &Arguments, shape: &Shape, stats: &Stats, latency_ns: &Value) -> Value {
    let dlwa = stats.dlwa(shape.page_bytes);
    let streams =
        stats.streams.iter().zip(arguments.pattern().streams).enumerate().map(|(handle, (stream, order))| {
            json!({
                "handle": handle,
                "order": format!("{:?}", order.order).to_lowercase(),
                "host_pages": stream.host_pages,
                "relocated_pages": stream.relocated_pages,
                "dlwa": stream.dlwa(),
            })
        });
    let closed_form = closed_form(arguments, shape).map(|(formula, value)| {
        json!({ "formula": formula, "dlwa": value, "difference": dlwa.map(|dlwa| dlwa / value - 1.0) })
    });
    json!({
        "pattern": arguments.pattern.to_possible_value().map(|value| value.get_name().to_owned()),
        "op_ratio": shape.op_ratio(),
        "host_pages": stats.host_pages,
        "media_pages": stats.media_pages(),
        "dlwa": dlwa,
        "gc_events": stats.gc_events,
        "relocated_pages": stats.relocated_pages,
        "erases": stats.erases,
        "latency_ns": latency_ns,
        "streams": streams.collect::<Vec<Value>>(),
        "closed_form": closed_form,
    })
}

/// For people.
pub(super) fn words(result: &Value) -> String {
    let mut text = String::new();
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let _ = writeln!(text, "write amplification  {:.4}", number(&result["dlwa"]));
    if let Some(form) = result["closed_form"].as_object() {
        let (value, difference) = (number(&form["dlwa"]), number(&form["difference"]) * 100.0);
        let _ = writeln!(
            text,
            "closed form          {value:.4} ({}), {difference:+.2} %",
            form["formula"].as_str().unwrap_or("")
        );
    }
    for stream in result["streams"].as_array().filter(|streams| streams.len() > 1).into_iter().flatten() {
        let order = stream["order"].as_str().unwrap_or("");
        let _ = writeln!(text, "  stream {} ({order})  {:.4}", stream["handle"], number(&stream["dlwa"]));
    }
    let _ = writeln!(
        text,
        "over-provisioning    {:.2} %\nhost pages           {}\nmedia pages          {}\nunits collected      {} with live pages, {} erased",
        number(&result["op_ratio"]) * 100.0,
        result["host_pages"],
        result["media_pages"],
        result["gc_events"],
        result["erases"],
    );
    for served in ["read", "write"] {
        let latency = &result["latency_ns"][served];
        if latency["count"].as_u64().is_some_and(|count| count > 0) {
            let us = |name: &str| number(&latency[name]) / 1e3;
            let _ = writeln!(
                text,
                "{served:5} latency        mean {:.1} µs, p50 {:.1}, p99 {:.1}, p999 {:.1}, max {:.1}",
                us("mean"),
                us("p50"),
                us("p99"),
                us("p999"),
                us("max"),
            );
        }
    }
    text
}

/// The value of the closed form, where there is one for the pattern.
fn closed_form(arguments: &Arguments, shape: &Shape) -> Option<(&'static str, f64)> {
    let (written, physical) = (f64::from(shape.logical_pages), shape.data_pages() as f64);
    let form = match (arguments.pattern, arguments.gc) {
        (PatternName::Sequential, _) => return Some(("a ring writes each page once", 1.0)),
        (PatternName::Uniform, VictimPolicy::Fifo) => ("theorem 1", dlwa::theorem_1(written, physical)),
        (PatternName::Uniform, VictimPolicy::Greedy) => {
            ("greedy, finite units", dlwa::greedy(written, physical, shape.unit_pages))
        }
        _ => return None,
    };
    // Where there is hardly data on the drive, the form for finite units runs out below what is possible.
    form.1.ok().filter(|value| value.dlwa >= 1.0).map(|value| (form.0, value.dlwa))
}
