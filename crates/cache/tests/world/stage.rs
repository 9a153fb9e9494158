//! Common setup of the race tests: a cache that evicts from DRAM in insertion order, an item under test, and a gate
//! that holds device requests.

use std::sync::Arc;

use device::wrap::GateDevice;
use device::{MemoryDevice, VirtualClock};
use flashwright_cache::config::CacheConfig;
use flashwright_cache::{Cache, InsertOptions, Inserted, Item};
use pollster::block_on;

use crate::setup::{KIB, MIB, cache_config, flash, open_stepped};

pub const TARGET: &[u8] = b"target";
pub const DEFAULT_OPTIONS: InsertOptions = InsertOptions { pool: 0, ttl_seconds: None };
/// Lengths of two values: the first is stored in buckets, the second in regions.
pub const LENGTHS: [usize; 2] = [150, 3000];

/// The seed for which [`cache_config`] chooses first in, first out.
const FIFO: u64 = 3;

/// A cache whose device requests pass a gate.
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
    pub fn with_target_on_flash(len: usize) -> Self {
        let stage = Self::new(|_| {});
        stage.put(TARGET, &version(1, len));
        stage.evict_to_flash(len);
        stage
    }

    /// Inserts an item, after a background step if flash has no space.
    pub fn put(&self, key: &[u8], bytes: &[u8]) {
        let mut insert = Box::pin(self.cache.insert(key, bytes, DEFAULT_OPTIONS));
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

    /// Number of items inserted by [`put_extra`](Self::put_extra).
    pub fn extras(&self) -> u64 {
        self.extras.get()
    }

    /// Inserts enough other items of this length to evict all items in DRAM, and settles flash.
    pub fn evict_to_flash(&self, len: usize) {
        let times = if len > 1000 { 150 } else { 1300 };
        for _ in 0..times {
            self.put_extra(len);
            self.step();
        }
    }

    pub fn step(&self) {
        while block_on(self.cache.step()) {}
    }

    /// The result of a get that completes without waiting.
    pub fn get(&self, key: &[u8]) -> Option<Item<'_>> {
        crate::polled::poll(&mut Box::pin(self.cache.get(key)))
            .expect("the gate is open, so the read completes")
    }

    /// Asserts the value of the item under test now, after its eviction from DRAM, and after a restart.
    pub fn assert_target_is(self, expected: Option<&[u8]>, len: usize) {
        assert_eq!(self.get(TARGET).as_deref(), expected, "now");
        self.evict_to_flash(len);
        assert_eq!(self.get(TARGET).as_deref(), expected, "after its eviction from DRAM");
        let next = self.restart();
        let found = next.get(TARGET);
        assert!(found.is_none() || found.as_deref() == expected, "after a restart");
    }

    /// Closes the cache and opens the next one on the same device.
    pub fn restart(self) -> Self {
        let cache = Arc::into_inner(self.cache).expect("this is the only reference");
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
