//! Pass criteria of an evaluation, and the criteria that a measurement fails.

use std::time::Duration;

use super::run::{Measured, Row};
use crate::report::amount::trimmed;
use cache::stats::FlashStats;

/// Limits that a rate must meet to pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Criteria {
    /// Maximum 99th percentile of drive read latency.
    pub max_read_p99: Duration,
    /// Maximum 99th percentile of drive write latency; `None` is no limit.
    pub max_write_p99: Option<Duration>,
    /// Minimum lifetime of the drive in years; 0 is no limit.
    pub min_years: f64,
    /// Minimum share of the offered operations that must be completed.
    pub min_reached: f64,
    /// Minimum hit ratio of gets; 0 is no limit.
    pub min_hit_ratio: f64,
    /// Operations per second at which every profile must pass; `None` accepts any rate.
    pub min_rate: Option<u64>,
}

/// Criterion of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Criterion {
    /// I/O errors, checksum errors or inconsistencies.
    Errors,
    /// Completed operations, relative to the offered ones.
    Reached,
    /// Read latency.
    ReadLatency,
    /// Write latency.
    WriteLatency,
    /// Hit ratio.
    HitRatio,
    /// Lifetime of the drive.
    Years,
}

/// A criterion that a measurement fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missed {
    /// The criterion.
    pub criterion: Criterion,
    /// The measured value and the limit.
    pub text: String,
}

impl Criterion {
    /// Short name for a table column.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Errors => "errors",
            Self::Reached => "rate",
            Self::ReadLatency => "read p99",
            Self::WriteLatency => "write p99",
            Self::HitRatio => "hit ratio",
            Self::Years => "years",
        }
    }
}

impl Criteria {
    /// The criteria that `row` fails; empty is a pass. A criterion whose value is unknown does not fail: the report shows it as
    /// unknown.
    #[must_use]
    pub fn missed(&self, row: &Row) -> Vec<Missed> {
        let (read, write) = row.device_quantiles(0.99);
        let hits = row.report.counts.hit_ratio();
        let mut missed = errors(row);
        let mut miss = |criterion, text: Option<String>| {
            missed.extend(text.map(|text| Missed { criterion, text }));
        };
        let reached = row.reached().filter(|reached| *reached < self.min_reached);
        miss(
            Criterion::Reached,
            reached.map(|it| format!("reached {}", below("of the offered rate", it, self.min_reached))),
        );
        let too_slow = |measured: Option<Duration>, most: Duration| measured.filter(|it| *it > most);
        let slow_read = too_slow(read, self.max_read_p99);
        miss(Criterion::ReadLatency, slow_read.map(|it| over("read p99", it, self.max_read_p99)));
        let slow_write = self.max_write_p99.and_then(|most| Some((too_slow(write, most)?, most)));
        miss(Criterion::WriteLatency, slow_write.map(|(it, most)| over("write p99", it, most)));
        let low = hits.filter(|hits| *hits < self.min_hit_ratio);
        miss(
            Criterion::HitRatio,
            low.map(|it| format!("answered {}", below("of the gets", it, self.min_hit_ratio))),
        );
        let short = row.years.figure().filter(|(years, _)| *years < self.min_years);
        miss(
            Criterion::Years,
            short.map(|(years, is_bound)| {
                let at_most = if is_bound { "at most " } else { "" };
                if years < 0.0995 && self.min_years >= 0.1 {
                    let least = life_text(self.min_years);
                    return format!("lasts {at_most}{}, less than {least}", life_text(years));
                }
                let text = with_distinct_digits(years_text(years), years, |shown| shown < self.min_years);
                format!("lasts {at_most}{text} years, less than {}", self.min_years)
            }),
        );
        missed
    }

    /// The passing measurement with the highest rate.
    #[must_use]
    pub fn best<'a>(&self, measured: &'a Measured) -> Option<&'a Row> {
        let passing = measured.rows.iter().filter(|row| row.offered.is_some() && self.missed(row).is_empty());
        passing.max_by_key(|row| row.offered)
    }

    /// Whether this row's rate is at least `min_rate`.
    #[must_use]
    pub fn is_enough(&self, row: &Row) -> bool {
        self.min_rate.is_none_or(|least| row.offered >= Some(least))
    }
}

fn errors(row: &Row) -> Vec<Missed> {
    let flash = row.report.snapshot.stats.flash.as_ref();
    let counted = [
        ("I/O errors", flash.map(|flash| flash.device.errors)),
        ("checksum errors", flash.map(FlashStats::checksum_errors)),
        ("inconsistencies", Some(row.report.counts.inconsistencies)),
    ];
    let some = counted.into_iter().filter_map(|(what, count)| Some((what, count.filter(|it| *it > 0)?)));
    some.map(|(what, count)| Missed { criterion: Criterion::Errors, text: format!("had {count} {what}") })
        .collect()
}

