//! Value bytes that say who wrote them.
//!
//! A value begins with a stamp, the key's identity and the version, as far as it is long enough; the rest is a piece of
//! one shared block of noise, chosen by the version. Writing costs a copy, and any reader can compute what must be there.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Bytes of the stamp: key identity and version, little-endian.
pub const STAMP_BYTES: usize = 16;
/// Longer values repeat the block.
const BLOCK_BYTES: usize = 1 << 20;
/// A compressible value mixes noise and zeros in units of this, so that a drive's compressor sees both in each block.
const GRAIN_BYTES: usize = 512;

/// What a value says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Identity of the key.
    pub key_id: u64,
    /// The set that wrote it.
    pub version: u64,
}

/// Makes and checks values. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Values {
    noise: Arc<[u8]>,
}

impl Values {
    /// Values of which a drive can compress away the share `compressibility`.
    #[must_use]
    pub fn new(seed: u64, compressibility: f64) -> Self {
        let mut noise = vec![0; BLOCK_BYTES];
        let mut random = SmallRng::seed_from_u64(seed);
        let noisy_bytes = (GRAIN_BYTES as f64 * (1.0 - compressibility)) as usize;
        for grain in noise.chunks_mut(GRAIN_BYTES) {
            random.fill_bytes(&mut grain[..noisy_bytes]);
        }
        Self { noise: noise.into() }
    }

    /// Writes the value of `stamp`.
    pub fn fill(&self, stamp: Stamp, value: &mut [u8]) {
        if value.len() < STAMP_BYTES {
            return value.copy_from_slice(&stamp.bytes()[..value.len()]);
        }
        let (head, mut body) = value.split_at_mut(STAMP_BYTES);
        head.copy_from_slice(&stamp.bytes());
        let mut at = start(stamp);
        while !body.is_empty() {
            let len = body.len().min(BLOCK_BYTES - at);
            body[..len].copy_from_slice(&self.noise[at..at + len]);
            body = &mut body[len..];
            at = 0;
        }
    }

    /// Whether the bytes behind the stamp are those that [`fill`](Self::fill) wrote.
    #[must_use]
    pub fn is_intact(&self, stamp: Stamp, value: &[u8]) -> bool {
        let mut body = value.get(STAMP_BYTES..).unwrap_or_default();
        let mut at = start(stamp);
        while !body.is_empty() {
            let len = body.len().min(BLOCK_BYTES - at);
            if body[..len] != self.noise[at..at + len] {
                return false;
            }
            body = &body[len..];
            at = 0;
        }
        true
    }
}

/// Where in the noise a value begins: at a grain, so that compressibility holds for short values too.
fn start(stamp: Stamp) -> usize {
    let mixed = (stamp.version ^ stamp.key_id.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % (BLOCK_BYTES / GRAIN_BYTES) * GRAIN_BYTES
}

impl Stamp {
    fn bytes(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        bytes[..8].copy_from_slice(&self.key_id.to_le_bytes());
        bytes[8..].copy_from_slice(&self.version.to_le_bytes());
        bytes
    }

    /// The stamp of `value`, if it is long enough to have one.
    #[must_use]
    pub fn of(value: &[u8]) -> Option<Self> {
        let (key_id, rest) = value.split_first_chunk::<8>()?;
        let (version, _) = rest.split_first_chunk::<8>()?;
        Some(Self { key_id: u64::from_le_bytes(*key_id), version: u64::from_le_bytes(*version) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { key_id: 3, version: 0x0102_0304 };

    #[test]
    fn a_value_of_any_length_tells_its_stamp_and_is_intact() {
        let values = Values::new(1, 0.5);
        for len in [16, 17, 100, 4096, BLOCK_BYTES, 3 * BLOCK_BYTES + 5] {
            let mut value = vec![0xaa; len];
            values.fill(STAMP, &mut value);
            assert_eq!(Stamp::of(&value), Some(STAMP));
            assert!(values.is_intact(STAMP, &value), "{len}");
        }
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let values = Values::new(1, 0.0);
        let mut value = vec![0; 600];
        values.fill(STAMP, &mut value);
        for at in 0..value.len() {
            value[at] ^= 1;
            let noticed = Stamp::of(&value) != Some(STAMP) || !values.is_intact(STAMP, &value);
            assert!(noticed, "byte {at}");
            value[at] ^= 1;
        }
    }

    #[test]
    fn a_value_too_short_for_a_stamp_is_filled_all_the_same() {
        let mut value = [0; 5];
        Values::new(1, 0.0).fill(STAMP, &mut value);
        assert_eq!(value, [3, 0, 0, 0, 0]);
        assert_eq!(Stamp::of(&value), None);
    }

    #[test]
    fn compressibility_is_the_share_of_zeros() {
        let mut value = vec![0; 1 << 20];
        Values::new(1, 0.75).fill(STAMP, &mut value);
        let zeros = value.iter().filter(|byte| **byte == 0).count() as f64 / value.len() as f64;
        assert!((0.74..0.76).contains(&zeros), "{zeros}");
    }
}
