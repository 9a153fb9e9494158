//! Clearing: an item inserted before a clear is never found after it, at whichever step of its way the clear happened.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use device::RequestKind::{Read, Trim};
use flashwright_cache::config::Removal;
use flashwright_cache::flash::region::{Caching, OrderConfig};
use flashwright_cache::{Cache, FlashConfig, Layer};
use parking_lot::Mutex;
use pollster::block_on;

use crate::polled::{poll, waiting};
use crate::races::{eager, hero_being_reclaimed, hero_being_written, meddled_with};
use crate::setup::{blockcache, ripq};
use crate::stage::{HERO, LENGTHS, Stage, version};

fn assert_is_gone(stage: Stage, len: usize) {
    assert!(!stage.cache.contains(HERO));
    stage.assert_hero_is(None, len);
}

#[test]
fn items_in_dram_or_on_flash_are_gone_after_a_clear_and_after_a_reopen() {
    for len in LENGTHS {
        for leaves_dram in [false, true] {
            let stage = Stage::new(|_| {});
            stage.put(HERO, &version(1, len));
            if leaves_dram {
                stage.push_out(len);
            }
            stage.cache.clear();
            let stats = stage.cache.stats();
            let flash = stats.flash.unwrap();
            assert_eq!((flash.regions.unwrap().items, flash.soc.unwrap().items), (0, 0));
            assert_eq!((flash.soc.unwrap().pending_bytes, flash.soc.unwrap().pending_entries), (0, 0));
            let in_dram = stats.pools.iter().flat_map(|pool| &pool.classes).map(|class| class.items);
            assert_eq!(in_dram.sum::<u64>(), 0);
            assert_is_gone(stage, len);
        }
    }
}

#[test]
fn restart_after_a_clear_finds_only_newer_items() {
    for len in LENGTHS {
        let stage = Stage::with_hero_on_flash(len);
        stage.cache.clear();
        stage.put(b"later", &version(2, len));
        let next = stage.restart();
        assert!(next.cache.stats().flash.unwrap().recovered);
        assert!(next.get(HERO).is_none());
        assert_eq!(*next.get(b"later").expect("it came since"), version(2, len));
    }
}

#[test]
fn promotion_in_flight_restores_no_cleared_item() {
    for len in LENGTHS {
        let stage = Stage::with_hero_on_flash(len);
        stage.gate.close(Read);
        let cache = Arc::clone(&stage.cache);
        let mut get = waiting(cache.get(HERO));
        stage.cache.clear();
        stage.gate.open();
        assert!(poll(&mut get).is_some(), "the read has ended");
        drop(get);
        drop(cache);
        assert_is_gone(stage, len);
    }
}

/// A read that begins and ends while DRAM has been emptied and flash not yet.
#[test]
fn promotion_during_a_clear_restores_no_cleared_item() {
    for len in LENGTHS {
        let home = Arc::new(OnceLock::<Weak<Cache>>::new());
        let inside = Arc::clone(&home);
        let stage = Stage::new(|config| {
            config.on_remove = Some(Arc::new(move |_, _, why| {
                assert_eq!(why, Removal::Cleared);
                let cache = inside.get().and_then(Weak::upgrade).expect("it is being cleared");
                let found = block_on(cache.get(HERO));
                assert!(found.is_none_or(|item| *item == version(1, len)));
            }));
        });
        home.set(Arc::downgrade(&stage.cache)).expect("set once");
        stage.put(HERO, &version(1, len));
        stage.push_out(len);
        assert!(stage.cache.contains(HERO));
        stage.cache.clear();
        let gets = stage.cache.stats().gets;
        assert!(gets.hits_flash > 10 && gets.promotions == 0, "{gets:?}");
        assert_is_gone(stage, len);
    }
}

#[test]
fn item_cleared_during_its_write_stays_cleared() {
    for len in LENGTHS {
        for comes_again in [false, true] {
            let stage = eager();
            let mut step = hero_being_written(&stage, len);
            stage.cache.clear();
            assert!(stage.get(HERO).is_none() && !stage.cache.contains(HERO));
            if comes_again {
                stage.put(HERO, &version(2, len));
            }
            assert!(stage.gate.open() > 0);
            assert_eq!(poll(&mut step), Some(true), "it was written");
            drop(step);
            let expected = comes_again.then(|| version(2, len));
            assert_eq!(stage.get(HERO).as_deref(), expected.as_deref());
            let soc = stage.cache.stats().flash.unwrap().soc.unwrap();
            assert!(soc.items == 0 && soc.lost_items == 0, "{soc:?}");
            stage.assert_hero_is(expected.as_deref(), len);
        }
    }
}

#[test]
fn an_item_being_written_when_all_is_cleared_is_gone_after_a_restart() {
    for len in LENGTHS {
        let stage = eager();
        let mut step = hero_being_written(&stage, len);
        stage.cache.clear();
        stage.gate.open();
        assert_eq!(poll(&mut step), Some(true), "it was written");
        drop(step);
        assert!(stage.restart().get(HERO).is_none());
    }
}

