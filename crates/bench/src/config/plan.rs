//! What will be run: plain structs with units in their names, computed once from a config.
//!
//! Nothing behind this file knows what a config looks like or what its keys are called.

use std::path::PathBuf;
use std::time::Duration;

use cache::SmallItems;
use workload::RequestKind;
use workload::generate::{GeneratorConfig, Table};
use workload::trace::Cut;

/// A whole run.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// One for each cache, run side by side.
    pub instances: Vec<InstancePlan>,
    /// The model drive under all of them, by name or path of its card: the run is then simulated.
    pub card: Option<String>,
}

/// One cache and what is done to it.
#[derive(Debug, Clone)]
pub struct InstancePlan {
    /// The cache.
    pub cache: CachePlan,
    /// What is asked of it.
    pub workload: WorkloadPlan,
    /// How it is asked.
    pub run: RunSettings,
}

/// The cache.
#[derive(Debug, Clone, PartialEq)]
pub struct CachePlan {
    /// DRAM, everything included.
    pub dram_bytes: u64,
    /// Share of DRAM of each pool.
    pub pool_shares: Vec<f64>,
    /// Size classes.
    pub classes: ClassesPlan,
    /// Who leaves DRAM.
    pub eviction: EvictionPlan,
    /// How memory moves between size classes; `None` is never.
    pub rebalance: Option<RebalancePlan>,
    /// Flash; `None` is a cache without.
    pub flash: Option<FlashPlan>,
    /// Directory that makes the cache persistent.
    pub persist_dir: Option<PathBuf>,
    /// What happens to which keys is written where; `None` is nowhere.
    pub events: Option<EventsPlan>,
    /// Whether the cache has an item destructor.
    pub destructor: DestructorPlan,
    /// Whether it is an object cache.
    pub objects: Option<ObjectsPlan>,
}

/// An object cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectsPlan {
    /// Objects, at most.
    pub most_objects: u64,
    /// Bytes of the longest key.
    pub max_key_bytes: u64,
    /// Whether the bytes of the objects are reported.
    pub tracks_bytes: bool,
}

/// The item destructor of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DestructorPlan {
    /// None.
    #[default]
    None,
    /// Its calls are counted.
    Counted,
    /// It is checked that it is called exactly once for each item.
    Checked,
}

/// Events to be written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventsPlan {
    /// The CSV.
    pub file: PathBuf,
    /// Of how many keys one is tracked.
    pub one_in: u64,
    /// Events that may wait to be written.
    pub queue: usize,
}

/// Size classes of DRAM.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassesPlan {
    /// Growth from one to the next.
    pub factor: f64,
    /// Smallest.
    pub min_bytes: u32,
    /// Largest.
    pub max_bytes: u32,
    /// The classes themselves, where they are given.
    pub explicit_bytes: Vec<u32>,
}

/// Who leaves DRAM.
#[derive(Debug, Clone, PartialEq)]
pub struct EvictionPlan {
    /// The policy, by the name it was given; the policies' own table knows it.
    pub policy: String,
    /// LRU family: age of the last counted hit below which another is not counted.
    pub refresh_seconds: u32,
    /// LRU family: whether reads count.
    pub update_on_read: bool,
    /// LRU: where new items enter.
    pub insertion_point: u8,
    /// LRU2Q: share of the hot queue.
    pub hot_percent: u8,
    /// LRU2Q: share of the cold queue.
    pub cold_percent: u8,
}

/// How memory moves between size classes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RebalancePlan {
    /// How often.
    pub interval: Duration,
    /// From which class to which.
    pub strategy: RebalanceStrategy,
    /// Slabs that a class keeps.
    pub min_slabs: u32,
    /// Difference below which nothing moves.
    pub diff_ratio: f64,
    /// Whether items move rather than leave when their slab is released.
    pub move_items: bool,
}

/// Which class gives memory and which takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebalanceStrategy {
    /// Any.
    Random,
    /// From the class whose oldest item is oldest.
    TailAge,
    /// From the class with the fewest hits a slab.
    Hits,
}

