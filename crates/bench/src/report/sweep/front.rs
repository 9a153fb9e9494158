//! Pareto fronts: all rows by cost and quality, and a line through those that no other row beats in both.
//!
//! Rows of different traces or configs do not compete: each has a chart of its own.

use std::collections::BTreeMap;

use plotters::prelude::*;

use super::{Figure, Row, Sweep, number, text};
use crate::chart::{self, HEIGHT, Key, Mark, WIDTH, pareto, with_legend};
use crate::palette::{FONT, GRID, INK, LineStyle};
use crate::report::amount::with_prefix;
use crate::report::html::Html;
use crate::simulate::plot::ticks;
use crate::simulate::report::bytes;

/// Axes that are the workload.
const WORKLOADS: [&str; 3] = ["trace", "config", "name"];
/// Charts, at most.
const CHARTS: usize = 6;
/// Series in a chart, at most.
const SERIES: usize = 8;

type Points = Vec<(f64, f64)>;

/// Draws a chart for each workload.
pub(super) fn fronts(
    body: &mut Html,
    sweep: &Sweep,
    figure: Figure,
    (cost, cost_text): (&str, &'static str),
) -> Result<(), Box<dyn std::error::Error>> {
    body.element("h2", "Pareto front");
    let workload = sweep.axes.iter().find(|axis| WORKLOADS.contains(&axis.name.as_str()));
    let names = workload.map_or_else(|| vec![String::new()], |axis| axis.values.clone());
    for name in names.iter().take(CHARTS) {
        let is_of_workload = |row: &&Row| workload.is_none_or(|axis| text(row, &axis.name) == *name);
        let rows = sweep.rows.iter().filter(is_of_workload);
        // The horizontal axis is logarithmic.
        let rows = rows.filter_map(|row| {
            Some((row, (number(row, cost).filter(|cost| *cost > 0.0)?, number(row, figure.path)?)))
        });
        let points: Vec<(&Row, (f64, f64))> = rows.collect();
        if points.is_empty() {
            continue;
        }
        let chart = Chart {
            title: if name.is_empty() { sweep.name.clone() } else { name.clone() },
            cost,
            cost_text,
            quality_text: figure.title,
            best: pareto(points.iter().map(|(_, point)| *point).collect(), figure.is_better_high),
            series: series(sweep, &points),
        };
        body.drawing(&chart.svg()?);
    }
    if names.len() > CHARTS {
        body.element("p", &format!("{} more have no chart; the table has their rows", names.len() - CHARTS));
    }
    Ok(())
}

/// The points by the value of the first axis that is neither workload, size nor seed.
fn series(sweep: &Sweep, points: &[(&Row, (f64, f64))]) -> BTreeMap<String, Points> {
    let is_drawn = |name: &str| !WORKLOADS.contains(&name) && !["size", "seed"].contains(&name);
    let axis = sweep.axes.iter().find(|axis| axis.values.len() <= SERIES && is_drawn(&axis.name));
    let mut series: BTreeMap<String, Points> = BTreeMap::new();
    for (row, point) in points {
        let name = axis.map_or_else(|| "all rows".to_owned(), |axis| text(row, &axis.name));
        series.entry(name).or_default().push(*point);
    }
    series
}

struct Chart<'a> {
    title: String,
    cost: &'a str,
    cost_text: &'static str,
    quality_text: &'static str,
    best: Points,
    series: BTreeMap<String, Points>,
}

impl Chart<'_> {
    fn svg(&self) -> Result<String, Box<dyn std::error::Error>> {
        let points = || self.series.values().flatten();
        let costs = || points().map(|point| point.0);
        let (least, most) = (costs().fold(f64::INFINITY, f64::min), costs().fold(0.0, f64::max));
        let highest = points().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max);
        chart::svg((WIDTH, HEIGHT), |root| {
            let keys = self.keys();
            let field = with_legend(root, &keys)?;
            let mut chart = ChartBuilder::on(&field)
                .caption(&self.title, (FONT, 18).into_font().color(&INK))
                .margin(16)
                .margin_right(32)
                .x_label_area_size(44)
                .y_label_area_size(60)
                .build_cartesian_2d(
                    (least * 0.8..most * 1.25).log_scale().with_key_points(ticks(costs().collect())),
                    0.0..highest * 1.1,
                )?;
            chart
                .configure_mesh()
                .x_desc(self.cost_text)
                .y_desc(self.quality_text)
                .bold_line_style(GRID)
                .light_line_style(TRANSPARENT)
                .label_style((FONT, 12).into_font().color(&INK))
                .x_label_formatter(&|cost| self.cost_label(*cost))
                .draw()?;
            let (front, marks) = keys.split_last().expect("the front has a key");
            chart.draw_series([front.look.line(self.best.clone(), front.width)])?;
            for (points, key) in self.series.values().zip(marks) {
                chart.draw_series(points.iter().map(|&at| key.mark(at, 5)))?;
            }
            Ok(())
        })
    }

    /// The series, and the front.
    fn keys(&self) -> Vec<Key> {
        let mut marks = [Mark::Cross, Mark::Circle].into_iter().cycle();
        let names = self.series.keys().cloned().map(|name| (name, true));
        let all = names.chain([("Pareto front".to_owned(), false)]);
        let key = |(number, (name, is_marks)): (usize, (String, bool))| Key {
            name,
            look: LineStyle::of(number),
            width: 2,
            mark: if is_marks { marks.next() } else { None },
        };
        all.enumerate().map(key).collect()
    }

    fn cost_label(&self, cost: f64) -> String {
        if self.cost == "size_bytes" { bytes(cost.round() as u64) } else { with_prefix(cost) }
    }
}
