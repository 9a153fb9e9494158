//! Hybrid caches: objects held in a file of a given size, the cost of filling it, and the cost of a hit from disk.
//!
//! One cache per process, so that resident memory is its own. The cache is filled beyond its capacity; the number of objects held is
//! estimated by reading a sample of all keys. Then the cache is closed and reopened, and recently inserted keys are read at a fixed queue
//! depth: from disk, since DRAM is empty and the drive has finished its writes.

use std::path::PathBuf;
use std::sync::Arc;

use cache::config::{LogOptions, PairConfig};
use cache::{Cache, FlashConfig, InsertOptions, SmallItems, block_on};
use device::FileDevice;
use device::file::OpenOptions;
use foyer::{
    BlockEngineConfig, Code as _, DeviceBuilder as _, FsDeviceBuilder, HybridCache, HybridCacheBuilder,
    IoEngineConfig, PsyncIoEngineConfig, UringIoEngineConfig,
};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use crate::measure::{Spent, Start, resident_bytes};
use crate::population::uniform;

#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The cache.
    #[arg(long, value_enum)]
    cache: Which,
    /// A directory on the drive to be measured; its files stay.
    #[arg(long)]
    directory: PathBuf,
    /// MiB of the file.
    #[arg(long, default_value_t = 1024)]
    flash_mib: u64,
    /// Objects of 16 to 64 KiB instead of 300 B.
    #[arg(long)]
    large: bool,
    /// Bytes inserted over bytes of the file.
    #[arg(long, default_value_t = 1.3)]
    fill: f64,
    /// Reads from disk at the same time.
    #[arg(long, default_value_t = 32)]
    depth: usize,
    /// Reads measured.
    #[arg(long, default_value_t = 500_000)]
    reads: usize,
    /// Only reads: an earlier run with the same arguments filled the file. Only for ours.
    #[arg(long)]
    filled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    /// Our cache with small items in sets.
    Ours,
    /// Our cache with small items in a log in hash order.
    OursLog,
    Foyer,
    FoyerUring,
}

/// Small, so that nearly all objects are on disk.
const DRAM_BYTES: u64 = 16 << 20;
const SMALL_BYTES: usize = 300;
const LARGEST_BYTES: usize = 64 << 10;
/// Keys looked up to estimate the share of objects held.
const SAMPLE: usize = 20_000;
/// Inserts between two pauses in which foyer, which drops data that exceeds its buffers, catches up.
const BURST_BYTES: usize = 4 << 20;

impl Arguments {
    fn flash_bytes(&self) -> u64 {
        self.flash_mib << 20
    }

    fn value_len(&self, key: u64) -> usize {
        let spread = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        if self.large { (16 << 10) + spread as usize % (48 << 10) } else { SMALL_BYTES }
    }

    fn average_bytes(&self) -> u64 {
        if self.large { 40 << 10 } else { SMALL_BYTES as u64 }
    }

    fn objects(&self) -> u64 {
        (self.flash_bytes() as f64 * self.fill) as u64 / self.average_bytes()
    }
}

pub fn run(arguments: &Arguments) {
    println!(
        "flash: {:?}, {} MiB, {} objects of {}, depth {}",
        arguments.cache,
        arguments.flash_mib,
        arguments.objects(),
        if arguments.large { "16 to 64 KiB" } else { "300 B" },
        arguments.depth
    );
    std::fs::create_dir_all(&arguments.directory).expect("a directory can be made");
    match arguments.cache {
        Which::Ours | Which::OursLog => measure(arguments, fill_ours, reread_ours),
        Which::Foyer | Which::FoyerUring => measure(
            arguments,
            |arguments| in_runtime(fill_foyer(arguments)),
            |arguments, keys| in_runtime(reread_foyer(arguments, keys)),
        ),
    }
}

/// Fills and closes a cache with `fill`, and reopens and reads it with `reread`.
fn measure(
    arguments: &Arguments,
    fill: impl FnOnce(&Arguments) -> Filled,
    reread: impl FnOnce(&Arguments, &[u64]) -> Reread,
) {
    let filled = fill(arguments);
    if !arguments.filled {
        filled.print(arguments);
    }
    reread(arguments, &keys_on_disk(arguments, &filled)).print(arguments);
}

struct Filled {
    inserting: Spent,
    written_bytes: u64,
    memory_bytes: u64,
    in_dram: u64,
    sample_found: usize,
}

