//! Random histories of engines with a journal, for tests. A history ends with an image of the device that a kill or a power cut may leave.
//! The engine that is opened next must find no removed or replaced version, and nearly all items that were on flash.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::wrap::CrashDevice;
use device::{
    Completion, Device, IoError, IoSlice, MemoryDevice, Outcome, Request, RequestKind, forward_device,
};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::journal::ChainError;

/// The end of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Kill,
    PowerLoss,
}

impl End {
    /// An image that this end may leave, drawn from `seed`.
    fn image(self, device: &CrashDevice, seed: u64) -> MemoryDevice {
        match self {
            Self::Kill => device.kill(seed),
            Self::PowerLoss => device.crash(seed),
        }
    }
}

/// An engine with its configuration, and the operations of a history.
pub(super) trait Case: Debug + Clone + Send + Sync + 'static {
    type Engine;
    /// Number of keys that are requested.
    const KEYS: u64;

    fn end(&self) -> End;
    fn seed(&self) -> u64;
    /// A device that was never written.
    fn blank_device(&self) -> MemoryDevice;
    fn create(&self, device: &Arc<dyn Device>) -> Self::Engine;
    fn recovered(&self, device: &Arc<dyn Device>) -> Result<Self::Engine, ChainError>;

    fn put(engine: &Self::Engine, key: u64, version: u64);
    fn forget(engine: &Self::Engine, key: u64);
    fn acknowledge(engine: &Self::Engine);
    fn clear(engine: &Self::Engine);
    fn drain(engine: &Self::Engine);
    fn step(engine: &Self::Engine);
    /// The version of the key's value; `None` for a miss. Panics if the value is none of the versions 0 to `newest` of the key.
    fn version(engine: &Self::Engine, key: u64, newest: u64) -> Option<u64>;
    /// Whether the key's item is on flash, not in memory only.
    fn is_on_flash(engine: &Self::Engine, key: u64) -> bool;
}

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

/// An engine with its model.
struct History<C: Case> {
    engine: C::Engine,
    model: Arc<Mutex<Model>>,
    random: StdRng,
    newest: u64,
}

impl<C: Case> History<C> {
    fn write(&mut self, key: u64) {
        self.newest += 1;
        self.model.lock().begun = Some((key, self.newest));
        // As the cache does: the older version is removed first.
        C::forget(&self.engine, key);
        C::put(&self.engine, key, self.newest);
        C::acknowledge(&self.engine);
        self.acknowledged(key, Some(self.newest));
    }

    fn acknowledged(&self, key: u64, version: Option<u64>) {
        let mut model = self.model.lock();
        model.acknowledged.insert(key, version);
        model.begun = None;
    }

    fn request(&mut self) {
        let key = self.random.random_range(0..C::KEYS);
        match self.random.random_range(0..1000) {
            0..600 => self.write(key),
            600..700 => {
                C::forget(&self.engine, key);
                C::acknowledge(&self.engine);
                self.acknowledged(key, None);
            }
            700 if self.random.random_ratio(1, 4) => {
                C::clear(&self.engine);
                C::acknowledge(&self.engine);
                self.model.lock().acknowledged.clear();
            }
            701..703 => C::drain(&self.engine),
            _ => _ = C::version(&self.engine, key, self.newest),
        }
        if self.random.random_bool(0.7) {
            C::step(&self.engine);
        }
    }

    /// Keys that are found on flash.
    fn on_flash(&self) -> Vec<u64> {
        let is_found = |key: &u64| C::version(&self.engine, *key, self.newest).is_some();
        (0..C::KEYS).filter(|&key| C::is_on_flash(&self.engine, key)).filter(is_found).collect()
    }
}

/// Checks an engine that was opened after a crash. Returns how many of `expected` it has.
fn audit<C: Case>(engine: &C::Engine, model: &Model, newest: u64, expected: &[u64], label: &str) -> usize {
    for key in 0..C::KEYS {
        if let Some(version) = C::version(engine, key, newest) {
            assert!(
                model.allows(key, version),
                "{label}: key {key} has version {version}, not {:?} nor {:?}",
                model.acknowledged.get(&key),
                model.begun
            );
        }
    }
    expected.iter().filter(|&&key| C::version(engine, key, newest).is_some()).count()
}

/// Items that were on flash before the ends of histories, and those found afterwards.
#[derive(Debug, Default)]
pub(super) struct Count {
    pub(super) before: usize,
    pub(super) after: usize,
    /// Images from the middle of a request that were checked.
    pub(super) cuts: usize,
}

