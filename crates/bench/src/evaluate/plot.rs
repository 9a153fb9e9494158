//! Plots an evaluation: for each profile, drive latency and lifetime over the operation rate.
//!
//! Both vertical axes are logarithmic, because latency and lifetime vary by a factor of 100. Filled dots pass, hollow dots fail.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use plotters::coord::Shift;
use plotters::coord::combinators::WithKeyPoints;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::EvaluationResult;
use super::criteria::{Criteria, life_text};
use super::profile::{PROFILES, Profile};
use super::run::{Measured, Row};
use crate::chart::{Key, with_legend};
use crate::palette::{FONT, GRID, INK, LineStyle, PALE};
use crate::report::amount::{duration, with_prefix};

const SIZE: (u32, u32) = (860, 640);
/// Heights of the title and of the latency panel; the lifetime panel has the rest.
const TITLE: u32 = 36;
const LATENCIES: u32 = 330;
/// Grid lines of the lifetime axis, in years.
const YEARS: [f64; 8] = [2.0 / 8766.0, 2.0 / 365.25, 20.0 / 365.25, 0.2, 1.0, 5.0, 20.0, 100.0];
/// Shorter lifetimes are drawn at one hour.
const SHORTEST_YEARS: f64 = 1.0 / 8766.0;
/// Longer lifetimes are drawn here, because a nearly idle drive would stretch the axis.
const LONGEST_YEARS: f64 = 100.0;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;
type Points = Vec<(f64, f64)>;
type Field<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, WithKeyPoints<LogCoord<f64>>>>;

/// Returns the plot as the text of an SVG file.
///
/// # Errors
/// The drawing library failed.
pub fn svg(
    found: &EvaluationResult,
    name: &str,
    criteria: &Criteria,
) -> Result<String, Box<dyn std::error::Error>> {
    let mut drawn = Vec::new();
    for profile in &PROFILES {
        let runs = found.measured.iter().filter(|it| it.profile == profile.name && !it.rows.is_empty());
        let runs: Vec<&Measured> = runs.collect();
        if !runs.is_empty() {
            drawn.push(of_profile(profile, &runs, name, criteria)?);
        }
    }
    Ok(stacked(&drawn))
}

fn of_profile(
    profile: &Profile,
    runs: &[&Measured],
    name: &str,
    criteria: &Criteria,
) -> Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let title = format!("{name}: {}, {}", profile.name, profile.title);
        root.draw(&Text::new(title, (24, 14), (FONT, 17).into_font().color(&INK)))?;
        let (_, body) = root.split_vertically(TITLE);
        let panels = with_legend(&body, &keys(runs))?;
        let most = rows(runs).map(Row::throughput).fold(1.0, f64::max) * 1.04;
        if rows(runs).all(|row| row.years.figure().is_none()) {
            latencies(&panels, runs, criteria, most)?;
        } else {
            let (upper, lower) = panels.split_vertically(LATENCIES);
            latencies(&upper, runs, criteria, most)?;
            lives(&lower, runs, criteria, most)?;
        }
        root.present()?;
    }
    Ok(svg)
}

fn rows<'a>(runs: &'a [&Measured]) -> impl Iterator<Item = &'a Row> {
    runs.iter().flat_map(|run| &run.rows)
}

/// One colour for each placement mode; the median is dashed.
fn look(run: &Measured) -> LineStyle {
    LineStyle::of(usize::from(!run.placement))
}

fn keys(runs: &[&Measured]) -> Vec<Key> {
    let of = |run: &&Measured| {
        let way = if run.placement { "placement on" } else { "placement off" };
        let key = |name: &str, look| Key { name: format!("{name}, {way}"), look, width: 2, mark: None };
        [key("p99 and life", look(run)), key("p50", look(run).dashed())]
    };
    runs.iter().flat_map(of).collect()
}

/// Creates a chart over the operation rate with a logarithmic vertical axis of `range` and grid lines at `ticks`.
fn field<'a>(
    area: &Area<'a>,
    (title, most): (&str, f64),
    range: Range<f64>,
    ticks: &[f64],
    label: &dyn Fn(&f64) -> String,
) -> Result<Field<'a>, Box<dyn std::error::Error>> {
    let shown = ticks.iter().copied().filter(|tick| range.contains(tick)).collect();
    let vertical = range.log_scale().with_key_points(shown);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_right(28)
        .caption(title, (FONT, 14).into_font().color(&INK))
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..most, vertical)?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(PALE)
        .label_style((FONT, 12).into_font().color(&PALE))
        .x_desc("operations per second")
        .x_label_formatter(&|rate| with_prefix(*rate))
        .y_label_formatter(label)
        .draw()?;
    Ok(chart)
}