impl Filled {
    fn print(&self, arguments: &Arguments) {
        let objects = arguments.objects();
        let payload: u64 = (0..objects).map(|key| 8 + arguments.value_len(key) as u64).sum();
        let held = objects as f64 * self.sample_found as f64 / SAMPLE as f64 - self.in_dram as f64;
        // Keys and values.
        let density = held * payload as f64 / objects as f64 / arguments.flash_bytes() as f64;
        println!("  insert               {:10.2} µs CPU", self.inserting.cpu_us_per(objects as usize));
        println!("  written a byte       {:10.3}", self.written_bytes as f64 / payload as f64);
        println!(
            "  objects held         {held:10.0}, {:.1} % of the file is their keys and values",
            density * 100.0
        );
        println!("  memory beside DRAM   {:10.2} B an object", self.memory_bytes as f64 / held);
    }
}

struct Reread {
    reopening: Spent,
    reading: Spent,
    reads_found: usize,
    disk_reads: u64,
}

impl Reread {
    fn print(&self, arguments: &Arguments) {
        println!(
            "  reopen               {:10.3} s, {:.3} s CPU",
            self.reopening.wall.as_secs_f64(),
            self.reopening.cpu.as_secs_f64()
        );
        println!("  reads a second       {:10.0}", self.reading.per_second(arguments.reads));
        println!("  read                 {:10.2} µs CPU", self.reading.cpu_us_per(arguments.reads));
        println!("  found                {:10.4}", self.reads_found as f64 / arguments.reads as f64);
        println!("  reads of the disk    {:10.4}", self.disk_reads as f64 / arguments.reads as f64);
    }
}

/// Values of every length, cut from the same bytes.
struct Content(Vec<u8>);

impl Content {
    fn new() -> Self {
        Self((0..LARGEST_BYTES as u32 * 2).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect())
    }

    fn of(&self, arguments: &Arguments, key: u64) -> &[u8] {
        let start = key as usize % LARGEST_BYTES;
        &self.0[start..start + arguments.value_len(key)]
    }
}

/// The newer half of the keys that were on disk when the cache was full: inserted before those in DRAM.
fn keys_on_disk(arguments: &Arguments, filled: &Filled) -> Vec<u64> {
    let objects = arguments.objects();
    let on_disk = (objects * filled.sample_found as u64 / SAMPLE as u64).saturating_sub(filled.in_dram);
    // DRAM does not evict exactly in order.
    let youngest = objects.saturating_sub(filled.in_dram * 5 / 4).max(1);
    uniform(youngest.saturating_sub((on_disk / 2).max(1))..youngest, arguments.reads, 3)
}

fn fill_ours(arguments: &Arguments) -> Filled {
    let content = Content::new();
    let before = resident_bytes();
    let cache = open_ours(arguments);
    let start = Start::now();
    let inserted = if arguments.filled { 0 } else { arguments.objects() };
    for key in 0..inserted {
        let value = content.of(arguments, key);
        cache.insert_blocking(&key.to_le_bytes(), value, &InsertOptions::default());
    }
    let inserting = start.spent();
    let stats = cache.stats();
    let written_bytes = stats.flash.as_ref().map_or(0, |flash| flash.device.written_bytes);
    let dram =
        stats.dram_memory.used_slab_bytes + stats.dram_memory.index_bytes + stats.dram_memory.policy_bytes;
    let memory_bytes = resident_bytes().saturating_sub(before + dram);
    let in_dram = stats.pools.iter().flat_map(|pool| &pool.classes).map(|class| class.items).sum();
    let sample = uniform(0..arguments.objects(), SAMPLE, 7);
    let sample_found = block_on(read_ours(&cache, &content, arguments, &sample));
    let start = Start::now();
    cache.close().expect("the file takes the snapshot");
    println!("  close                {:10.2} s", start.spent().wall.as_secs_f64());
    Filled { inserting, written_bytes, memory_bytes, in_dram, sample_found }
}

fn reread_ours(arguments: &Arguments, keys: &[u64]) -> Reread {
    let content = Content::new();
    let start = Start::now();
    let cache = open_ours(arguments);
    let reopening = start.spent();
    assert!(cache.stats().flash.is_some_and(|flash| flash.recovered), "what was held is held after a close");
    let start = Start::now();
    let reads_found = block_on(read_ours(&cache, &content, arguments, keys));
    let reading = start.spent();
    let disk_reads = cache.stats().gets.hits_flash;
    cache.close().expect("the file takes the snapshot");
    Reread { reopening, reading, reads_found, disk_reads }
}

