//! Races: each test produces one order of events that could return a stale value, or lose an item permanently.

use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};

use device::Request;
use device::RequestKind::{Read, Write};
use device::wrap::{FaultDevice, Faults};
use flashwright_cache::flash::region::Reinsertion;
use flashwright_cache::{Cache, FlashConfig, Inserted, KeyHash, Layer};
use parking_lot::Mutex;
use policy::{Admission, Candidate};
use pollster::block_on;

use crate::polled::{poll, waiting};
use crate::setup::MIB;
use crate::stage::{AS_USUAL, HERO, LENGTHS, Stage, version};

#[test]
fn promotion_after_a_newer_write_keeps_the_newer_value() {
    for len in LENGTHS {
        let stage = Stage::with_hero_on_flash(len);
        stage.gate.close(Read);
        let cache = Arc::clone(&stage.cache);
        let mut get = waiting(cache.get(HERO));
        stage.put(HERO, &version(2, len));
        assert_eq!(stage.gate.open(), 1);
        let found = poll(&mut get).expect("the read has ended");
        assert!(found.is_none_or(|item| *item == version(1, len) || *item == version(2, len)));
        drop(get);
        drop(cache);
        assert_eq!(stage.get(HERO).expect("it was just put").layer(), Layer::Dram);
        stage.assert_hero_is(Some(&version(2, len)), len);
    }
}

#[test]
fn promotion_after_a_remove_restores_no_value() {
    for len in LENGTHS {
        let stage = Stage::with_hero_on_flash(len);
        stage.gate.close(Read);
        let cache = Arc::clone(&stage.cache);
        let mut get = waiting(cache.get(HERO));
        assert!(stage.cache.remove(HERO));
        assert!(!stage.cache.contains(HERO));
        stage.gate.open();
        assert!(poll(&mut get).is_some(), "the read has ended");
        drop(get);
        drop(cache);
        stage.assert_hero_is(None, len);
    }
}

/// The newer version has already left for flash again when the older one's read ends.
#[test]
fn read_that_spans_two_moves_to_flash_restores_no_old_value() {
    for len in LENGTHS {
        let stage = Stage::with_hero_on_flash(len);
        stage.gate.close(Read);
        let cache = Arc::clone(&stage.cache);
        let mut get = waiting(cache.get(HERO));
        stage.gate.let_others_pass();
        stage.put(HERO, &version(2, len));
        stage.push_out(len);
        stage.gate.open();
        assert!(poll(&mut get).is_some(), "the read has ended");
        drop(get);
        drop(cache);
        stage.assert_hero_is(Some(&version(2, len)), len);
    }
}

/// Fills DRAM until the first item has just been evicted to flash, and flash writes are held. Returns the step that waits for the write.
pub fn hero_being_written(stage: &Stage, len: usize) -> Pin<Box<impl Future<Output = bool> + '_>> {
    stage.put(HERO, &version(1, len));
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
fn a_key_removed_while_it_is_being_written_to_flash_stays_removed() {
    for len in LENGTHS {
        let stage = eager();
        let mut step = hero_being_written(&stage, len);
        assert!(stage.cache.contains(HERO) && stage.cache.remove(HERO));
        assert!(stage.get(HERO).is_none() && !stage.cache.contains(HERO));
        assert!(stage.gate.open() > 0);
        assert_eq!(poll(&mut step), Some(true), "it was written");
        drop(step);
        assert!(stage.get(HERO).is_none());
        stage.step();
        stage.assert_hero_is(None, len);
    }
}

#[test]
fn a_key_removed_while_it_is_being_written_stays_removed_after_a_restart() {
    for len in LENGTHS {
        let stage = eager();
        let mut step = hero_being_written(&stage, len);
        assert!(stage.cache.remove(HERO));
        stage.gate.open();
        assert_eq!(poll(&mut step), Some(true), "it was written");
        drop(step);
        assert!(stage.restart().get(HERO).is_none());
    }
}

