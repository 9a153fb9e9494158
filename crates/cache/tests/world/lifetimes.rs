//! Changed TTLs: the new TTL applies in DRAM, on flash and after a restart.

use std::sync::Arc;

use device::Clock;
use device::RequestKind::{Read, Write};
use flashwright_cache::{Cache, InsertOptions, Inserted, Layer, Refusal};
use pollster::block_on;

use crate::polled::{poll, waiting};
use crate::races::meddled_with;
use crate::stage::{AS_USUAL, HERO, LENGTHS, Stage, version};

const SECOND_NS: u64 = 1_000_000_000;
/// What the hero has to live at first.
const AT_FIRST: u32 = 50;

/// An item with a TTL, in DRAM or on flash only.
fn hero_for_a_while(len: usize, layer: Layer) -> Stage {
    let stage = Stage::new(|_| {});
    let options = InsertOptions { ttl_seconds: Some(AT_FIRST), ..AS_USUAL };
    assert_eq!(block_on(stage.cache.insert(HERO, &version(1, len), options)), Inserted::Stored);
    if layer == Layer::Flash {
        stage.push_out(len);
    }
    stage
}

fn set_ttl(stage: &Stage, ttl_seconds: Option<u32>) -> Result<bool, Refusal> {
    poll(&mut Box::pin(stage.cache.set_ttl(HERO, ttl_seconds))).expect("nothing holds it up")
}

fn pass(stage: &Stage, seconds: u32) {
    stage.clock.advance_by(u64::from(seconds) * SECOND_NS);
}

fn is_there(stage: &Stage, len: usize) -> bool {
    stage.get(HERO).inspect(|found| assert_eq!(**found, version(1, len))).is_some()
}

fn in_every_place(story: impl Fn(Stage, usize)) {
    for len in LENGTHS {
        for layer in [Layer::Dram, Layer::Flash] {
            story(hero_for_a_while(len, layer), len);
        }
    }
}

#[test]
fn longer_ttl_holds_in_dram_on_flash_and_after_a_restart() {
    in_every_place(|stage, len| {
        pass(&stage, AT_FIRST - 1);
        assert_eq!(set_ttl(&stage, Some(100)), Ok(true));
        let expiry = stage.get(HERO).unwrap().expiry_seconds();
        assert_eq!(expiry, Some(stage.clock.unix_seconds() + 100));
        pass(&stage, 20);
        assert!(is_there(&stage, len));
        stage.push_out(len);
        assert!(is_there(&stage, len));
        let stage = stage.restart();
        pass(&stage, 79);
        assert!(is_there(&stage, len));
        pass(&stage, 1);
        assert!(!is_there(&stage, len));
        assert_eq!(set_ttl(&stage, Some(100)), Ok(false), "it is too late");
        assert!(!is_there(&stage, len));
    });
}

#[test]
fn shorter_ttl_overrides_the_copy_on_flash() {
    in_every_place(|stage, len| {
        // Both in DRAM and, if it was there, on flash.
        assert!(is_there(&stage, len));
        assert_eq!(set_ttl(&stage, Some(10)), Ok(true));
        stage.push_out(len);
        pass(&stage, 9);
        assert!(is_there(&stage, len));
        stage.push_out(len);
        pass(&stage, 1);
        assert!(!is_there(&stage, len));
        assert!(!is_there(&stage.restart(), len));
    });
}

#[test]
fn no_ttl_never_expires_and_zero_ttl_is_already_expired() {
    in_every_place(|stage, len| {
        assert_eq!(set_ttl(&stage, None), Ok(true));
        pass(&stage, 10 * AT_FIRST);
        stage.push_out(len);
        assert!(is_there(&stage, len));
        assert_eq!(stage.get(HERO).unwrap().expiry_seconds(), None);
        assert_eq!(set_ttl(&stage, Some(0)), Ok(true));
        assert!(!is_there(&stage, len) && !is_there(&stage.restart(), len));
    });
}

#[test]
fn unchanged_ttl_writes_nothing_to_flash() {
    for len in LENGTHS {
        let stage = hero_for_a_while(len, Layer::Flash);
        assert_eq!(set_ttl(&stage, Some(AT_FIRST)), Ok(true));
        let stored = || stage.cache.stats().flash.unwrap().puts;
        let before = stored();
        stage.push_out(len);
        assert_eq!(stored().clean, before.clean + 1, "flash had it already");
        assert!(is_there(&stage, len));
    }
}

#[test]
fn an_item_on_its_way_out_of_dram_does_not_reach_flash_with_its_old_time() {
    for len in LENGTHS {
        let stage = meddled_with(len, |cache: &Cache| {
            assert_eq!(cache.set_ttl_blocking(HERO, Some(AT_FIRST)), Ok(true));
        });
        let puts = stage.cache.stats().flash.unwrap().puts;
        assert_eq!((puts.overtaken, puts.stayed), (1, 1));
        assert!(is_there(&stage, len));
        stage.push_out(len);
        pass(&stage, AT_FIRST);
        assert!(!is_there(&stage, len));
    }
}

#[test]
fn set_ttl_of_an_absent_key_does_nothing() {
    for len in LENGTHS {
        let stage = hero_for_a_while(len, Layer::Flash);
        assert!(stage.cache.remove(HERO));
        assert_eq!(set_ttl(&stage, None), Ok(false));
        assert!(!stage.cache.contains(HERO));
        let gets = stage.cache.stats().gets;
        assert_eq!((gets.total(), gets.misses), (1, 1));
    }
}

