//! Recovery of the cache after a kill and after a power cut.

use device::{ErrorKind, IoError, Request};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::super::bucket::Bucket;
use super::*;
use crate::flash::JournalOptions;
use crate::flash::crash_histories::{self, Case as _, Count, End, WatchedDevice, run_all};
use crate::flash::journal::ChainError;

#[derive(Debug, Clone)]
struct Case {
    end: End,
    seed: u64,
    config: SocConfig,
    has_page_cache: bool,
}

impl Case {
    fn of(end: End, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ 0x5EED);
        let options = JournalOptions {
            flushes: end == End::PowerLoss,
            boot: Some(7),
            // A power cut tears blocks of more than one sector of 512 bytes.
            block_bytes: if random.random_bool(0.5) { 512 } else { 1024 },
        };
        let bucket_bytes = if random.random_bool(0.5) { 512 } else { 2048 };
        let config = SocConfig {
            bucket_bytes,
            journal: Some(options),
            filter_bytes_per_bucket: [0, 8, 16][random.random_range(0..3)],
            pending_limit_bytes: if random.random_bool(0.5) { 4 << 10 } else { 32 << 10 },
            max_write_bytes: if random.random_bool(0.5) { bucket_bytes } else { 8 << 10 },
            writes_per_step: random.random_range(1..20),
            ..SocConfig::new(4 * KIB, 96 * KIB, 42)
        };
        Self { end, seed, config, has_page_cache: random.random_bool(0.5) }
    }
}

fn name(key: u64) -> String {
    format!("key-{key}")
}

fn content(key: u64, version: u64) -> String {
    format!("{key}:{version}:").repeat(1 + (key % 5) as usize)
}

impl crash_histories::Case for Case {
    type Engine = Soc;
    const KEYS: u64 = 500;

