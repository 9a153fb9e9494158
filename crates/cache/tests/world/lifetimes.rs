//! Changed TTLs: the new TTL applies in DRAM, on flash and after a restart.

use std::sync::Arc;

use device::Clock;
use device::RequestKind::{Read, Write};
use flashwright_cache::{Cache, InsertOptions, Inserted, Layer, Refusal};
use pollster::block_on;

use crate::polled::{poll, waiting};
use crate::races::with_action_during_eviction;
use crate::stage::{DEFAULT_OPTIONS, LENGTHS, Stage, TARGET, version};

const SECOND_NS: u64 = 1_000_000_000;
/// The initial TTL of the item under test, in seconds.
const INITIAL_TTL_SECONDS: u32 = 50;

/// An item with a TTL, in DRAM or on flash only.
fn target_with_ttl(len: usize, layer: Layer) -> Stage {
    let stage = Stage::new(|_| {});
    let options = InsertOptions { ttl_seconds: Some(INITIAL_TTL_SECONDS), ..DEFAULT_OPTIONS };
    assert_eq!(block_on(stage.cache.insert(TARGET, &version(1, len), options)), Inserted::Stored);
    if layer == Layer::Flash {
        stage.evict_to_flash(len);
    }
    stage
}

fn set_ttl(stage: &Stage, ttl_seconds: Option<u32>) -> Result<bool, Refusal> {
    poll(&mut Box::pin(stage.cache.set_ttl(TARGET, ttl_seconds)))
        .expect("the operation completes without waiting")
}

fn pass(stage: &Stage, seconds: u32) {
    stage.clock.advance_by(u64::from(seconds) * SECOND_NS);
}

fn is_there(stage: &Stage, len: usize) -> bool {
    stage.get(TARGET).inspect(|found| assert_eq!(**found, version(1, len))).is_some()
}

fn in_every_place(check: impl Fn(Stage, usize)) {
    for len in LENGTHS {
        for layer in [Layer::Dram, Layer::Flash] {
            check(target_with_ttl(len, layer), len);
        }
    }
}

#[test]
fn longer_ttl_holds_in_dram_on_flash_and_after_a_restart() {
    in_every_place(|stage, len| {
        pass(&stage, INITIAL_TTL_SECONDS - 1);
        assert_eq!(set_ttl(&stage, Some(100)), Ok(true));
        let expiry = stage.get(TARGET).unwrap().expiry_seconds();
        assert_eq!(expiry, Some(stage.clock.unix_seconds() + 100));
        pass(&stage, 20);
        assert!(is_there(&stage, len));
        stage.evict_to_flash(len);
        assert!(is_there(&stage, len));
        let stage = stage.restart();
        pass(&stage, 79);
        assert!(is_there(&stage, len));
        pass(&stage, 1);
        assert!(!is_there(&stage, len));
        assert_eq!(set_ttl(&stage, Some(100)), Ok(false), "an expired item keeps its TTL");
        assert!(!is_there(&stage, len));
    });
}

#[test]
fn shorter_ttl_overrides_the_copy_on_flash() {
    in_every_place(|stage, len| {
        // The TTL has changed in DRAM and, if the item was there, on flash.
        assert!(is_there(&stage, len));
        assert_eq!(set_ttl(&stage, Some(10)), Ok(true));
        stage.evict_to_flash(len);
        pass(&stage, 9);
        assert!(is_there(&stage, len));
        stage.evict_to_flash(len);
        pass(&stage, 1);
        assert!(!is_there(&stage, len));
        assert!(!is_there(&stage.restart(), len));
    });
}

#[test]
fn no_ttl_never_expires_and_zero_ttl_is_already_expired() {
    in_every_place(|stage, len| {
        assert_eq!(set_ttl(&stage, None), Ok(true));
        pass(&stage, 10 * INITIAL_TTL_SECONDS);
        stage.evict_to_flash(len);
        assert!(is_there(&stage, len));
        assert_eq!(stage.get(TARGET).unwrap().expiry_seconds(), None);
        assert_eq!(set_ttl(&stage, Some(0)), Ok(true));
        assert!(!is_there(&stage, len) && !is_there(&stage.restart(), len));
    });
}

