//! Little-endian fields of a data structure that a drive returned. A field past the end is `None`: data that the drive did not send is
//! unknown, not zero.

use std::fmt;

/// A data structure that is too short or inconsistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// Name of the structure.
    pub page: &'static str,
    /// Bytes required at least.
    pub needed_bytes: usize,
    /// Bytes present.
    pub given_bytes: usize,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { page, needed_bytes, given_bytes } = self;
        write!(f, "the {page} needs {needed_bytes} bytes, but has {given_bytes}")
    }
}

impl std::error::Error for Malformed {}

/// The bytes of a structure, long enough for all fields at fixed positions.
#[derive(Clone, Copy)]
pub(super) struct Page<'a>(&'a [u8]);

impl<'a> Page<'a> {
    /// `bytes`, if they are at least `needed_bytes` long.
    pub(super) fn of(page: &'static str, bytes: &'a [u8], needed_bytes: usize) -> Result<Self, Malformed> {
        match bytes.len() {
            given_bytes if given_bytes < needed_bytes => Err(Malformed { page, needed_bytes, given_bytes }),
            _ => Ok(Self(bytes)),
        }
    }

    /// The `N` bytes at `at`.
    ///
    /// # Panics
    /// If they lie outside the length checked by [`of`](Self::of).
    pub(super) fn bytes<const N: usize>(self, at: usize) -> [u8; N] {
        *self.0[at..].first_chunk().expect("fields lie within the length that `of` was given")
    }

    pub(super) fn u8(self, at: usize) -> u8 {
        self.0[at]
    }

    pub(super) fn u16(self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }

    pub(super) fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }

    pub(super) fn u64(self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }

    pub(super) fn u128(self, at: usize) -> u128 {
        u128::from_le_bytes(self.bytes(at))
    }

    /// An unsigned number of `N` bytes (for 6 and 7 byte counters).
    pub(super) fn narrow<const N: usize>(self, at: usize) -> u64 {
        let mut wide = [0; 8];
        wide[..N].copy_from_slice(&self.bytes::<N>(at));
        u64::from_le_bytes(wide)
    }

    /// Text without its space padding. Non-ASCII bytes become question marks, because the text is printed to terminals.
    pub(super) fn text(self, at: usize, len: usize) -> String {
        let printable =
            |&byte: &u8| if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '?' };
        let field = self.0[at..at + len].split(|&byte| byte == 0).next().unwrap_or_default();
        field.iter().map(printable).collect::<String>().trim().to_owned()
    }

    /// The bytes from `at` to the end.
    pub(super) fn rest(self, at: usize) -> &'a [u8] {
        &self.0[at..]
    }
}

/// Converts counters in which NVMe reserves zero for "not reported".
pub(super) fn reported<T: Default + PartialEq>(value: T) -> Option<T> {
    (value != T::default()).then_some(value)
}

/// Tests for every decoder: each prefix of a valid page, and thousands of random pages.
#[cfg(test)]
pub(super) mod torture {
    use super::Malformed;
    use rand::rngs::StdRng;
    use rand::{Rng, RngExt, SeedableRng};

    /// Each prefix shorter than `needed_bytes` must be rejected with its length, each longer one accepted.
    pub(in super::super) fn prefixes<T: std::fmt::Debug>(
        good: &[u8],
        needed_bytes: usize,
        decode: impl Fn(&[u8]) -> Result<T, Malformed>,
    ) {
        for len in 0..=good.len() {
            match decode(&good[..len]) {
                Ok(_) => assert!(len >= needed_bytes, "{len} bytes were accepted"),
                Err(error) => {
                    assert!(len < needed_bytes, "{len} bytes were rejected: {error}");
                    assert_eq!(error.given_bytes, len);
                }
            }
        }
    }

    /// Random bytes of every length, and valid pages with some bytes overwritten: decoders must not panic.
    pub(in super::super) fn noise<T>(good: &[u8], decode: impl Fn(&[u8]) -> T) {
        let mut random = StdRng::seed_from_u64(0xF1A5);
        for _ in 0..2000 {
            let mut noise = vec![0; random.random_range(0..=good.len() + 64)];
            random.fill_bytes(&mut noise);
            decode(&noise);
            let mut bent = good.to_vec();
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(0..bent.len());
                bent[at] = random.random();
            }
            decode(&bent);
        }
    }
}
