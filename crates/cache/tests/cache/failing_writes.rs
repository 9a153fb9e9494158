//! Figures of a cache whose device fails.

use std::sync::Arc;

use device::wrap::{FaultDevice, Faults};
use device::{MemoryDevice, Request, TickingClock};
use flashwright_cache::stats::FlashStats;
use flashwright_cache::{Cache, FlashConfig, InsertOptions};

const MIB: u64 = 1 << 20;

/// Fills a cache on a device that fails writes to the last `failing_fifths` of every five MiB.
fn filled(soc_share: f64, value_bytes: usize, failing_fifths: u64) -> FlashStats {
    let device = FaultDevice::new(Arc::new(MemoryDevice::new(128 * MIB)), 7, Faults::default());
    let device = Arc::new(device);
    let mut flash = FlashConfig::new(Arc::clone(&device) as _);
    flash.pairs[0].soc_share = soc_share;
    flash.pending_bytes = 1 << 20;
    flash.regions.retire_after_failures = u8::MAX;
    let cache = Cache::builder()
        .dram_bytes(4 * MIB)
        .flash_config(flash)
        // Fast, so that items of regions that cannot be written are soon dropped.
        .clock(Arc::new(TickingClock::new(1_000_000_000)))
        .open()
        .expect("the configuration is valid");
    device.fail_where(move |request| match request {
        Request::Write { offset, .. } => offset / MIB % 5 >= 5 - failing_fifths,
        _ => false,
    });
    for number in 0..(48 * MIB / value_bytes as u64) {
        cache.insert_blocking(&number.to_le_bytes(), &vec![7; value_bytes], InsertOptions::default());
    }
    let _ = cache.settle_blocking();
    cache.stats().flash.expect("the cache has flash")
}

/// Catches a regression: items of a failed write, which never reach flash, are counted as stored.
#[test]
fn items_of_a_failed_write_are_counted_as_dropped() {
    for (soc_share, value_bytes) in [(0.0, 4000), (1.0, 1000)] {
        let end = |stats: &FlashStats, name: &str| {
            stats.put_ends().iter().find(|(end, _)| *end == name).expect("a known result of an offer").1
        };
        let failing = filled(soc_share, value_bytes, 2);
        let dropped = end(&failing, "dropped_write_failed");
        assert_eq!(
            dropped,
            failing.unwritten_bytes() / (value_bytes as u64 + 8),
            "with a soc_share of {soc_share}"
        );
        assert_eq!(end(&failing, "stored") + dropped, failing.puts.stored);
        assert!(dropped > failing.puts.stored / 10, "{dropped} of {}", failing.puts.stored);
        assert_eq!(end(&filled(soc_share, value_bytes, 0), "dropped_write_failed"), 0);
    }
}

/// Catches a regression: items of failed writes are counted as written, so the write amplification is below 1.
#[test]
fn write_amplification_omits_failed_writes() {
    for (soc_share, value_bytes) in [(0.0, 4000), (1.0, 1000)] {
        let failing = filled(soc_share, value_bytes, 2);
        let lost = failing.unwritten_bytes();
        assert!(lost > failing.puts.logical_bytes / 10, "{lost} of {}", failing.puts.logical_bytes);
        let amplification = failing.write_amplification().unwrap();
        assert!(amplification >= 1.0, "{amplification} with a soc_share of {soc_share}");
        assert_eq!(filled(soc_share, value_bytes, 0).unwritten_bytes(), 0);
    }
}
