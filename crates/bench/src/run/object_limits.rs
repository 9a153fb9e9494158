//! The limits of an object cache: the number of objects, and their total size (`totalObjectSizeLimit`).
//!
//! As in CacheLib, placeholders occupy the memory of the objects that the cache may not hold: items that are removed and still referenced, so
//! that no key finds them and no eviction examines them. The size controller
//! divides the size limit by the average size of the present objects, and adds or removes placeholders so that as many objects fit.
//! Between two of its intervals the total size can exceed the limit. A set runs the controller when an interval has passed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cache::{Cache, InsertOptions, Inserted, OwnedItem};
use device::Clock;
use parking_lot::Mutex;

use super::objects::{NO_OBJECT, Objects, SLAB_BYTES, item_bytes};
use crate::config::plan::{CachePlan, ObjectsPlan, SizeLimitPlan};

/// Limit of the items that the cache examines for one eviction.
const EXAMINED_ITEMS: usize = 1024;

/// The placeholders of one object cache, and its size controller if it has one.
pub struct ObjectLimits {
    max_objects: u64,
    /// Number of placeholders for the memory beyond `max_objects`. They are never released.
    fixed: usize,
    placeholders: Mutex<Vec<OwnedItem>>,
    size: Option<SizeController>,
}

struct SizeController {
    plan: SizeLimitPlan,
    clock: Arc<dyn Clock>,
    next_step_ns: AtomicU64,
}

impl ObjectLimits {
    /// Fills the memory that `cache` has beyond the object limit.
    ///
    /// # Errors
    /// A message, if a placeholder cannot be inserted.
    pub fn new(
        cache: &Cache,
        plan: &ObjectsPlan,
        cache_plan: &CachePlan,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let per_slab = u64::from(SLAB_BYTES / item_bytes(plan)).max(1);
        let capacity_items = cache_plan.dram_bytes / u64::from(SLAB_BYTES) * per_slab;
        let excess = capacity_items.saturating_sub(plan.max_objects) as usize;
        let placeholders = (0..excess).map(|_| placeholder(cache)).collect::<Result<Vec<_>, _>>()?;
        let size = plan.size_limit.map(|plan| SizeController {
            plan,
            next_step_ns: AtomicU64::new(clock.monotonic_ns() + plan.interval_ns()),
            clock,
        });
        Ok(Self {
            max_objects: plan.max_objects,
            fixed: excess,
            placeholders: Mutex::new(placeholders),
            size,
        })
    }

    /// Number of objects that the cache can hold now.
    pub fn current_limit(&self) -> u64 {
        self.max_objects - (self.placeholders.lock().len() - self.fixed) as u64
    }

    /// Number of attempts to find memory: one eviction examines up to [`EXAMINED_ITEMS`] items, each placeholder once.
    pub fn attempts(&self) -> usize {
        if self.size.is_none() { 1 } else { 2 + self.placeholders.lock().len() / EXAMINED_ITEMS }
    }

    /// Runs the size controller if its interval has passed.
    #[inline]
    pub fn step_if_due(&self, cache: &Cache, objects: &Objects) {
        let Some(controller) = &self.size else { return };
        let now_ns = controller.clock.monotonic_ns();
        let due_ns = controller.next_step_ns.load(Ordering::Relaxed);
        let next_ns = now_ns + controller.plan.interval_ns();
        // Of several threads that find it due, one runs it.
        let claim = || {
            controller.next_step_ns.compare_exchange(due_ns, next_ns, Ordering::Relaxed, Ordering::Relaxed)
        };
        if now_ns >= due_ns && claim().is_ok() {
            self.step(cache, objects, controller.plan.bytes);
        }
    }

    fn step(&self, cache: &Cache, objects: &Objects, limit_bytes: u64) {
        let (live, bytes) = objects.live();
        let mut placeholders = self.placeholders.lock();
        let current = self.max_objects - (placeholders.len() - self.fixed) as u64;
        // Half of both limits is free: the average of the first objects says little.
        let is_warming_up = bytes < limit_bytes / 2 && live < self.max_objects / 2 && live < current;
        if live == 0 || is_warming_up {
            return;
        }
        let average_bytes = (bytes / live).max(1);
        let fitting = (limit_bytes / average_bytes).clamp(1, self.max_objects);
        if fitting < current && live >= fitting {
            for _ in fitting..current {
                // Another thread can evict the item before it is referenced; the next step replaces it.
                let Ok(item) = placeholder(cache) else { return };
                placeholders.push(item);
            }
        } else if live >= current {
            let kept = placeholders.len() - (fitting.saturating_sub(current)) as usize;
            placeholders.truncate(kept);
        }
    }
}

