//! The result of `ssd run` with a pattern, as JSON and as text.

use std::fmt::Write as _;
use std::time::Duration;

use bench::evaluate::criteria::time_text;
use bench::report::numbers::grouped;
use clap::ValueEnum as _;
use serde_json::{Value, json};
use ssd::model::dlwa;
use ssd::{Card, Shape, Stats, VictimPolicy};

use super::{Arguments, PatternName};

/// The result file's own keys.
pub(super) fn json(
    arguments: &Arguments,
    (card, shape): (&Card, &Shape),
    stats: &Stats,
    latency_ns: &Value,
) -> Value {
    let victims = arguments.upkeep(card).victims;
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
    let closed_form = closed_form(arguments.pattern, victims, shape).map(|(formula, value)| {
        json!({ "formula": formula, "dlwa": value, "difference": dlwa.map(|dlwa| dlwa / value - 1.0) })
    });
    let mut result = json!({
        "pattern": arguments.pattern.to_possible_value().map(|value| value.get_name().to_owned()),
        "op_ratio": shape.op_ratio(),
        "gc": victims.to_string(),
        "host_pages": stats.host_pages,
        "media_pages": stats.media_pages(),
        "dlwa": dlwa,
        "gc_events": stats.gc_events,
        "relocated_pages": stats.relocated_pages,
        "erases": stats.erases,
        "latency_ns": latency_ns,
        "streams": streams.collect::<Vec<Value>>(),
        "closed_form": closed_form,
    });
    add_interval(&mut result, "dlwa", card);
    result
}

/// Adds the interval of the figure `name` of `result`, if the card was learned from logs.
pub(super) fn add_interval(result: &mut Value, name: &str, card: &Card) {
    let (Some(learned), Some(dlwa)) = (card.learned, result[name].as_f64()) else { return };
    let bounds = [1.0 - learned.dlwa_error, 1.0 + learned.dlwa_error].map(|factor| (dlwa * factor).max(1.0));
    result["dlwa_interval"] =
        json!({ "low": bounds[0], "high": bounds[1], "coverage": 0.8, "logs": learned.logs });
}

/// The interval as text; empty if there is none.
pub(super) fn interval_text(result: &Value) -> String {
    let interval = &result["dlwa_interval"];
    let (Some(low), Some(high)) = (interval["low"].as_f64(), interval["high"].as_f64()) else {
        return String::new();
    };
    format!(
        "80 % interval        {low:.4} to {high:.4}, from the {} logs that the card was learned from\n",
        interval["logs"]
    )
}

/// The result as text.
pub(super) fn text(result: &Value) -> String {
    let mut text = String::new();
    if result["was_stopped"] == true {
        text += "stopped early: the figures cover the pages written up to then\n";
    }
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
    text += &interval_text(result);
    for stream in result["streams"].as_array().filter(|streams| streams.len() > 1).into_iter().flatten() {
        let order = stream["order"].as_str().unwrap_or("");
        let _ = writeln!(text, "  stream {} ({order})  {:.4}", stream["handle"], number(&stream["dlwa"]));
    }
    let _ = writeln!(
        text,
        "victim policy        {}\nover-provisioning    {:.2} %\nhost pages           {}\nmedia pages          {}\nunits collected      {} with live pages, {} erased",
        result["gc"].as_str().unwrap_or(""),
        number(&result["op_ratio"]) * 100.0,
        result["host_pages"],
        result["media_pages"],
        result["gc_events"],
        result["erases"],
    );
    for served in ["read", "write"] {
        let latency = &result["latency_ns"][served];
        if latency["count"].as_u64().is_some_and(|count| count > 0) {
            let time = |name: &str| time_text(Duration::from_nanos(number(&latency[name]) as u64));
            let _ = writeln!(
                text,
                "{served:5} latency        mean {}, p50 {}, p99 {}, p999 {}, max {}",
                time("mean"),
                time("p50"),
                time("p99"),
                time("p999"),
                time("max"),
            );
        }
    }
    text + &rates(&result["latency_ns"])
}

/// Completed and offered requests per second.
fn rates(latency_ns: &Value) -> String {
    let rate = |name: &str| latency_ns[name].as_f64().map(|rate| grouped(rate.round() as u64));
    let Some(done) = rate("requests_per_second") else { return String::new() };
    let offered =
        rate("offered_per_second").map_or_else(String::new, |offered| format!(" of {offered} offered"));
    let behind =
        "the drive cannot keep up: requests wait for longer and longer, and latencies grow with the run\n";
    let behind = if latency_ns["keeps_up"] == false { behind } else { "" };
    format!("requests done        {done} per second{offered}\n{behind}")
}

/// The value of the closed form, if the pattern has one.
fn closed_form(pattern: PatternName, victims: VictimPolicy, shape: &Shape) -> Option<(&'static str, f64)> {
    let (written, physical) = (f64::from(shape.logical_pages), shape.data_pages() as f64);
    let form = match (pattern, victims) {
        (PatternName::Sequential, _) => return Some(("a ring writes each page once", 1.0)),
        (PatternName::Uniform, VictimPolicy::Fifo) => ("theorem 1", dlwa::theorem_1(written, physical)),
        (PatternName::Uniform, VictimPolicy::Greedy) => {
            ("greedy, finite units", dlwa::greedy(written, physical, shape.unit_pages))
        }
        _ => return None,
    };
    // With very little data on the drive, the form for finite units yields less than the minimum of 1.
    form.1.ok().filter(|value| value.dlwa >= 1.0).map(|value| (form.0, value.dlwa))
}
