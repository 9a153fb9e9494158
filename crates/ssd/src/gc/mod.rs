//! Victim selection. A policy is notified of changes to closed units and returns a victim; it moves no data.
//!
//! A policy is one file here, which implements [`Select`], and one entry in [`victim_policies!`].

mod buckets;
mod cost_benefit;
mod d_choices;
mod fifo;
mod greedy;

use std::fmt;
use std::str::FromStr;

use device::names;
use serde::{Deserialize, Serialize};

/// The closed units of one reclaim group, ordered as a policy needs them. Units are numbered within the group; `now` is the count of pages
/// that the host has written.
pub(crate) trait Select {
    /// Records that `unit` closed with `live` live pages.
    fn close(&mut self, unit: u32, live: u32, now: u64);

    /// Records that pages of the closed `unit` were invalidated; `live` pages remain.
    fn invalidate(&mut self, unit: u32, live: u32);

    /// The next victim, which stays among the closed units until it is [removed](Self::remove).
    fn choose(&mut self, now: u64) -> Option<u32>;

    /// Records that `unit` is no longer closed.
    fn remove(&mut self, unit: u32);

    /// The policy's record of `unit`, for the checker: `None` if it has none, otherwise the live pages that it counts (`None` again for a
    /// policy that does not count them).
    fn recorded_live(&self, unit: u32) -> Option<Option<u32>>;

    /// Whether a victim without dead pages means that no unit has any.
    fn spares_full_units(&self) -> bool {
        false
    }
}

/// Size and seed of a group, from which its policy is built.
struct Setup {
    /// Units of the reclaim group.
    units: u32,
    unit_pages: u32,
    /// Seed of random draws.
    seed: u64,
}

/// Declares the policies: documentation, name, module and type, and the usual number of a policy that takes one. The type is built by `new`
/// from that number and a [`Setup`]. The dispatch is by an enum because `invalidate` runs for every page written.
macro_rules! victim_policies {
    ($($(#[$doc:meta])+ $name:literal: $module:ident::$policy:ident$(($number:ident: $type:ty = $usual:literal))?;)+) => {
        /// How victims are chosen. Serialized as its name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub enum VictimPolicy {
            $($(#[$doc])+ $policy$(($type))?,)+
        }

        impl VictimPolicy {
            /// One of each, with the usual number if it takes one.
            pub const ALL: &[Self] = &[$(Self::$policy$(($usual))?,)+];

            /// Names that [`from_str`](Self::from_str) takes.
            pub const NAMES: &[&'static str] = &[$($name),+];
        }

        impl fmt::Display for VictimPolicy {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$policy$(($number))? => {
                        f.write_str($name)?;
                        $(write!(f, ":{}", $number)?;)?
                    })+
                }
                Ok(())
            }
        }

        /// The [`Select`] of a policy.
        pub(crate) enum Victims {
            $($policy($module::$policy),)+
        }

        impl Victims {
            pub(crate) fn new(policy: VictimPolicy, units: u32, unit_pages: u32, seed: u64) -> Self {
                let setup = Setup { units, unit_pages, seed };
                match policy {
                    $(VictimPolicy::$policy$(($number))? => Self::$policy($module::$policy::new($($number, )?&setup)),)+
                }
            }
        }

        impl Select for Victims {
            fn close(&mut self, unit: u32, live: u32, now: u64) {
                match self { $(Self::$policy(policy) => policy.close(unit, live, now),)+ }
            }

            #[inline]
            fn invalidate(&mut self, unit: u32, live: u32) {
                match self { $(Self::$policy(policy) => policy.invalidate(unit, live),)+ }
            }

            fn choose(&mut self, now: u64) -> Option<u32> {
                match self { $(Self::$policy(policy) => policy.choose(now),)+ }
            }

            fn remove(&mut self, unit: u32) {
                match self { $(Self::$policy(policy) => policy.remove(unit),)+ }
            }

            fn recorded_live(&self, unit: u32) -> Option<Option<u32>> {
                match self { $(Self::$policy(policy) => policy.recorded_live(unit),)+ }
            }

            fn spares_full_units(&self) -> bool {
                match self { $(Self::$policy(policy) => policy.spares_full_units(),)+ }
            }
        }
    };
}

victim_policies! {
    /// The unit with the fewest live pages.
    "greedy": greedy::Greedy;
    /// The unit with the highest ratio of benefit to cost, which prefers old units.
    "cost-benefit": cost_benefit::CostBenefit;
    /// The unit that closed first.
    "fifo": fifo::Fifo;
    /// The emptiest of this many units drawn at random.
    "d-choices": d_choices::DChoices(choices: u8 = 2);
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
        if let Some(at) = Self::NAMES.iter().position(|name| *name == text) {
            return Ok(Self::ALL[at]);
        }
        if let Some(number) = text.strip_prefix("d-choices:") {
            let choices = number.parse().ok().filter(|choices| *choices > 0);
            return choices
                .map(Self::DChoices)
                .ok_or_else(|| format!("{text}: the number of units to draw must be from 1 to {}", u8::MAX));
        }
        let hint = names::hint(text, Self::NAMES.iter().copied());
        Err(format!("{text:?} is not a victim policy; {hint}valid policies are {}", Self::NAMES.join(", ")))
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
        for (name, policy) in VictimPolicy::NAMES.iter().zip(VictimPolicy::ALL) {
            assert_eq!((name.parse(), policy.to_string().parse()), (Ok(*policy), Ok(*policy)));
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
