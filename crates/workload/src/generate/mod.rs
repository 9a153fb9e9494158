//! Requests from distributions: CacheBench's `online` and `workload` generators.
//!
//! Both describe a population of keys, cut into one contiguous range a pool. A pool says which keys are asked
//! for how often ([`popularity`]), what is done with them ([`mix`]), and how large keys, values and chains are
//! ([`sizes`]). Nothing is stored per key: whatever belongs to a key (its bytes, its sizes, its TTL) is
//! computed from its index, so ten trillion keys cost what ten cost. The two generators differ in how keys are
//! spelt and in how accesses are drawn; [`online`] and [`workload`] say how.
//!
//! The properties of a key do not depend on the seed. A run with another seed asks the same population in
//! another order, so figures of different seeds differ by the order alone.

mod buffer_pool;
pub mod cdn;
pub mod error;
mod guide;
pub mod innodb;
pub mod keys;
pub mod linkbench;
pub mod mix;
pub mod online;
pub mod popularity;
mod population;
mod random;
pub mod sizes;
mod source;
pub mod workload;
pub mod zipf;

pub use mix::Mix;
pub use online::Online;
pub use popularity::{BucketRule, Popularity};
pub(crate) use random::{Stream, stream};
pub use sizes::Table;
pub use workload::PreparedAccesses;

/// What a generator is told.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneratorConfig {
    /// Keys in all pools together.
    pub keys: u64,
    /// The pools, in the order of the cache's pools; at least one.
    pub pools: Vec<PoolConfig>,
}

/// One pool's part of the workload.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    /// Share of the operations that go to this pool, relative to the other pools'.
    pub op_share: f64,
    /// Share of the keys that live in this pool, relative to the other pools'.
    pub key_share: f64,
    /// What the pool's operations look like.
    pub distribution: Distribution,
}

/// What operations look like.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// Lengths of keys.
    pub key_bytes: Table,
    /// Lengths of values.
    pub value_bytes: Table,
    /// Number of chained items of a key; `None`: no chains.
    pub chain_items: Option<Table>,
    /// Lengths of chained items; needed where `chain_items` is given.
    pub chain_value_bytes: Option<Table>,
    /// Seconds that values live; `None`: for ever.
    pub ttl_seconds: Option<Table>,
    /// Which keys are asked for how often.
    pub popularity: Popularity,
    /// What is done with them.
    pub mix: Mix,
}
