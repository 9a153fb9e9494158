//! Requests from distributions: CacheBench's `online` and `workload` generators.
//!
//! Both describe a population of keys, divided into one contiguous range per pool. A pool defines the popularity of its keys
//! ([`popularity`]), the mix of operations ([`mix`]), and the sizes of keys, values and chains ([`sizes`]). Nothing is stored per key: its
//! bytes, sizes and TTL are computed from its index, so ten trillion keys cost the same as ten. The two generators differ in the format
//! of keys and in the drawing of accesses; see [`online`] and [`workload`].
//!
//! The properties of a key do not depend on the seed. A run with another seed requests the same population in another order, so figures of
//! different seeds differ by the order alone.

mod buffer_pool;
pub mod cdn;
pub mod error;
pub mod innodb;
mod interval_index;
pub mod keys;
pub mod linkbench;
pub mod mix;
pub mod online;
pub mod popularity;
mod population;
pub(crate) mod random;
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
    /// Properties of the pool's keys and operations.
    pub distribution: Distribution,
}

/// Properties of keys and operations.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// Lengths of keys.
    pub key_bytes: Table,
    /// Lengths of values.
    pub value_bytes: Table,
    /// Number of chained items of a key; `None` disables chains.
    pub chain_items: Option<Table>,
    /// Lengths of chained items; required if `chain_items` is given.
    pub chain_value_bytes: Option<Table>,
    /// TTLs of values in seconds; `None` if values do not expire.
    pub ttl_seconds: Option<Table>,
    /// Request frequencies of the keys.
    pub popularity: Popularity,
    /// Frequencies of the operations.
    pub mix: Mix,
}
