//! Single properties of the log, each with as few items as possible.

use device::wrap::{FaultDevice, Faults, GateDevice};
use device::{Request, RequestKind};

use super::*;

#[test]
fn item_is_found_in_memory_then_on_flash_by_one_read() {
    let device = memory();
    let log = log_on(&device, config());
    put(&log, "key", "value", 0);
    assert_eq!(get(&log, "key").as_deref(), Some("value"));
    assert_eq!((log.stats().hits_pending, log.stats().bucket_reads), (1, 0));
    drain(&log);
    assert_eq!(get(&log, "key").as_deref(), Some("value"));
    assert_eq!((log.stats().hits_pending, log.stats().bucket_reads), (1, 1));
    assert_eq!(get(&log, "absent"), None);
}

#[test]
fn filled_log_writes_little_more_than_its_items() {
    let device = memory();
    let log = log_on(&device, config());
    for number in 0..12_000 {
        put(&log, &format!("key-{number:05}"), &"v".repeat(200), 0);
    }
    let stats = log.stats();
    let written = stats.physical_written_bytes as f64;
    let admitted = (stats.logical_written_bytes - stats.waiting_bytes()) as f64;
    assert!((1.0..1.15).contains(&(written / admitted)), "{}", written / admitted);
    assert_eq!(stats.lost_items, 0);
    let found = (0..12_000).filter(|number| get(&log, &format!("key-{number:05}")).is_some()).count() as i64;
    assert_eq!(found, stats.items + stats.pending_items as i64);
    assert!(found > 1000);
}

#[test]
fn oldest_items_are_evicted_first() {
    let device = memory();
    let log = log_on(&device, config());
    for number in 0..9000 {
        put(&log, &format!("key-{number:05}"), &"v".repeat(200), 0);
    }
    let is_found = |number: usize| get(&log, &format!("key-{number:05}")).is_some();
    let first = (0..9000).find(|&number| is_found(number)).expect("some are found");
    let gaps = (first + 100..9000).filter(|&number| !is_found(number)).count();
    assert!(first > 3000 && gaps == 0, "{gaps} gaps after {first}");
}

#[test]
fn item_read_before_a_reopen_is_readmitted_after_it() {
    let device = memory();
    let config = LogConfig { readmission_share: 0.25, ..config() };
    let log = log_on(&device, config);
    put(&log, "read", "value", 0);
    put(&log, "unread", "value", 0);
    drain(&log);
    get(&log, "read");
    let snapshot: Vec<u8> = log.snapshot().flatten().collect();
    let mut log = log_on(&device, config);
    log.restore(&snapshot).expect("its own snapshot");
    for number in 0.. {
        if log.live().min > 1 << log.shape.sequence_bits {
            break;
        }
        put(&log, &format!("key-{number:05}"), &"v".repeat(200), 0);
    }
    assert_eq!((log.stats().readmitted_items, get(&log, "unread")), (1, None));
    assert_eq!(get(&log, "read").as_deref(), Some("value"));
}

#[test]
fn memory_counts_reads_of_an_eviction_up_to_a_region() {
    let region_bytes = 256 * 4096;
    let config = LogConfig { regions: Some(8), ..LogConfig::new(4096, 8 * region_bytes, 42) };
    let pending = |max_write_bytes| memory_of(&LogConfig { max_write_bytes, ..config }).1;
    assert_eq!(pending(8192) - pending(4096), 32 * 4096);
    assert_eq!(pending(1 << 20) - pending(4096), region_bytes - 32 * 4096);
}

#[test]
fn read_item_is_readmitted_and_unread_one_is_not() {
    let device = memory();
    let log = log_on(&device, LogConfig { readmission_share: 0.25, ..config() });
    put(&log, "read", "value", 0);
    put(&log, "unread", "value", 0);
    drain(&log);
    for number in 0..24_000 {
        get(&log, "read");
        put(&log, &format!("key-{number:05}"), &"v".repeat(200), 0);
    }
    assert!(get(&log, "read").is_some() && get(&log, "unread").is_none());
    assert!(log.stats().readmitted_items > 0);
}

