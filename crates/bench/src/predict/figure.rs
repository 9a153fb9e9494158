//! A predicted figure with the interval of its error, and its spread over time.

use serde_json::{Value, json};

/// A predicted value, and the interval in which the engine's value for the same trace is expected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// The prediction.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// The lowest and highest value among ten equal parts of the counted accesses. They show the variation of the trace, not the error of the
/// prediction. `None` if no part has the ratio.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OverTime {
    /// Hits over gets.
    pub hit_ratio: Option<(f64, f64)>,
    /// Hits in DRAM over gets.
    pub hit_ratio_dram: Option<(f64, f64)>,
    /// Host bytes over bytes of the objects admitted.
    pub alwa: Option<(f64, f64)>,
}

impl Figure {
    /// A value without error.
    #[must_use]
    pub fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    /// Applies an increasing function. Each bound is converted by itself; if the sources of error are independent, the result is wider
    /// than necessary.
    #[must_use]
    pub fn map(self, grows: impl Fn(f64) -> f64) -> Self {
        Self { value: grows(self.value), low: grows(self.low), high: grows(self.high) }
    }

    /// Applies a decreasing function.
    #[must_use]
    pub fn map_down(self, shrinks: impl Fn(f64) -> f64) -> Self {
        Self { value: shrinks(self.value), low: shrinks(self.high), high: shrinks(self.low) }
    }

    /// The product of two non-negative figures.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        Self { value: self.value * other.value, low: self.low * other.low, high: self.high * other.high }
    }

    /// The figure with wider bounds.
    #[must_use]
    pub fn widened(self, below: f64, above: f64) -> Self {
        Self { low: self.low - below, high: self.high + above, ..self }
    }

    /// The figure with bounds limited to a range.
    #[must_use]
    pub fn clamp(self, least: f64, most: f64) -> Self {
        self.map(|it| it.clamp(least, most))
    }

    /// The figure as JSON; infinite values are null.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({ "value": self.value, "low": self.low, "high": self.high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_stay_on_their_sides() {
        let a = Figure { value: 2.0, low: 1.0, high: 4.0 };
        assert_eq!(a.map_down(|it| 8.0 / it), Figure { value: 4.0, low: 2.0, high: 8.0 });
        assert_eq!(a.times(Figure::exact(3.0)), Figure { value: 6.0, low: 3.0, high: 12.0 });
        assert_eq!(a.widened(0.5, 1.0), Figure { value: 2.0, low: 0.5, high: 5.0 });
        assert_eq!(a.clamp(0.0, 3.0), Figure { value: 2.0, low: 1.0, high: 3.0 });
    }
}
