//! The flash format of an entry: a header, the key, the value.
//!
//! ```text
//!  0        4        8             16        20        24       26    28      30      32
//!  | header | value  | key hash    | value   | expiry  | key    | tag | magic | flags | key … | value … | zeros
//!  | crc32c | crc32c | (xxh3-64)   | bytes   | seconds | bytes  |     |       |       |       |         | to the unit
//! ```
//! All numbers are little-endian. The header's checksum covers the bytes behind it up to the end of the key and is masked by the [`Seal`]
//! of the region: an entry written for another content of the region, or by another store, does not verify even if it is intact.

use std::ops::Range;

use device::checksum::crc32c;

use crate::KeyHash;
use crate::flash::FlashItem;

const VALUE_CRC: usize = 4;
const HASH: usize = VALUE_CRC + 4;
const VALUE_LEN: usize = HASH + 8;
const EXPIRY: usize = VALUE_LEN + 4;
const KEY_LEN: usize = EXPIRY + 4;
const TAG: usize = KEY_LEN + 2;
const MAGIC: usize = TAG + 2;
const FLAGS: usize = MAGIC + 2;
/// Bytes before the key.
pub const HEADER_BYTES: usize = FLAGS + 2;

const MAGIC_VALUE: u16 = 0xF1A5;
/// The value carries a checksum.
const FLAG_VALUE_CRC: u16 = 1;

/// Hits are counted up to this (three bits of an index record).
pub(crate) const MAX_HITS: u8 = 7;
/// Longest key.
pub const MAX_KEY_BYTES: usize = u16::MAX as usize;

/// A mask that binds checksums to one filling of one region of one store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seal(u32);

impl Seal {
    /// Sequence numbers less than 2^32 apart always give different seals: a CRC detects every burst of up to 32 bits.
    pub(crate) fn of(store: u64, sequence: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&store.to_le_bytes());
        bytes[8..].copy_from_slice(&sequence.to_le_bytes());
        Self(crc32c(&bytes))
    }

    /// The mask.
    #[cfg(feature = "fuzzing")]
    pub(super) fn mask(self) -> u32 {
        self.0
    }
}

/// Bytes an entry takes before it is rounded up to units.
pub(crate) fn entry_bytes(key_len: usize, value_len: usize) -> usize {
    HEADER_BYTES + key_len + value_len
}

/// Encodes `item` into `into` and zeroes the remainder.
pub(crate) fn encode(item: &FlashItem<'_>, value_checksum: bool, seal: Seal, into: &mut [u8]) {
    let value_len = item.value_len();
    let value_start = HEADER_BYTES + item.key.len();
    let end = value_start + value_len;
    into[HEADER_BYTES..value_start].copy_from_slice(item.key);
    item.copy_value(&mut into[value_start..end]);
    into[end..].fill(0);

    let (value_crc, flags) =
        if value_checksum { (crc32c(&into[value_start..end]), FLAG_VALUE_CRC) } else { (0, 0) };
    let value_len = u32::try_from(value_len).expect("an entry fits a region, which is at most 1 GiB");
    let key_len = u16::try_from(item.key.len()).expect("longer keys are refused");
    into[VALUE_CRC..HASH].copy_from_slice(&value_crc.to_le_bytes());
    into[HASH..VALUE_LEN].copy_from_slice(&item.hash.0.to_le_bytes());
    into[VALUE_LEN..EXPIRY].copy_from_slice(&value_len.to_le_bytes());
    into[EXPIRY..KEY_LEN].copy_from_slice(&item.expiry_seconds.to_le_bytes());
    into[KEY_LEN..TAG].copy_from_slice(&key_len.to_le_bytes());
    into[TAG..MAGIC].copy_from_slice(&item.tag.to_le_bytes());
    into[MAGIC..FLAGS].copy_from_slice(&MAGIC_VALUE.to_le_bytes());
    into[FLAGS..HEADER_BYTES].copy_from_slice(&flags.to_le_bytes());
    let header_crc = crc32c(&into[VALUE_CRC..value_start]) ^ seal.0;
    into[..VALUE_CRC].copy_from_slice(&header_crc.to_le_bytes());
}

/// A verified header, with the ranges of key and value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub hash: KeyHash,
    pub key: Range<usize>,
    pub value: Range<usize>,
    pub expiry_seconds: u32,
    pub tag: u16,
    value_crc: Option<u32>,
}

/// Why bytes are not an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damage {
    /// The header or key is damaged, or the entry belongs to another filling of the region.
    Header,
    /// The value is damaged.
    Value,
}

