//! Virtual clients of one cache in one simulated world.

use std::cell::{Cell, RefCell};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use device::sim::{LatencyModel, World};
use device::wrap::{FaultDevice, Faults};
use device::{Clock, Device, MemoryDevice, SimulatedDevice, Simulation};
use flashwright_cache::{Cache, Fetched, FlashConfig, InsertOptions, Inserted, Layer, Stats};
use futures_util::future::{Either, select};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::late::LateDevice;
use crate::ledger::{Ended, Ledger, LifetimeSet};
use crate::setup::{KIB, MIB, cache_config, flash, key, open_stepped, value, version_of};

/// The end of a simulation; a task that still waits then waits for an event that never happens.
const END_OF_SIMULATION_NS: u64 = 3_600_000_000_000;
/// The longest usual pause between two requests of a client. Some pauses are much longer, so that items expire.
const LONGEST_USUAL_PAUSE_NS: u64 = 300_000;
const LONGEST_PAUSE_NS: u64 = 200_000_000;
/// The longest time after which a client drops a future that is not complete.
const LONGEST_WAIT_NS: u64 = 1_500_000;
/// Number of keys with many concurrent requests.
const CONTENDED_KEYS: u64 = 24;

/// Settings of a simulated cache and of its clients.
pub struct Plan {
    pub seed: u64,
    pub device_bytes: u64,
    pub dram_bytes: u64,
    pub clients: u64,
    pub keys: u64,
    pub requests_per_client: u64,
    pub latency: LatencyModel,
    pub faults: Faults,
    /// The cache never has to evict: a miss of an inserted key is an error.
    pub is_roomy: bool,
    /// Clients sometimes clear the cache.
    pub clears: bool,
    /// Futures of steps, inserts and waits are sometimes dropped before completion, so that their device requests
    /// complete later.
    pub drops: bool,
    pub flash: fn(&mut FlashConfig),
}

impl Plan {
    /// DRAM holds a tenth of the items, flash a half.
    pub fn crowded(seed: u64) -> Self {
        Self {
            seed,
            device_bytes: 3 * MIB,
            dram_bytes: 512 * KIB,
            clients: 8,
            keys: 1500,
            requests_per_client: 900,
            latency: LatencyModel::default(),
            faults: Faults::default(),
            is_roomy: false,
            clears: false,
            drops: false,
            flash: |_| {},
        }
    }

    /// Flash has space for many times all items.
    pub fn roomy(seed: u64) -> Self {
        Self {
            device_bytes: 64 * MIB,
            keys: 800,
            is_roomy: true,
            flash: |flash| flash.filter_bytes_per_bucket = 16,
            ..Self::crowded(seed)
        }
    }
}

/// The results of a run.
pub struct Outcome {
    /// Hash of all results that clients received, in order, with their times.
    pub trace: u64,
    pub seen: Seen,
    pub stats: Stats,
    pub faults: u64,
    pub closed: bool,
    /// Keys that the next cache on the device finds.
    pub back: u64,
}

/// Counts of requests and results, over all clients.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    pub inserts: u64,
    pub refused: u64,
    pub gets: u64,
    pub hits: u64,
    pub hits_flash: u64,
    pub loads: u64,
    pub fetches: u64,
    pub cancelled: u64,
    pub clears: u64,
    pub lifetimes: u64,
    pub settled: u64,
    pub dropped_steps: u64,
    pub dropped_inserts: u64,
}

struct Scene {
    cache: Arc<Cache>,
    world: World,
    ledger: RefCell<Ledger>,
    trace: RefCell<DefaultHasher>,
    seen: RefCell<Seen>,
    fetching: RefCell<Vec<bool>>,
    clients_left: Cell<u64>,
    is_roomy: bool,
    clears: bool,
    drops: bool,
    keys: u64,
    clients: u64,
    label: String,
}

