//! CRC-32C (Castagnoli), the checksum of iSCSI and of every format here.

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The checksum of `bytes` with zeros instead of the four bytes at `field`, where a format keeps the checksum itself.
///
/// # Panics
/// If `bytes` end before the field does.
#[must_use]
pub fn crc32c_without_field(bytes: &[u8], field: usize) -> u32 {
    let mut checksum = Crc32c::default();
    [&bytes[..field], &[0; 4], &bytes[field + 4..]].into_iter().for_each(|part| checksum.update(part));
    checksum.finish()
}

/// The checksum of consecutive parts.
#[derive(Debug, Clone)]
pub struct Crc32c(Digest);

impl Default for Crc32c {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc32c {
    /// Adds the next part.
    pub fn update(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    /// The checksum of all parts.
    #[must_use]
    pub fn finish(self) -> u32 {
        self.0.finalize() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checksums in appendix B.4 of RFC 3720, and the check value of the catalogue of CRC algorithms.
    #[test]
    fn checksums_are_those_of_rfc_3720() {
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
        assert_eq!(crc32c(&ascending), 0x46DD_794E);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn parts_and_a_zeroed_field_have_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut zeroed = bytes.clone();
        zeroed[8..12].fill(0);
        assert_eq!(crc32c_without_field(&bytes, 8), crc32c(&zeroed));
        let mut checksum = Crc32c::default();
        bytes.chunks(7).for_each(|part| checksum.update(part));
        assert_eq!(checksum.finish(), crc32c(&bytes));
    }
}
