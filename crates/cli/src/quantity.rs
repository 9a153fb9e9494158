//! Parses quantities on the command line.

use std::time::Duration;

pub use device::size::parse_size as bytes;

/// A share: `7%` or `0.07`. A plain number above 1 is rejected as ambiguous.
pub fn share(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    let value = number.trim().parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
    match value {
        Some(value) if factor > 1.0 || value <= 1.0 => Ok(value / factor),
        Some(_) => Err(format!("{text} is ambiguous: write {text}%, or a fraction from 0 to 1")),
        None => Err(format!("{text:?} is not a percentage or fraction: write 7% or 0.07")),
    }
}

/// A scale: `1/64`, or `1`.
pub fn scale(text: &str) -> Result<u32, String> {
    let divisor = text.strip_prefix("1/").unwrap_or(text).trim();
    let is_whole = text == divisor && divisor != "1";
    match divisor.parse::<u32>() {
        Ok(divisor) if divisor > 0 && !is_whole => Ok(divisor),
        _ => Err(format!("{text:?} is not a scale: write 1/64")),
    }
}

/// A time: `10s`, `500ms`, `5m`, `1h`; a plain number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let millis = match unit {
        "ms" => Some(1),
        "" | "s" => Some(1000),
        "m" | "min" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let millis =
        number.parse::<u64>().ok().zip(millis).and_then(|(number, factor)| number.checked_mul(factor));
    match millis {
        Some(millis) if millis > 0 => Ok(Duration::from_millis(millis)),
        _ => Err(format!("{text:?} is not a duration: write 10s, 500ms, 5m or 1h")),
    }
}

/// A share of at most 100%.
pub fn part(text: &str) -> Result<f64, String> {
    match share(text)? {
        part if part <= 1.0 => Ok(part),
        _ => Err(format!("{text} is more than 100%")),
    }
}

/// A time as [`duration`] reads it, or a short one in `us`.
pub fn fine_duration(text: &str) -> Result<Duration, String> {
    match text.strip_suffix("us").or_else(|| text.strip_suffix("µs")).map(str::parse::<u64>) {
        None => duration(text),
        Some(Ok(micros)) if micros > 0 => Ok(Duration::from_micros(micros)),
        Some(_) => Err(format!("{text:?} is not a duration: write 200us, 5ms or 1s")),
    }
}

/// A number above 0.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err(format!("{text:?} is not a number above 0")),
    }
}

/// A count of at least one, as [`number`] parses it.
pub fn count<N: TryFrom<u64>>(text: &str) -> Result<N, String> {
    match number::<u64>(text) {
        Ok(0) => Err(format!("{text:?} is not a whole number above 0")),
        _ => number(text),
    }
}

/// A whole number: `1000000`, `1000k` or `1M`.
pub fn number<N: TryFrom<u64>>(text: &str) -> Result<N, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" => Some(1),
        "k" | "K" => Some(1000_u64),
        "M" => Some(1_000_000),
        "G" => Some(1_000_000_000),
        _ => None,
    };
    let (number, factor) =
        number.parse::<u64>().ok().zip(factor).ok_or_else(|| {
            format!("{text:?} is not a whole number: write 1000000, 1000k or 1M (k is 1000)")
        })?;
    let count = number.checked_mul(factor).and_then(|count| N::try_from(count).ok());
    count.ok_or_else(|| format!("{text} is too large"))
}

/// A number above `above` and up to `most`.
pub fn within(text: &str, above: f64, most: f64) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > above && value <= most => Ok(value),
        _ => Err(format!("{text:?} is not a number above {above} and at most {most}")),
    }
}

/// Write amplification: media bytes over host bytes.
pub fn amplification(text: &str) -> Result<f64, String> {
    match positive(text)? {
        value if value < 1.0 => Err(format!(
            "a write amplification of {text} is less than 1: a drive without compression writes at least what the host does"
        )),
        value => Ok(value),
    }
}

/// A number of at least 0.
pub fn amount(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value >= 0.0 && value.is_finite() => Ok(value),
        _ => Err(format!("{text:?} is not a number of 0 or more")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_a_percentage_or_fraction() {
        assert_eq!(share("7%"), Ok(0.07));
        assert_eq!(share("0.07"), Ok(0.07));
        assert_eq!(share("150%"), Ok(1.5));
        for wrong in ["7", "-1%", "x%", "", "nan", "inf"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_accept_units() {
        for (text, millis) in
            [("10s", 10_000), ("10", 10_000), ("500ms", 500), ("5m", 300_000), ("1h", 3_600_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for wrong in ["", "s", "0", "1.5s", "-1", "1d", "99999999999999999999"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_accept_thousands_suffixes() {
        for (text, expected) in [("7", 7), ("200k", 200_000), ("10M", 10_000_000), ("2G", 2_000_000_000)] {
            assert_eq!(count::<u64>(text), Ok(expected), "{text}");
        }
        for wrong in ["", "k", "-1", "1.5k", "1Ki", "1KiB", "1 k"] {
            assert!(count::<u64>(wrong).unwrap_err().contains("is not a whole number: write"), "{wrong}");
        }
        for nothing in ["0", "0k"] {
            assert_eq!(number::<u32>(nothing), Ok(0));
            assert!(
                count::<u32>(nothing).unwrap_err().contains("is not a whole number above 0"),
                "{nothing}"
            );
        }
        for much in ["5000M", "4294967296"] {
            assert!(count::<u32>(much).unwrap_err().contains("is too large"), "{much}");
        }
        assert!(count::<u64>("99999999999999999G").is_err());
    }

    #[test]
    fn scale_is_one_divided_by_a_number() {
        assert_eq!((scale("1/64"), scale("1")), (Ok(64), Ok(1)));
        for wrong in ["64", "1/0", "2/3", "1/x", ""] {
            assert!(scale(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn write_amplification_is_at_least_one() {
        assert_eq!((amplification("1"), amplification("1.3")), (Ok(1.0), Ok(1.3)));
        assert!(amplification("0.5").unwrap_err().contains("0.5 is less than 1"));
        for wrong in ["-1", "nan", "inf", "0", "1x"] {
            assert!(amplification(wrong).is_err(), "{wrong}");
        }
    }
}
