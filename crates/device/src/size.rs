//! Sizes as people type them.

/// Parses a size in bytes: a number, which may have a fraction, and a unit: decimal (`GB`) or binary (`GiB`, or `G` for short). Case and
/// blanks around the unit do not matter. A fraction of a byte is dropped.
///
/// # Errors
/// The text is not such a size, or exceeds 2^64 bytes. The message quotes it and shows valid sizes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let invalid = || format!("{text:?} is not a size: write 4096, 64KiB or 1.5GiB");
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = bytes_of_unit(unit.trim()).ok_or_else(invalid)?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(invalid);
    }
    let bytes = number.parse::<f64>().ok().filter(|_| factor > 1).map(|number| number * factor as f64);
    bytes.filter(|bytes| *bytes < u64::MAX as f64).map(|bytes| bytes as u64).ok_or_else(invalid)
}

fn bytes_of_unit(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let (prefix, base) = match unit.strip_suffix('b') {
        Some(prefix) => prefix.strip_suffix('i').map_or((prefix, 1000), |prefix| (prefix, 1024)),
        None => (unit.as_str(), 1024),
    };
    let is_plain_ib = prefix.is_empty() && unit.ends_with("ib");
    let power = ["", "k", "m", "g", "t", "p"].iter().position(|known| *known == prefix);
    power.filter(|_| !is_plain_ib).map(|power| u64::pow(base, power as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_with_unit_or_fraction_is_parsed() {
        for (text, bytes) in [
            ("0", 0),
            ("2922721", 2_922_721),
            ("512b", 512),
            ("4k", 4096),
            ("64KiB", 65_536),
            ("1.5 GiB", 3 << 29),
            ("1.5G", 3 << 29),
            ("1.5 GB", 1_500_000_000),
            ("2KB", 2000),
            ("7tb", 7_000_000_000_000),
            ("1P", 1 << 50),
            ("2TiB", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn text_without_a_valid_unit_is_refused() {
        for text in
            ["", "x", "1.5", "1.5b", "-1", "1 GiBs", "1ib", "1i", "10%", "99999999999T", "1.2.3M", "."]
        {
            assert!(parse_size(text).is_err(), "{text}");
        }
        let message = parse_size("12x").unwrap_err();
        assert_eq!(message, "\"12x\" is not a size: write 4096, 64KiB or 1.5GiB");
    }
}