#[test]
fn removed_key_stays_removed_in_memory_and_on_flash() {
    let device = memory();
    let log = log_on(&device, config());
    put(&log, "key", "old", 0);
    drain(&log);
    put(&log, "key", "new", 0);
    assert_eq!(get(&log, "key").as_deref(), Some("new"));
    assert!(forget(&log, "key"));
    assert_eq!(get(&log, "key"), None);
    drain(&log);
    assert_eq!(get(&log, "key"), None);
    assert!(!forget(&log, "key"));
}

#[test]
fn newer_version_hides_an_older_one_without_a_removal() {
    let device = memory();
    let log = log_on(&device, config());
    put(&log, "key", "old", 0);
    drain(&log);
    put(&log, "key", "new", 0);
    drain(&log);
    assert_eq!(get(&log, "key").as_deref(), Some("new"));
    forget(&log, "key");
    assert_eq!(get(&log, "key"), None);
}

/// The removed key's version is in the packed page, where an entry of another item with the same address would lead a lookup to it.
#[test]
fn key_removed_while_its_region_is_written_is_not_found() {
    for fingerprint_bits in [1, 2] {
        let gate = Arc::new(GateDevice::new(memory()));
        let log = colliding_log(&gate, config(), fingerprint_bits);
        let keys: Vec<String> = (0..40).map(|number| format!("key-{number}")).collect();
        keys.iter().for_each(|key| put(&log, key, "old", 0));
        gate.close(RequestKind::Write);
        let mut draining = Box::pin(log.drain(Waiting::Task, NOW));
        let waker = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(waker);
        assert!(draining.as_mut().poll(&mut context).is_pending());
        keys[..20].iter().for_each(|key| assert!(forget(&log, key)));
        gate.open();
        block_on(draining);
        keys[..20].iter().for_each(|key| assert_eq!(get(&log, key), None, "{key}"));
    }
}

#[test]
fn lookup_overtaken_by_an_overwrite_is_repeated_and_counted_once() {
    let gate = Arc::new(GateDevice::new(memory()));
    let log = log_on(&gate, config());
    put(&log, "key", "old", 0);
    drain(&log);
    gate.close(RequestKind::Read);
    let mut read = Box::pin(log.read(KeyHash::of(b"key"), b"key", Waiting::Task, NOW));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(read.as_mut().poll(&mut context).is_pending());
    forget(&log, "key");
    put(&log, "key", "new", 0);
    gate.open();
    let found = block_on(read).expect("the new version is in memory");
    assert_eq!(found.to_vec(), b"new");
    let stats = log.stats();
    assert_eq!((stats.lookups, stats.hits, stats.bucket_reads), (1, 1, 1));
}

#[test]
fn page_that_cannot_be_verified_does_not_expose_an_older_version() {
    let device = memory();
    let log = log_on(&device, config());
    put(&log, "key", "old", 0);
    drain(&log);
    put(&log, "key", "new", 0);
    drain(&log);
    let newest = log.live().max;
    let mut page = device::IoBuffer::zeroed(4096);
    page.fill(0xAA);
    let (offset, data) = (
        log.page_offset(log.region(newest).expect("it is live").start_page),
        device::IoSlice::whole(Arc::new(page)),
    );
    let request = Request::write(offset, data);
    device.execute(request).expect("memory takes writes");
    assert_eq!(get(&log, "key"), None);
    assert_eq!(log.stats().checksum_errors, 1);
}

#[test]
fn items_of_a_failed_write_are_lost_and_counted() {
    let faults = Faults { failed_writes: 1.0, ..Faults::default() };
    let device = Arc::new(FaultDevice::new(memory(), 1, Faults::default()));
    let log = log_on(&device, config());
    put(&log, "key", "old", 0);
    drain(&log);
    device.set_faults(faults);
    put(&log, "key", "new", 0);
    put(&log, "other", "value", 0);
    drain(&log);
    device.set_faults(Faults::default());
    assert_eq!((get(&log, "key"), get(&log, "other")), (None, None));
    assert_eq!((log.stats().lost_items, log.stats().unwritten_items), (2, 2));
}

