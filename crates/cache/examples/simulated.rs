//! A cache in virtual time: one thread and one seed. A drive's 80 microseconds advance the virtual clock and take no real time, and a seed
//! gives the same run every time.
//!
//! `cargo run -p flashwright-cache --example simulated`
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;

use flashwright_cache::device::sim::LatencyModel;
use flashwright_cache::device::timer::Timer;
use flashwright_cache::device::{Clock, MemoryDevice, SimulatedDevice, Simulation};
use flashwright_cache::{Cache, InsertOptions, Layer};
use futures_util::future::{Either, join_all, select};

const ITEMS: u32 = 5_000;

/// Fills the cache and reads all items, the newest first. Returns the hits on flash, their maximum latency, and the time of the end.
async fn program(cache: Arc<Cache>, clock: Arc<dyn Clock>) -> String {
    for number in 0..ITEMS {
        cache.insert(&number.to_le_bytes(), &[number as u8; 4000], InsertOptions::default()).await;
    }
    let (mut slowest_ns, mut hits) = (0, 0);
    for number in (0..ITEMS).rev() {
        let start_ns = clock.monotonic_ns();
        let item = cache.get(&number.to_le_bytes()).await;
        if item.is_some_and(|item| item.layer() == Layer::Flash) {
            slowest_ns = slowest_ns.max(clock.monotonic_ns() - start_ns);
            hits += 1;
        }
    }
    let (slowest_us, end_us) = (slowest_ns / 1000, clock.monotonic_ns() / 1000);
    format!("{hits} hits on flash, the slowest in {slowest_us} us, all done after {end_us} us")
}

fn run(seed: u64) -> Result<(), Box<dyn Error>> {
    let simulation = Simulation::new(seed);
    let content = Arc::new(MemoryDevice::new(64 << 20));
    let drive = SimulatedDevice::new(simulation.world(), content, LatencyModel::default());
    let builder = Cache::builder().dram_bytes(8 << 20).max_item_bytes(64 << 10).seed(seed);
    // Without threads: background work runs as tasks of the simulation, by its virtual clock.
    let cache = Arc::new(builder.flash(Arc::new(drive)).clock(simulation.clock()).open_stepped()?);

    let timer: Arc<dyn Timer> = Arc::new(simulation.world());
    let background = join_all(cache.background_tasks(&timer));
    let work = program(Arc::clone(&cache), simulation.clock());
    let found = simulation.block_on(async move {
        match select(Box::pin(work), background).await {
            Either::Left((found, _)) => found,
            Either::Right(_) => unreachable!("background work never ends by itself"),
        }
    });
    println!("seed {seed}: {found}");
    let cache = Arc::into_inner(cache).ok_or("the tasks have ended")?;
    Ok(simulation.block_on(cache.close_async())?)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    [1, 1, 2].into_iter().try_for_each(run)
}
