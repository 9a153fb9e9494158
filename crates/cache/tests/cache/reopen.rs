//! Recovery: a clean close keeps items, and a crash must not bring back stale ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use device::wrap::{FaultDevice, Faults};
use device::{Device, MemoryDevice, Request};
use flashwright_cache::config::{PairConfig, PoolId};
use flashwright_cache::{Cache, CacheError, FlashConfig, InsertOptions, SmallItems, block_on};

const MIB: u64 = 1 << 20;
const ITEMS: u64 = 20_000;

fn open(device: &Arc<MemoryDevice>) -> Cache {
    open_with(device, MIB)
}

fn open_with(device: &Arc<MemoryDevice>, dram_bytes: u64) -> Cache {
    let device: Arc<dyn Device> = Arc::clone(device) as _;
    let mut flash = FlashConfig::new(device);
    flash.pairs[0].soc_share = 0.5;
    flash.regions.region_bytes = MIB as u32;
    Cache::builder().dram_bytes(dram_bytes).flash_config(flash).open().expect("the configuration fits")
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    let len = if number.is_multiple_of(8) { 4000 } else { 200 };
    number.to_le_bytes().iter().copied().cycle().take(len).collect()
}

fn fill(cache: &Cache) {
    for number in 0..ITEMS {
        cache.insert_blocking(&key(number), &value(number), InsertOptions::default());
    }
}

/// Numbers of the keys that are found; each value is checked.
fn found(cache: &Cache) -> Vec<u64> {
    let numbers = (0..ITEMS).filter(|&number| {
        let item = cache.get_blocking(&key(number));
        assert!(item.as_deref().is_none_or(|item| item == value(number)), "key {number} has another's value");
        item.is_some()
    });
    numbers.collect()
}

#[test]
fn clean_close_keeps_items_on_flash() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let cache = open(&device);
    fill(&cache);
    let stored = cache.stats().flash.unwrap().puts.stored;
    cache.close().unwrap();
    let cache = open(&device);
    assert!(cache.stats().flash.unwrap().recovered);
    let kept = found(&cache).len() as u64;
    assert!(kept * 100 >= stored * 99, "{kept} of {stored} found after reopen");
}

#[test]
fn time_of_a_clear_is_kept_until_it_is_reset() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let reopened = |cache: Cache| {
        cache.close().unwrap();
        open(&device)
    };
    let cache = open(&device);
    assert_eq!(cache.clear_time(), None);
    block_on(cache.set_clear_time(Some(77))).unwrap();
    let cache = reopened(cache);
    assert_eq!(cache.clear_time(), Some(77));
    block_on(cache.set_clear_time(None)).unwrap();
    assert_eq!(reopened(cache).clear_time(), None);
    let dram_alone = Cache::builder().dram_bytes(MIB).open().unwrap();
    block_on(dram_alone.set_clear_time(Some(77))).unwrap();
    assert_eq!(dram_alone.clear_time(), None);
}

#[test]
fn clean_close_keeps_items_of_dram() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let cache = open_with(&device, 16 * MIB);
    // Few enough to fit in DRAM, so that the close is the first write to flash.
    let few = 1_000;
    for number in 0..few {
        cache.insert_blocking(&key(number), &value(number), InsertOptions::default());
    }
    for number in 0..few / 10 {
        cache.add_chained_blocking(&key(number), 300, |link| link.fill(7)).unwrap();
    }
    let in_dram = found(&cache).len();
    assert!(in_dram as u64 == few && cache.stats().flash.unwrap().puts.offered == 0, "{:?}", cache.stats());
    cache.close().unwrap();
    let cache = open_with(&device, 16 * MIB);
    assert_eq!(found(&cache).len(), in_dram, "all items of DRAM are found after reopen");
    for number in 0..few / 10 {
        let item = cache.get_blocking(&key(number)).unwrap();
        assert_eq!(item.chain().map(<[u8]>::len).collect::<Vec<_>>(), [300], "key {number} keeps its chain");
    }
}

