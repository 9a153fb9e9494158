//! Estimates how far two runs differ by chance: a confidence interval of the difference that holds in 99 of 100 comparisons, for all
//! figures of a comparison together.
//!
//! With one run per side, noise is estimated from the run's intervals. The warm-up is excluded: the configured one, otherwise the first
//! quarter of the run. The rest is divided into twenty batches. A figure is the ratio of two sums over them, and its variance is
//! computed from the batches' residuals (A. Law, "Simulation Modeling and Analysis", batch means and ratio estimators). A linear trend
//! of the residuals is removed: it comes from a cache that is still filling on both sides, and would hide every change in a short run.
//! If neighbouring batches are correlated by `r`, the variance grows by `(1 + r) / (1 - r)`, and the degrees of freedom shrink by the
//! same factor. With several runs per side, noise is the scatter between them. In both cases the difference is tested by Welch's method.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

use super::finished::Interval;

/// Probability that at least one figure of a comparison is flagged although nothing changed.
pub const FALSE_ALARM: f64 = 0.01;
/// Share of a run that counts as warm-up, if none is configured.
const WARM_UP: f64 = 0.25;
/// Number of batches.
const BATCHES: usize = 20;
/// Noise cannot be estimated from fewer intervals.
const MIN_INTERVALS: usize = 10;
/// Rounding error of a time, as a share of the run's length.
const ROUNDING: f64 = 1e-9;
/// Upper limit of the autocorrelation of batches.
const MAX_AUTOCORRELATION: f64 = 0.9;

/// A value with its estimated variance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    variance: f64,
    degrees_of_freedom: f64,
}

/// The difference of two values with its standard error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// The second value minus the first.
    pub value: f64,
    error: f64,
    degrees_of_freedom: f64,
}

