//! The pace of region writes: transfers spread over the inserts that fill the next region.

use super::*;

const REGIONS: u64 = 8;
/// 8 regions of 256 pages, each of 16 transfers.
fn paced(readmission_share: f64) -> LogConfig {
    LogConfig {
        regions: Some(REGIONS as u32),
        expected_item_bytes: 500,
        readmission_share,
        ..LogConfig::new(4096, REGIONS * 256 * 4096, 42)
    }
}

/// Inserts items until `regions` regions were sealed, running all steps that are due after each insert. Returns the most transfers between
/// two inserts, and the most sealed regions.
fn fill(log: &HashLog, device: &MemoryDevice, regions: u64, read: Option<&str>) -> (u64, usize) {
    let value = "v".repeat(490);
    let end = log.filling.lock().open + regions;
    let (mut most_transfers, mut most_sealed) = (0, 0);
    for number in 0_u64.. {
        let before = device.counters();
        while log.wants_step() {
            block_on(log.step(Waiting::Thread, NOW));
        }
        let after = device.counters();
        most_transfers = most_transfers.max(after.reads + after.writes - before.reads - before.writes);
        most_sealed = most_sealed.max(log.filling.lock().sealed.len());
        if log.filling.lock().open == end {
            break;
        }
        assert!(log.ready(), "an insert waits for a write that was not due");
        put(log, &format!("{}-{number}", log.filling.lock().open), &value, 0);
        read.map(|key| get(log, key));
    }
    (most_transfers, most_sealed)
}

#[test]
fn transfers_of_a_region_are_spread_over_the_inserts_into_the_next() {
    let device = Arc::new(MemoryDevice::with_block_bytes(16 << 20, 4096));
    let log = log_on(&device, paced(0.0));
    let (transfers, sealed) = fill(&log, &device, 20, None);
    assert_eq!((transfers, sealed), (1, 1));
    assert!(log.stats().bucket_writes >= 18 * 250, "{}", log.stats().bucket_writes);
}

#[test]
fn reads_of_an_evicted_region_are_spread_over_inserts() {
    let device = Arc::new(MemoryDevice::with_block_bytes(16 << 20, 4096));
    let log = log_on(&device, paced(0.25));
    put(&log, "read", "value", 0);
    // One transfer, and one read of the item.
    let (transfers, sealed) = fill(&log, &device, 20, Some("read"));
    assert_eq!((transfers, sealed), (1, 1));
    assert!(log.stats().readmitted_items > 0 && get(&log, "read").is_some());
}

/// Catches a regression: reads left over from an earlier write count as done but not as work, so the last transfers are never due.
#[test]
fn writes_and_evictions_that_cross_the_end_of_the_ring_are_due_in_time() {
    let device = Arc::new(MemoryDevice::with_block_bytes(16 << 20, 4096));
    for pages in [12, 20, 40] {
        let config = LogConfig { log_bytes: 16 * pages * 4096, ..config() };
        let log = log_on(&device, config)
            .with_eviction_callback(Arc::new(|_, take_out| _ = take_out()), Arc::new(|_| true));
        let (_, sealed) = fill(&log, &device, 100, None);
        assert_eq!(sealed, 1, "{pages} pages");
        assert!(log.stats().evictions > 1000);
    }
}

#[test]
fn write_of_a_region_ends_before_the_next_is_full() {
    let device = Arc::new(MemoryDevice::with_block_bytes(16 << 20, 4096));
    let log = log_on(&device, paced(0.25));
    fill(&log, &device, 12, None);
    let value = "v".repeat(490);
    let mut number = 0;
    while !log.filling.lock().sealed.is_empty() {
        put(&log, &format!("last-{number}"), &value, 0);
        number += 1;
        while log.wants_step() {
            block_on(log.step(Waiting::Thread, NOW));
        }
    }
    // 2048 items fill a region.
    assert!((1500..1900).contains(&number), "{number} items");
}

#[test]
fn settle_writes_a_region_without_further_inserts() {
    let device = Arc::new(MemoryDevice::with_block_bytes(16 << 20, 4096));
    let log = log_on(&device, paced(0.0));
    fill(&log, &device, 3, None);
    assert!(!log.wants_step() && log.stats().pending_items > 0);
    let mut settling = Box::pin(log.settle());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(settling.as_mut().poll(&mut context).is_pending());
    while log.wants_step() {
        block_on(log.step(Waiting::Thread, NOW));
    }
    assert!(settling.as_mut().poll(&mut context).is_ready());
    assert_eq!(log.stats().pending_items, 0);
}