impl SizeLimitPlan {
    fn interval_ns(&self) -> u64 {
        u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Occupies the memory of one item; evicts if there is none. The memory becomes free when the result is dropped.
fn placeholder(cache: &Cache) -> Result<OwnedItem, String> {
    let key = b"placeholder";
    match cache.insert_blocking(key, &NO_OBJECT, InsertOptions::default()) {
        Inserted::Rejected(refusal) => Err(format!("a placeholder was refused: {refusal}")),
        Inserted::Stored => {
            let item = cache.get_owned_blocking(key).ok_or("a placeholder was evicted".to_owned())?;
            cache.remove(key);
            Ok(item)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::time::Duration;

    use cache::config::CacheConfig;
    use device::SystemClock;

    use super::super::open;
    use super::*;
    use crate::config::cachebench::{Loaded, load_text};
    use crate::config::lower::lower;

    const CONFIG: &str = r#"{
        "cache_config": { "cacheSizeMB": 64, "customConfigJson": { "l1EntriesLimit": 1000 } },
        "test_config": { "name": "object_cache", "numOps": 1, "numThreads": 1, "numKeys": 1, "keySizeRange": [8, 9],
            "keySizeRangeProbability": [1.0], "valSizeRange": [1, 2], "valSizeRangeProbability": [1.0], "getRatio": 1.0 } }"#;

    /// A cache of at most 1,000 objects and 100,000 bytes, whose controller runs when a test calls it.
    struct ObjectCache {
        cache: Cache,
        objects: Arc<Objects>,
        limits: ObjectLimits,
    }

    impl ObjectCache {
        fn new() -> Self {
            let Ok(Loaded::Config(config)) = load_text(std::path::Path::new("c.json"), CONFIG, &[]) else {
                panic!("bad config")
            };
            let plan = lower(&config).unwrap().instances.remove(0).cache;
            let size_limit = Some(SizeLimitPlan { bytes: 100_000, interval: Duration::from_hours(1) });
            let objects_plan = ObjectsPlan { size_limit, ..plan.objects.unwrap() };
            let objects = Objects::new(objects_plan);
            let (dram, ..) = open::dram(&plan, None).unwrap();
            let cache = Cache::builder()
                .config(CacheConfig {
                    dram,
                    item_destructor: Some(objects.destructor()),
                    ..CacheConfig::default()
                })
                .open()
                .unwrap();
            let limits = ObjectLimits::new(&cache, &objects_plan, &plan, Arc::new(SystemClock)).unwrap();
            Self { cache, objects, limits }
        }

        /// Sets `count` objects of `bytes` bytes, and runs the controller.
        fn fill(&self, count: u64, bytes: usize) {
            for key in 0..count {
                let id = self.objects.add(vec![0; bytes].into());
                let inserted = self.cache.insert_blocking(&key.to_le_bytes(), &id, InsertOptions::default());
                assert_eq!(inserted, Inserted::Stored);
            }
            self.limits.step(&self.cache, &self.objects, 100_000);
        }
    }

    #[test]
    fn limit_follows_the_average_size_of_objects_down_and_up() {
        let cache = ObjectCache::new();
        cache.fill(1000, 1000);
        assert_eq!((cache.limits.current_limit(), cache.objects.live()), (100, (100, 100_000)));
        // A hundred objects of 200 bytes: 500 fit.
        cache.fill(1000, 200);
        assert_eq!((cache.limits.current_limit(), cache.objects.live()), (500, (100, 20_000)));
        cache.fill(1000, 200);
        assert_eq!((cache.limits.current_limit(), cache.objects.live()), (500, (500, 100_000)));
        cache.fill(1000, 1);
        assert_eq!(cache.limits.current_limit(), 1000, "the limit of the number of objects");
        assert_eq!(cache.objects.report(cache.cache.len() as u64, 0).failures, Vec::<String>::new());
    }

    #[test]
    fn limit_stays_while_the_cache_warms_up() {
        let cache = ObjectCache::new();
        cache.fill(40, 1000);
        assert_eq!(cache.limits.current_limit(), 1000, "40 kB of 100 kB");
        cache.fill(60, 1000);
        assert_eq!(cache.limits.current_limit(), 1000, "100 would fit, and 60 are present");
    }
}
