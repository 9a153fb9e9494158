//! Line charts.

use plotters::coord::Shift;
use plotters::element::{DynElement, IntoDynElement as _};
use plotters::prelude::*;

use crate::palette::{FONT, INK, LineStyle};

/// Width of a chart in points.
pub(crate) const WIDTH: u32 = 820;
/// Height of a chart in points.
pub(crate) const HEIGHT: u32 = 480;

/// The text of an SVG file with what `draw` draws on white.
///
/// # Errors
/// Those of `draw`, or the drawing library failed.
pub(crate) fn svg(
    size: (u32, u32),
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        draw(&root)?;
        root.present()?;
    }
    Ok(svg)
}

/// Lines over a common axis.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Title.
    pub title: String,
    /// Label of the horizontal axis.
    pub x: &'static str,
    /// Label of the vertical axis.
    pub y: &'static str,
    /// Lines of the chart.
    pub lines: Vec<Line>,
}

/// A line, or single points for published values.
#[derive(Debug, Clone)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Points from left to right.
    pub points: Vec<(f64, f64)>,
    /// Whether single points are drawn.
    pub is_marks: bool,
}

impl Line {
    /// A line through `points`.
    pub(crate) fn new(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { name: name.to_owned(), points: points.into_iter().collect(), is_marks: false }
    }

    /// Single points, for published values.
    pub(crate) fn marks(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { is_marks: true, ..Self::new(name, points) }
    }
}

impl Chart {
    /// The chart as the text of an SVG file.
    ///
    /// # Errors
    /// The drawing library failed.
    pub fn svg(&self) -> Result<String, Box<dyn std::error::Error>> {
        svg((WIDTH, HEIGHT), |root| {
            let keys = self.keys();
            let field = with_legend(root, &keys)?;
            let Bounds { left, right, bottom, top } = self.bounds();
            let mut axes = ChartBuilder::on(&field)
                .caption(&self.title, (FONT, 18))
                .margin(16)
                .x_label_area_size(44)
                .y_label_area_size(56)
                .build_cartesian_2d(left..right, bottom..top)?;
            axes.configure_mesh()
                .x_desc(self.x)
                .y_desc(self.y)
                .label_style((FONT, 13))
                .light_line_style(WHITE)
                .draw()?;
            for (line, key) in self.lines.iter().zip(&keys) {
                if line.is_marks {
                    axes.draw_series(line.points.iter().map(|&at| key.mark(at, 6)))?;
                } else {
                    axes.draw_series([key.look.line(line.points.clone(), key.width)])?;
                }
            }
            Ok(())
        })
    }

    fn keys(&self) -> Vec<Key> {
        let mut marks = [Mark::Cross, Mark::Circle].into_iter().cycle();
        let key = |(number, line): (usize, &Line)| Key {
            name: line.name.clone(),
            look: LineStyle::of(number),
            width: 2,
            mark: if line.is_marks { marks.next() } else { None },
        };
        self.lines.iter().enumerate().map(key).collect()
    }

    /// Bounds of the data, with space for whole marks at the edges; without data, those of an empty chart.
    fn bounds(&self) -> Bounds {
        let all = || self.lines.iter().flat_map(|line| &line.points);
        if all().next().is_none() {
            return Bounds { left: 0.0, right: 1.0, bottom: 0.0, top: 0.1 };
        }
        let left = all().map(|it| it.0).fold(f64::INFINITY, f64::min);
        let right = all().map(|it| it.0).fold(f64::NEG_INFINITY, f64::max);
        let highest = all().map(|it| it.1).fold(0.0, f64::max);
        let mut marks = self.lines.iter().filter(|line| line.is_marks).flat_map(|line| &line.points);
        let is_at_bottom = marks.any(|it| it.1 < highest * EDGE_SPACE);
        let bottom = if is_at_bottom { -highest * EDGE_SPACE } else { 0.0 };
        let (air, top) = match left < right {
            true => ((right - left) * EDGE_SPACE, highest * 1.15),
            false => (1.0, highest * 1.15 + 0.1),
        };
        Bounds { left: left - air, right: right + air, bottom, top }
    }
}

/// The points that no other one beats: less cost is better, and more quality, or less.
pub(crate) fn pareto(mut points: Vec<(f64, f64)>, is_better_high: bool) -> Vec<(f64, f64)> {
    let quality = |point: &(f64, f64)| if is_better_high { point.1 } else { -point.1 };
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(quality(b).total_cmp(&quality(a))));
    let mut best = f64::NEG_INFINITY;
    points.retain(|point| {
        let is_better = quality(point) > best;
        best = best.max(quality(point));
        is_better
    });
    points
}

/// Space next to a mark at the edge, as a share of the data range.
const EDGE_SPACE: f64 = 0.025;

#[derive(Debug, PartialEq)]
struct Bounds {
    left: f64,
    right: f64,
    bottom: f64,
    top: f64,
}

/// An entry of the legend.
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) look: LineStyle,
    pub(crate) width: u32,
    /// Shape of single points; `None` is a line.
    pub(crate) mark: Option<Mark>,
}

