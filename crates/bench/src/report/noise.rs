//! How far two runs may differ by accident: an interval of the difference that holds 99 times in 100, for all figures of a
//! comparison together.
//!
//! One run a side is judged by what it did over time. Its warm-up goes: the one that it was given, else the first quarter of its
//! seconds. The rest is cut into twenty batches, and a figure is the ratio of two sums over them, whose variance follows from the batches' residuals
//! (A. Law, "Simulation Modeling and Analysis", batch means and ratio estimators). What lies on a straight line through them is a cache
//! that still fills, which both sides have alike, and no noise: it is taken out, or no change would ever be seen in a short run. Where neighbouring batches are alike, twenty
//! are worth fewer: the variance grows by `(1 + r) / (1 - r)`, with `r` their correlation, and the degrees of freedom shrink by as much.
//! Several runs a side are judged by how they scatter. In both cases the difference is Welch's.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

use super::finished::Interval;

/// The chance that any figure of a comparison is flagged and nothing has changed.
pub const FALSE_ALARM: f64 = 0.01;
/// Share of a run's seconds that is warm-up, where it had none of its own.
const WARM_UP: f64 = 0.25;
/// Batches that the rest of a run is cut into.
const BATCHES: usize = 20;
/// Fewer intervals than this tell nothing of noise.
const FEWEST: usize = 10;
/// Share of a run's seconds that two ways to the same moment may differ by.
const ROUNDING: f64 = 1e-9;
/// Correlation of neighbours above which they are all one.
const MOST_ALIKE: f64 = 0.9;

/// A value with what is known of its scatter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    variance: f64,
    freedom: f64,
}

/// What two values differ by, and the scatter of that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// The second less the first.
    pub value: f64,
    error: f64,
    freedom: f64,
}

