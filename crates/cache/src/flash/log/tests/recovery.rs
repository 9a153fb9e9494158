//! Recovery after a kill and after a power cut. A random history ends with an image of the device that a kill or a power cut may leave. The
//! next log finds no removed or replaced version, and nearly all items that were on flash.

use std::collections::BTreeMap;

use device::Request;
use device::wrap::CrashDevice;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::flash::watched::Watched;

const KEYS: u64 = 1200;

/// The versions of each key that may be found.
#[derive(Clone, Default)]
struct Model {
    /// The acknowledged version; `None` was removed.
    acknowledged: BTreeMap<u64, Option<u64>>,
    /// The version of a call in progress.
    begun: Option<(u64, u64)>,
    clears: bool,
}

impl Model {
    fn allows(&self, key: u64, version: u64) -> bool {
        let acknowledged = self.acknowledged.get(&key).copied().flatten();
        acknowledged == Some(version) || self.begun == Some((key, version))
    }
}

/// The device and the model at the end of a history that was cut.
type Cut = Option<(MemoryDevice, Model)>;

/// The end of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Kill,
    PowerLoss,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    end: End,
    seed: u64,
    fingerprint_bits: u32,
    readmission_share: f64,
    has_page_cache: bool,
    /// Expected items, by which the journal is sized.
    expected_item_bytes: u32,
    /// A power cut tears blocks of more than one sector of 512 bytes.
    journal_block_bytes: u32,
}

impl Case {
    fn of(end: End, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ 0x5EED);
        Self {
            end,
            seed,
            fingerprint_bits: if random.random_ratio(1, 4) { 3 } else { 11 },
            readmission_share: if random.random_bool(0.5) { 0.25 } else { 0.0 },
            has_page_cache: random.random_bool(0.5),
            // A few bytes more than the items have make the journal too small for all removals.
            expected_item_bytes: if random.random_ratio(1, 8) { 400 } else { 50 },
            journal_block_bytes: if random.random_bool(0.5) { 512 } else { 1024 },
        }
    }

    fn config(&self) -> LogConfig {
        let flushes = self.end == End::PowerLoss;
        LogConfig {
            page_bytes: 512,
            regions: Some(48),
            expected_item_bytes: self.expected_item_bytes,
            readmission_share: self.readmission_share,
            journal: Some(JournalOptions { flushes, boot: Some(7), block_bytes: self.journal_block_bytes }),
            ..LogConfig::new(4096, 48 * 6 * 512 + (64 << 10), 42)
        }
    }

    fn log(&self, device: &Arc<dyn Device>) -> HashLog {
        let config = self.config();
        config.check(&device.geometry()).expect("a valid configuration");
        let shape = Shape { fingerprint_bits: self.fingerprint_bits, ..config.shape(SHARDS) };
        HashLog::with_shape(Arc::clone(device), config, shape)
    }

    fn reopened(&self, device: &Arc<dyn Device>) -> Result<HashLog, ChainError> {
        let chain = block_on(read_journal(device, &self.config(), Waiting::Thread))?;
        let mut log = self.log(device);
        block_on(log.recover(&chain, Waiting::Thread));
        Ok(log)
    }

    fn crash(&self, device: &CrashDevice, seed: u64) -> MemoryDevice {
        match self.end {
            End::Kill => device.kill(seed),
            End::PowerLoss => device.crash(seed),
        }
    }
}

fn key(number: u64) -> String {
    format!("key-{number}")
}

fn value(number: u64, version: u64) -> String {
    let len = (number * 7 + version * 13) % 70;
    format!("{version}:{}", "x".repeat(len as usize))
}

fn version_in(log: &HashLog, number: u64, now: u32) -> Option<u64> {
    let found = get_at(log, &key(number), now)?;
    let version: u64 =
        found.split(':').next().and_then(|text| text.parse().ok()).expect("a value has its version");
    assert_eq!(found, value(number, version), "key {number}");
    Some(version)
}

/// A log with its model. Its steps are called after its requests.
struct History {
    case: Case,
    log: HashLog,
    model: Arc<Mutex<Model>>,
    random: StdRng,
    version: u64,
}