/// Shape of single points: two shapes at one place are both visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Cross,
    Circle,
}

impl Key {
    pub(crate) fn mark<DB: DrawingBackend, C: Clone + 'static>(
        &self,
        at: C,
        size: u32,
    ) -> DynElement<'static, DB, C> {
        let style = self.look.colour.stroke_width(self.width);
        match self.mark {
            Some(Mark::Circle) => Circle::new(at, size, style).into_dyn(),
            _ => Cross::new(at, size, style).into_dyn(),
        }
    }
}

/// Height of a legend row and length of the line sample before a name, in points.
const ROW: i32 = 19;
const PIECE: i32 = 26;
/// Margins left and right of the legend, and below it.
const MARGIN: i32 = 24;
const BELOW: i32 = 10;

type Drawn<DB> = Result<DrawingArea<DB, Shift>, DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

/// Draws a legend at the bottom of `root`, in as many rows as needed, and returns the area above. A legend inside the chart
/// could cover the data.
pub(crate) fn with_legend<DB: DrawingBackend>(root: &DrawingArea<DB, Shift>, keys: &[Key]) -> Drawn<DB> {
    let font = (FONT, 13).into_font().color(&INK);
    let (width, height) = root.dim_in_pixel();
    let (mut x, mut y) = (MARGIN, ROW / 2);
    let mut places = Vec::new();
    for key in keys {
        let (name_width, _) = root.estimate_text_size(&key.name, &font)?;
        let takes = PIECE + 6 + name_width as i32;
        if x > MARGIN && x + takes > width as i32 - MARGIN {
            (x, y) = (MARGIN, y + ROW);
        }
        places.push((x, y));
        x += takes + MARGIN;
    }
    let (field, legend) = root.split_vertically(height as i32 - y - ROW / 2 - BELOW);
    for (key, (x, y)) in keys.iter().zip(places) {
        if key.mark.is_some() {
            legend.draw(&key.mark((x + PIECE / 2, y), 5))?;
        } else {
            legend.draw(&key.look.line(vec![(x, y), (x + PIECE, y)], key.width))?;
        }
        legend.draw(&Text::new(key.name.clone(), (x + PIECE + 6, y - 7), font.clone()))?;
    }
    Ok(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_without_points_is_empty() {
        let lines = vec![Line::new("p50", []), Line::marks("paper", [])];
        let chart = Chart { title: "nothing".into(), x: "x", y: "y", lines };
        assert_eq!(chart.bounds(), Bounds { left: 0.0, right: 1.0, bottom: 0.0, top: 0.1 });
        assert!(chart.svg().unwrap().contains("nothing"));
    }

    #[test]
    fn legend_with_many_names_is_below_the_chart() {
        let lines: Vec<Line> =
            (0..12).map(|at| Line::new(&format!("a long name, number {at}"), [(0.0, 1.0)])).collect();
        let mut svg = String::new();
        let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        let keys = Chart { title: String::new(), x: "x", y: "y", lines }.keys();
        let height = |keys: &[Key]| with_legend(&root, keys).unwrap().dim_in_pixel().1;
        assert!(height(&keys) < height(&keys[..1]) && height(&keys) > HEIGHT / 2);
        assert!(height(&keys[..1]) < HEIGHT - 20);
    }

    #[test]
    fn marks_of_two_lines_have_different_shapes() {
        let lines = ["off", "on", "third"].map(|name| Line::marks(name, [(1.0, 1.0), (2.0, 3.0)]));
        let chart = Chart { title: String::new(), x: "x", y: "y", lines: lines.into() };
        let marks: Vec<_> = chart.keys().iter().map(|key| key.mark).collect();
        assert_eq!(marks, [Some(Mark::Cross), Some(Mark::Circle), Some(Mark::Cross)]);
        // Two in the chart and one in the legend.
        assert_eq!(chart.svg().unwrap().matches("<circle").count(), 3);
    }

    #[test]
    fn bounds_leave_space_for_marks_at_the_edges() {
        let chart = |y| Chart {
            title: String::new(),
            x: "x",
            y: "y",
            lines: vec![Line::marks("ours", [(10.0, y), (90.0, 100.0)])],
        };
        assert_eq!(chart(0.0).bounds(), Bounds { left: 8.0, right: 92.0, bottom: -2.5, top: 100.0 * 1.15 });
        assert_eq!(chart(50.0).bounds().bottom, 0.0);
    }

    #[test]
    fn front_has_the_rows_that_none_beats() {
        let points = vec![(100.0, 0.25), (100.0, 0.375), (1000.0, 0.5), (1000.0, 0.4375), (2000.0, 0.4)];
        assert_eq!(pareto(points.clone(), true), [(100.0, 0.375), (1000.0, 0.5)]);
        assert_eq!(pareto(points, false), [(100.0, 0.25)]);
        let points = vec![(4940.0, 64.7), (4728.0, 68.4), (4000.0, 60.0), (5000.0, 70.0), (4728.0, 66.0)];
        assert_eq!(pareto(points, true), [(4000.0, 60.0), (4728.0, 68.4), (5000.0, 70.0)]);
    }
}
