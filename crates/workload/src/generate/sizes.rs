//! Lengths, counts and TTLs: tables of values or of intervals.
//!
//! CacheBench writes such a distribution as two columns, a range and its probabilities. A range with as many values as weights contains
//! single values; one more value makes them edges of intervals, uniform inside (piecewise constant), and the number drawn is rounded down.

use super::error::Problem;
use super::interval_index::{IntervalIndex, checked_sum};

/// A distribution as configured: values or interval edges, and weights of any sum.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Single values (one per weight) or ascending interval edges (one more than weights).
    pub range: Vec<f64>,
    /// Weight of each value or interval, relative to the others.
    pub weights: Vec<f64>,
}

impl Table {
    /// Always `value`.
    #[must_use]
    pub fn constant(value: u64) -> Self {
        Self { range: vec![value as f64], weights: vec![1.0] }
    }

    /// Uniform over `low..high`.
    #[must_use]
    pub fn uniform(low: u64, high: u64) -> Self {
        Self { range: vec![low as f64, high as f64], weights: vec![1.0] }
    }

    /// The table, prepared for drawing.
    ///
    /// # Errors
    /// Columns of wrong lengths, or invalid numbers.
    pub fn sizes(&self) -> Result<Sizes, Problem> {
        Sizes::new(self)
    }
}

/// A distribution of lengths that maps any 64-bit point to a length in constant time: the inverse of its cumulative distribution function
/// at `point / 2^64`.
#[derive(Debug, Clone)]
pub struct Sizes {
    guide: IntervalIndex,
    steps: Box<[Step]>,
    weights: Box<[f64]>,
}

/// One value or interval: `low` at its start, rising by `slope` per point, at most `last`.
#[derive(Debug, Clone, Copy)]
struct Step {
    low: f64,
    slope: f64,
    last: u64,
}

impl Sizes {
    fn new(table: &Table) -> Result<Self, Problem> {
        let Table { range, weights } = table;
        let intervals = range.len() == weights.len() + 1;
        if !intervals && range.len() != weights.len() {
            return Err(Problem::Lengths { range: range.len(), weights: weights.len() });
        }
        if let Some(bad) = range.iter().find(|value| !value.is_finite() || **value < 0.0) {
            return Err(Problem::Number(*bad));
        }
        let total = checked_sum(weights)?;
        let guide = IntervalIndex::by_weight(weights)?;
        let steps = if intervals { interval_steps(table, total)? } else { value_steps(range) };
        let weights = weights.iter().map(|weight| weight / total).collect();
        Ok(Self { guide, steps, weights })
    }

    /// The length at `point`.
    #[inline]
    #[must_use]
    pub fn at(&self, point: u64) -> u64 {
        let found = self.guide.find(point);
        let step = &self.steps[found];
        let rise = (point - self.guide.start(found)) as f64 * step.slope;
        ((step.low + rise) as u64).min(step.last)
    }

    /// Probability of each length: exact shares of the intervals' whole numbers. For distributions of small numbers, such as key lengths.
    #[must_use]
    pub fn probabilities(&self) -> Vec<(u64, f64)> {
        let mut shares = std::collections::BTreeMap::new();
        for (step, weight) in self.steps.iter().zip(&self.weights).take(self.guide.len()) {
            let first = step.low as u64;
            let high = step.high(*weight);
            let width = high - step.low;
            for length in first..=step.last {
                let inside = (high.min(length as f64 + 1.0) - step.low.max(length as f64)) / width;
                *shares.entry(length).or_insert(0.0) += if width > 0.0 { weight * inside } else { *weight };
            }
        }
        shares.into_iter().filter(|(_, share)| *share > 0.0).collect()
    }

    /// The longest length.
    #[must_use]
    pub fn largest(&self) -> u64 {
        let drawn = self.steps.iter().zip(&self.weights).filter(|(_, weight)| **weight > 0.0);
        drawn.map(|(step, _)| step.last).max().unwrap_or(0)
    }

    /// The mean before rounding down.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let means = self.steps.iter().zip(&self.weights).map(|(step, weight)| {
            let middle = (step.low + step.high(*weight)) / 2.0;
            weight * middle
        });
        means.sum()
    }
}

impl Step {
    /// The upper edge; `weight` is the step's probability.
    fn high(&self, weight: f64) -> f64 {
        self.low + self.slope * weight * 2f64.powi(64)
    }
}

fn value_steps(values: &[f64]) -> Box<[Step]> {
    values.iter().map(|value| Step { low: *value, slope: 0.0, last: *value as u64 }).collect()
}

