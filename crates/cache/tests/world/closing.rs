//! Closing a cache whose background work runs as tasks of the caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use device::sim::LatencyModel;
use device::timer::Timer;
use device::{Clock, Device, MemoryDevice, SimulatedDevice, Simulation};
use flashwright_cache::{Cache, InsertOptions};

use crate::setup::{KIB, MIB, cache_config, flash, key, open_stepped, seeds, value, version_of};

const KEYS: u64 = 3000;

/// A cache on `memory`, a counter of its ended background tasks, and the number of all of them.
fn opened(
    simulation: &Simulation,
    memory: &Arc<MemoryDevice>,
    seed: u64,
) -> (Cache, Arc<AtomicUsize>, usize) {
    let inner = Arc::clone(memory) as Arc<dyn Device>;
    let device = SimulatedDevice::new(simulation.world(), inner, LatencyModel::default());
    let config = cache_config(flash(Arc::new(device)), 256 * KIB, seed);
    let cache = open_stepped(config, simulation.clock()).unwrap();
    let timer: Arc<dyn Timer> = Arc::new(simulation.world());
    let (tasks, ended) = (cache.background_tasks(&timer), Arc::new(AtomicUsize::new(0)));
    let count = tasks.len();
    for task in tasks {
        let ended = Arc::clone(&ended);
        simulation.spawn(async move {
            task.await;
            ended.fetch_add(1, SeqCst);
        });
    }
    (cache, ended, count)
}

/// Catches a regression: background tasks reclaim regions while the snapshot of the index is written, or write to flash
/// after it is marked closed.
#[test]
fn background_tasks_end_when_the_cache_closes() {
    let mut back = 0;
    for seed in seeds(12) {
        let memory = Arc::new(MemoryDevice::new(2 * MIB));
        let simulation = Simulation::new(seed);
        let (cache, ended, count) = opened(&simulation, &memory, seed);
        simulation.block_on(async move {
            for number in 0..KEYS {
                cache.insert(&key(number), &value(number, 1), InsertOptions::default()).await;
            }
            cache.close_async().await.unwrap();
        });
        simulation.run_until(simulation.clock().monotonic_ns() + 1_000_000_000);
        assert_eq!(ended.load(SeqCst), count, "seed {seed}");

        let simulation = Simulation::new(seed);
        let (cache, ended, count) = opened(&simulation, &memory, seed);
        assert!(cache.stats().flash.unwrap().recovered, "seed {seed}");
        back += simulation.block_on(async move {
            let mut found = 0;
            for number in 0..KEYS {
                let item = cache.get(&key(number)).await;
                assert!(item.as_deref().is_none_or(|item| version_of(number, item) == 1), "seed {seed}");
                found += u64::from(item.is_some());
            }
            found
        });
        // Background tasks also end when the cache is dropped.
        simulation.run_until(simulation.clock().monotonic_ns() + 1_000_000_000);
        assert_eq!(ended.load(SeqCst), count, "seed {seed}");
    }
    assert!(back > KEYS, "{back} found after reopen");
}
