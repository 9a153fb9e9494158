//! Figures of a cache whose device fails.

use std::sync::Arc;

use device::MemoryDevice;
use device::wrap::{FaultDevice, Faults};
use flashwright_cache::stats::FlashStats;
use flashwright_cache::{Cache, FlashConfig, InsertOptions};

const MIB: u64 = 1 << 20;

fn filled(soc_share: f64, value_bytes: usize, failed_writes: f64) -> FlashStats {
    let device = FaultDevice::new(Arc::new(MemoryDevice::new(128 * MIB)), 7, Faults::default());
    let device = Arc::new(device);
    let mut flash = FlashConfig::new(Arc::clone(&device) as _);
    flash.pairs[0].soc_share = soc_share;
    flash.pending_bytes = 1 << 20;
    flash.regions.retire_after_failures = u8::MAX;
    let cache = Cache::builder().dram_bytes(4 * MIB).flash_config(flash).open().expect("it fits");
    device.set_faults(Faults { failed_writes, ..Faults::default() });
    for number in 0..(48 * MIB / value_bytes as u64) {
        cache.insert_blocking(&number.to_le_bytes(), &vec![7; value_bytes], &InsertOptions::default());
    }
    let _ = cache.settle_blocking();
    cache.stats().flash.expect("it has flash")
}

/// They counted as stored, though they were never on flash.
#[test]
fn items_of_a_failed_write_are_counted_as_dropped() {
    for (soc_share, value_bytes) in [(0.0, 4000), (1.0, 1000)] {
        let end = |stats: &FlashStats, name: &str| {
            stats.put_ends().iter().find(|(end, _)| *end == name).expect("it is an end").1
        };
        let failing = filled(soc_share, value_bytes, 0.8);
        let dropped = end(&failing, "dropped_write_failed");
        assert_eq!(
            dropped,
            failing.unwritten_bytes() / (value_bytes as u64 + 8),
            "with a soc_share of {soc_share}"
        );
        assert_eq!(end(&failing, "stored") + dropped, failing.puts.stored);
        assert!(dropped > failing.puts.stored / 4, "{dropped} of {}", failing.puts.stored);
        assert_eq!(end(&filled(soc_share, value_bytes, 0.0), "dropped_write_failed"), 0);
    }
}

/// What was lost on the way counted as if it had been written: the figure fell to a fraction of 1.
#[test]
fn write_amplification_leaves_out_what_could_not_be_written() {
    for (soc_share, value_bytes) in [(0.0, 4000), (1.0, 1000)] {
        let failing = filled(soc_share, value_bytes, 0.8);
        let lost = failing.unwritten_bytes();
        assert!(lost > failing.puts.logical_bytes / 4, "{lost} of {}", failing.puts.logical_bytes);
        let amplification = failing.write_amplification().unwrap();
        assert!(amplification >= 1.0, "{amplification} with a soc_share of {soc_share}");
        assert_eq!(filled(soc_share, value_bytes, 0.0).unwritten_bytes(), 0);
    }
}
