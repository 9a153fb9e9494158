//! Eviction policies, one paper a file, and the table of their names.

pub mod arc;
pub mod cacheus;
pub mod clairvoyant;
pub mod clairvoyant_sized;
pub mod clock;
pub mod fifo;
pub mod gdsf;
pub mod hyperbolic;
pub mod lecar;
pub mod lhd;
pub mod lirs;
pub mod lru;
pub mod lru_2q;
pub mod lru_k;
pub mod merlin;
pub mod mid_point;
pub mod qdlp;
pub mod random;
pub mod refresh;
pub mod s3_fifo;
pub mod s4_fifo;
pub mod sieve;
pub mod slru;
pub mod tiny_lfu;
pub mod two_q;
pub mod w_tiny_lfu;

use std::fmt;
use std::num::NonZeroU8;
use std::str::FromStr;

pub use arc::{AdaptiveReplacement, ArcRules};
pub use cacheus::Cacheus;
pub use clairvoyant::Clairvoyant;
pub use clairvoyant_sized::ClairvoyantSized;
pub use clock::Clock;
pub use fifo::Fifo;
pub use gdsf::Gdsf;
pub use hyperbolic::Hyperbolic;
pub use lecar::LeCaR;
pub use lhd::Lhd;
pub use lirs::Lirs;
pub use lru::{Lru, LruConfig};
pub use lru_2q::{Lru2q, Lru2qConfig};
pub use lru_k::LruK;
pub use merlin::Merlin;
pub use qdlp::Qdlp;
pub use random::Random;
pub use refresh::Refresh;
pub use s3_fifo::{S3Fifo, S3FifoRules};
pub use s4_fifo::{S4Fifo, S4FifoSettings};
pub use sieve::Sieve;
pub use slru::{Slru, SlruRules};
pub use tiny_lfu::TinyLfu;
pub use two_q::{TwoQ, TwoQRules};
pub use w_tiny_lfu::WTinyLfu;

use crate::Eviction;
use crate::name::{UnknownName, plain};

/// The policies that can be chosen by name. The clairvoyant policies are excluded, because they need the future requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// [`Fifo`].
    Fifo,
    /// [`Lru`] with CacheLib's refresh time.
    Lru,
    /// [`Lru`] that hears of every hit.
    ExactLru,
    /// [`Lru2q`].
    Lru2q,
    /// [`Slru`] with this many segments, at least one.
    Slru(NonZeroU8),
    /// [`TinyLfu`].
    TinyLfu,
    /// [`WTinyLfu`].
    WTinyLfu,
    /// [`S3Fifo`].
    S3Fifo,
    /// [`Sieve`].
    Sieve,
    /// [`Gdsf`] where all misses cost the same.
    Gdsf,
    /// [`Gdsf`] where a miss costs its bytes: LFU with dynamic ageing.
    LfuDa,
    /// [`Gdsf::lfu`]: the entry with the fewest hits is evicted, the least recently used of them first.
    Lfu,
    /// [`Clock`].
    Clock,
    /// [`AdaptiveReplacement`].
    Arc,
    /// [`TwoQ`].
    TwoQ,
    /// [`Lirs`].
    Lirs,
    /// [`Random`].
    Random,
    /// [`LruK`] with K = 2.
    LruK,
    /// [`LeCaR`].
    LeCaR,
    /// [`Lhd`].
    Lhd,
    /// [`Hyperbolic`].
    Hyperbolic,
    /// [`Qdlp`].
    Qdlp,
    /// [`Cacheus`].
    Cacheus,
    /// [`Merlin`].
    Merlin,
    /// [`S4Fifo`] with these settings.
    S4Fifo(S4FifoSettings),
}

const FOUR: NonZeroU8 = NonZeroU8::new(4).expect("not zero");

/// The kinds and their names, as printed. Case, `-` and `_` are ignored.
const KINDS: &[(&str, Kind)] = &[
    ("fifo", Kind::Fifo),
    ("lru", Kind::Lru),
    ("exact-lru", Kind::ExactLru),
    ("lru2q", Kind::Lru2q),
    ("slru-4", Kind::Slru(FOUR)),
    ("tinylfu", Kind::TinyLfu),
    ("wtinylfu", Kind::WTinyLfu),
    ("s3fifo", Kind::S3Fifo),
    ("sieve", Kind::Sieve),
    ("gdsf", Kind::Gdsf),
    ("lfuda", Kind::LfuDa),
    ("lfu", Kind::Lfu),
    ("clock", Kind::Clock),
    ("arc", Kind::Arc),
    ("2q", Kind::TwoQ),
    ("lirs", Kind::Lirs),
    ("random", Kind::Random),
    ("lru-k", Kind::LruK),
    ("lecar", Kind::LeCaR),
    ("lhd", Kind::Lhd),
    ("hyperbolic", Kind::Hyperbolic),
    ("qdlp", Kind::Qdlp),
    ("cacheus", Kind::Cacheus),
    ("merlin", Kind::Merlin),
    ("s4fifo-s20-g300-k25-p1-r0", Kind::S4Fifo(S4FifoSettings::USUAL)),
];