#[test]
fn an_item_removed_or_replaced_while_its_time_is_set_is_not_brought_back() {
    for len in LENGTHS {
        for comes_again in [false, true] {
            let stage = hero_for_a_while(len, Layer::Flash);
            stage.gate.close(Read);
            let cache = Arc::clone(&stage.cache);
            let mut setting = waiting(cache.set_ttl(HERO, Some(100)));
            stage.cache.remove(HERO);
            if comes_again {
                stage.put(HERO, &version(2, len));
            }
            stage.gate.open();
            // As if it had come between the two.
            assert_eq!(poll(&mut setting), Some(Ok(false)));
            drop(setting);
            drop(cache);
            let expected = comes_again.then(|| version(2, len));
            assert!(stage.get(HERO).is_none_or(|found| found.expiry_seconds().is_none()));
            stage.assert_hero_is(expected.as_deref(), len);
        }
    }
}

#[test]
fn set_ttl_dropped_while_waiting_changes_nothing() {
    for len in LENGTHS {
        let stage = hero_for_a_while(len, Layer::Flash);
        stage.gate.close(Read);
        drop(waiting(stage.cache.set_ttl(HERO, Some(100))));
        stage.gate.open();
        let found = stage.get(HERO).unwrap();
        assert_eq!(found.expiry_seconds(), Some(stage.clock.unix_seconds() + AT_FIRST));
    }
}

#[test]
fn set_ttl_without_free_dram_leaves_a_flash_item_unchanged() {
    let len = LENGTHS[0];
    let stage = hero_for_a_while(len, Layer::Flash);
    let expiry = stage.clock.unix_seconds() + AT_FIRST;
    let mut held = Vec::new();
    for number in 0_u64.. {
        let (key, bytes) = (number.to_be_bytes(), version(2, len));
        let mut insert = Box::pin(stage.cache.insert(&key, &bytes, AS_USUAL));
        let inserted = poll(&mut insert).or_else(|| {
            stage.step();
            poll(&mut insert)
        });
        match inserted.expect("flash has room") {
            Inserted::Stored => held.push(stage.get(&key).expect("it is in DRAM")),
            Inserted::Rejected(why) => {
                assert_eq!(why, Refusal::AllPinned);
                break;
            }
        }
    }
    assert_eq!(set_ttl(&stage, Some(100)), Err(Refusal::AllPinned));
    let found = stage.get(HERO).expect("it is on flash");
    assert_eq!((found.layer(), found.expiry_seconds()), (Layer::Flash, Some(expiry)));
    drop((found, held));
    assert_eq!(set_ttl(&stage, Some(100)), Ok(true));
}

#[test]
fn an_item_is_given_another_time_though_dram_has_no_room_for_it_yet() {
    for len in LENGTHS {
        let stage = hero_for_a_while(len, Layer::Flash);
        stage.gate.close(Write);
        let cache = Arc::clone(&stage.cache);
        // New keys: an insert that is dropped removes its key, and would make room.
        let mut others = (0_u64..).map(|number| [*b"another ", number.to_be_bytes()].concat());
        while others.next().is_some_and(|other| {
            poll(&mut Box::pin(cache.insert(&other, &version(2, len), AS_USUAL))).is_some()
        }) {}
        let mut setting = waiting(cache.set_ttl(HERO, Some(100)));
        stage.gate.open();
        stage.step();
        assert_eq!(poll(&mut setting), Some(Ok(true)));
        drop(setting);
        drop(cache);
        pass(&stage, AT_FIRST);
        stage.push_out(len);
        assert!(is_there(&stage, len));
    }
}

#[test]
fn chain_keeps_its_links_and_the_expiry_of_its_parent() {
    for layer in [Layer::Dram, Layer::Flash] {
        let len = LENGTHS[0];
        let stage = hero_for_a_while(len, Layer::Dram);
        block_on(stage.cache.add_chained(HERO, 3000, |link| link.fill(9))).unwrap();
        if layer == Layer::Flash {
            (0..8).for_each(|_| stage.push_out(len));
        }
        assert_eq!(set_ttl(&stage, Some(100)), Ok(true));
        pass(&stage, AT_FIRST);
        let links =
            |stage: &Stage| stage.get(HERO).map(|hero| hero.chain().map(<[u8]>::len).collect::<Vec<_>>());
        assert_eq!(links(&stage), Some(vec![3000]));
        let stage = stage.restart();
        assert_eq!(links(&stage), Some(vec![3000]));
        pass(&stage, AT_FIRST);
        assert!(!is_there(&stage, len));
    }
}

/// Flash refused what had not long to live any more, and so all that stayed in DRAM for long.
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
            let options = InsertOptions { ttl_seconds, ..AS_USUAL };
            assert_eq!(block_on(stage.cache.insert(HERO, &version(1, len), options)), Inserted::Stored);
            if then.is_some() {
                assert_eq!(set_ttl(&stage, then), Ok(true));
            }
            pass(&stage, 30);
            stage.push_out(len);
            assert_eq!(is_there(&stage, len), is_written, "{ttl_seconds:?}, then {then:?}");
        }
    }
}
