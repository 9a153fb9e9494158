//! Custom policies: an application adds one without changes to this crate.
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::timer::{self, Timer};
use device::{MemoryDevice, Simulation};
use flashwright_cache::config::UpkeepConfig;
use flashwright_cache::config::regions::{
    ByEviction, Caching, CachingPolicy, Object, OrderConfig, OwnCaching, OwnOrder, Priority, QueueState,
    RegionConfig, RegionId, RegionOrder, RipqConfig,
};
use flashwright_cache::internals::region::{DryStore, Packing};
use flashwright_cache::{Cache, FlashConfig, InsertOptions, Inserted};
use futures_util::future::{join_all, select};
use policy::eviction::{EvictionConfig, Kind};
use policy::{Admission, Candidate, Entry, Eviction, HitRule, Slot};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const MIB: u64 = 1 << 20;
const DEFAULT_OPTIONS: InsertOptions = InsertOptions { pool: 0, ttl_seconds: None };

/// Last in, first out: evicts the newest entry first.
#[derive(Default)]
struct Lifo(Vec<Slot>);

impl Eviction for Lifo {
    fn insert(&mut self, slot: Slot, _entry: Entry, _now_seconds: u32) {
        self.0.push(slot);
    }
    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        self.0.pop()
    }
    fn remove(&mut self, slot: Slot) {
        self.0.retain(|held| *held != slot);
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn oldest(&self) -> Option<Slot> {
        self.0.last().copied()
    }
    fn hit_rule(&self) -> HitRule {
        HitRule::Ignore
    }
}

#[test]
fn custom_eviction_policy_selects_the_victims() {
    let builder = Cache::builder().dram_bytes(4 * MIB).max_item_bytes(64 << 10);
    let cache = builder.eviction_policy(Arc::new(|| Box::<Lifo>::default())).open().unwrap();
    let put = |number: u32| cache.insert_blocking(&number.to_le_bytes(), &[7; 3000], DEFAULT_OPTIONS);
    (0..4000).for_each(|number| {
        put(number);
    });
    let found = |numbers: std::ops::Range<u32>| {
        numbers.filter(|number| cache.contains(&number.to_le_bytes())).count()
    };
    assert_eq!(found(0..1000), 1000);
    assert_eq!(found(3000..4000), 1, "only the last item remains");
}

/// The same policy as [`Caching::Lru`], implemented outside the crate.
struct Recent;

impl CachingPolicy for Recent {
    fn insert(&self, _object: &Object, _queue: &QueueState) -> Priority {
        Priority::Relative(1.0)
    }
    fn hit(&self, _object: &Object, _queue: &QueueState) -> Priority {
        Priority::Relative(1.0)
    }
}

const RECENT: Caching = Caching::Own(OwnCaching {
    name: "recent",
    build: |_sections| Box::new(Recent),
    is_absolute: false,
    single_point: 1.0,
});
const OLDEST: OrderConfig =
    OrderConfig::Own(OwnOrder { name: "oldest", build: |_regions| Box::new(ByEviction::fifo()) });

fn hits(order: OrderConfig) -> usize {
    let mut config = RegionConfig::ripq(64 * MIB, Caching::Lru);
    config.order = order;
    let mut store = DryStore::new(&config, Packing::Entries).unwrap();
    let mut random = StdRng::seed_from_u64(7);
    let request = |_: &u32| store.request((random.random::<f64>().powi(3) * 9000.0) as u32, 20_000);
    (0..60_000).filter(request).count()
}

#[test]
fn external_caching_policy_is_called_like_a_built_in_one() {
    let ripq = |caching| OrderConfig::Ripq(RipqConfig::new(caching));
    assert_eq!(hits(ripq(RECENT)), hits(ripq(Caching::Lru)));
    assert_ne!(hits(ripq(RECENT)), hits(ripq(Caching::Slru { segments: 4 })));
    let single = |caching| OrderConfig::Ripq(RipqConfig { single_point: true, ..RipqConfig::new(caching) });
    assert_eq!(hits(single(RECENT)), hits(single(Caching::Lru)));
}

#[test]
fn caching_policy_with_an_invalid_insertion_point_is_refused() {
    let Caching::Own(own) = RECENT else { unreachable!() };
    let nowhere = Caching::Own(OwnCaching { single_point: f64::NAN, ..own });
    let refused = RegionConfig::ripq(64 * MIB, nowhere);
    let error = DryStore::new(&refused, Packing::Entries).err().unwrap();
    assert_eq!(
        error.to_string(),
        "regions.order: the single point of `recent` must be between 0 and 1, not NaN"
    );
}

#[test]
fn external_region_order_is_called_like_a_built_in_one() {
    assert_eq!(hits(OLDEST), hits(OrderConfig::Fifo));
    assert_ne!(hits(OLDEST), hits(OrderConfig::Lru));
}

#[test]
fn external_policies_are_equal_if_their_names_are() {
    let order = |name| OrderConfig::Own(OwnOrder { name, build: |_regions| Box::<Newest>::default() });
    assert_eq!(OLDEST, order("oldest"));
    assert_ne!(OLDEST, order("newest"));
    let caching = |name| {
        let build = |_sections| Box::new(Recent) as Box<dyn CachingPolicy>;
        Caching::Own(OwnCaching { name, build, is_absolute: true, single_point: 0.5 })
    };
    assert_eq!(RECENT, caching("recent"));
    assert_ne!(RECENT, caching("rare"));
}

