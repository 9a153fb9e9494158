//! Victim selection. A policy is notified of changes to closed units and returns a victim; it moves no data.

mod buckets;
mod cost_benefit;
mod d_choices;
mod fifo;
mod greedy;

use std::fmt;
use std::str::FromStr;

use cost_benefit::CostBenefit;
use d_choices::DChoices;
use device::names;
use fifo::Fifo;
use greedy::Greedy;
use serde::{Deserialize, Serialize};

/// How victims are chosen. Serialized as its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum VictimPolicy {
    /// The unit with the fewest live pages.
    Greedy,
    /// The unit with the highest ratio of benefit to cost, which prefers old units.
    CostBenefit,
    /// The unit that closed first.
    Fifo,
    /// The emptiest of `d` units drawn at random.
    DChoices(u8),
}

impl VictimPolicy {
    /// Number of draws of `d-choices` without a number.
    pub const DEFAULT_CHOICES: u8 = 2;

    /// Names that [`from_str`](Self::from_str) takes.
    pub const NAMES: [&'static str; 4] = ["greedy", "cost-benefit", "fifo", "d-choices"];
}

impl fmt::Display for VictimPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Greedy => f.write_str("greedy"),
            Self::CostBenefit => f.write_str("cost-benefit"),
            Self::Fifo => f.write_str("fifo"),
            Self::DChoices(choices) => write!(f, "d-choices:{choices}"),
        }
    }
}

impl From<VictimPolicy> for String {
    fn from(policy: VictimPolicy) -> Self {
        policy.to_string()
    }
}

impl TryFrom<String> for VictimPolicy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for VictimPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "greedy" => Ok(Self::Greedy),
            "cost-benefit" => Ok(Self::CostBenefit),
            "fifo" => Ok(Self::Fifo),
            "d-choices" => Ok(Self::DChoices(Self::DEFAULT_CHOICES)),
            _ => match text.strip_prefix("d-choices:").and_then(|number| number.parse().ok()) {
                Some(choices) if choices > 0 => Ok(Self::DChoices(choices)),
                _ if text.starts_with("d-choices:") => {
                    Err(format!("{text}: the number of units to draw must be from 1 to {}", u8::MAX))
                }
                _ => {
                    let hint = names::hint(text, Self::NAMES.into_iter());
                    Err(format!(
                        "{text:?} is not a victim policy; {hint}valid policies are {}",
                        Self::NAMES.join(", ")
                    ))
                }
            },
        }
    }
}

/// The closed units of one reclaim group, ordered as a policy needs them. Units are numbered within the group; `now` is
/// the count of pages that the host has written.
pub(crate) enum Victims {
    Greedy(Greedy),
    CostBenefit(CostBenefit),
    Fifo(Fifo),
    DChoices(DChoices),
}

impl Victims {
    pub(crate) fn new(policy: VictimPolicy, units: u32, unit_pages: u32, seed: u64) -> Self {
        match policy {
            VictimPolicy::Greedy => Self::Greedy(Greedy::new(units, unit_pages)),
            VictimPolicy::CostBenefit => Self::CostBenefit(CostBenefit::new(units, unit_pages)),
            VictimPolicy::Fifo => Self::Fifo(Fifo::default()),
            VictimPolicy::DChoices(choices) => Self::DChoices(DChoices::new(choices, units, seed)),
        }
    }

    /// Records that `unit` closed with `live` live pages.
    pub(crate) fn close(&mut self, unit: u32, live: u32, now: u64) {
        match self {
            Self::Greedy(greedy) => greedy.close(unit, live),
            Self::CostBenefit(benefit) => benefit.close(unit, live, now),
            Self::Fifo(fifo) => fifo.close(unit),
            Self::DChoices(choices) => choices.close(unit, live),
        }
    }

    /// Records that pages of the closed `unit` were invalidated; `live` pages remain.
    #[inline]
    pub(crate) fn invalidate(&mut self, unit: u32, live: u32) {
        match self {
            Self::Greedy(greedy) => greedy.invalidate(unit, live),
            Self::CostBenefit(benefit) => benefit.invalidate(unit, live),
            Self::Fifo(_) => (),
            Self::DChoices(choices) => choices.invalidate(unit, live),
        }
    }

    /// The next victim, which stays among the closed units until it is [removed](Self::remove).
    pub(crate) fn choose(&mut self, now: u64) -> Option<u32> {
        match self {
            Self::Greedy(greedy) => greedy.choose(),
            Self::CostBenefit(benefit) => benefit.choose(now),
            Self::Fifo(fifo) => fifo.choose(),
            Self::DChoices(choices) => choices.choose(),
        }
    }

    /// Records that `unit` is no longer closed.
    pub(crate) fn remove(&mut self, unit: u32) {
        match self {
            Self::Greedy(greedy) => greedy.remove(unit),
            Self::CostBenefit(benefit) => benefit.remove(unit),
            Self::Fifo(fifo) => fifo.remove(unit),
            Self::DChoices(choices) => choices.remove(unit),
        }
    }

    /// The policy's record of `unit`, for the checker: `None` if it has none, otherwise the live pages that it counts (`None` again for a
    /// policy that does not count them).
    pub(crate) fn recorded_live(&self, unit: u32) -> Option<Option<u32>> {
        match self {
            Self::Greedy(greedy) => greedy.recorded_live(unit).map(Some),
            Self::CostBenefit(benefit) => benefit.recorded_live(unit).map(Some),
            Self::Fifo(fifo) => fifo.holds(unit).then_some(None),
            Self::DChoices(choices) => choices.recorded_live(unit).map(Some),
        }
    }

    /// Whether a victim without dead pages means that no unit has any. With cost-benefit, such a unit has the value 0
    /// and any other more.
    pub(crate) fn spares_full_units(&self) -> bool {
        matches!(self, Self::Greedy(_) | Self::CostBenefit(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_names_parse_and_display_and_typos_get_a_suggestion() {
        for name in ["greedy", "cost-benefit", "fifo", "d-choices:2", "d-choices:7"] {
            assert_eq!(name.parse::<VictimPolicy>().unwrap().to_string(), name);
        }
        assert_eq!("d-choices".parse(), Ok(VictimPolicy::DChoices(2)));
        for (wrong, expected) in [
            ("", "valid policies are greedy, cost-benefit"),
            ("greddy", "did you mean `greedy`? valid policies are greedy, cost-benefit"),
            ("FIFO", "did you mean `fifo`? "),
            ("d-choices:0", "the number of units to draw must be from 1 to 255"),
            ("d-choices:", "the number of units to draw must be from 1 to 255"),
            ("d-choices:300", "the number of units to draw must be from 1 to 255"),
        ] {
            let error = wrong.parse::<VictimPolicy>().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