/// The flash tier.
#[derive(Debug, Clone, PartialEq)]
pub struct FlashPlan {
    /// Directories, files or block devices; none is memory.
    pub paths: Vec<PathBuf>,
    /// Drives that are asked for what their media wrote, each once; none asks the devices themselves.
    pub listed_drives: Vec<PathBuf>,
    /// Bytes of each device.
    pub bytes_per_device: u64,
    /// Unit of transfers.
    pub block_bytes: u32,
    /// Region of the large-object engine.
    pub region_bytes: u32,
    /// The key that says so.
    pub region_key: &'static str,
    /// Engine pairs that share the key space: share of flash and, of that, of the small-object engine, both percent.
    pub pairs: Vec<(u8, u8)>,
    /// Its bucket.
    pub bucket_bytes: u32,
    /// Filter of each bucket.
    pub filter_bytes: u32,
    /// Largest key and value of the small-object engine.
    pub small_item_max_bytes: u32,
    /// The engine for small items.
    pub small_items: SmallItems,
    /// Regions kept clean.
    pub clean_regions: u32,
    /// Region order.
    pub order: OrderPlan,
    /// Who enters.
    pub admission: AdmissionPlan,
    /// Which items of a reclaimed region stay.
    pub reinsertion: ReinsertionPlan,
    /// Checksum over values of the large-object engine.
    pub value_checksums: bool,
    /// Longest single write.
    pub max_write_bytes: u32,
    /// Items that live shorter stay in DRAM.
    pub min_ttl_seconds: u32,
    /// Items not used for longer stay out; 0 is no limit.
    pub retention_seconds: u32,
    /// Whether the page cache is accepted where direct I/O is refused.
    pub allow_buffered: bool,
    /// The engine's usual limit of small items that wait for their bucket is divided by this.
    pub pending_divisor: u32,
    /// Whether consumers ask for placement handles of their own; a device without placement is then refused.
    pub placement: bool,
    /// Consumers beside the engines that do.
    pub placement_extras: PlacementExtras,
    /// Transfers of a region flush or reclaim under way at once; 0 is all.
    pub transfers_at_once: u32,
    /// Whether a region is written from end to end, the hole before its table too.
    pub write_whole: bool,
}

/// Consumers beside the engines that ask for placement handles of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlacementExtras {
    /// Each insertion point of a queue of items.
    pub insertion_points: bool,
    /// Items that the large-object engine writes again.
    pub reinserted: bool,
    /// Superblocks and snapshots.
    pub metadata: bool,
}

/// Region order.
#[derive(Debug, Clone, PartialEq)]
pub enum OrderPlan {
    /// Least recently used first.
    Lru,
    /// Oldest first.
    Fifo,
    /// Segments of these shares.
    SegmentedFifo(Vec<u32>),
    /// Segments of equal shares that regions climb with each hit.
    SegmentedLru(u8),
    /// A queue of items.
    Ripq(cache::flash::region::RipqConfig),
}

/// Who enters flash.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AdmissionPlan {
    /// Everyone.
    Always,
    /// Everyone with this chance.
    Probability(f64),
    /// So many that the write rate comes to this, on average.
    DynamicRandom {
        /// Target.
        bytes_per_second: u64,
    },
    /// Who comes a second time.
    RejectFirst,
}

/// Which items of a reclaimed region stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReinsertionPlan {
    /// None.
    Never,
    /// Those with so many hits.
    Hits(u8),
    /// A share, percent.
    Percent(u8),
}

/// What is asked.
#[derive(Debug, Clone)]
pub enum WorkloadPlan {
    /// Keys drawn at each request.
    Online(GeneratorConfig),
    /// Accesses drawn ahead; their list is as long as the run.
    Prepared {
        /// The distributions.
        config: GeneratorConfig,
        /// Operations of all threads.
        ops: u64,
    },
    /// A trace.
    Replay(Box<ReplayPlan>),
    /// A stressor makes its own requests.
    Stressor(StressorPlan),
}

/// A stressor that makes its own requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StressorPlan {
    /// Many references to one item.
    References,
    /// Maps in chained items.
    Map,
    /// The same, found by an ordered index.
    RangeMap,
    /// Caches that are shut down while memory moves between size classes.
    FastShutdown,
}

impl StressorPlan {
    /// The stressor of this name of CacheBench's, if it is one that makes its own requests.
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

/// What tells the format of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceFormat {
    /// Its name.
    Named(String),
    /// Its first file.
    Told,
    /// It is one of the binary ones: its first file tells which.
    Binary,
}

/// A trace and how it is replayed.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayPlan {
    /// The key of `test_config` that names the files.
    pub named_by: &'static str,
    /// Files, one after another.
    pub files: Vec<PathBuf>,
    /// Their format.
    pub format: TraceFormat,
    /// What requests are cut into.
    pub cut: Cut,
    /// Copies with keys of their own.
    pub amplification: u32,
    /// Whether copies' keys are made as CacheBench makes them.
    pub cachebench_amplification: bool,
    /// Multiplies value sizes.
    pub size_amplification: u32,
    /// Times to live of rows that have none.
    pub ttl_seconds: Option<Table>,
    /// Rows to skip.
    pub fast_forward: u64,
    /// How often it is replayed; `None` is without end.
    pub loops: Option<u64>,
    /// Operations that are replayed; `None` is all.
    pub ops: Option<Vec<RequestKind>>,
    /// Whether repeat counts are taken as 1.
    pub ignore_op_count: bool,
    /// Whether requests of one key keep their order.
    pub strict_order: bool,
    /// Whether requests are made at the trace's own times.
    pub timed: bool,
    /// Whether the cache's clock shows the trace's times.
    pub clock_follows: bool,
    /// Whether the warm-up ends by them.
    pub warms_by_time: bool,
    /// Where what is missed is written, if anywhere.
    pub miss_trace: Option<PathBuf>,
    /// Units of trace time in a second; `None` is what the format has.
    pub time_units_per_second: Option<u64>,
    /// The model that decides what is set, if one does.
    pub learned: Option<Box<LearnedPlan>>,
}

