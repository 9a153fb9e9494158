//! Requests from distributions: CacheBench's `online` and `workload` generators.
//!
//! Both describe a population of keys, divided into one contiguous range per pool. A pool defines the popularity of its keys
//! ([`popularity`]), the mix of operations ([`mix`]), and the sizes of keys, values and chains ([`sizes`]). Nothing is stored per key: its
//! bytes, sizes and TTL are computed from its index, so ten trillion keys cost the same as ten. The two generators differ in the spelling
//! of keys and in the drawing of accesses; see [`online`] and [`workload`].
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

/// The parameters of a generator.
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
    /// TTLs of values in seconds; `None`: values do not expire.
    pub ttl_seconds: Option<Table>,
    /// Which keys are asked for how often.
    pub popularity: Popularity,
    /// What is done with them.
    pub mix: Mix,
}
