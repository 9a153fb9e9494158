//! Futures dropped half way, in every operation: their device requests complete at any later time, without visible effect.

use device::sim::LatencyModel;
use flashwright_cache::FlashConfig;
use flashwright_cache::flash::region::Caching;

use crate::clients::{Plan, run};
use crate::faults::assert_accounts_balance;
use crate::setup::{KIB, MIB, blockcache, ripq, seeds, small_item_log};

/// So slow that inserts wait for their turn, and lose interest.
const SLOW: LatencyModel = LatencyModel {
    read_ns: 80_000,
    write_ns: 300_000,
    trim_ns: 300_000,
    flush_ns: 200_000,
    per_4k_ns: 1_000,
    jitter_ns: 200_000,
    channels: 8,
};

/// So little may wait that there is always something to write.
fn hurry(flash: &mut FlashConfig) {
    flash.pending_bytes = 1 << 10;
    flash.regions.region_bytes = 16 << 10;
    flash.regions.max_write_bytes = 4 << 10;
}

#[test]
fn dropped_futures_lose_no_items_in_a_roomy_cache() {
    let mut dropped = 0;
    for seed in seeds(8) {
        let flash = |flash: &mut FlashConfig| {
            hurry(flash);
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
            hurry(flash);
            flash.regions.trim = true;
        },
        |flash| {
            hurry(flash);
            small_item_log(flash);
        },
        |flash| {
            hurry(flash);
            flash.regions.value_checksums = false;
        },
        |flash| {
            hurry(flash);
            ripq(flash, Caching::Slru { segments: 3 });
        },
        |flash| {
            hurry(flash);
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
