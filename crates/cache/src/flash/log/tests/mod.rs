//! Tests of the log through its interface.
#![allow(unexpected_cfgs, reason = "`shuttle` is set by hand, for the schedule-exploring tests only")]

#[cfg(not(shuttle))]
mod behaviour;
#[cfg(not(shuttle))]
mod evict;
#[cfg(not(shuttle))]
mod model;
#[cfg(not(shuttle))]
mod outage;
#[cfg(not(shuttle))]
mod pace;
#[cfg(shuttle)]
mod races;
#[cfg(not(shuttle))]
mod recovery;

use std::sync::Arc;

use device::{Device, MemoryDevice};
use pollster::block_on;

use super::*;
use crate::flash::Waiting;
#[cfg(not(shuttle))]
use crate::flash::journal::{ChainError, JournalOptions};

const NOW: u32 = 1_000;

/// 16 regions of 12 pages of 4 KiB, without readmission.
fn config() -> LogConfig {
    LogConfig {
        regions: Some(16),
        expected_item_bytes: 100,
        readmission_share: 0.0,
        ..LogConfig::new(4096, 16 * 12 * 4096, 42)
    }
}

fn memory() -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::with_block_bytes(1 << 20, 4096))
}

fn log_on(device: &Arc<impl Device + 'static>, config: LogConfig) -> HashLog {
    HashLog::new(Arc::clone(device) as Arc<dyn Device>, config).expect("a valid configuration")
}

/// A log with fingerprints of a few bits, so that they collide.
fn colliding_log(device: &Arc<impl Device + 'static>, config: LogConfig, fingerprint_bits: u32) -> HashLog {
    config.check(&device.geometry()).expect("a valid configuration");
    let shape = Shape { fingerprint_bits, ..config.shape(SHARDS) };
    HashLog::with_shape(Arc::clone(device) as Arc<dyn Device>, config, shape)
}

fn put(log: &HashLog, key: &str, value: &str, expiry_seconds: u32) {
    put_at(log, key, value, expiry_seconds, NOW);
}

fn put_at(log: &HashLog, key: &str, value: &str, expiry_seconds: u32, now: u32) {
    block_on(async {
        while !log.ready() {
            log.step(Waiting::Thread, now).await;
        }
    });
    let hash = KeyHash::of(key.as_bytes());
    let value: &[&[u8]] = &[value.as_bytes()];
    let item = FlashItem { key: key.as_bytes(), hash, value, expiry_seconds, tag: 9 };
    log.commit(log.stage(&item).expect("the log is ready"));
}

fn forget(log: &HashLog, key: &str) -> bool {
    log.forget(KeyHash::of(key.as_bytes()), key.as_bytes())
}

fn get_at(log: &HashLog, key: &str, now: u32) -> Option<String> {
    let hash = KeyHash::of(key.as_bytes());
    let value = block_on(log.read(hash, key.as_bytes(), Waiting::Thread, now))?;
    assert_eq!(value.tag, 9);
    Some(String::from_utf8(value.to_vec()).expect("a value is text"))
}

fn get(log: &HashLog, key: &str) -> Option<String> {
    get_at(log, key, NOW)
}

fn drain(log: &HashLog) {
    block_on(log.drain(Waiting::Thread, NOW));
}
