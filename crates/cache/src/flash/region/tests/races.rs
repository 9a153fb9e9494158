//! Races: each test produces one order of events that could return a stale value or wait forever.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use device::wrap::GateDevice;
use device::{MemoryDevice, RequestKind};

use super::*;

fn gate(capacity_bytes: u64) -> Arc<GateDevice> {
    Arc::new(GateDevice::new(Arc::new(MemoryDevice::new(capacity_bytes))))
}

fn shut(gate: &GateDevice) {
    [RequestKind::Read, RequestKind::Write].into_iter().for_each(|kind| gate.close(kind));
}

pub(super) fn poll_once<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

fn fill(store: &RegionStore, keys: std::ops::Range<u64>) {
    for key in keys {
        put_version(store, key, 0);
        work_until_idle(store);
    }
}

#[test]
fn read_during_a_rewrite_of_its_region_returns_no_wrong_value() {
    let memory = || Arc::new(MemoryDevice::new(small().capacity_bytes));
    for gate in [GateDevice::new(memory()), GateDevice::reading_on_release(memory())] {
        let gate = Arc::new(gate);
        let store = open(Arc::clone(&gate) as Arc<dyn Device>, small());
        fill(&store, 0..100);
        drain(&store);

        shut(&gate);
        let key = 5_u64.to_le_bytes();
        let mut read = pin!(store.read(KeyHash::of(&key), &key, Waiting::Task));
        assert!(poll_once(read.as_mut()).is_none(), "the read waits at the gate");
        gate.stop_holding();
        fill(&store, 1000..2500);
        assert_eq!(gate.release_held(), 1);
        assert!(matches!(poll_once(read.as_mut()), Some(Lookup::Miss)));
        let stats = store.stats();
        assert_eq!(stats.read_retries, 1);
        assert_eq!(stats.header_checksum_errors + stats.value_checksum_errors, 0, "a lost race is no damage");
    }
}

#[test]
fn read_during_the_reinsertion_of_its_item_finds_the_new_copy() {
    let reinsertion = Reinsertion::Percent { percent: 100, seed: 0 };
    let config = RegionConfig { reinsertion, separate_reinserted: true, ..small() };
    let gate = gate(config.capacity_bytes);
    let store = open(Arc::clone(&gate) as Arc<dyn Device>, config);
    fill(&store, 0..20);
    drain(&store);

    shut(&gate);
    let key = 5_u64.to_le_bytes();
    let mut read = pin!(store.read(KeyHash::of(&key), &key, Waiting::Task));
    assert!(poll_once(read.as_mut()).is_none());
    gate.stop_holding();
    let mut next = 1000;
    while store.stats().reinsertions < 20 {
        fill(&store, next..next + 10);
        next += 10;
    }
    gate.release_held();
    match poll_once(read.as_mut()) {
        Some(Lookup::Found(seen)) => assert_eq!(*seen, value(5, 0)),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.stats().read_retries, 1);
}

#[test]
fn store_item_removed_during_its_reinsertion_stays_removed() {
    let reinsertion = Reinsertion::Percent { percent: 100, seed: 0 };
    let config = RegionConfig { reinsertion, separate_reinserted: true, ..small() };
    let gate = gate(config.capacity_bytes);
    let store = open(Arc::clone(&gate) as Arc<dyn Device>, config);
    let mut key = 0;
    while store.clean_regions() > 3 {
        fill(&store, key..key + 1);
        key += 1;
    }
    // Take clean regions until a reclaim is due, and stop it at its first read.
    while store.clean_regions() > 2 {
        put_version(&store, key, 0);
        key += 1;
        drain(&store);
    }
    shut(&gate);
    let mut reclaim = pin!(store.step(Waiting::Task));
    assert!(poll_once(reclaim.as_mut()).is_none(), "the reclaim reads the table");
    gate.release_held();
    assert!(poll_once(reclaim.as_mut()).is_none(), "the reclaim reads the first item");
    assert!(forget(&store, 0));
    gate.open();
    assert_eq!(block_on(reclaim), Progress::Reclaimed);
    assert!(matches!(get(&store, 0), Lookup::Miss));
    assert!(get(&store, 1).found().is_some());
}

#[test]
fn region_flush_waits_for_an_unfinished_writer() {
    let device = Arc::new(MemoryDevice::new(small().capacity_bytes));
    let store = open(device, small());
    let item =
        FlashItem { key: b"slow", hash: KeyHash::of(b"slow"), value: &[b"v"], expiry_seconds: 0, tag: 0 };
    let slow = store.stage(&item).unwrap();
    drain(&store);
    assert_eq!(store.stats().regions_flushed, 0);
    assert_eq!(step(&store), Progress::Idle);
    store.commit(slow);
    assert_eq!(step(&store), Progress::Flushed);
    assert!(block_on(store.read(item.hash, b"slow", Waiting::Thread)).found().is_some());
}

#[test]
fn dropped_staged_item_is_dead_space() {
    let device = Arc::new(MemoryDevice::new(small().capacity_bytes));
    let store = open(device, small());
    let item =
        FlashItem { key: b"gone", hash: KeyHash::of(b"gone"), value: &[b"v"], expiry_seconds: 0, tag: 0 };
    drop(store.stage(&item).unwrap());
    assert!(!store.may_contain(item.hash));
    drain(&store);
    assert_eq!(store.stats().regions_flushed, 0, "a region of dead space is not worth a write");
    assert_eq!(store.clean_regions(), 24);
}