impl History {
    fn step(&mut self) {
        if self.random.random_bool(0.7) {
            block_on(self.log.step(Waiting::Thread, NOW));
        }
    }

    fn write(&mut self, number: u64) {
        self.version += 1;
        let version = self.version;
        self.model.lock().begun = Some((number, version));
        let name = key(number);
        // As the cache does: the older version is removed first.
        forget(&self.log, &name);
        put(&self.log, &name, &value(number, version), 0);
        self.log.acknowledge();
        self.acknowledged(number, Some(version));
    }

    fn acknowledged(&self, number: u64, version: Option<u64>) {
        let mut model = self.model.lock();
        model.acknowledged.insert(number, version);
        model.begun = None;
    }

    fn clear(&mut self) {
        self.log.clear();
        self.log.acknowledge();
        let mut model = self.model.lock();
        model.acknowledged.clear();
        model.clears = true;
    }

    fn request(&mut self) {
        let number = self.random.random_range(0..KEYS);
        match self.random.random_range(0..1000) {
            0..600 => self.write(number),
            600..700 => {
                forget(&self.log, &key(number));
                self.log.acknowledge();
                self.acknowledged(number, None);
            }
            700 if self.random.random_ratio(1, 4) => self.clear(),
            701..703 => drain(&self.log),
            _ => _ = version_in(&self.log, number, NOW),
        }
        self.step();
    }

    /// Keys that are found on flash, not in memory.
    fn on_flash(&self) -> Vec<u64> {
        let in_memory = |number: u64| {
            let name = key(number);
            let hash = KeyHash::of(name.as_bytes());
            self.log.shard(hash).lock().tables.find(hash, name.as_bytes()).is_some()
        };
        (0..KEYS)
            .filter(|&number| !in_memory(number) && version_in(&self.log, number, NOW).is_some())
            .collect()
    }
}

/// Checks a log that was opened after a crash. Returns how many of `expected` it has.
fn audit(log: &HashLog, model: &Model, expected: &[u64], label: &str) -> usize {
    for number in 0..KEYS {
        if let Some(version) = version_in(log, number, NOW) {
            assert!(
                model.allows(number, version),
                "{label}: key {number} has version {version}, not {:?} nor {:?}",
                model.acknowledged.get(&number),
                model.begun
            );
        }
    }
    expected.iter().filter(|&&number| version_in(log, number, NOW).is_some()).count()
}

/// Items that were on flash before, and that were found after the crash.
#[derive(Debug, Default)]
struct Back {
    before: usize,
    after: usize,
    cold: usize,
    cuts: usize,
}

/// Runs a log through several crashes, each at the end of a call, and checks an image from the middle of a request.
fn run(case: Case, back: &mut Back) {
    let mut random = StdRng::seed_from_u64(case.seed);
    let memory = MemoryDevice::with_block_bytes(1 << 20, 512).absorbing(case.has_page_cache);
    let mut image = memory;
    let mut model = Model::default();
    let mut version = 0;
    for life in 0..3 {
        let label = format!("{case:?}, life {life}");
        let durable = image.duplicate();
        let watched = Arc::new(Watched::new(image));
        let crashing = Arc::new(CrashDevice::over(Arc::clone(&watched) as _, durable));
        let device = Arc::clone(&crashing) as Arc<dyn Device>;
        let log = match case.reopened(&device) {
            Ok(log) => log,
            // Nothing was recorded, or not acknowledged.
            Err(ChainError::Empty) => {
                back.cold += usize::from(life > 0);
                case.log(&device)
            }
            Err(error) => panic!("{label}: {error}"),
        };
        let shared = Arc::new(Mutex::new(model.clone()));
        let cut: Arc<Mutex<Cut>> = Arc::default();
        let cut_at = random.random_range(0..400_u64);
        {
            let (cut, crashing, shared) = (Arc::clone(&cut), Arc::downgrade(&crashing), Arc::clone(&shared));
            let seed = case.seed;
            watched.watch(Box::new(move |number| {
                let crashing = crashing.upgrade().expect("the device is in use");
                if number == cut_at {
                    *cut.lock() = Some((case.crash(&crashing, seed), shared.lock().clone()));
                }
            }));
        }
        let requests = random.random_range(100..1500);
        let random = StdRng::seed_from_u64(random.random());
        let mut history = History { case, log, model: shared, random, version };
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
            if let Ok(log) = case.reopened(&device) {
                audit(&log, &model, &[], &format!("{label}, cut at request {cut_at}"));
            }
        }
        let copy: Arc<dyn Device> = Arc::new(image.duplicate());
        match case.reopened(&copy) {
            Ok(log) => {
                let found = audit(&log, &model, &expected, &label);
                (back.before, back.after) = (back.before + expected.len(), back.after + found);
            }
            Err(ChainError::Empty) => {
                assert!(expected.is_empty(), "{label}: {} items were on flash", expected.len());
            }
            Err(error) => panic!("{label}: {error}"),
        }
    }
}