#[test]
fn external_region_order_is_empty_if_its_length_is_0() {
    let mut order = Newest::default();
    assert!(order.is_empty());
    order.written(RegionId(0), 0);
    assert!(!order.is_empty());
}

/// Reclaims the newest region first.
#[derive(Default)]
struct Newest(Vec<(RegionId, u8)>);

impl RegionOrder for Newest {
    fn written(&mut self, region: RegionId, priority: u8) {
        self.0.push((region, priority));
    }
    fn hit(&mut self, _region: RegionId) {}
    fn wants_hits(&self) -> bool {
        false
    }
    fn victim(&mut self) -> Option<RegionId> {
        self.0.pop().map(|(region, _)| region)
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    /// The next victim is the last element, as `restore` expects.
    fn in_order(&mut self) -> Vec<(RegionId, u8)> {
        self.0.clone()
    }
}

#[test]
fn external_region_order_is_restored_at_reopen() {
    let device = Arc::new(MemoryDevice::new(16 * MIB));
    let open = || {
        let mut flash = FlashConfig::new(Arc::clone(&device) as _);
        flash.pairs[0].soc_share = 0.0;
        flash.regions.region_bytes = 128 << 10;
        flash.regions.order =
            OrderConfig::Own(OwnOrder { name: "newest", build: |_regions| Box::<Newest>::default() });
        let builder = Cache::builder().dram_bytes(MIB).max_item_bytes(16 << 10);
        builder.eviction(EvictionConfig::new(Kind::Fifo)).flash_config(flash).open().unwrap()
    };
    let fill = |cache: &Cache, numbers: std::ops::Range<u32>| {
        numbers.for_each(|number| {
            cache.insert_blocking(&number.to_le_bytes(), &[7; 3000], DEFAULT_OPTIONS);
        });
    };
    let oldest = |cache: &Cache| (0..3000_u32).filter(|number| cache.contains(&number.to_le_bytes())).count();
    let cache = open();
    fill(&cache, 0..9000);
    assert_eq!(oldest(&cache), 3000);
    cache.close().unwrap();
    let cache = open();
    fill(&cache, 9000..15_000);
    assert_eq!(oldest(&cache), 3000);
}

/// Catches a regression: after a panic in a custom policy, items stay in DRAM and cannot be evicted.
#[test]
fn admission_panic_admits_nothing() {
    struct Mistaken;
    impl Admission for Mistaken {
        fn admit(&self, candidate: &Candidate, _now_ns: u64) -> bool {
            if candidate.hash.is_multiple_of(2) {
                resume_unwind(Box::new("a mistake in the policy"))
            } else {
                true
            }
        }
        fn name(&self) -> &'static str {
            "mistaken"
        }
    }
    let mut flash = FlashConfig::new(Arc::new(MemoryDevice::new(32 * MIB)));
    flash.admission = Arc::new(Mistaken);
    let cache = Cache::builder().dram_bytes(4 * MIB).flash_config(flash).open().unwrap();
    for number in 0..60_000_u32 {
        let inserted = cache.insert_blocking(&number.to_le_bytes(), &[7; 300], DEFAULT_OPTIONS);
        assert_eq!(inserted, Inserted::Stored, "item {number}");
    }
    let puts = cache.stats().flash.unwrap().puts;
    assert!(puts.rejected_admission > 10_000 && puts.stored > 10_000, "{puts:?}");
}

/// Admits everything, and counts the notifications of written bytes.
#[derive(Default)]
struct Listening(AtomicU64);

impl Admission for Listening {
    fn admit(&self, _candidate: &Candidate, _now_ns: u64) -> bool {
        true
    }
    fn observe(&self, _written_bytes: u64, _now_ns: u64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn name(&self) -> &'static str {
        "listening"
    }
}

/// Catches a regression: the policy is notified only together with other upkeep, or once an hour if there is none.
#[test]
fn admission_policy_observes_writes_periodically() {
    for interval_ms in [0, 60_000] {
        let simulation = Simulation::new(1);
        let listening = Arc::new(Listening::default());
        let mut flash = FlashConfig::new(Arc::new(MemoryDevice::new(32 * MIB)));
        flash.admission = Arc::clone(&listening) as _;
        let upkeep = UpkeepConfig {
            reap_interval_ms: interval_ms,
            rebalance_interval_ms: interval_ms,
            ..UpkeepConfig::default()
        };
        let builder = Cache::builder().dram_bytes(4 * MIB).flash_config(flash).upkeep(upkeep);
        let cache = builder.clock(simulation.clock()).open_stepped().unwrap();
        let timer: Arc<dyn Timer> = Arc::new(simulation.world());
        let background = join_all(cache.background_tasks(&timer));
        simulation.block_on(async move {
            drop(select(timer::sleep(&*timer, 600_000_000_000), background).await);
        });
        let calls = listening.0.load(Ordering::Relaxed);
        assert!((500..700).contains(&calls), "{calls} times in ten minutes, upkeep each {interval_ms} ms");
    }
}
