//! Lookups, overwrites and removals against the write and the eviction of the key's region, in schedules that shuttle generates: threads
//! can switch at every lock, between the two ends of the live regions, and before and after every transfer.
//!
//! A thread begins after a random number of switches, so that its few operations meet every part of a longer one.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p flashwright-cache --lib races`

use std::ops::Range;
use std::sync::atomic::AtomicU32;

use shuttle::rand::{Rng, thread_rng};

use device::{Completion, Geometry, Outcome, Request};

use super::*;

const SCHEDULES: usize = 5000;
/// A thread begins after fewer than two to the power of this many switches. The write of a region takes about as many.
const MOST_DELAY_BITS: u32 = 8;

/// A device of memory whose transfers take time: other threads run before and after each.
struct Stepping(MemoryDevice);

impl Device for Stepping {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn submit(&self, request: Request, completion: Completion) {
        self.0.submit(request, completion);
    }

    fn execute(&self, request: Request) -> Outcome {
        step();
        let outcome = self.0.execute(request);
        step();
        outcome
    }

    fn counters(&self) -> device::Counters {
        self.0.counters()
    }
}

/// A log of four regions of two pages, and the oracle of its one contended key.
struct Scene {
    log: HashLog,
    /// The lock of the key, as the cache takes it for changes.
    key_lock: Mutex<()>,
    /// The newest version whose insert or removal is acknowledged.
    acknowledged: AtomicU32,
}

const KEY: &str = "contended";
/// The bytes of a filler: two fill a page.
const FILLER_BYTES: usize = 1900;

impl Scene {
    fn new(readmission_share: f64) -> Self {
        let device = Arc::new(Stepping(MemoryDevice::with_block_bytes(64 << 10, 4096)));
        let log_config = LogConfig {
            regions: Some(4),
            readmission_share,
            expected_item_bytes: 1000,
            ..LogConfig::new(4096, 8 * 4096, 42)
        };
        Self { log: log_on(&device, log_config), key_lock: Mutex::new(()), acknowledged: AtomicU32::new(0) }
    }

    /// Inserts a version of the key in place of the older one, as the cache does.
    fn overwrite(&self, version: u32) {
        let lock = self.key_lock.lock();
        forget(&self.log, KEY);
        put(&self.log, KEY, &version.to_string(), 0);
        self.acknowledged.store(version, Ordering::SeqCst);
        drop(lock);
    }

    /// Removes the key. Versions before `version` must not be found again.
    fn remove(&self, version: u32) {
        let lock = self.key_lock.lock();
        forget(&self.log, KEY);
        self.acknowledged.store(version, Ordering::SeqCst);
        drop(lock);
    }

    fn fill(&self, numbers: Range<u32>) {
        for number in numbers {
            put(&self.log, &format!("filler-{number}"), &filler(number), 0);
            self.step();
        }
    }

    fn step(&self) {
        block_on(self.log.step(Waiting::Thread, NOW));
    }

    /// Evicts the oldest region, that of the key in a full log, from its first page on.
    fn evict(&self) {
        block_on(self.log.evict_oldest(&mut None, Waiting::Thread, NOW));
    }

    /// The version found; never one older than an acknowledged one.
    fn read(&self) -> Option<u32> {
        let least = self.acknowledged.load(Ordering::SeqCst);
        let found = get(&self.log, KEY).map(|version| version.parse().expect("a version of the key"));
        assert!(found.is_none_or(|version| version >= least), "{found:?} after {least} was acknowledged");
        found
    }

    fn is_filler_found(&self, number: u32) -> bool {
        let found = get(&self.log, &format!("filler-{number}"));
        assert!(found.as_ref().is_none_or(|value| *value == filler(number)), "{number}: {found:?}");
        found.is_some()
    }

    /// Inserts the key and then fillers, until a step writes their region.
    fn fill_region(&self) {
        self.overwrite(1);
        let put_filler = |number: u32| put(&self.log, &format!("filler-{number}"), &filler(number), 0);
        (0..).take_while(|_| !self.log.wants_step()).for_each(put_filler);
    }

