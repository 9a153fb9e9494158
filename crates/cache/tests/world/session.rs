//! One client, one request after another, from the opening of a cache to its end.

use std::sync::Arc;

use device::{Clock, Device, TickingClock, VirtualClock};
use flashwright_cache::config::CacheConfig;
use flashwright_cache::{Cache, InsertOptions, Inserted};
use parking_lot::Mutex;
use pollster::block_on;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::ledger::{Ended, Ledger};
use crate::polled::poll;
use crate::setup::{KIB, cache_config, flash, key, open_stepped, value, version_of};

/// A cache, the ledger of its expected contents, and a client that makes random requests.
pub struct Session {
    pub cache: Cache,
    pub ledger: Arc<Mutex<Ledger>>,
    pub inserts: u64,
    pub refused: u64,
    random: StdRng,
    keys: u64,
    label: String,
}

/// A small cache on `device`. Each cache in a sequence has the same configuration.
pub fn config(device: Arc<dyn Device>) -> CacheConfig {
    cache_config(flash(device), 256 * KIB, 0)
}

/// Opens a cache whose items never expire.
pub fn open(config: CacheConfig) -> Cache {
    open_stepped(config, Arc::new(TickingClock::new(20_000_000))).expect("the configuration fits")
}

impl Session {
    pub fn new(cache: Cache, ledger: Arc<Mutex<Ledger>>, keys: u64, seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed);
        Self { cache, ledger, inserts: 0, refused: 0, random, keys, label: format!("seed {seed}") }
    }

    /// Makes gets, inserts and removes with background work in between. Returns the number of hits.
    pub fn requests(&mut self, count: u64) -> u64 {
        (0..count).map(|_| u64::from(self.request())).sum()
    }

    fn request(&mut self) -> bool {
        let number = self.random.random_range(0..self.keys);
        let mut found = false;
        match self.random.random_range(0..10) {
            0..4 => self.insert(number),
            4 => self.remove(number),
            _ => found = ask(&self.cache, &self.ledger, number, &self.label),
        }
        self.step();
        found
    }

    fn step(&self) {
        while block_on(self.cache.step()) {}
    }

    pub fn insert(&mut self, number: u64) {
        let version = self.ledger.lock().begin_write(number);
        let bytes = value(number, version);
        let (name, options) = (key(number), InsertOptions::default());
        let mut insert = Box::pin(self.cache.insert(&name, &bytes, options));
        // While writes fail, few buffers are free, and the insert may wait for a step.
        let ended = loop {
            if let Some(ended) = poll(&mut insert) {
                break ended;
            }
            self.step();
        };
        drop(insert);
        let stored = ended == Inserted::Stored;
        self.inserts += 1;
        self.refused += u64::from(!stored);
        let ending = if stored { Ended::Stored { lifetime: None } } else { Ended::Gone };
        self.ledger.lock().end_write(number, ending);
        self.step();
    }

    pub fn clear(&self) {
        self.ledger.lock().clear();
        self.cache.clear();
    }

    pub fn remove(&mut self, number: u64) {
        self.ledger.lock().begin_write(number);
        self.cache.remove(&key(number));
        self.ledger.lock().end_write(number, Ended::Gone);
    }
}

/// Reads every key and checks each hit against the ledger. Returns the keys found.
pub fn audit(cache: &Cache, ledger: &Mutex<Ledger>, keys: u64, label: &str) -> Vec<u64> {
    (0..keys).filter(|&number| ask(cache, ledger, number, label)).collect()
}

fn ask(cache: &Cache, ledger: &Mutex<Ledger>, number: u64, label: &str) -> bool {
    let now_seconds = VirtualClock::default().unix_seconds();
    let reading = ledger.lock().begin_read(number, now_seconds);
    let item = block_on(cache.get(&key(number)));
    let version = item.as_deref().map(|bytes| version_of(number, bytes));
    ledger.lock().end_read(reading, version, label);
    version.is_some()
}
