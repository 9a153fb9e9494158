//! Formats figures as text, with the usual prefixes of each unit.

use super::numbers::grouped;
use crate::simulate::report::bytes;

/// Up to this value, an `f64` represents every integer exactly.
const EXACT: f64 = 9e15;

/// Formats `value`, which has the unit `unit`.
#[must_use]
pub fn shown(value: f64, unit: &str) -> String {
    match unit {
        "B" if (0.0..EXACT).contains(&value) => bytes(value.round() as u64),
        "ns" => duration(value),
        "ratio" => format!("{value:.4}"),
        "s" => format!("{value:.2} s"),
        "ops/s" if (100.0..EXACT).contains(&value) => grouped(value.round() as u64),
        _ if is_count(value) => grouped(value as u64),
        // A mean of counts keeps its fraction only below a thousand.
        _ if (1e3..EXACT).contains(&value) => grouped(value.round() as u64),
        _ if value.abs() >= 1e-3 && value.abs() < 1e9 => format!("{value:.4}"),
        _ => format!("{value:.4e}"),
    }
}

fn is_count(value: f64) -> bool {
    value.fract() == 0.0 && (0.0..EXACT).contains(&value)
}

/// Formats nanoseconds in the unit with the fewest digits.
#[must_use]
pub fn duration(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    format!("{} {unit}", trimmed(value))
}

/// Formats with at most two decimals and no trailing zeros.
#[must_use]
pub fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats a count or a rate for an axis, with the prefixes k and M.
#[must_use]
pub(crate) fn with_prefix(rate: f64) -> String {
    match rate {
        rate if rate >= 1e6 => format!("{} M", trimmed(rate / 1e6)),
        rate if rate >= 1e3 => format!("{} k", trimmed(rate / 1e3)),
        rate => trimmed(rate),
    }
}

/// Escapes control characters, so that text from a file fits on one line of a terminal.
#[must_use]
pub fn on_one_line(text: &str) -> String {
    let letter =
        |letter: char| if letter.is_control() { letter.escape_default().to_string() } else { letter.into() };
    text.chars().map(letter).collect()
}

/// At most `most` characters of a text; an ellipsis marks what is cut.
pub(super) fn cut(text: &str, most: usize) -> String {
    let cut: String = text.chars().take(most).collect();
    if cut.len() < text.len() { cut + "…" } else { cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_labels_use_unit_prefixes() {
        assert_eq!([12.0, 2500.0, 4e6].map(with_prefix), ["12", "2.5 k", "4 M"]);
    }

    #[test]
    fn mean_of_counts_is_rounded_and_grouped() {
        let counts = [1_234_567.0, 1_234_567.4, 2.5e12, 1000.5, 999.5].map(|count| shown(count, ""));
        assert_eq!(counts, ["1,234,567", "1,234,567", "2,500,000,000,000", "1,001", "999.5000"]);
        assert_eq!(shown(1_048_576.5, "B"), "1.00 MiB");
    }
}
