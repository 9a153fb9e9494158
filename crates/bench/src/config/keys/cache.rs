//! `cache_config`: the cache under test.

use crate::config::knob::Status::{Honoured, Later, NoEffect};
use crate::config::knob::section;

use super::region_policy::RegionPolicyConfig;

const INDEX: &str = "the index sizes itself";
const THREADS: &str = "each caller does its own transfer; there is no pool of I/O threads or fibers";
const SHM: &str = "the cache lives in the process's own memory";
const BACKPRESSURE: &str = "a flash insert waits for a buffer; none is refused for being one too many";
const COMPONENT: &str = "there is no coroutine adapter to size";

section! {
    /// The cache under test.
    CacheConfig: "cache_config" => {
        "Eviction in DRAM: `LRU`, `LRU2Q`, `LRU5B`, `LRU5B2Q`; also `FIFO`, `SLRU`, `TinyLFU`, `WTinyLFU`, `S3FIFO`, `SIEVE`.";
        allocator: String = "LRU".to_owned(), "allocator", "", Honoured;
        "Directory that makes the cache persistent: a second run finds what the first left.";
        cache_dir: String = String::new(), "cacheDir", "path", Honoured;
        "DRAM of the cache.";
        cache_size_mib: u64 = 0, "cacheSizeMB", "MiB", Honoured;
        "How often memory moves between size classes; 0 is never.";
        pool_rebalance_interval_seconds: u64 = 0, "poolRebalanceIntervalSec", "s", Honoured;
        "Which class gives and which takes: `tail-age`, `hits` or `random`.";
        rebalance_strategy: String = String::new(), "rebalanceStrategy", "", Honoured;
        "Slabs that a class keeps.";
        rebalance_min_slabs: u64 = 1, "rebalanceMinSlabs", "slabs", Honoured;
        "Difference between classes below which nothing moves.";
        rebalance_diff_ratio: f64 = 0.25, "rebalanceDiffRatio", "", Honoured;
        "Whether a slab's items move elsewhere when it is released; else they are evicted.";
        move_on_slab_release: bool = false, "moveOnSlabRelease", "", Honoured;
        "Buckets of the main hash table, as a power of two.";
        ht_bucket_power: u64 = 22, "htBucketPower", "log2", NoEffect(INDEX);
        "Locks of the main hash table, as a power of two.";
        ht_lock_power: u64 = 20, "htLockPower", "log2", NoEffect(INDEX);
        "Buckets of the hash table of chained items, as a power of two.";
        chained_ht_bucket_power: u64 = 22, "chainedItemHtBucketPower", "log2", NoEffect(INDEX);
        "Locks of the hash table of chained items, as a power of two.";
        chained_ht_lock_power: u64 = 20, "chainedItemHtLockPower", "log2", NoEffect(INDEX);
        "Age of the last counted hit below which another is not counted.";
        lru_refresh_seconds: u64 = 60, "lruRefreshSec", "s", Honoured;
        "The same as a share of the age of the oldest item; it is CacheLib's reconfiguration that uses it.";
        lru_refresh_ratio: f64 = 0.1, "lruRefreshRatio", "", NoEffect("CacheBench never reconfigures its LRU; the refresh time stays");
        "How often CacheLib would recompute the refresh time.";
        mm_reconfigure_interval_seconds: u64 = 0, "mmReconfigureIntervalSecs", "s", NoEffect("CacheBench reads it and never uses it");
        "Whether a write counts as a use.";
        lru_update_on_write: bool = false, "lruUpdateOnWrite", "", NoEffect("a value is replaced, not written in place");
        "Whether a read counts as a use.";
        lru_update_on_read: bool = true, "lruUpdateOnRead", "", Honoured;
        "Whether a hit gives up rather than wait for the eviction lock.";
        try_lock_update: bool = false, "tryLockUpdate", "", NoEffect("hits do not wait for each other");
        "Locking of eviction iterators.";
        use_combined_lock_for_iterators: bool = false, "useCombinedLockForIterators", "", NoEffect("there is no such iterator");
        "Where new items enter the LRU, as a power of two of the distance from the tail; 0 is the head.";
        lru_insertion_point: u64 = 0, "lruIpSpec", "log2", Honoured;
        "Share of the hot queue of LRU2Q.";
        lru2q_hot_percent: u64 = 20, "lru2qHotPct", "%", Honoured;
        "Share of the cold queue of LRU2Q.";
        lru2q_cold_percent: u64 = 20, "lru2qColdPct", "%", Honoured;
        "Growth from one size class to the next.";
        alloc_factor: f64 = 1.5, "allocFactor", "", Honoured;
        "Largest size class.";
        max_alloc_bytes: u64 = 1 << 20, "maxAllocSize", "B", Honoured;
        "Smallest size class.";
        min_alloc_bytes: u64 = 64, "minAllocSize", "B", Honoured;
        "The size classes themselves, in place of the three above.";
        alloc_sizes_bytes: Vec<u64> = Vec::new(), "allocSizes", "B", Honoured;
        "Number of pools.";
        pool_count: u64 = 1, "numPools", "pools", Honoured;
        "Share of DRAM of each pool.";
        pool_shares: Vec<f64> = vec![1.0], "poolSizes", "", Honoured;
        "Where flash is: a directory, a file or a block device; several are striped.";
        nvm_paths: Vec<String> = Vec::new(), "nvmCachePaths", "path", Honoured;
        "Flash of the cache, for each path; 0 is a cache without flash. With no path it lives in memory.";
        nvm_size_mib: u64 = 0, "nvmCacheSizeMB", "MiB", Honoured;
        "Flash set aside for metadata.";
        nvm_metadata_mib: u64 = 0, "nvmCacheMetadataSizeMB", "MiB", NoEffect("the engine sizes its metadata itself");
        "Drives that are asked for the bytes their media wrote, `nvme0n1` or `/dev/nvme0n1`, whoever they wrote for; none asks those that flash lies on, or is a RAID of.";
        write_amp_devices: Vec<String> = Vec::new(), "writeAmpDeviceList", "", Honoured;
        "Unit of flash transfers.";
        navy_block_bytes: u64 = 512, "navyBlockSize", "B", Honoured;
        "Region of the large-object engine; at most 1024.";
        navy_region_mib: u64 = 16, "navyRegionSizeMB", "MiB", Honoured;
        "Several engine pairs on one device.";
        navy_arenas: Vec<Arena> = Vec::new(), "navyArenas", "", Honoured;
        "Region order: none is LRU, one value FIFO, several a segmented FIFO of these shares.";
        navy_segment_ratio: Vec<u64> = Vec::new(), "navySegmentedFifoSegmentRatio", "", Honoured;
        "Shards of request ordering.";
        navy_order_shards_power: u64 = 21, "navyReqOrderShardsPower", "log2", NoEffect("requests are ordered without a queue");
        "Share of flash of the small-object engine; 0 is none.";
        navy_big_hash_percent: u64 = 50, "navyBigHashSizePct", "%", Honoured;
        "Bucket of the small-object engine; a power of two.";
        navy_bucket_bytes: u64 = 4096, "navyBigHashBucketSize", "B", Honoured;
        "Filter of each bucket; 0 is none.";
        navy_bloom_bytes: u64 = 8, "navyBloomFilterPerBucketSize", "B", Honoured;
        "Largest key and value of the small-object engine.";
        navy_small_item_max_bytes: u64 = 2048, "navySmallItemMaxSize", "B", Honoured;
        "Limit of bytes on their way to flash.";
        navy_parcel_mib: u64 = 1024, "navyParcelMemoryMB", "MiB", NoEffect(BACKPRESSURE);
        "Hits that keep an item when its region is reclaimed.";
        navy_hits_reinsertion: u64 = 0, "navyHitsReinsertionThreshold", "hits", Honoured;
        "Chance that an item is kept when its region is reclaimed.";
        navy_probability_reinsertion: u64 = 0, "navyProbabilityReinsertionThreshold", "%", Honoured;
        "Hit history in the index.";
        navy_item_history: bool = false, "navyEnableItemHistoryTracking", "", NoEffect("the index keeps a hit count");
        "Threads that read.";
        navy_reader_threads: u64 = 32, "navyReaderThreads", "threads", NoEffect(THREADS);
        "Threads that write.";
        navy_writer_threads: u64 = 32, "navyWriterThreads", "threads", NoEffect(THREADS);
        "Reads in flight of the fiber scheduler.";
        navy_max_reads: u64 = 0, "navyMaxNumReads", "", NoEffect(THREADS);
        "Writes in flight of the fiber scheduler.";
        navy_max_writes: u64 = 0, "navyMaxNumWrites", "", NoEffect(THREADS);
        "Stack of a fiber.";
        navy_stack_kib: u64 = 32, "navyStackSizeKB", "KiB", NoEffect(THREADS);
        "Depth of asynchronous I/O.";
        navy_queue_depth: u64 = 0, "navyQDepth", "", NoEffect(THREADS);
        "io_uring rather than libaio.";
        navy_io_uring: bool = true, "navyEnableIoUring", "", NoEffect("asynchronous I/O is always io_uring");
        "Regions kept clean ahead of writers.";
        navy_clean_regions: u64 = 1, "navyCleanRegions", "regions", Honoured;
        "Threads that clean.";
        navy_clean_threads: u64 = 1, "navyCleanRegionThreads", "threads", NoEffect(THREADS);
        "Average write rate that admission to flash aims at; 0 admits all.";
        navy_admission_mib_per_second: u64 = 0, "navyAdmissionWriteRateMB", "MiB/s", Honoured;
        "Limit of inserts on their way to flash.";
        navy_max_inserts: u64 = 1_000_000, "navyMaxConcurrentInserts", "", NoEffect(BACKPRESSURE);
        "Checksum over values of the large-object engine.";
        navy_data_checksum: bool = true, "navyDataChecksum", "", Honoured;
        "Store the value's own length on flash.";
        truncate_item: bool = false, "truncateItemToOriginalAllocSizeInNvm", "", NoEffect("values always have their own length on flash");
        "Encrypt flash.";
        navy_encryption: bool = false, "navyEncryption", "", NoEffect("CacheBench has no encryptor either: nothing is encrypted");
        "Longest single write when a region is flushed.";
        device_max_write_bytes: u64 = 1 << 20, "deviceMaxWriteSize", "B", Honoured;
        "Placement by NVMe Flexible Data Placement: each engine writes with a handle of its own.";
        device_fdp: bool = false, "deviceEnableFDP", "", Honoured;
        "DRAM map of the last access of flash items.";
        navy_access_time_map: bool = false, "navyEnableAccessTimeMap", "", Later("access time map");
        "Size of that map.";
        navy_access_time_map_max: u64 = 0, "navyAccessTimeMapMaxSize", "items", Later("access time map");
        "Items that live shorter than this stay in DRAM.";
        memory_only_ttl_seconds: u64 = 0, "memoryOnlyTTL", "s", Honoured;
        "Shared memory by POSIX calls.";
        posix_shm: bool = false, "usePosixShm", "", NoEffect(SHM);
        "Kind of shared memory: `none`, `tmp`, `sysv`, `posix`.";
        shm_type: String = String::new(), "shmType", "", NoEffect(SHM);
        "Huge pages.";
        huge_page_bytes: u64 = 0, "hugePageSize", "B", NoEffect(SHM);
        "Where huge pages are mounted.";
        huge_page_dir: String = String::new(), "hugePageMountDir", "path", NoEffect(SHM);
        "Lock the cache's memory.";
        lock_memory: bool = false, "lockMemory", "", NoEffect(SHM);
        "Memory tiers.";
        memory_tiers: Vec<MemoryTier> = Vec::new(), "memoryTiers", "", Honoured;
        "The cache's clock, by which items expire and grow old, shows the time of the request that is farthest in the trace; latencies and rates stay in the run's own time.";
        use_trace_timestamp: bool = false, "useTraceTimeStamp", "", Honoured;
        "Step in which threads follow the trace's clock.";
        ticker_seconds: u64 = 0, "tickerSynchingSeconds", "s", NoEffect("no thread waits for another to come as far in the trace");
        "Print the flash counters at the end.";
        print_nvm_counters: bool = false, "printNvmCounters", "", Honoured;
        "Call a destructor for each item that leaves.";
        item_destructor: bool = false, "enableItemDestructor", "", Later("item destructors");
        "Check that each item is destroyed once.";
        item_destructor_check: bool = false, "enableItemDestructorCheck", "", Later("item destructors");
        "Items not used for longer than this stay out of flash; 0 is no limit.";
        retention_seconds: u64 = 0, "nvmAdmissionRetentionTimeThreshold", "s", Honoured;
        "CSV of what happens to keys.";
        event_file: String = String::new(), "eventTrackerFilePath", "path", Honoured;
        "One in how many keys is tracked.";
        event_sampling: u64 = 1, "eventTrackerSamplingRate", "", Honoured;
        "Events that may wait to be written; more are dropped and counted.";
        event_queue: u64 = 100_000, "eventTrackerQueueSize", "", Honoured;
        "Threads of the coroutine adapter.";
        fcc_threads: u64 = 32, "fccCoroFiberAdapterNumThreads", "threads", NoEffect(COMPONENT);
        "Fibers of the coroutine adapter.";
        fcc_fibers: u64 = 4, "fccCoroFiberAdapterFibersPerThread", "", NoEffect(COMPONENT);
        "Stack of the coroutine adapter's fibers.";
        fcc_stack_kib: u64 = 32, "fccCoroFiberAdapterStackSizeKB", "KiB", NoEffect(COMPONENT);
        "The object cache.";
        custom: ObjectCacheConfig = ObjectCacheConfig::default(), "customConfigJson", "", Later("object cache stressor");
        "Ours. Who enters flash: `always`, `probability:0.5`, `dynamic-random` (needs navyAdmissionWriteRateMB), `reject-first`.";
        flash_admission: String = String::new(), "flashAdmission", "", Honoured;
        "Ours. Go through the page cache where direct I/O is refused; the result says so.";
        flash_buffered: bool = false, "flashBuffered", "", Honoured;
        "Ours. Region policy, in place of navySegmentedFifoSegmentRatio: `mcdipper` (FIFO), `mcdipper-lru` (FIFO, items that were read stay), `blockcache` (segmented LRU of blocks), `ripq` (priority queue of items), `sipq` (the same with one insertion point).";
        region_policy: String = String::new(), "navyRegionPolicy", "", Honoured;
        "Ours. Its settings.";
        region_policy_config: RegionPolicyConfig = RegionPolicyConfig::default(), "navyRegionPolicyConfig", "", Honoured;
        "Ours. With deviceEnableFDP, who writes with a placement handle beside the engines' own: `insertion-points` (each of RIPQ's), `reinserted` (items that the large-object engine writes again), `metadata` (superblocks and snapshots).";
        placement_handles: Vec<String> = vec!["insertion-points".to_owned()], "devicePlacementHandles", "", Honoured;
    }
    legacy {
        "rebalanceMinRatio", "CacheBench does not read it; rebalanceDiffRatio is the key";
        "poolResizeIntervalSec", "CacheBench does not read it";
        "navyNumInmemBuffers", "CacheBench does not read it; buffers follow navyCleanRegions";
        "navySizeClasses", "CacheBench does not read it; regions pack items without size classes";
        "enableChainedItem", "CacheBench does not read it; addChainedRatio in test_config says so";
    }
}

