//! The process keeps within the memory budget, measured by the kernel's count of resident pages.
#![allow(clippy::print_stdout, reason = "a process tells the one that asked it")]
#![allow(clippy::unwrap_used, reason = "in a test, what cannot be unwrapped is the finding")]

use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Waker};

use device::{Completion, Counters, Device, Geometry, IoBuffer, MemoryDevice, Outcome, Request};
use flashwright_cache::{Cache, FlashConfig, InsertOptions, SmallItems};
use policy::eviction::{EvictionConfig, Kind};

const BUDGET_BYTES: u64 = 16 << 20;
/// Of the program itself: stacks of the cache's threads, the allocator's own.
const BESIDE_BYTES: u64 = 1 << 20;
const KIND_VARIABLE: &str = "FLASHWRIGHT_TEST_EVICTION";

/// Bytes of memory that the process has touched and that no file is behind.
fn resident_bytes() -> u64 {
    status_bytes("RssAnon:")
}

fn status_bytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Runs a test of this file in a process of its own, and answers what it said.
fn alone(test: &str, variable: &str, value: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(variable, value)
        .output()
        .unwrap();
    assert!(output.status.success(), "{value}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_cache_full_of_the_smallest_items_keeps_to_its_budget_under_every_policy() {
    for name in Kind::names() {
        let said = alone("one_cache_full_of_the_smallest_items", KIND_VARIABLE, name);
        // A process that found no test, or was not told the policy, fails nothing either.
        assert!(said.contains(&format!("{name} took ")), "{name}: {said}");
    }
}

/// Runs in its own process. Without a policy in the environment it returns immediately.
#[test]
fn one_cache_full_of_the_smallest_items() {
    let Ok(name) = std::env::var(KIND_VARIABLE) else { return };
    let before = resident_bytes();
    let builder = Cache::builder().memory_budget_bytes(BUDGET_BYTES).max_item_bytes(4096);
    let cache = builder.eviction(EvictionConfig::new(name.parse().unwrap())).open().unwrap();
    for number in 0..300_000_u64 {
        cache.insert_blocking(&number.to_le_bytes(), &[7; 8], InsertOptions::default());
        let _ = cache.get_blocking(&(number / 2).to_le_bytes());
        let _ = cache.get_blocking(&number.saturating_sub(number % 1000).to_le_bytes());
    }
    let taken = resident_bytes() - before;
    let memory = cache.memory();
    assert!(taken <= BUDGET_BYTES + BESIDE_BYTES, "{taken} bytes of {BUDGET_BYTES}; it says {memory}");
    println!("{name} took {taken} bytes");
}

const WAITING_VARIABLE: &str = "FLASHWRIGHT_TEST_WAITING";

/// They took twice what they were accounted with: nearly each is alone in its bucket, whose list was reckoned to be shared.
#[test]
fn pending_small_items_take_their_accounted_memory() {
    let said = alone("one_cache_full_of_waiting_items", WAITING_VARIABLE, "1");
    assert!(said.contains("waiting items took "), "{said}");
}

/// Runs in its own process. Without the variable in the environment it returns immediately.
#[test]
fn one_cache_full_of_waiting_items() {
    if std::env::var_os(WAITING_VARIABLE).is_none() {
        return;
    }
    let before = resident_bytes();
    let mut flash = FlashConfig::new(Arc::new(Nowhere(MemoryDevice::new(1 << 20))));
    flash.small_items = Some(SmallItems::Sets);
    flash.pairs[0].soc_share = 1.0;
    flash.pending_bytes = 32 << 20;
    let cache = Cache::builder().dram_bytes(4 << 20).flash_config(flash).open_stepped().unwrap();
    let insert = |number: u64| {
        let mut insert =
            Box::pin(async { cache.insert(&number.to_le_bytes(), &[7; 50], InsertOptions::default()).await });
        insert.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    };
    let items = (0..).take_while(|&number| insert(number)).count();
    let taken = resident_bytes() - before;
    let memory = cache.memory();
    assert!(taken <= memory.total_bytes() + BESIDE_BYTES, "{taken} bytes of {items} items; it says {memory}");
    println!("{items} waiting items took {taken} bytes; accounted are {memory}");
}

const CLOSING_VARIABLE: &str = "FLASHWRIGHT_TEST_CLOSING";

/// It took 25 bytes an item beside the index, which itself takes eleven.
#[test]
fn a_close_takes_little_memory_beside_that_of_the_cache() {
    let said = alone("one_cache_that_closes", CLOSING_VARIABLE, "1");
    assert!(said.contains("the close took "), "{said}");
}

/// Runs in its own process. Without the variable in the environment it returns immediately.
#[test]
fn one_cache_that_closes() {
    if std::env::var_os(CLOSING_VARIABLE).is_none() {
        return;
    }
    let items = 1_500_000;
    let mut flash = FlashConfig::new(Arc::new(Nowhere(MemoryDevice::new(1 << 20))));
    flash.pairs[0].soc_share = 0.0;
    let cache = Cache::builder().dram_bytes(4 << 20).flash_config(flash).open().unwrap();
    for number in 0..items {
        cache.insert_blocking(&u64::to_le_bytes(number), &[7; 8], InsertOptions::default());
    }
    cache.settle_blocking().unwrap();
    // The peak is that of now.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status_bytes("VmRSS:");
    cache.close().unwrap();
    let taken = status_bytes("VmHWM:").saturating_sub(before);
    assert!(taken < 4 * items, "{taken} bytes beside the cache of {items} items");
    println!("the close took {taken} bytes for {items} items");
}

/// A device of 4 GiB that keeps nothing.
struct Nowhere(MemoryDevice);

impl Device for Nowhere {
    fn geometry(&self) -> Geometry {
        Geometry { capacity_bytes: 4 << 30, ..self.0.geometry() }
    }

    fn submit(&self, request: Request, completion: Completion) {
        completion.complete(self.execute(request));
    }

    fn execute(&self, request: Request) -> Outcome {
        Ok(if let Request::Read { buffer, .. } = request { buffer } else { IoBuffer::empty() })
    }

    fn counters(&self) -> Counters {
        self.0.counters()
    }
}
