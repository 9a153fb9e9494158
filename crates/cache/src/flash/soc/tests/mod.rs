//! Tests of the small-object cache through its interface.

mod bad_block;
mod model;
mod outage;
mod recovery;
mod settle;
mod threads;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use device::wrap::{FaultDevice, Faults, GateDevice};
use device::{Device, MemoryDevice, RequestKind};
use pollster::block_on;

use super::bucket::BucketMut;
use super::persist::RestoreError;
use super::*;

const KIB: u64 = 1024;
const NOW: u32 = 1_000;

fn config(buckets: u64) -> SocConfig {
    SocConfig { pending_limit_bytes: 64 << 10, ..SocConfig::new(4 * KIB, buckets * 4 * KIB, 42) }
}

fn soc_on(device: &Arc<impl Device + 'static>, config: SocConfig) -> Soc {
    Soc::new(Arc::clone(device) as Arc<dyn Device>, config).expect("a good configuration")
}

fn memory() -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::with_block_bytes(1024 * KIB, 4096))
}

fn gate() -> Arc<GateDevice> {
    Arc::new(GateDevice::new(memory()))
}

/// Polls a future once; returns its output if it is complete.
fn poll<F: Future>(future: &mut Pin<Box<F>>) -> Option<F::Output> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

fn item<'a>(key: &'a str, value: &'a [&'a [u8]], expiry_seconds: u32) -> FlashItem<'a> {
    FlashItem { key: key.as_bytes(), hash: KeyHash::of(key.as_bytes()), value, expiry_seconds, tag: 9 }
}

fn put(soc: &Soc, key: &str, value: &str) {
    put_until(soc, key, value, 0);
}

fn put_until(soc: &Soc, key: &str, value: &str, expiry_seconds: u32) {
    let staged = soc.stage(&item(key, &[value.as_bytes()], expiry_seconds)).expect("room");
    soc.commit(staged);
}

fn forget(soc: &Soc, key: &str) -> bool {
    soc.forget(KeyHash::of(key.as_bytes()), key.as_bytes())
}

fn get(soc: &Soc, key: &str) -> Option<String> {
    get_at(soc, key, NOW)
}

fn get_at(soc: &Soc, key: &str, now: u32) -> Option<String> {
    let value = block_on(soc.read(KeyHash::of(key.as_bytes()), key.as_bytes(), Waiting::Thread, now))?;
    assert_eq!(value.tag, 9);
    Some(String::from_utf8(value.to_vec()).expect("tests store text"))
}

fn drain(soc: &Soc) {
    block_on(soc.drain(Waiting::Thread, NOW));
}

/// The only bucket of a one-bucket cache, changed in place.
fn change_on_device(device: &GateDevice, soc: &Soc, change: impl FnOnce(&mut [u8])) {
    let offset = soc.offset(BucketId(0));
    let mut buffer = device.execute(Request::read(offset, 4096)).unwrap();
    change(&mut buffer);
    device.execute(Request::write(offset, buffer)).unwrap();
}

#[test]
fn staged_item_is_visible_after_commit_and_never_if_abandoned() {
    let soc = soc_on(&gate(), config(8));
    let pieces: [&[u8]; 2] = [b"in two ", b"pieces"];
    let staged = soc.stage(&item("key", &pieces, 0)).unwrap();
    assert_eq!(get(&soc, "key"), None);
    soc.commit(staged);
    assert_eq!(get(&soc, "key").as_deref(), Some("in two pieces"));
    soc.abandon(soc.stage(&item("other", &pieces, 0)).unwrap());
    assert_eq!(get(&soc, "other"), None);
    drain(&soc);
    assert_eq!(soc.pending_bytes(), 0);
    assert_eq!((get(&soc, "key").as_deref(), get(&soc, "other")), (Some("in two pieces"), None));
    assert_eq!((soc.stats().inserts, soc.stats().items), (1, 1));
}

#[test]
fn newest_version_is_found_in_memory_and_on_the_device() {
    let soc = soc_on(&gate(), config(8));
    for version in ["one", "two", "three"] {
        put(&soc, "key", version);
        assert_eq!(get(&soc, "key").as_deref(), Some(version));
    }
    assert_eq!(soc.stats().pending_entries, 1, "an older pending version is replaced");
    drain(&soc);
    put(&soc, "key", "four");
    assert_eq!(get(&soc, "key").as_deref(), Some("four"));
    drain(&soc);
    assert_eq!(get(&soc, "key").as_deref(), Some("four"));
    assert_eq!(soc.stats().items, 1);
}

