//! Recovery of a whole cache after kills and power cuts, over random histories of inserts, removes, clears, changes of
//! TTL and settles. Keys change their sizes, so items move between the engine for small items and the regions. After each
//! kill or power cut, the next cache finds no removed, replaced or expired version, and nearly all items that were on
//! flash.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::wrap::CrashDevice;
use device::{Clock, Device, MemoryDevice, VirtualClock};
use flashwright_cache::config::{CacheConfig, LogOptions};
use flashwright_cache::{Cache, InsertOptions, Inserted, RecoverAfter, SmallItems};
use pollster::block_on;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::polled::poll;
use crate::setup::{KIB, MIB, cache_config, flash, key, open_stepped, seeds, value, version_of};

const KEYS: u64 = 2000;
const SESSIONS: u64 = 3;

/// A version of a key, and the second at which it expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    number: u64,
    expiry_seconds: Option<u32>,
}

struct History {
    recover_after: RecoverAfter,
    seed: u64,
    random: StdRng,
    clock: Arc<VirtualClock>,
    /// The acknowledged versions.
    versions: BTreeMap<u64, Version>,
    last_version: u64,
    small: Count,
    large: Count,
}

/// Number of items on flash before the crashes and closes, and after them.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    before: u64,
    after: u64,
}

impl Count {
    fn add(&mut self, (before, after): (u64, u64)) {
        self.before += before;
        self.after += after;
    }
}

impl History {
    fn config(&self, device: Arc<dyn Device>) -> CacheConfig {
        let mut flash = flash(device);
        let options = LogOptions {
            expected_item_bytes: 400,
            regions: Some(64),
            readmission_share: if self.seed.is_multiple_of(2) { 0.25 } else { 0.0 },
        };
        let has_log = self.seed % 5 < 3;
        flash.small_items = Some(if has_log { SmallItems::Log(options) } else { SmallItems::Sets });
        flash.recover_after = self.recover_after;
        cache_config(flash, 256 * KIB, self.seed)
    }

    fn open(&self, device: &Arc<CrashDevice>) -> Cache {
        let device = Arc::clone(device) as Arc<dyn Device>;
        open_stepped(self.config(device), Arc::clone(&self.clock) as _).expect("the configuration fits")
    }

    fn now_seconds(&self) -> u32 {
        self.clock.unix_seconds()
    }

    fn ttl_seconds(&mut self) -> Option<u32> {
        self.random.random_bool(0.3).then(|| self.random.random_range(5..200))
    }

    fn request(&mut self, cache: &Cache) {
        let number = self.random.random_range(0..KEYS);
        match self.random.random_range(0..1000) {
            0..450 => self.insert(cache, number),
            450..520 => {
                cache.remove(&key(number));
                self.versions.remove(&number);
            }
            520..600 => self.set_ttl(cache, number),
            600 if self.random.random_ratio(1, 6) => {
                cache.clear();
                self.versions.clear();
            }
            601 => Self::settle(cache),
            602..610 => self.clock.advance_by(2_000_000_000),
            _ => _ = self.check(cache, number, "before the end"),
        }
        if self.random.random_bool(0.5) {
            block_on(cache.step());
        }
    }

    fn insert(&mut self, cache: &Cache, number: u64) {
        self.last_version += 1;
        let (version, ttl_seconds) = (self.last_version, self.ttl_seconds());
        let bytes = value(number, version);
        let options = InsertOptions { ttl_seconds, ..InsertOptions::default() };
        let name = key(number);
        let mut insert = Box::pin(cache.insert(&name, &bytes, options));
        let inserted = loop {
            if let Some(inserted) = poll(&mut insert) {
                break inserted;
            }
            block_on(cache.step());
        };
        let expiry_seconds = ttl_seconds.map(|ttl| self.now_seconds() + ttl);
        match inserted {
            Inserted::Stored => self.versions.insert(number, Version { number: version, expiry_seconds }),
            Inserted::Rejected(_) => self.versions.remove(&number),
        };
    }

    fn set_ttl(&mut self, cache: &Cache, number: u64) {
        let ttl_seconds = self.ttl_seconds();
        let name = key(number);
        let mut setting = Box::pin(cache.set_ttl(&name, ttl_seconds));
        let is_set = loop {
            if let Some(set) = poll(&mut setting) {
                break set.is_ok_and(|was_there| was_there);
            }
            block_on(cache.step());
        };
        let now_seconds = self.now_seconds();
        if let Some(version) = self.versions.get_mut(&number).filter(|_| is_set) {
            version.expiry_seconds = ttl_seconds.map(|ttl| now_seconds + ttl);
        }
    }

