//! `cache_config`: the cache under test.

use crate::config::condition::Condition;
use crate::config::schema::Status::{Honoured, HonouredIf, Later, NoEffect};
use crate::config::schema::section;

use super::region_policy::RegionPolicyConfig;

const INDEX: &str = "the index sizes itself";
const THREADS: &str = "each caller does its own transfer; there is no pool of I/O threads or fibers";
const SHM: &str = "the cache lives in the process's own memory";
const BACKPRESSURE: &str =
    "a flash insert waits for a buffer; none is rejected because too many are in flight";
const COMPONENT: &str = "there is no coroutine adapter to size";

section! {
    /// The cache under test.
    CacheConfig: "cache_config" => {
        "Eviction policy in DRAM: `LRU`, `LRU2Q`, `LRU5B`, `LRU5B2Q`; also `FIFO`, `SLRU`, `TinyLFU`, `WTinyLFU`, `S3FIFO`, `SIEVE`.";
        allocator: String = "LRU".to_owned(), "allocator", "", Honoured;
        "Directory that makes the cache persistent: a second run starts with the content that the first left.";
        cache_dir: String = String::new(), "cacheDir", "path", Honoured;
        "Size of the cache in DRAM.";
        cache_size_mib: u64 = 0, "cacheSizeMB", "MiB", Honoured;
        "Interval at which memory is moved between size classes; 0 is never.";
        pool_rebalance_interval_seconds: u64 = 0, "poolRebalanceIntervalSec", "s", Honoured;
        "How the class that gives memory and the class that receives it are chosen: `tail-age`, `hits` or `random`.";
        rebalance_strategy: String = String::new(), "rebalanceStrategy", "", HonouredIf(Condition::Rebalancing);
        "Minimum number of slabs that a class keeps.";
        rebalance_min_slabs: u64 = 1, "rebalanceMinSlabs", "slabs", HonouredIf(Condition::Rebalancing);
        "Difference between classes below which no memory is moved.";
        rebalance_diff_ratio: f64 = 0.25, "rebalanceDiffRatio", "", HonouredIf(Condition::ComparedClasses);
        "Whether the items of a released slab are moved to other slabs, into free chunks or those of the class's coldest items, which are evicted for them; otherwise they are evicted.";
        move_on_slab_release: bool = false, "moveOnSlabRelease", "", HonouredIf(Condition::Rebalancing);
        "Number of buckets of the main hash table, as a power of two.";
        ht_bucket_power: u64 = 22, "htBucketPower", "log2", NoEffect(INDEX);
        "Number of locks of the main hash table, as a power of two.";
        ht_lock_power: u64 = 20, "htLockPower", "log2", NoEffect(INDEX);
        "Number of buckets of the hash table of chained items, as a power of two.";
        chained_ht_bucket_power: u64 = 22, "chainedItemHtBucketPower", "log2", NoEffect(INDEX);
        "Number of locks of the hash table of chained items, as a power of two.";
        chained_ht_lock_power: u64 = 20, "chainedItemHtLockPower", "log2", NoEffect(INDEX);
        "Minimum time between two hits on an item that count as uses.";
        lru_refresh_seconds: u64 = 60, "lruRefreshSec", "s", HonouredIf(Condition::LruFamily);
        "The refresh time as a share of the age of the oldest item; only CacheLib's reconfiguration uses it.";
        lru_refresh_ratio: f64 = 0.1, "lruRefreshRatio", "", NoEffect("CacheBench never reconfigures its LRU; the refresh time stays");
        "Interval at which CacheLib would recompute the refresh time.";
        mm_reconfigure_interval_seconds: u64 = 0, "mmReconfigureIntervalSecs", "s", NoEffect("CacheBench reads it and never uses it");
        "Whether a write counts as a use.";
        lru_update_on_write: bool = false, "lruUpdateOnWrite", "", NoEffect("a value is replaced, not written in place");
        "Whether a read counts as a use.";
        lru_update_on_read: bool = true, "lruUpdateOnRead", "", HonouredIf(Condition::LruFamily);
        "Whether a hit skips its update instead of waiting for the eviction lock.";
        try_lock_update: bool = false, "tryLockUpdate", "", NoEffect("hits do not wait for each other");
        "Locking of eviction iterators.";
        use_combined_lock_for_iterators: bool = false, "useCombinedLockForIterators", "", NoEffect("there is no such iterator");
        "Insertion point of new items in the LRU, as a power of two of the distance from the tail; 0 is the head.";
        lru_insertion_point: u64 = 0, "lruIpSpec", "log2", HonouredIf(Condition::Lru);
        "Share of the hot queue in LRU2Q.";
        lru2q_hot_percent: u64 = 20, "lru2qHotPct", "%", HonouredIf(Condition::Lru2q);
        "Share of the cold queue in LRU2Q.";
        lru2q_cold_percent: u64 = 20, "lru2qColdPct", "%", HonouredIf(Condition::Lru2q);
        "Growth factor from one size class to the next.";
        alloc_factor: f64 = 1.5, "allocFactor", "", HonouredIf(Condition::NoSizes);
        "Largest size class.";
        max_alloc_bytes: u64 = 1 << 20, "maxAllocSize", "B", HonouredIf(Condition::NoSizes);
        "Smallest size class.";
        min_alloc_bytes: u64 = 64, "minAllocSize", "B", HonouredIf(Condition::NoSizes);
        "List of the size classes, instead of the three keys above.";
        alloc_sizes_bytes: Vec<u64> = Vec::new(), "allocSizes", "B", Honoured;
        "Number of pools.";
        pool_count: u64 = 1, "numPools", "pools", Honoured;
        "Share of DRAM of each pool.";
        pool_shares: Vec<f64> = vec![1.0], "poolSizes", "", Honoured;
        "Location of flash: a directory, a file or a block device; several are striped.";
        nvm_paths: Vec<String> = Vec::new(), "nvmCachePaths", "path", HonouredIf(Condition::Flash);
        "Size of the flash cache on each path; 0 is a cache without flash. Without a path, flash is in memory.";
        nvm_size_mib: u64 = 0, "nvmCacheSizeMB", "MiB", HonouredIf(Condition::FlashBehindDram);
        "Flash reserved for metadata.";
        nvm_metadata_mib: u64 = 0, "nvmCacheMetadataSizeMB", "MiB", NoEffect("the engine sizes its metadata itself");
        "Drives whose media write counters are read, as `nvme0n1` or `/dev/nvme0n1`; the counters include the writes of all programs. If empty, the drives (or the members of the RAID) that flash is on are read.";
        write_amp_devices: Vec<String> = Vec::new(), "writeAmpDeviceList", "", HonouredIf(Condition::Flash);
        "Alignment of deviceMaxWriteSize and, with --scale, of flash and region sizes. Transfers use the block size of the device.";
        navy_block_bytes: u64 = 512, "navyBlockSize", "B", HonouredIf(Condition::Flash);
        "Region size of the large-object engine; at most 1024.";
        navy_region_mib: u64 = 16, "navyRegionSizeMB", "MiB", HonouredIf(Condition::UsualRegions);
        "Several pairs of engines on one device.";
        navy_arenas: Vec<Arena> = Vec::new(), "navyArenas", "", HonouredIf(Condition::Flash);
        "Order in which regions are evicted: no value is LRU, one value is FIFO, several are a segmented FIFO with these shares.";
        navy_segment_ratio: Vec<u64> = Vec::new(), "navySegmentedFifoSegmentRatio", "", HonouredIf(Condition::Regions);
        "Number of shards for ordering requests.";
        navy_order_shards_power: u64 = 21, "navyReqOrderShardsPower", "log2", NoEffect("requests are ordered without a queue");
        "Share of flash for the small-object engine; 0 is no such engine.";
        navy_big_hash_percent: u64 = 50, "navyBigHashSizePct", "%", HonouredIf(Condition::OnePair);
        "Bucket size of the small-object engine; a power of two.";
        navy_bucket_bytes: u64 = 4096, "navyBigHashBucketSize", "B", HonouredIf(Condition::Buckets);
        "Size of the Bloom filter of each bucket; 0 is no filter.";
        navy_bloom_bytes: u64 = 8, "navyBloomFilterPerBucketSize", "B", HonouredIf(Condition::Buckets);
        "Largest item (key and value) that goes to the small-object engine.";
        navy_small_item_max_bytes: u64 = 2048, "navySmallItemMaxSize", "B", HonouredIf(Condition::Buckets);
        "Engine for small items: `bighash` (set-associative buckets, as CacheLib) or `log` (a log in hash order, which writes each item once).";
        small_item_engine: String = "bighash".to_owned(), "navySmallItemEngine", "", HonouredIf(Condition::Buckets);
        "Share of each region of the log for items of the evicted region that were read since their last write; 0 disables readmission.";
        small_item_log_readmission_percent: u64 = 25, "navySmallItemLogReadmissionPct", "%", HonouredIf(Condition::SmallItemLog);
        "Expected mean size of small items (key and value), which sizes the index of the log.";
        small_item_log_item_bytes: u64 = 256, "navySmallItemLogItemSize", "B", HonouredIf(Condition::SmallItemLog);
        "Ends of the run after which the next one finds the items on flash: `close` (the normal end), also `kill`, also `power-loss` (records removals in a journal).";
        recover_after: String = "close".to_owned(), "navyRecoverAfter", "", HonouredIf(Condition::Flash);
        "Limit on the bytes waiting to be written to flash.";
        navy_parcel_mib: u64 = 1024, "navyParcelMemoryMB", "MiB", NoEffect(BACKPRESSURE);
        "Number of hits with which an item is reinserted when its region is reclaimed.";
        navy_hits_reinsertion: u64 = 0, "navyHitsReinsertionThreshold", "hits", HonouredIf(Condition::Regions);
        "Probability that an item is reinserted when its region is reclaimed.";
        navy_probability_reinsertion: u64 = 0, "navyProbabilityReinsertionThreshold", "%", HonouredIf(Condition::Regions);
        "Track the hit history of items in the index.";
        navy_item_history: bool = false, "navyEnableItemHistoryTracking", "", NoEffect("the index keeps a hit count");
        "Number of reader threads.";
        navy_reader_threads: u64 = 32, "navyReaderThreads", "threads", NoEffect(THREADS);
        "Number of writer threads.";
        navy_writer_threads: u64 = 32, "navyWriterThreads", "threads", NoEffect(THREADS);
        "Maximum reads in flight of the fiber scheduler.";
        navy_max_reads: u64 = 0, "navyMaxNumReads", "", NoEffect(THREADS);
        "Maximum writes in flight of the fiber scheduler.";
        navy_max_writes: u64 = 0, "navyMaxNumWrites", "", NoEffect(THREADS);
        "Stack size of a fiber.";
        navy_stack_kib: u64 = 32, "navyStackSizeKB", "KiB", NoEffect(THREADS);
        "Queue depth of asynchronous I/O.";
        navy_queue_depth: u64 = 0, "navyQDepth", "", NoEffect(THREADS);
        "Use io_uring instead of libaio.";
        navy_io_uring: bool = true, "navyEnableIoUring", "", NoEffect("asynchronous I/O is io_uring, or threads where it is not permitted");
        "Number of clean regions kept ready for writes; fewer than 2 are 2.";
        navy_clean_regions: u64 = 1, "navyCleanRegions", "regions", HonouredIf(Condition::Regions);
        "Number of threads that clean regions.";
        navy_clean_threads: u64 = 1, "navyCleanRegionThreads", "threads", NoEffect(THREADS);
        "Target average write rate of flash admission; 0 admits everything.";
        navy_admission_mib_per_second: u64 = 0, "navyAdmissionWriteRateMB", "MiB/s", HonouredIf(Condition::Flash);
        "Limit on concurrent inserts into flash.";
        navy_max_inserts: u64 = 1_000_000, "navyMaxConcurrentInserts", "", NoEffect(BACKPRESSURE);
        "Checksum over values of the large-object engine.";
        navy_data_checksum: bool = true, "navyDataChecksum", "", HonouredIf(Condition::Regions);
        "Store the value's own length on flash.";
        truncate_item: bool = false, "truncateItemToOriginalAllocSizeInNvm", "", NoEffect("values always have their own length on flash");
        "Encrypt flash.";
        navy_encryption: bool = false, "navyEncryption", "", NoEffect("CacheBench has no encryptor either: nothing is encrypted");
        "Size of the largest write when a region is flushed.";
        device_max_write_bytes: u64 = 1 << 20, "deviceMaxWriteSize", "B", HonouredIf(Condition::Regions);
        "Use NVMe Flexible Data Placement: each engine writes with its own placement handle.";
        device_fdp: bool = false, "deviceEnableFDP", "", HonouredIf(Condition::Flash);
        "Keep a map of the last access times of flash items in DRAM.";
        navy_access_time_map: bool = false, "navyEnableAccessTimeMap", "", Later("access time map");
        "Maximum size of the access time map.";
        navy_access_time_map_max: u64 = 0, "navyAccessTimeMapMaxSize", "items", Later("access time map");
        "Items that were given a shorter TTL than this are never written to flash; those without one are.";
        memory_only_ttl_seconds: u64 = 0, "memoryOnlyTTL", "s", HonouredIf(Condition::Flash);
        "Use POSIX shared memory.";
        posix_shm: bool = false, "usePosixShm", "", NoEffect(SHM);
        "Kind of shared memory: `none`, `tmp`, `sysv`, `posix`.";
        shm_type: String = String::new(), "shmType", "", NoEffect(SHM);
        "Size of huge pages.";
        huge_page_bytes: u64 = 0, "hugePageSize", "B", NoEffect(SHM);
        "Mount point of the huge pages.";
        huge_page_dir: String = String::new(), "hugePageMountDir", "path", NoEffect(SHM);
        "Lock the memory of the cache.";
        lock_memory: bool = false, "lockMemory", "", NoEffect(SHM);
        "Memory tiers; more than one are refused.";
        memory_tiers: Vec<MemoryTier> = Vec::new(), "memoryTiers", "", NoEffect("DRAM is one tier, of cacheSizeMB");
        "The cache's clock, which determines expiry and the age of items, follows the latest request time of the trace so far; latencies and rates use real time.";
        use_trace_timestamp: bool = false, "useTraceTimeStamp", "", Honoured;
        "Interval at which threads synchronise to the trace's clock.";
        ticker_seconds: u64 = 0, "tickerSynchingSeconds", "s", NoEffect("threads are not synchronised to the trace's clock");
        "Print the flash counters at the end.";
        print_nvm_counters: bool = false, "printNvmCounters", "", HonouredIf(Condition::Flash);
        "Call a destructor for each item that leaves the cache; the result has the number of calls.";
        item_destructor: bool = false, "enableItemDestructor", "", Honoured;
        "Check that the destructor is called exactly once for each item. At the end of the run all items are removed.";
        item_destructor_check: bool = false, "enableItemDestructorCheck", "", Honoured;
        "Items not used for longer than this are not written to flash; 0 is no limit.";
        retention_seconds: u64 = 0, "nvmAdmissionRetentionTimeThreshold", "s", HonouredIf(Condition::Flash);
        "CSV file to which events of keys are written.";
        event_file: String = String::new(), "eventTrackerFilePath", "path", Honoured;
        "Sampling of tracked keys: one in this many keys is tracked.";
        event_sampling: u64 = 1, "eventTrackerSamplingRate", "", HonouredIf(Condition::EventFile);
        "Maximum number of events waiting to be written; further ones are dropped and counted.";
        event_queue: u64 = 100_000, "eventTrackerQueueSize", "", HonouredIf(Condition::EventFile);
        "Number of threads of the coroutine adapter.";
        fcc_threads: u64 = 32, "fccCoroFiberAdapterNumThreads", "threads", NoEffect(COMPONENT);
        "Fibers on each thread of the coroutine adapter.";
        fcc_fibers: u64 = 4, "fccCoroFiberAdapterFibersPerThread", "", NoEffect(COMPONENT);
        "Stack size of the coroutine adapter's fibers.";
        fcc_stack_kib: u64 = 32, "fccCoroFiberAdapterStackSizeKB", "KiB", NoEffect(COMPONENT);
        "Configuration of the object cache.";
        custom: ObjectCacheConfig = ObjectCacheConfig::default(), "customConfigJson", "", Honoured;
        "Ours. Admission policy of flash: `always`, `probability:0.5`, `dynamic-random` (needs navyAdmissionWriteRateMB), `reject-first`.";
        flash_admission: String = String::new(), "flashAdmission", "", HonouredIf(Condition::Flash);
        "Ours. Use the page cache where direct I/O is not supported; the result says so.";
        flash_buffered: bool = false, "flashBuffered", "", HonouredIf(Condition::FlashPath);
        "Ours. Region policy, instead of navySegmentedFifoSegmentRatio: `mcdipper` (FIFO), `mcdipper-lru` (FIFO that reinserts items that were read), `blockcache` (segmented LRU of blocks), `ripq` (priority queue of items), `sipq` (`ripq` with one insertion point).";
        region_policy: String = String::new(), "navyRegionPolicy", "", HonouredIf(Condition::Regions);
        "Ours. Settings of the region policy.";
        region_policy_config: RegionPolicyConfig = RegionPolicyConfig::default(), "navyRegionPolicyConfig", "", Honoured;
        "Ours. With deviceEnableFDP, what gets placement handles in addition to the engines: `insertion-points` (one for each insertion point of RIPQ), `reinserted` (items that the large-object engine reinserts), `metadata` (superblocks and snapshots).";
        placement_handles: Vec<String> = vec!["insertion-points".to_owned()], "devicePlacementHandles", "", HonouredIf(Condition::Placement);
    }
    legacy {
        "rebalanceMinRatio", "CacheBench does not read it; rebalanceDiffRatio is the key";
        "poolResizeIntervalSec", "CacheBench does not read it";
        "navyNumInmemBuffers", "CacheBench does not read it; buffers follow navyCleanRegions";
        "navySizeClasses", "CacheBench does not read it; regions pack items without size classes";
        "enableChainedItem", "CacheBench does not read it; use addChainedRatio in test_config";
    }
}

