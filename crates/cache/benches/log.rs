//! Cost of the log of small items in each mode of recovery: CPU time of an insert, an overwrite, a hit and a miss. Also the times of a
//! recovery after a kill, and of a clean close and reopen, for the log and for sets. `--bench soc` measures a hit of sets.
//!
//! `LOG_FILE` names a file or device on which these operations are measured again. `LOG_RECOVERY_MIB` is the size of the flash of
//! the recovered cache. With `LOG_ENGINE`, `log` or `sets`, only the recovery of that engine is measured.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints its results")]

use std::sync::Arc;

use cache::config::LogOptions;
use cache::config::regions::JournalOptions;
use cache::internals::log::{HashLog, LogConfig};
use cache::internals::{FlashItem, Waiting};
use cache::{Cache, InsertOptions, KeyHash, RecoverAfter, SmallItems};
use device::file::OpenOptions;
use device::{Clock, Device, DeviceSpec, MemoryDevice, SliceDevice, SystemClock};
use flashwright_cache as cache;
use futures_util::future::poll_immediate;
use pollster::block_on;

const LOG_BYTES: u64 = 256 << 20;
const VALUE_BYTES: usize = 300;
const MODES: [RecoverAfter; 3] = [RecoverAfter::CleanClose, RecoverAfter::Kill, RecoverAfter::PowerLoss];

fn main() {
    let mib = std::env::var("LOG_RECOVERY_MIB").map_or(256, |text| text.parse().unwrap());
    let log = LogOptions { expected_item_bytes: 308, ..LogOptions::default() };
    let engines = [("log", SmallItems::Log(log)), ("sets", SmallItems::Sets)];
    let only = std::env::var("LOG_ENGINE").ok();
    if only.is_none() {
        measure_operations();
    }
    for (name, engine) in
        engines.into_iter().filter(|(name, _)| only.as_ref().is_none_or(|only| only == name))
    {
        recover(name, engine, mib << 20);
    }
}

fn measure_operations() {
    println!("log of {} MiB, {VALUE_BYTES}-byte values; CPU time of the process", LOG_BYTES >> 20);
    for mode in MODES {
        measure("memory", Arc::new(MemoryDevice::with_block_bytes(LOG_BYTES, 4096)), mode, 200_000);
    }
    if let Ok(path) = std::env::var("LOG_FILE") {
        for mode in MODES {
            // Each overwrite waits for a flush after a power cut is to be survived.
            let overwrites = if mode == RecoverAfter::PowerLoss { 2_000 } else { 200_000 };
            measure(&path, file(&path, LOG_BYTES), mode, overwrites);
        }
    }
}

fn file(path: &str, size_bytes: u64) -> Arc<dyn Device> {
    let spec: DeviceSpec = path.parse().unwrap();
    spec.open(&OpenOptions { size_bytes: Some(size_bytes), create: true, ..OpenOptions::default() }).unwrap()
}

fn measure(name: &str, device: Arc<dyn Device>, mode: RecoverAfter, overwrites: u64) {
    let flushes = mode == RecoverAfter::PowerLoss;
    let options = JournalOptions { flushes, boot: Some(7), block_bytes: device.geometry().block_bytes };
    let journal = (mode != RecoverAfter::CleanClose).then_some(options);
    let config = LogConfig { journal, expected_item_bytes: 308, ..LogConfig::new(0, LOG_BYTES, 1) };
    let log = HashLog::new(device, config).unwrap();
    let capacity = LOG_BYTES / 320;
    let inserts = capacity * 3 / 2;
    let start = cpu_ns();
    (0..inserts).for_each(|n| insert(&log, n));
    let insert_ns = (cpu_ns() - start) as f64 / inserts as f64;
    let (_, bytes_before) = log.journal_written();
    let reads = capacity / 2;
    let per_read = |first: u64| {
        let start = cpu_ns();
        let found = (first..first + reads).filter(|&n| read(&log, n)).count();
        ((cpu_ns() - start) as f64 / reads as f64, found as f64 / reads as f64)
    };
    let (hit_ns, hits) = per_read(inserts - capacity * 3 / 4);
    let (miss_ns, _) = per_read(inserts);
    let start = cpu_ns();
    for n in 0..overwrites {
        // A key of a region that is on flash.
        insert(&log, inserts - capacity * 3 / 4 + n * 7919 % (capacity / 2));
    }
    let overwrite_ns = (cpu_ns() - start) as f64 / overwrites as f64;
    let journal_bytes = (log.journal_written().1 - bytes_before) as f64 / overwrites as f64;
    println!(
        "  {name}, {mode:?}: insert {insert_ns:.0} ns, overwrite of an item on flash {overwrite_ns:.0} ns, {journal_bytes:.0} B of journal each, \
         hit {hit_ns:.0} ns ({hits:.3} are hits), miss {miss_ns:.0} ns"
    );
}

