//! Names that a config accepts as values.

/// Eviction policies that `allocator` accepts; CacheLib's four first.
pub const ALLOCATORS: [&str; 10] =
    ["LRU", "LRU2Q", "LRU5B", "LRU5B2Q", "FIFO", "SLRU", "TinyLFU", "WTinyLFU", "S3FIFO", "SIEVE"];
/// Values of `generator`; an empty name is `workload`.
pub const GENERATORS: [&str; 7] = [
    "workload",
    "online",
    "replay",
    "binary-replay",
    "piecewise-replay",
    "block-replay",
    "simple-flash-benchmark",
];
/// Generators that replay a trace.
pub const REPLAYS: [&str; 4] = ["replay", "binary-replay", "piecewise-replay", "block-replay"];
/// Values of `arrivals`.
pub const ARRIVALS: [&str; 3] = ["closed", "uniform", "poisson"];
/// Values of `navySmallItemEngine`.
pub const SMALL_ITEM_ENGINES: [&str; 2] = ["bighash", "log"];
/// Values of `navyRecoverAfter`.
pub const RECOVER_AFTER: [&str; 3] = ["close", "kill", "power-loss"];
/// Values of `navyRegionPolicy`.
pub const REGION_POLICIES: [&str; 5] = ["mcdipper", "mcdipper-lru", "blockcache", "ripq", "sipq"];
/// Values of `devicePlacementHandles`.
pub const PLACEMENT_HANDLES: [&str; 3] = ["insertion-points", "reinserted", "metadata"];
/// Values of `flashAdmission`; `probability` takes a number after a colon.
pub const ADMISSIONS: [&str; 4] = ["always", "probability", "dynamic-random", "reject-first"];
/// Values of `replaySerializationMode`.
pub const SERIALIZATIONS: [&str; 3] = ["strict", "relaxed", "none"];
/// Values of `replayOps`.
pub const REPLAY_OPS: [&str; 3] = ["GET", "SET", "DELETE"];
/// Values of `allocator` for the stressor of cache components.
pub const COMPONENTS: [&str; 3] = ["RAM", "flash", "consistent_flash"];
/// Values of `test_config.name`.
pub const STRESSORS: [&str; 8] = [
    "stressor",
    "async",
    "cache_component",
    "object_cache",
    "high_refcount",
    "cachelib_map",
    "cachelib_range_map",
    "fast_shutdown",
];
/// Stressor of the object cache: the default stressor's requests, for objects.
pub const OBJECT_CACHE: &str = "object_cache";