#[test]
fn region_of_a_failing_device_is_written_after_a_pause() {
    let clock = Arc::new(device::VirtualClock::default());
    let device = Arc::new(FaultDevice::new(memory(), 1, Faults::default()));
    let log = log_on(&device, config()).with_clock(Arc::clone(&clock) as _);
    put(&log, "key", "value", 0);
    (0..)
        .take_while(|_| !log.wants_step())
        .for_each(|number| put(&log, &format!("key-{number}"), "value", 0));
    device.set_faults(Faults { failed_writes: 1.0, ..Faults::default() });
    assert!(block_on(log.step(Waiting::Thread, NOW)).idle());
    assert!(log.is_failing() && !log.wants_step() && log.last_error().is_some());
    assert_eq!(get(&log, "key").as_deref(), Some("value"));
    device.set_faults(Faults::default());
    let resume_ns = log.wake_if_due(0).expect("a pause has an end");
    clock.advance_to(resume_ns);
    assert!(log.wants_step());
    block_on(log.step(Waiting::Thread, NOW));
    assert!(!log.is_failing() && log.stats().written_entries > 0);
    assert_eq!((get(&log, "key").as_deref(), log.stats().lost_items), (Some("value"), 0));
}

#[test]
fn dropped_step_loses_nothing() {
    let gate = Arc::new(GateDevice::new(memory()));
    let log = log_on(&gate, config());
    put(&log, "key", "value", 0);
    gate.close(RequestKind::Write);
    let mut draining = Box::pin(log.drain(Waiting::Task, NOW));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(draining.as_mut().poll(&mut context).is_pending());
    drop(draining);
    assert_eq!(get(&log, "key").as_deref(), Some("value"));
    gate.open();
    drain(&log);
    assert_eq!(log.stats().pending_items, 0);
    assert_eq!(get(&log, "key").as_deref(), Some("value"));
}

#[test]
fn visit_lists_every_key_in_memory_and_on_flash() {
    let device = memory();
    let log = log_on(&device, config());
    for number in 0..300 {
        put(&log, &format!("key-{number}"), &"v".repeat(200), 0);
        if number == 200 {
            drain(&log);
        }
    }
    forget(&log, "key-7");
    let mut keys = std::collections::BTreeSet::new();
    block_on(log.visit_keys(Waiting::Thread, &mut |key: &[u8]| {
        keys.insert(String::from_utf8(key.to_vec()).expect("a key is text"));
    }));
    let expected = (0..300).filter(|number| *number != 7).map(|number| format!("key-{number}")).collect();
    assert_eq!(keys, expected);
    assert!(log.stats().items > 0 && log.stats().pending_items > 0);
}

#[test]
fn readmission_uses_the_seed_of_the_cache() {
    let device = memory();
    let log = log_on(&device, LogConfig { readmission_share: 0.25, hash_seed: 7, ..config() });
    let hash = KeyHash::seeded(b"read", 7);
    let insert = |key: &[u8]| {
        let value: &[&[u8]] = &[&[b'v'; 200]];
        let item = FlashItem { key, hash: KeyHash::seeded(key, 7), value, expiry_seconds: 0, tag: 0 };
        while !log.ready() {
            block_on(log.step(Waiting::Thread, NOW));
        }
        log.commit(log.stage(&item).expect("the log is ready"));
    };
    insert(b"read");
    for number in 0..12_000_u64 {
        block_on(log.read(hash, b"read", Waiting::Thread, NOW));
        insert(&number.to_le_bytes());
    }
    assert!(block_on(log.read(hash, b"read", Waiting::Thread, NOW)).is_some());
}

