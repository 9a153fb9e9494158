//! Recovery of the store after a kill and after a power cut.

use device::{MemoryDevice, Request, RequestKind};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::flash::JournalOptions;
use crate::flash::crash_histories::{self, Case as _, Count, End, WatchedDevice, run_all};
use crate::flash::journal::ChainError;
use crate::flash::region::store::Content;

const ID: StoreId = StoreId(7);

#[derive(Debug, Clone)]
struct Case {
    end: End,
    seed: u64,
    config: RegionConfig,
    has_page_cache: bool,
}

impl Case {
    fn of(end: End, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ 0x5EED);
        let shares = vec![2, 1, 1];
        let hits = Reinsertion::Hits { at_least: 1 };
        let config = match random.random_range(0..6) {
            0 | 1 => small(),
            2 => RegionConfig { reinsertion: hits, separate_reinserted: true, ..small() },
            3 => RegionConfig {
                order: OrderConfig::SegmentedFifo { shares },
                reinsertion: hits,
                buffers: 6,
                ..small()
            },
            4 => blockcache(),
            _ => ripq(|_| {}),
        };
        let options = JournalOptions {
            flushes: end == End::PowerLoss,
            boot: Some(7),
            // A power cut tears blocks of more than one sector of 512 bytes.
            block_bytes: if random.random_bool(0.5) { 512 } else { 1024 },
        };
        let config = RegionConfig {
            journal: Some(options),
            trim: random.random_bool(0.3),
            value_checksums: random.random_bool(0.7),
            ..config
        };
        Self { end, seed, config, has_page_cache: random.random_bool(0.5) }
    }
}

impl crash_histories::Case for Case {
    type Engine = RegionStore;
    const KEYS: u64 = 500;

    fn end(&self) -> End {
        self.end
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn blank_device(&self) -> MemoryDevice {
        MemoryDevice::with_block_bytes(self.config.capacity_bytes, 512).absorbing(self.has_page_cache)
    }

    fn create(&self, device: &Arc<dyn Device>) -> RegionStore {
        let store = RegionStore::create(Arc::clone(device), Arc::new(clock()), self.config.clone(), ID);
        store.expect("a valid configuration")
    }

    fn recovered(&self, device: &Arc<dyn Device>) -> Result<RegionStore, ChainError> {
        let chain = block_on(read_journal(device, &self.config, ID, Waiting::Thread))?;
        let (device, clock, config) = (Arc::clone(device), Arc::new(clock()), self.config.clone());
        let store = block_on(RegionStore::recover(device, clock, config, ID, &chain, Waiting::Thread));
        Ok(store.expect("a valid configuration"))
    }

    fn put(store: &RegionStore, key: u64, version: u64) {
        put_version(store, key, version);
    }

    fn forget(store: &RegionStore, key: u64) {
        _ = forget(store, key);
    }

    fn acknowledge(store: &RegionStore) {
        store.acknowledge();
    }

    fn clear(store: &RegionStore) {
        store.clear();
    }

    fn drain(store: &RegionStore) {
        drain(store);
    }

    fn step(store: &RegionStore) {
        _ = step(store);
    }

    fn version(store: &RegionStore, key: u64, newest: u64) -> Option<u64> {
        let found = get(store, key).found()?;
        let version = version_of(key, &found, newest);
        Some(version.unwrap_or_else(|| panic!("key {key} has bytes that were never its value")))
    }

    fn is_on_flash(store: &RegionStore, key: u64) -> bool {
        store.index.get(KeyHash::of(&key.to_le_bytes())).is_some_and(|found| {
            let (region, _) = store.layout.place(found.address);
            matches!(*store.region(region).content.lock(), Content::Flash { .. })
        })
    }
}

fn assert_recovered(end: End, seeds: std::ops::Range<u64>) {
    let Count { before, after, cuts } = run_all(seeds.map(|seed| Case::of(end, seed)), 1200);
    assert!(before > 10_000 && cuts > 40, "the histories have items on flash and cuts: {before}, {cuts}");
    assert!(after * 100 >= before * 99, "{after} of {before} items are found");
}

#[test]
fn killed_store_finds_its_items_and_no_removed_or_replaced_one() {
    assert_recovered(End::Kill, 0..40);
}

#[test]
fn store_after_a_power_cut_finds_its_items_and_no_removed_or_replaced_one() {
    assert_recovered(End::PowerLoss, 1000..1040);
}

/// Each history ends three times, and has an image from the middle of a request.
#[test]
#[ignore = "takes minutes"]
fn three_thousand_ends_of_a_store_leave_items_on_flash_and_no_removed_or_replaced_one() {
    assert_recovered(End::Kill, 10_000..10_500);
    assert_recovered(End::PowerLoss, 20_000..20_500);
}

/// A FIFO store with a journal.
fn journaled() -> Case {
    let options = JournalOptions { flushes: false, boot: Some(7), block_bytes: 512 };
    let config = RegionConfig { journal: Some(options), ..small() };
    Case { end: End::Kill, seed: 0, config, has_page_cache: true }
}

fn memory(case: &Case) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::with_block_bytes(case.config.capacity_bytes, 512))
}

