//! Cuts the power at every write, trim and flush, before it or in the middle of it, and loses any part of the unflushed
//! data. The next cache on the device finds the content of the last clean close, or nothing; never a stale item.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::wrap::CrashDevice;
use device::{Completion, Device, MemoryDevice, Outcome, Request, RequestKind};
use flashwright_cache::config::regions::Caching;
use flashwright_cache::config::{CacheConfig, PairConfig};
use parking_lot::Mutex;

use crate::ledger::Ledger;
use crate::session::{self, Session, audit};
use crate::setup::{MIB, ripq, seeds, small_item_log};

const KEYS: u64 = 400;
/// Keys that are inserted once, at the end.
const LATE_KEYS: u64 = 400;
const ALL_KEYS: u64 = KEYS + LATE_KEYS;
const IMAGES_PER_REQUEST: u64 = 3;

/// A device that calls a function before each change.
struct Watched {
    inner: Arc<dyn Device>,
    watcher: Mutex<Option<Watcher>>,
}

type Watcher = Arc<dyn Fn() + Send + Sync>;

impl Watched {
    fn look(&self, request: &Request) {
        // Clones the watcher, so that the lock is not held while the watcher runs, which makes requests too.
        let watcher = self.watcher.lock().clone();
        if let Some(watcher) = watcher.filter(|_| request.kind() != RequestKind::Read) {
            watcher();
        }
    }
}

impl Device for Watched {
    device::forward_device!(inner: geometry, counters);

    fn submit(&self, request: Request, completion: Completion) {
        self.look(&request);
        self.inner.submit(request, completion);
    }

    fn execute(&self, request: Request) -> Outcome {
        self.look(&request);
        self.inner.execute(request)
    }
}

/// Numbers of images that opened empty and with items.
#[derive(Default)]
struct Found {
    empty: AtomicU64,
    with_items: AtomicU64,
}

/// Opens a cache on several images that a power cut at this request may leave, and reads every key. Returns the numbers
/// of empty and other images.
fn reopen_images(crashing: &CrashDevice, scenario: &Scenario, request: u64) -> (u64, u64) {
    let mut counts = (0, 0);
    for image in 0..IMAGES_PER_REQUEST {
        let medium = crashing.crash(scenario.seed << 32 ^ request << 8 ^ image);
        let cache = session::open((scenario.config)(Arc::new(medium)));
        let label = format!("seed {}, cut at request {request}, image {image}", scenario.seed);
        let found = audit(&cache, &scenario.ledger, ALL_KEYS, &label);
        if found.is_empty() { counts.0 += 1 } else { counts.1 += 1 }
    }
    counts
}

#[derive(Clone)]
struct Scenario {
    seed: u64,
    config: fn(Arc<dyn Device>) -> CacheConfig,
    clears: bool,
    ledger: Arc<Mutex<Ledger>>,
}

/// Opens and closes a cache, then opens another with a check at every change, and closes it. Returns the found items at
/// each check.
fn play(scenario: &Scenario) -> (Found, usize, usize) {
    let memory = Arc::new(MemoryDevice::new(6 * MIB));
    let cache = session::open((scenario.config)(Arc::clone(&memory) as _));
    let mut first = Session::new(cache, Arc::clone(&scenario.ledger), KEYS, scenario.seed);
    first.requests(1200);
    first.cache.close().expect("memory does not fail");

    let durable = memory.duplicate();
    let watched = Arc::new(Watched { inner: memory, watcher: Mutex::default() });
    let crashing = Arc::new(CrashDevice::over(Arc::clone(&watched) as _, durable));
    let (found, requests) = (Arc::new(Found::default()), Arc::new(AtomicU64::new(0)));
    let watcher = {
        let (crashing, scenario) = (Arc::downgrade(&crashing), scenario.clone());
        let (found, requests) = (Arc::clone(&found), Arc::clone(&requests));
        move || {
            let crashing = crashing.upgrade().expect("the device is in use");
            let request = requests.fetch_add(1, Ordering::Relaxed);
            let (empty, with_items) = reopen_images(&crashing, &scenario, request);
            found.empty.fetch_add(empty, Ordering::Relaxed);
            found.with_items.fetch_add(with_items, Ordering::Relaxed);
        }
    };
    *watched.watcher.lock() = Some(Arc::new(watcher));
    let cache = session::open((scenario.config)(Arc::clone(&crashing) as _));
    let mut second = Session::new(cache, Arc::clone(&scenario.ledger), KEYS, scenario.seed + 1000);
    second.requests(900);
    if scenario.clears {
        second.clear();
    }
    second.requests(300);
    (KEYS..ALL_KEYS).for_each(|key| second.insert(key));
    let on_flash = items_on_flash(&second);
    second.cache.close().expect("memory does not fail");
    *watched.watcher.lock() = None;
    let back = back_after_close(&crashing, scenario);
    (Arc::into_inner(found).expect("the watcher is dropped"), back, on_flash)
}