/// Inserts an item as the cache does: removes the older version first.
fn insert(log: &HashLog, n: u64) {
    let (key, value) = (n.to_le_bytes(), [n as u8; VALUE_BYTES]);
    let hash = KeyHash::of(&key);
    let item = FlashItem { key: &key, hash, value: &[&value], expiry_seconds: 0, tag: 0 };
    log.forget(hash, &key);
    log.commit(log.stage(&item).unwrap());
    log.acknowledge();
    if log.wants_step() {
        block_on(log.step(Waiting::Thread, 1));
    }
}

fn read(log: &HashLog, n: u64) -> bool {
    let key = n.to_le_bytes();
    block_on(log.read(KeyHash::of(&key), &key, Waiting::Thread, 1)).is_some()
}

/// Fills a cache, and reopens it as after a kill of the process, and after a clean close.
fn recover(engine: &str, small_items: SmallItems, flash_bytes: u64) {
    let device: Arc<dyn Device> = match std::env::var("LOG_FILE") {
        Ok(path) => file(&format!("{path}.{engine}"), flash_bytes),
        Err(_) => Arc::new(MemoryDevice::with_block_bytes(flash_bytes, 4096)),
    };
    // A slice of all bytes: a cache that was not closed keeps its claim on the device object.
    let open = || {
        let device: Arc<dyn Device> =
            Arc::new(SliceDevice::new(Arc::clone(&device), 0..flash_bytes).unwrap());
        let builder = Cache::builder().dram_bytes(64 << 20).flash(device);
        let builder = builder.small_item_share(1.0).small_items(small_items);
        builder.recover_after(RecoverAfter::Kill).open_stepped().unwrap()
    };
    let flash = |cache: &Cache| cache.stats().flash.unwrap();
    let items = |cache: &Cache| flash(cache).soc.unwrap().items;
    let inserts = flash_bytes / 320 * 11 / 10;
    let (cache, fill) = measured(|| {
        let cache = open();
        (0..inserts).for_each(|n| insert_stepped(&cache, n));
        cache
    });
    let written_bytes =
        flash(&cache).device.written_bytes as f64 / (inserts * (8 + VALUE_BYTES as u64)) as f64;
    let before = items(&cache);
    // The process ends here, as far as the device can see.
    std::mem::forget(cache);
    let (cache, recovery) = measured(open);
    let recovered = items(&cache);
    let ((), close) = measured(|| cache.close().unwrap());
    let (cache, reopen) = measured(open);
    println!(
        "{engine} of {} MiB: {inserts} inserts {fill}, {written_bytes:.3} bytes written per byte\n  recovery after a kill {recovery}, \
         {recovered} of {before} items\n  close {close}, reopen {reopen}, {} items",
        flash_bytes >> 20,
        items(&cache)
    );
}

fn insert_stepped(cache: &Cache, n: u64) {
    let key = n.to_le_bytes();
    let mut insert = std::pin::pin!(cache.insert(&key, &[7; VALUE_BYTES], InsertOptions::default()));
    while block_on(poll_immediate(insert.as_mut())).is_none() {
        block_on(cache.step());
    }
    block_on(cache.step());
}

/// The result of `work`, with its time and CPU time.
fn measured<T>(work: impl FnOnce() -> T) -> (T, String) {
    let (start_ns, cpu_start_ns) = (SystemClock.monotonic_ns(), cpu_ns());
    let result = work();
    let (elapsed_ns, used_ns) = (SystemClock.monotonic_ns() - start_ns, cpu_ns() - cpu_start_ns);
    (result, format!("{:.3} s ({:.3} s of CPU)", elapsed_ns as f64 / 1e9, used_ns as f64 / 1e9))
}

/// CPU time of the process: steps run on its threads.
fn cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
