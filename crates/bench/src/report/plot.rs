//! Draws a run as an SVG: throughput, hit ratio and slow requests over time, and latencies by percentile.

use std::fmt::Write as _;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::RunReport;
use super::amount::{duration, trimmed, with_prefix};
use super::html::escape;
use super::numbers::grouped;
use super::page::years_text;
use super::series::Span;
use super::tails::Layer;
use crate::chart::{self, Key, with_legend};
use crate::palette::{FONT, GRID, INK, LineStyle, PALE};
use crate::run::InstanceReport;
use crate::run::latency::{Histogram, Timed};

const SIZE: (u32, u32) = (960, 1130);
/// Points of a latency curve per nine of its percentile.
const POINTS_PER_NINE: u32 = 20;

/// Limit of the tooltips on a curve.
const MAX_TOOLTIPS: usize = 120;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Returns the text of an SVG file. `name` is the title.
///
/// # Errors
/// An error of the drawing library. Drawing in memory should cause none.
pub fn render(report: &RunReport, name: &str) -> Result<String, Box<dyn std::error::Error>> {
    let all = report.totals();
    let mut tooltips = Vec::new();
    let svg = chart::svg(SIZE, |root| {
        let (head, body) = root.split_vertically(64);
        title(&head, name, &all)?;
        let (over_time, below) = body.split_vertically(230);
        let (ratios, below) = below.split_vertically(230);
        let (slow, latencies) = below.split_vertically(230);
        let spans: Vec<Span> = report.series.spans().collect();
        tooltips.extend(TimeChart::Throughput.draw(&over_time, &[throughput(&spans)])?);
        let hits = hit_ratio(&spans, all.snapshot.stats.flash.is_some());
        tooltips.extend(TimeChart::HitRatio.draw(&ratios, &hits)?);
        tooltips.extend(TimeChart::SlowOperations.draw(&slow, &slow_curves(&spans))?);
        tooltips.extend(percentiles(&latencies, "Latency, share of operations below", &curves(&all))?);
        Ok(())
    })?;
    Ok(with_tooltips(svg, &tooltips))
}

fn title(area: &Area<'_>, name: &str, all: &InstanceReport) -> Drawn {
    let per_second = all.counts.ops as f64 / all.seconds.max(1e-9);
    let hits =
        all.counts.hit_ratio().map_or(String::new(), |ratio| format!(", hit ratio {:.2} %", ratio * 100.0));
    let text = format!(
        "{} operations in {:.1} s, {} per second, {} threads{hits}",
        grouped(all.counts.ops),
        all.seconds,
        grouped(per_second as u64),
        all.settings.threads
    );
    area.draw(&Text::new(name.to_owned(), (24, 16), (FONT, 20).into_font().color(&INK)))?;
    area.draw(&Text::new(text, (24, 42), (FONT, 13).into_font().color(&PALE)))?;
    Ok(())
}

/// A line of a chart.
#[derive(Debug, Clone)]
pub(super) struct Curve {
    pub(super) name: String,
    /// A run has the same colour in all charts.
    pub(super) look: LineStyle,
    pub(super) points: Vec<(f64, f64)>,
}

/// A tooltip at a point of a curve.
struct Tooltip {
    x: i32,
    y: i32,
    text: String,
}

/// Tooltips for the points of a curve; a long curve gets some of them, evenly spaced.
fn tooltips<X, Y>(
    chart: &ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    curve: &Curve,
    x_text: fn(f64) -> String,
    y_text: &dyn Fn(f64) -> String,
) -> Vec<Tooltip>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    let step = curve.points.len().div_ceil(MAX_TOOLTIPS).max(1);
    let name = if curve.name.is_empty() { String::new() } else { format!("{}, ", curve.name) };
    let tooltip = |point: &(f64, f64)| {
        let (x, y) = chart.backend_coord(point);
        Tooltip { x, y, text: format!("{name}{}: {}", x_text(point.0), y_text(point.1)) }
    };
    curve.points.iter().step_by(step).map(tooltip).collect()
}

