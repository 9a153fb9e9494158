//! Races: each test produces one order of events that could return a stale value, or lose an item permanently.

use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};

use device::Request;
use device::RequestKind::{Read, Write};
use device::wrap::{FaultDevice, Faults};
use flashwright_cache::config::regions::Reinsertion;
use flashwright_cache::{Cache, FlashConfig, Inserted, KeyHash, Layer};
use parking_lot::Mutex;
use policy::{Admission, Candidate};
use pollster::block_on;

use crate::polled::{poll, waiting};
use crate::setup::MIB;
use crate::stage::{DEFAULT_OPTIONS, LENGTHS, Stage, TARGET, version};

#[test]
fn promotion_after_a_newer_write_keeps_the_newer_value() {
    for len in LENGTHS {
        let stage = Stage::with_target_on_flash(len);
        stage.gate.close(Read);
        let cache = Arc::clone(&stage.cache);
        let mut get = waiting(cache.get(TARGET));
        stage.put(TARGET, &version(2, len));
        assert_eq!(stage.gate.open(), 1);
        let found = poll(&mut get).expect("the read has ended");
        assert!(found.is_none_or(|item| *item == version(1, len) || *item == version(2, len)));
        drop(get);
        drop(cache);
        assert_eq!(stage.get(TARGET).expect("the item was just inserted").layer(), Layer::Dram);
        stage.assert_target_is(Some(&version(2, len)), len);
    }
}

#[test]
fn promotion_after_a_remove_restores_no_value() {
    for len in LENGTHS {
        let stage = Stage::with_target_on_flash(len);
        stage.gate.close(Read);
        let cache = Arc::clone(&stage.cache);
        let mut get = waiting(cache.get(TARGET));
        assert!(stage.cache.remove(TARGET));
        assert!(!stage.cache.contains(TARGET));
        stage.gate.open();
        assert!(poll(&mut get).is_some(), "the read has ended");
        drop(get);
        drop(cache);
        stage.assert_target_is(None, len);
    }
}

/// The newer version has already been evicted to flash when the read of the older one ends.
#[test]
fn read_that_spans_two_moves_to_flash_restores_no_old_value() {
    for len in LENGTHS {
        let stage = Stage::with_target_on_flash(len);
        stage.gate.close(Read);
        let cache = Arc::clone(&stage.cache);
        let mut get = waiting(cache.get(TARGET));
        stage.gate.stop_holding();
        stage.put(TARGET, &version(2, len));
        stage.evict_to_flash(len);
        stage.gate.open();
        assert!(poll(&mut get).is_some(), "the read has ended");
        drop(get);
        drop(cache);
        stage.assert_target_is(Some(&version(2, len)), len);
    }
}

/// Fills DRAM until the item under test has been evicted, and holds the write to flash. Returns the step that waits for
/// this write.
pub fn target_being_written(stage: &Stage, len: usize) -> Pin<Box<impl Future<Output = bool> + '_>> {
    stage.put(TARGET, &version(1, len));
    while stage.cache.stats().flash.unwrap().puts.stored == 0 {
        stage.put_extra(len);
    }
    stage.gate.close(Write);
    loop {
        let mut step = Box::pin(stage.cache.step());
        if poll(&mut step).is_none() {
            return step;
        }
        stage.put_extra(len);
    }
}

pub fn eager() -> Stage {
    Stage::new(|config| config.flash.as_mut().unwrap().pending_bytes = 1)
}

#[test]
fn key_removed_during_its_flash_write_stays_removed() {
    for len in LENGTHS {
        let stage = eager();
        let mut step = target_being_written(&stage, len);
        assert!(stage.cache.contains(TARGET) && stage.cache.remove(TARGET));
        assert!(stage.get(TARGET).is_none() && !stage.cache.contains(TARGET));
        assert!(stage.gate.open() > 0);
        assert_eq!(poll(&mut step), Some(true), "the write completes");
        drop(step);
        assert!(stage.get(TARGET).is_none());
        stage.step();
        stage.assert_target_is(None, len);
    }
}

#[test]
fn key_removed_during_its_flash_write_is_absent_after_restart() {
    for len in LENGTHS {
        let stage = eager();
        let mut step = target_being_written(&stage, len);
        assert!(stage.cache.remove(TARGET));
        stage.gate.open();
        assert_eq!(poll(&mut step), Some(true), "the write completes");
        drop(step);
        assert!(stage.restart().get(TARGET).is_none());
    }
}

#[test]
fn key_being_written_to_flash_is_always_found() {
    for len in LENGTHS {
        let stage = eager();
        let mut step = target_being_written(&stage, len);
        let found = stage.get(TARGET).expect("an item being written is found");
        assert!(found.layer() == Layer::Flash && *found == version(1, len));
        drop(found);
        stage.gate.open();
        assert_eq!(poll(&mut step), Some(true), "the write completes");
        drop(step);
        stage.assert_target_is(Some(&version(1, len)), len);
    }
}