/// The write of the bucket or region is in flight, and the task that waited for it is dropped.
#[test]
fn step_abandoned_after_a_clear_leaves_no_item() {
    for len in LENGTHS {
        let stage = eager();
        let step = hero_being_written(&stage, len);
        stage.cache.clear();
        drop(step);
        stage.gate.open();
        stage.step();
        let soc = stage.cache.stats().flash.unwrap().soc.unwrap();
        assert_eq!((soc.pending_bytes, soc.lost_items), (0, 0));
        assert_is_gone(stage, len);
    }
}

#[test]
fn an_item_on_its_way_out_of_dram_does_not_reach_flash() {
    for len in LENGTHS {
        let stage = meddled_with(len, Cache::clear);
        assert_eq!(stage.cache.stats().flash.unwrap().puts.overtaken, 1);
        assert_is_gone(stage, len);
    }
}

#[test]
fn item_removed_during_its_reinsertion_stays_removed() {
    let stage = hero_being_reclaimed(|stage| {
        assert!(stage.cache.stats().flash.unwrap().regions.unwrap().items > 5);
        stage.cache.clear();
    });
    let flash = stage.cache.stats().flash.unwrap();
    assert_eq!((flash.regions.unwrap_or_default().items, flash.regions.unwrap().reinsertions), (0, 0));
    assert_is_gone(stage, LENGTHS[1]);
}

/// A load brings what its source held before the clear.
#[test]
fn a_value_fetched_before_a_clear_is_not_kept() {
    for without_flash in [false, true] {
        let stage = Stage::new(|config| {
            if without_flash {
                config.flash = None;
            }
        });
        let answer = Arc::new(AtomicBool::new(false));
        let answers = Arc::clone(&answer);
        let slow = async move || {
            std::future::poll_fn(|_| {
                let answers = answers.load(Ordering::SeqCst);
                if answers { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
            Ok::<_, ()>(version(1, 200))
        };
        let options = crate::stage::AS_USUAL;
        let mut load = waiting(stage.cache.get_or_insert_with(HERO, options, slow));
        let mut follower =
            waiting(stage.cache.get_or_insert_with(HERO, options, async || Ok::<_, ()>(version(2, 200))));
        stage.cache.clear();
        answer.store(true, Ordering::SeqCst);
        assert_eq!(*poll(&mut load).expect("it has ended").unwrap(), version(1, 200));
        assert!(stage.get(HERO).is_none());
        assert_eq!(*poll(&mut follower).expect("it fetched anew").unwrap(), version(2, 200));
        assert_eq!(stage.cache.stats().inserts.overtaken, 1);
        drop((load, follower));
        assert_eq!(stage.get(HERO).as_deref(), Some(&version(2, 200)[..]));
    }
}

#[test]
fn clear_does_not_invalidate_pinned_items() {
    for len in LENGTHS {
        let stage = Stage::new(|_| {});
        stage.put(HERO, &version(1, len));
        let held = stage.get(HERO).expect("it is in DRAM");
        stage.cache.clear();
        stage.push_out(len);
        assert_eq!(*held, version(1, len));
        drop(held);
        assert_is_gone(stage, len);
    }
}

#[test]
fn removed_chain_loses_all_its_links() {
    let stage = Stage::new(|_| {});
    stage.put(HERO, &version(1, 150));
    for _ in 0..3 {
        block_on(stage.cache.add_chained(HERO, 3000, |link| link.fill(9))).unwrap();
    }
    stage.cache.clear();
    let refused = block_on(stage.cache.add_chained(HERO, 3000, |link| link.fill(9)));
    assert_eq!(refused, Err(flashwright_cache::Refusal::NoParent));
    let items =
        stage.cache.stats().pools.iter().flat_map(|pool| &pool.classes).map(|class| class.items).sum::<u64>();
    assert_eq!(items, 0);
    assert_is_gone(stage, 150);
}

/// After a clear flash takes as much as an empty one, without a reclaim.
fn assert_flash_is_empty_again(change: fn(&mut FlashConfig)) {
    let len = LENGTHS[1];
    let stage = Stage::new(|config| change(config.flash.as_mut().unwrap()));
    let regions = |stage: &Stage| stage.cache.stats().flash.unwrap().regions.unwrap();
    while regions(&stage).regions_reclaimed < 3 {
        stage.put_extra(len);
        if let Some(number) = stage.extras().checked_sub(130) {
            drop(block_on(stage.cache.get(&number.to_le_bytes())));
        }
        stage.step();
    }
    stage.cache.clear();
    stage.step();
    let (before, filled) = (regions(&stage), stage.extras());
    // DRAM holds a few, then half of flash.
    for _ in 0..150 {
        stage.put_extra(len);
        stage.step();
    }
    let since = regions(&stage).regions_reclaimed - before.regions_reclaimed;
    assert_eq!((since, regions(&stage).compactions), (0, before.compactions), "{:?}", regions(&stage));
    for number in filled..stage.extras() {
        let item = stage.get(&number.to_le_bytes()).expect("there is room for it");
        assert!(item.iter().all(|byte| *byte == number as u8));
    }
}

#[test]
fn flash_is_empty_after_a_clear_in_any_order_of_regions() {
    assert_flash_is_empty_again(|flash| flash.pairs[0].soc_share = 0.0);
    assert_flash_is_empty_again(blockcache);
    assert_flash_is_empty_again(|flash| ripq(flash, Caching::Slru { segments: 3 }));
    assert_flash_is_empty_again(|flash| {
        flash.pairs[0].soc_share = 0.0;
        flash.regions.order = OrderConfig::Lru;
    });
}

#[test]
fn cleared_regions_are_trimmed_before_they_are_filled_again_if_that_is_asked_for() {
    let len = LENGTHS[1];
    let stage = Stage::new(|config| {
        let flash = config.flash.as_mut().unwrap();
        flash.pairs[0].soc_share = 0.0;
        flash.regions.trim = true;
    });
    stage.put(HERO, &version(1, len));
    stage.push_out(len);
    let trimmed = || stage.cache.stats().flash.unwrap().device.trimmed_bytes;
    let flushed = stage.cache.stats().flash.unwrap().regions.unwrap().regions_flushed;
    let before = trimmed();
    stage.gate.close(Trim);
    stage.cache.clear();
    // One that is given up half way is trimmed by the next.
    drop(waiting(stage.cache.step()));
    stage.gate.open();
    stage.step();
    let regions = (trimmed() - before) / (64 << 10);
    assert!(regions >= flushed.min(20), "{regions} of {flushed}");
    assert_is_gone(stage, len);
}

#[test]
fn clear_reports_items_in_dram_and_survives_a_panicking_callback() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let stage = Stage::new(|config| {
        config.on_remove = Some(Arc::new(move |key: &[u8], value: &[u8], why| {
            heard.lock().push((key.to_vec(), value.to_vec(), why));
            assert!(key != HERO, "the hero is dead");
        }));
    });
    stage.put(b"another", &version(2, 3000));
    stage.put(HERO, &version(1, 150));
    stage.put(b"a third", &version(3, 150));
    let cleared = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stage.cache.clear()));
    assert_eq!(*cleared.unwrap_err().downcast::<&str>().unwrap(), "the hero is dead");
    let mut told = std::mem::take(&mut *told.lock());
    told.sort_by(|(left, ..), (right, ..)| left.cmp(right));
    let expected =
        [(&b"a third"[..], version(3, 150)), (b"another", version(2, 3000)), (HERO, version(1, 150))];
    assert_eq!(told, expected.map(|(key, value)| (key.to_vec(), value, Removal::Cleared)));
    // And nothing is barred from coming back from flash afterwards.
    stage.push_out(150);
    stage.put(b"later", &version(4, 150));
    stage.push_out(150);
    assert_eq!(stage.get(b"later").expect("it is on flash").layer(), Layer::Flash);
    assert_eq!(stage.get(b"later").expect("it is in DRAM").layer(), Layer::Dram);
    assert_is_gone(stage, 150);
}