/// Adds an SVG title at each point, which browsers show as a tooltip.
fn with_tooltips(mut svg: String, tooltips: &[Tooltip]) -> String {
    const HALF: i32 = 5;
    let mut titles = String::new();
    for Tooltip { x, y, text } in tooltips {
        let (left, top, side) = (x - HALF, y - HALF, 2 * HALF);
        let _ = writeln!(
            titles,
            "<rect x=\"{left}\" y=\"{top}\" width=\"{side}\" height=\"{side}\" fill=\"none\" pointer-events=\"all\">\
             <title>{}</title></rect>",
            escape(text)
        );
    }
    let end = svg.rfind("</svg>").unwrap_or(svg.len());
    svg.insert_str(end, &titles);
    svg
}

/// A chart over the seconds of a run.
#[derive(Debug, Clone, Copy)]
pub(super) enum TimeChart {
    Throughput,
    /// Hit ratio in percent.
    HitRatio,
    /// Write amplification of the drive, or of both drive and cache.
    Amplification,
    AmplificationOfCache,
    /// 99th percentile of the latency in nanoseconds: of gets, of reads of the device, or of each kind of operation.
    SlowGets,
    SlowDeviceReads,
    SlowOperations,
}

impl TimeChart {
    fn title(self) -> &'static str {
        match self {
            Self::Throughput => "Throughput, operations per second",
            Self::HitRatio => "Hit ratio",
            Self::Amplification => "Write amplification",
            Self::AmplificationOfCache => "Write amplification of the cache",
            Self::SlowGets => "Gets, p99 of each interval",
            Self::SlowDeviceReads => "Reads of the device, p99 of each interval",
            Self::SlowOperations => "Latency, p99 of each interval",
        }
    }

    fn draw(self, area: &Area<'_>, curves: &[Curve]) -> Drawn<Vec<Tooltip>> {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let end = points().map(|(at, _)| *at).fold(1e-3, f64::max);
        let text: fn(&f64) -> String = |seconds| format!("{} s", trimmed(*seconds));
        let tooltip: fn(f64) -> String = |seconds| format!("at {} s", trimmed(seconds));
        let axis = XAxis { title: self.title(), start: 0.0, end, labels: 10, text, tooltip };
        let max = points().map(|(_, value)| *value).fold(1.0, f64::max);
        type Text = fn(f64) -> String;
        let (top, label, text): (f64, Text, Text) = match self {
            Self::Throughput => {
                (max * 1.08, with_prefix, |rate| format!("{} ops/s", grouped(rate.round() as u64)))
            }
            Self::HitRatio => {
                (100.0, |percent| format!("{percent:.0} %"), |percent| format!("{percent:.2} %"))
            }
            Self::Amplification | Self::AmplificationOfCache => {
                (max * 1.15, trimmed, |factor| format!("{factor:.3}"))
            }
            Self::SlowGets | Self::SlowDeviceReads | Self::SlowOperations => {
                return latencies(area, &axis, 5, curves);
            }
        };
        let area = &above_legend(area, curves, 2)?;
        let mut chart = axes(area, &axis, 0.0..top, (5, &|value| label(*value)))?;
        let mut all = Vec::new();
        for curve in curves {
            let area = AreaSeries::new(curve.points.iter().copied(), 0.0, curve.look.colour.mix(0.08));
            chart.draw_series(area)?;
            draw(&mut chart, curve)?;
            all.extend(tooltips(&chart, curve, tooltip, &text));
        }
        Ok(all)
    }
}

/// Draws a chart over time in an SVG of its own.
pub(super) fn panel_over_time(what: TimeChart, curves: &[Curve]) -> Drawn<String> {
    panel(|area| what.draw(area, curves))
}

/// Unit of the values in a chart over the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Nanoseconds,
    Years,
}

impl Scale {
    fn text(self, value: f64) -> String {
        match self {
            Self::Nanoseconds => duration(value),
            Self::Years => years_text(value),
        }
    }
}

/// A horizontal line at the limit that values must meet.
pub(super) struct Limit {
    pub(super) value: f64,
    pub(super) text: String,
}

