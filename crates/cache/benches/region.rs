//! Cost of the region store: CPU time per insert and read, bytes per item, restart.
//!
//! `cargo bench -p flashwright-cache --bench region`. Under `cargo test` the same code runs with small sizes. With the name of a policy,
//! only that one is filled and read, for `perf stat -e instructions:u`: `cargo bench -p flashwright-cache --bench region -- ripq`.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::sync::Arc;

use cache::KeyHash;
use cache::config::regions::{Caching, OrderConfig, RegionConfig, RipqConfig};
use cache::internals::region::{Progress, Refusal, RegionStore, StoreId};
use cache::internals::{FlashItem, Waiting};
use device::{Completion, Counters, Device, Geometry, IoBuffer, MemoryDevice, Outcome, Request, SystemClock};
use flashwright_cache as cache;
use pollster::block_on;
use rustix::time::{ClockId, clock_gettime};

/// Accepts every write and stores nothing, so that only the store is measured.
struct Sink(Geometry);

impl Device for Sink {
    fn geometry(&self) -> Geometry {
        self.0
    }

    fn submit(&self, request: Request, completion: Completion) {
        completion.complete(self.execute(request));
    }

    fn execute(&self, request: Request) -> Outcome {
        match request {
            Request::Read { buffer, .. } => Ok(buffer),
            _ => Ok(IoBuffer::empty()),
        }
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

fn main() {
    let is_full = std::env::args().any(|argument| argument == "--bench");
    let scale = if is_full { 1 } else { 100 };
    let requested = |(name, _): &(&str, RegionConfig)| std::env::args().any(|argument| argument == *name);
    if let Some((name, config)) = policies().into_iter().find(requested) {
        fill_and_read(name, config, 200_000 / scale, 400_000 / scale);
        return;
    }
    for (name, config) in policies() {
        fill_and_read(name, config, 50_000 / scale, 100_000 / scale);
    }
    insert_large(40_000 / scale);
    million_items(1_000_000 / scale);
}

/// Objects of 16 to 64 KiB through regions of 16 MiB, wrapping around.
fn insert_large(inserts: u64) {
    let capacity_bytes = 512 << 20;
    let geometry = Geometry {
        capacity_bytes,
        block_bytes: 4096,
        max_io_bytes: 1 << 20,
        indirection_bytes: 4096,
        placement_handles: 0,
        buffered: false,
    };
    let store = open(Arc::new(Sink(geometry)), RegionConfig::new(capacity_bytes));
    let content: Vec<u8> = (0..64 << 10).map(|at: u32| ((at * at) >> 7) as u8).collect();
    let size_of = |key: u64| (16 << 10) + KeyHash::of(&key.to_le_bytes()).0 as usize % (48 << 10);
    let cpu_ns = processor_ns(|| (0..inserts).for_each(|key| put(&store, key, &content[..size_of(key)])));
    block_on(store.drain(Waiting::Thread));
    let stats = store.stats();
    report("insert, 16 to 64 KiB", cpu_ns as f64 / inserts as f64 / 1000.0, "µs CPU");
    if let Some(amplification) = stats.write_amplification() {
        report("write amplification, 16 to 64 KiB", amplification, "B written a byte inserted");
    }
    let flushed = stats.regions_flushed * (16 << 20);
    let density = 1.0 - (stats.hole_bytes as f64 / flushed.max(1) as f64);
    report("region bytes that are entries and table", density * 100.0, "%");
}

/// The large-object cache, and the photo caches' policies for the same objects.
fn policies() -> [(&'static str, RegionConfig); 5] {
    let loc = RegionConfig { region_bytes: 4 << 20, buffers: 20, ..RegionConfig::new(256 << 20) };
    let of = |order| RegionConfig { order, ..loc.clone() };
    let slru = Caching::Slru { segments: 4 };
    [
        ("loc", loc.clone()),
        ("loc-lru", of(OrderConfig::Lru)),
        ("blockcache", of(OrderConfig::SegmentedLru { segments: 4 })),
        ("ripq", of(OrderConfig::Ripq(RipqConfig::new(slru)))),
        ("ripq-gdsf", of(OrderConfig::Ripq(RipqConfig::new(Caching::GDSF)))),
    ]
}

/// Objects of 2 to 30 KiB: inserts beyond the capacity, then reads of the newest, popular ones more often.
fn fill_and_read(name: &str, config: RegionConfig, inserts: u64, reads: u64) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_block_bytes(config.capacity_bytes, 4096));
    let store = open(device, config);
    let content = vec![7; 32 << 10];
    let size_of = |key: u64| (2 << 10) + KeyHash::of(&key.to_le_bytes()).0 as usize % (28 << 10);
    let cpu_ns = processor_ns(|| (0..inserts).for_each(|key| put(&store, key, &content[..size_of(key)])));
    report(&format!("{name}: insert"), cpu_ns as f64 / inserts as f64 / 1000.0, "µs CPU, device included");
    let (mut hits, mut random) = (0_u64, 1_u64);
    let cpu_ns = processor_ns(|| {
        for _ in 0..reads {
            random = KeyHash(random).remix();
            let newest = inserts.min(10_000);
            let rank = (random % newest).min((random >> 32) % newest);
            let key = (inserts - 1 - rank).to_le_bytes();
            let lookup = block_on(store.read(KeyHash::of(&key), &key, Waiting::Thread));
            hits += u64::from(lookup.found().is_some());
        }
    });
    report(&format!("{name}: read"), cpu_ns as f64 / reads as f64 / 1000.0, "µs CPU, device included");
    report(&format!("{name}: share of reads that hit"), hits as f64 / reads as f64, "");
    let memory = store.memory();
    report(&format!("{name}: index"), memory.index_bytes as f64 / store.len() as f64, "B an item");
}

/// Many small items: the index, reads, and a restart.
fn million_items(items: u64) {
    let capacity_bytes = (items * 200).next_multiple_of(16 << 20) + (8 << 24);
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_block_bytes(capacity_bytes, 4096));
    let store = open(Arc::clone(&device), RegionConfig::new(capacity_bytes));
    let cpu_ns = processor_ns(|| (0..items).for_each(|key| put(&store, key, &[7; 100])));
    report("insert, 100 B", cpu_ns as f64 / items as f64, "ns CPU, device included");
    report("index", store.memory().index_bytes as f64 / store.len() as f64, "B an item");
    block_on(store.drain(Waiting::Thread));

