//! Clears: an item inserted before a clear is never found after it, even if it moves between DRAM and flash during the
//! clear.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use device::RequestKind::{Read, Trim};
use flashwright_cache::config::Removal;
use flashwright_cache::config::regions::{Caching, OrderConfig};
use flashwright_cache::{Cache, FlashConfig, Layer};
use parking_lot::Mutex;
use pollster::block_on;

use crate::polled::{poll, waiting};
use crate::races::{eager, target_being_reclaimed, target_being_written, with_action_during_eviction};
use crate::setup::{blockcache, ripq};
use crate::stage::{LENGTHS, Stage, TARGET, version};

fn assert_is_gone(stage: Stage, len: usize) {
    assert!(!stage.cache.contains(TARGET));
    stage.assert_target_is(None, len);
}

#[test]
fn items_in_dram_or_on_flash_are_gone_after_a_clear_and_after_a_reopen() {
    for len in LENGTHS {
        for leaves_dram in [false, true] {
            let stage = Stage::new(|_| {});
            stage.put(TARGET, &version(1, len));
            if leaves_dram {
                stage.evict_to_flash(len);
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
        let stage = Stage::with_target_on_flash(len);
        stage.cache.clear();
        stage.put(b"later", &version(2, len));
        let next = stage.restart();
        assert!(next.cache.stats().flash.unwrap().recovered);
        assert!(next.get(TARGET).is_none());
        assert_eq!(*next.get(b"later").expect("the item was inserted after the clear"), version(2, len));
    }
}

#[test]
fn promotion_in_flight_restores_no_cleared_item() {
    for len in LENGTHS {
        let stage = Stage::with_target_on_flash(len);
        stage.gate.close(Read);
        let cache = Arc::clone(&stage.cache);
        let mut get = waiting(cache.get(TARGET));
        stage.cache.clear();
        stage.gate.open();
        assert!(poll(&mut get).is_some(), "the read has ended");
        drop(get);
        drop(cache);
        assert_is_gone(stage, len);
    }
}

/// The read begins and ends after the clear has emptied DRAM and before it empties flash.
#[test]
fn promotion_during_a_clear_restores_no_cleared_item() {
    for len in LENGTHS {
        let home = Arc::new(OnceLock::<Weak<Cache>>::new());
        let inside = Arc::clone(&home);
        let stage = Stage::new(|config| {
            config.on_remove = Some(Arc::new(move |_, _, why| {
                assert_eq!(why, Removal::Cleared);
                let cache = inside.get().and_then(Weak::upgrade).expect("the cache exists during the clear");
                let found = block_on(cache.get(TARGET));
                assert!(found.is_none_or(|item| *item == version(1, len)));
            }));
        });
        home.set(Arc::downgrade(&stage.cache)).expect("set only once");
        stage.put(TARGET, &version(1, len));
        stage.evict_to_flash(len);
        assert!(stage.cache.contains(TARGET));
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
            let mut step = target_being_written(&stage, len);
            stage.cache.clear();
            assert!(stage.get(TARGET).is_none() && !stage.cache.contains(TARGET));
            if comes_again {
                stage.put(TARGET, &version(2, len));
            }
            assert!(stage.gate.open() > 0);
            assert_eq!(poll(&mut step), Some(true), "the write completes");
            drop(step);
            let expected = comes_again.then(|| version(2, len));
            assert_eq!(stage.get(TARGET).as_deref(), expected.as_deref());
            let soc = stage.cache.stats().flash.unwrap().soc.unwrap();
            assert!(soc.items == 0 && soc.lost_items == 0, "{soc:?}");
            stage.assert_target_is(expected.as_deref(), len);
        }
    }
}

#[test]
fn item_cleared_during_its_write_is_absent_after_restart() {
    for len in LENGTHS {
        let stage = eager();
        let mut step = target_being_written(&stage, len);
        stage.cache.clear();
        stage.gate.open();
        assert_eq!(poll(&mut step), Some(true), "the write completes");
        drop(step);
        assert!(stage.restart().get(TARGET).is_none());
    }
}

/// The write of the bucket or region is in flight, and the task that waits for it is dropped.
#[test]
fn step_abandoned_after_a_clear_leaves_no_item() {
    for len in LENGTHS {
        let stage = eager();
        let step = target_being_written(&stage, len);
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
fn item_cleared_during_its_eviction_does_not_reach_flash() {
    for len in LENGTHS {
        let stage = with_action_during_eviction(len, Cache::clear);
        assert_eq!(stage.cache.stats().flash.unwrap().puts.overtaken, 1);
        assert_is_gone(stage, len);
    }
}

#[test]
fn item_removed_during_its_reinsertion_stays_removed() {
    let stage = target_being_reclaimed(|stage| {
        assert!(stage.cache.stats().flash.unwrap().regions.unwrap().items > 5);
        stage.cache.clear();
    });
    let flash = stage.cache.stats().flash.unwrap();
    assert_eq!((flash.regions.unwrap_or_default().items, flash.regions.unwrap().reinsertions), (0, 0));
    assert_is_gone(stage, LENGTHS[1]);
}

/// The fetch reads its source before the clear.
#[test]
fn value_fetched_before_a_clear_is_not_stored() {
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
        let options = crate::stage::DEFAULT_OPTIONS;
        let mut load = waiting(stage.cache.get_or_insert_with(TARGET, options, slow));
        let mut follower =
            waiting(stage.cache.get_or_insert_with(TARGET, options, async || Ok::<_, ()>(version(2, 200))));
        stage.cache.clear();
        answer.store(true, Ordering::SeqCst);
        assert_eq!(*poll(&mut load).expect("the future is complete").unwrap(), version(1, 200));
        assert!(stage.get(TARGET).is_none());
        assert_eq!(*poll(&mut follower).expect("the caller fetches again").unwrap(), version(2, 200));
        assert_eq!(stage.cache.stats().inserts.overtaken, 1);
        drop((load, follower));
        assert_eq!(stage.get(TARGET).as_deref(), Some(&version(2, 200)[..]));
    }
}

#[test]
fn clear_does_not_invalidate_pinned_items() {
    for len in LENGTHS {
        let stage = Stage::new(|_| {});
        stage.put(TARGET, &version(1, len));
        let held = stage.get(TARGET).expect("the item is in DRAM");
        stage.cache.clear();
        stage.evict_to_flash(len);
        assert_eq!(*held, version(1, len));
        drop(held);
        assert_is_gone(stage, len);
    }
}

#[test]
fn removed_chain_loses_all_its_links() {
    let stage = Stage::new(|_| {});
    stage.put(TARGET, &version(1, 150));
    for _ in 0..3 {
        block_on(stage.cache.add_chained(TARGET, 3000, |link| link.fill(9))).unwrap();
    }
    stage.cache.clear();
    let refused = block_on(stage.cache.add_chained(TARGET, 3000, |link| link.fill(9)));
    assert_eq!(refused, Err(flashwright_cache::Refusal::NoParent));
    let items =
        stage.cache.stats().pools.iter().flat_map(|pool| &pool.classes).map(|class| class.items).sum::<u64>();
    assert_eq!(items, 0);
    assert_is_gone(stage, 150);
}

/// After a clear, flash accepts as many items as an empty one, without a reclaim.
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
    // DRAM holds the items first; then they fill half of flash.
    for _ in 0..150 {
        stage.put_extra(len);
        stage.step();
    }
    let since = regions(&stage).regions_reclaimed - before.regions_reclaimed;
    assert_eq!((since, regions(&stage).compactions), (0, before.compactions), "{:?}", regions(&stage));
    for number in filled..stage.extras() {
        let item = stage.get(&number.to_le_bytes()).expect("flash has space for the item");
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
fn cleared_regions_are_trimmed_before_reuse_if_trim_is_configured() {
    let len = LENGTHS[1];
    let stage = Stage::new(|config| {
        let flash = config.flash.as_mut().unwrap();
        flash.pairs[0].soc_share = 0.0;
        flash.regions.trim = true;
    });
    stage.put(TARGET, &version(1, len));
    stage.evict_to_flash(len);
    let trimmed = || stage.cache.stats().flash.unwrap().device.trimmed_bytes;
    let flushed = stage.cache.stats().flash.unwrap().regions.unwrap().regions_flushed;
    let before = trimmed();
    stage.gate.close(Trim);
    stage.cache.clear();
    // A region whose trim is dropped half way is trimmed by the next step.
    drop(waiting(stage.cache.step()));
    stage.gate.open();
    stage.step();
    let regions = (trimmed() - before) / (64 << 10);
    assert!(regions >= flushed.min(20), "{regions} of {flushed}");
    assert_is_gone(stage, len);
}

#[test]
fn clear_reports_items_in_dram_and_survives_a_panicking_callback() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&reported);
    let stage = Stage::new(|config| {
        config.on_remove = Some(Arc::new(move |key: &[u8], value: &[u8], why| {
            sink.lock().push((key.to_vec(), value.to_vec(), why));
            assert!(key != TARGET, "the target was removed");
        }));
    });
    stage.put(b"another", &version(2, 3000));
    stage.put(TARGET, &version(1, 150));
    stage.put(b"a third", &version(3, 150));
    let cleared = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stage.cache.clear()));
    assert_eq!(*cleared.unwrap_err().downcast::<&str>().unwrap(), "the target was removed");
    let mut reported = std::mem::take(&mut *reported.lock());
    reported.sort_by(|(left, ..), (right, ..)| left.cmp(right));
    let expected =
        [(&b"a third"[..], version(3, 150)), (b"another", version(2, 3000)), (TARGET, version(1, 150))];
    assert_eq!(reported, expected.map(|(key, value)| (key.to_vec(), value, Removal::Cleared)));
    // A clear does not prevent later promotions from flash.
    stage.evict_to_flash(150);
    stage.put(b"later", &version(4, 150));
    stage.evict_to_flash(150);
    assert_eq!(stage.get(b"later").expect("the item is on flash").layer(), Layer::Flash);
    assert_eq!(stage.get(b"later").expect("the item is in DRAM").layer(), Layer::Dram);
    assert_is_gone(stage, 150);
}

