//! A device whose writes fail for a while.

use device::wrap::{FaultDevice, Faults};
use device::{Clock, VirtualClock};

use super::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const WRITES_FAIL: Faults = Faults {
    failed_reads: 0.0,
    failed_writes: 1.0,
    failed_flushes: 0.0,
    flipped_reads: 0.0,
    flipped_writes: 0.0,
    stuck: 0.0,
};

fn key(number: u32) -> String {
    format!("key-{number}")
}

/// Stages an item if the log takes it, then makes the steps that are due.
fn offer(log: &HashLog, number: u32) -> Result<(), NotStaged> {
    let key = key(number);
    let hash = KeyHash::of(key.as_bytes());
    let value: &[&[u8]] = &[&[7; 100]];
    let item = FlashItem { key: key.as_bytes(), hash, value, expiry_seconds: 0, tag: 9 };
    let staged = log.stage(&item).map(|staged| log.commit(staged));
    step_while_due(log);
    staged
}

fn step_while_due(log: &HashLog) {
    while log.wants_step() && !block_on(log.step(Waiting::Thread, NOW)).idle() {}
}

fn is_found(log: &HashLog, number: u32) -> bool {
    let key = key(number);
    block_on(log.read(KeyHash::of(key.as_bytes()), key.as_bytes(), Waiting::Thread, NOW)).is_some()
}

/// Fails writes from item 300 on, for `outage_ms` in 20 steps, and offers 100 items in each. Returns the log and the items that it took.
fn after_an_outage(outage_ms: u64) -> (HashLog, Vec<u32>, u32) {
    let device = Arc::new(FaultDevice::new(memory(), 1, Faults::default()));
    let clock = Arc::new(VirtualClock::default());
    let log = log_on(&device, config()).with_clock(Arc::clone(&clock) as _);
    let mut taken: Vec<u32> = (0..300).collect();
    taken.iter().for_each(|&number| offer(&log, number).expect("the device works"));
    device.set_faults(WRITES_FAIL);
    let mut refused = 0;
    for number in 300..2300 {
        match offer(&log, number) {
            Ok(()) => taken.push(number),
            Err(refusal) => {
                assert_eq!(refusal, NotStaged::Failing, "{outage_ms} ms, item {number}");
                refused += 1;
            }
        }
        if number % 100 == 99 {
            clock.advance_by(outage_ms * MS / 20);
            log.wake_if_due(clock.monotonic_ns());
        }
    }
    assert!(log.is_failing() && log.stats().write_errors > 0, "{outage_ms} ms: {:?}", log.stats());
    device.set_faults(Faults::default());
    clock.advance_by(6 * SECOND);
    log.wake_if_due(clock.monotonic_ns());
    (log, taken, refused)
}

#[test]
fn writes_that_fail_for_1_ms_to_an_hour_lose_nothing_and_refuse_new_items() {
    for outage_ms in [1, 60, 400, 3000, 20_000, 3_600_000] {
        let (log, taken, refused) = after_an_outage(outage_ms);
        assert!(refused > 500, "{outage_ms} ms: {refused} refused");
        step_while_due(&log);
        assert!(log.stats().write_errors < 500, "pauses grow: {:?}", log.stats());
        (3000..3010).for_each(|number| offer(&log, number).expect("the device works again"));
        assert!(!log.is_failing(), "{outage_ms} ms");
        drain(&log);
        let missing: Vec<u32> = taken.iter().copied().filter(|&number| !is_found(&log, number)).collect();
        assert_eq!((missing, log.stats().lost_items), (vec![], 0), "{outage_ms} ms: {:?}", log.stats());
    }
}