section! {
    /// A memory tier.
    MemoryTier: "cache_config.memoryTiers[]" => {
        "Share of memory, relative to the other tiers.";
        ratio: u64 = 0, "ratio", "", Honoured;
        "NUMA nodes the tier is bound to.";
        bind_nodes: String = String::new(), "memBindNodes", "", NoEffect("memory is not bound; run under numactl");
    }
    legacy {}
}

section! {
    /// An engine pair on a share of the device.
    Arena: "cache_config.navyArenas[]" => {
        "Its name.";
        name: String = String::new(), "name", "", Honoured;
        "Its share of flash.";
        size_percent: u64 = 0, "sizePct", "%", Honoured;
        "The small-object engine's share of it.";
        big_hash_percent: u64 = 0, "bigHashPct", "%", Honoured;
    }
    legacy {}
}

const OBJECTS: &str = "object cache stressor";

section! {
    /// The object cache, for `test_config.name` `object_cache`.
    ObjectCacheConfig: "cache_config.customConfigJson" => {
        "Objects at most.";
        l1_entries: u64 = 0, "l1EntriesLimit", "objects", Later(OBJECTS);
        "Shards.";
        l1_shards: u64 = 1, "l1NumShards", "", Later(OBJECTS);
        "Longest key.";
        max_key_bytes: u64 = 255, "maxKeySizeBytes", "B", Later(OBJECTS);
        "Buckets of the hash table.";
        l1_hash_power: u64 = 0, "l1HashTablePower", "log2", Later(OBJECTS);
        "Locks of the hash table.";
        l1_lock_power: u64 = 0, "l1LockPower", "log2", Later(OBJECTS);
        "Candidates looked at for one eviction.";
        eviction_search: u64 = 50, "evictionSearchLimit", "", Later(OBJECTS);
        "Bytes of objects at most.";
        total_object_bytes: u64 = 0, "totalObjectSizeLimit", "B", Later(OBJECTS);
        "How often the size is controlled.";
        size_interval_ms: u64 = 0, "sizeControllerIntervalMs", "ms", Later(OBJECTS);
        "Whether objects' sizes are tracked.";
        size_tracking: bool = false, "objectSizeTrackingEnabled", "", Later(OBJECTS);
        "Name of the shard.";
        shard_name: String = String::new(), "shardName", "", Later(OBJECTS);
    }
    legacy {}
}
