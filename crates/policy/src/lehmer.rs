//! Lehmer's multiplicative generator with 128 bits of state, which libCacheSim draws from.
//!
//! L'Ecuyer: "Tables of linear congruential generators of different sizes and good lattice structure", Mathematics of Computation 68,
//! 1999. Policies that draw lots use it, so that with the same seed they make the same choices as libCacheSim.

/// The generator. Not for cryptography.
#[derive(Debug, Clone)]
pub struct Lehmer64 {
    state: u128,
}

const MULTIPLIER: u128 = 0xDA94_2042_E4DD_58B5;
/// The state in which libCacheSim 0.3.5 starts.
const FIRST_STATE: u128 = 0xDEAD_BEEF;

impl Lehmer64 {
    /// The sequence of a seed. Seed 1 has libCacheSim's sequence.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: u128::from(seed ^ 1) << 64 | FIRST_STATE }
    }

    /// The next 64 bits.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(MULTIPLIER);
        (self.state >> 64) as u64
    }

    /// A number below `end`, which is not 0, with libCacheSim's slight bias to small numbers.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }
}