fn run_all(end: End, seeds: std::ops::Range<u64>) -> Back {
    let mut back = Back::default();
    seeds.for_each(|seed| run(Case::of(end, seed), &mut back));
    println!("{end:?}: {back:?}");
    back
}

#[test]
fn killed_log_finds_its_items_and_no_removed_or_replaced_one() {
    let Back { before, after, cuts, .. } = run_all(End::Kill, 0..60);
    assert!(before > 10_000 && cuts > 50, "the histories have items on flash and cuts: {before}, {cuts}");
    assert!(after * 100 >= before * 99, "{after} of {before} items came back");
}

/// Each history ends three times, and has an image from the middle of a request.
#[test]
#[ignore = "takes minutes"]
fn five_thousand_kills_leave_items_on_flash_and_no_removed_or_replaced_one() {
    let Back { before, after, .. } = run_all(End::Kill, 10_000..11_667);
    assert!(after * 1000 >= before * 999, "{after} of {before} items came back");
}

#[test]
#[ignore = "takes minutes"]
fn five_thousand_power_cuts_leave_items_on_flash_and_no_removed_or_replaced_one() {
    let Back { before, after, .. } = run_all(End::PowerLoss, 20_000..21_667);
    assert!(after * 1000 >= before * 999, "{after} of {before} items came back");
}

/// A log with some removed keys, and the device with all that it wrote.
fn written_log(config: LogConfig) -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_block_bytes(1 << 20, 512));
    let log = HashLog::new(Arc::clone(&device), config).expect("a valid configuration");
    for number in 0..900 {
        put(&log, &key(number), &value(number, 1), 0);
    }
    drain(&log);
    for number in 0..900 {
        if number % 3 == 0 {
            forget(&log, &key(number));
            log.acknowledge();
        }
    }
    device
}

fn journaled(flushes: bool, boot: Option<u64>) -> LogConfig {
    let case = Case { expected_item_bytes: 50, journal_block_bytes: 512, ..Case::of(End::Kill, 0) };
    LogConfig { journal: Some(JournalOptions { flushes, boot, block_bytes: 512 }), ..case.config() }
}

#[test]
fn unflushed_journal_is_used_under_the_same_boot_only() {
    let read = |device: &Arc<dyn Device>, config: LogConfig| {
        block_on(read_journal(device, &config, Waiting::Thread)).map(drop)
    };
    let unflushed = written_log(journaled(false, Some(7)));
    assert!(read(&unflushed, journaled(false, Some(7))).is_ok());
    assert!(matches!(read(&unflushed, journaled(false, Some(8))), Err(ChainError::OtherBoot)));
    assert!(matches!(read(&unflushed, journaled(true, Some(8))), Err(ChainError::OtherBoot)));
    let of_unknown_boot = written_log(journaled(false, None));
    assert!(matches!(read(&of_unknown_boot, journaled(false, None)), Err(ChainError::OtherBoot)));
    let flushed = written_log(journaled(true, Some(7)));
    assert!(
        read(&flushed, journaled(false, Some(8))).is_ok() && read(&flushed, journaled(true, None)).is_ok()
    );
    let other_generation = LogConfig { generation: 43, ..journaled(false, Some(7)) };
    assert!(matches!(read(&unflushed, other_generation), Err(ChainError::Empty)));
}

