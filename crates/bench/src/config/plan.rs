//! The plan of a run: plain structs with units in their names, computed once from a config.
//!
//! Code that uses a plan does not depend on the format of a config or its key names.

use std::path::PathBuf;
use std::time::Duration;

use cache::{RecoverAfter, SmallItems};
use workload::RequestKind;
use workload::generate::{GeneratorConfig, Table};
use workload::trace::Cut;

/// A whole run.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// One for each cache; all run concurrently.
    pub instances: Vec<InstancePlan>,
    /// Name or path of the card of the model drive under all instances; the run is then simulated.
    pub card: Option<String>,
}

/// One cache and its requests.
#[derive(Debug, Clone)]
pub struct InstancePlan {
    /// The cache.
    pub cache: CachePlan,
    /// Source of the requests.
    pub workload: WorkloadPlan,
    /// How the requests are made.
    pub run: RunSettings,
}

/// Settings of a cache.
#[derive(Debug, Clone, PartialEq)]
pub struct CachePlan {
    /// Bytes of DRAM, including metadata.
    pub dram_bytes: u64,
    /// Share of DRAM of each pool.
    pub pool_shares: Vec<f64>,
    /// Size classes.
    pub classes: ClassesPlan,
    /// Eviction from DRAM.
    pub eviction: EvictionPlan,
    /// Movement of memory between size classes; `None` disables it.
    pub rebalance: Option<RebalancePlan>,
    /// The flash tier; `None` is a cache without flash.
    pub flash: Option<FlashPlan>,
    /// Directory that makes the cache persistent.
    pub persist_dir: Option<PathBuf>,
    /// Events of keys that are recorded; `None` disables it.
    pub events: Option<EventsPlan>,
    /// Whether the cache has an item destructor.
    pub destructor: DestructorPlan,
    /// Settings of an object cache; `None` is a cache of items.
    pub objects: Option<ObjectsPlan>,
}

/// An object cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectsPlan {
    /// Maximum number of objects.
    pub max_objects: u64,
    /// Maximum length of a key.
    pub max_key_bytes: u64,
    /// Whether the total size of objects is reported.
    pub tracks_bytes: bool,
    /// Limit of the total size of objects; `None` is no limit.
    pub size_limit: Option<SizeLimitPlan>,
}

/// Limit of the total size of the objects in an object cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimitPlan {
    /// The limit.
    pub bytes: u64,
    /// Interval of the controller that enforces the limit.
    pub interval: Duration,
}

/// Item destructor of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DestructorPlan {
    /// No destructor.
    #[default]
    None,
    /// Calls are counted.
    Counted,
    /// Checks that it is called exactly once for each item.
    Checked,
}

/// Recording of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventsPlan {
    /// Path of the CSV.
    pub file: PathBuf,
    /// One in this many keys is tracked.
    pub one_in: u64,
    /// Maximum number of events that wait to be written.
    pub queue: usize,
}

/// Size classes of DRAM.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassesPlan {
    /// Growth factor from one class to the next.
    pub factor: f64,
    /// Smallest class.
    pub min_bytes: u32,
    /// Largest class.
    pub max_bytes: u32,
    /// Explicit list of classes; empty if they follow from the factor.
    pub explicit_bytes: Vec<u32>,
}

/// Eviction from DRAM.
#[derive(Debug, Clone, PartialEq)]
pub struct EvictionPlan {
    /// Name of the policy as given; the policy crate parses it.
    pub policy: String,
    /// LRU family: a hit counts as a use only if the last counted one is at least this old.
    pub refresh_seconds: u32,
    /// LRU family: whether reads count as uses.
    pub update_on_read: bool,
    /// LRU: insertion point of new items.
    pub insertion_point: u8,
    /// LRU2Q: share of the hot queue.
    pub hot_percent: u8,
    /// LRU2Q: share of the cold queue.
    pub cold_percent: u8,
}

