//! Get-or-insert: one fetch for many callers, and no value from before a newer write.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use device::RequestKind::Read;
use flashwright_cache::{Cache, Fetched, InsertOptions};
use futures_util::TryFutureExt;

use crate::polled::{poll, waiting};
use crate::stage::{DEFAULT_OPTIONS, LENGTHS, Stage, TARGET, version};

/// A slow data source that counts its fetches and can fail.
#[derive(Default, Clone)]
struct Source(Arc<State>);

#[derive(Default)]
struct State {
    answers: AtomicBool,
    fails: AtomicBool,
    fetches: AtomicUsize,
}

impl Source {
    fn answer(&self) {
        self.0.answers.store(true, Ordering::SeqCst);
    }

    fn fail(&self, fails: bool) {
        self.0.fails.store(fails, Ordering::SeqCst);
    }

    fn fetches(&self) -> usize {
        self.0.fetches.load(Ordering::SeqCst)
    }

    async fn fetch(self, bytes: Vec<u8>) -> Result<Vec<u8>, &'static str> {
        self.0.fetches.fetch_add(1, Ordering::SeqCst);
        let answers = || self.0.answers.load(Ordering::SeqCst);
        poll_fn(|_| if answers() { Poll::Ready(()) } else { Poll::Pending }).await;
        if self.0.fails.load(Ordering::SeqCst) { Err("the source is down") } else { Ok(bytes) }
    }

    async fn load<'a>(&self, cache: &'a Cache, number: u8) -> Result<Fetched<'a>, Arc<&'static str>> {
        self.load_of(cache, number, 200).await
    }

    async fn load_of<'a>(
        &self,
        cache: &'a Cache,
        number: u8,
        len: usize,
    ) -> Result<Fetched<'a>, Arc<&'static str>> {
        cache.get_or_insert_with(TARGET, DEFAULT_OPTIONS, || self.clone().fetch(version(number, len))).await
    }
}

#[test]
fn concurrent_misses_of_one_key_fetch_once() {
    let (stage, source) = (Stage::new(|_| {}), Source::default());
    let mut loads: Vec<_> = (0..10).map(|_| waiting(source.load(&stage.cache, 1))).collect();
    source.answer();
    for (number, load) in loads.iter_mut().enumerate() {
        let loaded = poll(load).expect("the source has answered").expect("with a value");
        assert_eq!(matches!(loaded, Fetched::Made(_)), number == 0);
        assert_eq!(*loaded, version(1, 200));
    }
    assert_eq!(source.fetches(), 1);
    assert_eq!(stage.cache.stats().inserts.total(), 1);
}

/// If each waiter fetched after a failure, the last of a thousand callers would wait for a thousand timeouts.
#[test]
fn failed_fetch_fails_for_its_waiters_and_for_no_later_caller() {
    let (stage, source) = (Stage::new(|_| {}), Source::default());
    let mut loads: Vec<_> = (0..10).map(|_| waiting(source.load(&stage.cache, 1))).collect();
    source.answer();
    source.fail(true);
    for load in &mut loads {
        assert_eq!(*poll(load).expect("the source has answered").unwrap_err(), "the source is down");
    }
    assert_eq!((source.fetches(), stage.cache.stats().gets.misses), (1, 10));
    source.fail(false);
    let mut next = Box::pin(source.load(&stage.cache, 2));
    assert_eq!(*poll(&mut next).expect("the caller fetches again").unwrap(), version(2, 200));
    assert_eq!(source.fetches(), 2);
}

/// Catches a regression: each of the waiters fetches a value that the cache cannot store once more, one after another.
#[test]
fn value_too_large_to_store_is_fetched_once_for_all_waiters() {
    let (stage, source) = (Stage::new(|_| {}), Source::default());
    let len = stage.cache.max_item_bytes() + 300;
    let mut loads: Vec<_> = (0..10).map(|_| waiting(source.load_of(&stage.cache, 1, len))).collect();
    source.answer();
    for load in &mut loads {
        assert_eq!(*poll(load).expect("the source has answered").unwrap(), version(1, len));
    }
    drop(loads);
    assert_eq!((source.fetches(), stage.cache.stats().inserts.rejected_too_large), (1, 1));
    let mut next = Box::pin(source.load_of(&stage.cache, 2, len));
    assert_eq!(*poll(&mut next).expect("the caller fetches again").unwrap(), version(2, len));
}