    let reads = items / 10;
    let mut found = 0;
    let cpu_ns = processor_ns(|| {
        for number in 0..reads {
            let key = (number * 7919 % items).to_le_bytes();
            let lookup = block_on(store.read(KeyHash::of(&key), &key, Waiting::Thread));
            found += u64::from(lookup.found().is_some());
        }
    });
    assert!(found > reads * 99 / 100, "{found} of {reads} found");
    report("read, 100 B in a 4 KiB block", cpu_ns as f64 / reads as f64, "ns CPU, device included");

    let mut snapshot = Vec::new();
    let cpu_ns = processor_ns(|| snapshot = store.snapshot());
    report("snapshot", cpu_ns as f64 / 1e6, "ms CPU");
    report("snapshot", snapshot.len() as f64 / store.len() as f64, "B an item");
    let (config, len) = (RegionConfig::new(capacity_bytes), store.len());
    drop(store);
    let cpu_ns = processor_ns(|| {
        let restored =
            RegionStore::restore(device, Arc::new(SystemClock), config, &snapshot, Waiting::Thread);
        assert_eq!(block_on(restored).expect("an intact store").len(), len);
    });
    report(&format!("restart with {len} items"), cpu_ns as f64 / 1e6, "ms CPU");
}

fn open(device: Arc<dyn Device>, config: RegionConfig) -> RegionStore {
    RegionStore::create(device, Arc::new(SystemClock), config, StoreId(1)).expect("a sound configuration")
}

fn put(store: &RegionStore, key: u64, value: &[u8]) {
    let key = key.to_le_bytes();
    let item = FlashItem { key: &key, hash: KeyHash::of(&key), value: &[value], expiry_seconds: 0, tag: 0 };
    loop {
        match store.stage(&item) {
            Ok(staged) => return store.commit(staged),
            Err(Refusal::Full) => while block_on(store.step(Waiting::Thread)) != Progress::Idle {},
            Err(refusal) => panic!("{refusal}"),
        }
    }
}

fn processor_ns(work: impl FnOnce()) -> u64 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
    };
    let before = now();
    work();
    now() - before
}

fn report(what: &str, figure: f64, unit: &str) {
    println!("{what:45} {figure:12.3} {unit}");
}
