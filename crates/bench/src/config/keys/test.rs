//! `test_config`: the run.

use super::{Distribution, ReplayConfig};
use crate::config::condition::Condition;
use crate::config::names::OBJECT_CACHE;
use crate::config::schema::Status::{Honoured, HonouredIf, NoEffect};
use crate::config::schema::section;

section! {
    /// The run.
    TestConfig: "test_config" => {
        "Source of the requests: `workload`, `online`, `replay`, `binary-replay` (a binary trace, ours or CacheBench's), `piecewise-replay` (CDN traces), `block-replay` (block storage traces); `simple-flash-benchmark` is only checked, not run.";
        generator: String = String::new(), "generator", "", Honoured;
        "The stressor; empty is the default one, and `async` is the same with tasks instead of threads. CacheBench runs the default one for any unknown name; here an unknown name is an error.";
        name: String = String::new(), "name", "", Honoured;
        "Number of operations of each thread.";
        ops_per_thread: u64 = 0, "numOps", "ops", Honoured;
        "Ours. The run ends when this much has been written to flash; 0 is no limit.";
        max_flash_mib: u64 = 0, "maxFlashWriteMB", "MiB", Honoured;
        "Ours. Operations of the instance in a round: the run ends when hit ratio, write rate and write amplification were steady over five rounds, after all of flash has been overwritten; 0 is never.";
        steady_round_ops: u64 = 0, "steadyRoundOps", "ops", Honoured;
        "Ours. Warm-up operations of each thread, on average; they are part of numOps, but not of the figures.";
        warmup_ops: u64 = 0, "warmupOps", "ops", Honoured;
        "Ours. Duration of the warm-up; if several warm-up lengths are given, the longest applies.";
        warmup_seconds: u64 = 0, "warmupSeconds", "s", Honoured;
        "Ours. Bytes written to flash in the warm-up.";
        warmup_flash_mib: u64 = 0, "warmupFlashWriteMB", "MiB", Honoured;
        "Number of threads.";
        threads: u64 = 0, "numThreads", "threads", Honoured;
        "Number of distinct keys.";
        key_count: u64 = 0, "numKeys", "keys", HonouredIf(Condition::Generator);
        "Whether a get that misses is followed by a set.";
        lookaside: bool = false, "enableLookaside", "", Honoured;
        "Whether a set is done only if the key is absent.";
        only_set_if_miss: bool = false, "onlySetIfMiss", "", Honoured;
        "Whether all repeat counts of a trace are treated as 1.";
        ignore_op_count: bool = false, "ignoreOpCount", "", HonouredIf(Condition::Trace);
        "Whether values are written or only allocated; with checkConsistency, their first 24 bytes are written in any case.";
        populate_item: bool = true, "populateItem", "", Honoured;
        "Whether a hit reads every byte of the value.";
        touch_value: bool = false, "touchValue", "", Honoured;
        "Whether every value found is checked against what was set.";
        check_consistency: bool = false, "checkConsistency", "", Honoured;
        "Number of inconsistencies of an instance that ends it.";
        max_inconsistencies: u64 = 50, "maxInconsistencyCount", "", HonouredIf(Condition::Checking);
        "Number of destructor errors that ends the run.";
        max_invalid_destructors: u64 = 50, "maxInvalidDestructorCount", "", NoEffect("item destructors are not checked");
        "Whether the figures start only when flash is warm, as defined by nvmCacheWarmupCheckPolicy.";
        check_warmup: bool = false, "checkNvmCacheWarmUp", "", Honoured;
        "When flash counts as warm.";
        warmup_policy: WarmupPolicy = WarmupPolicy { eviction_count: 1, timestamp: 0 }, "nvmCacheWarmupCheckPolicy", "", HonouredIf(Condition::FlashWarmup);
        "Number of operations of a thread between two pauses.";
        delay_batch: u64 = 0, "opDelayBatch", "ops", HonouredIf(Condition::PauseLength);
        "Length of a pause.";
        delay_ns: u64 = 0, "opDelayNs", "ns", HonouredIf(Condition::PauseBatch);
        "Rate of operations of the instance; 0 is no limit.";
        rate_per_second: u64 = 0, "opRatePerSec", "ops/s", Honoured;
        "Ours. Arrival of requests: `closed` (each thread sends its next request when the previous one is answered), or an open loop at opRatePerSec that does not wait for answers, at even intervals (`uniform`) or at random (`poisson`).";
        arrivals: String = "closed".to_owned(), "arrivals", "", Honoured;
        "Operations that may start immediately after a pause; 0: those of one second at opRatePerSec.";
        rate_burst: u64 = 0, "opRateBurstSize", "ops", HonouredIf(Condition::Rate);
        "Share of operations of each pool.";
        op_pools: Vec<f64> = vec![1.0], "opPoolDistribution", "", HonouredIf(Condition::Generator);
        "Share of keys of each pool.";
        key_pools: Vec<f64> = vec![1.0], "keyPoolDistribution", "", HonouredIf(Condition::Generator);
        "Distributions of the pools; without it, the keys of the distribution are in test_config itself.";
        pool_distributions: Vec<Distribution> = Vec::new(), "poolDistributions", "", Honoured;
        "Trace file.";
        trace_file: String = String::new(), "traceFileName", "path", HonouredIf(Condition::TraceFile);
        "Trace files, replayed one after another.";
        trace_files: Vec<String> = Vec::new(), "traceFileNames", "path", HonouredIf(Condition::TraceFile);
        "Directory to which relative paths of traces and distribution files refer; empty is the directory of the config.";
        config_path: String = String::new(), "configPath", "path", Honoured;
        "Whether the trace starts again at its end.";
        repeat_trace: bool = false, "repeatTraceReplay", "", HonouredIf(Condition::Trace);
        "Ours. Number of times the trace is replayed; 0 is once, or without end with repeatTraceReplay.";
        trace_loops: u64 = 0, "traceLoops", "", Honoured;
        "Units of trace time in a second. The default is for `kvcache`; other formats have their own defaults (`docs/traces.md`).";
        timestamp_factor: u64 = 1000, "timestampFactor", "", HonouredIf(Condition::Trace);
        "Ours. Replays requests in an open loop at the times of the trace, sped up by this factor; 0 is as fast as the threads can.";
        trace_speed: f64 = 0.0, "traceSpeed", "", Honoured;
        "How a trace is replayed.";
        replay: ReplayConfig = ReplayConfig::default(), "replayGeneratorConfig", "", Honoured;
        "Ours. Operations of the trace that are replayed (`GET`, `SET`, `DELETE`), such as `SET` alone for a write-only replay; empty is all.";
        replay_ops: Vec<String> = Vec::new(), "replayOps", "", HonouredIf(Condition::Trace);
        "`piecewise-replay`: size of a piece; a shorter object is one item.";
        piece_bytes: u64 = 65536, "cachePieceSize", "B", HonouredIf(Condition::Pieces);
        "`piecewise-replay`: maximum number of pieces of an object that are cached; the rest of the object is fetched each time.";
        max_pieces: u64 = 32000, "maxCachePieces", "", HonouredIf(Condition::Pieces);
        "`piecewise-replay`: file to which misses are written, as a trace with the same columns for the cache behind this one.";
        miss_trace: String = String::new(), "missTraceFile", "path", Honoured;
        "Sampling interval.";
        sampling_interval_ms: u64 = 1000, "samplingIntervalMs", "ms", NoEffect("CacheBench reads it and never uses it");
        "Locking of eviction iterators.";
        use_combined_lock_for_iterators: bool = false, "useCombinedLockForIterators", "", NoEffect("there is no such iterator");
        "Iterate over the items in DRAM during the run: `disabled`, `regular`, or `lock_group`, which is the same as `regular`.";
        iterator_mode: String = "disabled".to_owned(), "dramIteratorMode", "", Honoured;
        "Time before each iteration.";
        iterator_interval_ms: u64 = 10000, "dramIteratorIntervalMs", "ms", HonouredIf(Condition::Iterator);
        "Length of a pause within an iteration; 0 is none.";
        iterator_sleep_ms: u64 = 0, "dramIteratorSleepMs", "ms", HonouredIf(Condition::Iterator);
        "Time between two pauses of an iteration, however much of DRAM it covers in it; with 0 it pauses as often as it can.";
        iterator_work_ms: u64 = 0, "dramIteratorWorkMs", "ms", HonouredIf(Condition::Iterator);
        "Ours. Share of a value's bytes that a compressing drive can save, 0 to 1.";
        compressibility: f64 = 0.0, "valueCompressibility", "", HonouredIf(Condition::WrittenValues);
        "Ours. Share of the 4 KiB blocks of values that a deduplicating drive can save, 0 to 1; of values above 4 KiB, which are packed into regions.";
        dedup_ratio: f64 = 0.0, "valueDedupRatio", "", HonouredIf(Condition::WrittenValues);
    }
    legacy {
        "prepopulateCache", "CacheBench does not read it";
        "preallocateCache", "CacheBench does not read it";
        "repeatOpCount", "CacheBench does not read it; ignoreOpCount is the key";
        "enableChainedItem", "CacheBench does not read it; use addChainedRatio";
        "distribution", "CacheBench does not read it; poolDistributions is the key";
        "poolDistributionConfig", "CacheBench does not read it; poolDistributions is the key";
    }
}