#[test]
fn value_with_zero_ttl_is_fetched_once_for_all_waiters() {
    let (stage, source) = (Stage::new(|_| {}), Source::default());
    let at_once = InsertOptions { ttl_seconds: Some(0), ..DEFAULT_OPTIONS };
    let fetch = || source.clone().fetch(version(1, 200)).map_ok(move |value| (value, at_once));
    let mut loads: Vec<_> = (0..10).map(|_| waiting(stage.cache.get_or_fetch(TARGET, fetch))).collect();
    source.answer();
    for load in &mut loads {
        assert_eq!(*poll(load).expect("the source has answered").unwrap(), version(1, 200));
    }
    assert_eq!(source.fetches(), 1);
}

/// Gets before and after a remove must not share a fetch: the source may have changed in between.
#[test]
fn fetch_error_before_a_remove_reaches_only_its_callers() {
    let (stage, source) = (Stage::new(|_| {}), Source::default());
    let mut first = waiting(source.load(&stage.cache, 1));
    stage.cache.remove(TARGET);
    let mut after = waiting(source.load(&stage.cache, 2));
    source.answer();
    source.fail(true);
    assert_eq!(*poll(&mut first).expect("the future is complete").unwrap_err(), "the source is down");
    source.fail(false);
    assert_eq!(*poll(&mut after).expect("the caller fetches again").unwrap(), version(2, 200));
}

#[test]
fn waiter_with_another_error_type_fetches_itself() {
    let (stage, source) = (Stage::new(|_| {}), Source::default());
    let mut first = waiting(source.load(&stage.cache, 1));
    let of_numbers = async || Err::<Vec<u8>, u64>(7);
    let mut second = waiting(stage.cache.get_or_insert_with(TARGET, DEFAULT_OPTIONS, of_numbers));
    source.answer();
    source.fail(true);
    assert_eq!(*poll(&mut first).expect("the future is complete").unwrap_err(), "the source is down");
    assert_eq!(*poll(&mut second).expect("the future is complete").unwrap_err(), 7_u64);
}

#[test]
fn fetch_panic_lets_the_next_caller_fetch() {
    let (stage, source) = (Stage::new(|_| {}), Source::default());
    let slow = source.clone();
    let fetch = async move || -> Result<Vec<u8>, &'static str> {
        slow.fetch(Vec::new()).await?;
        panic!("the fetch panics");
    };
    let mut first = waiting(stage.cache.get_or_insert_with(TARGET, DEFAULT_OPTIONS, fetch));
    let mut second = waiting(source.load(&stage.cache, 2));
    source.answer();
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut first).is_some())).is_err());
    assert_eq!(*poll(&mut second).expect("the future is complete").unwrap(), version(2, 200));
    assert_eq!(source.fetches(), 2);
}

#[test]
fn fetched_value_is_stored_with_its_options() {
    let stage = Stage::new(|_| {});
    let for_a_minute = InsertOptions { ttl_seconds: Some(60), ..DEFAULT_OPTIONS };
    let fetched =
        stage.cache.get_or_fetch_blocking(TARGET, || Ok::<_, ()>((version(1, 200), for_a_minute))).unwrap();
    assert_eq!(*fetched, version(1, 200));
    assert!(stage.get(TARGET).expect("the value is stored").expiry_seconds().is_some());
    let again = stage
        .cache
        .get_or_insert_with_blocking(TARGET, DEFAULT_OPTIONS, || Err("an unexpected second fetch"));
    assert!(matches!(again, Ok(Fetched::Found(_))));
}

#[test]
fn fetch_of_a_dropped_caller_serves_the_waiters() {
    let (stage, source) = (Stage::new(|_| {}), Source::default());
    let first = waiting(source.load(&stage.cache, 1));
    let mut second = waiting(source.load(&stage.cache, 2));
    drop(first);
    source.answer();
    assert_eq!(*poll(&mut second).expect("the future is complete").unwrap(), version(1, 200));
    assert_eq!(source.fetches(), 1);
}

#[test]
fn fetch_of_an_unpolled_caller_serves_the_waiters() {
    let (stage, source) = (Stage::new(|_| {}), Source::default());
    let first = waiting(source.load(&stage.cache, 1));
    let mut others: Vec<_> = (0..5).map(|_| waiting(source.load(&stage.cache, 2))).collect();
    source.answer();
    for other in &mut others {
        assert_eq!(*poll(other).expect("the future is complete").unwrap(), version(1, 200));
    }
    assert_eq!(source.fetches(), 1);
    drop(first);
}

/// A stepped cache has no thread that could continue the fetch.
#[test]
fn fetch_without_callers_and_spawner_is_dropped() {
    let (stage, source) = (Stage::new(|_| {}), Source::default());
    let loads = [1, 2].map(|number| waiting(source.load(&stage.cache, number)));
    drop(loads);
    assert_eq!(Arc::strong_count(&source.0), 1);
    source.answer();
    assert_eq!(*poll(&mut Box::pin(source.load(&stage.cache, 3))).unwrap().unwrap(), version(3, 200));
}