section! {
    /// A memory tier.
    MemoryTier: "cache_config.memoryTiers[]" => {
        "Share of memory, relative to the other tiers.";
        ratio: u64 = 0, "ratio", "", NoEffect("there is one tier");
        "NUMA nodes the tier is bound to.";
        bind_nodes: String = String::new(), "memBindNodes", "", NoEffect("memory is not bound; run under numactl");
    }
    legacy {}
}

section! {
    /// An engine pair on a share of the device.
    Arena: "cache_config.navyArenas[]" => {
        "Name of the arena.";
        name: String = String::new(), "name", "", Honoured;
        "Share of flash of the arena.";
        size_percent: u64 = 0, "sizePct", "%", Honoured;
        "Share of the small-object engine in the arena.";
        big_hash_percent: u64 = 0, "bigHashPct", "%", Honoured;
    }
    legacy {}
}

const OBJECT_INDEX: &str = "the index sizes itself";

section! {
    /// The object cache, for `test_config.name` `object_cache`.
    ObjectCacheConfig: "cache_config.customConfigJson" => {
        "Maximum number of objects; 0 derives it from cacheSizeMB and the size of an item.";
        l1_entries: u64 = 0, "l1EntriesLimit", "objects", HonouredIf(Condition::ObjectCache);
        "Number of shards.";
        l1_shards: u64 = 1, "l1NumShards", "", NoEffect("the cache has its own shards");
        "Longest key.";
        max_key_bytes: u64 = 255, "maxKeySizeBytes", "B", HonouredIf(Condition::ObjectCache);
        "Number of buckets of the hash table, as a power of two.";
        l1_hash_power: u64 = 0, "l1HashTablePower", "log2", NoEffect(OBJECT_INDEX);
        "Number of locks of the hash table, as a power of two.";
        l1_lock_power: u64 = 0, "l1LockPower", "log2", NoEffect(OBJECT_INDEX);
        "Number of candidates examined for one eviction.";
        eviction_search: u64 = 50, "evictionSearchLimit", "", NoEffect("an eviction examines candidates until one is not in use");
        "Maximum total size of the objects, enforced by a controller that limits their number; 0 is no limit.";
        total_object_bytes: u64 = 0, "totalObjectSizeLimit", "B", HonouredIf(Condition::ObjectCache);
        "Interval of the size controller; set together with totalObjectSizeLimit.";
        size_interval_ms: u64 = 0, "sizeControllerIntervalMs", "ms", HonouredIf(Condition::ObjectCache);
        "Whether the total size of the objects is reported.";
        size_tracking: bool = false, "objectSizeTrackingEnabled", "", HonouredIf(Condition::ObjectCache);
        "Name of the shard.";
        shard_name: String = String::new(), "shardName", "", NoEffect("it names CacheLib's counters");
    }
    legacy {}
}

impl CacheConfig {
    /// Whether the cache has flash: behind DRAM, or alone as a cache component.
    #[must_use]
    pub fn has_flash(&self) -> bool {
        self.nvm_size_mib > 0 || self.is_flash_component()
    }

    /// Whether `allocator` names a component that is flash alone; `cacheSizeMB` is then its size.
    #[must_use]
    pub fn is_flash_component(&self) -> bool {
        matches!(self.allocator.as_str(), "flash" | "consistent_flash")
    }
}