#[test]
fn a_key_being_written_to_flash_is_found_all_the_time() {
    for len in LENGTHS {
        let stage = eager();
        let mut step = hero_being_written(&stage, len);
        let found = stage.get(HERO).expect("it is on its way");
        assert!(found.layer() == Layer::Flash && *found == version(1, len));
        drop(found);
        stage.gate.open();
        assert_eq!(poll(&mut step), Some(true), "it was written");
        drop(step);
        stage.assert_hero_is(Some(&version(1, len)), len);
    }
}

/// The items that wait are all in another step's hands.
#[test]
fn step_without_work_is_idle() {
    let stage = eager();
    let mut step = hero_being_written(&stage, LENGTHS[0]);
    let mut second = Box::pin(stage.cache.step());
    assert_eq!(poll(&mut second), Some(false));
    stage.gate.open();
    assert_eq!(poll(&mut step), Some(true));
}

/// What the step was writing is found until it is written, and room is made by nothing but its end.
#[test]
fn abandoned_step_loses_no_item_and_leaves_no_stale_one() {
    for len in LENGTHS {
        let stage = eager();
        drop(hero_being_written(&stage, len));
        assert_eq!(*stage.get(HERO).expect("it is on its way"), version(1, len));
        let cache = Arc::clone(&stage.cache);
        let newer = version(2, len);
        let mut insert = Box::pin(cache.insert(HERO, &newer, AS_USUAL));
        let ended = poll(&mut insert);
        stage.gate.open();
        stage.step();
        assert_eq!(ended.or_else(|| poll(&mut insert)), Some(Inserted::Stored));
        drop(insert);
        drop(cache);
        assert_eq!(stage.cache.stats().flash.unwrap().lost_items(), 0);
        stage.assert_hero_is(Some(&newer), len);
    }
}

/// Runs a function on an item while it is being copied to flash.
struct Meddler {
    /// Which item; none is the next one, whichever that is.
    whose: Option<KeyHash>,
    cache: OnceLock<Weak<Cache>>,
    meddle: Mutex<Option<Meddling>>,
}

type Meddling = Box<dyn FnOnce(&Cache) + Send>;

impl Admission for Meddler {
    fn admit(&self, candidate: &Candidate, _: u64) -> bool {
        if self.whose.is_none_or(|hash| candidate.hash == hash.0)
            && let Some(meddle) = self.meddle.lock().take()
        {
            meddle(&self.cache.get().and_then(Weak::upgrade).expect("the cache is open"));
        }
        true
    }

    fn name(&self) -> &'static str {
        "meddler"
    }
}

impl Meddler {
    /// An instance without a function yet.
    fn on_stage(whose: Option<KeyHash>, change: impl FnOnce(&mut FlashConfig)) -> (Arc<Self>, Stage) {
        let meddler = Arc::new(Self { whose, cache: OnceLock::new(), meddle: Mutex::new(None) });
        let stage = Stage::new(|config| {
            let flash = config.flash.as_mut().unwrap();
            flash.admission = Arc::clone(&meddler) as _;
            change(flash);
        });
        meddler.cache.set(Arc::downgrade(&stage.cache)).expect("set once");
        (meddler, stage)
    }
}

/// The hero is chosen to leave DRAM, and is meddled with before it has left.
pub fn meddled_with(len: usize, meddle: impl FnOnce(&Cache) + Send + 'static) -> Stage {
    let (meddler, stage) = Meddler::on_stage(Some(KeyHash::of(HERO)), |_| {});
    *meddler.meddle.lock() = Some(Box::new(meddle));
    stage.put(HERO, &version(1, len));
    stage.push_out(len);
    assert!(meddler.meddle.lock().is_none(), "the hero was chosen to leave");
    stage
}

#[test]
fn an_item_overwritten_while_it_is_evicted_does_not_reach_flash() {
    for len in LENGTHS {
        let stage = meddled_with(len, move |cache| {
            let ended = cache.insert_blocking(HERO, &version(2, len), AS_USUAL);
            assert_eq!(ended, Inserted::Stored);
        });
        let puts = stage.cache.stats().flash.unwrap().puts;
        assert_eq!((puts.overtaken, puts.stayed), (1, 0));
        stage.assert_hero_is(Some(&version(2, len)), len);
    }
}

