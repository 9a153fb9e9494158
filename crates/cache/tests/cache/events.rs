//! The events that a sink receives, and the calls that it may make.
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use device::timer::SystemTimer;
use device::{MemoryDevice, VirtualClock};
use flashwright_cache::event::{Event, EventKind, EventSink, PutEnd};
use flashwright_cache::{Builder, Cache, FlashConfig, InsertOptions, Inserted, KeyHash, Layer, Refusal};
use policy::admission::{AdmissionConfig, Chance};

const DEFAULT_OPTIONS: InsertOptions = InsertOptions { pool: 0, ttl_seconds: None };
const MIB: u64 = 1 << 20;
/// Lengths of two values: the first is stored in buckets, the second in regions.
const LENGTHS: [usize; 2] = [300, 3000];

/// An event of an item: its key, the kind, the value's length, the expiry time.
type Recorded = (Vec<u8>, EventKind, Option<usize>, Option<u32>);

/// Records the events of the keys that `one_in` selects.
struct Log {
    one_in: u64,
    recorded: Mutex<Vec<Recorded>>,
}

impl Log {
    fn of_one_in(one_in: u64) -> Arc<Self> {
        Arc::new(Self { one_in, recorded: Mutex::default() })
    }

    /// The events since the last call.
    fn take(&self) -> Vec<Recorded> {
        std::mem::take(&mut self.recorded.lock().unwrap())
    }

    fn kinds(&self) -> Vec<EventKind> {
        self.take().into_iter().map(|(_, kind, ..)| kind).collect()
    }
}

impl EventSink for Log {
    fn wants(&self, hash: KeyHash) -> bool {
        hash.one_in(self.one_in)
    }

    fn on_event(&self, event: &Event<'_>) {
        assert_eq!(event.hash, KeyHash::seeded(event.key, SEED));
        let recorded = (event.key.to_vec(), event.kind, event.value_bytes, event.expiry_seconds);
        self.recorded.lock().unwrap().push(recorded);
    }
}

const SEED: u64 = 7;

fn memory_only() -> Builder {
    Cache::builder().hash_seed(SEED).dram_bytes(4 * MIB).max_item_bytes(16 << 10)
}

fn hybrid(change: impl FnOnce(&mut FlashConfig)) -> Builder {
    let mut flash = FlashConfig::new(Arc::new(MemoryDevice::new(8 * MIB)));
    flash.regions.region_bytes = 128 << 10;
    flash.pending_bytes = 64 << 10;
    change(&mut flash);
    memory_only().flash_config(flash)
}

fn put(cache: &Cache, number: u64, len: usize) {
    assert_eq!(
        cache.insert_blocking(&number.to_le_bytes(), &vec![7; len], DEFAULT_OPTIONS),
        Inserted::Stored
    );
}

fn has(cache: &Cache, number: u64) -> bool {
    cache.get_blocking(&number.to_le_bytes()).is_some()
}

#[test]
fn events_of_a_key_in_dram_are_emitted_in_order() {
    let (log, clock) = (Log::of_one_in(1), Arc::new(VirtualClock::default()));
    clock.advance_by(1_000_000_000);
    let cache = memory_only().clock(clock.clone()).events(log.clone()).open_stepped().unwrap();
    let for_ten = InsertOptions { ttl_seconds: Some(10), ..DEFAULT_OPTIONS };
    let expiry = {
        cache.insert_blocking(b"key", b"value", for_ten);
        cache.get_blocking(b"key").unwrap().expiry_seconds()
    };
    let item = |kind, bytes| (b"key".to_vec(), kind, Some(bytes), expiry);
    let none = |kind| (b"key".to_vec(), kind, None, None);
    assert_eq!(log.take(), [item(EventKind::Inserted, 5), item(EventKind::Found(Layer::Dram), 5)]);
    cache.insert_blocking(b"key", b"another", for_ten);
    assert!(cache.remove(b"key") && !cache.remove(b"key") && cache.get_blocking(b"key").is_none());
    let expected = [
        item(EventKind::Replaced, 7),
        item(EventKind::Removed(Layer::Dram), 7),
        none(EventKind::NotRemoved),
        none(EventKind::NotFound),
    ];
    assert_eq!(log.take(), expected);
    cache.insert_blocking(b"key", b"v", for_ten);
    clock.advance_by(11_000_000_000);
    assert!(cache.get_blocking(b"key").is_none());
    let expected = [item(EventKind::Inserted, 1), item(EventKind::Expired, 1), none(EventKind::NotFound)];
    assert_eq!(log.take(), expected);
}

