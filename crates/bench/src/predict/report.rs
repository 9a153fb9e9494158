//! A prediction as JSON and as a text table.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::candidate::{DRAM_HITS_OFF, HITS_OFF, SETS_LESS, WINDOWS, WRITES_MORE};
use super::configured::CONFIG_FORMAT;
use super::{Figure, Outcome, Plan, Point, ReadLatency, Reads};
use crate::evaluate::criteria::{time_text, years_text};
use crate::report::amount::trimmed;
use crate::report::numbers::{counted, drive_writes, grouped, was};
use crate::simulate::report::{bytes, trace, ttl_text};

/// The result as JSON.
#[must_use]
pub fn json(outcome: &Outcome, plan: &Plan) -> Value {
    let Outcome { totals, read, .. } = outcome;
    let mut trace = trace(totals, read);
    trace["seconds"] = json!(read.has_time.then_some(totals.span_seconds));
    let best = outcome.points.iter().enumerate().filter(|(_, point)| point.is_best);
    json!({
        "trace": trace,
        "drive": plan.card.name,
        "scale": format!("1/{}", outcome.scale),
        "warmup_accesses": outcome.warm_up_accesses,
        "requests_per_second": outcome.requests_per_second,
        "trace_requests_per_second": outcome.trace_requests_per_second,
        "points": outcome.points.iter().map(point).collect::<Vec<Value>>(),
        "pareto": best.map(|(number, _)| number).collect::<Vec<usize>>(),
        "warning": outcome.warning(plan),
        "assumptions": assumptions(plan),
    })
}

fn point(point: &Point) -> Value {
    let figure = |figure: Option<Figure>| figure.as_ref().map(Figure::json);
    let varying = |of: Option<Figure>, over_time: Option<(f64, f64)>| {
        let mut json = figure(of)?;
        json["over_time"] =
            json!(over_time.map(|(lowest, highest)| json!({ "low": lowest, "high": highest })));
        Some(json)
    };
    let over_time = &point.over_time;
    let layout = &point.inputs.layout;
    json!({
        "dram_bytes": layout.dram_bytes,
        "utilization": layout.utilization,
        "flash_bytes": layout.flash_bytes,
        "soc_share": layout.small_share,
        "small": layout.small.name(),
        "small_dram_bytes": layout.small_dram_bytes(),
        "admission": layout.admission,
        "placement": point.inputs.placement,
        "hit_ratio": varying(point.hit_ratio, over_time.hit_ratio),
        "hit_ratio_dram": varying(point.hit_ratio_dram, over_time.hit_ratio_dram),
        "alwa": varying(point.alwa, over_time.alwa),
        "dlwa": figure(point.dlwa),
        "nand_mb_per_second": figure(point.nand_mb_per_second),
        "life_years": figure(point.life_years),
        "kgco2e": figure(point.kgco2e),
        "price": figure(point.price),
        "latency_ns": match point.reads {
            Reads::Take(ReadLatency { mean_ns, p01_ns, p99_ns }) => {
                json!({ "value": mean_ns, "low": p01_ns, "high": p99_ns })
            }
            Reads::Unknown | Reads::TooMany => Value::Null,
        },
        "is_overloaded": point.reads == Reads::TooMany,
        "is_filled": point.is_filled,
        "too_large": point.too_large,
    })
}

fn assumptions(plan: &Plan) -> Vec<String> {
    let prices = &plan.prices;
    let (rated, cost, space) = (&plan.card.endurance, &plan.card.cost, &plan.card.space);
    vec![
        match plan.settings.fills_misses {
            true => "a missed object is fetched and stored; a set removes it from flash",
            false => "a missed object is not stored; a set removes it from flash",
        }
        .into(),
        "LRU in DRAM; a hit on flash brings the object back to DRAM".into(),
        format!(
            "objects of {} bytes and less are in sets of {} bytes, or in a log in hash order with an index in DRAM; larger ones in \
             regions evicted first in, first out",
            plan.settings.small_at_most, plan.settings.set_bytes
        ),
        match plan.ignore_ttl {
            true => "times to live are ignored: nothing expires",
            false => "times to live are those of the trace, in its own time",
        }
        .into(),
        format!(
            "low and high of hit_ratio, hit_ratio_dram and alwa: the interval of the error, by the largest deviations measured \
             between the engine and this simulation: {HITS_OFF}, {DRAM_HITS_OFF}, and {} % more and of sets {} % less",
            WRITES_MORE * 100.0,
            SETS_LESS * 100.0
        ),
        format!("over_time: lowest and highest of {WINDOWS} equal parts of the counted accesses"),
        "dlwa: of the model drive, with random writes of small objects and cyclic writes of large ones; low and high: over its \
         seeds, widened by the deviations measured at other scales and of the engine; low is 1 where flash was not full"
            .into(),
        "latency_ns: of a page read from flash at an even rate; low and high are the 1st and 99th percentiles".into(),
        format!(
            "{} for {} years at a write amplification of {}",
            drive_writes(rated.dwpd),
            rated.warranty_years,
            prices.rated_dlwa
        ),
        format!("in service for {} years; a drive that lasts longer is bought once", prices.system_years),
        format!(
            "1 GB is 1000000000 bytes; kgco2e: {} per GB of flash, of which the drive has {} GB, {} per GB of DRAM; price in \
             USD: {} per GB of usable capacity, {} GB, and {} per GB of DRAM",
            cost.kgco2e_per_gb,
            trimmed(space.raw_bytes as f64 / 1e9),
            prices.dram_kg_per_gb,
            cost.usd_per_gb,
            trimmed(space.usable_bytes as f64 / 1e9),
            prices.dram_usd_per_gb
        ),
    ]
}

