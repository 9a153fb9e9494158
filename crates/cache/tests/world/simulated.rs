//! Many clients in virtual time: every result is a permitted one, and the same seed gives the same results.

use device::sim::LatencyModel;
use device::wrap::Faults;
use flashwright_cache::FlashConfig;
use flashwright_cache::config::regions::{Caching, Reinsertion};

use crate::clients::{Plan, run};
use crate::faults::NO_FAULTS;
use crate::setup::{MIB, blockcache, ripq, seeds, small_item_log};

#[test]
fn gets_of_a_full_cache_return_no_replaced_or_removed_item() {
    for seed in seeds(12) {
        let outcome = run(&Plan::crowded(seed));
        let seen = &outcome.seen;
        assert!(outcome.closed, "seed {seed}");
        assert!(seen.hits * 3 > seen.gets && seen.hits < seen.gets, "seed {seed}: {seen:?}");
        assert!(seen.hits_flash > 200 && seen.lifetimes > 20, "seed {seed}: {seen:?}");
        assert!(seen.fetches * 10 > seen.loads && seen.fetches < seen.loads, "seed {seed}: {seen:?}");
        assert!(outcome.back > 100, "seed {seed}: {} keys found after reopen", outcome.back);
    }
}

#[test]
fn cache_larger_than_its_data_finds_every_item() {
    for seed in seeds(12) {
        let outcome = run(&Plan::roomy(seed));
        let seen = &outcome.seen;
        assert!(outcome.closed && seen.refused == 0, "seed {seed}: {seen:?}");
        assert!(seen.hits_flash > 200, "seed {seed}: {seen:?}");
    }
}

#[test]
fn reinserted_items_return_only_current_values() {
    for seed in seeds(8) {
        let outcome = run(&Plan {
            flash: |flash| {
                flash.pairs[0].soc_share = 0.0;
                flash.regions.reinsertion = Reinsertion::Percent { percent: 50, seed: 1 };
                flash.regions.buffers = 5;
            },
            device_bytes: 3 * MIB / 2,
            ..Plan::crowded(seed)
        });
        let regions = outcome.stats.flash.unwrap().regions.unwrap();
        assert!(regions.reinsertions > 50, "seed {seed}: {regions:?}");
    }
}

#[test]
fn gets_of_a_full_cache_return_no_cleared_item() {
    let faults = Faults { failed_reads: 0.01, failed_writes: 0.01, flipped_reads: 0.01, ..NO_FAULTS };
    let mut trims = 0;
    for seed in seeds(6) {
        let crowded = || Plan { clears: true, ..Plan::crowded(seed) };
        let outcome = run(&crowded());
        let seen = &outcome.seen;
        assert!(
            outcome.closed && seen.clears > 0 && seen.settled > 2 && seen.hits_flash > 20,
            "seed {seed}: {seen:?}"
        );
        run(&Plan { faults, ..crowded() });
        run(&Plan { flash: |flash| ripq(flash, Caching::Slru { segments: 3 }), faults, ..crowded() });
        run(&Plan { flash: blockcache, ..crowded() });
        let trimmed = run(&Plan { flash: |flash| flash.regions.trim = true, ..crowded() });
        trims += trimmed.stats.flash.unwrap().device.trims;
    }
    assert!(trims > 50, "{trims} trims");
}

#[test]
fn cache_larger_than_its_data_finds_every_item_inserted_after_a_clear() {
    for seed in seeds(6) {
        let outcome = run(&Plan { clears: true, ..Plan::roomy(seed) });
        let seen = &outcome.seen;
        assert!(
            outcome.closed && seen.clears > 0 && seen.settled > 2 && seen.refused == 0,
            "seed {seed}: {seen:?}"
        );
    }
}

#[test]
fn item_queue_fulfils_the_contract_of_a_region_policy() {
    let faults = Faults { failed_reads: 0.01, failed_writes: 0.01, flipped_reads: 0.01, ..NO_FAULTS };
    for seed in seeds(4) {
        let crowded = || Plan { device_bytes: 3 * MIB / 2, ..Plan::crowded(seed) };
        let slru = run(&Plan { flash: |flash| ripq(flash, Caching::Slru { segments: 3 }), ..crowded() });
        let regions = slru.stats.flash.unwrap().regions.unwrap();
        assert!(regions.reinsertions > 20 && regions.reinsertions_failed == 0, "seed {seed}: {regions:?}");
        run(&Plan { flash: |flash| ripq(flash, Caching::GDSF), faults, ..crowded() });
        run(&Plan { flash: blockcache, faults, ..crowded() });
    }
}

#[test]
fn small_item_log_never_returns_replaced_removed_or_cleared_items() {
    let faults = Faults { failed_reads: 0.01, failed_writes: 0.01, flipped_reads: 0.01, ..NO_FAULTS };
    for seed in seeds(6) {
        let flash = |flash: &mut FlashConfig| {
            small_item_log(flash);
            flash.pairs[0].soc_share = 0.06;
        };
        let crowded = || Plan { flash, ..Plan::crowded(seed) };
        let outcome = run(&crowded());
        let small = outcome.stats.flash.unwrap().soc.unwrap();
        assert!(outcome.closed && small.hits > 100 && small.evictions > 100, "seed {seed}: {small:?}");
        assert!(small.readmitted_items > 0, "seed {seed}: {small:?}");
        assert!(outcome.back > 50, "seed {seed}: {} keys found after reopen", outcome.back);
        run(&Plan { clears: true, ..crowded() });
        run(&Plan { faults, clears: true, ..crowded() });
    }
}

#[test]
fn slow_device_delays_clients_without_errors() {
    let latency = LatencyModel {
        read_ns: 8_000_000,
        write_ns: 8_000_000,
        jitter_ns: 20_000_000,
        channels: 1,
        ..LatencyModel::default()
    };
    for seed in seeds(4) {
        let slow = run(&Plan { latency, ..Plan::crowded(seed) });
        assert!(slow.closed && slow.seen.hits_flash > 100, "seed {seed}: {:?}", slow.seen);
    }
}

#[test]
fn same_seed_gives_the_same_results_at_the_same_times() {
    for seed in seeds(3) {
        let again = [0, 1].map(|_| run(&Plan::crowded(seed)).trace);
        assert_eq!(again[0], again[1], "seed {seed}");
        assert_ne!(again[0], run(&Plan::crowded(seed + 1000)).trace);
    }
}
