//! Cost of a get and of a get-or-insert in the DRAM tier, at Zipf 0.99 over a million keys with values of 100 to 1000 bytes.
//!
//! `cargo bench -p flashwright-cache --bench dram`; `-- --keys N --ops N` for other sizes. Prints CPU time, which is meaningful on a shared
//! machine.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a benchmark prints, and takes time")]

use std::sync::Arc;

use device::SystemClock;
use flashwright_cache::config::{DramConfig, PolicyFactory, PoolId};
use flashwright_cache::internals::dram::{Discard, Dram};
use flashwright_cache::{Cursor, KeyHash};
use policy::eviction::S3Fifo;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |name: &str, default: u64| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(default)
    };
    // `cargo test` runs benches without `--bench`: then with small sizes, as a smoke test.
    let measured = arguments.iter().any(|argument| argument == "--bench");
    let keys = number("--keys", if measured { 1_000_000 } else { 2_000 });
    let ops = number("--ops", if measured { 10_000_000 } else { 10_000 });
    let trace = Trace::new(keys, ops);
    println!("{:<34} {:>9} {:>9} {:>9} overhead B/item", "", "CPU ns/op", "hit ratio", "items");
    for (name, share) in [("get-or-insert, 10 % of the bytes", 0.1), ("get-or-insert, all fits", 1.5)] {
        let dram = tier((trace.total_bytes as f64 * share) as u64);
        trace.get_or_insert(&dram);
        let (ns, hit_ratio) = trace.get_or_insert(&dram);
        print_row(name, ns, hit_ratio, &dram);
        if share > 1.0 {
            let (ns, hit_ratio) = trace.get(&dram);
            print_row("get, all fits", ns, hit_ratio, &dram);
        }
    }
}

fn print_row(name: &str, ns: f64, hit_ratio: f64, dram: &Dram) {
    let items = dram.len() as f64;
    let used: u64 = dram.stats().iter().map(|pool| pool.total().allocated_bytes).sum();
    let mut payload_bytes = 0_usize;
    dram.scan(Cursor::default(), usize::MAX, &mut |item| payload_bytes += item.key().len() + item.len());
    let memory = dram.memory();
    let chunks = (used as f64 - payload_bytes as f64) / items;
    let index = memory.index_bytes as f64 / items;
    let policy = memory.policy_bytes as f64 / items;
    let total = chunks + index + policy;
    let parts =
        format!("{total:.1} = header and rounding {chunks:.1} + index {index:.1} + policy {policy:.1}");
    println!("{name:<34} {ns:>9.1} {hit_ratio:>9.4} {items:>9} {parts}");
}

fn tier(bytes: u64) -> Dram {
    let policy: PolicyFactory = Arc::new(|| Box::new(S3Fifo::new(0)));
    let mut config = DramConfig::new(bytes, policy);
    config.max_chunk_bytes = Some(4096);
    Dram::new(&config, Arc::new(SystemClock)).expect("the config is sound")
}

struct Trace {
    requests: Vec<u32>,
    sizes: Vec<u16>,
    total_bytes: u64,
}

impl Trace {
    fn new(keys: u64, ops: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(1);
        let sizes: Vec<u16> = (0..keys).map(|_| rng.random_range(100..=1000)).collect();
        let total_bytes = sizes.iter().map(|&size| u64::from(size)).sum();
        let cumulative: Vec<f64> = (1..=keys)
            .scan(0.0, |sum, rank| {
                *sum += (rank as f64).powf(-0.99);
                Some(*sum)
            })
            .collect();
        let whole = cumulative[keys as usize - 1];
        let draw = |_| {
            let drawn = rng.random::<f64>() * whole;
            cumulative.partition_point(|&sum| sum < drawn) as u32
        };
        Self { requests: (0..ops).map(draw).collect(), sizes, total_bytes }
    }

    fn get_or_insert(&self, dram: &Dram) -> (f64, f64) {
        let value = [7_u8; 1000];
        self.measure(|rank| {
            let key = key(rank);
            let hash = KeyHash::of(&key);
            if let Some(found) = dram.get(&key, hash) {
                std::hint::black_box(found[0]);
                return true;
            }
            let len = usize::from(self.sizes[rank as usize]);
            let mut draft =
                dram.allocate(PoolId(0), &key, hash, len, 0, &Discard).expect("nothing is pinned");
            draft.copy_from_slice(&value[..len]);
            drop(dram.lock(hash).link(draft));
            false
        })
    }

    fn get(&self, dram: &Dram) -> (f64, f64) {
        self.measure(|rank| {
            let key = key(rank);
            let found = dram.get(&key, KeyHash::of(&key));
            found.is_some_and(|found| std::hint::black_box(found[0]) == 7)
        })
    }

    /// CPU nanoseconds per operation, and the hit ratio.
    fn measure(&self, mut operation: impl FnMut(u32) -> bool) -> (f64, f64) {
        let started = cpu_ns();
        let hits = self.requests.iter().filter(|&&rank| operation(rank)).count();
        let ops = self.requests.len() as f64;
        ((cpu_ns() - started) as f64 / ops, hits as f64 / ops)
    }
}

/// Keys distributed like real ones: 16 bytes of a hashed rank.
fn key(rank: u32) -> [u8; 16] {
    let mixed = KeyHash(u64::from(rank)).remix();
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mixed.to_le_bytes());
    key[8..12].copy_from_slice(&rank.to_le_bytes());
    key
}

fn cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
