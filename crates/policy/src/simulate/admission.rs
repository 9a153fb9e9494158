//! Admission in front of a simulated cache: which missed objects enter.
//!
//! The rules are libCacheSim's, with the same draws for the same seed. The engine's admission policies are in [`crate::admission`].

use super::Access;
use super::adapt_size::AdaptSize;
use crate::lehmer::Lehmer64;

/// Resolution of a drawn probability, as in libCacheSim.
const DRAWS: u64 = 10_000_000;

/// Decides which missed objects a simulated cache inserts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum SimulatedAdmission {
    /// Inserts all missed objects.
    #[default]
    Always,
    /// Inserts each missed object with this probability, from 0 to 1.
    Probability(f64),
    /// Inserts missed objects with a smaller weight.
    Below(u64),
    /// Inserts a missed object of weight `w` with the probability `exp(-exponent * w)`.
    SizeProbability(f64),
    /// Inserts objects that missed before. Exact: every object that missed is remembered.
    RejectFirst,
    /// As `SizeProbability`, with an exponent that is tuned after this many requests, at least 1: AdaptSize.
    AdaptSize(u64),
}

impl SimulatedAdmission {
    /// Whether it draws random numbers.
    #[must_use]
    pub fn is_random(self) -> bool {
        matches!(self, Self::Probability(_) | Self::SizeProbability(_) | Self::AdaptSize(_))
    }
}

/// The state of an admission rule.
pub(super) struct Admitter {
    rule: SimulatedAdmission,
    draws: Lehmer64,
    /// Objects that missed, one bit each.
    missed: Vec<u64>,
    adapt_size: Option<AdaptSize>,
}

impl Admitter {
    pub(super) fn new(rule: SimulatedAdmission, capacity_weight: u64, seed: u64) -> Self {
        let adapt_size = match rule {
            SimulatedAdmission::AdaptSize(interval) => Some(AdaptSize::new(interval, capacity_weight)),
            _ => None,
        };
        Self { rule, draws: Lehmer64::new(seed), missed: Vec::new(), adapt_size }
    }

    /// Counts a request, hit or not.
    pub(super) fn observe(&mut self, access: &Access) {
        if let Some(adapt_size) = &mut self.adapt_size {
            adapt_size.observe(access);
        }
    }

    /// Whether the missed object enters.
    pub(super) fn admits(&mut self, access: &Access) -> bool {
        match self.rule {
            SimulatedAdmission::Always => true,
            SimulatedAdmission::Probability(probability) => {
                self.draws.below(DRAWS) < (probability * DRAWS as f64) as u64
            }
            SimulatedAdmission::Below(weight) => u64::from(access.weight) < weight,
            SimulatedAdmission::SizeProbability(exponent) => {
                self.draw((-exponent * f64::from(access.weight)).exp())
            }
            SimulatedAdmission::RejectFirst => self.has_missed(access.object),
            SimulatedAdmission::AdaptSize(_) => {
                let rule = self.adapt_size.as_ref().expect("the rule has its state");
                self.draw(rule.probability(access.weight))
            }
        }
    }

    /// True with this probability.
    fn draw(&mut self, probability: f64) -> bool {
        (self.draws.below(DRAWS) as f64 / DRAWS as f64) < probability
    }

    /// Whether the object missed before; remembers that it has now.
    fn has_missed(&mut self, object: u32) -> bool {
        let (word, bit) = (object as usize / 64, 1 << (object % 64));
        if word >= self.missed.len() {
            self.missed.resize(word + 1, 0);
        }
        let had = self.missed[word] & bit != 0;
        self.missed[word] |= bit;
        had
    }
}