/// Runs a plan to its end and closes the cache.
pub fn run(plan: &Plan) -> Outcome {
    let simulation = Simulation::new(plan.seed);
    let memory = Arc::new(MemoryDevice::new(plan.device_bytes));
    let slow = SimulatedDevice::new(simulation.world(), Arc::clone(&memory) as _, plan.latency);
    let mut slow: Arc<dyn Device> = Arc::new(slow);
    if plan.drops {
        slow = Arc::new(LateDevice { inner: slow, world: simulation.world() });
    }
    // Opening on a failing device may fail; this test is about a running cache.
    let faulty = Arc::new(FaultDevice::new(slow, plan.seed, Faults::default()));
    let scene = Rc::new(Scene::new(plan, &simulation, Arc::clone(&faulty) as _));
    faulty.set_faults(plan.faults);
    for client in 0..plan.clients {
        simulation.spawn(Rc::clone(&scene).client(client, plan.seed, plan.requests_per_client));
    }
    let stepping = [0, 1].map(|_| simulation.spawn(Rc::clone(&scene).step_until_done()));
    simulation.run_until_idle();
    assert!(stepping.iter().all(|task| task.result().is_some()), "{}: clients never ended", scene.label);
    let scene = Rc::into_inner(scene).expect("all tasks have ended");
    let stats = scene.cache.stats();
    let cache = Arc::into_inner(scene.cache).expect("this is the only reference");
    let closed = simulation.block_on(cache.close_async()).is_ok();
    let back = reopen(plan, &mut scene.ledger.into_inner(), memory, &simulation);
    Outcome {
        trace: scene.trace.into_inner().finish(),
        seen: scene.seen.into_inner(),
        stats,
        faults: faulty.injected(),
        closed,
        back,
    }
}

/// Opens the next cache on the device, without faults, and reads every key. Returns the number found.
fn reopen(plan: &Plan, ledger: &mut Ledger, memory: Arc<MemoryDevice>, simulation: &Simulation) -> u64 {
    let label = format!("seed {}, reopened", plan.seed);
    let mut flash = flash(memory);
    (plan.flash)(&mut flash);
    let config = cache_config(flash, plan.dram_bytes, plan.seed);
    let cache = open_stepped(config, simulation.clock()).expect("the cache opened before");
    let found = (0..plan.keys).filter(|&number| {
        let reading = ledger.begin_read(number, simulation.clock().unix_seconds());
        let item = cache.get_blocking(&key(number));
        let version = item.as_deref().map(|bytes| version_of(number, bytes));
        ledger.end_read(reading, version, &label);
        version.is_some()
    });
    found.count() as u64
}

impl Scene {
    fn new(plan: &Plan, simulation: &Simulation, device: Arc<dyn Device>) -> Self {
        let mut flash = flash(device);
        (plan.flash)(&mut flash);
        let config = cache_config(flash, plan.dram_bytes, plan.seed);
        let cache = open_stepped(config, simulation.clock()).expect("the configuration fits");
        let mut ledger = Ledger::new(plan.keys);
        (0..plan.keys).filter(|&key| is_loaded(key)).for_each(|key| ledger.may_have_been_loaded(key));
        Self {
            cache: Arc::new(cache),
            world: simulation.world(),
            ledger: RefCell::new(ledger),
            trace: RefCell::default(),
            seen: RefCell::default(),
            fetching: RefCell::new(vec![false; plan.keys as usize]),
            clients_left: Cell::new(plan.clients),
            is_roomy: plan.is_roomy,
            clears: plan.clears,
            drops: plan.drops,
            keys: plan.keys,
            clients: plan.clients,
            label: format!("seed {}", plan.seed),
        }
    }

    async fn step_until_done(self: Rc<Self>) {
        while self.clients_left.get() > 0 {
            let now_ns = self.world.monotonic_ns();
            assert!(now_ns < END_OF_SIMULATION_NS, "{}: {:?} never end", self.label, self.clients_left);
            let worked = self.unless_dropped(self.cache.step()).await;
            self.seen.borrow_mut().dropped_steps += u64::from(worked.is_none());
            if worked == Some(false) {
                self.world.sleep(50_000).await;
            }
        }
    }