#[test]
fn step_beside_a_running_step_is_idle() {
    let gate = Arc::new(GateDevice::new(memory()));
    let log = log_on(&gate, config());
    put(&log, "key", "value", 0);
    gate.close(RequestKind::Write);
    let mut draining = Box::pin(log.drain(Waiting::Task, NOW));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(draining.as_mut().poll(&mut context).is_pending());
    put(&log, "other", "value", 0);
    for _ in 0..2 {
        let mut step = Box::pin(log.step(Waiting::Task, NOW));
        let std::task::Poll::Ready(progress) = step.as_mut().poll(&mut context) else {
            panic!("two steps write at the same time");
        };
        assert!(progress.idle());
    }
    gate.open();
    block_on(draining);
    assert_eq!(log.stats().pending_items, 0);
}

/// A log whose evicted and removed items are counted by key.
fn counting_log(
    device: &Arc<impl Device + 'static>,
    config: LogConfig,
    fingerprint_bits: u32,
) -> (HashLog, Counts) {
    let reported = Counts::default();
    let counts = reported.clone();
    let log = colliding_log(device, config, fingerprint_bits).with_eviction_callback(
        Arc::new(move |item: &FlashItem<'_>, take_out: &mut dyn FnMut() -> bool| {
            if take_out() {
                counts.add(item.key);
            }
        }),
        Arc::new(|_| true),
    );
    let counts = reported.clone();
    let log = log.with_destructor(Arc::new(move |item: &FlashItem<'_>, _: crate::config::Removal| {
        counts.add(item.key);
    }));
    (log, reported)
}

#[derive(Clone, Default)]
struct Counts(Arc<Mutex<std::collections::BTreeMap<Vec<u8>, u32>>>);

impl Counts {
    fn add(&self, key: &[u8]) {
        *self.0.lock().entry(key.to_vec()).or_default() += 1;
    }
}

#[test]
fn every_evicted_item_is_reported_once() {
    for fingerprint_bits in [11, 4] {
        let device = memory();
        let (log, reported) = counting_log(&device, config(), fingerprint_bits);
        for number in 0..12_000 {
            put(&log, &format!("key-{number:05}"), &"v".repeat(200), 0);
        }
        let stats = log.stats();
        let counts = reported.0.lock().clone();
        assert!(counts.values().all(|&count| count == 1));
        assert_eq!(counts.len() as u64, stats.evictions);
        assert_eq!(12_000, stats.evictions as i64 + stats.items + stats.pending_items as i64);
        let is_held = |number: &usize| get(&log, &format!("key-{number:05}")).is_some();
        let held = (0..12_000).filter(is_held).count() as i64;
        assert_eq!(held, stats.items + stats.pending_items as i64);
    }
}

#[test]
fn every_removed_item_is_reported_once_and_no_other_item_is_lost() {
    for fingerprint_bits in [11, 4] {
        let device = memory();
        let (log, reported) = counting_log(&device, config(), fingerprint_bits);
        let key = |number: usize| format!("key-{number:05}");
        (0..1500).for_each(|number| put(&log, &key(number), "value", 0));
        drain(&log);
        (1500..1600).for_each(|number| put(&log, &key(number), "value", 0));
        for number in (0..1600).step_by(3) {
            let hash = KeyHash::of(key(number).as_bytes());
            assert!(log.forget_with_destructor(
                hash,
                key(number).as_bytes(),
                Some(crate::config::Removal::Removed)
            ));
            assert_eq!(get(&log, &key(number)), None);
        }
        let mut settling = Box::pin(log.settle());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        while settling.as_mut().poll(&mut context).is_pending() {
            block_on(log.step(Waiting::Thread, NOW));
        }
        let expected: Vec<Vec<u8>> = (0..1600).step_by(3).map(|number| key(number).into_bytes()).collect();
        let counts = reported.0.lock().clone();
        assert!(counts.values().all(|&count| count == 1));
        assert_eq!(counts.into_keys().collect::<Vec<_>>(), expected);
        for number in 0..1600 {
            assert_eq!(get(&log, &key(number)).is_some(), number % 3 != 0, "{number}");
        }
    }
}