/// Movement of memory between size classes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RebalancePlan {
    /// Interval.
    pub interval: Duration,
    /// Choice of the classes.
    pub strategy: RebalanceStrategy,
    /// Minimum number of slabs of a class.
    pub min_slabs: u32,
    /// Difference between classes below which no memory is moved.
    pub diff_ratio: f64,
    /// Whether items of a released slab are moved instead of evicted.
    pub move_items: bool,
}

/// Choice of the class that gives memory and the class that receives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebalanceStrategy {
    /// Random classes.
    Random,
    /// From the class with the oldest tail item.
    TailAge,
    /// From the class with the fewest hits per slab.
    Hits,
}

/// The flash tier.
#[derive(Debug, Clone, PartialEq)]
pub struct FlashPlan {
    /// Directories, files or block devices; if empty, flash is in memory.
    pub paths: Vec<PathBuf>,
    /// Drives whose media write counters are read, without duplicates; if empty, those below `paths`.
    pub listed_drives: Vec<PathBuf>,
    /// Bytes of each device.
    pub bytes_per_device: u64,
    /// Alignment of sizes; see `navyBlockSize`.
    pub block_bytes: u32,
    /// Region size of the large-object engine.
    pub region_bytes: u32,
    /// Key that sets the region size.
    pub region_key: &'static str,
    /// Engine pairs that share the key space: percentage of flash, and of that the percentage of the small-object engine.
    pub pairs: Vec<(u8, u8)>,
    /// Bucket size of the small-object engine.
    pub bucket_bytes: u32,
    /// Size of each bucket's Bloom filter.
    pub filter_bytes: u32,
    /// Largest item (key and value) of the small-object engine.
    pub small_item_max_bytes: u32,
    /// The engine for small items.
    pub small_items: SmallItems,
    /// Ends of the run after which the next one finds the items on flash.
    pub recover_after: RecoverAfter,
    /// Number of clean regions kept ready.
    pub clean_regions: u32,
    /// Eviction order of regions.
    pub order: OrderPlan,
    /// Flash admission.
    pub admission: AdmissionPlan,
    /// Reinsertion of items of a reclaimed region.
    pub reinsertion: ReinsertionPlan,
    /// Whether values of the large-object engine have checksums.
    pub value_checksums: bool,
    /// Maximum size of a single write.
    pub max_write_bytes: u32,
    /// Items with a shorter TTL are not written to flash.
    pub min_ttl_seconds: u32,
    /// Items not used for longer are not written to flash; 0 is no limit.
    pub retention_seconds: u32,
    /// Whether the page cache is used where direct I/O is refused.
    pub allow_buffered: bool,
    /// Divisor of the engine's default limit of small items that wait for their bucket.
    pub pending_divisor: u32,
    /// Whether engines have their own placement handles; a device without placement is then refused.
    pub placement: bool,
    /// Additional consumers of placement handles.
    pub placement_extras: PlacementExtras,
    /// Maximum concurrent transfers of a region flush or reclaim; 0 is all.
    pub transfers_at_once: u32,
    /// Whether a region is written completely, including the hole before its table.
    pub write_whole: bool,
}

/// Consumers of placement handles in addition to the engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlacementExtras {
    /// Each insertion point of RIPQ.
    pub insertion_points: bool,
    /// Items that the large-object engine reinserts.
    pub reinserted: bool,
    /// Superblocks and snapshots.
    pub metadata: bool,
}

/// Eviction order of regions.
#[derive(Debug, Clone, PartialEq)]
pub enum OrderPlan {
    /// Least recently used first.
    Lru,
    /// Oldest first.
    Fifo,
    /// Segmented FIFO with these shares.
    SegmentedFifo(Vec<u32>),
    /// Segmented LRU with this number of equal segments; each hit moves a region up one segment.
    SegmentedLru(u8),
    /// RIPQ, a priority queue of items.
    Ripq(cache::config::regions::RipqConfig),
}

/// Flash admission.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AdmissionPlan {
    /// Admits all items.
    Always,
    /// Admits each item with this probability.
    Probability(f64),
    /// Probability adjusted so that the average write rate meets a target.
    DynamicRandom {
        /// Target rate.
        bytes_per_second: u64,
    },
    /// Admits items that are offered a second time.
    RejectFirst,
}