    async fn client(self: Rc<Self>, client: u64, seed: u64, requests: u64) {
        let mut random = StdRng::seed_from_u64(seed << 8 | client);
        for _ in 0..requests {
            let pauses = random.random_bool(0.03);
            let longest_ns = if pauses { LONGEST_PAUSE_NS } else { LONGEST_USUAL_PAUSE_NS };
            self.world.sleep(random.random_range(0..longest_ns)).await;
            let any = skewed(&mut random, self.keys);
            let own = any / self.clients * self.clients + client;
            if self.clears && random.random_bool(0.0008) {
                self.clear();
            }
            if self.clears && random.random_bool(0.002) {
                self.settle().await;
            }
            match random.random_range(0..20) {
                0..5 if own < self.keys => self.insert(own, &mut random).await,
                5 | 6 if own < self.keys => self.remove(own, &mut random).await,
                7 => self.drop_a_get(any, &mut random).await,
                8 | 9 if own < self.keys && has_ttl(own) => self.set_ttl(own, &mut random).await,
                _ if is_loaded(any) => self.load(any, &mut random).await,
                _ => self.get(any, &mut random).await,
            }
        }
        self.clients_left.set(self.clients_left.get() - 1);
    }

    async fn insert(&self, number: u64, random: &mut StdRng) {
        let version = self.ledger.borrow_mut().begin_write(number);
        self.change_source(number, random).await;
        let ttl_seconds = has_ttl(number).then(|| random.random_range(1..3));
        let options = InsertOptions { ttl_seconds, ..InsertOptions::default() };
        let began_seconds = self.world.unix_seconds();
        let (key, value) = (key(number), value(number, version));
        let insert = self.cache.insert(&key, &value, options);
        // A loaded key may be read from its source at any time, so its writer must always complete the invalidation of
        // the cached value.
        let ended = if is_loaded(number) { Some(insert.await) } else { self.unless_dropped(insert).await };
        let Some(ended) = ended else {
            self.seen.borrow_mut().dropped_inserts += 1;
            return self.end_write(number, Ended::Dropped);
        };
        let now_seconds = self.world.unix_seconds();
        let lifetime = ttl_seconds.map(|ttl| (began_seconds + ttl, now_seconds + ttl));
        let stored = ended == Inserted::Stored;
        let ending = if stored { Ended::Stored { lifetime } } else { Ended::Gone };
        self.end_write(number, ending);
        let mut seen = self.seen.borrow_mut();
        seen.inserts += 1;
        seen.refused += u64::from(!stored);
        self.note((1, number, version, stored));
    }

    async fn remove(&self, number: u64, random: &mut StdRng) {
        let version = self.ledger.borrow_mut().begin_write(number);
        self.change_source(number, random).await;
        let may_have_held = self.cache.remove(&key(number));
        self.end_write(number, Ended::Gone);
        self.note((2, number, version, may_have_held));
    }

    /// Updates the source of fetches first; the cache is updated a little later.
    async fn change_source(&self, number: u64, random: &mut StdRng) {
        if is_loaded(number) {
            self.world.sleep(random.random_range(0..100_000)).await;
        }
    }

    fn end_write(&self, number: u64, ended: Ended) {
        let mut ledger = self.ledger.borrow_mut();
        ledger.end_write(number, ended);
        if is_loaded(number) {
            ledger.may_have_been_loaded(number);
        }
    }

    async fn set_ttl(&self, number: u64, random: &mut StdRng) {
        self.ledger.borrow_mut().begin_lifetime(number);
        let began_seconds = self.world.unix_seconds();
        let ttl_seconds = random.random_range(1..4);
        let set = self.cache.set_ttl(&key(number), Some(ttl_seconds)).await;
        let was_there = set.expect("DRAM is not pinned");
        let now_seconds = self.world.unix_seconds();
        let set = LifetimeSet { began_seconds, now_seconds, ttl_seconds, was_there };
        let had_to_be = self.ledger.borrow_mut().end_lifetime(number, set, &self.label);
        assert!(was_there || !(had_to_be && self.is_roomy), "{}: key {number} is lost", self.label);
        self.seen.borrow_mut().lifetimes += u64::from(was_there);
        self.note((7, number, was_there));
    }

    fn clear(&self) {
        self.ledger.borrow_mut().clear();
        self.cache.clear();
        self.seen.borrow_mut().clears += 1;
        self.note(6);
    }

    async fn settle(&self) {
        let settled = self.unless_dropped(self.cache.settle()).await.is_some_and(|settled| settled.is_ok());
        self.seen.borrow_mut().settled += u64::from(settled);
        self.note((8, settled));
    }