#[test]
fn unchanged_ttl_writes_nothing_to_flash() {
    for len in LENGTHS {
        let stage = target_with_ttl(len, Layer::Flash);
        assert_eq!(set_ttl(&stage, Some(INITIAL_TTL_SECONDS)), Ok(true));
        let stored = || stage.cache.stats().flash.unwrap().puts;
        let before = stored();
        stage.evict_to_flash(len);
        assert_eq!(stored().clean, before.clean + 1, "the item is already on flash");
        assert!(is_there(&stage, len));
    }
}

#[test]
fn ttl_set_during_an_eviction_prevents_a_flash_copy_with_the_old_ttl() {
    for len in LENGTHS {
        let stage = with_action_during_eviction(len, |cache: &Cache| {
            assert_eq!(cache.set_ttl_blocking(TARGET, Some(INITIAL_TTL_SECONDS)), Ok(true));
        });
        let puts = stage.cache.stats().flash.unwrap().puts;
        assert_eq!((puts.overtaken, puts.stayed), (1, 1));
        assert!(is_there(&stage, len));
        stage.evict_to_flash(len);
        pass(&stage, INITIAL_TTL_SECONDS);
        assert!(!is_there(&stage, len));
    }
}

#[test]
fn set_ttl_of_an_absent_key_does_nothing() {
    for len in LENGTHS {
        let stage = target_with_ttl(len, Layer::Flash);
        assert!(stage.cache.remove(TARGET));
        assert_eq!(set_ttl(&stage, None), Ok(false));
        assert!(!stage.cache.contains(TARGET));
        let gets = stage.cache.stats().gets;
        assert_eq!((gets.total(), gets.misses), (1, 1));
    }
}

#[test]
fn set_ttl_does_not_restore_an_item_removed_or_replaced_meanwhile() {
    for len in LENGTHS {
        for comes_again in [false, true] {
            let stage = target_with_ttl(len, Layer::Flash);
            stage.gate.close(Read);
            let cache = Arc::clone(&stage.cache);
            let mut setting = waiting(cache.set_ttl(TARGET, Some(100)));
            stage.cache.remove(TARGET);
            if comes_again {
                stage.put(TARGET, &version(2, len));
            }
            stage.gate.open();
            // The result is as if the removal had happened between the lookup and the change.
            assert_eq!(poll(&mut setting), Some(Ok(false)));
            drop(setting);
            drop(cache);
            let expected = comes_again.then(|| version(2, len));
            assert!(stage.get(TARGET).is_none_or(|found| found.expiry_seconds().is_none()));
            stage.assert_target_is(expected.as_deref(), len);
        }
    }
}

#[test]
fn set_ttl_dropped_while_waiting_changes_nothing() {
    for len in LENGTHS {
        let stage = target_with_ttl(len, Layer::Flash);
        stage.gate.close(Read);
        drop(waiting(stage.cache.set_ttl(TARGET, Some(100))));
        stage.gate.open();
        let found = stage.get(TARGET).unwrap();
        assert_eq!(found.expiry_seconds(), Some(stage.clock.unix_seconds() + INITIAL_TTL_SECONDS));
    }
}