/// Draws values over operations per second, both on logarithmic axes.
pub(super) fn panel_over_rate(
    title: &str,
    scale: Scale,
    curves: &[Curve],
    limit: Option<&Limit>,
) -> Drawn<String> {
    let logarithmic = |curve: &Curve| Curve {
        points: curve.points.iter().map(|(rate, value)| (rate.max(1.0).log10(), *value)).collect(),
        ..curve.clone()
    };
    let curves: Vec<Curve> = curves.iter().map(logarithmic).collect();
    panel(|area| {
        let area = &above_legend(area, &curves, 2)?;
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let (start, end) = points()
            .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), it| (low.min(it.0), high.max(it.0)));
        let (start, end) = ((start - 0.05).max(0.0), end + 0.05);
        let values = || points().map(|(_, value)| *value).chain(limit.iter().map(|limit| limit.value));
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        let text: fn(&f64) -> String = |log10| format!("{}/s", with_prefix(10_f64.powf(*log10).round()));
        let tooltip: fn(f64) -> String =
            |log10| format!("{} ops/s", grouped(10_f64.powf(log10).round() as u64));
        let axis = XAxis { title, start, end, labels: 8, text, tooltip };
        let range = (low * 0.7..high * 1.5).log_scale();
        let mut chart = axes(area, &axis, range, (6, &|value| scale.text(*value)))?;
        if let Some(Limit { value, text }) = limit {
            chart.draw_series([PathElement::new([(start, *value), (end, *value)], PALE.stroke_width(1))])?;
            let style = (FONT, 12).into_font().color(&PALE);
            chart.draw_series([Text::new(text.clone(), (start + 0.01, value * 1.2), style)])?;
        }
        let mut all = Vec::new();
        for curve in &curves {
            draw(&mut chart, curve)?;
            let dots = curve.points.iter().map(|at| Circle::new(*at, 3, curve.look.colour.filled()));
            chart.draw_series(dots)?;
            all.extend(tooltips(&chart, curve, tooltip, &|value| scale.text(value)));
        }
        Ok(all)
    })
}

/// Draws latencies by percentile.
pub(super) fn panel_of_latencies(title: &str, curves: &[Curve]) -> Drawn<String> {
    panel(|area| percentiles(area, title, curves))
}

fn panel(draw: impl FnOnce(&Area<'_>) -> Drawn<Vec<Tooltip>>) -> Drawn<String> {
    const PANEL: (u32, u32) = (960, 280);
    let mut tooltips = Vec::new();
    let svg = chart::svg(PANEL, |root| {
        tooltips = draw(root)?;
        Ok(())
    })?;
    Ok(with_tooltips(svg, &tooltips))
}

fn throughput(spans: &[Span]) -> Curve {
    let points = spans.iter().map(|span| (span.until_seconds, span.counts.ops as f64 / span.seconds));
    Curve { name: String::new(), look: LineStyle::of(0), points: points.collect() }
}

fn hit_ratio(spans: &[Span], has_flash: bool) -> Vec<Curve> {
    let of = |name: &str, number, hits: fn(&Span) -> u64| Curve {
        name: name.to_owned(),
        look: LineStyle::of(number),
        points: spans
            .iter()
            .filter(|span| span.counts.gets > 0)
            .map(|span| (span.until_seconds, hits(span) as f64 / span.counts.gets as f64 * 100.0))
            .collect(),
    };
    let mut curves = vec![of(if has_flash { "DRAM and flash" } else { "DRAM" }, 0, |span| {
        span.counts.gets.saturating_sub(span.counts.get_misses)
    })];
    if has_flash {
        curves.push(of("DRAM alone", 1, |span| span.counts.get_hits_dram));
    }
    curves
}

/// The title of a chart, and its horizontal axis.
struct XAxis<'a> {
    title: &'a str,
    start: f64,
    end: f64,
    labels: usize,
    text: fn(&f64) -> String,
    /// Text of a value in a tooltip.
    tooltip: fn(f64) -> String,
}

type Chart<'a, 'b, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, Y>>;

/// Draws the axes of a chart. The vertical one has about `labels` labels, formatted by `text`.
fn axes<'a, 'b, Y>(
    area: &'a Area<'b>,
    axis: &XAxis<'_>,
    range: Y,
    (labels, text): (usize, &dyn Fn(&f64) -> String),
) -> Result<Chart<'a, 'b, Y::CoordDescType>, Box<dyn std::error::Error>>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_right(28)
        .caption(axis.title, (FONT, 14).into_font().color(&INK))
        .x_label_area_size(24)
        .y_label_area_size(64)
        .build_cartesian_2d(axis.start..axis.end, range)?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(PALE)
        .label_style((FONT, 12).into_font().color(&PALE))
        .x_labels(axis.labels)
        .x_label_formatter(&axis.text)
        .y_label_formatter(&text)
        .y_labels(labels)
        .draw()?;
    Ok(chart)
}