/// All waiting items are already in the write of another step.
#[test]
fn step_without_work_is_idle() {
    let stage = eager();
    let mut step = target_being_written(&stage, LENGTHS[0]);
    let mut second = Box::pin(stage.cache.step());
    assert_eq!(poll(&mut second), Some(false));
    stage.gate.open();
    assert_eq!(poll(&mut step), Some(true));
}

/// The items of an abandoned step are found until they are written, and their space becomes free only when the write
/// completes.
#[test]
fn abandoned_step_loses_no_item_and_leaves_no_stale_one() {
    for len in LENGTHS {
        let stage = eager();
        drop(target_being_written(&stage, len));
        assert_eq!(*stage.get(TARGET).expect("an item being written is found"), version(1, len));
        let cache = Arc::clone(&stage.cache);
        let newer = version(2, len);
        let mut insert = Box::pin(cache.insert(TARGET, &newer, DEFAULT_OPTIONS));
        let ended = poll(&mut insert);
        stage.gate.open();
        stage.step();
        assert_eq!(ended.or_else(|| poll(&mut insert)), Some(Inserted::Stored));
        drop(insert);
        drop(cache);
        assert_eq!(stage.cache.stats().flash.unwrap().lost_items(), 0);
        stage.assert_target_is(Some(&newer), len);
    }
}

/// Runs a function when an item is offered to flash.
struct EvictionHook {
    /// The key of the item; `None` runs the function at the next offer of any item.
    key_hash: Option<KeyHash>,
    cache: OnceLock<Weak<Cache>>,
    action: Mutex<Option<Action>>,
}

type Action = Box<dyn FnOnce(&Cache) + Send>;

impl Admission for EvictionHook {
    fn admit(&self, candidate: &Candidate, _: u64) -> bool {
        if self.key_hash.is_none_or(|hash| candidate.hash == hash.0)
            && let Some(action) = self.action.lock().take()
        {
            action(&self.cache.get().and_then(Weak::upgrade).expect("the cache is open"));
        }
        true
    }

    fn name(&self) -> &'static str {
        "hook"
    }
}

impl EvictionHook {
    /// Creates the hook, without a function yet, and a stage that uses it.
    fn on_stage(key_hash: Option<KeyHash>, change: impl FnOnce(&mut FlashConfig)) -> (Arc<Self>, Stage) {
        let hook = Arc::new(Self { key_hash, cache: OnceLock::new(), action: Mutex::new(None) });
        let stage = Stage::new(|config| {
            let flash = config.flash.as_mut().unwrap();
            flash.admission = Arc::clone(&hook) as _;
            change(flash);
        });
        hook.cache.set(Arc::downgrade(&stage.cache)).expect("set only once");
        (hook, stage)
    }
}

/// A stage on which `action` ran while the item under test was being evicted from DRAM.
pub fn with_action_during_eviction(len: usize, action: impl FnOnce(&Cache) + Send + 'static) -> Stage {
    let (hook, stage) = EvictionHook::on_stage(Some(KeyHash::of(TARGET)), |_| {});
    *hook.action.lock() = Some(Box::new(action));
    stage.put(TARGET, &version(1, len));
    stage.evict_to_flash(len);
    assert!(hook.action.lock().is_none(), "the target was selected for eviction");
    stage
}

#[test]
fn item_overwritten_during_its_eviction_does_not_reach_flash() {
    for len in LENGTHS {
        let stage = with_action_during_eviction(len, move |cache| {
            let ended = cache.insert_blocking(TARGET, &version(2, len), DEFAULT_OPTIONS);
            assert_eq!(ended, Inserted::Stored);
        });
        let puts = stage.cache.stats().flash.unwrap().puts;
        assert_eq!((puts.overtaken, puts.stayed), (1, 0));
        stage.assert_target_is(Some(&version(2, len)), len);
    }
}

#[test]
fn item_removed_during_its_eviction_does_not_reach_flash() {
    for len in LENGTHS {
        let stage = with_action_during_eviction(len, |cache| assert!(cache.remove(TARGET)));
        let puts = stage.cache.stats().flash.unwrap().puts;
        assert_eq!((puts.overtaken, puts.stayed), (1, 0));
        stage.assert_target_is(None, len);
    }
}