/// Learned admission.
#[derive(Debug, Clone, PartialEq)]
pub struct LearnedPlan {
    /// File of the model.
    pub model: PathBuf,
    /// The model's features by name, each with its source in a request.
    pub features: Vec<(String, FeatureSource)>,
    /// The class that is admitted.
    pub admitted_class: u64,
    /// Share of what should be admitted that is to be; 0 leaves it to the model's scores.
    pub target_recall: f64,
}

/// The part of a request that a feature is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeatureSource {
    /// Bytes of the value.
    Size,
    /// Bytes of the key.
    KeySize,
    /// Seconds that it lives.
    Ttl,
    /// Seconds on the trace's clock.
    Time,
}

impl FeatureSource {
    /// By the column that it is in.
    pub const NAMED: [(&str, Self); 4] =
        [("size", Self::Size), ("key_size", Self::KeySize), ("ttl", Self::Ttl), ("op_time", Self::Time)];
}

/// How it is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSettings {
    /// Threads.
    pub threads: usize,
    /// They are tasks, which share as many threads as the machine has processors.
    pub tasks: bool,
    /// Operations of each.
    pub ops_per_thread: u64,
    /// After so many operations of a thread, a pause of so many nanoseconds.
    pub delay: Option<(u64, u64)>,
    /// Whether requests wait for each other.
    pub arrivals: ArrivalsPlan,
    /// Closed loop: operations a second of all threads, and how many may come at once.
    pub rate: Option<(u64, u64)>,
    /// A get that misses is followed by a set.
    pub lookaside: bool,
    /// A set is done only where the key is absent.
    pub only_set_if_miss: bool,
    /// A hit reads every byte.
    pub touch_value: bool,
    /// What is left out of the figures.
    pub warmup: WarmupPlan,
    /// What ends the run besides.
    pub limits: LimitsPlan,
    /// Values are written, not only allocated.
    pub populate: bool,
    /// Every value found is checked against what was set.
    pub check_consistency: bool,
    /// Inconsistencies that end the run.
    pub max_inconsistencies: u64,
    /// Share of a value that a drive can compress away, percent.
    pub zeros_percent: u8,
    /// Share of its blocks that a drive can find elsewhere, percent.
    pub repeated_percent: u8,
    /// A walk over the items in DRAM, if any.
    pub sweeps: Option<SweepPlan>,
    /// Print flash counters at the end.
    pub print_flash_counters: bool,
}

/// A warm-up: it ends when it has been as long as each of these; 0 asks for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WarmupPlan {
    /// Operations of each thread, on average.
    pub ops_per_thread: u64,
    /// Seconds.
    pub seconds: u64,
    /// Bytes written to flash.
    pub flash_bytes: u64,
    /// Evictions from flash.
    pub flash_evictions: u64,
    /// What the trace's clock shows, seconds: a request of that time has begun.
    pub trace_seconds: u64,
}

/// A walk over the items in DRAM beside the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepPlan {
    /// What CacheBench calls it.
    pub mode: &'static str,
    /// Before each walk.
    pub interval: Duration,
    /// Of a pause; none is no pause.
    pub sleep: Duration,
    /// Between two pauses.
    pub work: Duration,
}

/// What ends a run besides its operations; 0 does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitsPlan {
    /// Bytes written to flash.
    pub flash_bytes: u64,
    /// Operations of a round: the run ends when its rounds have become alike.
    pub steady_round_ops: u64,
}

/// When requests are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ArrivalsPlan {
    /// A closed loop: each thread asks when it has the answer before.
    Closed,
    /// An open loop: evenly.
    Uniform {
        /// Of all threads.
        per_second: u64,
    },
    /// An open loop: at random, each request independently of the others.
    Poisson {
        /// Of all threads.
        per_second: u64,
    },
    /// An open loop: at the times of the trace.
    Trace {
        /// How many times as fast.
        speed: f64,
    },
}

impl ArrivalsPlan {
    /// Whether requests are due at times of their own.
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
