//! A device whose writes fail temporarily.

use device::VirtualClock;
use device::wrap::{FaultDevice, Faults};

use super::*;

const SECOND: u64 = 1_000_000_000;

/// Catches a regression: each step loses the buckets that it cannot write, with all their items, so a full file system
/// empties the cache within seconds.
#[test]
fn writes_that_fail_for_20_seconds_lose_nothing_and_refuse_new_items() {
    let device = Arc::new(FaultDevice::new(memory(), 0, Faults::default()));
    let clock = Arc::new(VirtualClock::default());
    let config = SocConfig { writes_in_flight: 2, ..config(200) };
    let soc = soc_on(&device, config).with_clock(Arc::clone(&clock) as _);
    let key = |number: u32| format!("key-{number}");
    (0..1000).for_each(|number| {
        put(&soc, &key(number), "value");
        if number % 100 == 99 {
            drain(&soc);
        }
    });
    device.set_faults(Faults { failed_writes: 1.0, ..Faults::default() });
    let mut number = 1000;
    let mut refusals = 0;
    let mut stored: Vec<u32> = (0..1000).collect();
    for _ in 0..20 {
        for _ in 0..500 {
            number += 1;
            match soc.stage(&item(&key(number), &[b"value"], 0)) {
                Ok(staged) => {
                    soc.commit(staged);
                    stored.push(number);
                }
                Err(refusal) => {
                    refusals += u32::from(refusal == NotStaged::Failing);
                    block_on(soc.wait_ready(Waiting::Task));
                }
            }
            if soc.wants_step() {
                block_on(soc.step(Waiting::Task, NOW));
            }
        }
        clock.advance_by(SECOND);
        soc.wake_if_due(clock.monotonic_ns());
    }
    let stats = soc.stats();
    assert!(soc.is_failing() && soc.last_error().is_some() && refusals > 1000, "{refusals} refusals");
    assert!(stats.write_errors < 200, "pauses grow: {stats:?}");
    let missing = |soc: &Soc| stored.iter().filter(|&&number| get(soc, &key(number)).is_none()).count();
    assert_eq!((missing(&soc), stats.lost_items), (0, 0), "of {}: {stats:?}", stored.len());
    device.set_faults(Faults::default());
    clock.advance_by(6 * SECOND);
    assert!(soc.wants_step());
    block_on(soc.step(Waiting::Task, NOW));
    assert!(!soc.is_failing());
    drain(&soc);
    assert_eq!((missing(&soc), soc.stats().lost_items, soc.pending_bytes()), (0, 0, 0));
    put(&soc, "after", "value");
    drain(&soc);
    assert_eq!((get(&soc, "after").as_deref(), soc.pending_bytes()), (Some("value"), 0));
}

/// The result must not depend on the time at which a burst of failed writes begins or ends.
#[test]
fn bursts_of_failed_writes_lose_nothing() {
    for burst_ms in [1, 60, 400, 3000, 20_000, 29_000] {
        let device = Arc::new(FaultDevice::new(memory(), 0, Faults::default()));
        let clock = Arc::new(VirtualClock::default());
        let config = SocConfig { writes_in_flight: 4, ..config(200) };
        let soc = soc_on(&device, config).with_clock(Arc::clone(&clock) as _);
        for number in 0..1000 {
            put(&soc, &format!("key-{number}"), "value");
            // The last hundred stay pending.
            if number % 100 == 99 && number < 900 {
                drain(&soc);
            }
        }
        device.set_faults(Faults { failed_writes: 1.0, ..Faults::default() });
        for _ in 0..burst_ms.min(100) {
            block_on(soc.step(Waiting::Task, NOW));
            clock.advance_by(burst_ms * SECOND / 1000 / burst_ms.min(100));
        }
        device.set_faults(Faults::default());
        clock.advance_by(6 * SECOND);
        (0..20).for_each(|_| _ = block_on(soc.step(Waiting::Task, NOW)));
        drain(&soc);
        let found = (0..1000).filter(|number| get(&soc, &format!("key-{number}")).is_some()).count();
        let stats = soc.stats();
        assert!(stats.write_errors > 0, "{stats:?}");
        assert_eq!((found, stats.lost_items, soc.pending_bytes()), (1000, 0, 0), "{burst_ms} ms: {stats:?}");
    }
}

/// A bucket that fails while others are written has a bad block.
#[test]
fn bucket_that_fails_alone_is_lost_and_its_neighbours_are_kept() {
    let config = config(32);
    let bad = config.offset_bytes + 5 * 4 * KIB;
    let device = FaultDevice::new(memory(), 0, Faults::default());
    device.fail_where(move |request| match request {
        Request::Write { offset, data, .. } => (*offset..offset + data.len() as u64).contains(&bad),
        _ => false,
    });
    let clock = Arc::new(VirtualClock::default());
    let soc = soc_on(&Arc::new(device), config).with_clock(Arc::clone(&clock) as _);
    (0..300).for_each(|number| put(&soc, &format!("key-{number}"), "value"));
    let mut failing_rounds = 0;
    for number in 300..400 {
        put(&soc, &format!("key-{number}"), "value");
        block_on(soc.step(Waiting::Task, NOW));
        clock.advance_by(SECOND / 10);
        failing_rounds += u32::from(soc.is_failing());
    }
    assert!(failing_rounds < 20, "{failing_rounds} of 100: {:?}", soc.stats());
    drain(&soc);
    let found = (0..400).filter(|number| get(&soc, &format!("key-{number}")).is_some()).count() as u64;
    let stats = soc.stats();
    assert!(stats.lost_items > 0 && stats.lost_items < 50, "{stats:?}");
    assert_eq!((found + stats.lost_items, stats.pending_bytes), (400, 0), "{stats:?}");
}