#[test]
fn damaged_journal_block_is_refused_and_a_damaged_page_loses_its_items_only() {
    let config = journaled(true, Some(7));
    let device = written_log(config);
    let flip = |offset: u64| {
        let mut block = device.execute(Request::read(offset, 512)).unwrap();
        block[80] ^= 0x20;
        device.execute(Request::write(offset, block)).unwrap();
    };
    let recovered = || {
        let chain = block_on(read_journal(&device, &config, Waiting::Thread)).expect("a whole journal");
        let mut log = HashLog::new(Arc::clone(&device), config).expect("a valid configuration");
        block_on(log.recover(&chain, Waiting::Thread));
        log
    };
    let found =
        |log: &HashLog| (0..900).filter(|&number| get(log, &key(number)).is_some()).collect::<Vec<_>>();
    let before = found(&recovered());
    assert!(before.len() > 580 && before.iter().all(|number| number % 3 != 0), "{}", before.len());
    flip(config.pages_offset() + 3 * 512);
    let after = found(&recovered());
    assert!(
        after.len() < before.len() && after.len() + 30 > before.len(),
        "{} of {}",
        after.len(),
        before.len()
    );
    // The third block, which was acknowledged long before the last one.
    flip(config.offset_bytes + 4 * 512);
    assert!(matches!(block_on(read_journal(&device, &config, Waiting::Thread)), Err(ChainError::Damaged)));
}

#[test]
fn full_journal_evicts_the_oldest_regions() {
    // Space for 1,260 records in a log that holds more items of this size.
    let config = LogConfig { expected_item_bytes: 400, ..journaled(false, Some(7)) };
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_block_bytes(1 << 20, 512));
    let log = HashLog::new(Arc::clone(&device), config).expect("a valid configuration");
    let mut last = BTreeMap::new();
    for version in 0..12_000_u64 {
        let number = version * 7 % 400;
        forget(&log, &key(number));
        put(&log, &key(number), &value(number, version), 0);
        log.acknowledge();
        last.insert(number, version);
        if version % 40 == 0 {
            drain(&log);
        }
    }
    let chain = block_on(read_journal(&device, &config, Waiting::Thread)).expect("a whole journal");
    assert!(chain.floor() > (1 << log.shape.sequence_bits) + 100, "floor {}", chain.floor());
    let mut reopened = HashLog::new(Arc::clone(&device), config).expect("a valid configuration");
    block_on(reopened.recover(&chain, Waiting::Thread));
    for (number, version) in last {
        let found = version_in(&reopened, number, NOW);
        assert!(
            found.is_none_or(|found| found == version),
            "key {number} has version {found:?}, not {version}"
        );
    }
}

#[test]
fn recovered_log_closes_and_reopens_with_its_items() {
    let config = journaled(false, Some(7));
    let device = written_log(config);
    let chain = block_on(read_journal(&device, &config, Waiting::Thread)).expect("a whole journal");
    let mut log = HashLog::new(Arc::clone(&device), config).expect("a valid configuration");
    block_on(log.recover(&chain, Waiting::Thread));
    drain(&log);
    let snapshot: Vec<u8> = log.snapshot().flatten().collect();
    assert_eq!(snapshot.len() as u64, snapshot_bytes(&config));
    let mut reopened = HashLog::new(Arc::clone(&device), config).expect("a valid configuration");
    reopened.restore(&snapshot).expect("its own snapshot");
    forget(&reopened, &key(1));
    reopened.acknowledge();
    // The log is killed after the reopening.
    let chain = block_on(read_journal(&device, &config, Waiting::Thread)).expect("a whole journal");
    let mut killed = HashLog::new(Arc::clone(&device), config).expect("a valid configuration");
    block_on(killed.recover(&chain, Waiting::Thread));
    assert_eq!(get(&killed, &key(1)), None);
    let found = |log: &HashLog| (0..900).filter(|&number| get(log, &key(number)).is_some()).count();
    assert!(found(&reopened) > 570 && found(&killed) + 10 > found(&reopened));
}

#[test]
fn log_after_power_loss_finds_no_removed_or_replaced_item() {
    let Back { before, after, cuts, .. } = run_all(End::PowerLoss, 1000..1060);
    assert!(before > 10_000 && cuts > 50, "the histories have items on flash and cuts: {before}, {cuts}");
    assert!(after * 100 >= before * 90, "{after} of {before} items came back");
}
