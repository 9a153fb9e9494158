//! A device whose writes fail temporarily, under a cache with its own threads: no region is retired permanently.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::wrap::{FaultDevice, Faults};
use device::{Completion, Device, ErrorKind, IoError, MemoryDevice, Outcome, Request};
use flashwright_cache::stats::FlashHealth;
use flashwright_cache::{Cache, FlashConfig, InsertOptions};

const MIB: u64 = 1 << 20;
static VALUE: [u8; 20_000] = [7; 20_000];

/// A file on a file system that can be full.
struct FullDisk {
    inner: MemoryDevice,
    is_full: AtomicBool,
}

impl Device for FullDisk {
    device::forward_device!(inner: geometry, counters);

    fn submit(&self, request: Request, completion: Completion) {
        completion.complete(self.execute(request));
    }

    fn execute(&self, request: Request) -> Outcome {
        if self.is_full.load(Ordering::SeqCst) && matches!(request, Request::Write { .. }) {
            return Err(IoError::new(ErrorKind::NoSpace, "No space left on device"));
        }
        self.inner.execute(request)
    }
}

fn open(disk: &Arc<FullDisk>) -> Cache {
    let mut flash = FlashConfig::new(Arc::clone(disk) as _);
    flash.regions.region_bytes = MIB as u32;
    Cache::builder().dram_bytes(8 * MIB).flash_config(flash).open().expect("the configuration fits")
}

fn insert(cache: &Cache, numbers: std::ops::Range<u32>) {
    for number in numbers {
        cache.insert_blocking(&number.to_le_bytes(), &VALUE, InsertOptions::default());
    }
}

fn wait_until(cache: &Cache, holds: impl Fn(&FlashHealth) -> bool) {
    while !holds(&cache.health().expect("the cache has flash")) {
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

fn stored(cache: &Cache) -> u64 {
    cache.stats().flash.expect("the cache has flash").puts.stored
}

/// Catches a regression: regions whose writes fail while the file system is full are retired permanently, also after a
/// clean close, so large items are no longer written to flash.
#[test]
fn flash_on_a_full_file_system_is_used_again_after_space_is_freed_and_after_restart() {
    let disk = Arc::new(FullDisk { inner: MemoryDevice::new(64 * MIB), is_full: AtomicBool::new(false) });
    let cache = open(&disk);
    insert(&cache, 0..2000);
    disk.is_full.store(true, Ordering::SeqCst);
    // Ten times the capacity of the device, so items are dropped: inserts do not wait for the device.
    insert(&cache, 2000..32_000);
    wait_until(&cache, |health| health.is_failing && health.regions_to_retry > 0);
    let health = cache.health().expect("the cache has flash");
    assert!(health.last_error.is_some_and(|error| error.contains("No space left")));
    assert!(cache.stats().flash.expect("the cache has flash").puts.rejected_failing > 10_000);
    disk.is_full.store(false, Ordering::SeqCst);
    wait_until(&cache, FlashHealth::is_healthy);
    let before = stored(&cache);
    insert(&cache, 40_000..42_000);
    cache.settle_blocking().expect("the device works again");
    assert!(stored(&cache) - before > 1500, "{} of 2000", stored(&cache) - before);
    let flash = cache.stats().flash.expect("the cache has flash");
    let regions = flash.regions.expect("there are regions");
    assert_eq!((regions.regions_retired, flash.health.retired_bytes), (0, 0));
    cache.close().expect("the device works again");

    let cache = open(&disk);
    let found =
        (40_000..42_000_u32).filter(|number| cache.get_blocking(&number.to_le_bytes()).is_some()).count();
    assert!(found > 1500, "{found} of 2000 after a restart");
    assert!(cache.health().is_some_and(|health| health.is_healthy()));
}

/// Catches a regression: a restart uses the retired region again.
#[test]
fn retired_region_stays_retired_after_restart_until_it_can_be_written() {
    const REGION: u64 = MIB;
    let disk = Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(64 * MIB)), 0, Faults::default()));
    let open = || {
        let mut flash = FlashConfig::new(Arc::clone(&disk) as _);
        flash.regions.region_bytes = REGION as u32;
        Cache::builder().dram_bytes(8 * MIB).flash_config(flash).open().expect("the configuration fits")
    };
    let retired = |cache: &Cache| {
        let health = cache.health().expect("the cache has flash");
        (health.retired_regions, health.retired_bytes)
    };
    // Bad blocks in one region.
    disk.fail_where(|request| {
        matches!(request, Request::Write { offset, data, .. }
            if *offset < 40 * MIB + 4096 && *offset + data.len() as u64 > 40 * MIB)
    });
    let cache = open();
    for number in 0.. {
        insert(&cache, number..number + 1);
        if retired(&cache).0 > 0 {
            break;
        }
    }
    assert_eq!(retired(&cache), (1, REGION));
    cache.close().expect("only one region fails");
    let cache = open();
    assert_eq!(retired(&cache), (1, REGION), "the retired region is tested immediately and still fails");
    cache.close().expect("only one region fails");
    disk.fail_where(|_| false);
    let cache = open();
    wait_until(&cache, FlashHealth::is_healthy);
    assert_eq!(cache.stats().flash.and_then(|flash| flash.regions).map(|it| it.regions_returned), Some(1));
}
