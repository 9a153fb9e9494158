//! Fonts, colours and line styles of all plots.

use plotters::element::{DashedPathElement, DynElement, IntoDynElement as _, PathElement};
use plotters::prelude::DrawingBackend;
use plotters::style::{Color as _, RGBColor};

pub(crate) const FONT: &str = "sans-serif";
/// Text and axes.
pub(crate) const INK: RGBColor = RGBColor(45, 49, 55);
/// Secondary text and lines.
pub(crate) const PALE: RGBColor = RGBColor(120, 126, 134);
pub(crate) const GRID: RGBColor = RGBColor(231, 233, 236);
/// Okabe and Ito's colours, which colour-blind readers can distinguish.
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

/// Style of a line. Different numbers have different styles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineStyle {
    pub(crate) colour: RGBColor,
    /// Length of a dash and of the gap after it, in points; `None` is a solid line.
    dash: Option<(u32, u32)>,
}

impl LineStyle {
    /// Style of line `number`: solid colours first, then the same colours with dashes.
    pub(crate) fn of(number: usize) -> Self {
        const DASHES: [u32; 3] = [9, 4, 2];
        let dashed = (number / COLOURS.len()).checked_sub(1);
        let dash = |kind: usize| (DASHES[kind % DASHES.len()], 4 * (kind / DASHES.len() + 1) as u32);
        Self { colour: COLOURS[number % COLOURS.len()], dash: dashed.map(dash) }
    }

    /// This style with dashes.
    pub(crate) fn dashed(self) -> Self {
        Self { dash: Some((4, 4)), ..self }
    }

    /// A line through `points` in this style.
    pub(crate) fn line<DB, P>(self, points: Vec<P>, width: u32) -> DynElement<'static, DB, P>
    where
        DB: DrawingBackend,
        P: Clone + 'static,
    {
        let style = self.colour.stroke_width(width);
        match self.dash {
            Some((dash, gap)) if points.len() > 1 => {
                DashedPathElement::new(points, dash, gap, style).into_dyn()
            }
            _ => PathElement::new(points, style).into_dyn(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_of_200_lines_is_distinct() {
        let looks: Vec<LineStyle> = (0..200).map(LineStyle::of).collect();
        for (place, look) in looks.iter().enumerate() {
            assert!(!looks[..place].contains(look), "{place}: {look:?}");
        }
        assert!(looks[..COLOURS.len()].iter().all(|look| look.dash.is_none()));
    }
}