#[test]
fn set_ttl_without_free_dram_leaves_a_flash_item_unchanged() {
    let len = LENGTHS[0];
    let stage = target_with_ttl(len, Layer::Flash);
    let expiry = stage.clock.unix_seconds() + INITIAL_TTL_SECONDS;
    let mut held = Vec::new();
    for number in 0_u64.. {
        let (key, bytes) = (number.to_be_bytes(), version(2, len));
        let mut insert = Box::pin(stage.cache.insert(&key, &bytes, DEFAULT_OPTIONS));
        let inserted = poll(&mut insert).or_else(|| {
            stage.step();
            poll(&mut insert)
        });
        match inserted.expect("flash has space") {
            Inserted::Stored => held.push(stage.get(&key).expect("the item is in DRAM")),
            Inserted::Rejected(why) => {
                assert_eq!(why, Refusal::AllPinned);
                break;
            }
        }
    }
    assert_eq!(set_ttl(&stage, Some(100)), Err(Refusal::AllPinned));
    let found = stage.get(TARGET).expect("the item is on flash");
    assert_eq!((found.layer(), found.expiry_seconds()), (Layer::Flash, Some(expiry)));
    drop((found, held));
    assert_eq!(set_ttl(&stage, Some(100)), Ok(true));
}

#[test]
fn set_ttl_of_a_flash_item_waits_for_free_dram() {
    for len in LENGTHS {
        let stage = target_with_ttl(len, Layer::Flash);
        stage.gate.close(Write);
        let cache = Arc::clone(&stage.cache);
        // New keys: an insert that is dropped removes its key, which would free space.
        let mut others = (0_u64..).map(|number| [*b"another ", number.to_be_bytes()].concat());
        while others.next().is_some_and(|other| {
            poll(&mut Box::pin(cache.insert(&other, &version(2, len), DEFAULT_OPTIONS))).is_some()
        }) {}
        let mut setting = waiting(cache.set_ttl(TARGET, Some(100)));
        stage.gate.open();
        stage.step();
        assert_eq!(poll(&mut setting), Some(Ok(true)));
        drop(setting);
        drop(cache);
        pass(&stage, INITIAL_TTL_SECONDS);
        stage.evict_to_flash(len);
        assert!(is_there(&stage, len));
    }
}

#[test]
fn chain_keeps_its_links_and_the_expiry_of_its_parent() {
    for layer in [Layer::Dram, Layer::Flash] {
        let len = LENGTHS[0];
        let stage = target_with_ttl(len, Layer::Dram);
        block_on(stage.cache.add_chained(TARGET, 3000, |link| link.fill(9))).unwrap();
        if layer == Layer::Flash {
            (0..8).for_each(|_| stage.evict_to_flash(len));
        }
        assert_eq!(set_ttl(&stage, Some(100)), Ok(true));
        pass(&stage, INITIAL_TTL_SECONDS);
        let links = |stage: &Stage| {
            stage.get(TARGET).map(|target| target.chain().map(<[u8]>::len).collect::<Vec<_>>())
        };
        assert_eq!(links(&stage), Some(vec![3000]));
        let stage = stage.restart();
        assert_eq!(links(&stage), Some(vec![3000]));
        pass(&stage, INITIAL_TTL_SECONDS);
        assert!(!is_there(&stage, len));
    }
}

/// Catches a regression: the admission by TTL rejects items whose remaining TTL is short, so all items that stayed in
/// DRAM for long.
#[test]
fn short_ttl_admission_uses_the_given_ttl_and_not_the_remaining_one() {
    for (ttl_seconds, then, is_written) in [
        (Some(50), None, true),
        (Some(39), None, false),
        (None, None, true),
        (Some(39), Some(40), true),
        (Some(50), Some(39), false),
    ] {
        for len in LENGTHS {
            let stage = Stage::new(|config| config.flash.as_mut().unwrap().min_ttl_seconds = 40);
            let options = InsertOptions { ttl_seconds, ..DEFAULT_OPTIONS };
            assert_eq!(block_on(stage.cache.insert(TARGET, &version(1, len), options)), Inserted::Stored);
            if then.is_some() {
                assert_eq!(set_ttl(&stage, then), Ok(true));
            }
            pass(&stage, 30);
            stage.evict_to_flash(len);
            assert_eq!(is_there(&stage, len), is_written, "{ttl_seconds:?}, then {then:?}");
        }
    }
}
