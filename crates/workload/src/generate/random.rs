//! Randomness: a stream for the order of requests, and functions of an index for the properties of keys.

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use std::convert::Infallible;

/// The stream of one worker. Xoshiro256++ by name instead of `SmallRng`: a seed must give the same requests on every machine and in every
/// later version.
pub(crate) type Stream = Xoshiro256PlusPlus;

/// The stream of worker number `worker`.
pub(crate) fn stream(seed: u64, worker: usize) -> Stream {
    Stream::seed_from_u64(scramble(seed ^ scramble(worker as u64 + 1)))
}

/// A bijection of 64-bit numbers that destroys their order (the finaliser of SplitMix64; Steele, Lea and Flood 2014, "Fast splittable
/// pseudorandom number generators").
#[inline]
pub(crate) fn scramble(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Maps `random` to `0..below` (Lemire's multiply-shift; the bias is below `below / 2^64`).
#[inline]
pub(crate) fn below(random: u64, below: u64) -> u64 {
    ((u128::from(random) * u128::from(below)) >> 64) as u64
}

/// A short random stream that a number determines: SplitMix64. Its start costs nothing, so it can replace the entries of a table.
pub(crate) struct At(pub u64);

impl rand::TryRng for At {
    type Error = Infallible;

    #[inline]
    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.try_next_u64().map(|wide| (wide >> 32) as u32)
    }

    #[inline]
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        Ok(scramble(self.0))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            let word = self.try_next_u64()?.to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        Ok(())
    }
}
