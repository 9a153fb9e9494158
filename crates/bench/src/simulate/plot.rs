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

/// The simulated sizes, as long as the words under them stand apart.
fn ticks(mut sizes: Vec<f64>) -> Vec<f64> {
    /// Of the picture's width, from one to the next.
    const APART: f64 = 1.0 / 11.0;
    sizes.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else { return sizes };
    let factor = (last * 1.1 / (first * 0.9)).powf(APART);
    let mut next = 0.0;
    sizes.retain(|size| {
        let is_apart = *size >= next;
        next = if is_apart { size * factor } else { next };
        is_apart
    });
    sizes
}

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
            .build_cartesian_2d(
                (smallest * 0.9..largest * 1.1).log_scale().with_key_points(ticks(sizes().collect())),
                0.0..1.0,
            )?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// There had been nine words where there was room for five.
    #[test]
    fn words_under_the_sizes_stand_apart() {
        assert_eq!(ticks(vec![30e6, 1e6, 10e6, 1e6, 3e6]), [1e6, 3e6, 10e6, 30e6]);
        let crowd = ticks((1..=100).map(|size| f64::from(size) * 1e6).collect());
        assert!(crowd.len() <= 11, "{crowd:?}");
        assert!(crowd.windows(2).all(|pair| pair[1] / pair[0] > 1.5), "{crowd:?}");
        assert_eq!(ticks(vec![5.0]), [5.0]);
    }
}