/// Flash evicts the item between the end of its read and its insertion into DRAM. Catches a regression: a get in
/// between misses it, and the next one finds it although nothing has inserted it.
#[test]
fn get_does_not_miss_an_item_that_an_earlier_get_is_promoting() {
    let len = LENGTHS[1];
    let (hook, stage) = EvictionHook::on_stage(None, |flash| flash.pairs[0].soc_share = 0.0);
    stage.put(TARGET, &version(1, len));
    stage.gate.close(Read);
    let step = || {
        let cache = Arc::clone(&stage.cache);
        Box::pin(async move { cache.step().await })
    };
    let mut reclaim = loop {
        let mut step = step();
        if poll(&mut step).is_none() {
            break step;
        }
        stage.put_extra(len);
    };
    let mut first = waiting(stage.cache.get(TARGET));
    assert_eq!(stage.gate.release_held(), 2, "the target, and the table of its region");
    let (sender, receiver) = std::sync::mpsc::channel();
    *hook.action.lock() = Some(Box::new(move |cache| {
        assert_eq!(poll(&mut reclaim), Some(true), "flash evicts the item");
        assert!(cache.contains(TARGET));
        let missed = poll(&mut Box::pin(cache.get(TARGET))).is_some();
        sender.send(missed).expect("the receiver lives");
    }));
    assert!(poll(&mut first).expect("the read has ended").is_some());
    drop(first);
    assert!(
        !receiver.try_recv().expect("the target was inserted into DRAM"),
        "the second get waits for the first"
    );
    assert_eq!(stage.get(TARGET).as_deref(), Some(&version(1, len)[..]));
}

/// All data is in regions, and all items are reinserted. The region of the item under test is being reclaimed, and its
/// read is in flight when `action` runs.
fn target_being_reinserted(action: impl FnOnce(&Stage)) -> Stage {
    let stage = target_being_reclaimed(action);
    assert!(stage.cache.stats().flash.unwrap().regions.unwrap().reinsertions > 5);
    stage
}

/// As [`target_being_reinserted`], without the check that items are reinserted.
pub fn target_being_reclaimed(action: impl FnOnce(&Stage)) -> Stage {
    let len = LENGTHS[1];
    let stage = Stage::new(|config| {
        let flash = config.flash.as_mut().unwrap();
        flash.pairs[0].soc_share = 0.0;
        flash.regions.reinsertion = Reinsertion::Percent { percent: 100, seed: 1 };
    });
    stage.put(TARGET, &version(1, len));
    while stage.cache.stats().flash.unwrap().regions.unwrap().regions_flushed == 0 {
        stage.put_extra(len);
        while block_on(stage.cache.step()) {}
    }
    stage.gate.close(Read);
    let cache = Arc::clone(&stage.cache);
    let mut step = loop {
        let mut step = Box::pin(cache.step());
        if poll(&mut step).is_none() {
            break step;
        }
        stage.put_extra(len);
    };
    assert_eq!(stage.gate.release_held(), 1, "the region's table");
    assert!(poll(&mut step).is_none() && stage.gate.held() > 0, "its items");
    action(&stage);
    stage.gate.open();
    while poll(&mut step).is_none() {}
    drop(step);
    drop(cache);
    stage
}

#[test]
fn untouched_item_survives_the_reclaim_of_its_region() {
    let stage = target_being_reinserted(|_| {});
    assert_eq!(*stage.get(TARGET).expect("the item was reinserted"), version(1, LENGTHS[1]));
}

#[test]
fn item_removed_during_its_reinsertion_is_not_reinserted() {
    let stage = target_being_reinserted(|stage| assert!(stage.cache.remove(TARGET)));
    assert!(!stage.cache.contains(TARGET));
    stage.assert_target_is(None, LENGTHS[1]);
}

#[test]
fn item_overwritten_during_its_reinsertion_keeps_the_new_value() {
    let new = version(2, LENGTHS[1]);
    let stage = target_being_reinserted(|stage| stage.put(TARGET, &version(2, LENGTHS[1])));
    assert_eq!(*stage.get(TARGET).expect("the item is in DRAM"), new);
    stage.evict_to_flash(LENGTHS[1]);
    assert_eq!(*stage.get(TARGET).expect("the item is on flash"), new);
    assert!(stage.restart().get(TARGET).is_none_or(|item| *item == new));
}

#[test]
fn read_of_a_dropped_get_serves_the_next_get() {
    for len in LENGTHS {
        let stage = Stage::with_target_on_flash(len);
        stage.gate.close(Read);
        let first = waiting(stage.cache.get(TARGET));
        let mut second = waiting(stage.cache.get(TARGET));
        assert_eq!(stage.gate.held(), 1, "one read for both");
        drop(first);
        assert!(poll(&mut second).is_none() && stage.gate.held() == 1, "still one read");
        stage.gate.open();
        let found = poll(&mut second).expect("the read has ended").expect("the item is on flash");
        assert_eq!(*found, version(1, len));
        drop(found);
        assert_eq!(stage.get(TARGET).expect("the item is in DRAM").layer(), Layer::Dram);
    }
}

