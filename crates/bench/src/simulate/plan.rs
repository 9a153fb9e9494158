//! Settings of a simulation.

use policy::simulate::Settings;

use super::designs::FlashSettings;
use super::policies::Named;
use super::series::Interval as SeriesInterval;
use super::shard::Shard;
use super::warmup::Warmup;

/// Settings of a simulation.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Policies. A name that is given twice is simulated once; aliases have separate rows.
    pub policies: Vec<Named>,
    /// Cache sizes. Equal sizes are simulated once.
    pub sizes: Vec<Size>,
    /// Rules for all policies.
    pub settings: Settings,
    /// Settings of flash caches.
    pub flash: FlashSettings,
    /// Warm-up, which the figures exclude.
    pub warmup: Warmup,
    /// Length of the intervals whose hits are reported; `None` reports none.
    pub series: Option<SeriesInterval>,
    /// Whether each object keeps the size of its first request.
    pub first_size: bool,
    /// Whether every object has weight 1. [`Size::Bytes`] and all byte counts are then numbers of objects.
    pub ignore_size: bool,
    /// Whether TTLs of the trace are ignored.
    pub ignore_ttl: bool,
    /// Share of the objects to simulate, in addition to the most popular ones; `None` is all.
    pub sample: Option<f64>,
    /// Number of tenants to report by name; `None` does not distinguish tenants.
    pub tenants: Option<usize>,
    /// The share of the objects and of the sizes to simulate; `None` is all.
    pub shard: Option<Shard>,
    /// Number of threads.
    pub threads: usize,
}

/// Size of a cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Size {
    /// Bytes.
    Bytes(u64),
    /// Share of the trace's footprint: the total size of all objects, each with the size of its first request.
    Footprint(f64),
}