#[test]
fn inserts_and_chains_emit_their_events() {
    let log = Log::of_one_in(1);
    let cache = memory_only().events(log.clone()).open().unwrap();
    assert_eq!(cache.add_chained_blocking(b"key", 3, |_| {}), Err(Refusal::NoParent));
    let recorded = log.kinds();
    assert_eq!(recorded, [EventKind::NotFound, EventKind::NotChained(Refusal::NoParent)]);
    put(&cache, 1, 10);
    cache.add_chained_blocking(&1_u64.to_le_bytes(), 3, |piece| piece.fill(1)).unwrap();
    assert!(
        !cache
            .insert_new_if_absent(cache.allocate_blocking(&1_u64.to_le_bytes(), 4, DEFAULT_OPTIONS).unwrap())
    );
    assert!(cache.insert_new_if_absent(cache.allocate_blocking(b"other", 4, DEFAULT_OPTIONS).unwrap()));
    let Err(refusal) = cache.allocate_blocking(b"key", 1 << 20, DEFAULT_OPTIONS) else {
        panic!("the draft is too large")
    };
    cache.clear();
    let recorded = log.kinds();
    let expected = [
        EventKind::Inserted,
        EventKind::Found(Layer::Dram),
        EventKind::Chained,
        EventKind::Present,
        EventKind::Inserted,
        EventKind::Refused(refusal),
        EventKind::Cleared,
        EventKind::Cleared,
    ];
    assert_eq!(recorded, expected);
    assert_eq!(log.take(), []);
}

#[test]
fn overtaken_load_is_reported() {
    let log = Log::of_one_in(1);
    let cache = Arc::new(memory_only().events(log.clone()).open().unwrap());
    let inserts = Arc::clone(&cache);
    let fetched = pollster::block_on(cache.get_or_insert_with(b"key", DEFAULT_OPTIONS, async move || {
        inserts.insert(b"key", b"newer", DEFAULT_OPTIONS).await;
        Ok::<_, ()>(b"older".to_vec())
    }));
    assert_eq!(&*fetched.unwrap(), b"older");
    assert_eq!(log.kinds(), [EventKind::NotFound, EventKind::Inserted, EventKind::Overtaken]);
}

#[test]
fn expired_items_are_reported_by_reaper_and_eviction() {
    let (log, clock) = (Log::of_one_in(1), Arc::new(VirtualClock::default()));
    clock.advance_by(1_000_000_000);
    let cache = memory_only().clock(clock.clone()).events(log.clone()).open_stepped().unwrap();
    let for_a_second = InsertOptions { ttl_seconds: Some(1), ..DEFAULT_OPTIONS };
    cache.insert_blocking(b"key", b"value", for_a_second);
    clock.advance_by(20_000_000_000);
    pollster::block_on(cache.step());
    assert_eq!(log.kinds(), [EventKind::Inserted, EventKind::Expired]);
    let room =
        (0..2000).map(|number: u64| cache.insert_blocking(&number.to_le_bytes(), &[1; 3000], for_a_second));
    assert_eq!(room.filter(|ended| *ended == Inserted::Stored).count(), 2000);
    log.take();
    clock.advance_by(5_000_000_000);
    put(&cache, 5000, 3000);
    assert_eq!(log.kinds(), [EventKind::EvictedFromDram { expired: true }, EventKind::Inserted]);
}

