//! Blocks of a trace replayed per second of CPU time: `cargo bench -p flashwright-bench --bench block_replay`.
//!
//! The requests are prepared before the clock starts, so that the cache alone is measured: sets, policy, cleaning, and both disks.
#![allow(clippy::print_stdout, reason = "a benchmark prints its measurements")]
#![allow(clippy::unwrap_used, reason = "in a benchmark, a failed unwrap fails the test")]

use block::sets::Preset;
use flashwright_bench::block::{DiskModel, Replay};
use workload::generate::innodb::{Innodb, InnodbConfig};

const CACHE_BYTES: u64 = 768 << 20;
const ROUNDS: usize = 5;

fn main() {
    let short = std::env::args().any(|argument| argument == "--test");
    let operations = if short { 20_000 } else { 2_000_000 };
    let requests: Vec<_> = Innodb::new(InnodbConfig::default(), 1).take(operations).collect();
    let blocks: u64 = requests.iter().map(|request| request.bytes / 4096).sum();
    for (name, preset) in [("v2", Preset::V2), ("v3", Preset::V3)] {
        let mut rates: Vec<f64> = Vec::new();
        for _ in 0..ROUNDS {
            let mut replay = Replay::new(preset.config(CACHE_BYTES), DiskModel::default()).unwrap();
            let before = cpu_ns();
            requests.iter().for_each(|request| replay.request(request));
            rates.push(blocks as f64 * 1000.0 / (cpu_ns() - before) as f64);
        }
        rates.sort_unstable_by(f64::total_cmp);
        let (median, best) = (rates[ROUNDS / 2], rates[ROUNDS - 1]);
        println!(
            "mysql8, preset {name}: {median:.1} M blocks a second of CPU, {best:.1} at best; {blocks} blocks"
        );
    }
}

/// CPU time of this process, user and system.
fn cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
