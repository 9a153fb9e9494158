//! Recovery after a kill and after a power cut. A random history ends with an image of the device that a kill or a power cut may leave. The
//! next store finds no removed or replaced version, and nearly all items that were on flash.

use std::collections::BTreeMap;

use device::wrap::CrashDevice;
use device::{MemoryDevice, Request};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::flash::JournalOptions;
use crate::flash::journal::ChainError;
use crate::flash::region::store::Content;
use crate::flash::watched::Watched;

const KEYS: u64 = 500;
const ID: StoreId = StoreId(7);

/// The versions of each key that may be found.
#[derive(Clone, Default)]
struct Model {
    /// The acknowledged version; `None` was removed.
    acknowledged: BTreeMap<u64, Option<u64>>,
    /// The version of a call in progress.
    begun: Option<(u64, u64)>,
}

impl Model {
    fn allows(&self, key: u64, version: u64) -> bool {
        let acknowledged = self.acknowledged.get(&key).copied().flatten();
        acknowledged == Some(version) || self.begun == Some((key, version))
    }
}

/// The end of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Kill,
    PowerLoss,
}

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

    fn create(&self, device: &Arc<dyn Device>) -> RegionStore {
        let clock = Arc::<Ticking>::default();
        let store = RegionStore::create(Arc::clone(device), clock, self.config.clone(), ID);
        store.expect("a valid configuration")
    }

    fn recovered(&self, device: &Arc<dyn Device>) -> Result<RegionStore, ChainError> {
        let chain = block_on(read_journal(device, &self.config, ID, Waiting::Thread))?;
        let (device, clock, config) = (Arc::clone(device), Arc::<Ticking>::default(), self.config.clone());
        let store = block_on(RegionStore::recover(device, clock, config, ID, &chain, Waiting::Thread));
        Ok(store.expect("a valid configuration"))
    }

    fn crash(&self, device: &CrashDevice, seed: u64) -> MemoryDevice {
        match self.end {
            End::Kill => device.kill(seed),
            End::PowerLoss => device.crash(seed),
        }
    }
}

/// The version of a key's value.
fn version_in(store: &RegionStore, key: u64, last_version: u64, model: &Model, label: &str) -> Option<u64> {
    let found = get(store, key).found()?;
    let acknowledged = model.acknowledged.get(&key).copied().flatten();
    let likely = acknowledged.into_iter().chain(model.begun.map(|(_, version)| version));
    let is_version = |version: &u64| *found == value(key, *version);
    let version = likely.chain((0..=last_version).rev()).find(is_version);
    Some(version.unwrap_or_else(|| panic!("{label}: key {key} has bytes that were never its value")))
}

/// A store with its model.
struct History {
    case: Case,
    store: RegionStore,
    model: Arc<Mutex<Model>>,
    random: StdRng,
    version: u64,
}

impl History {
    fn write(&mut self, key: u64) {
        self.version += 1;
        let version = self.version;
        self.model.lock().begun = Some((key, version));
        // As the cache does: the older version is removed first.
        forget(&self.store, key);
        put_version(&self.store, key, version);
        self.store.acknowledge();
        self.acknowledged(key, Some(version));
    }

    fn acknowledged(&self, key: u64, version: Option<u64>) {
        let mut model = self.model.lock();
        model.acknowledged.insert(key, version);
        model.begun = None;
    }

    fn request(&mut self) {
        let key = self.random.random_range(0..KEYS);
        match self.random.random_range(0..1000) {
            0..600 => self.write(key),
            600..700 => {
                forget(&self.store, key);
                self.store.acknowledge();
                self.acknowledged(key, None);
            }
            700 if self.random.random_ratio(1, 4) => {
                self.store.clear();
                self.store.acknowledge();
                self.model.lock().acknowledged.clear();
            }
            701..703 => drain(&self.store),
            _ => drop(get(&self.store, key)),
        }
        if self.random.random_bool(0.7) {
            step(&self.store);
        }
    }

    /// Keys that are found on flash, in regions that can be recovered.
    fn on_flash(&self) -> Vec<u64> {
        let is_on_flash = |key: &u64| {
            let found = self.store.index.get(KeyHash::of(&key.to_le_bytes()));
            found.is_some_and(|found| {
                let (region, _) = self.store.layout.place(found.address);
                matches!(*self.store.region(region).content.lock(), Content::Flash { .. })
            })
        };
        (0..KEYS).filter(is_on_flash).filter(|&key| get(&self.store, key).found().is_some()).collect()
    }
}

