//! Admits each candidate with the same probability.

use crate::admission::coin::{Chance, Coin};
use crate::{Admission, Candidate};

/// A random decision per candidate.
pub struct Probability {
    probability: f64,
    coin: Coin,
}

impl Probability {
    /// Admits with this probability, 0 to 1.
    ///
    /// # Panics
    /// If it is not a probability.
    #[must_use]
    pub fn new(probability: f64, chance: Chance) -> Self {
        assert!(
            (0.0..=1.0).contains(&probability),
            "an admission probability must be from 0 to 1, not {probability}"
        );
        Self { probability, coin: Coin::new(chance) }
    }
}

impl Admission for Probability {
    fn admit(&self, candidate: &Candidate, _now_ns: u64) -> bool {
        self.coin.toss(candidate.hash, self.probability)
    }

    fn name(&self) -> &'static str {
        "probability"
    }
}
