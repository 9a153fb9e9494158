//! fio's numbers, sizes, times and lists.

/// A size in bytes or as a share of the drive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// Bytes.
    Bytes(u64),
    /// A share of the whole.
    Share(f64),
}

impl Amount {
    /// Bytes of this amount, for a whole of `whole` bytes. `divisor` divides amounts in bytes.
    #[must_use]
    pub fn of(self, whole: u64, divisor: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes / divisor.max(1),
            Self::Share(share) => (whole as f64 * share) as u64,
        }
    }
}

/// A whole number with fio's suffixes. With `kb_base` 1024, fio's default, `k` is 1024 and `ki` is 1000; with 1000 it is the other
/// way round.
pub(super) fn bytes(text: &str, kb_base: u32) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size: write 4096, 4k or 1g");
    let text = text.trim();
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16).map_err(|_| wrong());
    }
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let suffix = suffix.to_ascii_lowercase();
    let prefix = suffix.strip_suffix('b').unwrap_or(&suffix);
    let (prefix, is_binary_name) = prefix.strip_suffix('i').map_or((prefix, false), |prefix| (prefix, true));
    let power = match prefix {
        "" if !is_binary_name => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(wrong()),
    };
    let base: u64 = if is_binary_name == (kb_base == 1000) { 1024 } else { 1000 };
    let number = number.parse::<u64>().map_err(|_| wrong())?;
    number.checked_mul(base.pow(power)).ok_or_else(wrong)
}

/// A size, or a percentage.
pub(super) fn amount(text: &str, kb_base: u32) -> Result<Amount, String> {
    match text.trim().strip_suffix('%') {
        Some(percent) => match percent.trim().parse::<f64>() {
            Ok(percent) if (0.0..=1e6).contains(&percent) => Ok(Amount::Share(percent / 100.0)),
            _ => Err(format!("{percent:?} is not a percentage")),
        },
        None => bytes(text, kb_base).map(Amount::Bytes),
    }
}

/// A percentage from 0 to 100, without its sign, as a share.
pub(super) fn percentage(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err(format!("{text:?} is not a percentage from 0 to 100")),
    }
}

/// Nanoseconds; `plain_ns` is the unit of a number without a suffix.
pub(super) fn nanoseconds(text: &str, plain_ns: u64) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a time: write 30s, 500ms, 20us, 5m or 1h");
    let text = text.trim();
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let unit_ns = match suffix.to_ascii_lowercase().as_str() {
        "" => plain_ns,
        "us" | "usec" => 1_000,
        "ms" | "msec" => 1_000_000,
        "s" | "sec" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return Err(wrong()),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_ns)).ok_or_else(wrong)
}

/// A whole number without a suffix, from `least`.
pub(super) fn count(text: &str, least: u64) -> Result<u64, String> {
    match text.trim().parse::<u64>() {
        Ok(count) if count >= least => Ok(count),
        _ => Err(format!("{text:?} is not a whole number of at least {least}")),
    }
}

/// fio's booleans. A key without a value is true.
pub(super) fn flag(text: &str) -> Result<bool, String> {
    match text.trim() {
        "" | "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(format!("{text:?} is neither 0 nor 1")),
    }
}

/// Up to three values, separated by `separator`, for reads, writes and trims. One that is missing or empty is that of the
/// directions before it, as in fio.
pub(super) fn for_each_kind<T: Clone>(
    text: &str,
    separator: char,
    mut parse: impl FnMut(&str) -> Result<T, String>,
) -> Result<[Option<T>; 3], String> {
    let parts: Vec<&str> = text.split(separator).collect();
    if parts.len() > 3 {
        return Err(format!("{text:?} has more than three values (reads, writes, trims)"));
    }
    let mut values: [Option<T>; 3] = [None, None, None];
    for (value, part) in values.iter_mut().zip(&parts) {
        if !part.trim().is_empty() {
            *value = Some(parse(part)?);
        }
    }
    // "4k" is for all directions; in "4k,8k" trims are as writes; in ",8k" reads keep their default.
    if parts.len() < 3 {
        for at in parts.len()..3 {
            values[at] = values[at - 1].clone();
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_with_suffix_follow_kb_base() {
        for (text, of_1024, of_1000) in [
            ("4096", 4096, 4096),
            ("4k", 4096, 4000),
            ("4K", 4096, 4000),
            ("4kb", 4096, 4000),
            ("4ki", 4000, 4096),
            ("4KiB", 4000, 4096),
            ("1g", 1 << 30, 1_000_000_000),
            ("0x1000", 4096, 4096),
        ] {
            assert_eq!((bytes(text, 1024), bytes(text, 1000)), (Ok(of_1024), Ok(of_1000)), "{text}");
        }
        for wrong in ["", "k", "4x", "-4k", "4.5k", "99999999999p", "i"] {
            assert!(bytes(wrong, 1024).is_err(), "{wrong}");
        }
    }

    #[test]
    fn amounts_are_bytes_or_shares_of_the_whole() {
        assert_eq!(amount("90%", 1024).unwrap().of(1000, 4), 900);
        assert_eq!(amount("1k", 1024).unwrap().of(1000, 4), 256);
        assert_eq!(amount("200%", 1024).unwrap().of(1000, 4), 2000);
        assert!(amount("-1%", 1024).is_err());
    }

    #[test]
    fn times_without_suffix_use_the_unit_of_the_key() {
        assert_eq!(nanoseconds("30", 1_000_000_000), Ok(30_000_000_000));
        assert_eq!(nanoseconds("30", 1_000), Ok(30_000));
        assert_eq!(nanoseconds("5m", 1_000), Ok(300_000_000_000));
        assert!(nanoseconds("5x", 1).is_err());
    }

    #[test]
    fn missing_directions_take_the_value_before_them() {
        let parse = |text: &str| count(text, 0);
        assert_eq!(for_each_kind("1", ',', parse), Ok([Some(1), Some(1), Some(1)]));
        assert_eq!(for_each_kind("1,2", ',', parse), Ok([Some(1), Some(2), Some(2)]));
        assert_eq!(for_each_kind(",2,", ',', parse), Ok([None, Some(2), None]));
        assert!(for_each_kind("1,2,3,4", ',', parse).is_err());
    }
}