    fn end(&self) -> End {
        self.end
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn blank_device(&self) -> MemoryDevice {
        MemoryDevice::with_block_bytes(128 * KIB, 512).absorbing(self.has_page_cache)
    }

    fn create(&self, device: &Arc<dyn Device>) -> Soc {
        Soc::new(Arc::clone(device), self.config).expect("a valid configuration")
    }

    fn recovered(&self, device: &Arc<dyn Device>) -> Result<Soc, ChainError> {
        let chain = block_on(read_journal(device, &self.config, Waiting::Thread))?;
        let mut soc = self.create(device);
        block_on(soc.recover(&chain, Waiting::Thread));
        Ok(soc)
    }

    fn put(soc: &Soc, key: u64, version: u64) {
        let (name, content) = (name(key), content(key, version));
        let parts = [content.as_bytes()];
        let item = item(&name, &parts, 0);
        let staged = soc.stage(&item).unwrap_or_else(|_| {
            Self::drain(soc);
            soc.stage(&item).expect("there is room")
        });
        soc.commit(staged);
    }

    fn forget(soc: &Soc, key: u64) {
        _ = forget(soc, &name(key));
    }

    fn acknowledge(soc: &Soc) {
        soc.acknowledge();
    }

    fn clear(soc: &Soc) {
        soc.clear();
    }

    fn drain(soc: &Soc) {
        block_on(soc.drain(Waiting::Thread, NOW));
    }

    fn step(soc: &Soc) {
        block_on(soc.step(Waiting::Thread, NOW));
    }

    fn version(soc: &Soc, key: u64, newest: u64) -> Option<u64> {
        let found = get(soc, &name(key))?;
        let version = found.split(':').nth(1).and_then(|version| version.parse().ok());
        let version = version.filter(|&version| version <= newest && found == content(key, version));
        Some(version.unwrap_or_else(|| panic!("key {key} has a value that was never stored: {found}")))
    }

    fn is_on_flash(soc: &Soc, key: u64) -> bool {
        let Address { bucket, fingerprint } = soc.address(KeyHash::of(name(key).as_bytes()));
        soc.shard(bucket).lock().waits(bucket, fingerprint).is_none()
    }
}

fn assert_recovered(end: End, seeds: std::ops::Range<u64>) {
    let Count { before, after, cuts } = run_all(seeds.map(|seed| Case::of(end, seed)), 1500);
    assert!(before > 10_000 && cuts > 40, "the histories have items on flash and cuts: {before}, {cuts}");
    assert!(after * 100 >= before * 99, "{after} of {before} items are found");
}

#[test]
fn killed_sets_find_their_items_and_no_removed_or_replaced_one() {
    assert_recovered(End::Kill, 0..40);
}

#[test]
fn sets_after_a_power_cut_find_their_items_and_no_removed_or_replaced_one() {
    assert_recovered(End::PowerLoss, 1000..1040);
}

/// Each history ends three times, and has an image from the middle of a request.
#[test]
#[ignore = "takes minutes"]
fn three_thousand_ends_of_sets_leave_items_on_flash_and_no_removed_or_replaced_one() {
    assert_recovered(End::Kill, 10_000..10_500);
    assert_recovered(End::PowerLoss, 20_000..20_500);
}

/// Sets of 16 buckets of 512 bytes with a journal.
fn journaled(end: End) -> Case {
    let options = JournalOptions { flushes: end == End::PowerLoss, boot: Some(7), block_bytes: 512 };
    let config =
        SocConfig { bucket_bytes: 512, journal: Some(options), ..SocConfig::new(4 * KIB, 18 * KIB, 42) };
    Case { end, seed: 0, config, has_page_cache: true }
}

fn found(soc: &Soc, keys: std::ops::Range<u64>) -> Vec<u64> {
    keys.filter(|&key| get(soc, &name(key)).is_some()).collect()
}

fn overwrite(soc: &Soc, key: u64, version: u64) {
    Case::forget(soc, key);
    Case::put(soc, key, version);
    soc.acknowledge();
}

#[test]
fn overwrites_of_one_key_leave_all_other_items_recoverable() {
    let case = journaled(End::Kill);
    let device: Arc<dyn Device> = Arc::new(case.blank_device());
    let soc = case.create(&device);
    (0..100).for_each(|key| Case::put(&soc, key, 1));
    drain(&soc);
    let before = found(&soc, 0..100);
    assert!(before.len() > 60, "{} items", before.len());
    let records = case.config.journal_place().expect("a journal").blocks * 55;
    for version in 0..3 * records {
        overwrite(&soc, 500, version);
        drain(&soc);
    }
    let evicted = before.len() - found(&soc, 0..100).len();
    assert!(evicted < 10, "{evicted} items of one bucket");
    let recovered = case.recovered(&device).expect("a whole journal");
    assert_eq!(found(&recovered, 0..100), found(&soc, 0..100));
    assert_eq!(Case::version(&recovered, 500, 3 * records), Some(3 * records - 1));
}

#[test]
fn more_pending_removals_than_the_journal_holds_leave_no_removed_item() {
    let case = journaled(End::Kill);
    let device: Arc<dyn Device> = Arc::new(case.blank_device());
    let soc = case.create(&device);
    // Without filters and writes, each removal is recorded.
    for round in 0..30 {
        (0..100).for_each(|key| Case::put(&soc, key, round));
        drain(&soc);
        (0..100).for_each(|key| Case::forget(&soc, key));
        (1000 * round..1000 * round + 900).for_each(|key| Case::forget(&soc, key));
        soc.acknowledge();
        let recovered = case.recovered(&device).expect("a whole journal");
        assert_eq!(found(&recovered, 0..100), [0_u64; 0], "round {round}");
    }
    (0..100).for_each(|key| Case::put(&soc, key, 99));
    drain(&soc);
    let recovered = case.recovered(&device).expect("a whole journal");
    assert_eq!(found(&recovered, 0..100), found(&soc, 0..100), "buckets that were written since");
}

/// The offset of a key's bucket.
fn offset_of(soc: &Soc, key: u64) -> u64 {
    soc.offset(soc.address(KeyHash::of(name(key).as_bytes())).bucket)
}

/// Sets with the items 0 to 100. The write of one bucket has failed. Returns the keys of that bucket.
fn with_lost_bucket(case: &Case, watched: &Arc<WatchedDevice>) -> (Soc, Vec<u64>) {
    let soc = case.create(&(Arc::clone(watched) as Arc<dyn Device>));
    (0..100).for_each(|key| Case::put(&soc, key, 1));
    drain(&soc);
    let bad = offset_of(&soc, 0);
    let in_bucket: Vec<u64> =
        found(&soc, 1..100).into_iter().filter(|&key| offset_of(&soc, key) == bad).collect();
    assert!(in_bucket.len() > 2, "{in_bucket:?}");
    watched.watch(move |change| match change.offset == bad {
        true => Err(IoError::new(ErrorKind::Medium, "a bad block")),
        false => Ok(()),
    });
    overwrite(&soc, 0, 2);
    drain(&soc);
    watched.unwatch();
    assert!(found(&soc, 0..100).iter().all(|key| *key != 0 && !in_bucket.contains(key)));
    (soc, in_bucket)
}

#[test]
fn failed_bucket_is_empty_after_a_kill() {
    let case = journaled(End::Kill);
    let watched = Arc::new(WatchedDevice::new(case.blank_device()));
    let (soc, in_bucket) = with_lost_bucket(&case, &watched);
    // Not recorded by their keys: the bucket counts as empty.
    in_bucket.iter().for_each(|&key| Case::forget(&soc, key));
    soc.acknowledge();
    let device = watched as Arc<dyn Device>;
    let expected = found(&soc, 0..100);
    let recovered = case.recovered(&device).expect("a whole journal");
    assert_eq!(found(&recovered, 0..100), expected);
    // Again, after the journal dropped its earlier records.
    for version in 0..2000 {
        overwrite(&recovered, 500, version);
        drain(&recovered);
    }
    let again = case.recovered(&device).expect("a whole journal");
    assert_eq!(found(&again, 0..100), found(&recovered, 0..100));
    assert!(found(&again, 0..100).iter().all(|key| !in_bucket.contains(key)));
}

#[test]
fn failed_bucket_is_empty_after_a_clean_close_and_a_kill() {
    let case = journaled(End::Kill);
    let watched = Arc::new(WatchedDevice::new(case.blank_device()));
    let (soc, in_bucket) = with_lost_bucket(&case, &watched);
    let snapshot: Vec<u8> = soc.snapshot().flatten().collect();
    assert_eq!(snapshot.len() as u64, case.config.snapshot_bytes());
    let expected = found(&soc, 0..100);
    drop(soc);
    let device = watched as Arc<dyn Device>;
    let mut reopened = case.create(&device);
    reopened.restore(&snapshot).expect("its own snapshot");
    assert_eq!(found(&reopened, 0..100), expected);
    // Its bucket is written after the removal that is recorded for the older version.
    overwrite(&reopened, expected[0], 3);
    drain(&reopened);
    let recovered = case.recovered(&device).expect("a whole journal");
    assert_eq!(Case::version(&recovered, expected[0], 3), Some(3));
    drop(recovered);
    for version in 0..2000 {
        overwrite(&reopened, 500, version);
        drain(&reopened);
    }
    let recovered = case.recovered(&device).expect("a whole journal");
    assert!(found(&recovered, 0..100).iter().all(|key| !in_bucket.contains(key)));
    assert_eq!(Case::version(&recovered, 500, 2000), Some(1999));
}

#[test]
fn buckets_beside_an_unreadable_one_are_recovered() {
    let case = journaled(End::Kill);
    let device = Arc::new(FaultDevice::new(Arc::new(case.blank_device()), 1, Faults::default()));
    let soc = case.create(&(Arc::clone(&device) as Arc<dyn Device>));
    (0..100).for_each(|key| Case::put(&soc, key, 1));
    drain(&soc);
    soc.acknowledge();
    let bad = offset_of(&soc, 0);
    let is_elsewhere = |key: &u64| offset_of(&soc, *key) != bad;
    let expected: Vec<u64> = found(&soc, 0..100).into_iter().filter(is_elsewhere).collect();
    device.fail_where(move |request| {
        matches!(request, Request::Read { offset, buffer } if (*offset..*offset + buffer.len() as u64).contains(&bad))
    });
    let recovered = case.recovered(&(device as Arc<dyn Device>)).expect("a whole journal");
    assert_eq!(found(&recovered, 0..100), expected);
}

#[test]
fn damaged_bucket_is_not_recovered_later_either() {
    let case = journaled(End::Kill);
    let device: Arc<dyn Device> = Arc::new(case.blank_device());
    let soc = case.create(&device);
    (0..100).for_each(|key| Case::put(&soc, key, 1));
    drain(&soc);
    soc.acknowledge();
    let (all, offset) = (found(&soc, 0..100), offset_of(&soc, 0));
    let flip = || {
        let mut bytes = device.execute(Request::read(offset, 512)).unwrap();
        bytes[40] ^= 0x10;
        device.execute(Request::write(offset, bytes)).unwrap();
    };
    flip();
    let damaged = case.recovered(&device).expect("a whole journal");
    let left = found(&damaged, 0..100);
    assert!(left.len() < all.len() && left.len() + 20 > all.len(), "{} of {}", left.len(), all.len());
    drop(damaged);
    // The bucket becomes readable again: its items may have been removed meanwhile.
    flip();
    assert_eq!(found(&case.recovered(&device).expect("a whole journal"), 0..100), left);
}

#[test]
fn removal_of_the_last_item_of_a_bucket_is_written() {
    let case = journaled(End::Kill);
    let device: Arc<dyn Device> = Arc::new(case.blank_device());
    let soc = case.create(&device);
    Case::put(&soc, 1, 1);
    drain(&soc);
    Case::forget(&soc, 1);
    drain(&soc);
    let bytes = device.execute(Request::read(offset_of(&soc, 1), 512)).unwrap();
    let bucket = soc.address(KeyHash::of(name(1).as_bytes())).bucket;
    let bucket = Bucket::open(&bytes, soc.identity(bucket)).expect("it is valid");
    assert_eq!((bucket.entries().count(), bucket.write_number()), (0, 2));
}

/// The kinds of changes and whether they are in the journal, in order.
fn changes_of(watched: &WatchedDevice, case: &Case, run: impl FnOnce()) -> Vec<(RequestKind, bool)> {
    let place = case.config.journal_place().expect("the sets have a journal");
    let journal = place.offset_bytes..place.offset_bytes + place.bytes();
    let changes = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = Arc::clone(&changes);
    watched.watch(move |change| {
        seen.lock().push((change.kind, journal.contains(&change.offset)));
        Ok(())
    });
    run();
    watched.unwatch();
    std::mem::take(&mut *changes.lock())
}

#[test]
fn step_flushes_its_writes_if_items_are_to_survive_a_power_cut() {
    for (end, expected) in [(End::Kill, None), (End::PowerLoss, Some((RequestKind::Flush, false)))] {
        let case = journaled(end);
        let watched = Arc::new(WatchedDevice::new(case.blank_device()));
        let soc = case.create(&(Arc::clone(&watched) as Arc<dyn Device>));
        let changes = changes_of(&watched, &case, || {
            (0..20).for_each(|key| Case::put(&soc, key, 1));
            drain(&soc);
        });
        let flush = changes.iter().find(|change| change.0 == RequestKind::Flush).copied();
        assert_eq!(flush, expected, "{end:?}");
        assert_eq!(changes.last().copied() == flush, flush.is_some(), "{changes:?}");
    }
}

#[test]
fn removal_that_stays_pending_survives_the_shortening_of_the_journal() {
    let mut case = journaled(End::Kill);
    // Each step writes the bucket with the most entries.
    (case.config.writes_per_step, case.config.max_write_bytes) = (1, 512);
    let device: Arc<dyn Device> = Arc::new(case.blank_device());
    let soc = case.create(&device);
    (0..60).for_each(|key| Case::put(&soc, key, 1));
    drain(&soc);
    Case::forget(&soc, 0);
    let others: Vec<u64> =
        found(&soc, 1..60).into_iter().filter(|&key| offset_of(&soc, key) != offset_of(&soc, 0)).collect();
    let busy: Vec<u64> = others
        .iter()
        .copied()
        .filter(|&key| offset_of(&soc, key) == offset_of(&soc, others[0]))
        .take(2)
        .collect();
    let records = case.config.journal_place().expect("a journal").blocks * 55;
    for version in 2..2 * records {
        busy.iter().for_each(|&key| overwrite(&soc, key, version));
        block_on(soc.step(Waiting::Thread, NOW));
    }
    assert!(soc.stats().pending_entries > 0, "the removal is pending");
    let recovered = case.recovered(&device).expect("a whole journal");
    assert_eq!(Case::version(&recovered, 0, 1), None);
    assert_eq!(Case::version(&recovered, busy[0], 2 * records), Some(2 * records - 1));
}

/// Sets whose journal is half full of records that are no longer needed.
fn with_half_full_journal(end: End) -> (Arc<WatchedDevice>, Case, Soc) {
    let mut case = journaled(end);
    case.config.filter_bytes_per_bucket = 0;
    let watched = Arc::new(WatchedDevice::new(case.blank_device()));
    let soc = case.create(&(Arc::clone(&watched) as Arc<dyn Device>));
    (0..100).for_each(|key| Case::put(&soc, key, 1));
    drain(&soc);
    // Without filters, removals of absent keys are recorded too.
    (1000..1600).for_each(|key| Case::forget(&soc, key));
    soc.acknowledge();
    // Too many removals are pending at the start of the step.
    block_on(soc.step(Waiting::Thread, NOW));
    assert!(soc.is_journal_half_full() && soc.stats().pending_entries == 0);
    (watched, case, soc)
}

#[test]
fn journal_is_written_and_flushed_before_records_are_dropped() {
    let (watched, case, soc) = with_half_full_journal(End::PowerLoss);
    let changes = changes_of(&watched, &case, || soc.shorten_journal());
    assert!(changes.contains(&(RequestKind::Write, true)), "{changes:?}");
    // Buckets whose removals are dropped may not be flushed yet.
    assert_eq!(changes.last(), Some(&(RequestKind::Flush, false)), "{changes:?}");
    assert!(!soc.is_journal_half_full());
}

#[test]
fn no_record_is_dropped_while_the_journal_cannot_be_written() {
    let (watched, case, soc) = with_half_full_journal(End::Kill);
    watched.watch(|_| Err(IoError::new(ErrorKind::Medium, "the journal cannot be written")));
    soc.shorten_journal();
    assert!(soc.is_journal_half_full());
    watched.unwatch();
    soc.shorten_journal();
    assert!(!soc.is_journal_half_full());
    soc.acknowledge();
    let expected = found(&soc, 0..100);
    let recovered = case.recovered(&(watched as Arc<dyn Device>)).expect("a whole journal");
    assert_eq!(found(&recovered, 0..100), expected);
}
