//! What the stories of races share: a cache whose items leave DRAM in the order they came, a hero among them, and a gate
//! in front of the device.

use std::sync::Arc;

use device::wrap::GateDevice;
use device::{MemoryDevice, VirtualClock};
use flashwright_cache::config::CacheConfig;
use flashwright_cache::{Cache, InsertOptions, Inserted, Item};
use pollster::block_on;

use crate::setup::{KIB, MIB, cache_config, flash, open_stepped};

pub const HERO: &[u8] = b"hero";
pub const AS_USUAL: InsertOptions = InsertOptions { pool: 0, ttl_seconds: None };
/// Values of the two engines: buckets take the first, regions the second.
pub const LENGTHS: [usize; 2] = [150, 3000];

/// The seed by which [`cache_config`] chooses first in, first out.
const FIFO: u64 = 3;

/// A cache behind a gate.
pub struct Stage {
    pub cache: Arc<Cache>,
    pub gate: Arc<GateDevice>,
    pub clock: Arc<VirtualClock>,
    config: CacheConfig,
    extras: std::cell::Cell<u64>,
}

impl Stage {
    pub fn new(change: impl FnOnce(&mut CacheConfig)) -> Self {
        let gate = Arc::new(GateDevice::new(Arc::new(MemoryDevice::new(2 * MIB))));
        let mut flash = flash(Arc::clone(&gate) as _);
        flash.pending_bytes = 8 << 10;
        let mut config = cache_config(flash, 256 * KIB, FIFO);
        change(&mut config);
        let clock = Arc::<VirtualClock>::default();
        let cache = Arc::new(open(&config, &clock));
        Self { cache, gate, clock, config, extras: std::cell::Cell::new(0) }
    }

    /// A stage with the first version of the tested item, of `len` bytes, on flash only.
    pub fn with_hero_on_flash(len: usize) -> Self {
        let stage = Self::new(|_| {});
        stage.put(HERO, &version(1, len));
        stage.push_out(len);
        stage
    }

    /// Inserts; if there is no room on the way to flash, makes some.
    pub fn put(&self, key: &[u8], bytes: &[u8]) {
        let mut insert = Box::pin(self.cache.insert(key, bytes, AS_USUAL));
        let ended = crate::polled::poll(&mut insert).or_else(|| {
            self.step();
            crate::polled::poll(&mut insert)
        });
        assert_eq!(ended, Some(Inserted::Stored));
    }

    /// Inserts one more item that is never read.
    pub fn put_extra(&self, len: usize) {
        let number = self.extras.replace(self.extras.get() + 1);
        self.put(&number.to_le_bytes(), &vec![number as u8; len]);
    }

    /// How many of them there were.
    pub fn extras(&self) -> u64 {
        self.extras.get()
    }

    /// Inserts enough other items of this length to evict all items in DRAM, and settles flash.
    pub fn push_out(&self, len: usize) {
        let times = if len > 1000 { 150 } else { 1300 };
        for _ in 0..times {
            self.put_extra(len);
            self.step();
        }
    }

    pub fn step(&self) {
        while block_on(self.cache.step()) {}
    }

    /// What a get without waiting finds.
    pub fn get(&self, key: &[u8]) -> Option<Item<'_>> {
        crate::polled::poll(&mut Box::pin(self.cache.get(key))).expect("nothing holds the read back")
    }

    /// Asserts the value of the observed key now, after its eviction from DRAM, and after a restart.
    pub fn assert_hero_is(self, expected: Option<&[u8]>, len: usize) {
        assert_eq!(self.get(HERO).as_deref(), expected, "now");
        self.push_out(len);
        assert_eq!(self.get(HERO).as_deref(), expected, "once it has left DRAM");
        let next = self.restart();
        let found = next.get(HERO);
        assert!(found.is_none() || found.as_deref() == expected, "after a restart");
    }

    /// Closes the cache and opens the next one on the same device.
    pub fn restart(self) -> Self {
        let cache = Arc::into_inner(self.cache).expect("nobody else uses the cache");
        cache.close().expect("the device works");
        Self { cache: Arc::new(open(&self.config, &self.clock)), ..self }
    }
}

fn open(config: &CacheConfig, clock: &Arc<VirtualClock>) -> Cache {
    let cache = open_stepped(config.clone(), Arc::clone(clock) as _);
    cache.expect("the configuration fits")
}

pub fn version(number: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| number ^ at as u8).collect()
}
