//! Formats an evaluation as text: a table for each profile, and a verdict.

use std::fmt::Write as _;

use super::criteria::{Criteria, life_text, time_text, years_text};
use super::run::{Measured, Row};
use super::{EvaluationOptions, EvaluationResult, profile::PROFILES};
use crate::report::numbers::grouped;
use cache::stats::FlashStats;

const COLUMNS: [&str; 13] = [
    "offered/s",
    "done/s",
    "hits",
    "read p50",
    "p99",
    "p99.9",
    "write p99",
    "ALWA",
    "DLWA",
    "host MB/s",
    "DWPD",
    "years",
    "",
];
const WIDTHS: [usize; 13] = [10, 10, 7, 9, 8, 8, 10, 6, 6, 10, 6, 8, 0];
const LEGEND: &str = "
hits: of gets; read, write: latency of the drive; ALWA, DLWA: write amplification of cache and drive
host MB/s, DWPD: writes to the drive, as a rate and as drive writes per day; years: until the rated endurance is used up
";

/// Table of all rows by profile, with a legend.
#[must_use]
pub fn table(found: &EvaluationResult, criteria: &Criteria) -> String {
    let mut out = String::new();
    for profile in &PROFILES {
        let runs: Vec<&Measured> = found.measured.iter().filter(|it| it.profile == profile.name).collect();
        if runs.is_empty() {
            continue;
        }
        let _ = writeln!(out, "\n{}: {}\n{}", profile.name, profile.title, line(&COLUMNS.map(str::to_owned)));
        for run in runs {
            let _ = writeln!(out, "  {}", head(run));
            run.rows.iter().for_each(|row| {
                let _ = writeln!(out, "{}", line(&cells(row, criteria)));
            });
        }
    }
    if !out.is_empty() {
        out += LEGEND;
        out += &marks(found);
    }
    out
}

/// Legend of the marks that occur in front of figures.
fn marks(found: &EvaluationResult) -> String {
    let any = |is: fn(&Row) -> bool| found.measured.iter().flat_map(|run| &run.rows).any(is);
    let mut out = String::new();
    if any(|row| row.writes.is_carried_over) {
        out += "~  too little was written to tell: each operation is assumed to write as much as at full speed\n";
    }
    if any(|row| row.years.figure().is_some_and(|(_, is_bound)| is_bound)) {
        out += "<  at most: the drive does not report what its medium wrote\n";
    }
    out
}

fn head(run: &Measured) -> String {
    let placement = if run.placement { "placement on" } else { "placement off" };
    let steady = if run.warm_up.steady { "steady" } else { "NOT STEADY" };
    let interrupted = if run.interrupted { ", interrupted" } else { "" };
    let forecast = run.warm_up.forecast.as_ref().map_or_else(String::new, |it| {
        let more = if it.is_steady { String::new() } else { format!("; {}", it.reason) };
        format!("; final write amplification {:.2} to {:.2}{more}", it.interval.0, it.interval.1)
    });
    format!("{placement}, {steady} after {:.1} capacities{interrupted}{forecast}", run.warm_up.capacities)
}

fn line(cells: &[String; 13]) -> String {
    let mut out = String::new();
    for (cell, width) in cells.iter().zip(WIDTHS) {
        let _ = write!(out, "{cell:>width$} ");
    }
    out.trim_end().to_owned()
}

fn cells(row: &Row, criteria: &Criteria) -> [String; 13] {
    let or_unknown = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
    let quantile = |share| row.device_quantiles(share);
    let read = |share| quantile(share).0.map_or_else(|| "-".to_owned(), time_text);
    let flash = row.report.snapshot.stats.flash.as_ref();
    let alwa = flash.and_then(FlashStats::write_amplification);
    let carried_over = if row.writes.is_carried_over { "~" } else { "" };
    let years = row.years.figure().map(|(years, is_bound)| {
        let sign = if is_bound { "<" } else { "" };
        format!("{carried_over}{sign}{}", years_text(years))
    });
    let missed = criteria.missed(row);
    let failed: Vec<&str> = missed.iter().map(|it| it.criterion.word()).collect();
    let verdict = match row.offered {
        None => String::new(),
        Some(_) if missed.is_empty() => "  passes".to_owned(),
        Some(_) => format!("  fails: {}", failed.join(", ")),
    };
    [
        row.offered.map_or_else(|| "unlimited".to_owned(), grouped),
        grouped(row.throughput().round() as u64),
        row.report.counts.hit_ratio().map_or_else(|| "-".to_owned(), |it| format!("{:.1} %", it * 100.0)),
        read(0.5),
        read(0.99),
        read(0.999),
        quantile(0.99).1.map_or_else(|| "-".to_owned(), time_text),
        or_unknown(alwa.map(|it| format!("{it:.2}"))),
        or_unknown(row.writes.dlwa.map(|it| format!("{it:.2}"))),
        format!("{carried_over}{:.1}", row.writes.host_bytes_per_second / 1e6),
        format!("{:.2}", row.drive_writes_per_day),
        or_unknown(years),
        verdict,
    ]
}