#[test]
fn removed_key_stays_absent() {
    let soc = soc_on(&gate(), config(1));
    put(&soc, "stays", "here");
    put(&soc, "flash", "old");
    drain(&soc);
    put(&soc, "memory", "young");
    assert!(forget(&soc, "flash") && forget(&soc, "memory"));
    for _ in 0..2 {
        assert_eq!((get(&soc, "flash"), get(&soc, "memory")), (None, None));
        assert!(!soc.may_contain(KeyHash::of(b"flash")) && soc.may_contain(KeyHash::of(b"stays")));
        drain(&soc);
    }
    assert!(!forget(&soc, "flash"), "nothing is left to remove");
    assert_eq!(get(&soc, "stays").as_deref(), Some("here"));
    assert_eq!((soc.stats().removes, soc.pending_bytes()), (2, 0));
}

#[test]
fn item_removed_during_its_write_stays_removed() {
    let device = gate();
    let soc = soc_on(&device, config(1));
    put(&soc, "key", "value");
    device.close(RequestKind::Write);
    let mut step = Box::pin(soc.step(Waiting::Task, NOW));
    assert!(poll(&mut step).is_none());
    assert_eq!(get(&soc, "key").as_deref(), Some("value"), "seen while it is being written");
    assert!(forget(&soc, "key"));
    assert_eq!(get(&soc, "key"), None);
    device.open();
    block_on(step);
    assert_eq!(get(&soc, "key"), None);
    drain(&soc);
    assert_eq!(get(&soc, "key"), None);
    assert_eq!(soc.stats().items, 0);
}

/// The bucket ends empty, so nothing is written over its old content.
#[test]
fn read_overtaken_by_a_removal_misses() {
    let device = gate();
    let soc = soc_on(&device, config(1));
    put(&soc, "key", "value");
    drain(&soc);
    device.close(RequestKind::Read);
    let mut read = Box::pin(soc.read(KeyHash::of(b"key"), b"key", Waiting::Task, NOW));
    assert!(poll(&mut read).is_none());
    forget(&soc, "key");
    drain(&soc);
    device.open();
    assert!(block_on(read).is_none());
}

#[test]
fn read_overtaken_by_a_rewrite_finds_the_new_version() {
    let device = gate();
    let soc = soc_on(&device, config(1));
    put(&soc, "key", "old");
    drain(&soc);
    device.close(RequestKind::Read);
    let mut read = Box::pin(soc.read(KeyHash::of(b"key"), b"key", Waiting::Task, NOW));
    assert!(poll(&mut read).is_none());
    put(&soc, "key", "new");
    drain(&soc);
    device.open();
    assert_eq!(&*block_on(read).unwrap(), b"new");
}

#[test]
fn expired_item_is_never_returned_and_is_dropped_by_the_next_write() {
    let soc = soc_on(&gate(), config(1));
    put_until(&soc, "short", "lived", NOW + 10);
    for _ in 0..2 {
        assert_eq!(get_at(&soc, "short", NOW + 9).as_deref(), Some("lived"));
        assert_eq!(get_at(&soc, "short", NOW + 10), None);
        drain(&soc);
    }
    put(&soc, "another", "one");
    block_on(soc.drain(Waiting::Task, NOW + 10));
    let stats = soc.stats();
    assert_eq!((stats.items, stats.evictions_expired, stats.evictions, stats.expired_lookups), (1, 1, 0, 2));
}

#[test]
fn corrupt_bucket_is_counted_and_reused_as_empty() {
    let device = gate();
    for by_lookup in [true, false] {
        let soc = soc_on(&device, config(1));
        put(&soc, "key", "value");
        drain(&soc);
        change_on_device(&device, &soc, |bucket| bucket[30] ^= 1);
        if by_lookup {
            assert_eq!((get(&soc, "key"), get(&soc, "key")), (None, None));
        }
        put(&soc, "next", "life");
        drain(&soc);
        assert_eq!(get(&soc, "next").as_deref(), Some("life"));
        assert_eq!(get(&soc, "key"), None);
        assert_eq!(soc.stats().checksum_errors, 1);
    }
}

#[test]
fn lost_write_is_not_counted_as_corruption() {
    let device = gate();
    let soc = soc_on(&device, config(1));
    put(&soc, "key", "value");
    drain(&soc);
    change_on_device(&device, &soc, |bytes| BucketMut::empty(bytes, 41).seal(BucketId(0)));
    assert_eq!(get(&soc, "key"), None);
    assert_eq!((soc.stats().stale_buckets, soc.stats().checksum_errors), (1, 0));
}