/// Number of items on flash, including those being written. After as many new keys, all earlier removals are on flash.
fn items_on_flash(session: &Session) -> usize {
    let stats = session.cache.stats().flash.expect("the cache has flash");
    let soc = stats.soc.map_or(0, |soc| soc.items.cast_unsigned() + soc.pending_entries);
    (soc + stats.regions.unwrap_or_default().items) as usize
}

/// After a close, all items are present after any power cut.
fn back_after_close(crashing: &CrashDevice, scenario: &Scenario) -> usize {
    let mut backs: Vec<_> = (0..IMAGES_PER_REQUEST)
        .map(|image| {
            let cache = session::open((scenario.config)(Arc::new(crashing.crash(image))));
            assert!(cache.stats().flash.is_some_and(|flash| flash.recovered), "seed {}", scenario.seed);
            audit(&cache, &scenario.ledger, ALL_KEYS, "closed").len()
        })
        .collect();
    backs.dedup();
    assert_eq!(backs.len(), 1, "seed {}: a closed cache is always the same", scenario.seed);
    backs[0]
}

fn survives_every_cut(config: fn(Arc<dyn Device>) -> CacheConfig, seed: u64) {
    play_and_check(&Scenario { seed, config, clears: false, ledger: ledger() });
}

fn ledger() -> Arc<Mutex<Ledger>> {
    Arc::new(Mutex::new(Ledger::new(ALL_KEYS)))
}

fn play_and_check(scenario: &Scenario) {
    let seed = scenario.seed;
    let (found, back, on_flash) = play(scenario);
    let (empty, with_items) = (found.empty.load(Ordering::Relaxed), found.with_items.load(Ordering::Relaxed));
    assert!(empty > 50, "seed {seed}: {empty} empty, {with_items} not");
    assert!(with_items >= 2, "seed {seed}: {empty} empty, {with_items} not");
    assert!(back > 50 && back * 100 >= on_flash * 99, "seed {seed}: {back} of {on_flash} found after reopen");
}

#[test]
fn power_cut_at_any_write_or_flush_restores_no_stale_item() {
    seeds(3).for_each(|seed| survives_every_cut(session::config, seed));
}

#[test]
fn power_cut_after_a_clear_restores_no_cleared_item() {
    for seed in seeds(2) {
        play_and_check(&Scenario { seed, config: session::config, clears: true, ledger: ledger() });
        let config = |device| {
            let mut config = session::config(device);
            config.flash.as_mut().expect("the cache has flash").regions.trim = true;
            config
        };
        play_and_check(&Scenario { seed, config, clears: true, ledger: ledger() });
    }
}

#[test]
fn power_cut_between_arenas_restores_no_stale_item() {
    let config = |device| {
        let mut config = session::config(device);
        let flash = config.flash.as_mut().expect("the cache has flash");
        flash.pairs = vec![
            PairConfig { device_share: 0.5, soc_share: 0.4 },
            PairConfig { device_share: 0.5, soc_share: 0.4 },
        ];
        config
    };
    seeds(2).for_each(|seed| survives_every_cut(config, seed));
}

#[test]
fn power_cut_during_reinsertion_and_trim_restores_no_stale_item() {
    let config = |device| {
        let mut config = session::config(device);
        let flash = config.flash.as_mut().expect("the cache has flash");
        flash.pairs[0].soc_share = 0.0;
        flash.regions.trim = true;
        flash.regions.reinsertion =
            flashwright_cache::config::regions::Reinsertion::Percent { percent: 50, seed: 1 };
        config
    };
    seeds(2).for_each(|seed| survives_every_cut(config, seed));
}

#[test]
fn power_cut_under_a_small_item_log_exposes_no_old_version() {
    let config = |device| {
        let mut config = session::config(device);
        small_item_log(config.flash.as_mut().expect("the cache has flash"));
        config
    };
    for seed in seeds(2) {
        survives_every_cut(config, seed);
        play_and_check(&Scenario { seed, config, clears: true, ledger: ledger() });
    }
}

#[test]
fn power_cut_with_a_queue_of_items_restores_no_stale_item() {
    let config = |device| {
        let mut config = session::config(device);
        ripq(config.flash.as_mut().expect("the cache has flash"), Caching::Slru { segments: 3 });
        config
    };
    seeds(2).for_each(|seed| survives_every_cut(config, seed));
}