#[test]
fn full_journal_keeps_old_regions_in_use_but_does_not_recover_them() {
    let case = journaled();
    let device = memory(&case);
    let store = case.create(&device);
    (0..200).for_each(|key| put_version(&store, key, 1));
    drain(&store);
    let old: Vec<u64> = (0..100).filter(|&key| get(&store, key).found().is_some()).collect();
    assert!(old.len() > 50, "{} items", old.len());
    // More records than the ring has space for, while the regions of the first keys stay.
    for round in 0..2_000_u64 {
        let key = 1_000 + round % 4;
        forget(&store, key);
        put(&store, &key.to_le_bytes(), &round.to_le_bytes(), 0);
        store.acknowledge();
    }
    assert!(old.iter().all(|&key| get(&store, key).found().is_some()), "the old items are in use");
    // Their removals are recorded or not needed.
    old.iter().step_by(2).for_each(|&key| _ = forget(&store, key));
    drain(&store);
    let recovered = case.recovered(&device).expect("a whole journal");
    assert!(
        old.iter().all(|&key| get(&recovered, key).found().is_none()),
        "their regions are below the floor"
    );
    for key in 1_000..1_004_u64 {
        let newest = 1_996 + key - 1_000;
        assert_eq!(get(&recovered, key).found().expect("it is on flash")[..], newest.to_le_bytes());
    }
}

#[test]
fn region_with_a_damaged_table_is_not_recovered_later_either() {
    let case = journaled();
    let device = memory(&case);
    let store = case.create(&device);
    (0..60).for_each(|key| put_version(&store, key, 1));
    drain(&store);
    let found =
        |store: &RegionStore| (0..60).filter(|&key| get(store, key).found().is_some()).collect::<Vec<_>>();
    let all = found(&store);
    let layout = store.layout;
    drop(store);
    let block = layout.region_offset(RegionId(0)) + u64::from(layout.region_bytes) - 512;
    let flip = || {
        let mut bytes = device.execute(Request::read(block, 512)).unwrap();
        bytes[500] ^= 0x10;
        device.execute(Request::write(block, bytes)).unwrap();
    };
    flip();
    let damaged = case.recovered(&device).expect("a whole journal");
    let left = found(&damaged);
    assert!(left.len() < all.len() && left.len() + 40 > all.len(), "{} of {}", left.len(), all.len());
    drop(damaged);
    // The table becomes readable again: its items may have been removed meanwhile.
    flip();
    assert_eq!(found(&case.recovered(&device).expect("a whole journal")), left);
}