#[test]
fn failed_write_exposes_neither_the_old_nor_the_new_version() {
    let device = Arc::new(FaultDevice::new(memory(), 1, Faults::default()));
    let soc = soc_on(&device, config(1));
    put(&soc, "key", "old");
    drain(&soc);
    put(&soc, "key", "new");
    device.set_faults(Faults { failed_writes: 1.0, ..Faults::default() });
    drain(&soc);
    assert_eq!(get(&soc, "key"), None);
    let stats = soc.stats();
    assert_eq!((stats.write_errors, stats.lost_items, stats.items, stats.pending_bytes), (1, 1, 0, 0));
    device.set_faults(Faults::default());
    put(&soc, "key", "newest");
    drain(&soc);
    assert_eq!(get(&soc, "key").as_deref(), Some("newest"));
}

#[test]
fn failed_read_is_a_miss_and_empties_a_bucket_before_its_write() {
    let device = Arc::new(FaultDevice::new(memory(), 1, Faults::default()));
    let soc = soc_on(&device, config(1));
    put(&soc, "key", "value");
    drain(&soc);
    device.set_faults(Faults { failed_reads: 1.0, ..Faults::default() });
    assert_eq!(get(&soc, "key"), None);
    device.set_faults(Faults::default());
    assert_eq!(get(&soc, "key").as_deref(), Some("value"), "a lookup's failure may pass");
    device.set_faults(Faults { failed_reads: 1.0, ..Faults::default() });
    put(&soc, "other", "item");
    drain(&soc);
    device.set_faults(Faults::default());
    assert_eq!((get(&soc, "key"), get(&soc, "other").as_deref()), (None, Some("item")));
    assert_eq!(soc.stats().read_errors, 2);
}

#[test]
fn new_generation_finds_no_old_item_without_reads() {
    let device = gate();
    let old = soc_on(&device, config(4));
    (0..50).for_each(|n| put(&old, &format!("key-{n}"), "value"));
    drain(&old);
    let new = soc_on(&device, SocConfig { generation: 43, ..config(4) });
    assert!((0..50).all(|n| get(&new, &format!("key-{n}")).is_none()));
    put(&new, "key-1", "again");
    drain(&new);
    assert_eq!(get(&new, "key-1").as_deref(), Some("again"));
    assert_eq!((new.stats().items, new.stats().checksum_errors, new.stats().stale_buckets), (1, 0, 0));
}

#[test]
fn snapshot_restores_all_items_and_is_refused_under_another_layout() {
    let device = gate();
    let old = soc_on(&device, config(100));
    (0..500).for_each(|n| put(&old, &format!("key-{n}"), &format!("value-{n}")));
    drain(&old);
    let snapshot: Vec<u8> = old.snapshot().flatten().collect();
    assert_eq!(snapshot.len() as u64, old.config().snapshot_bytes());
    let mut new = soc_on(&device, config(100));
    new.restore(&snapshot).unwrap();
    assert_eq!(new.stats().items, 500);
    for n in 0..500 {
        assert_eq!(get(&new, &format!("key-{n}")), Some(format!("value-{n}")));
    }
    let mut other = soc_on(&device, config(101));
    assert!(matches!(other.restore(&snapshot), Err(RestoreError::Length { .. })));
    let mut other = soc_on(&device, config(100));
    let mut changed = snapshot;
    changed[0] += 1;
    assert!(matches!(other.restore(&changed), Err(RestoreError::Shape { found_buckets: 101, .. })));
    assert!((0..500).all(|n| get(&other, &format!("key-{n}")).is_none()));
}

#[test]
fn full_pending_table_refuses_items_until_a_step_and_accepts_every_removal() {
    let soc = soc_on(&gate(), SocConfig { pending_limit_bytes: 2_600, ..config(4) });
    put(&soc, "flash", "value");
    drain(&soc);
    let value = [0_u8; 500];
    let mut taken = 0;
    while let Ok(staged) = soc.stage(&item(&format!("key-{taken}"), &[&value], 0)) {
        soc.commit(staged);
        taken += 1;
    }
    assert_eq!((taken, soc.ready(), soc.wants_step()), (4, false, true));
    assert!(matches!(soc.stage(&item("one", &[b"more"], 0)), Err(NotStaged::Full)));
    assert!(forget(&soc, "flash"));
    let mut waiting = Box::pin(soc.wait_ready(Waiting::Task));
    assert!(poll(&mut waiting).is_none());
    block_on(soc.step(Waiting::Thread, NOW));
    block_on(waiting);
    assert!(soc.ready() && get(&soc, "flash").is_none());
    assert!(matches!(soc.stage(&item("huge", &[&[0; 4096]], 0)), Err(NotStaged::TooLarge)));
}