/// An eviction callback may clear its own cache.
#[test]
fn callback_that_clears_the_cache_during_an_eviction_succeeds() {
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
                    inside.get().and_then(Weak::upgrade).expect("the cache is open").clear();
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            }));
            if why == Removal::EvictedFromDram {
                config.flash = None;
            }
        });
        home.set(Arc::downgrade(&stage.cache)).expect("set only once");
        (0..8).for_each(|_| stage.evict_to_flash(len));
        assert!(clears.load(Ordering::Relaxed) > 1, "{why:?} of {len} bytes");
        stage.put(TARGET, &version(1, len));
        assert_eq!(stage.get(TARGET).as_deref(), Some(&version(1, len)[..]));
        stage.cache.clear();
        assert!(stage.get(TARGET).is_none());
    }
}

/// Two clears overlap: a fetch that begins between the end of one and the end of the other is invalidated by both.
#[test]
fn item_promoted_between_two_nested_clears_is_not_found() {
    let len = LENGTHS[0];
    let home = Arc::new(OnceLock::<Weak<Cache>>::new());
    let inside = Arc::clone(&home);
    let first = AtomicBool::new(true);
    let stage = Stage::new(|config| {
        config.on_remove = Some(Arc::new(move |_, _, _| {
            let cache = inside.get().and_then(Weak::upgrade).expect("the cache exists during the clear");
            if first.swap(false, Ordering::Relaxed) {
                cache.clear();
                return;
            }
            let found: Pin<Box<_>> = Box::pin(cache.get(TARGET));
            drop(block_on(found));
        }));
    });
    home.set(Arc::downgrade(&stage.cache)).expect("set only once");
    stage.put(TARGET, &version(1, len));
    stage.evict_to_flash(len);
    stage.cache.clear();
    assert_is_gone(stage, len);
}
