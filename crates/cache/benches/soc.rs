//! Cost of the small-object cache: CPU time and bytes per operation, on a memory device (whose copy of 4 KiB per bucket is included).
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints its results")]

use std::sync::Arc;

use cache::KeyHash;
use cache::internals::soc::{Soc, SocConfig};
use cache::internals::{FlashItem, Waiting};
use device::{Device, MemoryDevice};
use flashwright_cache as cache;
use pollster::block_on;

const SOC_BYTES: u64 = 256 << 20;
const VALUE_BYTES: usize = 300;

fn main() {
    run("memory", Arc::new(MemoryDevice::with_block_bytes(SOC_BYTES, 4096)));
}

fn run(name: &str, device: Arc<dyn Device>) {
    let config = SocConfig { pending_limit_bytes: 32 << 20, ..SocConfig::new(0, SOC_BYTES, 1) };
    let soc = Soc::new(device, config).unwrap();
    let capacity = SOC_BYTES / (VALUE_BYTES as u64 + 13 + 8);
    println!("{name}: {} MiB, {VALUE_BYTES}-byte values", SOC_BYTES >> 20);
    let inserts = capacity * 3 / 2;
    let (mut stepping_ns, start) = (0, cpu_ns());
    for n in 0..inserts {
        insert(&soc, n);
        if soc.wants_step() {
            let begin = cpu_ns();
            block_on(soc.step(Waiting::Thread, 1));
            stepping_ns += cpu_ns() - begin;
        }
    }
    let total_ns = cpu_ns() - start;
    block_on(soc.drain(Waiting::Thread, 1));
    let stats = soc.stats();
    println!("  insert, all        {:8.0} ns", total_ns as f64 / inserts as f64);
    println!("  insert, foreground {:8.0} ns", (total_ns - stepping_ns) as f64 / inserts as f64);
    println!("  entries a write    {:8.2}", stats.entries_per_bucket_write());
    println!("  written/logical    {:8.2}", stats.write_amplification());
    println!("  items              {:8} of {capacity}", stats.items);
    println!(
        "  DRAM an item       {:8.2} B beside the pending limit",
        filter_bytes(&soc) / stats.items as f64
    );
    let newest = inserts - capacity / 2..inserts;
    let hits = measure("hit", newest, |n| read(&soc, n));
    let misses = measure("miss", inserts..inserts + capacity / 2, |n| read(&soc, n));
    println!(
        "  hits {hits:.3}, of absent keys {misses:.3}, false positives {}",
        soc.stats().filter_false_positives
    );
}

fn filter_bytes(soc: &Soc) -> f64 {
    (soc.memory_bytes() - soc.config().pending_limit_bytes) as f64
}

fn insert(soc: &Soc, n: u64) {
    let (key, value) = (n.to_le_bytes(), [n as u8; VALUE_BYTES]);
    let item = FlashItem { key: &key, hash: KeyHash::of(&key), value: &[&value], expiry_seconds: 0, tag: 0 };
    soc.commit(soc.stage(&item).unwrap());
}

fn read(soc: &Soc, n: u64) -> bool {
    let key = n.to_le_bytes();
    block_on(soc.read(KeyHash::of(&key), &key, Waiting::Thread, 1)).is_some()
}

fn measure(name: &str, keys: std::ops::Range<u64>, mut operation: impl FnMut(u64) -> bool) -> f64 {
    let (count, start) = (keys.end - keys.start, cpu_ns());
    let found = keys.filter(|&n| operation(n)).count();
    println!("  {name:<18} {:8.0} ns", (cpu_ns() - start) as f64 / count as f64);
    found as f64 / count as f64
}

/// CPU time of this thread, so that other programs do not count.
fn cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