fn interval_steps(table: &Table, total: f64) -> Result<Box<[Step]>, Problem> {
    let intervals = table.range.windows(2).zip(&table.weights);
    intervals
        .map(|(edges, weight)| {
            let (low, high) = (edges[0], edges[1]);
            if high < low {
                return Err(Problem::Descending { edge: low, next: high });
            }
            let points = weight / total * 2f64.powi(64);
            let slope = if points > 0.0 { (high - low) / points } else { 0.0 };
            // The upper edge is outside, unless the interval would be empty.
            let last = ((high.ceil() as u64).saturating_sub(1)).max(low as u64);
            Ok(Step { low, slope, last })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(range: &[f64], weights: &[f64]) -> Table {
        Table { range: range.to_vec(), weights: weights.to_vec() }
    }

    /// Lengths at evenly spaced points: the distribution without sampling noise.
    fn spread(sizes: &Sizes, points: u64) -> impl Iterator<Item = u64> {
        let step = u64::MAX / points;
        (0..points).map(move |i| sizes.at(i * step + step / 2))
    }

    #[test]
    fn equal_column_lengths_mean_single_values() {
        let sizes = table(&[1024.0, 7.0, 409_600.0], &[1.0, 2.0, 1.0]).sizes().unwrap();
        let drawn: Vec<u64> = spread(&sizes, 1000).collect();
        assert_eq!(drawn.iter().filter(|size| **size == 1024).count(), 250);
        assert_eq!(drawn.iter().filter(|size| **size == 7).count(), 500);
        assert_eq!(drawn.iter().filter(|size| **size == 409_600).count(), 250);
        assert_eq!(sizes.largest(), 409_600);
    }

    #[test]
    fn one_more_edge_than_weights_means_intervals() {
        let sizes = table(&[1.0, 8.0, 64.0], &[0.3, 0.7]).sizes().unwrap();
        let drawn: Vec<u64> = spread(&sizes, 100_000).collect();
        assert_eq!(drawn.iter().min(), Some(&1));
        assert_eq!(drawn.iter().max(), Some(&63), "the upper edge is outside");
        let short = drawn.iter().filter(|size| **size < 8).count();
        assert!((29_990..=30_010).contains(&short), "{short}");
        let threes = drawn.iter().filter(|size| **size == 3).count();
        assert!((4280..=4292).contains(&threes), "{threes} of 100,000 at 0.3 / 7");
        assert!((sizes.mean() - (0.3 * 4.5 + 0.7 * 36.0)).abs() < 1e-9);
    }

    #[test]
    fn probabilities_sum_to_one_and_match_the_draws() {
        let sizes = table(&[1.0, 8.5, 64.0, 64.0], &[0.3, 0.6, 0.1]).sizes().unwrap();
        let shares = sizes.probabilities();
        assert!((shares.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9);
        let drawn: Vec<u64> = spread(&sizes, 100_000).collect();
        for (length, share) in shares {
            let counted = drawn.iter().filter(|size| **size == length).count() as f64 / 100_000.0;
            assert!((counted - share).abs() < 1e-4, "{length}: {counted} against {share}");
        }
    }

    #[test]
    fn interval_of_zero_width_is_a_value() {
        let sizes = table(&[670.0, 670.0], &[1.0]).sizes().unwrap();
        assert_eq!(sizes.at(0), 670);
        assert_eq!(sizes.at(u64::MAX), 670);
        assert_eq!(Table::constant(9).sizes().unwrap().at(u64::MAX), 9);
    }

    #[test]
    fn invalid_tables_are_rejected() {
        assert_eq!(
            table(&[1.0, 2.0, 3.0], &[1.0]).sizes().unwrap_err(),
            Problem::Lengths { range: 3, weights: 1 }
        );
        assert_eq!(
            table(&[1.0, 9.0, 3.0], &[1.0, 1.0]).sizes().unwrap_err(),
            Problem::Descending { edge: 9.0, next: 3.0 }
        );
        assert_eq!(table(&[-1.0], &[1.0]).sizes().unwrap_err(), Problem::Number(-1.0));
        assert_eq!(table(&[], &[]).sizes().unwrap_err(), Problem::NoWeight);
    }

    proptest! {
        #[test]
        fn lengths_are_in_range_and_rise_with_the_point(
            mut edges in proptest::collection::vec(0.0..1e6f64, 2..40),
            seed in any::<u64>(),
        ) {
            edges.sort_by(f64::total_cmp);
            let weights: Vec<f64> =
                (1..edges.len()).map(|i| super::super::random::scramble(seed ^ i as u64) as f64).collect();
            let sizes = Table { range: edges.clone(), weights }.sizes().unwrap();
            let mut before = 0;
            for i in 0..=500u64 {
                let size = sizes.at(i * (u64::MAX / 500));
                prop_assert!(size >= before && size >= edges[0] as u64 && size as f64 <= *edges.last().unwrap());
                before = size;
            }
        }
    }
}
