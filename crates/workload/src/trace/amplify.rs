//! Amplification: each row of a trace several times, each copy with different keys.

/// Multiplication of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amplify {
    /// Copies of each row; 1 leaves the trace as it is.
    pub copies: u32,
    /// Factor by which values are lengthened.
    pub size_factor: u32,
    /// How the keys of the copies differ.
    pub rule: SuffixRule,
}

impl Default for Amplify {
    fn default() -> Self {
        Self { copies: 1, size_factor: 1, rule: SuffixRule::default() }
    }
}

/// How the keys of the copies differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SuffixRule {
    /// Appends the copy's number with at least four digits, equally many for all copies. The last digits identify the copy and the rest the
    /// key, so different keys stay different.
    #[default]
    Append,
    /// As CacheBench: first removes up to four bytes of keys longer than 16. Keys that differ only there become equal.
    Truncate,
}

const DIGITS: usize = 4;
const KEPT_BYTES: usize = 16;

impl Amplify {
    /// Converts `key` to the key of copy number `copy`.
    pub(super) fn suffix(&self, key: &mut Vec<u8>, copy: u32) {
        if self.copies <= 1 {
            return;
        }
        if self.rule == SuffixRule::Truncate && key.len() > KEPT_BYTES {
            key.truncate(KEPT_BYTES.max(key.len() - DIGITS));
        }
        let digits = match self.rule {
            SuffixRule::Append => DIGITS.max((self.copies - 1).ilog10() as usize + 1),
            SuffixRule::Truncate => DIGITS.max(copy.checked_ilog10().unwrap_or(0) as usize + 1),
        };
        let start = key.len();
        key.resize(start + digits, b'0');
        let mut rest = copy;
        for digit in key[start..].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }

    /// The length of a copy's value.
    pub(super) fn value_bytes(&self, recorded: u64) -> u64 {
        recorded.saturating_mul(u64::from(self.size_factor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn copy_of(key: &[u8], copy: u32, amplify: Amplify) -> Vec<u8> {
        let mut key = key.to_vec();
        amplify.suffix(&mut key, copy);
        key
    }

    proptest! {
        #[test]
        fn appended_suffix_keeps_different_keys_different(
            one in "[0-9a-f]{1,20}", other in "[0-9a-f]{1,20}",
            copies in 2..20_000u32, pick in any::<(u32, u32)>(),
        ) {
            let amplify = Amplify { copies, ..Amplify::default() };
            let (a, b) = (pick.0 % copies, pick.1 % copies);
            let same = copy_of(one.as_bytes(), a, amplify) == copy_of(other.as_bytes(), b, amplify);
            prop_assert_eq!(same, one == other && a == b);
        }
    }

    #[test]
    fn appended_suffix_has_at_least_four_digits() {
        let amplify = Amplify { copies: 12, ..Amplify::default() };
        assert_eq!(copy_of(b"abc", 11, amplify), b"abc0011");
        assert_eq!(copy_of(b"abc", 0, Amplify { copies: 100_001, ..amplify }), b"abc000000");
        assert_eq!(copy_of(b"abc", 0, Amplify { copies: 1, ..amplify }), b"abc");
    }

    #[test]
    fn truncated_key_equals_that_of_cachebench() {
        let amplify = Amplify { copies: 3, size_factor: 2, rule: SuffixRule::Truncate };
        assert_eq!(copy_of(b"0123456789abcdef", 2, amplify), b"0123456789abcdef0002", "16 bytes are kept");
        assert_eq!(copy_of(b"0123456789abcdefgh", 2, amplify), b"0123456789abcdef0002", "18 are cut to 16");
        assert_eq!(copy_of(b"0123456789abcdefghijkl", 1, amplify), b"0123456789abcdefgh0001");
        assert_eq!(amplify.value_bytes(10), 20);
    }
}
