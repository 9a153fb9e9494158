//! Words and numbers of a request line.

/// The words of a line, separated by one or more spaces.
#[derive(Debug, Clone, Copy)]
pub struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    /// The words of `line`.
    #[must_use]
    pub fn of(line: &'a [u8]) -> Self {
        Self { rest: line }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|&byte| byte != b' ')?;
        let rest = &self.rest[start..];
        let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
        let (word, rest) = rest.split_at(end);
        self.rest = rest;
        Some(word)
    }
}

/// An unsigned decimal number. `None` if there is any other byte, or if it is out of range.
#[must_use]
pub fn unsigned(word: &[u8]) -> Option<u64> {
    let digits = word.strip_prefix(b"+").unwrap_or(word);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// A decimal number with an optional sign.
#[must_use]
pub fn signed(word: &[u8]) -> Option<i64> {
    match word.strip_prefix(b"-") {
        Some(digits) => unsigned(digits).and_then(|number| 0_i64.checked_sub_unsigned(number)),
        None => unsigned(word).and_then(|number| i64::try_from(number).ok()),
    }
}

/// The number that a cached value holds, as `incr` reads it: digits, and padding of spaces.
#[must_use]
pub fn stored_number(value: &[u8]) -> Option<u64> {
    let end = value.iter().position(|&byte| byte == b' ').unwrap_or(value.len());
    unsigned(&value[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_separated_by_any_number_of_spaces() {
        let words: Vec<&[u8]> = Tokens::of(b"  get  a b ").collect();
        assert_eq!(words, [&b"get"[..], b"a", b"b"]);
        assert_eq!(Tokens::of(b"   ").next(), None);
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned(b"18446744073709551616"), None);
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(signed(b"9223372036854775808"), None);
        for wrong in [&b""[..], b"-", b"+", b"1x", b"-1"] {
            assert_eq!(unsigned(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn stored_number_ignores_trailing_spaces() {
        assert_eq!(stored_number(b"9 "), Some(9));
        assert_eq!(stored_number(b" 9"), None);
        assert_eq!(stored_number(b""), None);
    }
}
