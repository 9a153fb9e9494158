//! Random decisions for admission policies: seeded, lock-free and thread-safe.

use std::sync::atomic::{AtomicU64, Ordering};

/// The source of a random decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chance {
    /// Independent for each call.
    EachTime {
        /// Selects the sequence.
        seed: u64,
    },
    /// A function of the key: a rejected key is rejected every time at the same probability, so the flash holds a fixed sample of all keys.
    ByKey {
        /// Selects the sample.
        seed: u64,
    },
}

impl Default for Chance {
    fn default() -> Self {
        Self::EachTime { seed: 1 }
    }
}

pub(crate) struct Coin {
    chance: Chance,
    tosses: AtomicU64,
}

impl Coin {
    pub(crate) fn new(chance: Chance) -> Self {
        Self { chance, tosses: AtomicU64::new(0) }
    }

    /// True with this probability: 0 is never, 1 is always.
    pub(crate) fn toss(&self, hash: u64, probability: f64) -> bool {
        let bits = match self.chance {
            Chance::EachTime { seed } => mix(seed, self.tosses.fetch_add(1, Ordering::Relaxed)),
            Chance::ByKey { seed } => mix(seed, hash),
        };
        // An f64 has 53 bits of precision: the result is below 1.
        ((bits >> 11) as f64) * (0.5_f64.powi(53)) < probability
    }
}

/// SplitMix64's finaliser over a Weyl sequence. Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", OOPSLA'14.
fn mix(seed: u64, number: u64) -> u64 {
    let mut bits = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn true_share_matches_the_probability() {
        for chance in [Chance::EachTime { seed: 7 }, Chance::ByKey { seed: 7 }] {
            for probability in [0.0, 0.01, 0.3, 0.5, 0.99, 1.0] {
                let coin = Coin::new(chance);
                let heads = (0..20_000).filter(|&key| coin.toss(key, probability)).count();
                let off = (heads as f64 / 20_000.0 - probability).abs();
                assert!(off < 0.015, "{chance:?}: {heads} of 20000 at {probability}");
                assert!(
                    off == 0.0 || (0.001..0.999).contains(&probability),
                    "probability 0 or 1, but {heads} of 20000"
                );
            }
        }
    }

    #[test]
    fn key_decision_is_fixed_and_monotonic_in_the_probability() {
        let coin = Coin::new(Chance::ByKey { seed: 3 });
        for key in 0..500 {
            assert_eq!(coin.toss(key, 0.4), coin.toss(key, 0.4), "key {key}");
            assert!(
                coin.toss(key, 0.6) || !coin.toss(key, 0.4),
                "key {key} is admitted at 0.4 but not at 0.6"
            );
        }
    }

    #[test]
    fn sequence_depends_on_the_seed_alone() {
        let sequence = |seed| {
            let coin = Coin::new(Chance::EachTime { seed });
            (0..64).map(|_| coin.toss(0, 0.5)).collect::<Vec<_>>()
        };
        assert_eq!(sequence(1), sequence(1));
        assert_ne!(sequence(1), sequence(2));
    }
}