/// Verdict for each run.
#[must_use]
pub fn verdict(found: &EvaluationResult, options: &EvaluationOptions) -> String {
    let criteria = &options.criteria;
    let mut out = String::from("\n");
    for profile in &PROFILES {
        let runs = found.measured.iter().filter(|it| it.profile == profile.name && it.rows.len() > 1);
        for run in runs {
            let with = if run.placement { "with placement" } else { "without" };
            let _ = writeln!(out, "{:<6} {with:<15} {}", profile.name, one(run, criteria));
        }
    }
    match found.unfinished.as_slice() {
        [] => {}
        [one] => out += &format!("interrupted: {one} is not judged\n"),
        [others @ .., last] => {
            let _ = writeln!(out, "interrupted: {} and {last} are not judged", others.join(", "));
        }
    }
    for note in options.notes.iter().chain(&found.notes) {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

/// Highest passing rate, the lifetime at that rate, and the reason why the next rate fails.
fn one(run: &Measured, criteria: &Criteria) -> String {
    let Some(best) = criteria.best(run) else { return at_no_rate(run, criteria) };
    let rate = best.offered.map_or_else(String::new, grouped);
    let read = best.device_quantiles(0.99).0.map_or_else(|| "-".to_owned(), time_text);
    let mut text = format!("up to {rate} ops/s: {}, read p99 {read}", lasts(best));
    let next = run.rows.iter().filter(|row| row.offered > best.offered).min_by_key(|row| row.offered);
    if let Some(next) = next {
        let _ = write!(text, "; {}", why_not(next, criteria));
    }
    text + &by_speed(run, criteria, best.offered)
}

fn at_no_rate(run: &Measured, criteria: &Criteria) -> String {
    let Some(lowest) = lowest(run) else { return "no rate was measured".to_owned() };
    format!("at no rate: {}{}", why_not(lowest, criteria), by_speed(run, criteria, lowest.offered))
}

fn lowest(run: &Measured) -> Option<&Row> {
    run.rows.iter().filter(|row| row.offered.is_some()).min_by_key(|row| row.offered)
}

fn why_not(row: &Row, criteria: &Criteria) -> String {
    let missed: Vec<String> = criteria.missed(row).into_iter().map(|it| it.text).collect();
    format!("at {} it {}", row.offered.map_or_else(String::new, grouped), missed.join(", "))
}

/// Highest passing rate without the lifetime criterion, if it is above `rate`.
fn by_speed(run: &Measured, criteria: &Criteria, rate: Option<u64>) -> String {
    let by_speed = Criteria { min_years: 0.0, ..*criteria };
    let fast = by_speed.best(run).filter(|fast| fast.offered > rate);
    fast.map_or_else(String::new, |fast| {
        let rate = fast.offered.map_or_else(String::new, grouped);
        format!("; by speed alone up to {rate} ops/s ({})", lasts(fast))
    })
}

fn lasts(row: &Row) -> String {
    match row.years.figure() {
        Some((years, false)) => life_text(years),
        Some((years, true)) => format!("at most {}", life_text(years)),
        None => "years unknown".to_owned(),
    }
}

/// Reasons why the evaluation fails; empty is a pass.
#[must_use]
pub fn failures(found: &EvaluationResult, options: &EvaluationOptions) -> Vec<String> {
    let criteria = &options.criteria;
    let mut failures = Vec::new();
    for profile in &PROFILES {
        let runs: Vec<&Measured> = found.measured.iter().filter(|it| it.profile == profile.name).collect();
        let enough = |run: &&&Measured| criteria.best(run).is_some_and(|best| criteria.is_enough(best));
        let is_judged =
            runs.iter().any(|run| run.rows.len() > 1) && !found.unfinished.contains(&profile.name);
        if is_judged && !runs.iter().any(|run| enough(&run)) {
            let judged = runs.iter().filter(|run| run.rows.len() > 1);
            let judged: Vec<String> =
                judged.map(|run| format!("{}, {}", way(run), at_most(run, criteria))).collect();
            let claim = criteria.min_rate.map_or_else(
                || "passes at no rate".to_owned(),
                |least| format!("does not pass at {} ops/s", grouped(least)),
            );
            failures.push(format!("{} {claim}: {}", profile.name, judged.join("; ")));
        }
        for run in runs {
            failures.extend(run.failures.iter().map(|it| format!("{} {}: {it}", profile.name, way(run))));
        }
    }
    failures.extend(found.unmeasured.iter().cloned());
    failures
}

/// Highest passing rate, or the reason why the lowest rate fails.
fn at_most(run: &Measured, criteria: &Criteria) -> String {
    match criteria.best(run) {
        Some(best) => format!("up to {}", best.offered.map_or_else(String::new, grouped)),
        None => lowest(run).map_or_else(String::new, |row| why_not(row, criteria)),
    }
}

fn way(run: &Measured) -> &'static str {
    if run.placement { "with placement" } else { "without placement" }
}
