//! Hits against carbon, one mark per point.

use super::Outcome;
use crate::chart::{Chart, Line, pareto};

/// The picture as SVG text; `None` if carbon is unknown.
///
/// # Errors
/// The drawing library's error.
pub fn svg(outcome: &Outcome) -> Result<Option<String>, Box<dyn std::error::Error>> {
    let of = |placement: bool| {
        let points = outcome.points.iter().filter(move |it| it.inputs.placement == placement);
        points.filter_map(|it| Some((it.kgco2e?.value, it.hit_ratio?.value * 100.0)))
    };
    // The front of all figures may differ.
    let best = pareto(of(false).chain(of(true)).collect(), true);
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
            Line::new("most hits for their carbon", best),
        ],
    };
    chart.svg().map(Some)
}