#[test]
fn close_of_a_full_cache_evicts_the_oldest_flash_items_for_those_in_dram() {
    let device = Arc::new(MemoryDevice::new(16 * MIB));
    let cache = open(&device);
    fill(&cache);
    let large = |range: std::ops::Range<u64>| range.filter(|number| number.is_multiple_of(8));
    let newest = || large(ITEMS - 200..ITEMS);
    assert!(newest().all(|number| cache.get_blocking(&key(number)).is_some()));
    cache.close().unwrap();
    let back = found(&open(&device));
    assert!(newest().all(|number| back.contains(&number)), "the newest items are found after reopen");
    assert!(!large(0..200).any(|number| back.contains(&number)), "the oldest items do not fit");
}

#[test]
fn close_without_threads_writes_dram_to_flash() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let builder = || Cache::builder().dram_bytes(32 * MIB).flash(Arc::clone(&device) as _);
    let cache = builder().open_stepped().unwrap();
    for number in 0..5_000 {
        let inserted =
            pollster::block_on(cache.insert(&key(number), &value(number), InsertOptions::default()));
        assert_eq!(inserted, flashwright_cache::Inserted::Stored);
    }
    cache.close().unwrap();
    assert_eq!(found(&builder().open().unwrap()).len(), 5_000);
}

#[test]
fn removed_items_stay_removed_after_a_reopen() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let cache = open(&device);
    fill(&cache);
    let removed: Vec<u64> = (0..ITEMS).filter(|number| number % 3 == 0).collect();
    removed.iter().for_each(|&number| {
        cache.remove(&key(number));
    });
    cache.close().unwrap();
    let back = found(&open(&device));
    assert!(!back.is_empty());
    let returned: Vec<_> = back.iter().filter(|number| removed.contains(number)).collect();
    assert!(returned.is_empty(), "removed keys came back: {returned:?}");
}

#[test]
fn cache_that_was_not_closed_reopens_empty() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let cache = open(&device);
    fill(&cache);
    drop(cache);
    let cache = open(&device);
    assert!(!cache.stats().flash.unwrap().recovered);
    assert_eq!(found(&cache), []);
}

#[test]
fn reason_for_an_empty_start_is_reported() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let loss = |cache: &Cache| cache.stats().flash.unwrap().loss;
    let cache = open(&device);
    assert_eq!(loss(&cache), None, "the device is empty");
    fill(&cache);
    drop(cache);
    let cache = open(&device);
    assert!(loss(&cache).unwrap().starts_with("it was not closed"));
    cache.close().unwrap();
    let cache = open(&device);
    assert_eq!(loss(&cache), None, "the items are recovered");
    cache.close().unwrap();
    let mut flash = FlashConfig::new(Arc::clone(&device) as _);
    flash.regions.region_bytes = MIB as u32;
    let otherwise = Cache::builder().dram_bytes(MIB).flash_config(flash).open().unwrap();
    assert!(loss(&otherwise).unwrap().starts_with("the earlier cache divided flash differently"));
}

#[test]
fn snapshot_is_used_once() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let cache = open(&device);
    fill(&cache);
    cache.close().unwrap();
    drop(open(&device));
    assert_eq!(found(&open(&device)), [], "the crash after the first reopening voids the snapshot");
}

#[test]
fn refused_configuration_leaves_the_device_unchanged() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let cache = open(&device);
    fill(&cache);
    cache.close().unwrap();
    let mut flash = FlashConfig::new(Arc::clone(&device) as _);
    flash.pairs[0].soc_share = 0.5;
    flash.regions.region_bytes = MIB as u32;
    flash.regions.buffers = 0;
    let refused = Cache::builder().dram_bytes(MIB).flash_config(flash).open();
    assert!(matches!(refused, Err(CacheError::Config(_))));
    assert!(!found(&open(&device)).is_empty());
}

#[test]
fn device_with_foreign_data_is_refused_by_name() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let mut head = device::IoBuffer::zeroed(4096);
    // The magic number of ext2, ext3 and ext4: 0xEF53 at byte 56 of the superblock at 1024.
    head[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xEF]);
    let write = device::Request::write(0, head);
    device.execute(write).unwrap();
    let flash = FlashConfig::new(Arc::clone(&device) as _);
    let refused = Cache::builder().flash_config(flash).open();
    let Err(CacheError::Occupied(reason)) = refused else { panic!("opened over a file system") };
    assert!(reason.contains("ext"), "{reason}");
}

