//! Hits against carbon, a mark a point.

use super::Outcome;
use crate::chart::{Chart, Line};

/// The picture as an SVG file's text; `None` where nothing is known of carbon.
///
/// # Errors
/// What the drawing library says.
pub fn svg(outcome: &Outcome) -> Result<Option<String>, Box<dyn std::error::Error>> {
    let of = |placement: bool| {
        let points = outcome.points.iter().filter(move |it| it.inputs.placement == placement);
        points.filter_map(|it| Some((it.kgco2e?.value, it.hit_ratio?.value * 100.0)))
    };
    let mut best: Vec<(f64, f64)> = outcome
        .points
        .iter()
        .filter(|it| it.is_best)
        .filter_map(|it| Some((it.kgco2e?.value, it.hit_ratio?.value * 100.0)))
        .collect();
    best.sort_by(|a, b| a.0.total_cmp(&b.0));
    if best.is_empty() {
        return Ok(None);
    }
    let chart = Chart {
        title: "Hits for carbon".into(),
        x: "kg CO2e of drives and DRAM",
        y: "hits, % of gets",
        lines: vec![
            Line::marks("placement off", of(false)),
            Line::marks("placement on", of(true)),
            Line::new("best trade-offs", best),
        ],
    };
    chart.svg().map(Some)
}