/// Further accepted names.
const ALIASES: &[(&str, Kind)] = &[
    ("slru", Kind::Slru(FOUR)),
    // Names in CacheBench's configs; "5B" means pointers of five bytes, which do not matter here.
    ("LRU5B", Kind::Lru),
    ("LRU5B2Q", Kind::Lru2q),
];

impl Kind {
    /// One of each, segmented LRU with four segments, S4-FIFO with its usual settings.
    pub const ALL: [Self; KINDS.len()] = {
        let mut all = [Self::Fifo; KINDS.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = KINDS[at].1;
            at += 1;
        }
        all
    };

    /// The names of all policies, for help texts.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KINDS.iter().chain(ALIASES).map(|&(name, _)| name)
    }
}

impl FromStr for Kind {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let name_plain = plain(name);
        let known = KINDS.iter().chain(ALIASES).find(|(known, _)| plain(known) == name_plain);
        let segmented = || name_plain.strip_prefix("slru")?.parse().ok().map(Self::Slru);
        let tuned = || S4FifoSettings::parse(name_plain.strip_prefix("s4fifo")?).map(Self::S4Fifo);
        known
            .map(|&(_, kind)| kind)
            .or_else(segmented)
            .or_else(tuned)
            .ok_or_else(|| UnknownName::new("eviction policy", name, Self::names()))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Slru(segments) = self {
            return write!(out, "slru-{segments}");
        }
        if let Self::S4Fifo(settings) = self {
            return write!(out, "s4fifo-{settings}");
        }
        let (name, _) = KINDS.iter().find(|(_, kind)| kind == self).expect("every other kind has a name");
        out.write_str(name)
    }
}

/// A policy and its settings. Settings of other policies are ignored, so that one configuration can be run with each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EvictionConfig {
    /// Which policy.
    pub kind: Kind,
    /// LRU, LRU-2Q, TinyLFU: which hits count.
    pub refresh: Refresh,
    /// LRU, LRU-2Q, TinyLFU: whether reads count as use. A policy is notified of hits without their kind, so the caller must withhold
    /// hits of the ignored kind.
    pub update_on_read: bool,
    /// LRU, LRU-2Q, TinyLFU: whether writes over an entry count as use.
    pub update_on_write: bool,
    /// LRU: see [`LruConfig::insertion_point`].
    pub insertion_point: u8,
    /// LRU-2Q: the hot queue's share, percent.
    pub hot_percent: u8,
    /// LRU-2Q: the cold queue's share, percent. The warm queue has the rest.
    pub cold_percent: u8,
}

impl Default for EvictionConfig {
    fn default() -> Self {
        Self {
            kind: Kind::Lru,
            refresh: Refresh::default(),
            update_on_read: true,
            update_on_write: false,
            insertion_point: 0,
            hot_percent: 20,
            cold_percent: 20,
        }
    }
}

impl EvictionConfig {
    /// The policy with its default settings.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self { kind, ..Self::default() }
    }
}

/// Seed of policies that draw random numbers, if the caller has none.
const SEED: u64 = 1;

/// Builds a policy that shares out `capacity_weight`.
///
/// # Panics
/// If an LRU-2Q's hot and cold percentages are more than 100 together.
#[must_use]
pub fn build(config: &EvictionConfig, capacity_weight: u64) -> Box<dyn Eviction> {
    struct Boxed;
    impl Use for Boxed {
        type Output = Box<dyn Eviction>;

        fn with(self, policy: impl Eviction + 'static) -> Self::Output {
            Box::new(policy)
        }
    }
    build_for(config, capacity_weight, SEED, Boxed)
}

/// A use of a policy, compiled for each type of policy.
pub(crate) trait Use {
    type Output;