/// Catches a regression: the open panics, truncates the device silently, or reports a slice of the device that the
/// caller did not request.
#[test]
fn device_that_cannot_be_divided_is_refused_by_setting() {
    let refused = |change: fn(&mut FlashConfig)| {
        let mut flash = FlashConfig::new(Arc::new(MemoryDevice::new(64 * MIB)));
        change(&mut flash);
        assert!(flash.check().is_err(), "`check` refuses the same setting");
        match Cache::builder().dram_bytes(MIB).flash_config(flash).open() {
            Err(CacheError::Config(message)) => message,
            other => panic!("an unexpected result: {other:?}"),
        }
    };
    let none = refused(|flash| flash.pairs.clear());
    assert!(none.contains("pairs: a flash tier needs at least one pair"), "{none}");
    let more = refused(|flash| flash.pairs = vec![PairConfig { device_share: 0.8, soc_share: 0.1 }; 2]);
    assert!(more.contains("pairs: the device_shares sum to 1.6"), "{more}");
    let nothing = refused(|flash| flash.pairs[0].device_share = 0.0);
    assert!(nothing.contains("device_share of 0"), "{nothing}");
    for buckets in [refused(|flash| flash.bucket_bytes = 0), refused(|flash| flash.bucket_bytes = 5000)] {
        assert!(buckets.contains("power of two"), "{buckets}");
    }
    let regions = refused(|flash| flash.regions.region_bytes = 0);
    assert!(regions.contains("regions of 0 bytes"), "{regions}");
    let crooked = refused(|flash| flash.region_alignment_bytes = 12_345);
    assert!(crooked.contains("region_alignment_bytes: 12345 is not"), "{crooked}");
    let far = refused(|flash| flash.region_alignment_bytes = 1 << 40);
    assert!(far.contains("less than one unit of 1099511627776"), "{far}");
}

#[test]
fn failed_close_reports_the_device_error() {
    let failing = Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(64 * MIB)), 0, Faults::default()));
    let cache = Cache::builder().dram_bytes(MIB).flash(Arc::clone(&failing) as _).open().unwrap();
    fill(&cache);
    failing.set_faults(Faults { failed_writes: 1.0, ..Faults::default() });
    let message = cache.close().unwrap_err().to_string();
    assert!(message.contains("writing the snapshot") && message.contains("injected failure"), "{message}");
}

/// With buckets: in a log, a lost item can remove another item with the same address, which is not counted.
#[test]
fn close_that_loses_items_reports_it_and_keeps_the_others() {
    let mut losses = 0;
    for seed in 0..36 {
        let device = Arc::new(MemoryDevice::new(64 * MIB));
        let failing = Arc::new(FaultDevice::new(Arc::clone(&device) as _, seed, Faults::default()));
        let builder = || Cache::builder().dram_bytes(16 * MIB).small_items(SmallItems::Sets);
        let cache = builder().flash(Arc::clone(&failing) as _).open().unwrap();
        let items = 2_000;
        for number in 0..items {
            cache.insert_blocking(&key(number), &[7; 300], InsertOptions::default());
        }
        failing.set_faults(Faults { failed_writes: 0.3, ..Faults::default() });
        let lost = match cache.close() {
            Ok(()) => 0,
            Err(CacheError::Lost { items }) => items,
            Err(_) => continue,
        };
        losses += u64::from(lost > 0);
        let cache = builder().flash(device).open().unwrap();
        assert!(cache.stats().flash.unwrap().recovered, "seed {seed}");
        let back = (0..items).filter(|&number| cache.get_blocking(&key(number)).is_some()).count() as u64;
        assert_eq!(back + lost, items, "seed {seed}: {back} found after reopen and {lost} counted as lost");
    }
    assert!(losses > 0, "nothing was lost in all these runs");
}

