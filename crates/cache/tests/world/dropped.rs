//! Futures of every operation are dropped before completion. Their device requests complete at any later time, without
//! visible effect.

use device::sim::LatencyModel;
use flashwright_cache::FlashConfig;
use flashwright_cache::config::regions::Caching;

use crate::clients::{Plan, run};
use crate::faults::assert_accounts_balance;
use crate::setup::{KIB, MIB, blockcache, ripq, seeds, small_item_log};

/// Latencies at which inserts wait for flash, and some of them are dropped.
const SLOW: LatencyModel = LatencyModel {
    read_ns: 80_000,
    write_ns: 300_000,
    trim_ns: 300_000,
    flush_ns: 200_000,
    per_4k_ns: 1_000,
    jitter_ns: 200_000,
    channels: 8,
};

/// Sets limits so low that a write is always pending.
fn write_early(flash: &mut FlashConfig) {
    flash.pending_bytes = 1 << 10;
    flash.regions.region_bytes = 16 << 10;
    flash.regions.max_write_bytes = 4 << 10;
}

#[test]
fn dropped_futures_lose_no_items_in_a_cache_larger_than_its_data() {
    let mut dropped = 0;
    for seed in seeds(8) {
        let flash = |flash: &mut FlashConfig| {
            write_early(flash);
            flash.filter_bytes_per_bucket = 16;
        };
        let outcome = run(&Plan { drops: true, latency: SLOW, flash, ..Plan::roomy(seed) });
        let (seen, flash) = (&outcome.seen, outcome.stats.flash.unwrap());
        assert!(outcome.closed && seen.hits_flash > 50, "seed {seed}: {seen:?}");
        assert_eq!(flash.lost_items(), 0, "seed {seed}: {flash:?}");
        assert!(seen.dropped_steps > 1000, "seed {seed}: {seen:?}");
        dropped += seen.dropped_inserts;
    }
    assert!(dropped > 20, "{dropped} inserts dropped");
}

#[test]
fn dropped_futures_cause_no_stale_reads_and_no_damage() {
    let orders: [fn(&mut FlashConfig); 5] = [
        |flash| {
            write_early(flash);
            flash.regions.trim = true;
        },
        |flash| {
            write_early(flash);
            small_item_log(flash);
        },
        |flash| {
            write_early(flash);
            flash.regions.value_checksums = false;
        },
        |flash| {
            write_early(flash);
            ripq(flash, Caching::Slru { segments: 3 });
        },
        |flash| {
            write_early(flash);
            blockcache(flash);
            flash.regions.trim = true;
        },
    ];
    for (seed, flash) in seeds(2).flat_map(|seed| orders.map(|order| (seed, order))) {
        for clears in [false, true] {
            let crowded = Plan { drops: true, latency: SLOW, clears, flash, ..Plan::crowded(seed) };
            let outcome = run(&Plan { device_bytes: MIB, dram_bytes: 256 * KIB, ..crowded });
            let (seen, flash) = (&outcome.seen, outcome.stats.flash.as_ref().unwrap());
            assert!(outcome.closed && seen.dropped_steps > 100, "seed {seed}: {seen:?}");
            let regions = flash.regions.unwrap();
            let damaged = regions.header_checksum_errors + regions.value_checksum_errors;
            let damaged_tables = regions.table_checksum_errors;
            assert_eq!((damaged, damaged_tables, flash.lost_items()), (0, 0, 0), "seed {seed}: {flash:?}");
            assert_eq!(flash.soc.map_or(0, |soc| soc.checksum_errors), 0, "seed {seed}: {flash:?}");
            assert_accounts_balance(&outcome.stats, &format!("seed {seed}"));
        }
    }
}
