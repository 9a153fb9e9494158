//! A figure of lines.

use plotters::prelude::*;

use crate::palette::{COLOURS, FONT};
/// Of a figure, in points.
pub(crate) const WIDTH: u32 = 820;
/// Of a figure, in points.
pub(crate) const HEIGHT: u32 = 480;

/// Lines over a common axis.
#[derive(Debug, Clone)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// Its horizontal axis.
    pub x: &'static str,
    /// Its vertical axis.
    pub y: &'static str,
    /// What is drawn.
    pub lines: Vec<Line>,
}

/// A line, or single points where it is the paper's.
#[derive(Debug, Clone)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
    /// Drawn as single points.
    pub is_marks: bool,
}

impl Line {
    /// A line through `points`.
    pub(crate) fn new(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { name: name.to_owned(), points: points.into_iter().collect(), is_marks: false }
    }

    /// Single points: what the paper gives.
    pub(crate) fn marks(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { is_marks: true, ..Self::new(name, points) }
    }
}

impl Chart {
    /// The chart as an SVG file's text.
    ///
    /// # Errors
    /// What the drawing library says.
    pub fn svg(&self) -> Result<String, Box<dyn std::error::Error>> {
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
            root.fill(&WHITE)?;
            let (left, right, top) = self.bounds();
            let mut axes = ChartBuilder::on(&root)
                .caption(&self.title, (FONT, 18))
                .margin(16)
                .x_label_area_size(44)
                .y_label_area_size(56)
                .build_cartesian_2d(left..right, 0.0..top)?;
            axes.configure_mesh()
                .x_desc(self.x)
                .y_desc(self.y)
                .label_style((FONT, 13))
                .light_line_style(WHITE)
                .draw()?;
            for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
                let colour = *colour;
                if line.is_marks {
                    let marks = line.points.iter().map(|&at| Cross::new(at, 6, colour.stroke_width(2)));
                    axes.draw_series(marks)?
                        .label(&line.name)
                        .legend(move |(x, y)| Cross::new((x + 10, y), 5, colour.stroke_width(2)));
                } else {
                    axes.draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?
                        .label(&line.name)
                        .legend(move |(x, y)| {
                            PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2))
                        });
                }
            }
            axes.configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.8))
                .label_font((FONT, 13))
                .draw()?;
            root.present()?;
        }
        Ok(svg)
    }

    /// Left, right and top of what is drawn, with some air; of nothing an empty field.
    fn bounds(&self) -> (f64, f64, f64) {
        let all = || self.lines.iter().flat_map(|line| &line.points);
        if all().next().is_none() {
            return (0.0, 1.0, 0.1);
        }
        let left = all().map(|it| it.0).fold(f64::INFINITY, f64::min);
        let right = all().map(|it| it.0).fold(f64::NEG_INFINITY, f64::max);
        let top = all().map(|it| it.1).fold(0.0, f64::max);
        if left < right { (left, right, top * 1.15) } else { (left - 1.0, left + 1.0, top * 1.15 + 0.1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A drive that nothing was read from has no latencies to draw.
    #[test]
    fn lines_without_points_are_an_empty_picture() {
        let lines = vec![Line::new("p50", []), Line::marks("paper", [])];
        let chart = Chart { title: "nothing".into(), x: "x", y: "y", lines };
        assert_eq!(chart.bounds(), (0.0, 1.0, 0.1));
        assert!(chart.svg().unwrap().contains("nothing"));
    }
}
