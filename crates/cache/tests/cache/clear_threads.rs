//! Clears during concurrent requests. An item inserted before a clear begins is not found by any get that begins after
//! the clear ends, even if the item moves between DRAM and flash during the clear. The next cache on the device does
//! not find it either.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::MemoryDevice;
use flashwright_cache::config::LogOptions;
use flashwright_cache::config::regions::{Caching, OrderConfig, Reinsertion, RipqConfig};
use flashwright_cache::{Cache, Fetched, FlashConfig, InsertOptions, Inserted, SmallItems};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const MIB: u64 = 1 << 20;
const KEYS: u64 = 2_000;
const CLEARS: u64 = 60;
const THREADS: u64 = 4;
const DEFAULT_OPTIONS: InsertOptions = InsertOptions { pool: 0, ttl_seconds: None };

fn cache(device: &Arc<MemoryDevice>, change: fn(&mut FlashConfig)) -> Cache {
    let mut flash = FlashConfig::new(Arc::clone(device) as _);
    flash.pairs[0].soc_share = 0.5;
    flash.regions.region_bytes = 128 << 10;
    flash.pending_bytes = 64 << 10;
    change(&mut flash);
    Cache::builder().dram_bytes(2 * MIB).max_item_bytes(16 << 10).flash_config(flash).open().unwrap()
}

/// Numbers of clears begun and ended. Each value contains the number of clears that had begun when it was created.
#[derive(Default)]
struct Clears {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Clears {
    fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    fn ended(&self) -> u64 {
        self.ended.load(Ordering::SeqCst)
    }

    fn clear(&self, cache: &Cache) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        cache.clear();
        self.ended.fetch_add(1, Ordering::SeqCst);
    }
}

/// A value that contains its key and `number`.
fn value(key: u64, number: u64) -> Vec<u8> {
    let len = if key.is_multiple_of(4) { 3000 } else { 50 + (key as usize * 13) % 900 };
    [key, number].iter().flat_map(|word| word.to_le_bytes()).cycle().take(len).collect()
}

fn number_of(key: u64, bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    assert_eq!(bytes, value(key, number), "key {key}");
    number
}

/// Runs one client; returns its hits. An inserted value counts as created when its insert *completes*. The number of
/// clears begun by then is unknown before, so it is stored separately; until it is stored, any result is valid.
fn client(cache: &Cache, clears: &Arc<Clears>, noted: &[AtomicU64], done: &AtomicBool, seed: u64) -> u64 {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut hits, mut puts) = (0, 0);
    while !done.load(Ordering::Relaxed) {
        let key = random.random_range(0..KEYS);
        let name = key.to_le_bytes();
        let ended = clears.ended();
        let found = match random.random_range(0..8) {
            0..3 if puts + 1 < PUTS_PER_CLIENT => {
                puts += 1;
                let number = seed * PUTS_PER_CLIENT + puts;
                if cache.insert_blocking(&name, &value(key, number), DEFAULT_OPTIONS) == Inserted::Stored {
                    noted[number as usize].store(clears.begun() + 1, Ordering::SeqCst);
                }
                None
            }
            3 => {
                // A value loaded during a clear is not kept, so the number of clears begun at the fetch identifies it.
                let clears = Arc::clone(clears);
                let fetch = async move || Ok::<_, ()>(value(key, LOADED + clears.begun()));
                match pollster::block_on(cache.get_or_insert_with(&name, DEFAULT_OPTIONS, fetch)).unwrap() {
                    Fetched::Found(item) => Some(number_of(key, &item)),
                    Fetched::Made(_) => None,
                }
            }
            _ => cache.get_blocking(&name).map(|item| number_of(key, &item)),
        };
        let Some(number) = found else { continue };
        hits += 1;
        let before = match number.checked_sub(LOADED) {
            Some(begun) => Some(begun),
            None => noted[number as usize].load(Ordering::SeqCst).checked_sub(1),
        };
        assert!(
            before.is_none_or(|before| before >= ended),
            "key {key}: number {number}, there before clear {before:?} began, is found after {ended} ended"
        );
    }
    hits
}

const PUTS_PER_CLIENT: u64 = 100_000;
const LOADED: u64 = 1 << 32;

fn clears_under_threads(change: fn(&mut FlashConfig)) {
    let device = Arc::new(MemoryDevice::new(8 * MIB));
    let (clears, done) = (Arc::<Clears>::default(), AtomicBool::new(false));
    let noted: Vec<_> = (0..THREADS * PUTS_PER_CLIENT).map(|_| AtomicU64::new(0)).collect();
    let cache = cache(&device, change);
    let (clears_ref, done_ref, noted_ref, cache_ref) = (&clears, &done, &noted[..], &cache);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..THREADS)
            .map(|seed| scope.spawn(move || client(cache_ref, clears_ref, noted_ref, done_ref, seed)))
            .collect();
        for round in 0..CLEARS {
            // Some clears follow each other immediately; most run after flash has received new items.
            let crossings = || cache.stats().flash.unwrap().puts.stored;
            let enough = if round % 5 == 0 { 0 } else { crossings() + 1500 };
            while crossings() < enough && !clients.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                std::thread::yield_now();
            }
            clears.clear(&cache);
        }
        done.store(true, Ordering::Relaxed);
        let hits: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
        assert!(hits > 1000, "{hits} hits");
    });
    assert!(cache.stats().gets.hits_flash > 100, "{:?}", cache.stats().gets);
    clears.clear(&cache);
    cache.insert_blocking(b"since", b"the last clear", DEFAULT_OPTIONS);
    cache.close().unwrap();
    let next = self::cache(&device, change);
    assert!(next.stats().flash.unwrap().recovered);
    assert_eq!(next.get_blocking(b"since").as_deref(), Some(&b"the last clear"[..]));
    assert!((0..KEYS).all(|key| next.get_blocking(&key.to_le_bytes()).is_none()));
}

#[test]
fn clear_with_default_regions_leaves_nothing_findable() {
    clears_under_threads(|_| {});
}

#[test]
fn clear_with_reinsertion_leaves_nothing_findable() {
    clears_under_threads(|flash| {
        flash.pairs[0].soc_share = 0.0;
        flash.regions.reinsertion = Reinsertion::Percent { percent: 50, seed: 1 };
        flash.regions.buffers = 5;
        flash.regions.trim = true;
    });
}

#[test]
fn clear_with_ripq_leaves_nothing_findable() {
    clears_under_threads(|flash| {
        flash.pairs[0].soc_share = 0.0;
        let slru = RipqConfig::new(Caching::Slru { segments: 3 });
        flash.regions.order = OrderConfig::Ripq(RipqConfig { sections: 3, ..slru });
        flash.regions.buffers = 5;
    });
}

#[test]
fn clear_with_a_small_item_log_leaves_nothing_findable() {
    clears_under_threads(|flash| {
        flash.pairs[0].soc_share = 1.0;
        flash.small_items = Some(SmallItems::Log(LogOptions::default()));
    });
}

#[test]
fn clear_with_buckets_only_leaves_nothing_findable() {
    clears_under_threads(|flash| flash.pairs[0].soc_share = 1.0);
}
