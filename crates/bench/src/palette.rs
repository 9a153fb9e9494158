//! What all pictures are drawn with.

use plotters::style::RGBColor;

pub(crate) const FONT: &str = "sans-serif";
/// Words and axes.
pub(crate) const INK: RGBColor = RGBColor(45, 49, 55);
/// What is beside the point.
pub(crate) const PALE: RGBColor = RGBColor(120, 126, 134);
pub(crate) const GRID: RGBColor = RGBColor(231, 233, 236);
/// Okabe and Ito's colours, told apart by everybody.
pub(crate) const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
    RGBColor(170, 140, 20),
];
