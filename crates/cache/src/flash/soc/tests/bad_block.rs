//! A device with a block that cannot be written.

use device::wrap::{FaultDevice, Faults};

use super::*;

/// A memory device on which all writes of the block at `bad` fail.
fn with_bad_block(bad: u64) -> Arc<FaultDevice> {
    let device = FaultDevice::new(memory(), 0, Faults::default());
    device.fail_where(move |request| match request {
        Request::Write { offset, data, .. } => (*offset..offset + data.len() as u64).contains(&bad),
        _ => false,
    });
    Arc::new(device)
}

/// Catches a regression: all buckets of the failed transfer are lost, up to 32.
#[test]
fn bad_block_leaves_neighbouring_buckets_their_items() {
    let config = config(32);
    let device = with_bad_block(config.offset_bytes + 5 * 4 * KIB);
    let soc = soc_on(&device, config);
    (0..300).for_each(|n| put(&soc, &format!("key-{n}"), "value"));
    drain(&soc);
    let there = (0..300).filter(|n| get(&soc, &format!("key-{n}")).is_some()).count() as u64;
    let stats = soc.stats();
    assert!(stats.lost_items > 0 && stats.lost_items < 40, "{stats:?}");
    assert_eq!((there + stats.lost_items, stats.items.cast_unsigned()), (300, there), "{stats:?}");
    assert_eq!((stats.write_errors, stats.pending_bytes), (2, 0), "{stats:?}");
    assert_eq!(stats.physical_written_bytes, stats.bucket_writes * 4096);
}

/// Each transfer of the dropped step is completed by the next step.
#[test]
fn step_dropped_between_single_bucket_writes_leaves_the_rest_to_the_next_step() {
    let config = config(4);
    let device = with_bad_block(config.offset_bytes + 4 * KIB);
    let gate = Arc::new(GateDevice::new(device));
    let soc = soc_on(&gate, config);
    (0..40).for_each(|n| put(&soc, &format!("key-{n}"), "value"));
    gate.close(RequestKind::Write);
    for _ in 0..3 {
        let mut step = Box::pin(soc.step(Waiting::Task, NOW));
        assert!(poll(&mut step).is_none());
        gate.release_held();
        assert!(poll(&mut step).is_none());
    }
    gate.open();
    drain(&soc);
    let there = (0..40).filter(|n| get(&soc, &format!("key-{n}")).is_some()).count() as u64;
    let stats = soc.stats();
    assert!(stats.lost_items > 0 && there + stats.lost_items == 40, "{there} of {stats:?}");
    assert_eq!((stats.write_errors, stats.device_writes, stats.pending_bytes), (2, 3, 0), "{stats:?}");
}
