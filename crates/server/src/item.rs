//! The header in front of each value in the cache: what memcached keeps of an item besides its bytes and expiry.
//!
//! ```text
//! 0        4               8                            15      16
//! | flags  | stored second |      CAS number (56 bits)  | marks | value …
//! ```
//!
//! All integers are little-endian. The header is part of the cached value, so it survives eviction to flash and a restart. The
//! expiry is the cache's own, which can change without rewriting the item.

/// Bytes of an encoded [`Header`].
pub const HEADER_BYTES: usize = 16;

/// CAS numbers have 56 bits; the other 8 bits of their word hold the marks.
const CAS_BITS: u32 = 56;

/// The largest CAS number.
pub const MAX_CAS: u64 = (1 << CAS_BITS) - 1;

/// Properties of an item that meta commands set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marks {
    /// The item was invalidated, and is served as stale until it is replaced.
    pub is_stale: bool,
    /// A client has been asked to recache the item.
    pub has_winner: bool,
    /// The key was given in base64.
    pub has_binary_key: bool,
}

impl Marks {
    fn bits(self) -> u8 {
        u8::from(self.is_stale) | u8::from(self.has_winner) << 1 | u8::from(self.has_binary_key) << 2
    }

    fn of_bits(bits: u8) -> Self {
        Self { is_stale: bits & 1 != 0, has_winner: bits & 2 != 0, has_binary_key: bits & 4 != 0 }
    }
}

/// The header of an item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    /// Opaque flags of the client.
    pub flags: u32,
    /// Unix second of the last store.
    pub stored_seconds: u32,
    /// Number of the last change, unique in the cache.
    pub cas: u64,
    /// State of the item for meta commands.
    pub marks: Marks,
}

impl Header {
    /// The header as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.flags.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.stored_seconds.to_le_bytes());
        let word = self.cas & MAX_CAS | u64::from(self.marks.bits()) << CAS_BITS;
        bytes[8..].copy_from_slice(&word.to_le_bytes());
        bytes
    }

    /// The header and the value of a cached item; `None` if the item is too short to have a header, because another program stored
    /// it.
    #[must_use]
    pub fn decode(item: &[u8]) -> Option<(Self, &[u8])> {
        let (header, value) = item.split_first_chunk::<HEADER_BYTES>()?;
        let [f0, f1, f2, f3, s0, s1, s2, s3, word @ ..] = *header;
        let word = u64::from_le_bytes(word);
        let header = Self {
            flags: u32::from_le_bytes([f0, f1, f2, f3]),
            stored_seconds: u32::from_le_bytes([s0, s1, s2, s3]),
            cas: word & MAX_CAS,
            marks: Marks::of_bits((word >> CAS_BITS) as u8),
        };
        Some((header, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trips_through_its_bytes() {
        let marks = Marks { is_stale: true, has_winner: false, has_binary_key: true };
        let header = Header { flags: 7, stored_seconds: 1 << 31, cas: MAX_CAS - 1, marks };
        let item = [&header.encode()[..], b"value"].concat();
        assert_eq!(Header::decode(&item), Some((header, &b"value"[..])));
        assert_eq!(header.encode(), *b"\x07\0\0\0\0\0\0\x80\xfe\xff\xff\xff\xff\xff\xff\x05");
    }

    #[test]
    fn item_shorter_than_header_decodes_to_none() {
        assert_eq!(Header::decode(&[0; HEADER_BYTES - 1]), None);
    }
}
