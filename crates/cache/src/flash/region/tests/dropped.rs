//! Steps dropped while their requests are in flight. The requests complete at any later time, and must not overwrite newer data.

use std::pin::pin;

use device::wrap::GateDevice;
use device::{ErrorKind, IoError, MemoryDevice, RequestKind};

use super::races::poll_once;
use super::*;
use crate::flash::crash_histories::WatchedDevice;

/// Enough items to fill every region several times.
const NEW_KEYS: std::ops::Range<u64> = 10_000..12_000;

struct Fixture {
    gate: Arc<GateDevice>,
    store: RegionStore,
}

impl Fixture {
    fn new(config: RegionConfig) -> Self {
        let gate = Arc::new(GateDevice::new(Arc::new(MemoryDevice::new(config.capacity_bytes))));
        let store = open(Arc::clone(&gate) as Arc<dyn Device>, config);
        Self { gate, store }
    }

    fn trimming() -> Self {
        Self::new(RegionConfig { trim: true, ..small() })
    }

    /// Fills the store until the next step reclaims a region.
    fn with_a_reclaim_due(self) -> Self {
        for key in 0.. {
            if self.store.clean_regions() < 2 {
                break;
            }
            put_version(&self.store, key, 0);
            drain(&self.store);
        }
        self
    }

    /// Drops a step while its requests of this kind are in flight; returns their number.
    fn drop_step_during(&self, kind: RequestKind) -> usize {
        self.gate.close(kind);
        assert!(poll_once(pin!(self.store.step(Waiting::Task))).is_none(), "the step waits at the gate");
        self.gate.stop_holding();
        self.gate.held()
    }

    /// Fills every region again, then completes the requests in flight.
    fn complete_late(&self) {
        fill(&self.store, NEW_KEYS);
        assert!(self.gate.release_held() > 0);
        assert_all_found(&self.store, NEW_KEYS);
        fill(&self.store, NEW_KEYS);
        assert_all_found(&self.store, NEW_KEYS);
        self.assert_all_regions_come_back();
    }

    fn assert_all_regions_come_back(&self) {
        drain(&self.store);
        self.store.clear();
        work_until_idle(&self.store);
        assert_eq!(self.store.clean_regions(), 24);
        assert_accounts_balance(&self.store);
    }
}

fn fill(store: &RegionStore, keys: std::ops::Range<u64>) {
    for key in keys {
        put_version(store, key, 0);
        work_until_idle(store);
    }
}

/// Asserts that every indexed item is found undamaged.
fn assert_all_found(store: &RegionStore, keys: std::ops::Range<u64>) {
    for key in keys.filter(|key| store.may_contain(KeyHash::of(&key.to_le_bytes()))) {
        match get(store, key) {
            Lookup::Found(seen) => assert_eq!(*seen, value(key, 0)),
            other => panic!("key {key}: {other:?}"),
        }
    }
    assert!(store.len() > 200);
}

#[test]
fn trim_completed_after_a_dropped_reclaim_keeps_new_items() {
    let scene = Fixture::trimming().with_a_reclaim_due();
    assert_eq!(scene.drop_step_during(RequestKind::Trim), 1);
    scene.complete_late();
}

#[test]
fn trim_completed_after_a_clear_and_a_dropped_step_keeps_new_items() {
    let scene = Fixture::trimming();
    fill(&scene.store, 0..100);
    drain(&scene.store);
    scene.store.clear();
    assert_eq!(scene.drop_step_during(RequestKind::Trim), 1);
    scene.complete_late();
}

#[test]
fn dropped_flush_ends_when_its_started_writes_end() {
    let scene = Fixture::new(small());
    while !scene.store.supply.has_sealed(0) {
        put_version(&scene.store, scene.store.len() as u64, 0);
    }
    assert!(scene.drop_step_during(RequestKind::Write) > 1);
    let mut taken_up = pin!(scene.store.step(Waiting::Task));
    assert!(poll_once(taken_up.as_mut()).is_none(), "what was begun has not landed");
    scene.gate.release_held();
    assert_eq!(poll_once(taken_up), Some(Progress::Flushed));
    fill(&scene.store, NEW_KEYS);
    assert_all_found(&scene.store, NEW_KEYS);
    scene.assert_all_regions_come_back();
}

