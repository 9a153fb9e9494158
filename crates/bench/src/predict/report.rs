//! What was foretold as JSON and as a table for people.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::candidate::{DRAM_HITS_OFF, HITS_OFF, SETS_LESS, WRITES_MORE};
use super::{Figure, Outcome, Plan, Point, ReadLatency, Reads, SET_BYTES, SMALL_AT_MOST};
use crate::evaluate::criteria::{time_words, years_words};
use crate::report::amount::trimmed;
use crate::report::text::{counted, drive_writes, grouped, was};
use crate::simulate::report::{bytes, trace, ttl_words};

/// The result's keys in JSON.
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
        "points": outcome.points.iter().map(point).collect::<Vec<Value>>(),
        "pareto": best.map(|(number, _)| number).collect::<Vec<usize>>(),
        "warning": outcome.warning(plan),
        "assumptions": assumptions(plan),
    })
}

fn point(point: &Point) -> Value {
    let figure = |figure: Option<Figure>| figure.as_ref().map(Figure::json);
    let layout = &point.inputs.layout;
    json!({
        "dram_bytes": layout.dram_bytes,
        "utilization": layout.utilization,
        "flash_bytes": layout.flash_bytes,
        "soc_share": layout.small_share,
        "admission": layout.admission,
        "placement": point.inputs.placement,
        "hit_ratio": figure(point.hit_ratio),
        "hit_ratio_dram": figure(point.hit_ratio_dram),
        "alwa": figure(point.alwa),
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
        "a missed object is fetched and stored; a set removes it from flash".into(),
        "LRU in DRAM; a hit on flash brings the object back to DRAM".into(),
        format!(
            "objects of {SMALL_AT_MOST} bytes and less are in sets of {SET_BYTES} bytes, larger ones in regions evicted \
             first in, first out"
        ),
        match plan.ignore_ttl {
            true => "times to live are ignored: nothing expires",
            false => "times to live are those of the trace, in its own time",
        }
        .into(),
        format!(
            "low and high of hit_ratio, hit_ratio_dram and alwa: the range in 19 of 20 stretches like this one, by batch \
             means, widened by the measured deviations of the engine: {HITS_OFF}, {DRAM_HITS_OFF}, {} % more and of sets {} % less",
            WRITES_MORE * 100.0,
            SETS_LESS * 100.0
        ),
        "dlwa: of the model drive, with random writes of small objects and cyclic writes of large ones; low and high: over its \
         seeds, widened by the deviations measured at other scales and of the engine"
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

const COLUMNS: [&str; 15] = [
    "",
    "DRAM",
    "flash",
    "of drive",
    "SOC",
    "admit",
    "placed",
    "hits",
    "ALWA",
    "DLWA",
    "NAND MB/s",
    "years",
    "kgCO2e",
    "USD",
    "read",
];
const WIDTHS: [usize; 15] = [1, 9, 9, 8, 5, 6, 6, 14, 12, 12, 15, 12, 13, 13, 16];
const LEGEND: &str = "
of drive: share that the cache uses; SOC: share of flash for small objects; admit: probability of admission to flash
placed: whether with placement handles; hits: % of gets; ALWA, DLWA: write amplification of cache and drive
NAND: media writes; read: latency of a page from flash, mean and p99; ranges are low to high
*  no other row has as many hits for as little carbon and money
";

/// A table for people.
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
    let _ = match outcome.requests_per_second {
        Some(rate) => writeln!(
            out,
            "{}, {}: the trace is 1/{} of its load, {} requests/s",
            plan.card.name,
            bytes(plan.card.space.usable_bytes),
            outcome.scale,
            grouped(rate.round() as u64),
        ),
        None => writeln!(
            out,
            "{}, {}: the trace is 1/{} of its load; it has no timestamps, so rates are unknown (give --rate)",
            plan.card.name,
            bytes(plan.card.space.usable_bytes),
            outcome.scale,
        ),
    };
    if totals.ttl_requests > 0 {
        let _ = writeln!(out, "{}", ttl_words(totals, &outcome.read, plan.ignore_ttl));
    }
    out.push('\n');
    row(&mut out, &COLUMNS.map(str::to_owned));
    outcome.points.iter().for_each(|point| row(&mut out, &cells(point)));
    out += LEGEND;
    if outcome.points.iter().any(|point| !point.is_filled) {
        out +=
            "~  flash was not full when counting began: use a longer trace, or a greater N in --scale 1/N\n";
    }
    if outcome.points.iter().any(|point| point.reads == Reads::TooMany) {
        out += "!  more than the drive can serve\n";
    }
    out
}

fn row(out: &mut String, cells: &[String; 15]) {
    let mut line = String::new();
    for (cell, width) in cells.iter().zip(WIDTHS) {
        let _ = write!(line, "{cell:>width$} ");
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

fn cells(point: &Point) -> [String; 15] {
    let layout = &point.inputs.layout;
    let hits = point.hit_ratio.map(|it| it.map(|hits| hits * 100.0));
    let filling = if point.is_filled { "" } else { "~" };
    let latency = |ns: u64| time_words(Duration::from_nanos(ns));
    [
        if point.is_best { "*" } else { "" }.to_owned(),
        bytes(layout.dram_bytes),
        bytes(layout.flash_bytes),
        percent(layout.utilization),
        percent(layout.small_share),
        percent(layout.admission),
        if point.inputs.placement { "on" } else { "off" }.to_owned(),
        format!("{filling}{}", range(hits, |it| format!("{it:.1}"))),
        range(point.alwa, |it| format!("{it:.2}")),
        range(point.dlwa, |it| format!("{it:.2}")),
        range(point.nand_mb_per_second, |it| format!("{it:.1}")),
        range(point.life_years, years_words),
        range(point.kgco2e, |it| format!("{it:.0}")),
        range(point.price, |it| format!("{it:.0}")),
        match point.reads {
            Reads::Take(ReadLatency { mean_ns, p99_ns, .. }) => {
                format!("{}, p99 {}", latency(mean_ns), latency(p99_ns))
            }
            Reads::TooMany => "!".to_owned(),
            Reads::Unknown => "-".to_owned(),
        },
    ]
}

fn percent(share: f64) -> String {
    format!("{}%", trimmed(share * 100.0))
}

/// Low to high, or once what is the same in as many digits.
fn range(figure: Option<Figure>, words: impl Fn(f64) -> String) -> String {
    let Some(Figure { low, high, .. }) = figure else { return "-".to_owned() };
    let (low, high) = (words(low), words(high));
    if low == high { low } else { format!("{low}-{high}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of 1 % and 1.4 % looked alike, and 0.4 % was 0 %.
    #[test]
    fn shares_that_differ_look_different() {
        let shares = [0.004, 0.01, 0.014, 0.125, 0.29, 0.999, 1.0].map(percent);
        assert_eq!(shares, ["0.4%", "1%", "1.4%", "12.5%", "29%", "99.9%", "100%"]);
    }
}
