//! Hit ratios over sizes as a picture.

use plotters::prelude::*;

use super::report::bytes;
use super::{Outcome, Row};
use crate::palette::{COLOURS, FONT, GRID, INK};

const SIZE: (u32, u32) = (900, 520);

/// A picture, and what its file is called.
pub struct Picture {
    /// Without a folder and an ending.
    pub name: &'static str,
    /// What is in it.
    pub svg: String,
}

/// The pictures of what was simulated: hits by requests and by bytes.
///
/// # Errors
/// What the drawing library says.
pub fn pictures(outcome: &Outcome) -> Result<Vec<Picture>, Box<dyn std::error::Error>> {
    let by_requests = picture(outcome, "Hits, share of the requests", Row::object_hit_ratio)?;
    let by_bytes = picture(outcome, "Hits, share of the bytes", Row::byte_hit_ratio)?;
    Ok(vec![
        Picture { name: "object-hit-ratio", svg: by_requests },
        Picture { name: "byte-hit-ratio", svg: by_bytes },
    ])
}

type Ratio = fn(&Row) -> Option<f64>;

fn picture(outcome: &Outcome, title: &str, ratio: Ratio) -> Result<String, Box<dyn std::error::Error>> {
    let sizes = || outcome.rows.iter().map(|row| row.size_bytes as f64);
    let smallest = sizes().fold(f64::INFINITY, f64::min);
    let largest = sizes().fold(smallest, f64::max);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, (FONT, 18).into_font().color(&INK))
            .margin(16)
            .margin_right(32)
            .x_label_area_size(40)
            .y_label_area_size(52)
            .build_cartesian_2d((smallest * 0.9..largest * 1.1).log_scale(), 0.0..1.0)?;
        chart
            .configure_mesh()
            .x_desc("cache size")
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style((FONT, 12).into_font().color(&INK))
            .x_label_formatter(&|size| bytes(*size as u64))
            .draw()?;
        for (number, rows) in outcome.rows.chunk_by(|a, b| a.policy == b.policy).enumerate() {
            let style =
                COLOURS[number % COLOURS.len()].stroke_width(if number < COLOURS.len() { 3 } else { 1 });
            let mut points: Vec<(f64, f64)> =
                rows.iter().filter_map(|row| Some((row.size_bytes as f64, ratio(row)?))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            chart.draw_series(points.iter().map(|at| Circle::new(*at, 3, style.filled())))?;
            chart
                .draw_series(LineSeries::new(points, style))?
                .label(&rows[0].policy)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .margin(8)
            .background_style(WHITE.mix(0.85))
            .label_font((FONT, 12).into_font().color(&INK))
            .draw()?;
        root.present()?;
    }
    Ok(svg)
}
