//! Small caches on small devices, and values that contain their key and version.

use std::sync::Arc;

use device::{Clock, Device};
use flashwright_cache::config::regions::{Caching, OrderConfig, RipqConfig};
use flashwright_cache::config::{self, CacheConfig, DramConfig, LogOptions, UpkeepConfig};
use flashwright_cache::{Cache, CacheError, FlashConfig, KeyHash, SmallItems};
use policy::eviction::{EvictionConfig, Kind};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;

/// Bytes before the pattern: key and version.
const STAMP_BYTES: usize = 16;

/// `usual` seeds, or a multiple of them if the environment asks for more.
pub fn seeds(usual: u64) -> std::ops::Range<u64> {
    let times = std::env::var("FLASHWRIGHT_TEST_SEEDS").map_or(1, |text| {
        text.parse().unwrap_or_else(|_| panic!("FLASHWRIGHT_TEST_SEEDS is a number, not {text:?}"))
    });
    0..usual * times
}

/// A flash tier with both engines, so small that its regions and buckets are overwritten often.
pub fn flash(device: Arc<dyn Device>) -> FlashConfig {
    let mut flash = FlashConfig::new(device);
    flash.small_items = Some(SmallItems::Sets);
    flash.pairs[0].soc_share = 0.4;
    flash.small_item_max_bytes = 1000;
    flash.pending_bytes = 24 << 10;
    flash.regions.region_bytes = 64 << 10;
    flash.regions.max_write_bytes = 16 << 10;
    flash
}

/// All data in regions, whose items are ordered by RIPQ.
pub fn ripq(flash: &mut FlashConfig, caching: Caching) {
    flash.pairs[0].soc_share = 0.0;
    flash.regions.order = OrderConfig::Ripq(RipqConfig { sections: 3, ..RipqConfig::new(caching) });
    flash.regions.buffers = 5;
}

/// All data in regions, with the region order of BlockCache.
pub fn blockcache(flash: &mut FlashConfig) {
    flash.pairs[0].soc_share = 0.0;
    flash.regions.order = OrderConfig::SegmentedLru { segments: 3 };
}

/// Small items in a log in hash order.
pub fn small_item_log(flash: &mut FlashConfig) {
    let options = LogOptions { expected_item_bytes: 200, ..LogOptions::default() };
    flash.small_items = Some(SmallItems::Log(options));
}

/// A cache with `dram_bytes` in slabs of 64 KiB before `flash`.
pub fn cache_config(flash: FlashConfig, dram_bytes: u64, seed: u64) -> CacheConfig {
    let kinds = [Kind::S3Fifo, Kind::Lru, Kind::Sieve, Kind::Fifo];
    let policy = EvictionConfig::new(kinds[seed as usize % kinds.len()]);
    let mut dram = DramConfig::new(dram_bytes, config::eviction(policy));
    dram.slab_bytes = Some(64 << 10);
    dram.alloc_sizes = vec![256, 1024, 4096, 16 << 10];
    CacheConfig {
        dram,
        flash: Some(flash),
        upkeep: UpkeepConfig::default(),
        seed,
        hash_seed: None,
        on_remove: None,
        on_evict: None,
        item_destructor: None,
        events: None,
        spawner: None,
        memory_budget_bytes: None,
    }
}

/// Opens a cache whose background steps are called by the test.
pub fn open_stepped(config: CacheConfig, clock: Arc<dyn Clock>) -> Result<Cache, CacheError> {
    Cache::builder().config(config).clock(clock).open_stepped()
}

pub fn key(number: u64) -> [u8; 12] {
    let mut key = *b"key-........";
    key[4..].copy_from_slice(&number.to_le_bytes());
    key
}

/// The value of a version of a key. Three of four keys go to buckets, the others to regions; versions of a key differ
/// in length, so that keys move between the two.
pub fn value(number: u64, version: u64) -> Vec<u8> {
    let seed = KeyHash(number.wrapping_mul(0x9E37) ^ version << 32).remix();
    let len = if seed.is_multiple_of(4) { 1100 + seed % 7001 } else { 20 + seed % 881 };
    let mut bytes = [number.to_le_bytes(), version.to_le_bytes()].concat();
    let pattern = (0..).flat_map(|at: u64| KeyHash(seed ^ at).remix().to_le_bytes());
    bytes.extend(pattern.take(len as usize - STAMP_BYTES));
    bytes
}

/// The version that `bytes` contain.
///
/// # Panics
/// If any byte differs from the value of that version of the key.
pub fn version_of(number: u64, bytes: &[u8]) -> u64 {
    let stamp = bytes.get(8..STAMP_BYTES).expect("a value begins with its stamp");
    let version = u64::from_le_bytes(stamp.try_into().expect("eight bytes"));
    assert!(bytes == value(number, version), "key {number} has bytes that were never its value");
    version
}