#[test]
fn neighbouring_buckets_are_written_in_one_request_and_each_once() {
    let soc = soc_on(&gate(), config(64));
    (0..200).for_each(|n| put(&soc, &format!("key-{n}"), "value"));
    drain(&soc);
    let stats = soc.stats();
    assert!(stats.bucket_writes <= 64 && stats.written_entries == 200, "{stats:?}");
    assert!(stats.device_writes <= 10, "{stats:?}");
    assert_eq!(stats.physical_written_bytes, stats.bucket_writes * 4096);
    assert!((0..200).all(|n| get(&soc, &format!("key-{n}")).is_some()));
}

#[test]
fn step_dropped_before_its_write_loses_nothing() {
    let device = gate();
    let soc = soc_on(&device, config(1));
    put(&soc, "old", "value");
    drain(&soc);
    put(&soc, "key", "value");
    device.close(RequestKind::Read);
    let mut step = Box::pin(soc.step(Waiting::Task, NOW));
    assert!(poll(&mut step).is_none());
    drop(step);
    device.open();
    drain(&soc);
    assert_eq!((get(&soc, "old").as_deref(), get(&soc, "key").as_deref()), (Some("value"), Some("value")));
}

/// The write completes at any later time: until then its items are found, and its bucket is not written again.
#[test]
fn step_dropped_during_its_write_leaves_the_write_to_the_next_step() {
    let device = gate();
    let soc = soc_on(&device, config(1));
    (0..2).for_each(|n| put(&soc, &format!("key-{n}"), "left over"));
    device.close(RequestKind::Write);
    let mut step = Box::pin(soc.step(Waiting::Task, NOW));
    assert!(poll(&mut step).is_none());
    drop(step);
    assert_eq!(get(&soc, "key-0").as_deref(), Some("left over"));
    put(&soc, "key-0", "newer");
    assert!(forget(&soc, "key-1"));
    device.stop_holding();
    let mut step = Box::pin(soc.step(Waiting::Task, NOW));
    assert!(poll(&mut step).is_none());
    assert_eq!((device.held(), get(&soc, "key-0").as_deref()), (1, Some("newer")));
    device.release_held();
    assert_eq!(poll(&mut step), Some(Progress { buckets: 2, entries: 4 }));
    assert_eq!((get(&soc, "key-0").as_deref(), get(&soc, "key-1")), (Some("newer"), None));
    assert_eq!((soc.pending_bytes(), soc.stats().lost_items, soc.stats().items), (0, 0, 1));
}

/// Catches a regression: the waiting task finds its buckets in use by a step, which is then dropped, and is never
/// woken.
#[test]
fn step_dropped_during_its_write_wakes_another_step() {
    let device = gate();
    let soc = soc_on(&device, config(1));
    put(&soc, "key", "value");
    device.close(RequestKind::Write);
    let mut step = Box::pin(soc.step(Waiting::Task, NOW));
    assert!(poll(&mut step).is_none());
    let mut settling = Box::pin(soc.settle());
    assert!(poll(&mut settling).is_none());
    let mut work = Box::pin(soc.wait_work(Waiting::Task));
    assert!(poll(&mut work).is_none());
    drop(step);
    assert!(poll(&mut work).is_some(), "somebody has to see its end");
    device.open();
    block_on(soc.step(Waiting::Task, NOW));
    assert!(poll(&mut settling).is_some());
    assert_eq!(get(&soc, "key").as_deref(), Some("value"));
}

#[test]
fn wrong_configurations_are_refused_with_the_numbers() {
    let geometry = gate().geometry();
    let good = config(8);
    assert_eq!(good.check(&geometry), Ok(()));
    let refused = [
        SocConfig { bucket_bytes: 5000, ..good },
        SocConfig { bucket_bytes: 2048, ..good },
        SocConfig { offset_bytes: 100, ..good },
        SocConfig { soc_bytes: 4097, ..good },
        SocConfig { soc_bytes: 0, ..good },
        SocConfig { soc_bytes: 1 << 30, ..good },
        SocConfig { soc_bytes: !4095, ..good },
        SocConfig { filter_bytes_per_bucket: 12, ..good },
        SocConfig { filter_bytes_per_bucket: 136, ..good },
        SocConfig { writes_in_flight: 0, ..good },
    ];
    for wrong in refused {
        let error = wrong.check(&geometry).expect_err("refused").to_string();
        assert!(error.len() > 20, "{error}");
    }
}