#[test]
fn flush_of_dropped_steps_completes_and_writes_each_region_once() {
    for transfers_at_once in 0..4 {
        let scene = Fixture::new(RegionConfig { transfers_at_once, ..small() });
        while !scene.store.supply.has_sealed(0) {
            put_version(&scene.store, scene.store.len() as u64, 0);
        }
        scene.gate.close(RequestKind::Write);
        for _ in 0..10 {
            let _dropped = poll_once(pin!(scene.store.step(Waiting::Task)));
            scene.gate.release_held();
        }
        let (seen, written) = (scene.store.stats(), scene.gate.counters());
        assert_eq!(seen.regions_flushed, 1, "{transfers_at_once} concurrent transfers");
        assert_eq!(
            (seen.written_bytes, written.writes),
            (written.written_bytes, 5),
            "none of the pieces twice"
        );
        scene.gate.open();
        for key in 0..seen.inserts {
            assert!(
                matches!(get(&scene.store, key), Lookup::Found(found) if *found == value(key, 0)),
                "{key}"
            );
        }
        scene.assert_all_regions_come_back();
    }
}

#[test]
fn drain_waits_for_writes_of_a_dropped_step() {
    let scene = Fixture::trimming().with_a_reclaim_due();
    scene.drop_step_during(RequestKind::Trim);
    let mut draining = pin!(scene.store.drain(Waiting::Task));
    assert!(poll_once(draining.as_mut()).is_none(), "the trim could land in the next store");
    scene.gate.release_held();
    assert!(poll_once(draining).is_some());
}

#[test]
fn step_dropped_during_a_reclaim_wakes_waiting_tasks() {
    let scene = Fixture::new(small()).with_a_reclaim_due();
    scene.gate.close(RequestKind::Read);
    let mut reclaim = Box::pin(scene.store.step(Waiting::Task));
    assert!(poll_once(reclaim.as_mut()).is_none(), "the reclaim reads the table");
    let mut work = pin!(scene.store.wait_work());
    assert!(poll_once(work.as_mut()).is_none(), "one reclaim is enough");
    drop(reclaim);
    assert!(poll_once(work).is_some(), "now it is for others to do");
}

#[test]
fn dropped_trim_of_a_region_is_repeated() {
    let scene = Fixture::trimming().with_a_reclaim_due();
    let held = scene.store.len();
    scene.drop_step_during(RequestKind::Trim);
    let after = scene.store.len();
    assert!(after < held);
    work_until_idle(&scene.store);
    assert_eq!(scene.store.len(), after, "one region on its way is as good as clean");
}

#[test]
fn region_of_a_dropped_reclaim_is_reclaimed_later() {
    for config in [small(), blockcache(), ripq(|_| {})] {
        let scene = Fixture::new(config).with_a_reclaim_due();
        let held = scene.store.policy.lock().len();
        assert_eq!(scene.drop_step_during(RequestKind::Read), 1);
        assert_eq!(scene.store.policy.lock().len(), held);
        scene.gate.release_held();
        fill(&scene.store, NEW_KEYS);
        assert_all_found(&scene.store, NEW_KEYS);
        scene.assert_all_regions_come_back();
    }
}

/// The region may still contain its old items, which only a recovery could find, and the journal excludes them.
#[test]
fn failed_trim_is_counted_and_its_region_is_used() {
    let config = RegionConfig { trim: true, ..small() };
    let watched = Arc::new(WatchedDevice::new(MemoryDevice::new(config.capacity_bytes)));
    watched.watch(|change| match change.kind {
        RequestKind::Trim => Err(IoError::new(ErrorKind::Medium, "it cannot be trimmed")),
        _ => Ok(()),
    });
    let store = open(watched, config);
    fill(&store, NEW_KEYS);
    assert_all_found(&store, NEW_KEYS);
    let stats = store.stats();
    assert!(stats.trim_errors >= stats.regions_reclaimed.min(24) && stats.trim_errors > 0, "{stats:?}");
}
