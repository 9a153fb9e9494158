//! `fast_shutdown`: a cache is shut down while one size class needs a slab and another class cannot release one, because each of its
//! slabs has a referenced item. The shutdown must take at most 10 s, and a new cache must open.
//!
//! CacheBench then attaches to the cache's shared memory again. Here DRAM belongs to the process, so the next cache starts empty, which
//! is checked instead.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cache::{Cache, InsertOptions, Inserted, Refusal};

use super::failures::Failures;
use crate::run::pace::Waiter;
use crate::run::target::Target;
use crate::run::worker::{Shared, WorkerStats};

/// Opens another cache like the instance's.
pub type OpenCache = Box<dyn Fn() -> Result<Cache, String> + Send + Sync>;

/// Time limit of a shutdown, as in CacheBench.
const MAX_SHUTDOWN_NS: u64 = 10_000_000_000;
/// Referenced items per slab; CacheBench references 6 or 7 of the 65,536 in its slabs.
const HELD_PER_SLAB: u64 = 7;
/// Inserts between two checks whether DRAM is full.
const BATCH: u64 = 4096;
const SMALL_VALUE: &[u8] = &[5; 5];
const LARGER_VALUE: &[u8] = &[50; 50];
const LARGER_KEY: &[u8] = b"nkey1";
const DEFAULT_OPTIONS: InsertOptions = InsertOptions { pool: 0, ttl_seconds: None };

pub(super) struct Shutdown {
    open: OpenCache,
    shutdowns: AtomicU64,
    given_up: AtomicU64,
    longest_ns: AtomicU64,
}

impl Shutdown {
    pub(super) fn new(open: OpenCache) -> Self {
        Self {
            open,
            shutdowns: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            longest_ns: AtomicU64::new(0),
        }
    }

    /// Repeats as often as CacheBench does for the same `numOps`: it waits 6 s, then 9 s, and so on up to 3 s per operation.
    pub(super) fn work<T: Target>(&self, shared: &Shared<T>, stats: &WorkerStats, failures: &Failures) {
        let rounds = shared.settings.ops_per_thread.saturating_sub(1);
        for _ in 0..rounds {
            if shared.stop.is_set() {
                return;
            }
            if let Err(message) = self.round(shared, stats) {
                return failures.add(|| message);
            }
        }
    }

    fn round<T: Target>(&self, shared: &Shared<T>, stats: &WorkerStats) -> Result<(), String> {
        let cache = (self.open)()?;
        if !cache.is_empty() {
            return Err(format!("a new cache holds {} items", cache.len()));
        }
        let inserted = fill(&cache, stats);
        let clock = &*shared.clock;
        let started_ns = self.block_slab_release(&cache, inserted, shared)?;
        drop(cache);
        let took_ns = clock.monotonic_ns() - started_ns;
        self.shutdowns.fetch_add(1, Ordering::Relaxed);
        self.longest_ns.fetch_max(took_ns, Ordering::Relaxed);
        if took_ns > MAX_SHUTDOWN_NS {
            return Err(format!("shutting down took {:.1} s, more than 10 s", took_ns as f64 / 1e9));
        }
        Ok(())
    }

    /// Holds items in all slabs, while a thread inserts into a size class without a slab. When at least one insert was refused, drops the
    /// held items and returns the time, which is the start of the shutdown.
    fn block_slab_release<T: Target>(
        &self,
        cache: &Cache,
        inserted: u64,
        shared: &Shared<T>,
    ) -> Result<u64, String> {
        let one_in = held_one_in(cache);
        let is_held = |number: &u64| number.is_multiple_of(one_in);
        let held: Vec<_> =
            (0..inserted).filter(is_held).filter_map(|number| cache.get_blocking(&key(number))).collect();
        (0..inserted).filter(|number| !is_held(number)).for_each(|number| _ = cache.remove(&key(number)));
        let (ends, refusals) = (AtomicBool::new(false), AtomicU64::new(0));
        let insert = || {
            while !ends.load(Ordering::Acquire) {
                let outcome = cache.insert_blocking(LARGER_KEY, LARGER_VALUE, DEFAULT_OPTIONS);
                if outcome != Inserted::Rejected(Refusal::AllPinned) {
                    return outcome;
                }
                refusals.fetch_add(1, Ordering::AcqRel);
            }
            Inserted::Rejected(Refusal::AllPinned)
        };
        let waiter = Waiter::Thread(std::sync::Arc::clone(&shared.clock));
        std::thread::scope(|scope| {
            let inserting = scope.spawn(insert);
            while refusals.load(Ordering::Acquire) == 0 && !inserting.is_finished() && !shared.stop.is_set() {
                device::event_loop::block_on(
                    waiter.until(shared.clock.monotonic_ns() + 1_000_000, &shared.stop),
                );
            }
            let started_ns = shared.clock.monotonic_ns();
            drop(held);
            ends.store(true, Ordering::Release);
            let outcome = inserting.join().map_err(|_| "the thread that inserts panicked".to_owned())?;
            self.given_up.fetch_add(refusals.load(Ordering::Acquire), Ordering::Relaxed);
            if refusals.load(Ordering::Acquire) == 0 && !shared.stop.is_set() {
                return Err(format!(
                    "no slab release was blocked by a held item: the insert returned {outcome:?}"
                ));
            }
            Ok(started_ns)
        })
    }

    pub(super) fn figures(&self) -> Vec<(&'static str, &'static str, u64)> {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        vec![
            ("shutdowns", "Shutdowns", read(&self.shutdowns)),
            ("longest_shutdown_ns", "Longest shutdown, ns", read(&self.longest_ns)),
            ("slab_releases_given_up", "Slab releases abandoned due to held items", read(&self.given_up)),
        ]
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key_{number}").into_bytes()
}

/// One in this many consecutively inserted items is held, so that each slab has some.
fn held_one_in(cache: &Cache) -> u64 {
    let items_per_slab = cache.stats().pools.first().map_or(0, |pool| {
        let class = pool.classes.iter().find(|class| class.items > 0);
        class.map_or(0, |class| pool.slab_bytes / class.chunk_bytes)
    });
    (u64::from(items_per_slab) / HELD_PER_SLAB).max(1)
}

/// Inserts small items until DRAM is full; returns their number.
fn fill(cache: &Cache, stats: &WorkerStats) -> u64 {
    let evictions = || cache.stats().pools.iter().map(|pool| pool.total().evictions).sum::<u64>();
    let mut inserted = 0;
    while evictions() == 0 {
        for number in inserted..inserted + BATCH {
            if cache.insert_blocking(&key(number), SMALL_VALUE, DEFAULT_OPTIONS) != Inserted::Stored {
                stats.counting.set_failures.one();
                return number;
            }
        }
        inserted += BATCH;
        stats.counting.sets.several(BATCH);
        stats.counting.ops.several(BATCH);
    }
    inserted
}
