//! Whether a run was long enough: whether its figures had stopped changing when it ended.
//!
//! The second half of the measured time is divided into equal parts, and each figure is tested over them by the rule for
//! preconditioning a drive ([`crate::steady`]). A run that is not steady did not fail; its figures depend on its length.

use serde_json::{Value, json};

use cache::stats::FlashStats;

use super::RunReport;
use super::series::Span;
use crate::run::InstanceReport;
use crate::run::counts::ratio;
use crate::steady::{ROUNDS, is_steady};

/// Steadiness of a run's figures at its end, over all instances together.
#[derive(Debug, Clone, PartialEq)]
pub struct Steadiness {
    /// Start of the first part, in seconds since the start of the run.
    pub from_seconds: f64,
    /// Length of a part.
    pub part_seconds: f64,
    /// The figures by name; `None` if unknown, or if there were too few samples.
    pub figures: [(&'static str, Option<Trend>); 4],
}

/// A figure over the parts of the second half of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// Whether it had stopped changing.
    pub steady: bool,
    /// Value in the first part.
    pub first: f64,
    /// Value in the last part.
    pub last: f64,
}

/// Samples that a part needs, so that its value is independent of its neighbours'.
const SAMPLES_PER_PART: usize = 2;

/// Counters of one part.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    ops: f64,
    gets: f64,
    hits: f64,
    settled: Option<f64>,
    settled_host: Option<f64>,
    host: Option<f64>,
    media: Option<f64>,
}

impl Steadiness {
    /// The steadiness of `report`'s run.
    #[must_use]
    pub fn of(report: &RunReport) -> Self {
        let totals = report.totals();
        let warm_seconds = totals.warmup.map_or(0.0, |warmup| warmup.seconds);
        let part_seconds = totals.seconds / 2.0 / ROUNDS as f64;
        let from_seconds = warm_seconds + totals.seconds / 2.0;
        let spans: Vec<Span> = report.series.spans().collect();
        let samples = spans.iter().filter(|span| span.until_seconds > from_seconds).count();
        let parts = (samples >= SAMPLES_PER_PART * ROUNDS).then(|| parts(&spans, from_seconds, part_seconds));
        let trend = |value: &dyn Fn(&Part) -> Option<f64>| {
            let values: Option<Vec<f64>> = parts.as_ref()?.iter().map(value).collect();
            let values = values?;
            Some(Trend { steady: is_steady(&values), first: *values.first()?, last: *values.last()? })
        };
        let of = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let figures = [
            ("hit_ratio", trend(&|part| of(part.hits, part.gets))),
            ("throughput_ops_per_second", trend(&|part| of(part.ops, part_seconds))),
            ("alwa", trend(&|part| of(part.settled_host?, part.settled?))),
            ("dlwa", trend(&|part| of(part.media?, part.host?))),
        ];
        Self { from_seconds, part_seconds, figures }
    }

    /// Its figures for the result file.
    #[must_use]
    pub fn to_json(&self, filled: Option<bool>) -> Value {
        let mut all = json!({
            "from_seconds": self.from_seconds,
            "part_seconds": self.part_seconds,
            "parts": ROUNDS,
            "flash_filled": filled,
        });
        for (name, trend) in &self.figures {
            let trend = trend.map(|it| json!({ "steady": it.steady, "first": it.first, "last": it.last }));
            all[*name] = trend.into();
        }
        all
    }

    /// The warning for figures that are not steady.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        let unsteady = self.figures.iter().filter_map(|(name, trend)| {
            let trend = trend.filter(|it| !it.steady && it.first.max(it.last) > 0.0)?;
            Some(text(name, trend))
        });
        let unsteady: Vec<String> = unsteady.collect();
        let (from, to) = (self.from_seconds, self.from_seconds + self.part_seconds * ROUNDS as f64);
        let figures = unsteady.join(", ");
        (!unsteady.is_empty())
            .then(|| format!("Not steady from {from:.1} s to the end at {to:.1} s: {figures}. Run longer"))
    }
}

fn text(name: &str, trend: Trend) -> String {
    let Trend { first, last, .. } = trend;
    let direction = match last / first {
        change if change > 1.05 => "was rising",
        change if change < 0.95 => "was falling",
        _ => "fluctuated",
    };
    match name {
        "throughput_ops_per_second" => format!("throughput {direction} ({first:.0} to {last:.0} ops/s)"),
        "alwa" | "dlwa" => format!("{name} {direction} ({first:.2} to {last:.2})"),
        _ => format!("hit ratio {direction} ({:.2}% to {:.2}%)", first * 100.0, last * 100.0),
    }
}