/// The counters of gets, inserts, offers to flash and DRAM evictions, by the kind of event that each counts.
fn counted(cache: &Cache) -> HashMap<EventKind, u64> {
    let stats = cache.stats();
    let puts = stats.flash.as_ref().map(|flash| flash.puts).unwrap_or_default();
    let evictions = stats.pools.iter().map(|pool| pool.total().evictions).sum();
    HashMap::from([
        (EventKind::Found(Layer::Dram), stats.gets.hits_dram),
        (EventKind::Found(Layer::Flash), stats.gets.hits_flash),
        (EventKind::NotFound, stats.gets.misses),
        (EventKind::Promoted, stats.gets.promotions),
        (EventKind::EvictedFromDram { expired: false }, evictions),
        (EventKind::Offered(PutEnd::Stored), puts.stored),
        (EventKind::Offered(PutEnd::Clean), puts.clean),
        (EventKind::Offered(PutEnd::NotAdmitted), puts.rejected_admission),
        (EventKind::Offered(PutEnd::TooLarge), puts.rejected_too_large),
        (EventKind::Offered(PutEnd::Overtaken), puts.overtaken),
        (EventKind::Offered(PutEnd::HeldBack), puts.held_back),
    ])
}

#[test]
fn emitted_events_equal_the_counters() {
    let log = Log::of_one_in(1);
    let half = AdmissionConfig::Probability { probability: 0.5, chance: Chance::EachTime { seed: 1 } };
    let builder = hybrid(|flash| flash.admission = Arc::from(policy::admission::build(&[half])));
    let cache = builder.events(log.clone()).open().unwrap();
    for number in 0..20_000_u64 {
        put(&cache, number, LENGTHS[number as usize % 2]);
        has(&cache, number * 7 % 5000);
        if number % 5 == 0 {
            cache.remove(&(number / 2).to_le_bytes());
        }
    }
    pollster::block_on(cache.settle()).unwrap();
    let (counted, stats) = (counted(&cache), cache.stats());
    let mut recorded: HashMap<EventKind, u64> = HashMap::new();
    log.take().into_iter().for_each(|(_, kind, ..)| *recorded.entry(kind).or_default() += 1);
    for (kind, count) in counted {
        assert_eq!(recorded.get(&kind).copied().unwrap_or(0), count, "{kind:?}");
    }
    let of = |kind| recorded.get(&kind).copied().unwrap_or(0);
    assert_eq!(of(EventKind::Inserted) + of(EventKind::Replaced), stats.inserts.stored);
    let removes =
        [EventKind::Removed(Layer::Dram), EventKind::Removed(Layer::Flash), EventKind::NotRemoved].map(of);
    assert_eq!(removes.iter().sum::<u64>(), 4000);
    assert!(removes.iter().all(|count| *count > 0), "{removes:?}");
    let flash = stats.flash.unwrap();
    let evicted = flash.soc.unwrap().evictions + flash.regions.unwrap().evictions;
    let evicted_events = of(EventKind::EvictedFromFlash { expired: false });
    assert!(evicted_events > 1000 && evicted_events <= evicted, "{evicted_events} of {evicted}");
}

#[test]
fn reclaim_reports_every_evicted_item_and_reads_no_others() {
    let run = |one_in| {
        let log = Log::of_one_in(one_in);
        let cache = hybrid(|flash| flash.pairs[0].soc_share = 0.0).events(log.clone()).open().unwrap();
        (0..20_000_u64).for_each(|number| put(&cache, number, 3000));
        pollster::block_on(cache.settle()).unwrap();
        // All pending items are written. A region may still be in reclaim: its evictions are counted, but some of their
        // events are emitted only when the reclaim ends.
        let regions = || cache.stats().flash.unwrap().regions.unwrap();
        let evictions_later = || {
            pollster::block_on(device::timer::sleep(&SystemTimer::default(), 100_000_000));
            regions().evictions
        };
        while regions().evictions != evictions_later() {}
        let evicted = EventKind::EvictedFromFlash { expired: false };
        let recorded: Vec<u64> = log
            .take()
            .into_iter()
            .filter(|(_, kind, bytes, _)| *kind == evicted && *bytes == Some(3000))
            .map(|(key, ..)| u64::from_le_bytes(key.try_into().unwrap()))
            .collect();
        let regions = regions();
        (recorded, regions.evictions, regions.reclaim_read_bytes)
    };
    let (all, evictions, read_bytes) = run(1);
    assert_eq!((all.len() as u64, evictions > 1000), (evictions, true));
    let (some, evictions, read_for_some) = run(100);
    let wanted = |number: &u64| KeyHash::seeded(&number.to_le_bytes(), SEED).one_in(100);
    assert!(some.iter().all(wanted) && !some.is_empty() && (some.len() as u64) < evictions / 20);
    let (_, _, read_for_none) = run(0);
    let (whole, part) = (read_bytes - read_for_none, read_for_some - read_for_none);
    assert!(part < whole / 10, "{part} of {whole}");
}