#[test]
fn step_dropped_before_completion_loses_nothing() {
    let gate = gate(small().capacity_bytes);
    let store = open(Arc::clone(&gate) as Arc<dyn Device>, small());
    let mut key = 0;
    while !matches!(
        store.stage(&FlashItem {
            key: b"x",
            hash: KeyHash(1),
            value: &[&[0; 60_000]],
            expiry_seconds: 0,
            tag: 0
        }),
        Err(Refusal::Full)
    ) {
        put_version(&store, key, 0);
        key += 1;
    }
    shut(&gate);
    for _ in 0..3 {
        assert!(poll_once(pin!(store.step(Waiting::Task))).is_none(), "the flush waits at the gate");
    }
    gate.open();
    work_until_idle(&store);
    (0..key).for_each(|key| assert_eq!(*get(&store, key).found().unwrap(), value(key, 0)));

    while store.clean_regions() >= 2 {
        put_version(&store, key, 0);
        key += 1;
        drain(&store);
    }
    shut(&gate);
    assert!(poll_once(pin!(store.step(Waiting::Task))).is_none(), "the reclaim waits at the gate");
    gate.open();
    assert_eq!(step(&store), Progress::Reclaimed, "the region is still there to be reclaimed");
}

#[test]
fn flush_wakes_tasks_that_wait_for_space() {
    let device = Arc::new(MemoryDevice::new(small().capacity_bytes));
    let store = open(device, small());
    let item = FlashItem {
        key: b"big",
        hash: KeyHash::of(b"big"),
        value: &[&[0; 60_000]],
        expiry_seconds: 0,
        tag: 0,
    };
    while let Ok(staged) = store.stage(&item) {
        store.commit(staged);
    }
    assert!(!store.ready());
    let mut ready = pin!(store.wait_ready());
    assert!(poll_once(ready.as_mut()).is_none());
    assert!(poll_once(pin!(store.wait_work())).is_some());
    assert_eq!(step(&store), Progress::Flushed);
    assert!(poll_once(ready.as_mut()).is_some());
    assert!(store.ready());
}

/// Catches a regression: a reclaim that needs a buffer looks for a sealed region to flush, and then for a task that flushes one. If a
/// region is sealed in between, and no other task steps, the reclaim waits forever.
#[test]
fn sealed_region_without_a_flush_is_flushed_by_the_waiting_task() {
    let gate = gate(small().capacity_bytes);
    let store = open(Arc::clone(&gate) as Arc<dyn Device>, ripq(|_| ()));
    let mut key = 0;
    while !store.supply.has_sealed(0) {
        put_version(&store, key, 0);
        key += 1;
    }
    assert!(!store.supply.is_flushing(), "no flush has begun");
    shut(&gate);
    let mut flush = pin!(store.step(Waiting::Task));
    assert!(poll_once(flush.as_mut()).is_none());
    assert!(store.supply.is_flushing());
    gate.open();
    assert_eq!(poll_once(flush.as_mut()), Some(Progress::Flushed));
    assert!(!store.supply.is_flushing());
}

#[test]
fn read_during_a_trim_of_its_region_is_a_miss() {
    let config = RegionConfig { trim: true, ..small() };
    let gate = gate(config.capacity_bytes);
    let store = open(Arc::clone(&gate) as Arc<dyn Device>, config);
    fill(&store, 0..100);
    drain(&store);
    shut(&gate);
    let key = 5_u64.to_le_bytes();
    let mut read = pin!(store.read(KeyHash::of(&key), &key, Waiting::Task));
    assert!(poll_once(read.as_mut()).is_none());
    gate.stop_holding();
    let mut next = 1000;
    while store.may_contain(KeyHash::of(&key)) {
        fill(&store, next..next + 1);
        next += 1;
    }
    gate.release_held();
    assert!(matches!(poll_once(read.as_mut()), Some(Lookup::Miss)));
    assert_eq!(store.stats().header_checksum_errors, 0);
}

#[test]
fn address_of_an_earlier_generation_finds_nothing() {
    let device = Arc::new(MemoryDevice::new(small().capacity_bytes));
    let store = open(device, small());
    let item = FlashItem { key: b"k", hash: KeyHash(5), value: &[b"v"], expiry_seconds: 0, tag: 0 };
    let staged = store.stage(&item).unwrap();
    let dead = store.stage(&item).unwrap();
    let buffer = Arc::clone(staged.reservation.buffer());
    assert!(buffer.entry(0, KeyHash(5), |_| ()).is_none(), "still being written");
    store.commit(staged);
    drop(dead);
    assert!(buffer.entry(0, KeyHash(5), |_| ()).is_some());
    assert!(buffer.entry(0, KeyHash(6), |_| ()).is_none(), "another's");
    assert!(buffer.entry(1, KeyHash(5), |_| ()).is_none(), "given up");
    assert!(buffer.entry(2, KeyHash(5), |_| ()).is_none(), "nothing begins there");
}