/// An eviction callback may clear the cache that calls it.
#[test]
fn a_callback_may_clear_the_cache_in_the_middle_of_an_eviction() {
    for (why, len) in [
        (Removal::EvictedFromDram, LENGTHS[0]),
        (Removal::EvictedFromFlash, LENGTHS[0]),
        (Removal::EvictedFromFlash, LENGTHS[1]),
    ] {
        let home = Arc::new(OnceLock::<Weak<Cache>>::new());
        let inside = Arc::clone(&home);
        let clears = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&clears);
        let stage = Stage::new(|config| {
            config.on_evict = Some(Arc::new(move |_, _, left| {
                if left == why {
                    inside.get().and_then(Weak::upgrade).expect("it is open").clear();
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            }));
            if why == Removal::EvictedFromDram {
                config.flash = None;
            }
        });
        home.set(Arc::downgrade(&stage.cache)).expect("set once");
        (0..8).for_each(|_| stage.push_out(len));
        assert!(clears.load(Ordering::Relaxed) > 1, "{why:?} of {len} bytes");
        stage.put(HERO, &version(1, len));
        assert_eq!(stage.get(HERO).as_deref(), Some(&version(1, len)[..]));
        stage.cache.clear();
        assert!(stage.get(HERO).is_none());
    }
}

/// Two overlapping clears: a fetch that begins between the end of one and the end of the other is invalidated by both.
#[test]
fn a_clear_within_a_clear_leaves_nothing() {
    let len = LENGTHS[0];
    let home = Arc::new(OnceLock::<Weak<Cache>>::new());
    let inside = Arc::clone(&home);
    let first = AtomicBool::new(true);
    let stage = Stage::new(|config| {
        config.on_remove = Some(Arc::new(move |_, _, _| {
            let cache = inside.get().and_then(Weak::upgrade).expect("it is being cleared");
            if first.swap(false, Ordering::Relaxed) {
                cache.clear();
                return;
            }
            let found: Pin<Box<_>> = Box::pin(cache.get(HERO));
            drop(block_on(found));
        }));
    });
    home.set(Arc::downgrade(&stage.cache)).expect("set once");
    stage.put(HERO, &version(1, len));
    stage.push_out(len);
    stage.cache.clear();
    assert_is_gone(stage, len);
}
