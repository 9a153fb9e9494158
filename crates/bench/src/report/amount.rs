//! Figures for people: each unit as it is usually read.

use super::text::grouped;
use crate::simulate::report::bytes;

/// Largest whole number that a real one holds exactly.
const EXACT: f64 = 9e15;

/// `value` of `unit` in words.
#[must_use]
pub fn shown(value: f64, unit: &str) -> String {
    match unit {
        "B" if (0.0..EXACT).contains(&value) => bytes(value.round() as u64),
        "ns" => duration(value),
        "ratio" => format!("{value:.4}"),
        "s" => format!("{value:.2} s"),
        "ops/s" if (100.0..EXACT).contains(&value) => grouped(value.round() as u64),
        _ if is_count(value) => grouped(value as u64),
        // A mean of counts: below a thousand its fraction says something.
        _ if (1e3..EXACT).contains(&value) => grouped(value.round() as u64),
        _ if value.abs() >= 1e-3 && value.abs() < 1e9 => format!("{value:.4}"),
        _ => format!("{value:.4e}"),
    }
}

fn is_count(value: f64) -> bool {
    value.fract() == 0.0 && (0.0..EXACT).contains(&value)
}

/// Nanoseconds in the unit that leaves the fewest digits.
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

/// Up to two decimals, none of them a zero at the end.
#[must_use]
pub fn trimmed(value: f64) -> String {
    let words = format!("{value:.2}");
    words.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A count or a rate beside an axis: thousands and millions by their letters.
#[must_use]
pub(crate) fn with_prefix(rate: f64) -> String {
    match rate {
        rate if rate >= 1e6 => format!("{} M", trimmed(rate / 1e6)),
        rate if rate >= 1e3 => format!("{} k", trimmed(rate / 1e3)),
        rate => trimmed(rate),
    }
}

/// Words from a file on one line of a terminal: control characters as their codes.
#[must_use]
pub fn on_one_line(words: &str) -> String {
    let letter =
        |letter: char| if letter.is_control() { letter.escape_default().to_string() } else { letter.into() };
    words.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_beside_an_axis_are_short() {
        assert_eq!([12.0, 2500.0, 4e6].map(with_prefix), ["12", "2.5 k", "4 M"]);
    }

    /// A mean of two runs was 1234567.5000, beside counts with commas.
    #[test]
    fn means_of_counts_had_no_commas() {
        let counts = [1_234_567.0, 1_234_567.4, 2.5e12, 1000.5, 999.5].map(|count| shown(count, ""));
        assert_eq!(counts, ["1,234,567", "1,234,567", "2,500,000,000,000", "1,001", "999.5000"]);
        assert_eq!(shown(1_048_576.5, "B"), "1.00 MiB");
    }
}