fn open_ours(arguments: &Arguments) -> Cache {
    let path = arguments.directory.join("ours");
    let options = OpenOptions {
        size_bytes: Some(arguments.flash_bytes()),
        create: true,
        preallocate: true,
        ..Default::default()
    };
    let device = Arc::new(FileDevice::open(&path, &options).expect("a file that allows direct I/O"));
    let mut flash = FlashConfig::new(device);
    flash.pairs = vec![PairConfig { device_share: 1.0, soc_share: if arguments.large { 0.0 } else { 1.0 } }];
    flash.small_items = Some(if arguments.cache == Which::OursLog {
        // Keys and values have 308 bytes; nothing is read twice, so nothing is readmitted.
        SmallItems::Log(LogOptions { expected_item_bytes: 300, ..LogOptions::default() })
    } else {
        SmallItems::Sets
    });
    Cache::builder().dram_bytes(DRAM_BYTES).flash_config(flash).open().expect("a cache opens on its file")
}

async fn read_ours(cache: &Cache, content: &Content, arguments: &Arguments, keys: &[u64]) -> usize {
    let read = |key: u64| async move {
        match cache.get(&key.to_le_bytes()).await {
            Some(item) => {
                assert_eq!(item[..8], content.of(arguments, key)[..8], "another object's value");
                true
            }
            None => false,
        }
    };
    at_depth(arguments.depth, keys, read).await
}

async fn at_depth<F: Future<Output = bool>>(depth: usize, keys: &[u64], read: impl Fn(u64) -> F) -> usize {
    let mut keys = keys.iter().copied();
    let mut in_flight: FuturesUnordered<_> = keys.by_ref().take(depth).map(&read).collect();
    let mut found = 0;
    while let Some(hit) = in_flight.next().await {
        found += usize::from(hit);
        in_flight.extend(keys.next().map(&read));
    }
    found
}

type Foyer = HybridCache<u64, Vec<u8>>;

fn in_runtime<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime starts").block_on(work)
}

async fn fill_foyer(arguments: &Arguments) -> Filled {
    let content = Content::new();
    let before = resident_bytes();
    let cache = open_foyer(arguments).await;
    let start = Start::now();
    let mut burst_bytes = 0;
    for key in 0..arguments.objects() {
        let value = content.of(arguments, key).to_vec();
        // foyer writes at least a page per object.
        burst_bytes += value.estimated_size().next_multiple_of(4096);
        cache.insert(key, value);
        if burst_bytes > BURST_BYTES {
            cache.storage().wait().await;
            burst_bytes = 0;
        }
    }
    cache.storage().wait().await;
    let inserting = start.spent();
    let written_bytes = cache.statistics().disk_write_bytes() as u64;
    let memory_bytes = resident_bytes().saturating_sub(before + DRAM_BYTES);
    let in_dram = cache.memory().usage() as u64 / (8 + arguments.average_bytes());
    let sample = uniform(0..arguments.objects(), SAMPLE, 7);
    let sample_found = read_foyer(&cache, &content, arguments, &sample).await;
    cache.close().await.expect("foyer closes");
    Filled { inserting, written_bytes, memory_bytes, in_dram, sample_found }
}

async fn reread_foyer(arguments: &Arguments, keys: &[u64]) -> Reread {
    let content = Content::new();
    let start = Start::now();
    let cache = open_foyer(arguments).await;
    let reopening = start.spent();
    let start = Start::now();
    let reads_before = cache.statistics().disk_read_ios();
    let reads_found = read_foyer(&cache, &content, arguments, keys).await;
    let reading = start.spent();
    let disk_reads = (cache.statistics().disk_read_ios() - reads_before) as u64;
    cache.close().await.expect("foyer closes");
    Reread { reopening, reading, reads_found, disk_reads }
}

async fn open_foyer(arguments: &Arguments) -> Foyer {
    let directory = arguments.directory.join("foyer");
    let device = FsDeviceBuilder::new(directory)
        .with_capacity(arguments.flash_bytes() as usize)
        .with_direct(true)
        .build()
        .expect("a device of files");
    assert_eq!(device.capacity() as u64, arguments.flash_bytes());
    let storage = HybridCacheBuilder::new()
        .memory(DRAM_BYTES as usize)
        .with_weighter(|_, value: &Vec<u8>| 8 + value.len())
        .storage()
        .with_engine_config(BlockEngineConfig::new(device));
    let storage = match arguments.cache {
        Which::FoyerUring => {
            storage.with_io_engine_config(Box::new(UringIoEngineConfig::new()) as Box<dyn IoEngineConfig>)
        }
        _ => storage.with_io_engine_config(PsyncIoEngineConfig::new()),
    };
    storage.build().await.expect("foyer opens")
}

async fn read_foyer(cache: &Foyer, content: &Content, arguments: &Arguments, keys: &[u64]) -> usize {
    let read = |key: u64| async move {
        match cache.get(&key).await.expect("foyer reads") {
            Some(entry) => {
                assert_eq!(entry.value()[..8], content.of(arguments, key)[..8], "another object's value");
                true
            }
            None => false,
        }
    };
    at_depth(arguments.depth, keys, read).await
}
