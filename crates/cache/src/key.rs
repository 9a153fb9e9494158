//! The hash of a key, computed once per request.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// XXH3-64 of a key, with the [seed](crate::Builder::hash_seed) of its cache. Shards, indexes, filters and buckets each use other bits of
/// it. Flash formats store it, so it never changes between versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// The hash of `key` in a cache whose seed is 0.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(xxh3_64(key))
    }

    /// The hash of `key` in a cache with this seed.
    #[must_use]
    pub fn seeded(key: &[u8], seed: u64) -> Self {
        Self(xxh3_64_with_seed(key, seed))
    }

    /// One of `2^bits` shards, from the top bits.
    #[must_use]
    pub fn shard(self, bits: u32) -> usize {
        if bits == 0 { 0 } else { (self.0 >> (64 - bits)) as usize }
    }

    /// Whether this hash belongs to a sample of one in `n` keys. The sample is the same on each call, and independent of where in the
    /// cache a key is. `n` = 0 selects no key.
    #[must_use]
    pub fn one_in(self, n: u64) -> bool {
        // Arenas are selected by the unmodified second hash, so this one is rotated first.
        n == 1 || n > 0 && Self(self.0.rotate_left(32) ^ 0x5bd1_e995_9d1b_54a5).remix().is_multiple_of(n)
    }

    /// An independent second hash (murmur's finaliser), for uses whose bits must not correlate with those of the shard or the index.
    #[must_use]
    pub fn remix(self) -> u64 {
        let mut x = self.0;
        x ^= x >> 33;
        x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
        x ^= x >> 33;
        x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        x ^ (x >> 33)
    }
}