/// For each kind of operation that was timed, the 99th percentile of each interval.
fn slow_curves(spans: &[Span]) -> Vec<Curve> {
    let of = |layer: Layer| {
        let point = |span: &Span| Some((span.until_seconds, span.tails.quantile_ns(layer, 0.99)? as f64));
        let points: Vec<_> = spans.iter().filter_map(point).collect();
        let name = match layer {
            Layer::Get => "get",
            Layer::Set => "set",
            Layer::DeviceRead => "device read",
            Layer::DeviceWrite => "device write",
        };
        Curve { name: name.to_owned(), look: look_of(name), points }
    };
    Layer::ALL.map(of).into_iter().filter(|curve| !curve.points.is_empty()).collect()
}

/// The colour of a kind of operation, the same in all charts. Some charts divide gets by tier, and others do not.
pub(super) fn look_of(name: &str) -> LineStyle {
    const NAMES: [&str; 9] = [
        "get dram",
        "set",
        "device read",
        "device write",
        "get flash",
        "get miss",
        "delete",
        "add chained",
        "could exist",
    ];
    LineStyle::of(NAMES.iter().position(|it| *it == name).unwrap_or(0))
}

/// Draws latencies on a logarithmic axis.
fn latencies(area: &Area<'_>, axis: &XAxis<'_>, labels: usize, curves: &[Curve]) -> Drawn<Vec<Tooltip>> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let longest = points().map(|(_, ns)| *ns).fold(1e3, f64::max);
    let shortest = points().map(|(_, ns)| *ns).fold(longest, f64::min).max(1.0);
    let area = &above_legend(area, curves, 1)?;
    let range = (shortest * 0.8..longest * 1.5).log_scale();
    let mut chart = axes(area, axis, range, (labels, &|ns| duration(*ns)))?;
    curves.iter().try_for_each(|curve| draw(&mut chart, curve))?;
    Ok(curves.iter().flat_map(|curve| tooltips(&chart, curve, axis.tooltip, &duration)).collect())
}

/// The curves of all kinds of operations that were timed at least twice.
fn curves(all: &InstanceReport) -> Vec<Curve> {
    let cache = Timed::ALL.map(|timed| (timed.name().replace('_', " "), all.latencies.of(timed)));
    let device = all.snapshot.device_latency().cloned();
    let device = device
        .into_iter()
        .flat_map(|(reads, writes)| [("device read".to_owned(), reads), ("device write".to_owned(), writes)]);
    let timed = cache.into_iter().chain(device).filter(|(_, histogram)| histogram.count() > 1);
    let drawn =
        timed.map(|(name, histogram)| Curve { look: look_of(&name), points: curve(&histogram), name });
    drawn.collect()
}

/// Points of a number of nines and a latency in nanoseconds: at `n` nines, one in `10^n` operations takes longer.
fn curve(histogram: &Histogram) -> Vec<(f64, f64)> {
    let nines = (histogram.count() as f64).log10();
    let steps = (nines * f64::from(POINTS_PER_NINE)).floor() as u32;
    let at = (0..=steps).map(|step| f64::from(step) / f64::from(POINTS_PER_NINE)).chain([nines]);
    at.filter_map(|n| Some((n, histogram.quantile_ns(1.0 - 10_f64.powf(-n))?.max(1) as f64))).collect()
}

fn percentiles(area: &Area<'_>, title: &str, curves: &[Curve]) -> Drawn<Vec<Tooltip>> {
    let nines = curves.iter().flat_map(|curve| &curve.points).map(|(n, _)| *n).fold(1.0, f64::max);
    let text: fn(&f64) -> String = |nines| share(*nines);
    let labels = nines as usize + 1;
    let axis = XAxis { title, start: 0.0, end: nines * 1.02, labels, text, tooltip: share };
    latencies(area, &axis, 10, curves)
}

