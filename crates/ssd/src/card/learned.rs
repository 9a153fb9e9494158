//! Parts of a card that come from logs of the drive's write counters.

use serde::{Deserialize, Serialize};

use super::Card;
use crate::ftl::Upkeep;
use crate::gc::VictimPolicy;

/// Garbage collection of a [`Card`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collection {
    /// Choice of victims.
    pub victims: VictimPolicy,
}

/// The fit of a [`Card`] to logs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learned {
    /// Logs that the card was fitted to.
    pub logs: u32,
    /// Mean relative difference of write amplification between the model and the logs.
    pub residual: f64,
    /// Lowest over-provisioning that fits the logs within the residual.
    pub op_low: f64,
    /// Highest over-provisioning that fits the logs within the residual.
    pub op_high: f64,
    /// Half width of the 80 % interval around a modelled write amplification, as a share of it.
    pub dlwa_error: f64,
}

impl Card {
    /// The card's garbage collection, or greedy victims, with the seed of its random draws.
    #[must_use]
    pub fn upkeep(&self, seed: u64) -> Upkeep {
        let default = Upkeep::default();
        let victims = self.collection.map_or(default.victims, |collection| collection.victims);
        Upkeep { victims, seed, ..default }
    }

    /// The card as TOML, as [`Card::load`] reads it.
    ///
    /// # Panics
    /// Never: a card consists of tables of plain values.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("tables of plain values")
    }
}