/// A column of the table.
struct Column {
    head: &'static str,
    width: usize,
    cell: fn(&Point) -> String,
    /// Whether the column is omitted if the request rate is unknown.
    needs_rate: bool,
}

const fn column(head: &'static str, width: usize, cell: fn(&Point) -> String) -> Column {
    Column { head, width, cell, needs_rate: false }
}

const fn with_rate(head: &'static str, width: usize, cell: fn(&Point) -> String) -> Column {
    Column { head, width, cell, needs_rate: true }
}

const COLUMNS: [Column; 18] = [
    column("", 1, |point| if point.is_best { "*" } else { "" }.to_owned()),
    column("DRAM", 9, |point| bytes(point.inputs.layout.dram_bytes)),
    column("flash", 9, |point| bytes(point.inputs.layout.flash_bytes)),
    column("of drive", 8, |point| percent(point.inputs.layout.utilization)),
    column("SOC", 5, |point| percent(point.inputs.layout.small_share)),
    column("small", 5, |point| point.inputs.layout.small.name().to_owned()),
    column("index", 9, |point| bytes(point.inputs.layout.small_dram_bytes())),
    column("admit", 6, |point| percent(point.inputs.layout.admission)),
    column("placed", 6, |point| if point.inputs.placement { "on" } else { "off" }.to_owned()),
    column("hits %", 18, |point| {
        let hits = point.hit_ratio.map(|it| it.map(|hits| hits * 100.0));
        format!("{}{}", not_filled(point), shown(hits, |it| format!("{it:.1}")))
    }),
    column("over time", 11, |point| {
        point.over_time.hit_ratio.map_or_else(
            || "-".to_owned(),
            |(lowest, highest)| format!("{:.1}-{:.1}", lowest * 100.0, highest * 100.0),
        )
    }),
    column("ALWA", 17, |point| shown(point.alwa, |it| format!("{it:.2}"))),
    column("DLWA", 17, |point| {
        format!("{}{}", not_filled(point), shown(point.dlwa, |it| format!("{it:.2}")))
    }),
    with_rate("NAND MB/s", 21, |point| shown(point.nand_mb_per_second, |it| format!("{it:.1}"))),
    with_rate("years", 19, |point| shown(point.life_years, years_text)),
    with_rate("kgCO2e", 19, |point| shown(point.kgco2e, |it| format!("{it:.0}"))),
    with_rate("USD", 19, |point| shown(point.price, |it| format!("{it:.0}"))),
    with_rate("read", 16, reads),
];
const LEGEND: &str = "
of drive: share that the cache uses; SOC: share of flash for small objects
small: their engine; index: DRAM for it besides the cache's: filters of sets, or index and open regions of a log; admit: probability of admission to flash
placed: whether with placement handles; hits: of gets; ALWA, DLWA: write amplification of cache and drive
in brackets: the interval of the error, where the engine's figure is expected for this trace
over time: hits % of the worst and of the best tenth of what was counted; it says how much the trace changes, not how far off the hits are
";
const LEGEND_OF_RATE: &str = "NAND: media writes; read: latency of a page from flash, mean and p99
*  no other row has as many hits for as little carbon and money
";