impl TestConfig {
    /// Whether the default stressor runs, which has no name; some shipped configs call it `stressor`. `cache_component` and
    /// `async` make the same requests.
    #[must_use]
    pub fn uses_default_stressor(&self) -> bool {
        matches!(self.name.as_str(), "" | "stressor" | "cache_component" | "async" | OBJECT_CACHE)
    }

    /// Whether a generator draws the requests from the distributions.
    #[must_use]
    pub fn needs_distribution(&self) -> bool {
        self.uses_default_stressor() && matches!(self.generator.as_str(), "" | "workload" | "online")
    }

    /// Whether the requests are written to a binary trace instead of being run.
    #[must_use]
    pub fn writes_binary_trace(&self) -> bool {
        self.generator == "replay" && !self.replay.binary_file.is_empty()
    }

    /// Time on the trace's clock at which flash counts as warm, in seconds; 0 if not used.
    #[must_use]
    pub fn warm_at_trace_seconds(&self) -> u64 {
        if self.check_warmup { self.warmup_policy.timestamp } else { 0 }
    }

    /// Whether the trace is given by `binaryFileName`.
    #[must_use]
    pub fn names_binary_trace(&self) -> bool {
        self.generator == "binary-replay" && !self.replay.binary_file.is_empty()
    }
}

section! {
    /// When flash counts as warm.
    WarmupPolicy: "test_config.nvmCacheWarmupCheckPolicy" => {
        "Number of evictions from flash.";
        eviction_count: u64 = 0, "evictionCountThreshold", "items", Honoured;
        "Replays only: time on the trace's own clock; 0 is none. If both thresholds are given, both must be reached.";
        timestamp: u64 = 0, "requestTimestampThreshold", "s", Honoured;
    }
    legacy {}
}
