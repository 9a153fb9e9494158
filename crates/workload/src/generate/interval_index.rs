//! Finds the interval that contains a point, in constant time.
//!
//! Sorted interval starts with a guide table (Chen and Asau 1974, "On generating random variates from an empirical distribution"): the
//! point's top bits select a cell, the cell gives the first interval that overlaps it, and a short scan finds the interval. Unlike an alias
//! table it preserves order, so evenly spread points give evenly spread results; [`super::population`] relies on that.

use super::error::Problem;

/// Cells per interval: the expected scan is then well below one step.
const CELLS_PER_INTERVAL: usize = 4;
const MIN_CELLS: usize = 64;

/// Sorted intervals that cover `0..=last`.
#[derive(Debug, Clone)]
pub(crate) struct IntervalIndex {
    starts: Box<[u64]>,
    first: Box<[u16]>,
    shift: u32,
}

impl IntervalIndex {
    /// Intervals that begin at `starts` (ascending, the first at 0) and end at `last`.
    pub(crate) fn new(starts: Vec<u64>, last: u64) -> Self {
        assert!(starts.first() == Some(&0), "the first interval begins at 0");
        assert!(starts.len() <= usize::from(u16::MAX), "intervals are numbered by 16 bits");
        debug_assert!(starts.is_sorted());
        let cells = (starts.len() * CELLS_PER_INTERVAL).next_power_of_two().max(MIN_CELLS);
        let shift = (64 - last.leading_zeros()).saturating_sub(cells.trailing_zeros());
        let used_cells = (last >> shift) + 1;
        let first = (0..used_cells).map(|cell| last_at_or_before(&starts, cell << shift)).collect();
        Self { starts: starts.into(), first, shift }
    }

    /// Intervals over all 64-bit points, as wide as their weights. An interval of weight 0 is never found.
    pub(crate) fn by_weight(weights: &[f64]) -> Result<Self, Problem> {
        let total = checked_sum(weights)?;
        let mut before = 0.0;
        let mut starts = Vec::with_capacity(weights.len());
        for weight in weights {
            // The cast saturates, so rounding of the last start cannot overflow.
            starts.push((before / total * 2f64.powi(64)) as u64);
            before += weight;
        }
        // Intervals of weight 0 at the end would start at the last point and be found there.
        let tail = weights.iter().rev().take_while(|weight| **weight == 0.0).count();
        starts.truncate(weights.len() - tail);
        Ok(Self::new(starts, u64::MAX))
    }

    /// The interval that holds `point`.
    #[inline]
    pub(crate) fn find(&self, point: u64) -> usize {
        // Most tables are one interval: one pool, lengths between two bounds.
        if self.starts.len() == 1 {
            return 0;
        }
        let mut at = usize::from(self.first[(point >> self.shift) as usize]);
        while at + 1 < self.starts.len() && self.starts[at + 1] <= point {
            at += 1;
        }
        at
    }

    /// Where interval `at` begins.
    #[inline]
    pub(crate) fn start(&self, at: usize) -> u64 {
        self.starts[at]
    }

    /// Number of intervals.
    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }
}

/// The sum of weights that are finite, not negative and not all zero.
pub(crate) fn checked_sum(weights: &[f64]) -> Result<f64, Problem> {
    if weights.len() > usize::from(u16::MAX) {
        return Err(Problem::TooMany(weights.len()));
    }
    if let Some(bad) = weights.iter().find(|weight| !weight.is_finite() || **weight < 0.0) {
        return Err(Problem::Number(*bad));
    }
    let total: f64 = weights.iter().sum();
    if total > 0.0 { Ok(total) } else { Err(Problem::NoWeight) }
}

fn last_at_or_before(starts: &[u64], point: u64) -> u16 {
    let after = starts.partition_point(|start| *start <= point);
    u16::try_from(after - 1).expect("`new` checks that interval numbers fit into 16 bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn guide_finds_the_interval_of_a_linear_scan(
            mut starts in proptest::collection::vec(1..1_000_000u64, 0..300),
            points in proptest::collection::vec(0..=1_000_000u64, 50),
        ) {
            starts.push(0);
            starts.sort_unstable();
            let guide = IntervalIndex::new(starts.clone(), 1_000_000);
            for point in points.into_iter().chain(starts.iter().copied()) {
                let scanned = starts.iter().rposition(|start| *start <= point).unwrap();
                prop_assert_eq!(guide.find(point), scanned);
            }
        }
    }

    #[test]
    fn interval_of_weight_zero_is_never_found() {
        let guide = IntervalIndex::by_weight(&[0.0, 1.0, 0.0, 3.0, 0.0]).unwrap();
        let found: std::collections::BTreeSet<usize> =
            (0..1000).map(|i| guide.find(i * (u64::MAX / 999))).chain([guide.find(u64::MAX)]).collect();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn invalid_weights_are_rejected() {
        assert_eq!(IntervalIndex::by_weight(&[0.0, 0.0]).unwrap_err(), Problem::NoWeight);
        assert_eq!(IntervalIndex::by_weight(&[1.0, -1.0]).unwrap_err(), Problem::Number(-1.0));
        assert!(matches!(IntervalIndex::by_weight(&[f64::NAN]).unwrap_err(), Problem::Number(_)));
    }
}
