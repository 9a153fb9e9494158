//! `test_config`: the run.

use super::{Distribution, ReplayConfig};
use crate::config::knob::Status::{Honoured, NoEffect};
use crate::config::knob::section;

section! {
    /// The run.
    TestConfig: "test_config" => {
        "Where requests come from: `workload`, `online`, `replay`, `binary-replay` (a binary trace, ours or CacheBench's), `piecewise-replay` (CDN traces), `block-replay` (block storage traces); `simple-flash-benchmark` is checked only.";
        generator: String = String::new(), "generator", "", Honoured;
        "The stressor; empty is the usual one, and `async` the same with tasks for threads. CacheBench runs the usual one for any name that it does not know; here such a name is refused.";
        name: String = String::new(), "name", "", Honoured;
        "Operations of each thread.";
        ops_per_thread: u64 = 0, "numOps", "ops", Honoured;
        "Ours. Bytes written to flash that end the run; 0 is no limit.";
        max_flash_mib: u64 = 0, "maxFlashWriteMB", "MiB", Honoured;
        "Ours. Ends the run when hit ratio, write rate and write amplification were steady over five rounds of so many operations of the instance, once flash was written over; 0 is never.";
        steady_round_ops: u64 = 0, "steadyRoundOps", "ops", Honoured;
        "Ours. Operations of each thread, on average, that warm the cache up: they are among numOps, and in no figure.";
        warmup_ops: u64 = 0, "warmupOps", "ops", Honoured;
        "Ours. Seconds of warm-up; of several lengths that are given, the longest holds.";
        warmup_seconds: u64 = 0, "warmupSeconds", "s", Honoured;
        "Ours. Bytes written to flash in the warm-up.";
        warmup_flash_mib: u64 = 0, "warmupFlashWriteMB", "MiB", Honoured;
        "Threads.";
        threads: u64 = 0, "numThreads", "threads", Honoured;
        "Different keys.";
        key_count: u64 = 0, "numKeys", "keys", Honoured;
        "Whether a get that misses is followed by a set.";
        lookaside: bool = false, "enableLookaside", "", Honoured;
        "Whether a set is done only where the key is absent.";
        only_set_if_miss: bool = false, "onlySetIfMiss", "", Honoured;
        "Whether a trace's repeat counts are taken as 1.";
        ignore_op_count: bool = false, "ignoreOpCount", "", Honoured;
        "Whether values are written, or only allocated.";
        populate_item: bool = true, "populateItem", "", Honoured;
        "Whether a hit reads every byte of the value.";
        touch_value: bool = false, "touchValue", "", Honoured;
        "Whether every value found is checked against what was set.";
        check_consistency: bool = false, "checkConsistency", "", Honoured;
        "Inconsistencies that end the run.";
        max_inconsistencies: u64 = 50, "maxInconsistencyCount", "", Honoured;
        "Destructor errors that end the run.";
        max_invalid_destructors: u64 = 50, "maxInvalidDestructorCount", "", NoEffect("item destructors are not checked");
        "Whether the figures begin when flash is warm, by nvmCacheWarmupCheckPolicy.";
        check_warmup: bool = false, "checkNvmCacheWarmUp", "", Honoured;
        "When flash counts as warm.";
        warmup_policy: WarmupPolicy = WarmupPolicy { eviction_count: 1, timestamp: 0 }, "nvmCacheWarmupCheckPolicy", "", Honoured;
        "Operations of a thread between two pauses.";
        delay_batch: u64 = 0, "opDelayBatch", "ops", Honoured;
        "Length of a pause.";
        delay_ns: u64 = 0, "opDelayNs", "ns", Honoured;
        "Operations a second of the instance; 0 is as many as it can.";
        rate_per_second: u64 = 0, "opRatePerSec", "ops/s", Honoured;
        "Ours. When requests come: `closed`, each thread's as soon as it has the answer before; or at opRatePerSec whatever the answers take, evenly (`uniform`) or at random (`poisson`).";
        arrivals: String = "closed".to_owned(), "arrivals", "", Honoured;
        "Operations that may come at once; 0 is one second's.";
        rate_burst: u64 = 0, "opRateBurstSize", "ops", Honoured;
        "Share of operations of each pool.";
        op_pools: Vec<f64> = vec![1.0], "opPoolDistribution", "", Honoured;
        "Share of keys of each pool.";
        key_pools: Vec<f64> = vec![1.0], "keyPoolDistribution", "", Honoured;
        "Distributions of the pools; without it the keys of a distribution stand in test_config itself.";
        pool_distributions: Vec<Distribution> = Vec::new(), "poolDistributions", "", Honoured;
        "The trace.";
        trace_file: String = String::new(), "traceFileName", "path", Honoured;
        "The traces, one after another.";
        trace_files: Vec<String> = Vec::new(), "traceFileNames", "path", Honoured;
        "Where relative traces and distribution files are looked for; empty is the config's own directory.";
        config_path: String = String::new(), "configPath", "path", Honoured;
        "Whether the trace starts again at its end.";
        repeat_trace: bool = false, "repeatTraceReplay", "", Honoured;
        "Ours. Times that the trace is replayed; 0 is once, or without end where repeatTraceReplay says so.";
        trace_loops: u64 = 0, "traceLoops", "", Honoured;
        "Units of trace time in a second. Where it is not given, only `kvcache` has the default; other formats have their own (`docs/traces.md`).";
        timestamp_factor: u64 = 1000, "timestampFactor", "", Honoured;
        "Ours. Requests of a replay are made at the trace's own times, so many times as fast, whatever the answers take; 0 is as fast as the threads can.";
        trace_speed: f64 = 0.0, "traceSpeed", "", Honoured;
        "How a trace is replayed.";
        replay: ReplayConfig = ReplayConfig::default(), "replayGeneratorConfig", "", Honoured;
        "`piecewise-replay`: a piece; a shorter object is one item.";
        piece_bytes: u64 = 65536, "cachePieceSize", "B", Honoured;
        "`piecewise-replay`: pieces of an object that may be cached; what lies behind them is fetched each time.";
        max_pieces: u64 = 32000, "maxCachePieces", "", Honoured;
        "`piecewise-replay`: where what is missed is written, as a trace of the same columns for the cache behind this one.";
        miss_trace: String = String::new(), "missTraceFile", "path", Honoured;
        "Sampling interval.";
        sampling_interval_ms: u64 = 1000, "samplingIntervalMs", "ms", NoEffect("CacheBench reads it and never uses it");
        "Locking of eviction iterators.";
        use_combined_lock_for_iterators: bool = false, "useCombinedLockForIterators", "", NoEffect("there is no such iterator");
        "A walk over the items in DRAM beside the run: `disabled`, `regular`, or `lock_group`, which walks as `regular` does.";
        iterator_mode: String = "disabled".to_owned(), "dramIteratorMode", "", Honoured;
        "Time before each walk.";
        iterator_interval_ms: u64 = 10000, "dramIteratorIntervalMs", "ms", Honoured;
        "Pause of a walk; 0 is none.";
        iterator_sleep_ms: u64 = 0, "dramIteratorSleepMs", "ms", Honoured;
        "Time between two pauses of a walk, whatever part of DRAM it sees in it; with 0 it pauses wherever it can.";
        iterator_work_ms: u64 = 0, "dramIteratorWorkMs", "ms", Honoured;
        "Ours. Share of a value's bytes that a compressing drive can save, 0 to 1.";
        compressibility: f64 = 0.0, "valueCompressibility", "", Honoured;
        "Ours. Share of the 4 KiB blocks of values that a deduplicating drive can save, 0 to 1; of values above 4 KiB, which are packed into regions.";
        dedup_ratio: f64 = 0.0, "valueDedupRatio", "", Honoured;
    }
    legacy {
        "prepopulateCache", "CacheBench does not read it";
        "preallocateCache", "CacheBench does not read it";
        "repeatOpCount", "CacheBench does not read it; ignoreOpCount is the key";
        "enableChainedItem", "CacheBench does not read it; addChainedRatio says so";
        "distribution", "CacheBench does not read it; poolDistributions is the key";
        "poolDistributionConfig", "CacheBench does not read it; poolDistributions is the key";
    }
}

impl TestConfig {
    /// Whether a trace is written again as a binary one, and nothing is run.
    #[must_use]
    pub fn writes_binary_trace(&self) -> bool {
        self.generator == "replay" && !self.replay.binary_file.is_empty()
    }

    /// The time of the trace, in seconds, at which flash counts as warm; 0 where it does not matter.
    #[must_use]
    pub fn warm_at_trace_seconds(&self) -> u64 {
        if self.check_warmup { self.warmup_policy.timestamp } else { 0 }
    }

    /// Whether the binary trace has a key of its own.
    #[must_use]
    pub fn names_binary_trace(&self) -> bool {
        self.generator == "binary-replay" && !self.replay.binary_file.is_empty()
    }
}

section! {
    /// When flash counts as warm.
    WarmupPolicy: "test_config.nvmCacheWarmupCheckPolicy" => {
        "Evictions from flash.";
        eviction_count: u64 = 0, "evictionCountThreshold", "items", Honoured;
        "A replay: time of the trace, on its own clock; 0 is none. Of two thresholds that are given, both are to be reached.";
        timestamp: u64 = 0, "requestTimestampThreshold", "s", Honoured;
    }
    legacy {}
}
