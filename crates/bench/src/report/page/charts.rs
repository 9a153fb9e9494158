//! The charts of a page: figures over time, and latencies by percentile.

use plotters::style::{RGBColor, WHITE};

use super::Named;
use crate::palette::{GRID, INK, LineStyle, PALE};
use crate::report::amount::{cut, on_one_line};
use crate::report::finished::{Interval, LARGEST, PERCENTILES};
use crate::report::html::Html;
use crate::report::plot::{Curve, TimeChart, look_of, panel_of_latencies, panel_over_time};

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Limit of the characters of a name in a legend.
const LEGEND_CHARS: usize = 40;

/// CSS that replaces the palette's colours by those of the page, so that charts are dark on a dark page.
pub(super) fn style() -> String {
    let hex = |RGBColor(red, green, blue): RGBColor| format!("#{red:02X}{green:02X}{blue:02X}");
    let rule = |attribute: &str, colour, name| {
        format!("svg [{attribute}=\"{}\"] {{ {attribute}: var(--{name}) }}\n", hex(colour))
    };
    let both = |colour, name| rule("fill", colour, name) + &rule("stroke", colour, name);
    both(WHITE, "paper") + &both(INK, "ink") + &both(PALE, "pale") + &both(GRID, "grid")
}

/// A curve over time: its numerator and denominator in an interval.
type Ratio = fn(&Interval) -> Option<(f64, f64)>;

const HITS: Ratio = |it| Some((it.gets? - it.get_misses?, it.gets?));
const HITS_DRAM: Ratio = |it| Some((it.get_hits_dram?, it.gets?));
const OPS: Ratio = |it| Some((it.ops?, it.seconds));
const ALWA: Ratio = |it| Some((it.flash_bytes_settled_host?, it.flash_bytes_settled?));
const DLWA: Ratio = |it| Some((it.flash_bytes_media?, it.flash_bytes_host?));
/// If several intervals are drawn as one point, it is the mean of their percentiles.
const GET_P99: Ratio = |it| Some((it.get_p99_ns?, 1.0));
const DEVICE_READ_P99: Ratio = |it| Some((it.device_read_p99_ns?, 1.0));
/// Write amplification of short intervals jumps with every region that is written, and drives count media writes in coarse steps.
/// It is therefore drawn over at most this many parts of the run, with equal bytes written in each.
const WIDE_PARTS: usize = 60;

