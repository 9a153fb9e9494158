//! Admission policies, one per file, and the table of their names.

pub mod all;
pub mod always;
pub mod coin;
pub mod dynamic_random;
pub mod min_ttl;
pub mod probability;
pub mod reject_first;
pub mod retention;

use std::fmt;
use std::str::FromStr;

pub use all::All;
pub use always::Always;
pub use coin::Chance;
pub use dynamic_random::{DynamicRandom, DynamicRandomConfig};
pub use min_ttl::MinTtl;
pub use probability::Probability;
pub use reject_first::{RejectFirst, RejectFirstConfig};
pub use retention::Retention;

use crate::Admission;
use crate::name::{UnknownName, plain};

/// The policies that can be chosen by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// [`Always`].
    Always,
    /// [`Probability`].
    Probability,
    /// [`DynamicRandom`].
    DynamicRandom,
    /// [`RejectFirst`].
    RejectFirst,
    /// [`MinTtl`].
    MinTtl,
    /// [`Retention`].
    Retention,
}

/// Names of each policy, the printed one first. Case, `-` and `_` are ignored.
const NAMES: &[(&str, Kind)] = &[
    ("always", Kind::Always),
    ("probability", Kind::Probability),
    ("dynamic-random", Kind::DynamicRandom),
    ("reject-first", Kind::RejectFirst),
    ("min-ttl", Kind::MinTtl),
    ("retention", Kind::Retention),
    // CacheLib's name for a fixed probability.
    ("random", Kind::Probability),
];

impl Kind {
    /// The names of all policies, for help texts.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|&(name, _)| name)
    }
}

impl FromStr for Kind {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let known = NAMES.iter().find(|(known, _)| plain(known) == plain(name)).map(|&(_, kind)| kind);
        known.ok_or_else(|| UnknownName::new("admission policy", name, Self::names()))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = NAMES.iter().find(|(_, kind)| kind == self).expect("every kind has a name");
        out.write_str(name)
    }
}

/// A policy and its settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AdmissionConfig {
    /// [`Always`].
    Always,
    /// [`Probability`].
    Probability {
        /// Probability of admission, 0 to 1.
        probability: f64,
        /// Source of random decisions.
        chance: Chance,
    },
    /// [`DynamicRandom`].
    DynamicRandom(DynamicRandomConfig),
    /// [`RejectFirst`].
    RejectFirst(RejectFirstConfig),
    /// [`MinTtl`].
    MinTtl {
        /// Entries with a shorter remaining TTL are rejected.
        min_ttl_seconds: u32,
    },
    /// [`Retention`].
    Retention {
        /// Entries idle for longer are rejected.
        idle_at_most_seconds: u32,
    },
}

/// Combines the policies into one: without any, all entries are admitted; with several, all must admit.
///
/// # Panics
/// If a setting is out of range; the message names it.
#[must_use]
pub fn build(configs: &[AdmissionConfig]) -> Box<dyn Admission> {
    match configs {
        [] => Box::new(Always),
        [config] => build_one(config),
        several => Box::new(All::new(several.iter().map(build_one).collect())),
    }
}

fn build_one(config: &AdmissionConfig) -> Box<dyn Admission> {
    match *config {
        AdmissionConfig::Always => Box::new(Always),
        AdmissionConfig::Probability { probability, chance } => {
            Box::new(Probability::new(probability, chance))
        }
        AdmissionConfig::DynamicRandom(config) => Box::new(DynamicRandom::new(config)),
        AdmissionConfig::RejectFirst(config) => Box::new(RejectFirst::new(config)),
        AdmissionConfig::MinTtl { min_ttl_seconds } => Box::new(MinTtl::new(min_ttl_seconds)),
        AdmissionConfig::Retention { idle_at_most_seconds } => Box::new(Retention::new(idle_at_most_seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Candidate;

    const CANDIDATE: Candidate =
        Candidate { hash: 1, size_bytes: 100, ttl_seconds: Some(50), idle_seconds: 10 };

    fn admits(configs: &[AdmissionConfig]) -> bool {
        build(configs).admit(&CANDIDATE, 0)
    }

    #[test]
    fn ttl_and_idle_time_limits_are_inclusive() {
        for (min_ttl_seconds, enters) in [(0, true), (50, true), (51, false)] {
            assert_eq!(admits(&[AdmissionConfig::MinTtl { min_ttl_seconds }]), enters, "{min_ttl_seconds} s");
        }
        for (idle_at_most_seconds, enters) in [(9, false), (10, true), (11, true)] {
            assert_eq!(admits(&[AdmissionConfig::Retention { idle_at_most_seconds }]), enters);
        }
        let immortal = Candidate { ttl_seconds: None, ..CANDIDATE };
        assert!(MinTtl::new(u32::MAX).admit(&immortal, 0));
    }

    #[test]
    fn all_policies_must_admit_and_a_rejection_stops_evaluation() {
        let yes = AdmissionConfig::MinTtl { min_ttl_seconds: 0 };
        let no = AdmissionConfig::MinTtl { min_ttl_seconds: 99 };
        assert!(admits(&[]));
        assert!(admits(&[AdmissionConfig::Always, yes]));
        assert!(!admits(&[yes, no]));
        assert!(!admits(&[no, yes]));
        let first = AdmissionConfig::RejectFirst(RejectFirstConfig::default());
        let all_of = build(&[yes, first]);
        assert_eq!([(); 2].map(|()| all_of.admit(&CANDIDATE, 0)), [false, true]);
        let not_asked = build(&[no, first]);
        assert_eq!([(); 2].map(|()| not_asked.admit(&CANDIDATE, 0)), [false, false]);
    }

    #[test]
    fn all_forwards_device_write_counts_to_each_policy() {
        let target = DynamicRandomConfig { interval_seconds: 1, ..DynamicRandomConfig::new(1) };
        let policy = build(&[AdmissionConfig::Always, AdmissionConfig::DynamicRandom(target)]);
        for second in 0..60 {
            policy.observe(second << 40, second * 1_000_000_000);
        }
        let entered = (0..1000).filter(|&hash| policy.admit(&Candidate { hash, ..CANDIDATE }, 0)).count();
        assert!(entered < 20, "{entered} of 1000 entered at a factor of 0.001");
    }

    #[test]
    fn names_are_accepted_in_every_spelling_and_wrong_ones_get_a_suggestion() {
        for (name, kind) in NAMES {
            assert_eq!(name.to_uppercase().replace('-', "_").parse(), Ok(*kind), "{name}");
            assert_eq!(kind.to_string().parse(), Ok(*kind), "{name}");
        }
        let error = "dynamic_rnadom".parse::<Kind>().unwrap_err();
        assert_eq!(error.nearest, "dynamic-random");
        assert!(error.to_string().starts_with("no admission policy is named `dynamic_rnadom`: did you mean"));
    }
}