/// The result as a text table.
#[must_use]
pub fn text(outcome: &Outcome, plan: &Plan) -> String {
    let totals = &outcome.totals;
    let mut out = format!(
        "{} to {} of {} in all; the first {} warmed up and {} not counted\n",
        counted(totals.accesses, "access"),
        counted(totals.objects, "object"),
        bytes(totals.footprint_bytes),
        grouped(outcome.warm_up_accesses),
        was(outcome.warm_up_accesses),
    );
    let rate = match outcome.requests_per_second {
        Some(rate) => format!("{} requests/s", grouped(rate.round() as u64)),
        None => no_rate_text(outcome),
    };
    let _ = writeln!(
        out,
        "{}, {}: {}; {rate}",
        plan.card.name,
        bytes(plan.card.space.usable_bytes),
        scale_text(outcome),
    );
    if totals.ttl_requests > 0 {
        let _ = writeln!(out, "{}", ttl_text(totals, &outcome.read, plan.ignore_ttl));
    }
    out.push('\n');
    let has_rate = outcome.requests_per_second.is_some();
    let columns = || COLUMNS.iter().filter(|column| has_rate || !column.needs_rate);
    row(&mut out, columns().map(|column| (column.head.to_owned(), column.width)));
    for point in &outcome.points {
        row(&mut out, columns().map(|column| ((column.cell)(point), column.width)));
    }
    out += LEGEND;
    if has_rate {
        out += LEGEND_OF_RATE;
    }
    if outcome.points.iter().any(|point| !point.is_filled) {
        out += "~  flash was not full when counting began, so hits and DLWA of a longer trace differ, and the drive may relocate less than \
             predicted: use a longer trace, or a greater N in --scale 1/N\n";
    }
    if outcome.points.iter().any(|point| point.reads == Reads::TooMany) {
        out += "!  more than the drive can serve\n";
    }
    out
}

/// The meaning of the scale: it divides the load of a trace, or the sizes of a config.
fn scale_text(outcome: &Outcome) -> String {
    match (outcome.read.format == CONFIG_FORMAT, outcome.scale) {
        (false, scale) => format!("the trace is 1/{scale} of its load"),
        (true, 1) => "the config is simulated at full size".to_owned(),
        (true, scale) => format!("the config is simulated at 1/{scale} of its sizes"),
    }
}

/// Why figures that depend on time are missing.
fn no_rate_text(outcome: &Outcome) -> String {
    const MISSING: &str = "give --rate, the requests/s of the whole drive's cache, for media writes, years, carbon, cost and latency";
    match outcome.trace_requests_per_second {
        Some(own) => format!("the trace itself has {own:.1} requests/s: {MISSING}"),
        None if outcome.read.format == CONFIG_FORMAT => {
            format!("it limits no rate (test_config.opRatePerSec): {MISSING}")
        }
        None => format!("it has no timestamps, so rates are unknown: {MISSING}"),
    }
}

fn row(out: &mut String, cells: impl Iterator<Item = (String, usize)>) {
    let mut line = String::new();
    for (cell, width) in cells {
        let _ = write!(line, "{cell:>width$} ");
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

fn not_filled(point: &Point) -> &'static str {
    if point.is_filled { "" } else { "~" }
}

fn reads(point: &Point) -> String {
    let latency = |ns: u64| time_text(Duration::from_nanos(ns));
    match point.reads {
        Reads::Take(ReadLatency { mean_ns, p99_ns, .. }) => {
            format!("{}, p99 {}", latency(mean_ns), latency(p99_ns))
        }
        Reads::TooMany => "!".to_owned(),
        Reads::Unknown => "-".to_owned(),
    }
}

fn percent(share: f64) -> String {
    format!("{}%", trimmed(share * 100.0))
}

/// The value, followed by the interval of its error in brackets unless both bounds have the same digits.
fn shown(figure: Option<Figure>, text: impl Fn(f64) -> String) -> String {
    let Some(Figure { value, low, high }) = figure else { return "-".to_owned() };
    let (value, low, high) = (text(value), text(low), text(high));
    if value == low && value == high { value } else { format!("{value} ({low}-{high})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a regression: only the interval is printed.
    #[test]
    fn figure_is_shown_with_its_value_first() {
        let figure = Figure { value: 85.04, low: 82.5, high: 87.5 };
        let tenths = |it: f64| format!("{it:.1}");
        assert_eq!(shown(Some(figure), tenths), "85.0 (82.5-87.5)");
        assert_eq!(shown(Some(Figure::exact(1.0)), tenths), "1.0");
        assert_eq!(shown(None, tenths), "-");
    }

    /// Catches a regression: 1 % and 1.4 % look equal, and 0.4 % is shown as 0 %.
    #[test]
    fn different_shares_are_shown_differently() {
        let shares = [0.004, 0.01, 0.014, 0.125, 0.29, 0.999, 1.0].map(percent);
        assert_eq!(shares, ["0.4%", "1%", "1.4%", "12.5%", "29%", "99.9%", "100%"]);
    }
}