/// Catches a regression: a get of the item uses the number of the removed pool, beyond the last one, and panics.
#[test]
fn item_of_a_removed_pool_reopens_in_the_first_pool() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let open = |pools: &[&str]| {
        let shares = pools.iter().map(|name| (name.to_string(), 1.0 / pools.len() as f64));
        Cache::builder().dram_bytes(8 * MIB).pools(shares).flash(Arc::clone(&device) as _).open().unwrap()
    };
    let cache = open(&["first", "second"]);
    for number in 0..100 {
        let options = InsertOptions { pool: (number % 2) as u8, ..InsertOptions::default() };
        cache.insert_blocking(&key(number), &value(number), options);
        cache.add_chained_blocking(&key(number), 300, |link| link.fill(7)).unwrap();
    }
    cache.close().unwrap();
    let cache = open(&["first"]);
    for number in 0..100 {
        let item = cache.get_blocking(&key(number)).expect("flash has space for all items");
        assert!(*item == value(number) && item.chain().count() == 1, "key {number}");
        assert_eq!(item.pool(), PoolId(0));
        cache.add_chained_blocking(&key(number), 300, |link| link.fill(8)).unwrap();
    }
}

/// Catches a regression: the snapshot is too large for its space, and the cache reopens empty.
#[test]
fn reopened_cache_of_long_keys_has_the_items_that_fit_its_snapshot() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let open = || Cache::builder().dram_bytes(8 * MIB).flash(Arc::clone(&device) as _).open().unwrap();
    let long = |number: u64| format!("{number:0300}").into_bytes();
    let cache = open();
    for number in 0..200_000 {
        cache.insert_blocking(&long(number), &number.to_le_bytes(), InsertOptions::default());
    }
    let before = cache.stats().flash.unwrap().regions.unwrap().items;
    cache.close().unwrap();
    let cache = open();
    let kept = cache.stats().flash.unwrap().regions.unwrap().items;
    assert!(kept * 3 > before, "{kept} of {before} found after reopen");
    for number in 199_000..200_000 {
        let item = cache.get_blocking(&long(number)).expect("the newest are kept first");
        assert_eq!(*item, number.to_le_bytes());
    }
}

/// A cache whose key space is split over parts of the device.
fn open_split(device: &Arc<MemoryDevice>, shares: &[f64]) -> Result<Cache, CacheError> {
    open_split_on(Arc::clone(device) as _, shares)
}

fn open_split_on(device: Arc<dyn Device>, shares: &[f64]) -> Result<Cache, CacheError> {
    let mut flash = FlashConfig::new(device);
    flash.pairs = shares.iter().map(|&device_share| PairConfig { device_share, soc_share: 0.5 }).collect();
    Cache::builder().dram_bytes(MIB).flash_config(flash).open()
}

/// Catches a regression: items of the second part are found again, or items that the second part stores later are found
/// in the first part.
#[test]
fn removed_items_stay_removed_after_a_reopen_with_other_shares() {
    for (shares, between) in [(&[0.5, 0.5][..], &[0.5][..]), (&[0.5, 0.5], &[1.0]), (&[0.5], &[0.5, 0.5])] {
        let device = Arc::new(MemoryDevice::new(64 * MIB));
        let cache = open_split(&device, shares).unwrap();
        fill(&cache);
        cache.close().unwrap();
        let cache = open_split(&device, between).unwrap();
        for number in 0..ITEMS {
            cache.remove(&key(number));
        }
        cache.close().unwrap();
        let cache = open_split(&device, shares).unwrap();
        assert!(found(&cache).is_empty(), "{shares:?} with {between:?} in between");
    }
}

