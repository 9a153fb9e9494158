//! Recovery of the log after a kill and after a power cut.

use std::collections::BTreeMap;

use device::Request;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::flash::crash_histories::{self, Count, End, run_all};

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
}

impl crash_histories::Case for Case {
    type Engine = HashLog;
    const KEYS: u64 = 1200;

    fn end(&self) -> End {
        self.end
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn blank_device(&self) -> MemoryDevice {
        MemoryDevice::with_block_bytes(1 << 20, 512).absorbing(self.has_page_cache)
    }

    fn create(&self, device: &Arc<dyn Device>) -> HashLog {
        self.log(device)
    }

    fn recovered(&self, device: &Arc<dyn Device>) -> Result<HashLog, ChainError> {
        let chain = block_on(read_journal(device, &self.config(), Waiting::Thread))?;
        let mut log = self.log(device);
        block_on(log.recover(&chain, Waiting::Thread));
        Ok(log)
    }

    fn put(log: &HashLog, number: u64, version: u64) {
        put(log, &key(number), &value(number, version), 0);
    }

    fn forget(log: &HashLog, number: u64) {
        _ = forget(log, &key(number));
    }

    fn acknowledge(log: &HashLog) {
        log.acknowledge();
    }

    fn clear(log: &HashLog) {
        log.clear();
    }

    fn drain(log: &HashLog) {
        drain(log);
    }

    fn step(log: &HashLog) {
        _ = block_on(log.step(Waiting::Thread, NOW));
    }

    fn version(log: &HashLog, number: u64, _newest: u64) -> Option<u64> {
        version_in(log, number, NOW)
    }

    fn is_on_flash(log: &HashLog, number: u64) -> bool {
        let name = key(number);
        let hash = KeyHash::of(name.as_bytes());
        log.shard(hash).lock().tables.find(hash, name.as_bytes()).is_none()
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

fn assert_recovered(end: End, seeds: std::ops::Range<u64>) {
    let Count { before, after, cuts } = run_all(seeds.map(|seed| Case::of(end, seed)), 1500);
    assert!(before > 10_000 && cuts > 50, "the histories have items on flash and cuts: {before}, {cuts}");
    assert!(after * 1000 >= before * 999, "{after} of {before} items are found");
}

#[test]
fn killed_log_finds_its_items_and_no_removed_or_replaced_one() {
    assert_recovered(End::Kill, 0..60);
}

/// Each history ends three times, and has an image from the middle of a request.
#[test]
#[ignore = "takes minutes"]
fn five_thousand_kills_leave_items_on_flash_and_no_removed_or_replaced_one() {
    assert_recovered(End::Kill, 10_000..11_667);
}

#[test]
#[ignore = "takes minutes"]
fn five_thousand_power_cuts_leave_items_on_flash_and_no_removed_or_replaced_one() {
    assert_recovered(End::PowerLoss, 20_000..21_667);
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
    assert_recovered(End::PowerLoss, 1000..1060);
}

/// A journaled log that has readmitted the item `read`. The region from which it was read is live until its space is needed.
fn with_readmitted_item(device: &Arc<dyn Device>, config: LogConfig) -> HashLog {
    let log = HashLog::new(Arc::clone(device), config).expect("a valid configuration");
    put(&log, "read", "old", 0);
    drain(&log);
    let first = log.live().max;
    for number in 0.. {
        assert!(number < 10_000, "the item is not readmitted");
        assert_eq!(get(&log, "read").as_deref(), Some("old"));
        if log.stats().readmitted_items > 0 {
            break;
        }
        put(&log, &key(number), &value(number, 1), 0);
        while log.wants_step() {
            block_on(log.step(Waiting::Thread, NOW));
        }
    }
    assert_eq!(log.live().min, first);
    log
}

#[test]
fn readmitted_item_is_recovered_until_it_is_removed_or_replaced() {
    let config = LogConfig { readmission_share: 0.25, ..journaled(false, Some(7)) };
    let found_after_a_kill = |change: &dyn Fn(&HashLog)| {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_block_bytes(1 << 20, 512));
        let log = with_readmitted_item(&device, config);
        change(&log);
        log.acknowledge();
        drop(log);
        let chain = block_on(read_journal(&device, &config, Waiting::Thread)).expect("a whole journal");
        let mut log = HashLog::new(Arc::clone(&device), config).expect("a valid configuration");
        block_on(log.recover(&chain, Waiting::Thread));
        get(&log, "read")
    };
    assert_eq!(found_after_a_kill(&|_| ()).as_deref(), Some("old"));
    assert_eq!(found_after_a_kill(&|log| _ = forget(log, "read")), None);
    assert_eq!(found_after_a_kill(&|log| put(log, "read", "new", 0)), None);
}