impl Entry {
    /// Reads the header at the start of `bytes`. Lengths are used only after their checksum is verified.
    pub(crate) fn decode(bytes: &[u8], seal: Seal) -> Result<Self, Damage> {
        if bytes.len() < HEADER_BYTES || u16_at(bytes, MAGIC) != MAGIC_VALUE {
            return Err(Damage::Header);
        }
        // The key's length determines the range that the checksum covers; a wrong length fails the checksum or the bounds check.
        let value_start = HEADER_BYTES + usize::from(u16_at(bytes, KEY_LEN));
        let covered = bytes.get(VALUE_CRC..value_start).ok_or(Damage::Header)?;
        if crc32c(covered) ^ seal.0 != u32_at(bytes, 0) {
            return Err(Damage::Header);
        }
        let value = value_start..value_start + u32_at(bytes, VALUE_LEN) as usize;
        if value.end > bytes.len() {
            return Err(Damage::Header);
        }
        let flags = u16_at(bytes, FLAGS);
        Ok(Self {
            hash: KeyHash(u64_at(bytes, HASH)),
            key: HEADER_BYTES..value_start,
            value,
            expiry_seconds: u32_at(bytes, EXPIRY),
            tag: u16_at(bytes, TAG),
            value_crc: (flags & FLAG_VALUE_CRC != 0).then(|| u32_at(bytes, VALUE_CRC)),
        })
    }

    /// Compares the value with its checksum, if it has one.
    pub(crate) fn verify_value(&self, bytes: &[u8]) -> Result<(), Damage> {
        match self.value_crc {
            Some(crc) if crc32c(&bytes[self.value.clone()]) != crc => Err(Damage::Value),
            _ => Ok(()),
        }
    }

    /// Whether the item has expired. An expiry of 0 means never.
    pub(crate) fn is_expired(&self, now_seconds: u32) -> bool {
        expired(self.expiry_seconds, now_seconds)
    }
}

/// Whether `expiry_seconds` has passed.
pub(crate) fn expired(expiry_seconds: u32, now_seconds: u32) -> bool {
    expiry_seconds != 0 && expiry_seconds <= now_seconds
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEAL: Seal = Seal(0x1234_5678);

    fn encoded(value_checksum: bool) -> Vec<u8> {
        let item = FlashItem {
            key: b"key",
            hash: KeyHash(0x0102_0304_0506_0708),
            value: &[b"val", b"ue"],
            expiry_seconds: 9,
            tag: 7,
        };
        let mut bytes = vec![0xEE; 64];
        encode(&item, value_checksum, SEAL, &mut bytes);
        bytes
    }

    #[test]
    fn written_entry_is_read_back() {
        let bytes = encoded(true);
        let entry = Entry::decode(&bytes, SEAL).unwrap();
        assert_eq!(&bytes[entry.key.clone()], b"key");
        assert_eq!(&bytes[entry.value.clone()], b"value");
        assert_eq!((entry.hash, entry.expiry_seconds, entry.tag), (KeyHash(0x0102_0304_0506_0708), 9, 7));
        assert_eq!(entry.verify_value(&bytes), Ok(()));
    }

    #[test]
    fn entry_has_its_golden_bytes() {
        let bytes = encoded(true);
        let golden = "47cb06e36303e0e1080706050403020105000000090000000300070\
                      0a5f101006b657976616c7565";
        let hex: String = bytes[..40].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden.replace(' ', ""));
        assert!(bytes[40..].iter().all(|&byte| byte == 0), "padding is zero");
    }

    #[test]
    fn every_flipped_bit_of_header_key_and_value_is_detected() {
        let good = encoded(true);
        for bit in 0..40 * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let seen = Entry::decode(&bytes, SEAL).and_then(|entry| entry.verify_value(&bytes));
            let expected = if bit / 8 < HEADER_BYTES + 3 { Damage::Header } else { Damage::Value };
            assert_eq!(seen, Err(expected), "bit {bit}");
        }
    }

    #[test]
    fn without_value_checksums_header_and_key_stay_protected() {
        let good = encoded(false);
        for byte in 0..HEADER_BYTES + 3 {
            let mut bytes = good.clone();
            bytes[byte] ^= 0x10;
            assert_eq!(Entry::decode(&bytes, SEAL), Err(Damage::Header), "byte {byte}");
        }
        let entry = Entry::decode(&good, SEAL).unwrap();
        assert_eq!(entry.verify_value(&good), Ok(()));
    }

    #[test]
    fn entry_of_another_generation_or_store_is_rejected() {
        let item = FlashItem { key: b"k", hash: KeyHash(1), value: &[b"v"], expiry_seconds: 0, tag: 0 };
        let mut bytes = vec![0; 64];
        encode(&item, true, Seal::of(1, 1), &mut bytes);
        assert!(Entry::decode(&bytes, Seal::of(1, 1)).is_ok());
        assert_eq!(Entry::decode(&bytes, Seal::of(1, 2)), Err(Damage::Header));
        assert_eq!(Entry::decode(&bytes, Seal::of(2, 1)), Err(Damage::Header));
    }

    #[test]
    fn truncated_entry_is_damaged() {
        let good = encoded(true);
        for len in 0..40 {
            assert_eq!(Entry::decode(&good[..len], SEAL), Err(Damage::Header), "cut to {len}");
        }
    }

    #[test]
    fn expiry_zero_is_never_and_the_second_itself_is_over() {
        assert!(!expired(0, u32::MAX));
        assert!(!expired(10, 9));
        assert!(expired(10, 10));
    }
}
