//! Items that have expired stay expired when the machine's date is set back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use device::{Clock, MemoryDevice};
use flashwright_cache::config::LogOptions;
use flashwright_cache::{Cache, FlashConfig, InsertOptions, SmallItems};

const MIB: u64 = 1 << 20;
const ITEMS: u32 = 1000;
const START: u32 = 1_800_000_000;

/// A clock whose date can be set.
struct Machine {
    date: AtomicU32,
    monotonic_ns: AtomicU64,
}

impl Machine {
    fn new() -> Arc<Self> {
        Arc::new(Self { date: AtomicU32::new(START), monotonic_ns: AtomicU64::new(0) })
    }

    fn pass(&self, seconds: u32) {
        self.monotonic_ns.fetch_add(u64::from(seconds) * 1_000_000_000, Ordering::SeqCst);
        self.date.fetch_add(seconds, Ordering::SeqCst);
    }

    fn set_back(&self, seconds: u32) {
        self.date.fetch_sub(seconds, Ordering::SeqCst);
    }
}

impl Clock for Machine {
    fn monotonic_ns(&self) -> u64 {
        self.monotonic_ns.load(Ordering::SeqCst)
    }

    fn unix_seconds(&self) -> u32 {
        self.date.load(Ordering::SeqCst)
    }
}

fn open(device: &Arc<MemoryDevice>, machine: &Arc<Machine>, small_items: SmallItems) -> Cache {
    let mut flash = FlashConfig::new(Arc::clone(device) as _);
    flash.pairs[0].soc_share = 0.5;
    flash.regions.region_bytes = MIB as u32;
    let clock = Arc::clone(machine) as Arc<dyn Clock>;
    let builder = Cache::builder().dram_bytes(2 * MIB).flash_config(flash).small_items(small_items);
    builder.clock(clock).open().expect("the configuration is valid")
}

/// Both engines for small items.
fn engines() -> [SmallItems; 2] {
    [SmallItems::Sets, SmallItems::Log(LogOptions::default())]
}

/// Inserts small and large items alternately: some stay in DRAM, some go to buckets, some to regions.
fn fill(cache: &Cache, ttl_seconds: Option<u32>) {
    let options = InsertOptions { ttl_seconds, ..InsertOptions::default() };
    for number in 0..ITEMS {
        let len = if number.is_multiple_of(2) { 300 } else { 8000 };
        cache.insert_blocking(&number.to_le_bytes(), &vec![7; len], options);
    }
}

fn found(cache: &Cache) -> usize {
    (0..ITEMS).filter(|number| cache.get_blocking(&number.to_le_bytes()).is_some()).count()
}

/// Catches a regression: 979 of 1,000 expired items are found again.
#[test]
fn expired_items_stay_expired_when_the_date_is_set_back() {
    for small_items in engines() {
        let (device, machine) = (Arc::new(MemoryDevice::new(32 * MIB)), Machine::new());
        let cache = open(&device, &machine, small_items);
        fill(&cache, Some(60));
        assert!(found(&cache) > 900);
        machine.pass(61);
        assert!(!cache.contains(b"never inserted"));
        // The clock is read by gets and by background work; one of them suffices.
        assert!(cache.get_blocking(&0_u32.to_le_bytes()).is_none());
        machine.set_back(3600);
        assert_eq!(found(&cache), 0);
    }
}

/// Catches a regression: items expire an hour too late for each hour that the date is set back.
#[test]
fn items_expire_in_time_after_the_date_is_set_back() {
    for small_items in engines() {
        let (device, machine) = (Arc::new(MemoryDevice::new(32 * MIB)), Machine::new());
        let cache = open(&device, &machine, small_items);
        machine.set_back(3600);
        fill(&cache, Some(60));
        machine.pass(50);
        assert!(found(&cache) > 900);
        machine.pass(11);
        assert_eq!(found(&cache), 0);
    }
}

#[test]
fn expired_items_stay_expired_when_the_date_is_set_back_before_a_restart() {
    for small_items in engines() {
        let (device, machine) = (Arc::new(MemoryDevice::new(32 * MIB)), Machine::new());
        let cache = open(&device, &machine, small_items);
        fill(&cache, Some(60));
        machine.pass(61);
        assert!(cache.get_blocking(&0_u32.to_le_bytes()).is_none());
        cache.close().expect("memory takes writes");
        machine.set_back(3600);
        let cache = open(&device, &machine, small_items);
        assert!(cache.stats().flash.is_some_and(|flash| flash.recovered));
        assert_eq!(found(&cache), 0);
        fill(&cache, Some(60));
        assert!(found(&cache) > 900);
        machine.pass(61);
        assert_eq!(found(&cache), 0, "the time continues from the last close");
    }
}

#[test]
fn items_without_ttl_never_expire() {
    for small_items in engines() {
        let (device, machine) = (Arc::new(MemoryDevice::new(32 * MIB)), Machine::new());
        let cache = open(&device, &machine, small_items);
        fill(&cache, None);
        machine.set_back(START / 2);
        assert!(found(&cache) > 900);
        machine.pass(START / 3);
        assert!(found(&cache) > 900);
    }
}
