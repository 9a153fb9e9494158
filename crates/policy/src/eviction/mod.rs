//! Eviction policies, one paper a file, and the table of their names.

pub mod fifo;
pub mod lru;
pub mod refresh;
pub mod s3_fifo;

use std::fmt;
use std::str::FromStr;

pub use fifo::Fifo;
pub use lru::{Lru, LruConfig};
pub use refresh::Refresh;
pub use s3_fifo::S3Fifo;

use crate::Eviction;
use crate::name::{UnknownName, plain};

/// The policies that a name chooses. [`clairvoyant`] is not among them: it must be told the future.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// [`Fifo`].
    Fifo,
    /// [`Lru`] with CacheLib's refresh time.
    Lru,
    /// [`Lru`] that hears of every hit.
    ExactLru,
    /// [`S3Fifo`].
    S3Fifo,
}

/// Names as they are printed, first of their kind, and as they are understood. Case, `-` and `_` do not matter.
const NAMES: &[(&str, Kind)] = &[
    ("fifo", Kind::Fifo),
    ("lru", Kind::Lru),
    ("exact-lru", Kind::ExactLru),
    ("s3fifo", Kind::S3Fifo),
    // CacheBench's: "5B" is how it compresses pointers.
    ("LRU5B", Kind::Lru),
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
        let known = NAMES.iter().find(|(known, _)| plain(known) == plain(name));
        known.map(|&(_, kind)| kind).ok_or_else(|| UnknownName::new("eviction policy", name, Self::names()))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = NAMES.iter().find(|(_, kind)| kind == self).expect("every kind has a name");
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
    /// LRU, LRU-2Q, TinyLFU: whether reads count as use.
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

/// Builds a policy that shares out `capacity_weight`.
#[must_use]
pub fn build(config: &EvictionConfig, capacity_weight: u64) -> Box<dyn Eviction> {
    let refresh = config.refresh;
    match config.kind {
        Kind::Fifo => Box::new(Fifo::new()),
        Kind::Lru => Box::new(Lru::new(LruConfig { refresh, insertion_point: config.insertion_point })),
        Kind::ExactLru => Box::new(Lru::exact()),
        Kind::S3Fifo => Box::new(S3Fifo::new(capacity_weight)),
    }
}
