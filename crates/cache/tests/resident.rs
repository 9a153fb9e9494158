//! A budget is kept by the process, not by its own bookkeeping alone: what the kernel says that a cache has touched.
#![allow(clippy::print_stdout, reason = "a process tells the one that asked it")]
#![allow(clippy::unwrap_used, reason = "in a test, what cannot be unwrapped is the finding")]

use std::process::Command;

use flashwright_cache::{Cache, InsertOptions};
use policy::eviction::{EvictionConfig, Kind};

const BUDGET_BYTES: u64 = 16 << 20;
/// Of the program itself: stacks of the cache's threads, the allocator's own.
const BESIDE_BYTES: u64 = 1 << 20;
const KIND_VARIABLE: &str = "FLASHWRIGHT_TEST_EVICTION";

/// Bytes of memory that the process has touched and that no file is behind.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_cache_full_of_the_smallest_items_keeps_to_its_budget_under_every_policy() {
    for name in Kind::names() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "one_cache_full_of_the_smallest_items", "--nocapture"])
            .env(KIND_VARIABLE, name)
            .output()
            .unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        // A process that found no test, or was not told the policy, fails nothing either.
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains(&format!("{name} took ")), "{name}: {said}");
    }
}

/// In a process of its own. It passes at once unless it is told a policy.
#[test]
fn one_cache_full_of_the_smallest_items() {
    let Ok(name) = std::env::var(KIND_VARIABLE) else { return };
    let before = resident_bytes();
    let builder = Cache::builder().memory_budget_bytes(BUDGET_BYTES).max_item_bytes(4096);
    let cache = builder.eviction(EvictionConfig::new(name.parse().unwrap())).open().unwrap();
    for number in 0..300_000_u64 {
        cache.insert_blocking(&number.to_le_bytes(), &[7; 8], &InsertOptions::default());
        let _ = cache.get_blocking(&(number / 2).to_le_bytes());
        let _ = cache.get_blocking(&number.saturating_sub(number % 1000).to_le_bytes());
    }
    let taken = resident_bytes() - before;
    let memory = cache.memory();
    assert!(taken <= BUDGET_BYTES + BESIDE_BYTES, "{taken} bytes of {BUDGET_BYTES}; it says {memory}");
    println!("{name} took {taken} bytes");
}
