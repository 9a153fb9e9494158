//! `high_refcount`: thousands of workers hold references to one item at the same time, each for a few milliseconds, while slabs move
//! between size classes.
//!
//! CacheBench starts 10,000 threads. Here 10,000 tasks hold the same number of references. The value must not change while it is
//! referenced. When all references have been dropped and the item has been removed, its memory must be free.

use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::failures::Failures;
use crate::run::target::{Found, Layer, SetHow, SetOutcome, Target};
use crate::run::worker::{Shared, WorkerStats};

const KEY: &[u8] = b"high_refcount";
const VALUE: u8 = 0xa5;
/// Range of times for which a reference is held, in milliseconds.
const HELD_MS: std::ops::RangeInclusive<u64> = 1..=10;
/// Checks until memory counts as leaked; a slab may be moving between size classes.
const CHECKS: usize = 10_000;

pub(super) struct References {
    seed: u64,
    held: AtomicU64,
    most_held: AtomicU64,
}

impl References {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, held: AtomicU64::new(0), most_held: AtomicU64::new(0) }
    }

    pub(super) async fn work<T: Target>(
        &self,
        shared: &Shared<T>,
        stats: &WorkerStats,
        number: usize,
        failures: &Failures,
    ) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ (number as u64).rotate_left(32));
        for _ in 0..shared.settings.ops_per_thread {
            if shared.stop.is_set() {
                return;
            }
            let held_ns = random.random_range(HELD_MS) * 1_000_000;
            if !self.hold(shared, stats, held_ns, failures).await {
                insert(shared, stats).await;
            }
            stats.counting.ops.one();
        }
    }

    /// Gets the item and holds the reference; `false` if it is absent.
    async fn hold<T: Target>(
        &self,
        shared: &Shared<T>,
        stats: &WorkerStats,
        held_ns: u64,
        failures: &Failures,
    ) -> bool {
        stats.counting.gets.one();
        let Some(item) = shared.target.get(KEY).await else {
            stats.counting.get_misses.one();
            return false;
        };
        match item.layer() {
            Layer::Dram => stats.counting.get_hits_dram.one(),
            Layer::Flash => stats.counting.get_hits_flash.one(),
        }
        let held = self.held.fetch_add(1, Ordering::AcqRel) + 1;
        self.most_held.fetch_max(held, Ordering::AcqRel);
        shared.waiter.until(shared.clock.monotonic_ns() + held_ns, &shared.stop).await;
        if *item != [VALUE] {
            failures
                .add(|| format!("the item held {:x?} while it was referenced, expected [{VALUE:x}]", &*item));
        }
        drop(item);
        self.held.fetch_sub(1, Ordering::AcqRel);
        true
    }

    /// After all references were dropped, the removed item must not occupy memory.
    pub(super) fn finish<T: Target>(&self, target: &T, failures: &Failures) {
        target.delete(KEY);
        let used = || {
            let dram = target.snapshot().stats.dram_total();
            (dram.items, dram.allocated_bytes)
        };
        let is_free = (0..CHECKS).any(|_| {
            std::thread::yield_now();
            used() == (0, 0)
        });
        if !is_free {
            let (items, bytes) = used();
            failures.add(|| {
                format!(
                    "{items} removed items still occupy {bytes} bytes of DRAM after all references were dropped: \
                     a reference was leaked"
                )
            });
        }
    }

    pub(super) fn figures(&self) -> Vec<(&'static str, &'static str, u64)> {
        vec![("most_references", "Most simultaneous references", self.most_held.load(Ordering::Acquire))]
    }
}

/// Inserts the item. This may fail, as its size class may have no slab left.
async fn insert<T: Target>(shared: &Shared<T>, stats: &WorkerStats) {
    let how = SetHow { pool: 0, ttl_seconds: None, only_if_absent: true };
    match shared.target.set(KEY, 1, how, |value| value.fill(VALUE)).await {
        SetOutcome::Kept => stats.counting.sets_skipped.one(),
        SetOutcome::Stored => stats.counting.sets.one(),
        SetOutcome::Refused => {
            stats.counting.sets.one();
            stats.counting.set_failures.one();
        }
    }
}