#[test]
fn an_item_removed_while_it_is_evicted_does_not_reach_flash() {
    for len in LENGTHS {
        let stage = meddled_with(len, |cache| assert!(cache.remove(HERO)));
        let puts = stage.cache.stats().flash.unwrap().puts;
        assert_eq!((puts.overtaken, puts.stayed), (1, 0));
        stage.assert_hero_is(None, len);
    }
}

/// Flash evicts the item between the end of its read and its insertion into DRAM. A get used to miss it then, and the next one found it
/// although it had not been inserted in between.
#[test]
fn get_does_not_miss_an_item_that_an_earlier_get_is_promoting() {
    let len = LENGTHS[1];
    let (meddler, stage) = Meddler::on_stage(None, |flash| flash.pairs[0].soc_share = 0.0);
    stage.put(HERO, &version(1, len));
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
    let mut first = waiting(stage.cache.get(HERO));
    assert_eq!(stage.gate.let_pass(), 2, "the hero, and the table of its region");
    let (tell, hear) = std::sync::mpsc::channel();
    *meddler.meddle.lock() = Some(Box::new(move |cache| {
        assert_eq!(poll(&mut reclaim), Some(true), "flash has given it up");
        assert!(cache.contains(HERO));
        let missed = poll(&mut Box::pin(cache.get(HERO))).is_some();
        tell.send(missed).expect("somebody listens");
    }));
    assert!(poll(&mut first).expect("the read has ended").is_some());
    drop(first);
    assert!(!hear.try_recv().expect("DRAM made room for the hero"), "it waits for the first");
    assert_eq!(stage.get(HERO).as_deref(), Some(&version(1, len)[..]));
}

/// Regions alone, all of whose items are written again; the hero's is being reclaimed, its bytes on their way to memory.
fn hero_being_reinserted(meanwhile: impl FnOnce(&Stage)) -> Stage {
    let stage = hero_being_reclaimed(meanwhile);
    assert!(stage.cache.stats().flash.unwrap().regions.unwrap().reinsertions > 5);
    stage
}

/// The same; whether any of them are is the caller's business.
pub fn hero_being_reclaimed(meanwhile: impl FnOnce(&Stage)) -> Stage {
    let len = LENGTHS[1];
    let stage = Stage::new(|config| {
        let flash = config.flash.as_mut().unwrap();
        flash.pairs[0].soc_share = 0.0;
        flash.regions.reinsertion = Reinsertion::Percent { percent: 100, seed: 1 };
    });
    stage.put(HERO, &version(1, len));
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
    assert_eq!(stage.gate.let_pass(), 1, "the region's table");
    assert!(poll(&mut step).is_none() && stage.gate.held() > 0, "its items");
    meanwhile(&stage);
    stage.gate.open();
    while poll(&mut step).is_none() {}
    drop(step);
    drop(cache);
    stage
}

#[test]
fn untouched_item_survives_the_reclaim_of_its_region() {
    let stage = hero_being_reinserted(|_| {});
    assert_eq!(*stage.get(HERO).expect("it was written again"), version(1, LENGTHS[1]));
}

#[test]
fn an_item_removed_while_it_is_written_again_stays_removed() {
    let stage = hero_being_reinserted(|stage| assert!(stage.cache.remove(HERO)));
    assert!(!stage.cache.contains(HERO));
    stage.assert_hero_is(None, LENGTHS[1]);
}

#[test]
fn an_item_overwritten_while_it_is_written_again_keeps_its_new_value() {
    let new = version(2, LENGTHS[1]);
    let stage = hero_being_reinserted(|stage| stage.put(HERO, &version(2, LENGTHS[1])));
    assert_eq!(*stage.get(HERO).expect("it is in DRAM"), new);
    stage.push_out(LENGTHS[1]);
    assert_eq!(*stage.get(HERO).expect("it is on flash"), new);
    assert!(stage.restart().get(HERO).is_none_or(|item| *item == new));
}

