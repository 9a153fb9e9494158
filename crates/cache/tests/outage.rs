//! A device whose writes fail for a while, under a cache with its own threads: nothing is given up for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::wrap::{FaultDevice, Faults};
use device::{Completion, Counters, Device, ErrorKind, Geometry, IoError, MemoryDevice, Outcome, Request};
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
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request, completion: Completion) {
        completion.complete(self.execute(request));
    }

    fn execute(&self, request: Request) -> Outcome {
        if self.is_full.load(Ordering::SeqCst) && matches!(request, Request::Write { .. }) {
            return Err(IoError::new(ErrorKind::NoSpace, "No space left on device"));
        }
        self.inner.execute(request)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
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
    while !holds(&cache.health().expect("there is a flash tier")) {
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

fn stored(cache: &Cache) -> u64 {
    cache.stats().flash.expect("there is a flash tier").puts.stored
}

/// The regions that failed meanwhile were retired permanently, also across a clean close: large items had no flash any more.
#[test]
fn full_file_system_that_gets_room_again_is_used_again_and_so_after_a_restart() {
    let disk = Arc::new(FullDisk { inner: MemoryDevice::new(64 * MIB), is_full: AtomicBool::new(false) });
    let cache = open(&disk);
    insert(&cache, 0..2000);
    disk.is_full.store(true, Ordering::SeqCst);
    // Ten times the capacity of the device: inserts do not wait for it.
    insert(&cache, 2000..32_000);
    wait_until(&cache, |health| health.is_failing && health.regions_to_retry > 0);
    let health = cache.health().expect("there is a flash tier");
    assert!(health.last_error.is_some_and(|error| error.contains("No space left")));
    assert!(cache.stats().flash.expect("there is a flash tier").puts.rejected_failing > 10_000);
    disk.is_full.store(false, Ordering::SeqCst);
    wait_until(&cache, FlashHealth::is_healthy);
    let before = stored(&cache);
    insert(&cache, 40_000..42_000);
    cache.settle_blocking().expect("the device works again");
    assert!(stored(&cache) - before > 1500, "{} of 2000", stored(&cache) - before);
    let flash = cache.stats().flash.expect("there is a flash tier");
    let regions = flash.regions.expect("there are regions");
    assert_eq!((regions.regions_retired, flash.health.retired_bytes), (0, 0));
    cache.close().expect("the device works again");

    let cache = open(&disk);
    let found =
        (40_000..42_000_u32).filter(|number| cache.get_blocking(&number.to_le_bytes()).is_some()).count();
    assert!(found > 1500, "{found} of 2000 after a restart");
    assert!(cache.health().is_some_and(|health| health.is_healthy()));
}

/// A restart put the bad region back into service.
#[test]
fn region_that_was_retired_stays_retired_after_a_restart_until_it_can_be_written() {
    const REGION: u64 = MIB;
    let disk = Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(64 * MIB)), 0, Faults::default()));
    let open = || {
        let mut flash = FlashConfig::new(Arc::clone(&disk) as _);
        flash.regions.region_bytes = REGION as u32;
        Cache::builder().dram_bytes(8 * MIB).flash_config(flash).open().expect("the configuration fits")
    };
    let retired = |cache: &Cache| {
        let health = cache.health().expect("there is a flash tier");
        (health.retired_regions, health.retired_bytes)
    };
    // Bad blocks in one of the regions.
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
    assert_eq!(retired(&cache), (1, REGION), "it is tested at once, and still fails");
    cache.close().expect("only one region fails");
    disk.fail_where(|_| false);
    let cache = open();
    wait_until(&cache, FlashHealth::is_healthy);
    assert_eq!(cache.stats().flash.and_then(|flash| flash.regions).map(|it| it.regions_returned), Some(1));
}
