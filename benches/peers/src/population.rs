//! The objects and their popularity, the same for every peer.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _, seq::SliceRandom as _};
use rand_distr::{Distribution as _, Zipf};

/// Bytes of every key.
pub const KEY_BYTES: usize = 8;

/// Objects numbered from 0, with varying sizes.
pub struct Population {
    sizes: Vec<u32>,
    bytes: Vec<u8>,
}

impl Population {
    /// `count` objects whose values have `sizes` bytes, evenly spread.
    pub fn new(count: usize, sizes: std::ops::RangeInclusive<u32>, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let largest = *sizes.end() as usize;
        let sizes = (0..count).map(|_| rng.random_range(sizes.clone())).collect();
        // Twice the largest value, so that values begin at different offsets.
        let bytes = (0..2 * largest).map(|_| rng.random()).collect();
        Self { sizes, bytes }
    }

    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    pub fn value_len(&self, object: u64) -> usize {
        self.sizes[object as usize] as usize
    }

    /// Bytes of key and value.
    pub fn weight(&self, object: u64) -> u64 {
        (KEY_BYTES + self.value_len(object)) as u64
    }

    /// The value; its first bytes depend on the object, so that a wrong value is detected.
    pub fn value(&self, object: u64) -> &[u8] {
        let len = self.value_len(object);
        let start = object as usize % (self.bytes.len() / 2);
        &self.bytes[start..start + len]
    }

    /// Bytes of all keys and values.
    pub fn total_bytes(&self) -> u64 {
        (0..self.len() as u64).map(|object| self.weight(object)).sum()
    }
}

/// Objects requested by a Zipf law. Popular ones are scattered over the numbers, equally in every stream.
pub struct Requests {
    rng: StdRng,
    by_rank: Vec<u32>,
    law: Zipf<f64>,
}

impl Requests {
    pub fn new(objects: usize, exponent: f64, seed: u64) -> Self {
        let mut by_rank: Vec<u32> = (0..objects as u32).collect();
        by_rank.shuffle(&mut StdRng::seed_from_u64(1));
        let law = Zipf::new(objects as f64, exponent).expect("the exponent is positive");
        Self { rng: StdRng::seed_from_u64(seed), by_rank, law }
    }

    /// The next `count` objects.
    pub fn take(&mut self, count: usize) -> Vec<u32> {
        let last = self.by_rank.len() - 1;
        (0..count).map(|_| self.by_rank[(self.law.sample(&mut self.rng) as usize - 1).min(last)]).collect()
    }
}

/// `requests` objects, uniformly distributed.
pub fn uniform(objects: std::ops::Range<u64>, requests: usize, seed: u64) -> Vec<u64> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..requests).map(|_| rng.random_range(objects.clone())).collect()
}