/// A full store with a journal, on a device that can be watched. All its regions are reclaimed, and no record of that is on the device.
fn reclaimed_store(end: End, trim: bool) -> (Arc<WatchedDevice>, Case, RegionStore) {
    let mut case = journaled();
    case.end = end;
    case.config.trim = trim;
    case.config.journal =
        case.config.journal.map(|it| JournalOptions { flushes: end == End::PowerLoss, ..it });
    let watched = Arc::new(WatchedDevice::new(case.blank_device()));
    let store = case.create(&(Arc::clone(&watched) as Arc<dyn Device>));
    (0..2000).for_each(|key| put_version(&store, key, 1));
    drain(&store);
    while block_on(store.reclaim_one(Waiting::Thread)) {}
    (watched, case, store)
}

/// The kinds of changes and whether they are in the journal, in order, while items are inserted and written.
fn changes_of_a_drain(watched: &WatchedDevice, case: &Case, store: &RegionStore) -> Vec<(RequestKind, bool)> {
    let changes = Arc::new(Mutex::new(Vec::new()));
    let journal = journal_range(case);
    let seen = Arc::clone(&changes);
    watched.watch(move |change| {
        seen.lock().push((change.kind, journal.contains(&change.offset)));
        Ok(())
    });
    (3000..3100).for_each(|key| put_version(store, key, 1));
    drain(store);
    watched.unwatch();
    let changes = changes.lock().clone();
    assert!(changes.contains(&(RequestKind::Write, false)), "regions are written");
    changes
}

fn journal_range(case: &Case) -> std::ops::Range<u64> {
    let place = case.config.journal_place(ID).expect("the store has a journal");
    place.offset_bytes..place.offset_bytes + place.bytes()
}

#[test]
fn journal_is_written_before_a_reclaimed_region_is_overwritten() {
    let (watched, case, store) = reclaimed_store(End::Kill, false);
    let changes = changes_of_a_drain(&watched, &case, &store);
    assert_eq!(changes[0], (RequestKind::Write, true), "{changes:?}");
}

#[test]
fn region_is_flushed_before_the_journal_records_it() {
    let (watched, case, store) = reclaimed_store(End::PowerLoss, false);
    let changes = changes_of_a_drain(&watched, &case, &store);
    let (mut is_flushed, mut records) = (true, 0);
    for change in &changes {
        match change {
            (RequestKind::Flush, _) => is_flushed = true,
            (_, false) => is_flushed = false,
            (_, true) => {
                assert!(is_flushed, "a region is recorded before its flush: {changes:?}");
                records += 1;
            }
        }
    }
    assert!(records > 1, "{changes:?}");
}

#[test]
fn reclaimed_regions_are_not_changed_while_the_journal_cannot_be_written() {
    for trim in [false, true] {
        let (watched, case, store) = reclaimed_store(End::Kill, trim);
        let journal = journal_range(&case);
        let others = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&others);
        watched.watch(move |change| {
            if change.kind == RequestKind::Write && journal.contains(&change.offset) {
                return Err(device::IoError::new(device::ErrorKind::Medium, "the journal cannot be written"));
            }
            *counted.lock() += 1;
            Ok(())
        });
        let is_stored = |key: u64| {
            let (name, value) = (key.to_le_bytes(), value(key, 1));
            let hash = KeyHash::of(&name);
            let item = FlashItem { key: &name, hash, value: &[&value], expiry_seconds: 0, tag: 3 };
            store.stage(&item).map(|staged| store.commit(staged)).is_ok()
        };
        // Trims are given up.
        (0..20).for_each(|_| _ = step(&store));
        let stored = (3000..3100).filter(|&key| is_stored(key)).count();
        assert!(stored > 0, "trim={trim}");
        drain(&store);
        (0..20).for_each(|_| _ = step(&store));
        assert_eq!(*others.lock(), 0, "no region is changed");
        watched.unwatch();
        (3000..3100).for_each(|key| put_version(&store, key, 2));
        drain(&store);
        assert!(get(&store, 3099).found().is_some());
        let device = watched as Arc<dyn Device>;
        let recovered = case.recovered(&device).expect("a whole journal");
        assert!((0..2000).all(|key| get(&recovered, key).found().is_none()), "old items are not found");
        assert!((3000..3100).any(|key| get(&recovered, key).found().is_some()), "new items are found");
    }
}