#[test]
fn sink_receives_all_events_of_selected_keys_and_none_of_others() {
    let (whole, part) = (Log::of_one_in(1), Log::of_one_in(10));
    let run = |log: &Arc<Log>| {
        let cache = memory_only().events(log.clone()).open().unwrap();
        for number in 0..20_000_u64 {
            put(&cache, number % 3000, 3000);
            has(&cache, number * 7 % 3000);
        }
        log.take()
    };
    let wanted = |event: &Recorded| KeyHash::seeded(&event.0, SEED).one_in(10);
    let expected: Vec<Recorded> = run(&whole).into_iter().filter(wanted).collect();
    assert!(expected.len() > 1000);
    assert_eq!(run(&part), expected);
}

/// A cache whose event sink calls `on_event` with the cache.
fn cache_with_sink(
    builder: Builder,
    on_event: impl Fn(&Cache, &Event<'_>) + Send + Sync + 'static,
) -> Arc<Cache> {
    struct CallbackSink<F>(OnceLock<Weak<Cache>>, F);
    impl<F: Fn(&Cache, &Event<'_>) + Send + Sync> EventSink for CallbackSink<F> {
        fn on_event(&self, event: &Event<'_>) {
            if let Some(cache) = self.0.get().and_then(Weak::upgrade) {
                (self.1)(&cache, event);
            }
        }
    }
    let sink = Arc::new(CallbackSink(OnceLock::new(), on_event));
    let cache = Arc::new(builder.events(sink.clone()).open().unwrap());
    sink.0.set(Arc::downgrade(&cache)).unwrap();
    cache
}

#[test]
fn sink_may_read_and_remove_but_not_insert() {
    let refused = Arc::new(Mutex::new(0));
    let counted = refused.clone();
    let cache = cache_with_sink(hybrid(|_| {}), move |cache, event| {
        let number = u64::from_le_bytes(event.key.try_into().unwrap());
        has(cache, number);
        has(cache, number.wrapping_sub(700));
        cache.remove(&(number + 1).to_le_bytes());
        if number % 64 == 0 {
            let panic = catch_unwind(AssertUnwindSafe(|| put(cache, number, 3000))).unwrap_err();
            let message = panic.downcast_ref::<String>().unwrap();
            assert!(message.contains("a sink of events must not insert an item into"), "{message}");
            *counted.lock().unwrap() += 1;
        }
    });
    std::thread::scope(|scope| {
        for client in 0..3 {
            let cache = &cache;
            scope.spawn(move || {
                for at in 0..5000 {
                    put(cache, at * 3 + client, LENGTHS[at as usize % 2]);
                    has(cache, at);
                }
            });
        }
    });
    assert!(*refused.lock().unwrap() > 100);
}

#[test]
fn sink_panic_loses_only_its_event() {
    let cache = cache_with_sink(hybrid(|_| {}), |_, _| resume_unwind(Box::new("a mistake in the sink")));
    for number in 0..20_000 {
        put(&cache, number, LENGTHS[number as usize % 2]);
        assert!(has(&cache, number));
    }
    assert!(cache.stats().flash.unwrap().puts.stored > 1000);
}

/// Catches a regression: the panic leaves the item marked as being evicted.
#[test]
fn sink_that_panics_in_its_key_filter_receives_nothing_and_leaks_nothing() {
    struct Requested;
    impl EventSink for Requested {
        fn wants(&self, _: KeyHash) -> bool {
            resume_unwind(Box::new("a mistake in the question"))
        }
        fn on_event(&self, event: &Event<'_>) {
            panic!("{event:?}")
        }
    }
    let cache = hybrid(|_| {}).events(Arc::new(Requested)).open().unwrap();
    for number in 0..20_000 {
        put(&cache, number, LENGTHS[number as usize % 2]);
        assert!(has(&cache, number));
    }
    assert!(cache.stats().flash.unwrap().puts.stored > 1000);
}