#[test]
fn read_of_a_dropped_get_serves_the_next() {
    for len in LENGTHS {
        let stage = Stage::with_hero_on_flash(len);
        stage.gate.close(Read);
        let first = waiting(stage.cache.get(HERO));
        let mut second = waiting(stage.cache.get(HERO));
        assert_eq!(stage.gate.held(), 1, "one read for both");
        drop(first);
        assert!(poll(&mut second).is_none() && stage.gate.held() == 1, "still one read");
        stage.gate.open();
        let found = poll(&mut second).expect("the read has ended").expect("it is on flash");
        assert_eq!(*found, version(1, len));
        drop(found);
        assert_eq!(stage.get(HERO).expect("it is in DRAM").layer(), Layer::Dram);
    }
}

#[test]
fn many_gets_of_one_key_read_it_once() {
    for len in LENGTHS {
        let stage = Stage::with_hero_on_flash(len);
        stage.gate.close(Read);
        let mut gets: Vec<_> = (0..10).map(|_| waiting(stage.cache.get(HERO))).collect();
        assert_eq!(stage.gate.open(), 1);
        for get in &mut gets {
            let found = poll(get).expect("the read has ended").expect("it is on flash");
            assert_eq!(*found, version(1, len));
        }
        assert_eq!(stage.cache.stats().gets.coalesced, 9);
    }
}

/// The device is still reading for a dropped caller of a closed cache when the next cache is open.
#[test]
fn close_during_a_read_in_flight_is_safe() {
    for len in LENGTHS {
        let stage = Stage::with_hero_on_flash(len);
        stage.gate.close(Read);
        drop(waiting(stage.cache.get(HERO)));
        let next = stage.restart();
        assert_eq!(next.gate.open(), 1);
        assert_eq!(*next.get(HERO).expect("it was on flash"), version(1, len));
    }
}

/// Removing or replacing an item does not change what its readers hold.
#[test]
fn an_item_in_use_stays_as_it_is() {
    for len in LENGTHS {
        let stage = Stage::new(|_| {});
        stage.put(HERO, &version(1, len));
        let (first, mut held) = (version(1, len), Vec::new());
        held.push(stage.get(HERO).expect("it is in DRAM"));
        stage.put(HERO, &version(2, len));
        stage.push_out(len);
        held.push(stage.get(HERO).expect("it is on flash"));
        stage.cache.remove(HERO);
        stage.push_out(len);
        assert!(*held[0] == first && *held[1] == version(2, len));
        assert!(stage.get(HERO).is_none());
    }
}

/// Regions cannot be written, and the memory of the buckets is full: the insert waits for the buckets alone.
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
    // The regions lie in front of the buckets, which have four tenths of the device.
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
    // Nobody steps any more, so the memory for small items fills up.
    let mut others = 0_u64;
    let mut insert = loop {
        let mut insert = Box::pin(stage.cache.insert(HERO, b"value", AS_USUAL));
        if poll(&mut insert).is_none() {
            break insert;
        }
        others += 1;
        // Each insert may wait.
        let _ = poll(&mut Box::pin(stage.cache.insert(&others.to_be_bytes(), b"other", AS_USUAL)));
    };
    stage.step();
    assert_eq!(poll(&mut insert), Some(Inserted::Stored));
}

#[test]
fn chained_piece_waits_for_dram_and_is_added_to_an_item_on_flash() {
    for len in LENGTHS {
        let stage = Stage::with_hero_on_flash(len);
        stage.gate.close(Write);
        let cache = Arc::clone(&stage.cache);
        // Until nothing can leave DRAM any more.
        while poll(&mut Box::pin(cache.insert(b"another", &version(2, len), AS_USUAL))).is_some() {
            stage.put_extra(len);
        }
        let piece = version(3, len);
        let mut chained = waiting(cache.add_chained(HERO, len, |into| into.copy_from_slice(&piece)));
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
        let hero = stage.get(HERO).unwrap();
        assert_eq!((&*hero, hero.chain().collect::<Vec<_>>()), (&*version(1, len), vec![&*piece]));
    }
}