#[test]
fn expired_items_are_reported_to_a_destructor_from_memory_and_from_flash() {
    let device = memory();
    let (log, reported) = counting_log(&device, config(), 11);
    put(&log, "on flash", "value", NOW + 10);
    drain(&log);
    put(&log, "in memory", "value", NOW + 10);
    for number in 0..12_000 {
        put_at(&log, &format!("key-{number:05}"), &"v".repeat(200), 0, NOW + 20);
    }
    let counts = reported.0.lock().clone();
    assert_eq!((counts.get(&b"on flash"[..]), counts.get(&b"in memory"[..])), (Some(&1), Some(&1)));
    assert_eq!(log.stats().evictions_expired, 2);
}

#[test]
fn region_that_is_written_early_takes_only_its_pages() {
    let device = memory();
    let log = log_on(&device, config());
    let page_bytes = 4096;
    for number in 0..30_u64 {
        put(&log, &format!("key-{number}"), &"v".repeat(300), 0);
        drain(&log);
        // Of 192 pages, 18 live regions of a page each.
        assert_eq!(log.room_bytes(), (192 * page_bytes, (number + 1).min(18) * page_bytes));
    }
    let is_found = |number: &u64| get(&log, &format!("key-{number}")).is_some();
    assert_eq!((0..30).filter(is_found).collect::<Vec<_>>(), (12..30).collect::<Vec<_>>());
}

#[test]
fn index_for_larger_items_evicts_early_and_loses_no_item_silently() {
    let device = memory();
    let (log, reported) = counting_log(&device, LogConfig { expected_item_bytes: 1000, ..config() }, 11);
    (0..6000).for_each(|number| put(&log, &format!("key-{number:05}"), &"v".repeat(50), 0));
    drain(&log);
    let stats = log.stats();
    let evicted = reported.0.lock().len() as i64;
    assert!(evicted > 3000 && stats.lost_items == 0, "{evicted} evicted");
    let is_found = |number: &usize| get(&log, &format!("key-{number:05}")).is_some();
    assert_eq!((0..6000).filter(is_found).count() as i64, 6000 - evicted);
}

#[test]
fn full_memory_refuses_until_a_region_is_written() {
    let device = memory();
    let log = log_on(&device, config());
    let value: &[&[u8]] = &[&[b'v'; 500]];
    let mut count = 0_u64;
    loop {
        let key = count.to_le_bytes();
        let item = FlashItem { key: &key, hash: KeyHash::of(&key), value, expiry_seconds: 0, tag: 0 };
        match log.stage(&item) {
            Ok(staged) => log.commit(staged),
            Err(refusal) => {
                assert_eq!(refusal, NotStaged::Full);
                break;
            }
        }
        count += 1;
    }
    assert!(log.wants_step() && !log.ready() && count > 40);
    block_on(log.step(Waiting::Thread, NOW));
    assert!(log.ready());
}

#[test]
fn damaged_snapshot_is_refused_or_restored_without_a_stale_item() {
    let device = memory();
    let log = log_on(&device, config());
    for number in 0..500 {
        put(&log, &format!("key-{number}"), &format!("value-{number}"), 0);
    }
    drain(&log);
    let snapshot: Vec<u8> = log.snapshot().flatten().collect();
    assert_eq!(snapshot.len() as u64, snapshot_bytes(&config()));
    for at in (0..snapshot.len()).step_by(97) {
        let mut damaged = snapshot.clone();
        damaged[at] ^= 0x41;
        let mut log = log_on(&device, config());
        if log.restore(&damaged).is_ok() {
            for number in 0..500 {
                let found = get(&log, &format!("key-{number}"));
                assert!(found.is_none_or(|value| value == format!("value-{number}")), "byte {at}");
            }
        }
    }
    assert!(log_on(&device, LogConfig { regions: Some(8), ..config() }).restore(&snapshot).is_err());
}

#[test]
fn settle_completes_when_earlier_items_are_written() {
    let device = memory();
    let log = log_on(&device, config());
    put(&log, "key", "value", 0);
    let mut settling = Box::pin(log.settle());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(settling.as_mut().poll(&mut context).is_pending());
    assert!(log.wants_step());
    block_on(log.step(Waiting::Thread, NOW));
    assert!(settling.as_mut().poll(&mut context).is_ready());
    block_on(log.settle());
}
