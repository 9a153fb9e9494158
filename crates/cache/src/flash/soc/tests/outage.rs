//! A device whose writes fail for a while.

use device::VirtualClock;
use device::wrap::{FaultDevice, Faults};

use super::*;

const SECOND: u64 = 1_000_000_000;

/// Each step lost the buckets that it tried to write, with all that they held: a full file system emptied them within seconds.
#[test]
fn writes_that_fail_for_20_seconds_cost_few_items_and_refuse_new_ones() {
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
    for _ in 0..20 {
        for _ in 0..500 {
            number += 1;
            match soc.stage(&item(&key(number), &[b"value"], 0)) {
                Ok(staged) => soc.commit(staged),
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
    let there = (0..1000).filter(|&number| get(&soc, &key(number)).is_some()).count();
    assert!(there > 600, "{there} of 1000 are still there: {stats:?}");
    device.set_faults(Faults::default());
    clock.advance_by(6 * SECOND);
    assert!(soc.wants_step());
    block_on(soc.step(Waiting::Task, NOW));
    assert!(!soc.is_failing());
    put(&soc, "after", "value");
    drain(&soc);
    assert_eq!((get(&soc, "after").as_deref(), soc.pending_bytes()), (Some("value"), 0));
}