/// Catches a regression: the parts begin where an earlier cache stored items, and those bytes are refused as foreign
/// data.
#[test]
fn cache_with_other_shares_is_recognised() {
    for (before, after) in [
        (&[1.0][..], &[0.5, 0.5][..]),
        (&[0.5, 0.5], &[0.3, 0.7]),
        (&[0.5, 0.3, 0.2], &[0.4, 0.4, 0.2]),
        (&[0.3, 0.7], &[0.25, 0.25, 0.25, 0.25]),
    ] {
        let device = Arc::new(MemoryDevice::new(64 * MIB));
        let cache = open_split(&device, before).unwrap();
        // More than the device holds, so that all of its regions and buckets are written.
        for number in 0..6 * ITEMS {
            cache.insert_blocking(&key(number), &value(number), InsertOptions::default());
        }
        cache.close().unwrap();
        let cache = open_split(&device, after).unwrap();
        let loss = cache.stats().flash.unwrap().loss.unwrap();
        assert!(
            loss.starts_with("the earlier cache divided flash differently"),
            "{before:?} then {after:?}: {loss}"
        );
        let back = found(&cache).len();
        assert!(
            before.len() == after.len() || back == 0,
            "{before:?} then {after:?}: {back} found after reopen"
        );
        fill(&cache);
        cache.close().unwrap();
        let cache = open_split(&device, after).unwrap();
        assert!(cache.stats().flash.unwrap().recovered && !found(&cache).is_empty());
    }
}

/// Data beyond the end of an earlier cache's parts is foreign data.
#[test]
fn foreign_data_behind_an_earlier_cache_is_refused() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    open_split(&device, &[0.5]).unwrap().close().unwrap();
    let head = device::IoBuffer::copy_of(&[7; 4096]);
    device.execute(device::Request::write(48 * MIB, head)).unwrap();
    assert!(matches!(open_split(&device, &[0.75, 0.25]), Err(CacheError::Occupied(_))));
    assert!(open_split(&device, &[0.5]).unwrap().stats().flash.unwrap().recovered);
}

#[test]
fn all_pairs_of_a_cache_reopen_repeatedly() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let cache = open_split(&device, &[0.5, 0.3, 0.2]).unwrap();
    fill(&cache);
    let stored = cache.stats().flash.unwrap().puts.stored;
    cache.close().unwrap();
    for _ in 0..3 {
        let cache = open_split(&device, &[0.5, 0.3, 0.2]).unwrap();
        assert!(cache.stats().flash.unwrap().recovered);
        assert!(found(&cache).len() as u64 * 100 >= stored * 99);
        cache.close().unwrap();
    }
    drop(open_split(&device, &[0.5, 0.3, 0.2]).unwrap());
    assert!(found(&open_split(&device, &[0.5, 0.3, 0.2]).unwrap()).is_empty(), "the cache was not closed");
}

#[test]
fn refused_second_pair_leaves_the_first_unchanged() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let cache = open_split(&device, &[0.5]).unwrap();
    fill(&cache);
    cache.close().unwrap();
    assert!(matches!(open_split(&device, &[0.5, 0.01]), Err(CacheError::Config(_))));
    assert!(open_split(&device, &[0.5]).unwrap().stats().flash.unwrap().recovered);
}

/// Catches a regression: after one failed read the cache, or some of its parts, opens empty, and only `loss` reports
/// it.
#[test]
fn open_with_one_failed_read_keeps_the_rest_or_fails() {
    let shares = [0.6, 0.4];
    let device = Arc::new(MemoryDevice::new(32 * MIB));
    let cache = open_split(&device, &shares).unwrap();
    fill(&cache);
    cache.close().unwrap();
    let kept = found(&open_split(&Arc::new(device.duplicate()), &shares).unwrap()).len();
    let mut refused = 0;
    for number in 0.. {
        let reads = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&reads);
        let faulty = Arc::new(FaultDevice::new(Arc::new(device.duplicate()), 0, Faults::default()));
        faulty.fail_where(move |request| {
            matches!(request, Request::Read { .. }) && counted.fetch_add(1, Relaxed) == number
        });
        let cache = match open_split_on(Arc::clone(&faulty) as _, &shares) {
            Err(CacheError::Device { .. }) => {
                refused += 1;
                let cache = open_split_on(faulty, &shares).unwrap();
                assert_eq!(found(&cache).len(), kept, "after read {number} has failed");
                cache
            }
            opened => opened.unwrap(),
        };
        // The items of a region whose table cannot be read are lost and counted.
        assert!(cache.stats().flash.unwrap().recovered, "read {number}");
        if reads.load(Relaxed) <= number {
            break;
        }
    }
    assert!(refused > 4, "superblocks and snapshots of two parts");
}
