//! Hits against carbon, one mark per point.

use super::Outcome;
use crate::chart::{Chart, Line};

/// The picture as SVG text; `None` if carbon is unknown.
///
/// # Errors
/// The drawing library's error.
pub fn svg(outcome: &Outcome) -> Result<Option<String>, Box<dyn std::error::Error>> {
    let of = |placement: bool| {
        let points = outcome.points.iter().filter(move |it| it.inputs.placement == placement);
        points.filter_map(|it| Some((it.kgco2e?.value, it.hit_ratio?.value * 100.0)))
    };
    let best = edge(of(false).chain(of(true)).collect());
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

/// The points that have more hits than all points with less carbon: the front in this picture, which may differ from the Pareto front.
fn edge(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut highest = f64::NEG_INFINITY;
    points.retain(|(_, hits)| {
        let is_higher = *hits > highest;
        highest = highest.max(*hits);
        is_higher
    });
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edge_excludes_points_worse_in_both_figures() {
        let points = vec![(4940.0, 64.7), (4728.0, 68.4), (4000.0, 60.0), (5000.0, 70.0), (4728.0, 66.0)];
        assert_eq!(edge(points), [(4000.0, 60.0), (4728.0, 68.4), (5000.0, 70.0)]);
    }
}