/// Throughput, hit ratio and write amplification over time.
pub(super) fn over_time(body: &mut Html, runs: &[Named<'_>]) -> Drawn {
    if runs.iter().all(|it| it.run.intervals.is_empty()) {
        return Ok(());
    }
    body.element("h2", "Over time");
    let single = runs.len() == 1;
    let all = |ratio: Ratio, scale: f64, parts: usize| -> Vec<Curve> {
        let of = |(number, it): (usize, &Named<'_>)| {
            curve(&it.run.intervals, (&legend(&it.name), number), ratio, scale, parts)
        };
        runs.iter().enumerate().map(of).collect()
    };
    draw(body, TimeChart::Throughput, &all(OPS, 1.0, usize::MAX))?;
    let mut hits = all(HITS, 100.0, usize::MAX);
    if let ([one], [curve_of_all]) = (runs, hits.as_mut_slice()) {
        "DRAM and flash".clone_into(&mut curve_of_all.name);
        hits.push(curve(&one.run.intervals, ("DRAM alone", 1), HITS_DRAM, 100.0, usize::MAX));
    }
    draw(body, TimeChart::HitRatio, &hits)?;
    draw(body, TimeChart::SlowGets, &all(GET_P99, 1.0, usize::MAX))?;
    draw(body, TimeChart::SlowDeviceReads, &all(DEVICE_READ_P99, 1.0, usize::MAX))?;
    if single {
        let of = |named, ratio| curve(&runs[0].run.intervals, named, ratio, 1.0, WIDE_PARTS);
        let both = [of(("of the cache", 0), ALWA), of(("of the drive", 1), DLWA)];
        return draw(body, TimeChart::Amplification, &both);
    }
    draw(body, TimeChart::AmplificationOfCache, &all(ALWA, 1.0, WIDE_PARTS))?;
    draw(body, TimeChart::Amplification, &all(DLWA, 1.0, WIDE_PARTS))
}

/// The curve of `ratio` over at most `parts` parts of the run with equal denominators. Parts with unknown values are omitted.
fn curve(
    intervals: &[Interval],
    (name, number): (&str, usize),
    ratio: Ratio,
    scale: f64,
    parts: usize,
) -> Curve {
    let points = in_parts(intervals, ratio, parts).into_iter().filter_map(|part| {
        let sums = part.iter().map(ratio).collect::<Option<Vec<_>>>()?;
        let (numerator, denominator) = sums.iter().fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        let value = numerator / denominator * scale;
        // A hit ratio above 1 is an error in the file, and is not drawn.
        let max = if scale > 1.0 { scale } else { LARGEST };
        (denominator > 0.0 && (0.0..=max).contains(&value)).then_some((part.last()?.until_seconds, value))
    });
    Curve { name: name.to_owned(), look: LineStyle::of(number), points: points.collect() }
}

/// Divides the intervals into at most `parts` groups with about equal sums of the denominator.
fn in_parts(intervals: &[Interval], ratio: Ratio, parts: usize) -> Vec<&[Interval]> {
    if intervals.len() <= parts && parts == usize::MAX {
        return intervals.chunks(1).collect();
    }
    let denominator = |it: &Interval| ratio(it).map_or(0.0, |(_, denominator)| denominator);
    let share = intervals.iter().map(denominator).sum::<f64>() / parts as f64;
    let (mut all, mut start, mut sum) = (Vec::new(), 0, 0.0);
    for (number, interval) in intervals.iter().enumerate() {
        sum += denominator(interval);
        if sum >= share && sum > 0.0 {
            all.push(&intervals[start..=number]);
            (start, sum) = (number + 1, 0.0);
        }
    }
    all
}

fn draw(body: &mut Html, what: TimeChart, curves: &[Curve]) -> Drawn {
    if curves.iter().any(|curve| curve.points.iter().any(|(_, value)| *value > 0.0)) {
        body.drawing(&panel_over_time(what, curves)?);
    }
    Ok(())
}

/// One chart of all operations for a single run; for several runs, one chart per operation with a curve per run.
pub(super) fn latencies(body: &mut Html, runs: &[Named<'_>]) -> Drawn {
    let timed: Vec<(String, Vec<Curve>)> = operations(runs)
        .into_iter()
        .map(|(layer, operation)| {
            // A run without this operation is omitted; the others keep their colours.
            let curves = runs.iter().enumerate().map(|(number, it)| Curve {
                name: legend(&it.name),
                look: LineStyle::of(number),
                points: nines(it, &layer, &operation),
            });
            (text(&layer, &operation), curves.filter(|curve| curve.points.len() > 1).collect::<Vec<_>>())
        })
        .filter(|(_, curves)| !curves.is_empty())
        .collect();
    if timed.is_empty() {
        return Ok(());
    }
    body.element("h2", "Latency");
    if runs.len() > 1 {
        for (operation, curves) in &timed {
            body.drawing(&panel_of_latencies(&format!("{operation}, share below"), curves)?);
        }
        return Ok(());
    }
    let named = timed.into_iter().flat_map(|(name, curves)| {
        curves.into_iter().map(move |it| Curve { look: look_of(&name), name: name.clone(), ..it })
    });
    let title = "Share of operations below";
    body.drawing(&panel_of_latencies(title, &named.collect::<Vec<_>>())?);
    Ok(())
}

/// Layers and operations that any run timed, in the order of the result file.
pub(super) fn operations(runs: &[Named<'_>]) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for layer in ["cache", "device"] {
        for it in runs {
            let timed = it.run.part(&["totals", "latency_ns", layer]).as_object();
            for (operation, _) in timed.into_iter().flatten() {
                let name = (layer.to_owned(), operation.clone());
                if !found.contains(&name) {
                    found.push(name);
                }
            }
        }
    }
    found
}

/// Formats `get_dram` of the layer `cache` as `get dram`, and `read` of the layer `device` as `device read`.
pub(super) fn text(layer: &str, operation: &str) -> String {
    let operation = on_one_line(&operation.replace('_', " "));
    if layer == "device" { format!("device {operation}") } else { operation }
}

/// Points of a number of nines and a latency in nanoseconds, for the percentiles that the number of operations permits.
fn nines(named: &Named<'_>, layer: &str, operation: &str) -> Vec<(f64, f64)> {
    let latency = named.run.part(&["totals", "latency_ns", layer, operation]);
    let Some(count) = latency["count"].as_f64().filter(|count| (2.0..=LARGEST).contains(count)) else {
        return Vec::new();
    };
    let share = |name: &str| match name {
        "p50" => Some(2_f64.log10()),
        "max" => Some(count.log10()),
        name => name.strip_prefix("p9").map(|more| more.replace('0', "").len() as f64 + 1.0),
    };
    let points =
        PERCENTILES.iter().filter_map(|name| Some((share(name)?, latency[*name].as_f64()?.max(1.0))));
    let mut points: Vec<(f64, f64)> =
        points.filter(|(nines, ns)| *nines <= count.log10() && *ns <= LARGEST).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

fn legend(name: &str) -> String {
    cut(&on_one_line(name), LEGEND_CHARS)
}