#[test]
fn many_gets_of_one_key_read_it_once() {
    for len in LENGTHS {
        let stage = Stage::with_target_on_flash(len);
        stage.gate.close(Read);
        let mut gets: Vec<_> = (0..10).map(|_| waiting(stage.cache.get(TARGET))).collect();
        assert_eq!(stage.gate.open(), 1);
        for get in &mut gets {
            let found = poll(get).expect("the read has ended").expect("the item is on flash");
            assert_eq!(*found, version(1, len));
        }
        assert_eq!(stage.cache.stats().gets.coalesced, 9);
    }
}

/// A device read of a dropped caller of a closed cache is in flight when the next cache is open.
#[test]
fn close_during_a_read_in_flight_is_safe() {
    for len in LENGTHS {
        let stage = Stage::with_target_on_flash(len);
        stage.gate.close(Read);
        drop(waiting(stage.cache.get(TARGET)));
        let next = stage.restart();
        assert_eq!(next.gate.open(), 1);
        assert_eq!(*next.get(TARGET).expect("the item was on flash"), version(1, len));
    }
}

/// Removing or replacing an item does not change what its readers hold.
#[test]
fn pinned_item_is_unchanged_by_remove_and_replace() {
    for len in LENGTHS {
        let stage = Stage::new(|_| {});
        stage.put(TARGET, &version(1, len));
        let (first, mut held) = (version(1, len), Vec::new());
        held.push(stage.get(TARGET).expect("the item is in DRAM"));
        stage.put(TARGET, &version(2, len));
        stage.evict_to_flash(len);
        held.push(stage.get(TARGET).expect("the item is on flash"));
        stage.cache.remove(TARGET);
        stage.evict_to_flash(len);
        assert!(*held[0] == first && *held[1] == version(2, len));
        assert!(stage.get(TARGET).is_none());
    }
}

/// Regions cannot be written, and the memory of the buckets is full: the insert waits for the buckets only.
#[test]
fn insert_does_not_wait_for_regions_that_fail() {
    let faulty = OnceLock::new();
    let stage = Stage::new(|config| {
        let flash = config.flash.as_mut().unwrap();
        let inner = Arc::clone(&flash.device);
        flash.device =
            Arc::clone(faulty.get_or_init(|| Arc::new(FaultDevice::new(inner, 1, Faults::default())))) as _;
        flash.regions.retire_after_failures = 1;
    });
    let faulty = faulty.get().expect("made above");
    // The regions are in front of the buckets, which have 40 % of the device.
    faulty.fail_where(|request| match request {
        Request::Write { offset, .. } => *offset < 2 * MIB * 6 / 10,
        _ => false,
    });
    let puts = || stage.cache.stats().flash.unwrap().puts;
    for _ in 0..2000 {
        stage.put_extra(LENGTHS[1]);
        stage.step();
    }
    assert!(puts().rejected_failing > 100, "{:?}", puts());
    // No step runs any more, so the memory for small items fills up.
    let mut others = 0_u64;
    let mut insert = loop {
        let mut insert = Box::pin(stage.cache.insert(TARGET, b"value", DEFAULT_OPTIONS));
        if poll(&mut insert).is_none() {
            break insert;
        }
        others += 1;
        // Each insert may wait.
        let _ = poll(&mut Box::pin(stage.cache.insert(&others.to_be_bytes(), b"other", DEFAULT_OPTIONS)));
    };
    stage.step();
    assert_eq!(poll(&mut insert), Some(Inserted::Stored));
}

#[test]
fn chained_piece_waits_for_dram_and_is_added_to_an_item_on_flash() {
    for len in LENGTHS {
        let stage = Stage::with_target_on_flash(len);
        stage.gate.close(Write);
        let cache = Arc::clone(&stage.cache);
        // Inserts until no item can be evicted from DRAM.
        while poll(&mut Box::pin(cache.insert(b"another", &version(2, len), DEFAULT_OPTIONS))).is_some() {
            stage.put_extra(len);
        }
        let piece = version(3, len);
        let mut chained = waiting(cache.add_chained(TARGET, len, |into| into.copy_from_slice(&piece)));
        stage.gate.open();
        stage.step();
        assert_eq!(
            poll(&mut chained).or_else(|| {
                stage.step();
                poll(&mut chained)
            }),
            Some(Ok(()))
        );
        drop(chained);
        let target = stage.get(TARGET).unwrap();
        assert_eq!((&*target, target.chain().collect::<Vec<_>>()), (&*version(1, len), vec![&*piece]));
    }
}
