//! The process keeps within the memory budget, measured by the kernel's count of resident pages.
#![allow(clippy::print_stdout, reason = "the parent process reads the output")]
#![allow(clippy::unwrap_used, reason = "in a test, a failed unwrap fails the test")]

use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Waker};

use device::{Completion, Counters, Device, Geometry, IoBuffer, MemoryDevice, Outcome, Request};
use flashwright_cache::{Cache, FlashConfig, InsertOptions, SmallItems};
use policy::eviction::{EvictionConfig, Kind};

const BUDGET_BYTES: u64 = 16 << 20;
/// Memory of the program beside the cache: stacks of the cache's threads, and the allocator's own memory.
const BESIDE_BYTES: u64 = 1 << 20;
const KIND_VARIABLE: &str = "FLASHWRIGHT_TEST_EVICTION";

/// Resident anonymous memory of this process.
fn resident_bytes() -> u64 {
    status_bytes("RssAnon:")
}

fn status_bytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Runs one test of this file in another process and returns its output.
fn run_in_child(test: &str, variable: &str, value: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(variable, value)
        .output()
        .unwrap();
    assert!(output.status.success(), "{value}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn resident_memory_of_smallest_items_stays_within_budget_under_every_policy() {
    for name in Kind::names() {
        let output = run_in_child("child_process_fills_a_cache_with_smallest_items", KIND_VARIABLE, name);
        // The child also succeeds if it finds no test or does not receive the policy, so its output is checked.
        assert!(output.contains(&format!("{name} took ")), "{name}: {output}");
    }
}

/// Runs in its own process. Without a policy in the environment it returns immediately.
#[test]
fn child_process_fills_a_cache_with_smallest_items() {
    let Ok(name) = std::env::var(KIND_VARIABLE) else { return };
    let before = resident_bytes();
    // Merlin keeps about 1 KiB per item, and these settings of S4-FIFO three ghosts per item: they need more than the least budget.
    let budget_bytes = match &*name {
        "merlin" => 8 * BUDGET_BYTES,
        name if name.starts_with("s4fifo") => 2 * BUDGET_BYTES,
        _ => BUDGET_BYTES,
    };
    let builder = Cache::builder().memory_budget_bytes(budget_bytes).max_item_bytes(4096);
    let cache = builder.eviction(EvictionConfig::new(name.parse().unwrap())).open().unwrap();
    for number in 0..300_000_u64 {
        cache.insert_blocking(&number.to_le_bytes(), &[7; 8], InsertOptions::default());
        let _ = cache.get_blocking(&(number / 2).to_le_bytes());
        let _ = cache.get_blocking(&number.saturating_sub(number % 1000).to_le_bytes());
    }
    let taken = resident_bytes() - before;
    let memory = cache.memory();
    assert!(taken <= budget_bytes + BESIDE_BYTES, "{taken} bytes of {budget_bytes}; accounted are {memory}");
    println!("{name} took {taken} bytes");
}

const WAITING_VARIABLE: &str = "FLASHWRIGHT_TEST_WAITING";

/// Catches a regression: the items take twice their accounted memory. Nearly every pending item is the only one of its
/// bucket, and the accounting assumes that several items share the list of a bucket.
#[test]
fn pending_small_items_take_their_accounted_memory() {
    let output = run_in_child("child_process_fills_a_cache_with_pending_items", WAITING_VARIABLE, "1");
    assert!(output.contains("waiting items took "), "{output}");
}

/// Runs in its own process. Without the variable in the environment it returns immediately.
#[test]
fn child_process_fills_a_cache_with_pending_items() {
    if std::env::var_os(WAITING_VARIABLE).is_none() {
        return;
    }
    let before = resident_bytes();
    let mut flash = FlashConfig::new(Arc::new(Discarding(MemoryDevice::new(1 << 20))));
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
    assert!(
        taken <= memory.total_bytes() + BESIDE_BYTES,
        "{taken} bytes of {items} items; accounted are {memory}"
    );
    println!("{items} waiting items took {taken} bytes; accounted are {memory}");
}

const CLOSING_VARIABLE: &str = "FLASHWRIGHT_TEST_CLOSING";

/// Catches a regression: the close takes 25 bytes an item in addition to the index, which takes eleven.
#[test]
fn close_takes_less_than_4_bytes_per_item() {
    let output = run_in_child("child_process_closes_a_cache", CLOSING_VARIABLE, "1");
    assert!(output.contains("the close took "), "{output}");
}

/// Runs in its own process. Without the variable in the environment it returns immediately.
#[test]
fn child_process_closes_a_cache() {
    if std::env::var_os(CLOSING_VARIABLE).is_none() {
        return;
    }
    let items = 1_500_000;
    let mut flash = FlashConfig::new(Arc::new(Discarding(MemoryDevice::new(1 << 20))));
    flash.pairs[0].soc_share = 0.0;
    let cache = Cache::builder().dram_bytes(4 << 20).flash_config(flash).open().unwrap();
    for number in 0..items {
        cache.insert_blocking(&u64::to_le_bytes(number), &[7; 8], InsertOptions::default());
    }
    cache.settle_blocking().unwrap();
    // Resets the peak (`VmHWM`) to the current resident size.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status_bytes("VmRSS:");
    cache.close().unwrap();
    let taken = status_bytes("VmHWM:").saturating_sub(before);
    assert!(taken < 4 * items, "{taken} bytes beside the cache of {items} items");
    println!("the close took {taken} bytes for {items} items");
}

/// A device of 4 GiB that discards its writes.
struct Discarding(MemoryDevice);

impl Device for Discarding {
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
