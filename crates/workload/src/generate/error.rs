//! Errors in a workload's configuration.

/// A configuration error.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{what}: {problem}")]
pub struct ConfigError {
    /// The part of the configuration that is wrong, for example `pool 1: value_bytes`.
    pub what: String,
    /// The error.
    pub problem: Problem,
}

/// An error in a part of a configuration.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A table's two columns have lengths that do not fit together.
    #[error(
        "{range} range values with {weights} weights; there must be as many as weights (single values) or one more (edges of intervals)"
    )]
    Lengths {
        /// Entries in the range column.
        range: usize,
        /// Entries in the weight column.
        weights: usize,
    },
    /// The numbers of buckets and weights differ.
    #[error("{buckets} buckets with {weights} weights; the numbers must be equal")]
    Buckets {
        /// Popularity buckets.
        buckets: usize,
        /// Popularity weights.
        weights: usize,
    },
    /// A number is negative or not finite.
    #[error("{0} is not a finite number that is at least 0")]
    Number(f64),
    /// Edges of intervals do not ascend.
    #[error("the edges must ascend, but {next} follows {edge}")]
    Descending {
        /// An edge that is followed by a smaller one.
        edge: f64,
        /// The edge after `edge`.
        next: f64,
    },
    /// All weights are zero, so nothing can be drawn.
    #[error("all weights are 0, so there is nothing to draw")]
    NoWeight,
    /// More entries than supported.
    #[error("{0} entries; at most 65535 are supported")]
    TooMany(usize),
    /// There are no pools.
    #[error("at least one pool is needed")]
    NoPools,
    /// A pool receives operations but has no keys.
    #[error("the pool gets operations but none of the {keys} keys")]
    NoKeys {
        /// Keys in all pools.
        keys: u64,
    },
    /// More keys than are supported.
    #[error("{0} keys; at most 2^56 are supported")]
    TooManyKeys(u64),
    /// Keys longer than supported.
    #[error("keys of {0} bytes; at most 255 are supported")]
    LongKey(u64),
    /// Keys of 0 bytes in a generator that writes keys as words.
    #[error("keys of 0 bytes; the minimum is 1")]
    EmptyKey,
    /// Chains without lengths for their items.
    #[error("chains are configured, but the lengths of chained items are not given")]
    NoChainSizes,
    /// The operation mix adds to chains, but no lengths are given.
    #[error("operations add chained items, but the number of items in a chain is not given")]
    NoChains,
    /// A Zipf exponent that is negative or not a number.
    #[error("{0} is not a Zipf exponent, which must be 0 or more")]
    Zipf(f64),
}

impl Problem {
    /// The error in the part `what` of the configuration.
    pub(crate) fn of(self, what: impl Into<String>) -> ConfigError {
        ConfigError { what: what.into(), problem: self }
    }
}