/// A figure as a ratio of two sums over intervals: its name, above and below.
type Sums = (&'static str, fn(&Interval) -> Option<f64>, fn(&Interval) -> Option<f64>);

const SUMS: &[Sums] = &[
    ("throughput_ops_per_second", |it| it.ops, |it| Some(it.seconds)),
    ("hit_ratio", |it| Some(it.gets? - it.get_misses?), |it| it.gets),
    ("hit_ratio_dram", |it| it.get_hits_dram, |it| it.gets),
    ("hit_ratio_flash", |it| it.get_hits_flash, |it| Some(it.gets? - it.get_hits_dram?)),
    ("alwa", |it| it.flash_bytes_settled_host, |it| it.flash_bytes_settled),
    ("dlwa", |it| it.flash_bytes_media, |it| it.flash_bytes_host),
];

/// The figure `name` after the warm-up; `None` where the intervals do not tell. `warmup_seconds` is the length of one that the
/// run had of its own.
#[must_use]
pub fn steady(name: &str, intervals: &[Interval], warmup_seconds: Option<f64>) -> Option<Estimate> {
    let (_, above, below) = SUMS.iter().find(|sums| sums.0 == name)?;
    let end = intervals.last()?.until_seconds;
    // An interval that begins where the warm-up ends may do so a last bit earlier.
    let from = warmup_seconds.unwrap_or(WARM_UP * end) - ROUNDING * end;
    let warm = intervals.iter().filter(|it| it.until_seconds - it.seconds >= from);
    let parts: Vec<(f64, f64)> = warm.map(|it| Some((above(it)?, below(it)?))).collect::<Option<_>>()?;
    ratio_of_sums(&parts)
}

/// The ratio of the sums of `parts`, in the order of time; `None` where they are too few, or below there is nothing.
fn ratio_of_sums(parts: &[(f64, f64)]) -> Option<Estimate> {
    if parts.len() < FEWEST {
        return None;
    }
    let batches = BATCHES.min(parts.len());
    let mut sums = vec![(0.0, 0.0); batches];
    for (number, (above, below)) in parts.iter().enumerate() {
        let batch = &mut sums[number * batches / parts.len()];
        *batch = (batch.0 + above, batch.1 + below);
    }
    let (above, below) = sums.iter().fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    if below <= 0.0 {
        return None;
    }
    let value = above / below;
    let rests = without_trend(&sums.iter().map(|(above, below)| above - value * below).collect::<Vec<_>>());
    let alike = alike(&rests);
    let worth = (1.0 - alike) / (1.0 + alike);
    let count = batches as f64;
    let scatter = rests.iter().map(|rest| rest * rest).sum::<f64>() / (count - 2.0);
    let variance = scatter * count / (below * below) / worth;
    Some(Estimate { value, variance, freedom: (count * worth - 2.0).max(1.0) })
}

/// What is left of `rests`, which add up to nothing, beside the straight line that fits them best.
fn without_trend(rests: &[f64]) -> Vec<f64> {
    let middle = (rests.len() as f64 - 1.0) / 2.0;
    let places = || (0..rests.len()).map(|number| number as f64 - middle);
    let slope = places().zip(rests).map(|(place, rest)| place * rest).sum::<f64>()
        / places().map(|place| place * place).sum::<f64>();
    places().zip(rests).map(|(place, rest)| rest - slope * place).collect()
}

/// The correlation of neighbours, 0 where they are rather unlike.
fn alike(rests: &[f64]) -> f64 {
    let all: f64 = rests.iter().map(|rest| rest * rest).sum();
    let neighbours: f64 = rests.windows(2).map(|pair| pair[0] * pair[1]).sum();
    if all > 0.0 { (neighbours / all).clamp(0.0, MOST_ALIKE) } else { 0.0 }
}

/// Welch's difference of two estimates.
#[must_use]
pub fn between(a: &Estimate, b: &Estimate) -> Difference {
    let (of_a, of_b) = (a.variance, b.variance);
    let sum = of_a + of_b;
    let freedom = sum * sum / (of_a * of_a / a.freedom + of_b * of_b / b.freedom);
    Difference { value: b.value - a.value, error: sum.sqrt(), freedom: if sum > 0.0 { freedom } else { 1.0 } }
}

/// The difference of two sides' means, by how their runs scatter. A single run is taken to scatter as those of the other
/// side; `None` where both are single, or one has none.
#[must_use]
pub fn between_runs(a: &[f64], b: &[f64]) -> Option<Difference> {
    let single = |side: &[f64], other: &[f64]| (side.len() == 1).then(|| of_runs(other)).flatten();
    if let Some(other) = single(b, a).or_else(|| single(a, b)) {
        let of_one = other.variance * (other.freedom + 1.0);
        return Some(Difference {
            value: mean(b) - mean(a),
            error: (other.variance + of_one).sqrt(),
            freedom: other.freedom,
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
    Some(Estimate { value, variance: scatter / count, freedom: count - 1.0 })
}

/// The mean of `values`.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

impl Difference {
    /// What the difference may be by accident, where `figures` are judged at once: one of them is beyond in a hundredth of
    /// comparisons (Bonferroni).
    #[must_use]
    pub fn margin(&self, figures: usize) -> f64 {
        if self.error > 0.0 {
            self.error * student(FALSE_ALARM / figures.max(1) as f64, self.freedom)
        } else {
            0.0
        }
    }
}

/// What Student's t stays within but for a chance of `outside`, both sides together.
fn student(outside: f64, freedom: f64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, freedom.clamp(1.0, 1e4)).expect("a scale and freedom above 0");
    student.inverse_cdf(1.0 - outside / 2.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    #[test]
    fn student_is_as_in_the_tables() {
        for (outside, freedom, expected) in [
            (0.01, 1.0, 63.657),
            (0.01, 4.0, 4.604),
            (0.05, 10.0, 2.228),
            (0.01, 30.0, 2.750),
            (0.001, 19.0, 3.883),
            (0.01, 1e4, 2.576),
            (0.0001, 1.0, 6366.2),
            (0.0001, 3.0, 28.000),
        ] {
            let t = student(outside, freedom);
            assert!((t / expected - 1.0).abs() < 1e-3, "{outside} {freedom}: {t} for {expected}");
        }
    }

    /// Intervals whose neighbours are alike by `alike`, of a figure that is `level`.
    fn intervals(random: &mut StdRng, alike: f64, level: f64) -> Vec<Interval> {
        let mut state = 0.0;
        let one = |number: u32| {
            state = alike * state + (random.random::<f64>() - 0.5) * (1.0 - alike);
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

    fn alarms(alike: f64, change: f64) -> usize {
        let mut random = StdRng::seed_from_u64(1);
        let flagged = |_: &usize| {
            let mut run = |level| {
                steady("throughput_ops_per_second", &intervals(&mut random, alike, level), None).unwrap()
            };
            let difference = between(&run(10.0), &run(10.0 + change));
            difference.value.abs() > difference.margin(1)
        };
        (0..400).filter(flagged).count()
    }

    #[test]
    fn what_is_the_same_is_seldom_flagged_and_what_changed_is_found() {
        for (alike, most) in [(0.0, 10), (0.5, 10), (0.9, 12)] {
            let false_alarms = alarms(alike, 0.0);
            assert!(false_alarms <= most, "{alike}: {false_alarms} of 400");
            let found = alarms(alike, 0.5);
            assert!(found >= 396, "{alike}: found {found} of 400");
        }
    }

    /// A cache fills on both sides: the hit ratio of a batch says when it was, not how far runs differ.
    #[test]
    fn a_trend_that_both_runs_have_is_no_noise() {
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
    fn several_runs_are_judged_by_their_scatter() {
        let (a, b) = ([10.0, 11.0, 9.0, 10.0], [12.0, 13.0, 11.0, 12.0]);
        let difference = between_runs(&a, &b).unwrap();
        // By hand: s^2 = 2/3 a side, error sqrt(2/3/4 * 2), 6 degrees of freedom, t = 3.707.
        assert!((difference.margin(1) - 3.707 * (1.0_f64 / 3.0).sqrt()).abs() < 1e-2, "{difference:?}");
        let single = between_runs(&a, &[12.0]).unwrap();
        assert!((single.margin(1) - 5.841 * (2.0_f64 / 3.0 * 1.25).sqrt()).abs() < 1e-2, "{single:?}");
        assert_eq!((single.value, between_runs(&[12.0], &a).unwrap().value), (2.0, -2.0));
        assert_eq!(between_runs(&[1.0], &[2.0]), None);
        assert_eq!(between_runs(&[1.0, 1.0], &[2.0, 2.0]).unwrap().margin(9), 0.0, "nothing scatters");
    }

    #[test]
    fn a_run_that_is_too_short_or_tells_nothing_has_no_estimate() {
        let interval = Interval { until_seconds: 1.0, seconds: 1.0, ops: Some(1.0), ..Interval::default() };
        assert_eq!(steady("throughput_ops_per_second", &[interval; 9], None), None);
        assert_eq!(steady("dlwa", &[interval; 99], None), None);
        assert_eq!(steady("ops", &[interval; 99], None), None);
        assert_eq!(steady("hit_ratio", &[], None), None);
    }

    /// What a second brought beside a hundred: without a trend, and with neighbours that are unlike or alike.
    const UNLIKE: [f64; 10] = [2.0, -2.0, 1.0, -1.0, 0.0, 0.0, -1.0, 1.0, -2.0, 2.0];
    const ALIKE: [f64; 10] = [1.0, 1.0, -1.0, -1.0, 0.0, 0.0, -1.0, -1.0, 1.0, 1.0];

    /// A run of seconds that brought so many operations, and as many hits of 200 gets.
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

    fn assert_estimate(estimate: Option<Estimate>, value: f64, variance: f64, freedom: f64) {
        let it = estimate.unwrap();
        let differ = [it.value - value, it.variance - variance, it.freedom - freedom];
        assert!(differ.iter().all(|it| it.abs() < 1e-9), "{it:?} for {value} {variance} {freedom}");
    }

    #[test]
    fn an_estimate_is_as_worked_out_by_hand_and_its_warm_up_and_trend_are_out_of_it() {
        let warm_up = [5000.0; 4];
        let after = |rests: [f64; 10], slope: f64| {
            let places = (0..10).map(move |number| f64::from(number) - 4.5);
            run(warm_up.into_iter().chain(places.zip(rests).map(move |(at, it)| 100.0 + it + slope * at)))
        };
        for slope in [0.0, 3.0] {
            // Squares 20 of 10 - 2 degrees of freedom: 2.5, and no neighbours alike. The sum below is 10 s, or 2000 gets.
            let unlike = after(UNLIKE, slope);
            assert_estimate(
                steady("throughput_ops_per_second", &unlike, None),
                100.0,
                2.5 * 10.0 / 100.0,
                8.0,
            );
            assert_estimate(steady("hit_ratio", &unlike, None), 0.5, 2.5 * 10.0 / 4e6, 8.0);
            // Squares 8, of neighbours 2: alike by 1/4, so that ten are worth (1 - 1/4) / (1 + 1/4) of ten.
            let alike = after(ALIKE, slope);
            assert_estimate(
                steady("throughput_ops_per_second", &alike, None),
                100.0,
                10.0 / 100.0 / 0.6,
                4.0,
            );
        }
    }

    /// A pair is 5 more and 5 less: of pairs that are one batch nothing is seen of that.
    #[test]
    fn twice_as_many_intervals_as_batches_are_batches_of_two() {
        let rests = UNLIKE.iter().chain(&UNLIKE).flat_map(|it| [100.0 + it + 5.0, 100.0 + it - 5.0]);
        let parts: Vec<(f64, f64)> = rests.map(|ops| (ops, 1.0)).collect();
        // Rests are twice those above: squares 160 of 20 - 2 degrees of freedom.
        assert_estimate(ratio_of_sums(&parts), 100.0, 160.0 / 18.0 * 20.0 / 1600.0, 18.0);
    }

    #[test]
    fn a_figure_is_the_ratio_that_its_name_says() {
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
        let unasked: Vec<Interval> = all.iter().map(|it| Interval { gets: Some(0.0), ..*it }).collect();
        assert_eq!(steady("hit_ratio_dram", &unasked, None), None, "nothing is no ratio of nothing");
    }

    #[test]
    fn a_difference_is_welchs_and_the_more_figures_are_judged_the_wider_is_its_margin() {
        let a = Estimate { value: 7.0, variance: 1.0, freedom: 4.0 };
        let b = Estimate { value: 10.0, variance: 3.0, freedom: 9.0 };
        // 4^2 / (1^2 / 4 + 3^2 / 9).
        assert_eq!(between(&a, &b), Difference { value: 3.0, error: 2.0, freedom: 12.8 });
        let certain = Estimate { value: 10.0, variance: 0.0, freedom: 1.0 };
        let alone = between(&certain, &Estimate { variance: 4.0, freedom: 19.0, ..a });
        assert_eq!(alone, Difference { value: -3.0, error: 2.0, freedom: 19.0 });
        assert!((alone.margin(10) - 2.0 * 3.883).abs() < 1e-2, "as in the tables: {}", alone.margin(10));
    }
}
