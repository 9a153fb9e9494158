//! The page of an `evaluate`: verdicts with reasons, all rates, and latency and life of the drive over the rate.

use serde_json::Value;

use super::Named;
use crate::palette::LineStyle;
use crate::report::amount::{duration, shown, with_prefix};
use crate::report::finished::LARGEST;
use crate::report::html::Html;
use crate::report::numbers::grouped;
use crate::report::plot::{Curve, Limit, Scale, panel_over_rate};

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Upper end of the life axis: the life of a drive with few writes is unbounded.
const LONGEST_YEARS: f64 = 100.0;
/// Lower end of the life axis: an hour.
const SHORTEST_YEARS: f64 = 1.0 / 8766.0;

/// Appends the evaluations among `runs`.
pub(super) fn evaluations(body: &mut Html, runs: &[Named<'_>]) -> Drawn {
    for it in runs.iter().filter(|it| it.run.command() == "evaluate") {
        if runs.len() > 1 {
            body.element("h2", &it.name);
        }
        let (config, profiles) = (it.run.part(&["config"]), it.run.part(&["profiles"]));
        let profiles = profiles.as_array().map_or(&[][..], Vec::as_slice);
        subject(body, config);
        criteria(body, &config["criteria"]);
        verdicts(body, profiles);
        for profile in profiles {
            rates(body, profile);
            charts(body, profile, &config["criteria"])?;
            wear(body, profile);
        }
    }
    Ok(())
}

fn subject(body: &mut Html, config: &Value) {
    let drive = &config["drive"];
    let mut text = drive["name"].as_str().unwrap_or("drive").to_owned();
    if let Some(title) = drive["title"].as_str() {
        text += &format!(", {title}");
    }
    if let Some(bytes) = drive["capacity_bytes"].as_f64() {
        text += &format!(", {}", shown(bytes, "B"));
    }
    if let Some(scale) = drive["scale"].as_str() {
        text += &format!(", modelled at {scale} of its size");
    }
    if let Some(rated) = config["rated"].as_str() {
        text += &format!(", rated for {rated}");
    }
    body.element("p", &text);
}

/// The criteria that a rate must meet.
fn criteria(body: &mut Html, criteria: &Value) {
    let number = |name: &str| criteria[name].as_f64();
    let parts = [
        number("min_reached").map(|share| format!("at least {} of it is reached", percent(share))),
        number("max_read_p99_ns").map(|ns| format!("the drive's reads take at most {} (p99)", duration(ns))),
        number("max_write_p99_ns").map(|ns| format!("its writes take at most {} (p99)", duration(ns))),
        number("min_years")
            .filter(|years| *years > 0.0)
            .map(|years| format!("the drive lasts {years} years")),
        number("min_hit_ratio")
            .filter(|share| *share > 0.0)
            .map(|share| format!("{} of gets hit", percent(share))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if !parts.is_empty() {
        body.element("p", &format!("A rate passes if {}.", parts.join(", ")));
    }
}

fn verdicts(body: &mut Html, profiles: &[Value]) {
    body.markup("<ul>");
    for profile in profiles {
        let name = profile["profile"].as_str().unwrap_or_default();
        body.markup("<li>").text(&format!("{name}: "));
        match profile["passing_ops_per_second"].as_u64() {
            Some(rate) => {
                let way = placement_text(&profile["passing_placement"]);
                let years = profile["passing_years"].as_f64().map(|years| format!(", {}", years_text(years)));
                body.markup("<span class=\"passed\">passes</span>").text(&format!(
                    " up to {} ops/s, {way}{}",
                    grouped(rate),
                    years.unwrap_or_default()
                ));
            }
            None => {
                body.markup("<span class=\"failed\">passes at no rate</span>");
                let lowest = rows(profile).iter().filter(|row| row["offered_ops_per_second"].is_u64());
                let lowest = lowest.min_by_key(|row| row["offered_ops_per_second"].as_u64());
                if let Some(reasons) = lowest.map(reasons).filter(|reasons| !reasons.is_empty()) {
                    body.text(&format!(": at the lowest rate the drive {reasons}"));
                }
            }
        }
        body.markup("</li>");
    }
    body.markup("</ul>\n");
}

fn rows(profile: &Value) -> &[Value] {
    profile["runs"].as_array().map_or(&[], Vec::as_slice)
}

fn reasons(row: &Value) -> String {
    let failures = row["failures"].as_array().into_iter().flatten().filter_map(Value::as_str);
    failures.collect::<Vec<_>>().join(", ")
}

fn placement_text(placed: &Value) -> &'static str {
    if placed.as_bool() == Some(true) { "with placement" } else { "without placement" }
}

/// The table of all rates of a profile.
fn rates(body: &mut Html, profile: &Value) {
    let (name, title) = (text_of(profile, "profile"), text_of(profile, "title"));
    body.element("h2", &format!("{name}: {title}"));
    if rows(profile).is_empty() {
        body.element("p", "No rate was measured.");
        return;
    }
    let heads = COLUMNS.iter().map(|(head, _)| *head);
    body.table("", std::iter::once("").chain(heads).chain([""]), |body| {
        for row in rows(profile) {
            let cell = |of: Cell| of(row).unwrap_or_else(|| "\u{2014}".to_owned());
            body.markup("<tr>").element("td", placement_text(&row["placed"]));
            body.elements("td", COLUMNS.iter().map(|(_, of)| cell(*of)));
            match row["passed"].as_bool() {
                Some(true) => body.markup("<td><span class=\"passed\">passes</span></td>"),
                Some(false) => body
                    .markup("<td><span class=\"failed\">fails</span>")
                    .text(&format!(": it {}", reasons(row)))
                    .markup("</td>"),
                None => body.markup("<td></td>"),
            };
            body.markup("</tr>\n");
        }
    });
}

fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

type Cell = fn(&Value) -> Option<String>;

/// Head and text of each figure of a rate.
const COLUMNS: [(&str, Cell); 12] = [
    ("offered/s", |row| {
        Some(row["offered_ops_per_second"].as_u64().map_or_else(|| "unlimited".to_owned(), grouped))
    }),
    ("done/s", |row| row["throughput_ops_per_second"].as_f64().map(|rate| grouped(rate.round() as u64))),
    ("hits", |row| row["hit_ratio"].as_f64().map(percent)),
    ("read p50", |row| latency(row, "read", "p50")),
    ("read p99", |row| latency(row, "read", "p99")),
    ("read p99.9", |row| latency(row, "read", "p999")),
    ("write p99", |row| latency(row, "write", "p99")),
    ("ALWA", |row| two_digits(&row["alwa"])),
    ("DLWA", |row| two_digits(&row["dlwa"])),
    ("host MB/s", |row| row["host_bytes_per_second"].as_f64().map(|rate| format!("{:.1}", rate / 1e6))),
    ("DWPD", |row| two_digits(&row["drive_writes_per_day"])),
    ("life", |row| row["life_years"].as_f64().map(|years| life(row, years))),
];

fn latency(row: &Value, operation: &str, share: &str) -> Option<String> {
    row["latency_ns"]["device"][operation][share].as_f64().map(duration)
}

fn two_digits(value: &Value) -> Option<String> {
    value.as_f64().map(|value| format!("{value:.2}"))
}

fn life(row: &Value, years: f64) -> String {
    let bound = if row["life_years_is_upper_bound"].as_bool() == Some(true) { "at most " } else { "" };
    format!("{bound}{}", years_text(years))
}

/// Latency and life over the rate, with and without placement. Both vertical axes are logarithmic: near the limit of a drive, latencies
/// grow a hundredfold, and its life at full speed is a hundredth of that at a low rate.
fn charts(body: &mut Html, profile: &Value, criteria: &Value) -> Drawn {
    let curve = |placed: bool, name: &str, look: LineStyle, value: &dyn Fn(&Value) -> Option<f64>| {
        let rate = |row: &Value| Some(row["throughput_ops_per_second"].as_f64()?.clamp(1.0, LARGEST));
        let point = |row: &Value| Some((rate(row)?, value(row)?));
        let mut points: Vec<(f64, f64)> = rows(profile)
            .iter()
            .filter(|row| row["placed"].as_bool() == Some(placed))
            .filter_map(point)
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let way = if placed { "with placement" } else { "without placement" };
        Curve { name: format!("{name}, {way}"), look, points }
    };
    let read = |share: &'static str| {
        move |row: &Value| {
            row["latency_ns"]["device"]["read"][share].as_f64().map(|ns| ns.clamp(1.0, LARGEST))
        }
    };
    let both = |name: &str, value: &dyn Fn(&Value) -> Option<f64>, is_dashed: bool| -> Vec<Curve> {
        let look =
            |number: usize| if is_dashed { LineStyle::of(number).dashed() } else { LineStyle::of(number) };
        let curves = [curve(false, name, look(1), value), curve(true, name, look(0), value)];
        curves.into_iter().filter(|curve| !curve.points.is_empty()).collect()
    };
    let limit = |name: &str, text: String| {
        let value = criteria[name].as_f64().filter(|value| (1.0..LARGEST).contains(value))?;
        Some(Limit { value, text })
    };
    let mut latencies = both("p99", &read("p99"), false);
    latencies.extend(both("p50", &read("p50"), true));
    let of_reads = criteria["max_read_p99_ns"].as_f64().map_or(String::new(), duration);
    let latency_limit = limit("max_read_p99_ns", format!("p99 at most {of_reads}"));
    if !latencies.is_empty() {
        body.drawing(&panel_over_rate(
            "Reads of the drive over the rate",
            Scale::Nanoseconds,
            &latencies,
            latency_limit.as_ref(),
        )?);
    }
    let years = |row: &Value| Some(row["life_years"].as_f64()?.clamp(SHORTEST_YEARS, LONGEST_YEARS));
    let lives = both("life", &years, false);
    let min_years = criteria["min_years"].as_f64();
    let min_years = min_years.filter(|years| (SHORTEST_YEARS..LARGEST).contains(years));
    let life_limit = min_years.map(|value| Limit { value, text: format!("at least {}", years_text(value)) });
    if !lives.is_empty() {
        body.drawing(&panel_over_rate(
            "Life of the drive over the rate",
            Scale::Years,
            &lives,
            life_limit.as_ref(),
        )?);
    }
    Ok(())
}

/// How the drive was filled before the measurement, and the change of its wear counters.
fn wear(body: &mut Html, profile: &Value) {
    let fillings = profile["fillings"].as_array().into_iter().flatten();
    let lines: Vec<String> = fillings
        .map(|filling| {
            let capacities = filling["capacities"].as_f64().unwrap_or(0.0);
            let steady = if filling["steady"].as_bool() == Some(true) { "steady" } else { "not steady" };
            let mut text = format!(
                "{}: {steady} after {capacities:.1} capacities",
                placement_text(&filling["placement"])
            );
            let counter = |when: &str, name: &str| filling["wear"][when][name].as_f64();
            let change = |name: &str| Some((counter("before", name)?, counter("after", name)?));
            if let Some((before, after)) = change("media_written_bytes") {
                text += &format!(", the medium wrote {}", shown(after - before, "B"));
            }
            if let Some((before, after)) = change("life_used_percent") {
                text += &format!(", life used went from {before} % to {after} %");
            }
            for problem in filling["failures"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                text += &format!("; failed: {problem}");
            }
            text
        })
        .collect();
    if !lines.is_empty() {
        body.element("h3", "Filling and wear").list(&lines);
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Formats a life in the unit that fits.
pub(in crate::report) fn years_text(years: f64) -> String {
    let days = years * 365.25;
    match years {
        years if years >= 10.0 => format!("{} years", with_prefix(years.round())),
        years if years >= 0.95 => format!("{years:.1} years"),
        _ if days >= 1.0 => format!("{days:.0} days"),
        _ => format!("{:.0} hours", (days * 24.0).max(1.0)),
    }
}
