//! How numbers are written, in texts and in result files.

use std::fmt::Write;

use device::names::noun;
use serde_json::{Value, json};

use crate::run::latency::Histogram;

/// Appends a line. Writing to a string cannot fail.
pub(super) fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(out, "{text}");
}

/// Formats `1234567` as `1,234,567`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a rating in drive writes per day.
#[must_use]
pub fn drive_writes(dwpd: f64) -> String {
    format!("{dwpd} drive {} per day", if dwpd == 1.0 { "write" } else { "writes" })
}

/// Formats a count with its noun: `1 request`, `2,000 requests`.
#[must_use]
pub fn counted(count: u64, word: &str) -> String {
    format!("{} {}", grouped(count), noun(count, word))
}

/// Formats a share in percent: `0.02 %`, `24.7 %`. Rounding never makes it 0 or all.
#[must_use]
pub fn share(part: u64, whole: u64) -> String {
    let percent = 100.0 * part as f64 / whole.max(1) as f64;
    match percent {
        0.0 => "0 %".to_owned(),
        _ if part == whole => "all".to_owned(),
        _ if percent < 0.01 => "less than 0.01 %".to_owned(),
        _ if percent < 1.0 => format!("{percent:.2} %"),
        _ => format!("{:.1} %", percent.min(99.9)),
    }
}

/// The verb for `count` subjects.
#[must_use]
pub fn was(count: u64) -> &'static str {
    if count == 1 { "was" } else { "were" }
}

/// Formats a ratio in percent. `None` has no denominator and is printed as 0, as in CacheBench.
pub(super) fn percent(ratio: Option<f64>) -> String {
    format!("{:.2}%", ratio.unwrap_or(0.0) * 100.0)
}

/// A histogram for a result file, in nanoseconds; `null` percentiles if it is empty.
#[must_use]
pub fn percentiles(histogram: &Histogram) -> Value {
    json!({
        "count": histogram.count(),
        "mean": histogram.mean_ns(),
        "p50": histogram.quantile_ns(0.5),
        "p90": histogram.quantile_ns(0.9),
        "p99": histogram.quantile_ns(0.99),
        "p999": histogram.quantile_ns(0.999),
        "p9999": histogram.quantile_ns(0.9999),
        "max": histogram.max_ns(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_drive_write_is_singular() {
        let text = ["1 drive write per day", "0.5 drive writes per day", "3 drive writes per day"];
        assert_eq!([1.0, 0.5, 3.0].map(drive_writes), text);
    }
}