/// Reinsertion of items of a reclaimed region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReinsertionPlan {
    /// No item is reinserted.
    Never,
    /// Items with at least this many hits.
    Hits(u8),
    /// A random percentage of items.
    Percent(u8),
}

/// Source of the requests.
#[derive(Debug, Clone)]
pub enum WorkloadPlan {
    /// Keys drawn at request time.
    Online(GeneratorConfig),
    /// Keys drawn in advance, for the whole run.
    Prepared {
        /// The distributions.
        config: GeneratorConfig,
        /// Operations of all threads.
        ops: u64,
    },
    /// A trace.
    Replay(Box<ReplayPlan>),
    /// A stressor that makes its own requests.
    Stressor(StressorPlan),
}

/// A stressor that makes its own requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StressorPlan {
    /// Many references to one item.
    References,
    /// Maps in chained items.
    Map,
    /// Maps in chained items, with entries found by an ordered index.
    RangeMap,
    /// Caches that are shut down while memory moves between size classes.
    FastShutdown,
}

impl StressorPlan {
    /// The stressor with this CacheBench name, if it makes its own requests.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::References, Self::Map, Self::RangeMap, Self::FastShutdown]
            .into_iter()
            .find(|it| it.name() == name)
    }

    /// CacheBench's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::References => "high_refcount",
            Self::Map => "cachelib_map",
            Self::RangeMap => "cachelib_range_map",
            Self::FastShutdown => "fast_shutdown",
        }
    }
}

/// Format of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceFormat {
    /// A named format.
    Named(String),
    /// Detected from the first file.
    Detected,
    /// A binary format, which the first file identifies.
    Binary,
}

/// A trace and its replay settings.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayPlan {
    /// Key of `test_config` that names the files.
    pub named_by: &'static str,
    /// Files, replayed one after another.
    pub files: Vec<PathBuf>,
    /// Format of the files.
    pub format: TraceFormat,
    /// Division of requests into pages, pieces or chunks.
    pub cut: Cut,
    /// Number of copies of the trace, each with its own keys.
    pub amplification: u32,
    /// Whether keys of copies are formed as in CacheBench.
    pub cachebench_amplification: bool,
    /// Factor of value sizes.
    pub size_amplification: u32,
    /// TTLs of rows without one.
    pub ttl_seconds: Option<Table>,
    /// Rows to skip.
    pub fast_forward: u64,
    /// Number of replays; `None` is without end.
    pub loops: Option<u64>,
    /// Operations that are replayed; `None` is all.
    pub ops: Option<Vec<RequestKind>>,
    /// Whether repeat counts are treated as 1.
    pub ignore_op_count: bool,
    /// Whether requests for one key keep their order.
    pub strict_order: bool,
    /// Whether requests are made at the times of the trace.
    pub timed: bool,
    /// Whether the cache's clock follows the trace.
    pub clock_follows: bool,
    /// Whether the warm-up ends at a time of the trace.
    pub warms_by_time: bool,
    /// Path of the trace to which misses are written.
    pub miss_trace: Option<PathBuf>,
    /// Units of trace time in a second; `None` is the format's default.
    pub time_units_per_second: Option<u64>,
    /// Model for learned admission.
    pub learned: Option<Box<LearnedPlan>>,
}

/// Learned admission.
#[derive(Debug, Clone, PartialEq)]
pub struct LearnedPlan {
    /// Path of the model.
    pub model: PathBuf,
    /// Features of the model.
    pub features: Vec<Feature>,
    /// Class of the model that is admitted.
    pub admitted_class: u64,
    /// Recall that selects the threshold; 0 is a threshold of 0.5.
    pub target_recall: f64,
}

/// A feature of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// Its name in the model.
    pub name: String,
    /// Its source in a request.
    pub source: FeatureSource,
    /// Whether its values are the numbers of categories.
    pub is_category: bool,
}

