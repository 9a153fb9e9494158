//! The share of a device that holds keys and values, with default settings.
use std::collections::HashSet;
use std::sync::Arc;

use device::MemoryDevice;
use flashwright_cache::config::PairConfig;
use flashwright_cache::{Cache, FlashConfig, InsertOptions, Inserted};

const MIB: u64 = 1 << 20;

fn value_len(key: u64) -> usize {
    let spread = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (16 << 10) + spread as usize % (44 << 10)
}

/// A cache under continuous inserts, and its device.
struct Filling {
    cache: Cache,
    device_bytes: u64,
    keys: u64,
}

impl Filling {
    fn new(device_mib: u64) -> Self {
        let device_bytes = device_mib * MIB;
        let mut flash = FlashConfig::new(Arc::new(MemoryDevice::new(device_bytes)));
        flash.pairs = vec![PairConfig { device_share: 1.0, soc_share: 0.0 }];
        let cache = Cache::builder().dram_bytes(8 * MIB).flash_config(flash).open().unwrap();
        Self { cache, device_bytes, keys: 0 }
    }

    fn insert(&mut self, bytes: u64) {
        let value = vec![7; 60 << 10];
        let mut inserted_bytes = 0;
        while inserted_bytes < bytes {
            let value = &value[..value_len(self.keys)];
            let stored =
                self.cache.insert_blocking(&self.keys.to_le_bytes(), value, InsertOptions::default());
            assert_eq!(stored, Inserted::Stored);
            (self.keys, inserted_bytes) = (self.keys + 1, inserted_bytes + 8 + value.len() as u64);
        }
    }

    /// Bytes of keys and values on the device, divided by the size of the device.
    fn held_share(&self) -> f64 {
        let mut in_dram = HashSet::new();
        self.cache.for_each_key_in_dram(|key| {
            in_dram.insert(u64::from_le_bytes(key.try_into().unwrap()));
        });
        let is_on_flash = |key: &u64| !in_dram.contains(key) && self.cache.contains(&key.to_le_bytes());
        let held: u64 = (0..self.keys).filter(is_on_flash).map(|key| 8 + value_len(key) as u64).sum();
        held as f64 / self.device_bytes as f64
    }
}

#[test]
fn small_and_large_devices_hold_equal_shares_of_keys_and_values() {
    let mut filling = Filling::new(256);
    filling.insert(filling.device_bytes * 3 / 2);
    // Reclaimed regions are empty until they are refilled, so the share varies.
    for _ in 0..32 {
        filling.insert(filling.device_bytes / 512);
        let share = filling.held_share();
        assert!(share >= 0.94, "{share:.3} of the device is keys and values");
    }
}
