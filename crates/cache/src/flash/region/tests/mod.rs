//! Tests of the store through its interface.

mod dropped;
mod faults;
mod fidelity;
mod model;
mod races;
mod recovery;
mod restart;
mod threads;
mod twin;
mod whole;

use std::sync::Arc;

use device::{Clock, Device, TickingClock, VirtualClock};
use pollster::block_on;

use super::*;
use crate::KeyHash;
use crate::flash::{FlashItem, Waiting};

/// 24 regions of 64 KiB.
pub(super) fn small() -> RegionConfig {
    RegionConfig { region_bytes: 64 << 10, max_write_bytes: 16 << 10, ..RegionConfig::new(24 * (64 << 10)) }
}

/// RIPQ over [`small`] regions.
pub(super) fn ripq(change: impl FnOnce(&mut RipqConfig)) -> RegionConfig {
    let mut config = RipqConfig { sections: 4, ..RipqConfig::new(Caching::Slru { segments: 4 }) };
    change(&mut config);
    RegionConfig { order: OrderConfig::Ripq(config), buffers: 6, ..small() }
}

pub(super) fn blockcache() -> RegionConfig {
    RegionConfig { order: OrderConfig::SegmentedLru { segments: 4 }, ..small() }
}

/// Its pauses end.
pub(super) fn clock() -> TickingClock {
    TickingClock::new(20_000_000)
}

pub(super) fn open(device: Arc<dyn Device>, config: RegionConfig) -> RegionStore {
    open_at(device, config, Arc::new(clock()))
}

pub(super) fn open_at(device: Arc<dyn Device>, config: RegionConfig, clock: Arc<dyn Clock>) -> RegionStore {
    RegionStore::create(device, clock, config, StoreId(7)).expect("a sound configuration")
}

/// The value of a key's version, which any reader can compute.
pub(super) fn value(key: u64, version: u64) -> Vec<u8> {
    let seed = value_seed(key, version);
    (0..value_bytes(seed) as u64).map(|at| (seed.rotate_left((at % 64) as u32) ^ at) as u8).collect()
}

fn value_seed(key: u64, version: u64) -> u64 {
    KeyHash(key.wrapping_mul(31) ^ version << 32).remix()
}

fn value_bytes(seed: u64) -> usize {
    100 + (seed % 6000) as usize
}

/// The version up to `newest` whose value is `found`.
pub(super) fn version_of(key: u64, found: &[u8], newest: u64) -> Option<u64> {
    let has_length = |version: &u64| value_bytes(value_seed(key, *version)) == found.len();
    (0..=newest).rev().filter(has_length).find(|&version| found == value(key, version))
}

/// Inserts an item, and runs background steps while the store is full.
pub(super) fn put(store: &RegionStore, key: &[u8], value: &[u8], expiry_seconds: u32) {
    let item = FlashItem { key, hash: KeyHash::of(key), value: &[value], expiry_seconds, tag: 3 };
    loop {
        match store.stage(&item) {
            Ok(staged) => return store.commit(staged),
            Err(Refusal::Full) => assert_ne!(step(store), Progress::Idle, "full and nothing to do"),
            Err(Refusal::Failing) => drop(step(store)),
            Err(refusal) => panic!("{refusal}"),
        }
    }
}

pub(super) fn put_version(store: &RegionStore, key: u64, version: u64) {
    put(store, &key.to_le_bytes(), &value(key, version), 0);
}

pub(super) fn get(store: &RegionStore, key: u64) -> Lookup {
    let key = key.to_le_bytes();
    block_on(store.read(KeyHash::of(&key), &key, Waiting::Thread))
}

pub(super) fn forget(store: &RegionStore, key: u64) -> bool {
    store.forget(KeyHash::of(&key.to_le_bytes()))
}

pub(super) fn step(store: &RegionStore) -> Progress {
    block_on(store.step(Waiting::Thread))
}

pub(super) fn work_until_idle(store: &RegionStore) {
    while step(store) != Progress::Idle {}
}

pub(super) fn drain(store: &RegionStore) {
    block_on(store.drain(Waiting::Thread));
}

/// Asserts that every inserted item is present or counted as removed.
pub(super) fn assert_accounts_balance(store: &RegionStore) {
    let stats = store.stats();
    let left = stats.overwritten + stats.forgotten + stats.evictions + stats.items_lost;
    let there = store.len() as u64;
    let came = stats.inserts + stats.items_restored;
    assert!(came - left >= there && came - left - stats.expired <= there, "{there} items; {stats:?}");
}