    fn with(self, policy: impl Eviction + 'static) -> Self::Output;
}

/// Builds a policy by the rules of its paper, for `user`.
pub(crate) fn build_for<U: Use>(
    config: &EvictionConfig,
    capacity_weight: u64,
    seed: u64,
    user: U,
) -> U::Output {
    let &EvictionConfig { refresh, insertion_point, hot_percent, cold_percent, .. } = config;
    match config.kind {
        Kind::Fifo => user.with(Fifo::new()),
        Kind::Lru => user.with(Lru::new(LruConfig { refresh, insertion_point })),
        Kind::ExactLru => user.with(Lru::exact()),
        Kind::Lru2q => user.with(Lru2q::new(Lru2qConfig { refresh, hot_percent, cold_percent })),
        Kind::Slru(segments) => user.with(Slru::new(segments.get(), capacity_weight)),
        Kind::TinyLfu => user.with(TinyLfu::new(refresh)),
        Kind::WTinyLfu => user.with(WTinyLfu::new(capacity_weight)),
        Kind::S3Fifo => user.with(S3Fifo::new(capacity_weight)),
        Kind::Sieve => user.with(Sieve::new()),
        Kind::Gdsf => user.with(Gdsf::new(gdsf::Cost::Equal)),
        Kind::LfuDa => user.with(Gdsf::new(gdsf::Cost::Size)),
        Kind::Lfu => user.with(Gdsf::lfu()),
        Kind::Clock => user.with(Clock::new()),
        Kind::Arc => user.with(AdaptiveReplacement::new(capacity_weight, ArcRules::Paper)),
        Kind::Lirs => user.with(Lirs::new(capacity_weight)),
        Kind::TwoQ => user.with(TwoQ::new(capacity_weight, TwoQRules::Paper)),
        Kind::Random => user.with(Random::new(seed)),
        Kind::LruK => user.with(LruK::new()),
        Kind::LeCaR => user.with(LeCaR::new(capacity_weight, seed)),
        Kind::Lhd => user.with(Lhd::new(capacity_weight, seed)),
        Kind::Hyperbolic => user.with(Hyperbolic::new(seed)),
        Kind::Qdlp => user.with(Qdlp::new(capacity_weight)),
        Kind::Cacheus => user.with(Cacheus::new(capacity_weight, seed)),
        Kind::Merlin => user.with(Merlin::new(capacity_weight)),
        Kind::S4Fifo(settings) => user.with(S4Fifo::new(capacity_weight, settings)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_in_every_spelling() {
        for (name, kind) in KINDS.iter().chain(ALIASES) {
            assert_eq!(name.to_uppercase().replace('-', "_").parse(), Ok(*kind), "{name}");
        }
        for kind in Kind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!("LRU-2Q".parse(), Ok(Kind::Lru2q));
        assert_eq!("S3-FIFO".parse(), Ok(Kind::S3Fifo));
        assert_eq!("w-TinyLFU".parse(), Ok(Kind::WTinyLfu));
        assert_eq!("slru-17".parse::<Kind>().map(|kind| kind.to_string()), Ok("slru-17".to_owned()));
    }

    #[test]
    fn wrong_names_get_the_nearest_name_suggested() {
        let pairs =
            [("lruq2", "lru2q"), ("seive", "sieve"), ("s3fifi", "s3fifo"), ("LRU5B2", "LRU5B"), ("", "2q")];
        for (given, nearest) in pairs {
            let error = given.parse::<Kind>().unwrap_err();
            assert_eq!((error.given.as_str(), error.nearest), (given, nearest));
        }
        for none in ["slru-0", "slru-256", "slru-x"] {
            assert!(none.parse::<Kind>().is_err(), "{none}");
        }
        let message = "seive".parse::<Kind>().unwrap_err().to_string();
        assert!(
            message
                .starts_with("no eviction policy is named `seive`: did you mean `sieve`? (valid: fifo, lru,")
        );
    }

    #[test]
    fn name_tables_have_each_kind_once_and_aliases_of_it() {
        for (at, kind) in Kind::ALL.iter().enumerate() {
            assert!(!Kind::ALL[..at].contains(kind), "{kind} is twice in the table");
        }
        assert!(ALIASES.iter().all(|(_, kind)| Kind::ALL.contains(kind)));
    }

    #[test]
    #[should_panic(expected = "hot queue 60 % and cold queue 50 % are together more than 100 %")]
    fn shares_above_100_percent_are_refused() {
        let config = EvictionConfig { hot_percent: 60, cold_percent: 50, ..EvictionConfig::new(Kind::Lru2q) };
        drop(build(&config, 100));
    }
}