    /// Reads a key and checks the version found; returns whether the key was found.
    fn check(&self, cache: &Cache, number: u64, when: &str) -> bool {
        let Some(item) = block_on(cache.get(&key(number))) else { return false };
        let found = version_of(number, &item);
        let (seed, now) = (self.seed, self.now_seconds());
        let version = self.versions.get(&number);
        let is_current =
            version.is_some_and(|it| it.number == found && it.expiry_seconds.is_none_or(|at| at > now));
        assert!(
            is_current,
            "seed {seed}, {when}: key {number} has version {found} at {now}, not {version:?}"
        );
        true
    }

    /// Items in the log or in sets, apart from those in memory, and items in regions, with those in memory.
    fn items_on_flash(cache: &Cache) -> (u64, u64) {
        let flash = cache.stats().flash.expect("there is flash");
        let small = flash.soc.expect("there are small items").items.max(0).cast_unsigned();
        (small, flash.regions.expect("there are regions").items)
    }

    fn settle(cache: &Cache) {
        let mut settling = Box::pin(cache.settle());
        while poll(&mut settling).is_none() {
            block_on(cache.step());
        }
    }

    fn run(&mut self) {
        let mut image = MemoryDevice::new(6 * MIB).absorbing(self.seed.is_multiple_of(3));
        let mut before = (0, None);
        for session in 0..SESSIONS {
            let device = Arc::new(CrashDevice::new(image));
            let cache = self.open(&device);
            if session > 0 {
                let flash = cache.stats().flash.expect("the cache has flash");
                assert!(flash.recovered, "seed {}, session {session}: {:?}", self.seed, flash.loss);
                let after = Self::items_on_flash(&cache);
                self.small.add((before.0, after.0));
                if let Some(large) = before.1 {
                    self.large.add((large, after.1));
                }
                (0..KEYS).for_each(|number| _ = self.check(&cache, number, &format!("session {session}")));
            }
            let requests = self.random.random_range(1000..6000);
            (0..requests).for_each(|_| self.request(&cache));
            if session + 1 == SESSIONS {
                break;
            }
            // Some rounds close the cache, and the next one reopens it.
            let seed = self.seed << 8 | session;
            if self.random.random_ratio(1, 5) {
                cache.close().expect("memory does not fail");
                image = device.kill(seed);
                let reopened = Arc::new(CrashDevice::new(image.duplicate()));
                let (small, large) = Self::items_on_flash(&self.open(&reopened));
                before = (small, Some(large));
                continue;
            }
            // Otherwise some regions are in memory, and their items are lost.
            let is_settled = self.random.random_bool(0.5);
            if is_settled {
                Self::settle(&cache);
            }
            let (small, large) = Self::items_on_flash(&cache);
            before = (small, is_settled.then_some(large));
            image = match self.recover_after {
                RecoverAfter::PowerLoss => device.crash(seed),
                RecoverAfter::Kill | RecoverAfter::CleanClose => device.kill(seed),
            };
        }
    }
}

/// Small and large items on flash before each end, and after it.
fn histories(recover_after: RecoverAfter, seeds: std::ops::Range<u64>) -> (Count, Count) {
    let (mut small, mut large) = (Count::default(), Count::default());
    for seed in seeds {
        let mut history = History {
            recover_after,
            seed,
            random: StdRng::seed_from_u64(seed),
            clock: Arc::default(),
            versions: BTreeMap::new(),
            last_version: 0,
            small: Count::default(),
            large: Count::default(),
        };
        history.run();
        small.add((history.small.before, history.small.after));
        large.add((history.large.before, history.large.after));
    }
    (small, large)
}

fn assert_came_back((small, large): (Count, Count)) {
    assert!(small.before > 10_000 && small.after * 100 >= small.before * 99, "small items: {small:?}");
    assert!(large.before > 5_000 && large.after * 100 >= large.before * 99, "large items: {large:?}");
}

#[test]
fn killed_cache_reopens_with_its_items_but_no_removed_replaced_or_expired_ones() {
    assert_came_back(histories(RecoverAfter::Kill, seeds(40)));
}

#[test]
fn cache_after_a_power_cut_reopens_without_removed_replaced_or_expired_items() {
    assert_came_back(histories(RecoverAfter::PowerLoss, seeds(40)));
}