/// The counters of each part. A span that overlaps two parts is divided between them by time.
fn parts(spans: &[Span], from_seconds: f64, part_seconds: f64) -> [Part; ROUNDS] {
    let zero = Some(0.0);
    let nothing = Part { settled: zero, settled_host: zero, host: zero, media: zero, ..Part::default() };
    let mut all = [nothing; ROUNDS];
    for span in spans {
        let settled = span.flash.as_ref().map(FlashStats::settled_bytes);
        let device = span.flash.as_ref().map(|flash| flash.device);
        let begun = span.until_seconds - span.seconds;
        for (number, part) in all.iter_mut().enumerate() {
            let start = from_seconds + part_seconds * number as f64;
            let common = span.until_seconds.min(start + part_seconds) - begun.max(start);
            let share = (common / span.seconds).max(0.0);
            let add = |sum: Option<f64>, more: Option<u64>| match share > 0.0 {
                true => Some(sum? + share * more? as f64),
                false => sum,
            };
            part.ops += share * span.counts.ops as f64;
            part.gets += share * span.counts.gets as f64;
            part.hits += share * span.counts.gets.saturating_sub(span.counts.get_misses) as f64;
            part.settled = add(part.settled, settled.map(|it| it.0));
            part.settled_host = add(part.settled_host, settled.map(|it| it.1));
            part.host = add(part.host, device.map(|it| it.written_bytes));
            part.media = add(part.media, device.and_then(|it| it.media_written_bytes));
        }
    }
    all
}

/// Whether the whole flash was written once, during the warm-up, after it, or by an earlier run; `None` without flash.
#[must_use]
pub fn was_filled(report: &InstanceReport) -> Option<bool> {
    report.snapshot.is_filled_by(written(report)?)
}

fn written(report: &InstanceReport) -> Option<u64> {
    let before = report.warmup.map_or(0, |warmup| warmup.flash_bytes);
    Some(report.snapshot.stats.flash.as_ref()?.device.written_bytes + before)
}

/// The warning for flash that was not filled once.
#[must_use]
pub fn unfilled_remark(report: &InstanceReport) -> Option<String> {
    const GIB: f64 = (1_u64 << 30) as f64;
    let written = written(report).filter(|bytes| *bytes > 0 && was_filled(report) == Some(false))?;
    let capacity = report.snapshot.device.as_ref()?.capacity_bytes;
    let share = ratio(written, capacity)? * 100.0;
    Some(format!(
        "Flash was not filled once ({:.2} of {:.2} GiB, {share:.0}%): its write amplification is not yet that of a full cache",
        written as f64 / GIB,
        capacity as f64 / GIB
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tails::Tails;
    use super::*;
    use crate::run::counts::Counts;
    use cache::stats::RegionStats;

    fn span(second: u32, hits: u64, host: u64) -> Span {
        let regions =
            RegionStats { settled_bytes: 100, settled_written_bytes: host, ..RegionStats::default() };
        let mut flash = FlashStats { regions: Some(regions), ..FlashStats::default() };
        flash.device.written_bytes = host;
        let counts = Counts { ops: 1000, gets: 1000, get_misses: 1000 - hits, ..Counts::default() };
        Span {
            until_seconds: f64::from(second + 1),
            seconds: 1.0,
            counts,
            flash: Some(flash),
            tails: Tails::default(),
        }
    }

    #[test]
    fn spans_across_the_edge_of_a_part_are_divided_by_time() {
        let spans: Vec<Span> = (0..20).map(|second| span(second, u64::from(second), 200)).collect();
        let parts = parts(&spans, 10.5, 1.5);
        assert!(parts.iter().all(|part| (part.ops - 1500.0).abs() < 1e-6));
        assert!(
            (parts[0].hits - (5.0 + 11.0)).abs() < 1e-6,
            "half of the eleventh second, all of the twelfth"
        );
        assert!((parts[4].host.unwrap() / parts[4].settled.unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(parts[4].media, None);
    }

    #[test]
    fn long_span_is_divided_by_time_and_a_span_before_the_parts_is_ignored() {
        let before = Span { flash: None, ..span(9, 500, 0) };
        let long = Span { until_seconds: 14.0, seconds: 4.0, ..span(0, 500, 400) };
        for part in parts(&[before, long], 10.0, 0.8) {
            let off = [part.ops - 200.0, part.hits - 100.0, part.host.unwrap() - 80.0];
            assert!(off.iter().all(|off| off.abs() < 1e-6), "{part:?}");
        }
    }

    #[test]
    fn unsteady_figure_is_reported_with_its_direction() {
        let rising = Trend { steady: false, first: 0.5, last: 0.75 };
        let steady = Trend { steady: true, first: 1.0, last: 1.0 };
        let figures = [
            ("hit_ratio", Some(rising)),
            ("throughput_ops_per_second", Some(steady)),
            ("alwa", None),
            ("dlwa", None),
        ];
        let steadiness = Steadiness { from_seconds: 10.0, part_seconds: 2.0, figures };
        let remark = "Not steady from 10.0 s to the end at 20.0 s: hit ratio was rising (50.00% to 75.00%). Run longer";
        assert_eq!(steadiness.remark().as_deref(), Some(remark));
    }
}
