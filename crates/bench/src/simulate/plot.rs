//! Plots hit ratios over cache sizes.

use plotters::prelude::*;

use super::{Interval, Outcome, Row};
use crate::chart::{self, Key, with_legend};
use crate::palette::{FONT, GRID, INK, LineStyle};

const SIZE: (u32, u32) = (900, 520);

/// A plot and its file name.
pub struct Picture {
    /// File name without directory and extension.
    pub name: &'static str,
    /// Text of the SVG file.
    pub svg: String,
}

/// Plots the object hit ratio and, unless sizes were ignored, the byte hit ratio.
///
/// # Errors
/// The drawing library failed.
pub fn pictures(outcome: &Outcome) -> Result<Vec<Picture>, Box<dyn std::error::Error>> {
    let by_requests =
        picture(outcome, "Hits, share of the requests", (Row::object_hit_ratio, |it| it.object_hit_ratio))?;
    let mut pictures = vec![Picture { name: "object-hit-ratio", svg: by_requests }];
    if !outcome.ignored_size {
        let by_bytes =
            picture(outcome, "Hits, share of the bytes", (Row::byte_hit_ratio, |it| it.byte_hit_ratio))?;
        pictures.push(Picture { name: "byte-hit-ratio", svg: by_bytes });
    }
    Ok(pictures)
}

/// The plotted ratio and its confidence interval.
type Ratio = (fn(&Row) -> Option<f64>, fn(&Interval) -> (f64, f64));

/// Sizes with a label, far enough apart that labels do not overlap.
pub(crate) fn ticks(mut sizes: Vec<f64>) -> Vec<f64> {
    /// Minimum distance of labels, as a share of the plot's width.
    const MIN_LABEL_DISTANCE: f64 = 1.0 / 11.0;
    sizes.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else { return sizes };
    let factor = (last * 1.1 / (first * 0.9)).powf(MIN_LABEL_DISTANCE);
    let mut next = 0.0;
    sizes.retain(|size| {
        let is_apart = *size >= next;
        next = if is_apart { size * factor } else { next };
        is_apart
    });
    sizes
}

/// Marks estimates in the caption.
fn caption(outcome: &Outcome, title: &str) -> String {
    match outcome.sampled {
        Some(sampled) if sampled.other_objects > 0 => {
            format!("{title}: estimates from a sample, bars are 95 % intervals where these are known")
        }
        _ => title.to_owned(),
    }
}

fn picture(
    outcome: &Outcome,
    title: &str,
    (ratio, ends): Ratio,
) -> Result<String, Box<dyn std::error::Error>> {
    let sizes = || outcome.rows.iter().map(|row| row.size_bytes as f64);
    let smallest = sizes().fold(f64::INFINITY, f64::min);
    let largest = sizes().fold(smallest, f64::max);
    chart::svg(SIZE, |root| {
        let of_policy = || outcome.rows.chunk_by(Row::has_policy_of).enumerate();
        let keys: Vec<Key> = of_policy()
            .map(|(number, rows)| Key {
                name: rows[0].label(),
                look: LineStyle::of(number),
                width: 3,
                mark: None,
            })
            .collect();
        let field = with_legend(root, &keys)?;
        let mut chart = ChartBuilder::on(&field)
            .caption(caption(outcome, title), (FONT, 18).into_font().color(&INK))
            .margin(16)
            .margin_right(32)
            .x_label_area_size(40)
            .y_label_area_size(52)
            .build_cartesian_2d(
                (smallest * 0.9..largest * 1.1).log_scale().with_key_points(ticks(sizes().collect())),
                -0.01..1.01,
            )?;
        chart
            .configure_mesh()
            .x_desc("cache size")
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style((FONT, 12).into_font().color(&INK))
            .x_label_formatter(&|size| outcome.size_text(*size as u64))
            .draw()?;
        for (number, rows) in of_policy() {
            let look = LineStyle::of(number);
            let mut points: Vec<(f64, f64)> =
                rows.iter().filter_map(|row| Some((row.size_bytes as f64, ratio(row)?))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let bars = rows.iter().filter_map(|row| {
                let ((low, high), at) = (ends(row.interval.as_ref()?), row.size_bytes as f64);
                Some(PathElement::new([(at, low), (at, high)], look.colour.stroke_width(1)))
            });
            chart.draw_series(bars)?;
            chart.draw_series(points.iter().map(|at| Circle::new(*at, 3, look.colour.filled())))?;
            chart.draw_series([look.line(points, 3)])?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_leave_space_between_labels() {
        assert_eq!(ticks(vec![30e6, 1e6, 10e6, 1e6, 3e6]), [1e6, 3e6, 10e6, 30e6]);
        let crowd = ticks((1..=100).map(|size| f64::from(size) * 1e6).collect());
        assert!(crowd.len() <= 11, "{crowd:?}");
        assert!(crowd.windows(2).all(|pair| pair[1] / pair[0] > 1.5), "{crowd:?}");
        assert_eq!(ticks(vec![5.0]), [5.0]);
    }
}
