//! Keys that the special stressors require, and keys that they do not allow.

use super::super::findings::{Findings, join};
use super::super::instance::InstanceConfig;
use super::super::names::{OBJECT_CACHE, REPLAYS};
use super::super::plan::StressorPlan;

/// Checks an instance that is an object cache.
pub(super) fn check_objects(
    instance: &InstanceConfig,
    cache_at: &str,
    test_at: &str,
    findings: &mut Findings,
) {
    let (cache, test) = (&instance.cache, &instance.test);
    if test.name != OBJECT_CACHE {
        return;
    }
    let mut refuse = |broken: bool, at: String, message: &str| {
        if broken {
            findings.problem(&at, message);
        }
    };
    let custom = |key: &str| join(&join(cache_at, "customConfigJson"), key);
    let keys = cache.custom.max_key_bytes;
    refuse(!(1..=MAX_KEY_BYTES).contains(&keys), custom("maxKeySizeBytes"), "must be 1 to 255");
    let (bytes, interval) = (cache.custom.total_object_bytes, cache.custom.size_interval_ms);
    let together = "is 0: set it together with sizeControllerIntervalMs";
    refuse(bytes == 0 && interval > 0, custom("totalObjectSizeLimit"), together);
    let together = "is 0: totalObjectSizeLimit needs the interval of its controller, for example 1000";
    refuse(bytes > 0 && interval == 0, custom("sizeControllerIntervalMs"), together);
    let one = "must be 1: an object cache has one pool";
    refuse(cache.pool_count != 1, join(cache_at, "numPools"), one);
    let dram = "must be left out: objects are in memory alone";
    refuse(cache.nvm_size_mib > 0, join(cache_at, "nvmCacheSizeMB"), dram);
    refuse(!cache.cache_dir.is_empty(), join(cache_at, "cacheDir"), dram);
    let one_class = "must be 0: all items of an object cache have one size";
    refuse(cache.pool_rebalance_interval_seconds > 0, join(cache_at, "poolRebalanceIntervalSec"), one_class);
    let own = "must be false: the object cache uses the destructor to free objects, and checks it";
    refuse(
        cache.item_destructor || cache.item_destructor_check,
        join(cache_at, "enableItemDestructorCheck"),
        own,
    );
    let chained = instance.pools.iter().any(|pool| pool.add_chained_ratio > 0.0);
    refuse(chained, join(test_at, "addChainedRatio"), "must be 0: objects have no chains");
    let replay = REPLAYS.contains(&test.generator.as_str());
    refuse(replay, join(test_at, "generator"), "must be `workload` or `online` for the object cache");
}

/// Longest key that CacheLib accepts.
const MAX_KEY_BYTES: u64 = 255;

/// Checks an instance with a stressor that makes its own requests.
pub(super) fn check(instance: &InstanceConfig, cache_at: &str, test_at: &str, findings: &mut Findings) {
    let (cache, test) = (&instance.cache, &instance.test);
    let Some(stressor) = StressorPlan::named(&test.name) else { return };
    let mut refuse = |broken: bool, at: String, message: &str| {
        if broken {
            findings.problem(&at, message);
        }
    };
    refuse(cache.cache_size_mib == 0, join(cache_at, "cacheSizeMB"), "is 0 or missing: a cache needs DRAM");
    refuse(test.ops_per_thread == 0, join(test_at, "numOps"), "is 0 or missing: nothing would run");
    let own = "must be left out: this stressor makes its own requests";
    refuse(!test.generator.is_empty(), join(test_at, "generator"), own);
    refuse(test.check_consistency, join(test_at, "checkConsistency"), own);
    let destructors = "must be false: this stressor checks its items itself";
    refuse(cache.item_destructor_check, join(cache_at, "enableItemDestructorCheck"), destructors);
    refuse(!test.arrivals.eq_ignore_ascii_case("closed"), join(test_at, "arrivals"), own);
    if stressor == StressorPlan::FastShutdown {
        let one = test.ops_per_thread == 1;
        refuse(one, join(test_at, "numOps"), "is 1: must be at least 2 for one shutdown");
        let flash = "must be 0: this stressor shuts down caches in DRAM";
        refuse(cache.nvm_size_mib > 0, join(cache_at, "nvmCacheSizeMB"), flash);
        if test.threads > 1 {
            findings.warning(&join(test_at, "numThreads"), "has no effect: one thread shuts caches down");
        }
    }
}
