//! One memory budget for all parts: never exceeded, and refused at open if it is too small.
use std::sync::Arc;

use device::MemoryDevice;
use flashwright_cache::config::{CacheConfig, DramConfig, Memory, eviction};
use flashwright_cache::{Cache, CacheError, FlashConfig, InsertOptions, Inserted, Refusal, SmallItems};
use policy::eviction::{EvictionConfig, Kind};

const MIB: u64 = 1 << 20;

fn flash(device_mib: u64, soc_share: f64) -> FlashConfig {
    let mut flash = FlashConfig::new(Arc::new(MemoryDevice::new(device_mib * MIB)));
    flash.small_items = Some(SmallItems::Sets);
    flash.pairs[0].soc_share = soc_share;
    flash.small_item_max_bytes = 512;
    flash.pending_bytes = MIB as usize;
    flash.regions.region_bytes = 256 << 10;
    flash
}

/// Inserts twice the capacity, in values of `value_bytes`.
fn fill(cache: &Cache, value_bytes: usize, count: u64) {
    let value = vec![7; value_bytes];
    for number in 0..count {
        let _ = cache.insert_blocking(&number.to_le_bytes(), &value, InsertOptions::default());
    }
}

fn parts(memory: &Memory) -> [u64; 7] {
    let Memory { slab_bytes, dram_index_bytes, policy_bytes, flash_index_bytes, filter_bytes, .. } = *memory;
    let (waiting_bytes, buffer_bytes) = (memory.waiting_bytes, memory.buffer_bytes);
    [slab_bytes, dram_index_bytes, policy_bytes, flash_index_bytes, filter_bytes, waiting_bytes, buffer_bytes]
}

#[test]
fn dram_only_cache_full_of_smallest_items_stays_within_budget() {
    let budget = 32 * MIB;
    let cache = Cache::builder().memory_budget_bytes(budget).open().unwrap();
    fill(&cache, 8, 600_000);
    let memory = cache.memory();
    assert!(memory.total_bytes() <= budget, "{memory}");
    assert!(memory.total_bytes() > budget * 8 / 10, "less than 80 % of the budget is used: {memory}");
}

#[test]
fn hybrid_cache_stays_within_budget_and_uses_half_of_it_for_items() {
    for (soc_share, value_bytes, count) in [(0.3, 16, 300_000), (0.3, 520, 150_000), (0.0, 250, 250_000)] {
        let (budget, flash) = (24 * MIB, flash(48, soc_share));
        let builder = Cache::builder().flash_config(flash).min_item_bytes(100).memory_budget_bytes(budget);
        let cache = builder.open().unwrap();
        fill(&cache, value_bytes, count);
        let memory = cache.memory();
        assert!(memory.total_bytes() <= budget, "{memory}");
        assert!(memory.slab_bytes > budget / 2, "at most half of the budget holds items: {memory}");
    }
}

#[test]
fn memory_of_each_part_stays_within_its_estimate() {
    let eviction = eviction(EvictionConfig::new(Kind::S3Fifo));
    let config = CacheConfig {
        dram: DramConfig::new(8 * MIB, eviction),
        flash: Some(flash(48, 0.3)),
        ..CacheConfig::default()
    };
    let most = Memory::at_most(&config);
    let cache = Cache::builder().config(config).open().unwrap();
    fill(&cache, 520, 150_000);
    let now = cache.memory();
    assert!(parts(&now).iter().zip(parts(&most)).all(|(now, most)| *now <= most), "{now} of at most {most}");
    assert!(now.flash_index_bytes > most.flash_index_bytes / 2, "{now} of at most {most}");
}

#[test]
fn budget_too_small_is_refused_with_its_parts() {
    let refused = Cache::builder().flash_config(flash(48, 0.3)).memory_budget_bytes(5 * MIB).open();
    let Err(CacheError::Config(message)) = refused else { panic!("5 MiB were enough") };
    let (_, rest) = message.split_once("with a budget of ").unwrap();
    let least: u64 = rest[..rest.find('.').unwrap()].parse().unwrap();
    let with = |bytes| Cache::builder().flash_config(flash(48, 0.3)).memory_budget_bytes(bytes).open();
    assert!(with(least).is_ok() && with(least - 1000).is_err(), "{message}");
    for part in [
        "a memory budget of 5242880 bytes leaves",
        "1048576 waiting small items",
        "1048576 region buffers",
        "index of regions",
        "filters of buckets",
    ] {
        assert!(message.contains(part), "{part} is missing: {message}");
    }
}

#[test]
fn too_large_item_is_counted_as_refused_by_each_kind_of_insert() {
    let cache = Cache::builder().dram_bytes(8 << 20).open().unwrap();
    let options = InsertOptions::default();
    let value = vec![7; 16 << 20];
    let ends = [
        cache.insert_blocking(b"blocking", &value, options),
        pollster::block_on(cache.insert(b"async", &value, options)),
    ];
    assert!(ends.iter().all(|end| matches!(end, Inserted::Rejected(Refusal::TooLarge { .. }))), "{ends:?}");
    assert!(cache.allocate_blocking(b"draft", value.len(), options).is_err());
    assert_eq!(cache.stats().inserts.rejected_too_large, 3);
}

/// Catches a regression: a device of the size named in the error is refused as too small again.
#[test]
fn device_of_the_size_named_in_the_error_is_large_enough() {
    let open = |bytes: u64, soc_share: f64, region_bytes: u32| {
        let mut flash = FlashConfig::new(Arc::new(MemoryDevice::new(bytes)));
        flash.pairs[0].soc_share = soc_share;
        flash.regions.region_bytes = region_bytes;
        Cache::builder().dram_bytes(1 << 20).flash_config(flash).open().map(drop)
    };
    for soc_share in [0.0, 0.04, 0.5, 0.9] {
        for region_bytes in [64 << 10, 1 << 20, 16 << 20] {
            for bytes in [128 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20] {
                let Err(error) = open(bytes, soc_share, region_bytes) else { continue };
                let message = error.to_string();
                let needed = message.split("it takes ").nth(1).and_then(|rest| rest.split(';').next());
                let needed =
                    needed.and_then(|needed| needed.parse().ok()).unwrap_or_else(|| panic!("{message}"));
                let then = open(needed, soc_share, region_bytes);
                assert!(
                    then.is_ok(),
                    "{bytes} bytes with {soc_share} and {region_bytes}: {message}; then {then:?}"
                );
                assert!(
                    open(needed / 40960 * 36864, soc_share, region_bytes).is_err(),
                    "far more than needed: {message}"
                );
            }
        }
    }
}
