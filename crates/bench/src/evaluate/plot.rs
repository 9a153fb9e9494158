//! An evaluation as a picture: for each profile, how long reads take at what is done.

use std::fmt::Write as _;

use super::Found;
use super::profile::PROFILES;
use super::run::Measured;
use crate::chart::{Chart, HEIGHT, Line, WIDTH};

/// The picture, as an SVG file's text.
///
/// # Errors
/// What the drawing library says.
pub fn svg(found: &Found, name: &str) -> Result<String, Box<dyn std::error::Error>> {
    let mut drawn = Vec::new();
    for profile in &PROFILES {
        let runs = found.measured.iter().filter(|it| it.profile == profile.name && !it.rows.is_empty());
        let lines: Vec<Line> = runs.flat_map(lines).collect();
        if lines.is_empty() {
            continue;
        }
        let title = format!("{name}, {}", profile.name);
        let chart = Chart { title, x: "thousand operations per second", y: "reads, µs", lines };
        drawn.push(chart.svg()?);
    }
    Ok(stacked(&drawn))
}

fn lines(run: &Measured) -> [Line; 2] {
    let way = if run.placement { "placed" } else { "not placed" };
    let line = |name: &str, share: f64| {
        let mut points: Vec<(f64, f64)> = run
            .rows
            .iter()
            .filter_map(|row| {
                let read = row.device_quantiles(share).0?;
                Some((row.throughput() / 1e3, read.as_secs_f64() * 1e6))
            })
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line::new(&format!("{name}, {way}"), points)
    };
    [line("p50", 0.5), line("p99", 0.99)]
}

/// Pictures below each other.
fn stacked(drawn: &[String]) -> String {
    let height = HEIGHT as usize * drawn.len().max(1);
    let mut out = format!("<svg width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" ");
    out += "xmlns=\"http://www.w3.org/2000/svg\">\n";
    for (number, svg) in drawn.iter().enumerate() {
        let _ = writeln!(out, "<g transform=\"translate(0 {})\">\n{svg}\n</g>", number * HEIGHT as usize);
    }
    out + "</svg>\n"
}