/// Runs the case through three ends of at most `max_requests` requests each. Each is at the end of a call; for most, an image from the
/// middle of a request is checked as well.
fn run<C: Case>(case: &C, max_requests: u32, count: &mut Count) {
    let mut random = StdRng::seed_from_u64(case.seed());
    let (mut image, mut model, mut newest) = (case.blank_device(), Model::default(), 0);
    for session in 0..3 {
        let label = format!("{case:?}, session {session}");
        let durable = image.duplicate();
        let watched = Arc::new(WatchedDevice::new(image));
        let crashing = Arc::new(CrashDevice::over(Arc::clone(&watched) as _, durable));
        let device = Arc::clone(&crashing) as Arc<dyn Device>;
        let engine = match case.recovered(&device) {
            Ok(engine) => engine,
            Err(ChainError::Empty) if session == 0 => case.create(&device),
            Err(error) => panic!("{label}: {error}"),
        };
        C::acknowledge(&engine);
        let shared = Arc::new(Mutex::new(model));
        let cut: Arc<Mutex<Option<(MemoryDevice, Model)>>> = Arc::default();
        let cut_at = random.random_range(0..400_u64);
        {
            let (cut, crashing, shared) = (Arc::clone(&cut), Arc::downgrade(&crashing), Arc::clone(&shared));
            let case = case.clone();
            watched.watch(move |change| {
                if change.number == cut_at {
                    let crashing = crashing.upgrade().expect("the device is in use");
                    let image = case.end().image(&crashing, case.seed());
                    *cut.lock() = Some((image, shared.lock().clone()));
                }
                Ok(())
            });
        }
        let requests = random.random_range(100..max_requests);
        let random = StdRng::seed_from_u64(random.random());
        let mut history = History::<C> { engine, model: shared, random, newest };
        (0..requests).for_each(|_| history.request());
        let expected = history.on_flash();
        image = case.end().image(&crashing, case.seed() + session);
        model = history.model.lock().clone();
        newest = history.newest;
        drop(history);
        watched.unwatch();
        if let Some((image, model)) = cut.lock().take() {
            count.cuts += 1;
            let device: Arc<dyn Device> = Arc::new(image);
            let label = format!("{label}, cut at {cut_at}");
            let engine = case.recovered(&device).unwrap_or_else(|error| panic!("{label}: {error}"));
            audit::<C>(&engine, &model, newest, &[], &label);
        }
        let copy: Arc<dyn Device> = Arc::new(image.duplicate());
        let engine = case.recovered(&copy).unwrap_or_else(|error| panic!("{label}: {error}"));
        let found = audit::<C>(&engine, &model, newest, &expected, &label);
        (count.before, count.after) = (count.before + expected.len(), count.after + found);
    }
}

/// Runs all cases, and prints and returns the counts.
pub(super) fn run_all<C: Case>(cases: impl Iterator<Item = C>, max_requests: u32) -> Count {
    let mut count = Count::default();
    cases.for_each(|case| run(&case, max_requests, &mut count));
    println!("{count:?}");
    count
}

/// A device that calls a function before each change.
pub(super) struct WatchedDevice {
    inner: MemoryDevice,
    changes: AtomicU64,
    watcher: Mutex<Option<Watcher>>,
}

/// A write, trim or flush.
pub(super) struct Change {
    pub(super) number: u64,
    pub(super) kind: RequestKind,
    /// 0 for a flush.
    pub(super) offset: u64,
}

/// Called before each change. An error fails it.
type Watcher = Box<dyn Fn(&Change) -> Result<(), IoError> + Send + Sync>;

impl WatchedDevice {
    pub(super) fn new(inner: MemoryDevice) -> Self {
        Self { inner, changes: AtomicU64::new(0), watcher: Mutex::default() }
    }

    pub(super) fn watch(&self, watcher: impl Fn(&Change) -> Result<(), IoError> + Send + Sync + 'static) {
        *self.watcher.lock() = Some(Box::new(watcher));
    }

    pub(super) fn unwatch(&self) {
        *self.watcher.lock() = None;
    }

    fn before(&self, request: &Request) -> Result<(), IoError> {
        match request {
            Request::Read { .. } => Ok(()),
            Request::Write { offset, .. } | Request::Trim { offset, .. } => {
                self.before_change(request.kind(), *offset)
            }
            Request::Flush => self.before_change(RequestKind::Flush, 0),
        }
    }

    fn before_change(&self, kind: RequestKind, offset: u64) -> Result<(), IoError> {
        let number = self.changes.fetch_add(1, Ordering::Relaxed);
        let watcher = self.watcher.lock();
        watcher.as_ref().map_or(Ok(()), |watcher| watcher(&Change { number, kind, offset }))
    }
}

impl Device for WatchedDevice {
    forward_device!(inner: geometry, counters);

    fn submit(&self, request: Request, completion: Completion) {
        match self.before(&request) {
            Ok(()) => self.inner.submit(request, completion),
            Err(error) => completion.complete(Err(error)),
        }
    }

    fn execute(&self, request: Request) -> Outcome {
        self.before(&request)?;
        self.inner.execute(request)
    }

    fn absorb(&self, offset: u64, data: &IoSlice) -> Option<Result<(), IoError>> {
        match self.before_change(RequestKind::Write, offset) {
            Ok(()) => self.inner.absorb(offset, data),
            Err(error) => Some(Err(error)),
        }
    }
}