/// Checks a store that was opened after a crash. Returns how many of `expected` it has.
fn audit(store: &RegionStore, model: &Model, last_version: u64, expected: &[u64], label: &str) -> usize {
    for key in 0..KEYS {
        if let Some(version) = version_in(store, key, last_version, model, label) {
            assert!(
                model.allows(key, version),
                "{label}: key {key} has version {version}, not {:?} nor {:?}",
                model.acknowledged.get(&key),
                model.begun
            );
        }
    }
    expected.iter().filter(|&&key| get(store, key).found().is_some()).count()
}

/// Items that were on flash before, and those found after the crash.
#[derive(Debug, Default)]
struct Back {
    before: usize,
    after: usize,
    cuts: usize,
}

/// The device and the model at the end of a history that was cut.
type Cut = Option<(MemoryDevice, Model)>;

/// Runs a store through several crashes, each at the end of a call, and checks an image from the middle of a request.
fn run(case: &Case, back: &mut Back) {
    let mut random = StdRng::seed_from_u64(case.seed);
    let capacity_bytes = case.config.capacity_bytes;
    let mut image = MemoryDevice::with_block_bytes(capacity_bytes, 512).absorbing(case.has_page_cache);
    let mut model = Model::default();
    let mut version = 0;
    for life in 0..3 {
        let label = format!("{case:?}, life {life}");
        let durable = image.duplicate();
        let watched = Arc::new(Watched::new(image));
        let crashing = Arc::new(CrashDevice::over(Arc::clone(&watched) as _, durable));
        let device = Arc::clone(&crashing) as Arc<dyn Device>;
        let store = match case.recovered(&device) {
            Ok(store) => store,
            Err(ChainError::Empty) if life == 0 => case.create(&device),
            Err(error) => panic!("{label}: {error}"),
        };
        store.acknowledge();
        let shared = Arc::new(Mutex::new(model.clone()));
        let cut: Arc<Mutex<Cut>> = Arc::default();
        let cut_at = random.random_range(0..400_u64);
        {
            let (cut, crashing, shared) = (Arc::clone(&cut), Arc::downgrade(&crashing), Arc::clone(&shared));
            let case = case.clone();
            watched.watch(Box::new(move |number| {
                let crashing = crashing.upgrade().expect("the device is in use");
                if number == cut_at {
                    *cut.lock() = Some((case.crash(&crashing, case.seed), shared.lock().clone()));
                }
            }));
        }
        let requests = random.random_range(100..1200);
        let random = StdRng::seed_from_u64(random.random());
        let mut history = History { case: case.clone(), store, model: shared, random, version };
        (0..requests).for_each(|_| history.request());
        let expected = history.on_flash();
        image = history.case.crash(&crashing, case.seed + life);
        model = history.model.lock().clone();
        version = history.version;
        drop(history);
        watched.unwatch();
        if let Some((image, model)) = cut.lock().take() {
            back.cuts += 1;
            let device: Arc<dyn Device> = Arc::new(image);
            match case.recovered(&device) {
                Ok(store) => _ = audit(&store, &model, version, &[], &format!("{label}, cut at {cut_at}")),
                Err(error) => panic!("{label}, cut at {cut_at}: {error}"),
            }
        }
        let copy: Arc<dyn Device> = Arc::new(image.duplicate());
        let store = case.recovered(&copy).unwrap_or_else(|error| panic!("{label}: {error}"));
        let found = audit(&store, &model, version, &expected, &label);
        (back.before, back.after) = (back.before + expected.len(), back.after + found);
    }
}

fn run_all(end: End, seeds: std::ops::Range<u64>) -> Back {
    let mut back = Back::default();
    seeds.for_each(|seed| run(&Case::of(end, seed), &mut back));
    println!("{end:?}: {back:?}");
    back
}

#[test]
fn killed_store_finds_its_items_and_no_removed_or_replaced_one() {
    let Back { before, after, cuts } = run_all(End::Kill, 0..40);
    assert!(before > 10_000 && cuts > 40, "the histories have items on flash and cuts: {before}, {cuts}");
    assert!(after * 100 >= before * 99, "{after} of {before} items came back");
}

#[test]
fn store_after_a_power_cut_finds_its_items_and_no_removed_or_replaced_one() {
    let Back { before, after, cuts } = run_all(End::PowerLoss, 1000..1040);
    assert!(before > 10_000 && cuts > 40, "the histories have items on flash and cuts: {before}, {cuts}");
    assert!(after * 100 >= before * 99, "{after} of {before} items came back");
}

/// Each history ends three times, and has an image from the middle of a request.
#[test]
#[ignore = "takes minutes"]
fn three_thousand_ends_of_a_store_leave_items_on_flash_and_no_removed_or_replaced_one() {
    for (end, seeds) in [(End::Kill, 10_000..10_500), (End::PowerLoss, 20_000..20_500)] {
        let Back { before, after, .. } = run_all(end, seeds);
        assert!(after * 100 >= before * 99, "{after} of {before} items came back");
    }
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