fn draw<'a, 'b: 'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>,
    curve: &Curve,
) -> Drawn
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    chart.draw_series([curve.look.line(curve.points.clone(), 2)])?;
    // A single interval gives no line.
    if let [point] = curve.points[..] {
        chart.draw_series([Circle::new(point, 4, curve.look.colour.filled())])?;
    }
    Ok(())
}

/// Reserves space below the chart for a legend, if there are at least `at_least` curves. Within the chart, it would cover them.
fn above_legend<'a>(
    area: &Area<'a>,
    curves: &[Curve],
    at_least: usize,
) -> Result<Area<'a>, Box<dyn std::error::Error>> {
    if curves.len() < at_least {
        return Ok(area.clone());
    }
    let key = |curve: &Curve| Key { name: curve.name.clone(), look: curve.look, width: 2, mark: None };
    Ok(with_legend(area, &curves.iter().map(key).collect::<Vec<_>>())?)
}

/// Formats a percentile given in nines: 3 as `99.9 %`.
fn share(nines: f64) -> String {
    let decimals = (nines - 2.0).max(0.0).round() as usize;
    format!("{:.decimals$} %", (1.0 - 10_f64.powf(-nines)) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_durations_are_short() {
        assert_eq!([0.0, 1.0, 3.0, 5.0].map(share), ["0 %", "90 %", "99.9 %", "99.999 %"]);
        assert_eq!([80.0, 1e3, 1.5e6, 2e9].map(duration), ["80 ns", "1 µs", "1.5 ms", "2 s"]);
    }

    #[test]
    fn single_interval_is_drawn_as_a_point() {
        let curve = Curve { name: "one".to_owned(), look: LineStyle::of(0), points: vec![(0.1, 50.0)] };
        assert_eq!(panel_over_time(TimeChart::HitRatio, &[curve]).unwrap().matches("<circle").count(), 1);
    }

    #[test]
    fn each_kind_of_operation_has_a_colour_of_its_own() {
        let names = Timed::ALL.map(|timed| timed.name().replace('_', " "));
        let names = names.into_iter().chain(["device read", "device write"].map(str::to_owned));
        let mut looks: Vec<LineStyle> = Vec::new();
        for look in names.map(|name| look_of(&name)) {
            assert!(!looks.contains(&look), "{look:?} twice");
            looks.push(look);
        }
        assert_eq!(look_of("get"), LineStyle::of(0));
    }

    #[test]
    fn legend_is_outside_the_chart() {
        let curves = ["one", "other"].map(|name| Curve {
            name: name.to_owned(),
            look: LineStyle::of(name.len()),
            points: vec![(0.1, 50.0), (1.0, 60.0)],
        });
        let svg = panel_over_time(TimeChart::HitRatio, &curves).unwrap();
        assert!(!svg.contains("opacity=\"0.85\""), "{svg}");
        assert!(curves.iter().all(|curve| svg.contains(&curve.name)));
    }

    /// There are eight colours; further runs are dashed.
    #[test]
    fn more_runs_than_colours_are_all_drawn() {
        let curve = |number| Curve {
            name: format!("run {number}"),
            look: LineStyle::of(number),
            points: vec![(1.0, 50.0), (2.0, 60.0)],
        };
        let curves: Vec<Curve> = (0..9).map(curve).collect();
        let svg = panel_over_time(TimeChart::HitRatio, &curves).unwrap();
        assert!(curves.iter().all(|curve| svg.contains(&curve.name)), "{svg}");
        // Each dash is a line element, so the ninth run has more of them than the first.
        let alone =
            |curve: &Curve| panel_over_time(TimeChart::HitRatio, std::slice::from_ref(curve)).unwrap();
        let lines = |svg: &str| svg.matches("<polyline").count();
        assert!(lines(&alone(&curves[8])) > lines(&alone(&curves[0])) + 5);
    }

    #[test]
    fn curve_ends_at_the_maximum() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|ns| histogram.record(ns * 1000));
        let points = curve(&histogram);
        let (nines, ns) = *points.last().unwrap();
        assert!((nines - 3.0).abs() < 1e-9);
        assert_eq!(Some(ns as u64), histogram.quantile_ns(0.999));
        assert!(points.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1));
    }
}