/// Part of a request from which a feature is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeatureSource {
    /// Length of the value in bytes.
    Size,
    /// Length of the key in bytes.
    KeySize,
    /// TTL in seconds.
    Ttl,
    /// Time on the trace's clock, in seconds.
    Time,
}

impl FeatureSource {
    /// Sources by the name of their column.
    pub const NAMED: [(&str, Self); 4] =
        [("size", Self::Size), ("key_size", Self::KeySize), ("ttl", Self::Ttl), ("op_time", Self::Time)];
}

/// How the requests are made.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunSettings {
    /// Threads.
    pub threads: usize,
    /// Whether workers are tasks on as many threads as the machine has processors.
    pub tasks: bool,
    /// Operations of each thread.
    pub ops_per_thread: u64,
    /// A pause: after this many operations of a thread, this many nanoseconds.
    pub delay: Option<(u64, u64)>,
    /// Arrival of requests: closed or open loop.
    pub arrivals: ArrivalsPlan,
    /// Closed loop: limit of operations per second of all threads, and the burst size.
    pub rate: Option<(u64, u64)>,
    /// Whether a get that misses is followed by a set.
    pub lookaside: bool,
    /// Whether a set is done only if the key is absent.
    pub only_set_if_miss: bool,
    /// Whether a hit reads every byte of the value.
    pub touch_value: bool,
    /// Warm-up, which the figures exclude.
    pub warmup: WarmupPlan,
    /// Additional conditions that end the run.
    pub limits: LimitsPlan,
    /// Whether values are written, not only allocated.
    pub populate: bool,
    /// Whether every value found is checked against the value that was set.
    pub check_consistency: bool,
    /// Number of inconsistencies that ends the run.
    pub max_inconsistencies: u64,
    /// Percentage of a value that a compressing drive can save.
    pub zeros_percent: u8,
    /// Percentage of value blocks that a deduplicating drive can save.
    pub repeated_percent: u8,
    /// Iteration over the items in DRAM during the run.
    pub sweeps: Option<SweepPlan>,
    /// Whether flash counters are printed at the end.
    pub print_flash_counters: bool,
}

/// Length of a warm-up, which ends when all conditions hold; 0 disables a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WarmupPlan {
    /// Operations of each thread, on average.
    pub ops_per_thread: u64,
    /// Seconds of the run.
    pub seconds: u64,
    /// Bytes written to flash.
    pub flash_bytes: u64,
    /// Evictions from flash.
    pub flash_evictions: u64,
    /// Time on the trace's clock, in seconds.
    pub trace_seconds: u64,
}

/// Iteration over the items in DRAM during the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepPlan {
    /// CacheBench's name of the mode.
    pub mode: &'static str,
    /// Time before each iteration.
    pub interval: Duration,
    /// Length of a pause; 0 is no pause.
    pub sleep: Duration,
    /// Time between two pauses.
    pub work: Duration,
}

/// Additional conditions that end a run; 0 disables them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitsPlan {
    /// Bytes written to flash.
    pub flash_bytes: u64,
    /// Operations of a round: the run ends when the figures of its rounds are steady.
    pub steady_round_ops: u64,
}

/// Arrival of requests.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum ArrivalsPlan {
    /// Closed loop: each thread sends its next request when the previous one is answered.
    #[default]
    Closed,
    /// Open loop: at even intervals.
    Uniform {
        /// Rate of all threads.
        per_second: u64,
    },
    /// Open loop: at random, as a Poisson process.
    Poisson {
        /// Rate of all threads.
        per_second: u64,
    },
    /// Open loop: at the times of the trace.
    Trace {
        /// Speed-up factor.
        speed: f64,
    },
}

impl ArrivalsPlan {
    /// Whether requests have due times that do not depend on answers.
    #[must_use]
    pub fn is_open(self) -> bool {
        self != Self::Closed
    }
}

impl RunSettings {
    /// Operations of all threads.
    #[must_use]
    pub fn total_ops(&self) -> u64 {
        self.ops_per_thread.saturating_mul(self.threads as u64)
    }
}