fn latencies(area: &Area<'_>, runs: &[&Measured], criteria: &Criteria, most: f64) -> Drawn {
    let of = |run: &Measured, share: f64| -> Vec<(f64, f64, bool)> {
        points(run, criteria, |row| Some(row.device_quantiles(share).0?.as_nanos().max(1) as f64))
    };
    let limit = nanos(criteria.max_read_p99);
    let times: Vec<f64> = (3..11).flat_map(|tens| [1.0, 2.0, 5.0].map(|it| it * 10_f64.powi(tens))).collect();
    let all = || runs.iter().flat_map(|run| [of(run, 0.5), of(run, 0.99)]).flatten().map(|it| it.1);
    let (low, high) = (all().fold(limit, f64::min), all().fold(limit, f64::max));
    let mut chart =
        field(area, ("Reads of the drive: p99 and p50", most), low * 0.7..high * 1.5, &times, &|ns| {
            duration(*ns)
        })?;
    limited(&mut chart, most, limit, &format!("p99 at most {}", duration(limit)))?;
    for run in runs {
        line(&mut chart, &of(run, 0.5), look(run).dashed(), false)?;
        line(&mut chart, &of(run, 0.99), look(run), true)?;
    }
    Ok(())
}

fn lives(area: &Area<'_>, runs: &[&Measured], criteria: &Criteria, most: f64) -> Drawn {
    let of = |run: &Measured| {
        points(run, criteria, |row| Some(row.years.figure()?.0.clamp(SHORTEST_YEARS, LONGEST_YEARS)))
    };
    let least = criteria.min_years;
    let requested = (least > 0.0).then_some(least.clamp(SHORTEST_YEARS, LONGEST_YEARS));
    let all = || runs.iter().flat_map(|run| of(run)).map(|it| it.1).chain(requested);
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let is_bound = rows(runs).any(|row| row.years.figure().is_some_and(|(_, is_bound)| is_bound));
    let title = match is_bound {
        true => "Life of the drive at most: it does not report what its medium wrote",
        false => "Life of the drive",
    };
    let mut chart = field(area, (title, most), low * 0.6..high * 1.7, &YEARS, &|years| life_text(*years))?;
    if let Some(years) = requested {
        limited(&mut chart, most, years, &format!("{} requested for", life_text(least)))?;
    }
    for run in runs {
        line(&mut chart, &of(run), look(run), true)?;
    }
    Ok(())
}

/// Rate, value and pass of each row, in ascending order of rate. The row at full speed is not judged.
fn points(run: &Measured, criteria: &Criteria, of: impl Fn(&Row) -> Option<f64>) -> Vec<(f64, f64, bool)> {
    let passes = |row: &Row| row.offered.is_some() && criteria.missed(row).is_empty();
    let rows = run.rows.iter().filter_map(|row| Some((row.throughput(), of(row)?, passes(row))));
    let mut points: Vec<_> = rows.collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

fn line<'a>(chart: &mut Field<'a>, points: &[(f64, f64, bool)], look: LineStyle, with_dots: bool) -> Drawn {
    let path: Points = points.iter().map(|&(rate, value, _)| (rate, value)).collect();
    chart.draw_series([look.line(path, 2)])?;
    if with_dots {
        let hollow = points.iter().map(|it| Circle::new((it.0, it.1), 4, WHITE.filled()));
        chart.draw_series(hollow)?;
        chart.draw_series(points.iter().map(|&(rate, value, passes)| {
            let style = if passes { look.colour.filled() } else { look.colour.stroke_width(2) };
            Circle::new((rate, value), 4, style)
        }))?;
    }
    Ok(())
}

/// Draws a limit as a horizontal line with a label at its right end.
fn limited<'a>(chart: &mut Field<'a>, most: f64, value: f64, text: &str) -> Drawn {
    chart.draw_series([PathElement::new([(0.0, value), (most, value)], PALE.stroke_width(1))])?;
    let anchor = plotters::style::text_anchor::Pos::new(
        plotters::style::text_anchor::HPos::Right,
        plotters::style::text_anchor::VPos::Bottom,
    );
    let style = (FONT, 12).into_font().color(&PALE).pos(anchor);
    chart.draw_series([Text::new(text.to_owned(), (most, value), style)])?;
    Ok(())
}

fn nanos(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

/// Stacks the plots vertically.
fn stacked(drawn: &[String]) -> String {
    let (width, height) = (SIZE.0, SIZE.1 as usize * drawn.len().max(1));
    let mut out = format!("<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" ");
    out += "xmlns=\"http://www.w3.org/2000/svg\">\n";
    for (number, svg) in drawn.iter().enumerate() {
        let _ = writeln!(out, "<g transform=\"translate(0 {})\">\n{svg}\n</g>", number * SIZE.1 as usize);
    }
    out + "</svg>\n"
}