    /// Inserts the key and then fillers, until the next region to be written evicts the region of the key. Returns the next filler.
    fn fill_log(&self) -> u32 {
        self.overwrite(1);
        let has_space = || self.log.has_space(self.log.filling.lock().open, 2, 4);
        let next = (0..).find(|&number| {
            self.fill(number..number + 1);
            !has_space()
        });
        assert_eq!(self.read(), Some(1));
        next.expect("the log becomes full") + 1
    }
}

fn filler(number: u32) -> String {
    format!("{number:04}").repeat(FILLER_BYTES / 4)
}

type Thread = fn(&Scene);

/// Prepares a scene, and runs threads on it in many orders. `check` runs after all of them.
fn explore(readmission_share: f64, prepare: Thread, threads: &[Thread], check: Thread) {
    let threads = threads.to_vec();
    let schedule = move || {
        let scene = Arc::new(Scene::new(readmission_share));
        prepare(&scene);
        let run = |thread: Thread| {
            let scene = Arc::clone(&scene);
            shuttle::thread::spawn(move || {
                let most = 1 << thread_rng().gen_range(0..=MOST_DELAY_BITS);
                (0..thread_rng().gen_range(0..most)).for_each(|_| step());
                thread(&scene);
            })
        };
        let running: Vec<_> = threads.iter().map(|&thread| run(thread)).collect();
        running.into_iter().for_each(|thread| thread.join().unwrap());
        check(&scene);
    };
    shuttle::check_random(schedule, SCHEDULES);
}

const READING: Thread = |scene| {
    let mut newest = 0;
    for _ in 0..3 {
        let found = scene.read();
        assert!(found.is_none_or(|version| version >= newest), "{found:?} after {newest}");
        newest = found.unwrap_or(newest);
    }
};

#[test]
fn gets_during_the_eviction_of_the_region_hit_until_one_misses() {
    let read = |scene: &Scene| {
        let found: Vec<_> = (0..3).map(|_| scene.read().is_some()).collect();
        assert!(found.is_sorted_by(|before, after| before >= after), "a hit after a miss: {found:?}");
    };
    // The region of the key, and the next one.
    let evict = |scene: &Scene| scene.fill(100..106);
    let read_newer = |scene: &Scene| (0..2).for_each(|_| assert!(scene.is_filler_found(5)));
    let prepare = |scene: &Scene| assert!(scene.fill_log() > 6);
    explore(0.0, prepare, &[evict, read, read_newer], |scene| assert_eq!(scene.read(), None));
}

#[test]
fn gets_during_the_readmission_of_the_item_always_hit() {
    let read = |scene: &Scene| (0..3).for_each(|_| assert_eq!(scene.read(), Some(1)));
    let prepare = |scene: &Scene| assert!(scene.fill_log() > 6);
    explore(0.5, prepare, &[Scene::evict, read], |scene| assert_eq!(scene.read(), Some(1)));
}

#[test]
fn overwrites_during_the_write_of_the_region_leave_the_newest_version() {
    let overwrite = |scene: &Scene| (2..4).for_each(|version| scene.overwrite(version));
    explore(0.0, Scene::fill_region, &[Scene::step, overwrite, READING], |scene| {
        assert_eq!(scene.read(), Some(3));
        drain(&scene.log);
        assert_eq!(scene.read(), Some(3));
    });
}

#[test]
fn removal_during_the_write_of_its_region_is_permanent() {
    explore(0.0, Scene::fill_region, &[Scene::step, |scene| scene.remove(2), READING], |scene| {
        assert_eq!(scene.read(), None);
        drain(&scene.log);
        assert_eq!(scene.read(), None);
    });
}

#[test]
fn item_removed_during_readmission_stays_removed() {
    let prepare = |scene: &Scene| assert!(scene.fill_log() > 6);
    explore(0.5, prepare, &[Scene::evict, |scene| scene.remove(2), READING], |scene| {
        assert_eq!(scene.read(), None);
        drain(&scene.log);
        assert_eq!(scene.read(), None);
    });
}

#[test]
fn item_overwritten_during_readmission_has_the_new_version() {
    let prepare = |scene: &Scene| assert!(scene.fill_log() > 6);
    explore(0.5, prepare, &[Scene::evict, |scene| scene.overwrite(2), READING], |scene| {
        assert_eq!(scene.read(), Some(2));
        drain(&scene.log);
        assert_eq!(scene.read(), Some(2));
    });
}
