//! Background work of the DRAM tier, in steps: removing expired items, and moving slabs between size classes.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::config::UpkeepConfig;
use crate::dram::{EvictionStep, PoolId, Released};
use crate::flash::Waiting;
use crate::hybrid::Engine;
use crate::stats::{UpkeepCounters, UpkeepStats};

const NS_PER_MS: u64 = 1_000_000;
/// Longest pause of the background thread: it reads the clock for hits, and reports the written bytes to the admission policy.
const LONGEST_PAUSE_NS: u64 = 1000 * NS_PER_MS;

/// Due times and counters of background work.
pub(crate) struct Upkeep {
    config: UpkeepConfig,
    pools: u8,
    due: Mutex<Due>,
    counters: UpkeepCounters,
}

struct Due {
    reap_ns: u64,
    rebalance_ns: u64,
    /// State of a splitmix64 generator, for the random strategy.
    random: u64,
}

impl Upkeep {
    pub(crate) fn new(config: &UpkeepConfig, pools: usize, seed: u64, now_ns: u64) -> Self {
        let due = Due {
            reap_ns: first(config.reap_interval_ms, now_ns),
            rebalance_ns: first(config.rebalance_interval_ms, now_ns),
            random: seed,
        };
        Self {
            config: config.clone(),
            pools: u8::try_from(pools).unwrap_or(u8::MAX),
            due: Mutex::new(due),
            counters: UpkeepCounters::default(),
        }
    }

    pub(crate) fn stats(&self) -> UpkeepStats {
        self.counters.read()
    }

    fn count(&self, released: &Released) {
        let counters = &self.counters;
        let add = |counter: &AtomicU64, count: u64| counter.fetch_add(count, Ordering::Relaxed);
        add(&counters.slabs_released, u64::from(released.completed));
        let items = &released.items;
        add(&counters.moves, items.moves);
        add(&counters.moves_failed, items.move_attempts - items.moves);
        add(&counters.release_evictions, items.evictions);
        add(&counters.release_evictions_failed, items.eviction_attempts - items.evictions);
    }
}

fn first(interval_ms: u64, now_ns: u64) -> u64 {
    if interval_ms == 0 { u64::MAX } else { now_ns.saturating_add(interval_ms.saturating_mul(NS_PER_MS)) }
}

impl Engine {
    /// Executes the steps that are due; returns the nanoseconds until the next one.
    pub(crate) fn upkeep_step(&self) -> u64 {
        let upkeep = &self.upkeep;
        let now_ns = self.clock.monotonic_ns();
        self.dram.now_seconds();
        let mut due = upkeep.due.lock();
        if due.reap_ns <= now_ns {
            let reaped = self.dram.reap_step(upkeep.config.reap_items);
            upkeep.counters.reaped.fetch_add(reaped.removed, Ordering::Relaxed);
            due.reap_ns = first(upkeep.config.reap_interval_ms, now_ns);
        }
        if due.rebalance_ns <= now_ns {
            for pool in 0..upkeep.pools {
                due.random = splitmix64(due.random);
                let rule = upkeep.config.rule(due.random);
                let crossing = self.crossing();
                let released = self.dram.rebalance_step(PoolId(pool), &rule, &crossing);
                released.iter().for_each(|released| upkeep.count(released));
            }
            due.rebalance_ns = first(upkeep.config.rebalance_interval_ms, now_ns);
        }
        let flash_ns = self.flash.as_ref().map_or(u64::MAX, |flash| {
            flash.observe(now_ns);
            flash.wake_if_due(now_ns)
        });
        let next_ns = due.reap_ns.min(due.rebalance_ns);
        next_ns.saturating_sub(now_ns).min(flash_ns).min(LONGEST_PAUSE_NS)
    }
}

/// Preparation for closing.
impl Engine {
    /// Evicts all items in DRAM to flash, coldest first, so that the hottest is the newest on flash. If there are no threads (`alone`), it
    /// executes the steps itself. It stops if flash accepts no more items although all pending ones were written.
    pub(crate) async fn empty_dram(&self, waiting: Waiting, alone: bool) {
        let Some(flash) = &self.flash else { return };
        let mut drained = false;
        loop {
            // A listener's panic was printed and is dropped, so that closing continues.
            let emptied = self.dram.empty_step(&self.crossing());
            match emptied {
                EvictionStep::All => return,
                EvictionStep::Some => drained = false,
                EvictionStep::Busy if !alone => flash.wait_ready().await,
                EvictionStep::Busy if self.step(waiting).await => {}
                EvictionStep::Busy if drained => return,
                EvictionStep::Busy => {
                    flash.drain(waiting, self.clock.unix_seconds()).await;
                    drained = true;
                }
            }
        }
    }
}

/// Vigna's splitmix64, which is random enough to select a slab.
fn splitmix64(state: u64) -> u64 {
    let mut x = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