    async fn get(&self, number: u64, random: &mut StdRng) {
        let reading = self.ledger.borrow().begin_read(number, self.world.unix_seconds());
        let item = self.cache.get(&key(number)).await;
        let now_seconds = self.world.unix_seconds();
        let version = item.as_deref().map(|bytes| version_of(number, bytes));
        self.ledger.borrow_mut().end_read(reading, version, &self.label);
        let had_to = self.is_roomy && self.ledger.borrow().must_be_found(reading, now_seconds);
        assert!(version.is_some() || !had_to, "{}: key {number} is lost", self.label);
        let from_flash = item.as_ref().is_some_and(|item| item.layer() == Layer::Flash);
        {
            let mut seen = self.seen.borrow_mut();
            seen.gets += 1;
            seen.hits += u64::from(version.is_some());
            seen.hits_flash += u64::from(from_flash);
        }
        self.note((3, number, version, from_flash));
        if let Some(item) = item
            && random.random_bool(0.1)
        {
            self.world.sleep(3 * LONGEST_USUAL_PAUSE_NS).await;
            assert_eq!(Some(version_of(number, &item)), version, "{}: an item in use changed", self.label);
        }
    }

    async fn load(self: &Rc<Self>, number: u64, random: &mut StdRng) {
        let reading = self.ledger.borrow().begin_read(number, self.world.unix_seconds());
        let latency_ns = random.random_range(0..500_000);
        let scene = Rc::clone(self);
        let fetch = async move {
            let alone = !std::mem::replace(&mut scene.fetching.borrow_mut()[number as usize], true);
            assert!(alone, "{}: two callers fetch key {number} concurrently", scene.label);
            let version = scene.ledger.borrow().newest(number);
            scene.seen.borrow_mut().fetches += 1;
            scene.world.sleep(latency_ns).await;
            scene.fetching.borrow_mut()[number as usize] = false;
            Ok::<_, ()>(value(number, version))
        };
        // The simulation has one thread, so the future never moves to another.
        let fetch = || send_wrapper::SendWrapper::new(fetch);
        let options = InsertOptions::default();
        let loaded = self.cache.get_or_insert_with(&key(number), options, fetch).await;
        let loaded = loaded.expect("this fetch never fails");
        let version = version_of(number, &loaded);
        // A fetched value says nothing about the content of the cache.
        let floor_only = matches!(loaded, Fetched::Made(_));
        self.seen.borrow_mut().loads += 1;
        if !floor_only {
            self.ledger.borrow_mut().end_read(reading, Some(version), &self.label);
        }
        self.note((4, number, Some(version), floor_only));
    }

    /// A get that is dropped before completion.
    async fn drop_a_get(&self, number: u64, random: &mut StdRng) {
        let key = key(number);
        let get = pin!(self.cache.get(&key));
        let enough = self.world.sleep(random.random_range(0..100_000));
        select(get, enough).await;
        self.seen.borrow_mut().cancelled += 1;
        self.note((5, number));
    }

    /// The output of `future`; `None` if it is dropped before completion.
    async fn unless_dropped<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        if !self.drops {
            return Some(future.await);
        }
        let limit_ns = self.world.random() % LONGEST_WAIT_NS;
        match select(pin!(future), self.world.sleep(limit_ns)).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(_) => None,
        }
    }

    fn note(&self, what: impl Hash) {
        let mut trace = self.trace.borrow_mut();
        (self.world.monotonic_ns(), what).hash(&mut *trace);
    }
}

/// Draws a key with a skewed distribution: low numbers are frequent, and a few keys have concurrent requests of several
/// clients.
fn skewed(random: &mut StdRng, keys: u64) -> u64 {
    if random.random_bool(0.3) {
        return random.random_range(0..CONTENDED_KEYS);
    }
    let share: f64 = random.random();
    (share * share * keys as f64) as u64
}

/// Keys whose readers fetch them from their source.
fn is_loaded(number: u64) -> bool {
    number % 5 == 4
}

/// Keys whose items have a time to live.
fn has_ttl(number: u64) -> bool {
    number % 5 == 3
}