/// A figure as a ratio of two sums over intervals: its name, numerator and denominator.
type Sums = (&'static str, fn(&Interval) -> Option<f64>, fn(&Interval) -> Option<f64>);

const SUMS: &[Sums] = &[
    ("throughput_ops_per_second", |it| it.ops, |it| Some(it.seconds)),
    ("hit_ratio", |it| Some(it.gets? - it.get_misses?), |it| it.gets),
    ("hit_ratio_dram", |it| it.get_hits_dram, |it| it.gets),
    ("hit_ratio_flash", |it| it.get_hits_flash, |it| Some(it.gets? - it.get_hits_dram?)),
    ("alwa", |it| it.flash_bytes_settled_host, |it| it.flash_bytes_settled),
    ("dlwa", |it| it.flash_bytes_media, |it| it.flash_bytes_host),
];

/// The figure `name` after the warm-up; `None` if the intervals do not have it. `warmup_seconds` is the length of a configured warm-up.
#[must_use]
pub fn steady(name: &str, intervals: &[Interval], warmup_seconds: Option<f64>) -> Option<Estimate> {
    let (_, numerator, denominator) = SUMS.iter().find(|sums| sums.0 == name)?;
    let end = intervals.last()?.until_seconds;
    // Due to rounding, an interval at the end of the warm-up may begin slightly earlier.
    let from = warmup_seconds.unwrap_or(WARM_UP * end) - ROUNDING * end;
    let warm = intervals.iter().filter(|it| it.until_seconds - it.seconds >= from);
    let parts: Vec<(f64, f64)> =
        warm.map(|it| Some((numerator(it)?, denominator(it)?))).collect::<Option<_>>()?;
    ratio_of_sums(&parts)
}

/// The ratio of the sums of `parts`, which are in order of time; `None` if there are too few, or if the denominator is 0.
fn ratio_of_sums(parts: &[(f64, f64)]) -> Option<Estimate> {
    if parts.len() < MIN_INTERVALS {
        return None;
    }
    let batches = BATCHES.min(parts.len());
    let mut sums = vec![(0.0, 0.0); batches];
    for (number, (numerator, denominator)) in parts.iter().enumerate() {
        let batch = &mut sums[number * batches / parts.len()];
        *batch = (batch.0 + numerator, batch.1 + denominator);
    }
    let (numerator, denominator) = sums.iter().fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    if denominator <= 0.0 {
        return None;
    }
    let value = numerator / denominator;
    let residuals =
        without_trend(&sums.iter().map(|(above, below)| above - value * below).collect::<Vec<_>>());
    let correlation = autocorrelation(&residuals);
    let effective_share = (1.0 - correlation) / (1.0 + correlation);
    let count = batches as f64;
    let scatter = residuals.iter().map(|it| it * it).sum::<f64>() / (count - 2.0);
    let variance = scatter * count / (denominator * denominator) / effective_share;
    Some(Estimate { value, variance, degrees_of_freedom: (count * effective_share - 2.0).max(1.0) })
}

/// Subtracts the best-fitting straight line from `residuals`, whose sum is 0.
fn without_trend(residuals: &[f64]) -> Vec<f64> {
    let middle = (residuals.len() as f64 - 1.0) / 2.0;
    let positions = || (0..residuals.len()).map(|number| number as f64 - middle);
    let slope = positions().zip(residuals).map(|(position, it)| position * it).sum::<f64>()
        / positions().map(|position| position * position).sum::<f64>();
    positions().zip(residuals).map(|(position, it)| it - slope * position).collect()
}

/// The correlation of neighbours; a negative one counts as 0.
fn autocorrelation(residuals: &[f64]) -> f64 {
    let all: f64 = residuals.iter().map(|it| it * it).sum();
    let neighbours: f64 = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
    if all > 0.0 { (neighbours / all).clamp(0.0, MAX_AUTOCORRELATION) } else { 0.0 }
}

/// The difference of two estimates by Welch's method.
#[must_use]
pub fn between(a: &Estimate, b: &Estimate) -> Difference {
    let (of_a, of_b) = (a.variance, b.variance);
    let sum = of_a + of_b;
    let degrees = sum * sum / (of_a * of_a / a.degrees_of_freedom + of_b * of_b / b.degrees_of_freedom);
    let degrees_of_freedom = if sum > 0.0 { degrees } else { 1.0 };
    Difference { value: b.value - a.value, error: sum.sqrt(), degrees_of_freedom }
}

/// The difference of the means of two sides, with noise estimated from the scatter of their runs. A single run is assumed to scatter like
/// those of the other side. `None` if neither side has several runs.
#[must_use]
pub fn between_runs(a: &[f64], b: &[f64]) -> Option<Difference> {
    let single = |side: &[f64], other: &[f64]| (side.len() == 1).then(|| of_runs(other)).flatten();
    if let Some(other) = single(b, a).or_else(|| single(a, b)) {
        let of_one = other.variance * (other.degrees_of_freedom + 1.0);
        return Some(Difference {
            value: mean(b) - mean(a),
            error: (other.variance + of_one).sqrt(),
            degrees_of_freedom: other.degrees_of_freedom,
        });
    }
    Some(between(&of_runs(a)?, &of_runs(b)?))
}

fn of_runs(values: &[f64]) -> Option<Estimate> {
    let count = values.len() as f64;
    if values.len() < 2 {
        return None;
    }
    let value = mean(values);
    let scatter = values.iter().map(|it| (it - value) * (it - value)).sum::<f64>() / (count - 1.0);
    Some(Estimate { value, variance: scatter / count, degrees_of_freedom: count - 1.0 })
}

/// The mean of `values`.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

impl Difference {
    /// The largest difference that may be noise, if `figures` figures are tested together: in 1 % of comparisons without a change, one of
    /// them exceeds it (Bonferroni correction).
    #[must_use]
    pub fn margin(&self, figures: usize) -> f64 {
        if self.error > 0.0 {
            self.error * student(FALSE_ALARM / figures.max(1) as f64, self.degrees_of_freedom)
        } else {
            0.0
        }
    }
}

/// The quantile of Student's t distribution that its absolute value exceeds with probability `outside`.
fn student(outside: f64, degrees_of_freedom: f64) -> f64 {
    let degrees = degrees_of_freedom.clamp(1.0, 1e4);
    let student = StudentsT::new(0.0, 1.0, degrees).expect("the scale and the degrees of freedom exceed 0");
    student.inverse_cdf(1.0 - outside / 2.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    #[test]
    fn student_quantiles_equal_published_tables() {
        for (outside, degrees, expected) in [
            (0.01, 1.0, 63.657),
            (0.01, 4.0, 4.604),
            (0.05, 10.0, 2.228),
            (0.01, 30.0, 2.750),
            (0.001, 19.0, 3.883),
            (0.01, 1e4, 2.576),
            (0.0001, 1.0, 6366.2),
            (0.0001, 3.0, 28.000),
        ] {
            let t = student(outside, degrees);
            assert!((t / expected - 1.0).abs() < 1e-3, "{outside} {degrees}: {t} instead of {expected}");
        }
    }

    /// Intervals with a mean of `level`, whose neighbours are correlated by `correlation`.
    fn intervals(random: &mut StdRng, correlation: f64, level: f64) -> Vec<Interval> {
        let mut state = 0.0;
        let one = |number: u32| {
            state = correlation * state + (random.random::<f64>() - 0.5) * (1.0 - correlation);
            let ops = 1000.0 * (level + state);
            Interval {
                until_seconds: f64::from(number + 1),
                seconds: 1.0,
                ops: Some(ops),
                ..Interval::default()
            }
        };
        (0..300).map(one).collect()
    }

    fn alarms(correlation: f64, change: f64) -> usize {
        let mut random = StdRng::seed_from_u64(1);
        let flagged = |_: &usize| {
            let mut run = |level| {
                steady("throughput_ops_per_second", &intervals(&mut random, correlation, level), None)
                    .unwrap()
            };
            let difference = between(&run(10.0), &run(10.0 + change));
            difference.value.abs() > difference.margin(1)
        };
        (0..400).filter(flagged).count()
    }

    #[test]
    fn equal_runs_are_seldom_flagged_and_a_change_is_found() {
        for (correlation, limit) in [(0.0, 10), (0.5, 10), (0.9, 12)] {
            let false_alarms = alarms(correlation, 0.0);
            assert!(false_alarms <= limit, "{correlation}: {false_alarms} of 400");
            let found = alarms(correlation, 0.5);
            assert!(found >= 396, "{correlation}: found {found} of 400");
        }
    }

    /// While a cache fills on both sides, the hit ratio of a batch depends on its time.
    #[test]
    fn trend_of_both_runs_does_not_hide_a_change() {
        let mut random = StdRng::seed_from_u64(1);
        let mut filling = |level: f64| {
            let mut run = intervals(&mut random, 0.0, level);
            run.iter_mut()
                .enumerate()
                .for_each(|(number, it)| it.ops = it.ops.map(|ops| ops + 20.0 * number as f64));
            steady("throughput_ops_per_second", &run, None).unwrap()
        };
        let difference = between(&filling(10.0), &filling(10.3));
        assert!(difference.value > difference.margin(6), "{difference:?}");
    }

    #[test]
    fn several_runs_are_compared_by_their_scatter() {
        let (a, b) = ([10.0, 11.0, 9.0, 10.0], [12.0, 13.0, 11.0, 12.0]);
        let difference = between_runs(&a, &b).unwrap();
        // By hand: s^2 = 2/3 per side, standard error sqrt(2/3/4 * 2), 6 degrees of freedom, t = 3.707.
        assert!((difference.margin(1) - 3.707 * (1.0_f64 / 3.0).sqrt()).abs() < 1e-2, "{difference:?}");
        let single = between_runs(&a, &[12.0]).unwrap();
        assert!((single.margin(1) - 5.841 * (2.0_f64 / 3.0 * 1.25).sqrt()).abs() < 1e-2, "{single:?}");
        assert_eq!((single.value, between_runs(&[12.0], &a).unwrap().value), (2.0, -2.0));
        assert_eq!(between_runs(&[1.0], &[2.0]), None);
        assert_eq!(between_runs(&[1.0, 1.0], &[2.0, 2.0]).unwrap().margin(9), 0.0, "no scatter");
    }

    #[test]
    fn run_with_too_few_intervals_or_without_the_figure_has_no_estimate() {
        let interval = Interval { until_seconds: 1.0, seconds: 1.0, ops: Some(1.0), ..Interval::default() };
        assert_eq!(steady("throughput_ops_per_second", &[interval; 9], None), None);
        assert_eq!(steady("dlwa", &[interval; 99], None), None);
        assert_eq!(steady("ops", &[interval; 99], None), None);
        assert_eq!(steady("hit_ratio", &[], None), None);
    }

    /// Deviations from 100 without a trend; neighbours are uncorrelated in the first list and correlated in the second.
    const UNCORRELATED: [f64; 10] = [2.0, -2.0, 1.0, -1.0, 0.0, 0.0, -1.0, 1.0, -2.0, 2.0];
    const CORRELATED: [f64; 10] = [1.0, 1.0, -1.0, -1.0, 0.0, 0.0, -1.0, -1.0, 1.0, 1.0];

    /// A run with these numbers of operations per second. Each second has 200 gets, with as many hits as operations.
    fn run(ops: impl IntoIterator<Item = f64>) -> Vec<Interval> {
        let second = |(number, ops): (usize, f64)| Interval {
            until_seconds: number as f64 + 1.0,
            seconds: 1.0,
            ops: Some(ops),
            gets: Some(200.0),
            get_misses: Some(200.0 - ops),
            ..Interval::default()
        };
        ops.into_iter().enumerate().map(second).collect()
    }

    fn assert_estimate(estimate: Option<Estimate>, value: f64, variance: f64, degrees: f64) {
        let it = estimate.unwrap();
        let differ = [it.value - value, it.variance - variance, it.degrees_of_freedom - degrees];
        assert!(differ.iter().all(|it| it.abs() < 1e-9), "{it:?}, expected {value} {variance} {degrees}");
    }

    #[test]
    fn estimate_equals_a_calculation_by_hand_without_warm_up_and_trend() {
        let warm_up = [5000.0; 4];
        let after = |deviations: [f64; 10], slope: f64| {
            let positions = (0..10).map(move |number| f64::from(number) - 4.5);
            run(warm_up
                .into_iter()
                .chain(positions.zip(deviations).map(move |(at, it)| 100.0 + it + slope * at)))
        };
        for slope in [0.0, 3.0] {
            // The sum of squares is 20 with 10 - 2 degrees of freedom, so 2.5. The denominator is 10 s, or 2000 gets.
            let uncorrelated = after(UNCORRELATED, slope);
            assert_estimate(
                steady("throughput_ops_per_second", &uncorrelated, None),
                100.0,
                2.5 * 10.0 / 100.0,
                8.0,
            );
            assert_estimate(steady("hit_ratio", &uncorrelated, None), 0.5, 2.5 * 10.0 / 4e6, 8.0);
            // The sum of squares is 8, that of neighbours 2: a correlation of 1/4, so the effective share is (1 - 1/4) / (1 + 1/4).
            let correlated = after(CORRELATED, slope);
            assert_estimate(
                steady("throughput_ops_per_second", &correlated, None),
                100.0,
                10.0 / 100.0 / 0.6,
                4.0,
            );
        }
    }

    /// The deviations of +5 and -5 within a pair cancel out if each pair is one batch.
    #[test]
    fn twice_as_many_intervals_as_batches_are_joined_in_pairs() {
        let deviations =
            UNCORRELATED.iter().chain(&UNCORRELATED).flat_map(|it| [100.0 + it + 5.0, 100.0 + it - 5.0]);
        let parts: Vec<(f64, f64)> = deviations.map(|ops| (ops, 1.0)).collect();
        // The residuals are twice those above: a sum of squares of 160 with 20 - 2 degrees of freedom.
        assert_estimate(ratio_of_sums(&parts), 100.0, 160.0 / 18.0 * 20.0 / 1600.0, 18.0);
    }

    #[test]
    fn each_figure_is_the_ratio_of_its_columns() {
        let second = |number: u32| Interval {
            until_seconds: f64::from(number + 1),
            seconds: 1.0,
            ops: Some(110.0),
            gets: Some(100.0),
            get_misses: Some(30.0),
            get_hits_dram: Some(50.0),
            get_hits_flash: Some(20.0),
            flash_bytes_host: Some(300.0),
            flash_bytes_media: Some(360.0),
            flash_bytes_settled: Some(200.0),
            flash_bytes_settled_host: Some(300.0),
            ..Interval::default()
        };
        let all: Vec<Interval> = (0..40).map(second).collect();
        for (name, value) in [
            ("throughput_ops_per_second", 110.0),
            ("hit_ratio", 0.7),
            ("hit_ratio_dram", 0.5),
            ("hit_ratio_flash", 0.4),
            ("alwa", 1.5),
            ("dlwa", 1.2),
        ] {
            assert_estimate(steady(name, &all, None), value, 0.0, 18.0);
        }
        let without_gets: Vec<Interval> = all.iter().map(|it| Interval { gets: Some(0.0), ..*it }).collect();
        assert_eq!(steady("hit_ratio_dram", &without_gets, None), None, "the denominator is 0");
    }

    #[test]
    fn difference_follows_welch_and_its_margin_grows_with_the_number_of_figures() {
        let a = Estimate { value: 7.0, variance: 1.0, degrees_of_freedom: 4.0 };
        let b = Estimate { value: 10.0, variance: 3.0, degrees_of_freedom: 9.0 };
        // 4^2 / (1^2 / 4 + 3^2 / 9).
        assert_eq!(between(&a, &b), Difference { value: 3.0, error: 2.0, degrees_of_freedom: 12.8 });
        let certain = Estimate { value: 10.0, variance: 0.0, degrees_of_freedom: 1.0 };
        let alone = between(&certain, &Estimate { variance: 4.0, degrees_of_freedom: 19.0, ..a });
        assert_eq!(alone, Difference { value: -3.0, error: 2.0, degrees_of_freedom: 19.0 });
        assert!((alone.margin(10) - 2.0 * 3.883).abs() < 1e-2, "published table: {}", alone.margin(10));
    }
}