/// Catches a regression: every get of the key waits for the first one, which is no longer polled.
#[test]
fn flash_read_of_an_unpolled_get_serves_the_waiters() {
    for len in LENGTHS {
        let stage = Stage::with_target_on_flash(len);
        stage.gate.close(Read);
        let first = waiting(stage.cache.get(TARGET));
        let mut others: Vec<_> = (0..5).map(|_| waiting(stage.cache.get(TARGET))).collect();
        stage.gate.open();
        for other in &mut others {
            assert_eq!(poll(other).expect("the read has ended").as_deref(), Some(&version(1, len)[..]));
        }
        drop(others);
        let mut first = first;
        assert_eq!(poll(&mut first).expect("the read has ended").as_deref(), Some(&version(1, len)[..]));
        drop(first);
        let gets = stage.cache.stats().gets;
        assert_eq!((gets.hits_flash, gets.hits_dram), (1, 5));
    }
}

#[test]
fn value_fetched_before_a_newer_insert_does_not_replace_it() {
    let (stage, source) = (Stage::new(|_| {}), Source::default());
    let cache = Arc::clone(&stage.cache);
    let mut load = waiting(source.load(&cache, 1));
    stage.put(TARGET, &version(2, 200));
    source.answer();
    let loaded = poll(&mut load).expect("the future is complete").unwrap();
    assert_eq!(*loaded, version(1, 200), "the caller started before the insert");
    drop((loaded, load));
    drop(cache);
    assert_eq!(stage.cache.stats().inserts.overtaken, 1);
    stage.assert_target_is(Some(&version(2, 200)), LENGTHS[0]);
}

#[test]
fn value_fetched_before_a_remove_is_not_stored() {
    let (stage, source) = (Stage::new(|_| {}), Source::default());
    let cache = Arc::clone(&stage.cache);
    let mut load = waiting(source.load(&cache, 1));
    let mut follower = waiting(source.load(&cache, 2));
    stage.cache.remove(TARGET);
    source.answer();
    assert_eq!(*poll(&mut load).expect("the future is complete").unwrap(), version(1, 200));
    assert!(stage.get(TARGET).is_none());
    assert_eq!(*poll(&mut follower).expect("the caller fetches again").unwrap(), version(2, 200));
    drop((load, follower));
    drop(cache);
    stage.assert_target_is(Some(&version(2, 200)), LENGTHS[0]);
}

#[test]
fn value_fetched_before_a_remove_is_not_stored_without_flash() {
    let (stage, source) = (Stage::new(|config| config.flash = None), Source::default());
    let mut load = waiting(source.load(&stage.cache, 1));
    stage.cache.remove(TARGET);
    source.answer();
    assert!(poll(&mut load).expect("the future is complete").is_ok());
    assert!(stage.get(TARGET).is_none());
}

/// The caller's miss took so long that another fetch began and completed in between.
#[test]
fn caller_with_a_miss_before_a_completed_fetch_does_not_fetch_again() {
    let len = LENGTHS[0];
    let (stage, source) = (Stage::with_target_on_flash(len), Source::default());
    stage.gate.close(Read);
    let mut slow = waiting(source.load(&stage.cache, 3));
    stage.cache.remove(TARGET);
    source.answer();
    let mut quick = Box::pin(source.load(&stage.cache, 2));
    assert!(matches!(poll(&mut quick), Some(Ok(Fetched::Made(_)))));
    stage.gate.open();
    assert_eq!(*poll(&mut slow).expect("the read has ended").unwrap(), version(2, 200));
    assert_eq!(source.fetches(), 1);
}

/// Catches a regression: a caller that waits for another's fetch counts as two gets: a miss at its first lookup, a hit
/// at the second.
#[test]
fn load_counts_as_one_get() {
    for without_flash in [false, true] {
        let change = |config: &mut flashwright_cache::config::CacheConfig| {
            if without_flash {
                config.flash = None;
            }
        };
        let (stage, source) = (Stage::new(change), Source::default());
        let mut loads: Vec<_> = (0..10).map(|_| waiting(source.load(&stage.cache, 1))).collect();
        assert_eq!(stage.cache.stats().gets.total(), 1, "only the caller that fetches is counted");
        source.answer();
        for load in &mut loads {
            assert_eq!(*poll(load).expect("the source has answered").unwrap(), version(1, 200));
        }
        drop(loads);
        let gets = stage.cache.stats().gets;
        assert_eq!((gets.misses, gets.hits_dram, gets.total()), (1, 9, 10), "without flash: {without_flash}");
    }
}