fn below(what: &str, measured: f64, least: f64) -> String {
    let percent = measured * 100.0;
    let text = with_distinct_digits(format!("{percent:.1}"), percent, |shown| shown < least * 100.0);
    format!("{text} % {what}, less than {} %", trimmed(least * 100.0))
}

fn over(what: &str, measured: Duration, most: Duration) -> String {
    let (text, limit) = (time_text(measured), time_text(most));
    // In the same unit, both may round to the same two digits.
    let text = match (text.split_once(' '), limit.split_once(' ')) {
        (Some((number, unit)), Some((of_limit, same))) if unit == same => {
            let in_unit = |time: Duration| match unit {
                "µs" => time.as_secs_f64() * 1e6,
                "ms" => time.as_secs_f64() * 1e3,
                _ => time.as_secs_f64(),
            };
            let limit = of_limit.parse().map_or(in_unit(most), |shown: f64| shown.max(in_unit(most)));
            format!(
                "{} {unit}",
                with_distinct_digits(number.to_owned(), in_unit(measured), |shown| shown > limit)
            )
        }
        _ => text,
    };
    format!("had a {what} of {text}, more than {limit}")
}

/// Adds decimals to `text` until the printed value also exceeds the limit, if `value` does.
fn with_distinct_digits(text: String, value: f64, is_beyond: impl Fn(f64) -> bool) -> String {
    let shows_excess = |text: &String| text.parse().is_ok_and(&is_beyond);
    if shows_excess(&text) || !is_beyond(value) {
        return text;
    }
    (1..=9).map(|decimals| format!("{value:.decimals$}")).find(shows_excess).unwrap_or(text)
}

/// Formats a duration with two or three digits.
#[must_use]
pub fn time_text(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    match micros {
        micros if micros < 9.95 => format!("{micros:.1} µs"),
        micros if micros < 999.5 => format!("{micros:.0} µs"),
        micros if micros < 9_950.0 => format!("{:.1} ms", micros / 1e3),
        micros if micros < 999_500.0 => format!("{:.0} ms", micros / 1e3),
        micros => format!("{:.1} s", micros / 1e6),
    }
}

/// Formats years; 1000 and more are `1000+`.
#[must_use]
pub fn years_text(years: f64) -> String {
    match years {
        years if years <= 0.0 => "0".to_owned(),
        // Two significant digits: a drive may wear out within an hour.
        years if years < 0.995 => {
            let decimals = (1 - years.log10().floor() as i32).clamp(2, 9) as usize;
            format!("{years:.decimals$}")
        }
        years if years < 99.5 => format!("{years:.1}"),
        years if years < 1000.0 => format!("{years:.0}"),
        _ => "1000+".to_owned(),
    }
}

/// Formats a lifetime in years, days, hours, minutes or seconds.
#[must_use]
pub fn life_text(years: f64) -> String {
    let days = years * 365.25;
    let of = |count: f64, unit: &str| match format!("{count:.0}").as_str() {
        "1" => format!("1 {unit}"),
        count => format!("{count} {unit}s"),
    };
    match days {
        days if years >= 0.0995 => match years_text(years).as_str() {
            "1.0" => "1 year".to_owned(),
            text => format!("{} years", text.strip_suffix(".0").filter(|_| days > 365.25).unwrap_or(text)),
        },
        days if days >= 1.95 => of(days, "day"),
        days if days * 24.0 >= 1.95 => of(days * 24.0, "hour"),
        days if days * 1440.0 >= 1.95 => of(days * 1440.0, "minute"),
        days => of(days * 86_400.0, "second"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_years_round_to_significant_digits() {
        let times = [8_400, 61_000, 1_234_000, 45_000_000, 3_000_000_000].map(Duration::from_nanos);
        assert_eq!(times.map(time_text), ["8.4 µs", "61 µs", "1.2 ms", "45 ms", "3.0 s"]);
        assert_eq!([0.123, 4.96, 120.4, 1e9].map(years_text), ["0.12", "5.0", "120", "1000+"]);
    }

    #[test]
    fn life_uses_smaller_units_below_a_tenth_of_a_year() {
        let years = [0.0, 0.000_012, 0.0035, 0.0536, 0.0999];
        assert_eq!(years.map(years_text), ["0", "0.000012", "0.0035", "0.054", "0.100"]);
        let lives = [0.0, 4e-7, 1e-5, 0.000_5, 0.0035, 0.0535, 0.0999, 0.5, 1.0, 4.96, 5.8, 120.4, 1e9];
        let texts = [
            "0 seconds",
            "13 seconds",
            "5 minutes",
            "4 hours",
            "31 hours",
            "20 days",
            "0.100 years",
            "0.50 years",
        ];
        let more = ["1 year", "5 years", "5.8 years", "120 years", "1000+ years"];
        assert_eq!(lives.map(life_text)[..], [&texts[..], &more].concat());
    }
}
