//! What all pictures are drawn with.

use plotters::element::{DashedPathElement, DynElement, IntoDynElement as _, PathElement};
use plotters::prelude::DrawingBackend;
use plotters::style::{Color as _, RGBColor};

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

/// How a line looks: no two numbers' lines look alike, however many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) colour: RGBColor,
    /// Length of a dash and of the gap behind it, in points; `None` is a solid line.
    dash: Option<(u32, u32)>,
}

impl Look {
    /// Of line `number` from 0 on: colours first, then the same ones dashed otherwise.
    pub(crate) fn of(number: usize) -> Self {
        const DASHES: [u32; 3] = [9, 4, 2];
        let dashed = (number / COLOURS.len()).checked_sub(1);
        let dash = |kind: usize| (DASHES[kind % DASHES.len()], 4 * (kind / DASHES.len() + 1) as u32);
        Self { colour: COLOURS[number % COLOURS.len()], dash: dashed.map(dash) }
    }

    /// The same colour in dashes.
    pub(crate) fn dashed(self) -> Self {
        Self { dash: Some((4, 4)), ..self }
    }

    /// A line through `points` that looks so.
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
    fn no_two_lines_look_alike() {
        let looks: Vec<Look> = (0..200).map(Look::of).collect();
        for (place, look) in looks.iter().enumerate() {
            assert!(!looks[..place].contains(look), "{place}: {look:?}");
        }
        assert!(looks[..COLOURS.len()].iter().all(|look| look.dash.is_none()));
    }
}
