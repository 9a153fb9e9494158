//! Cost of a call in nanoseconds, with a policy's memory within the processor's cache and far larger than it.
//!
//!     cargo bench -p flashwright-policy            all policies, 64 Ki and 4 Mi entries
//!     cargo bench -p flashwright-policy -- lru     those whose name holds "lru"

#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::hint::black_box;
use std::time::Instant;

use flashwright_policy::eviction::{EvictionConfig, Kind, build};
use flashwright_policy::ghost::Ghost;
use flashwright_policy::simulate::hash_of;
use flashwright_policy::{Entry, Eviction, HitRule, Slot};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    // `cargo test --benches` also runs this, with small sizes, as a smoke test.
    let is_test = std::env::args().any(|word| word == "--test");
    let sizes = if is_test || cfg!(debug_assertions) { [1 << 8, 1 << 10] } else { [1 << 16, 1 << 22] };
    println!(
        "{:<10} {:>9} {:>10} {:>10} {:>13}",
        "policy", "entries", "insert ns", "hit ns", "evict+insert ns"
    );
    for kind in Kind::ALL {
        let name = kind.to_string();
        if arguments.is_empty() || arguments.iter().any(|wanted| name.contains(wanted.as_str())) {
            sizes.into_iter().for_each(|entries| measure(kind, entries));
        }
    }
    sizes.into_iter().for_each(measure_ghost);
}

fn measure(kind: Kind, entries: u32) {
    let operations = entries.max(1 << 20).min(entries * 64);
    let mut policy = build(&EvictionConfig::new(kind), entries.into());
    let entry = |number: u32| Entry { hash: hash_of(number.into()), weight: 1 };
    let insert_ns = ns_each(entries, |number| policy.insert(Slot(number), entry(number), 0));
    let order = Scatter::over(entries);
    let hit_ns = match policy.hit_rule() {
        HitRule::Ignore => 0.0,
        HitRule::Mark { marks, at_most } => {
            ns_each(operations / 4, |number| marks.bump(order.slot(number), at_most))
        }
        HitRule::Refresh { .. } | HitRule::Every => {
            ns_each(operations, |number| policy.hit(order.slot(number), 1))
        }
    };
    let churn_ns = churn(policy.as_mut(), entries, operations);
    println!("{:<10} {entries:>9} {insert_ns:>10.1} {hit_ns:>10.1} {churn_ns:>13.1}", kind.to_string());
}

/// A full cache: one eviction and one insertion per step; every fourth inserted key was evicted a while ago.
fn churn(policy: &mut dyn Eviction, entries: u32, operations: u32) -> f64 {
    let mut key = u64::from(entries);
    ns_each(operations, |number| {
        let slot = policy.evict(2).expect("the cache is full");
        key += 1;
        let wanted = if number % 4 == 0 { key - u64::from(entries) / 2 } else { key };
        policy.insert(black_box(slot), Entry { hash: hash_of(wanted), weight: 1 }, 2);
    })
}

fn measure_ghost(entries: u32) {
    let mut ghost = Ghost::new(entries.into());
    ghost.reserve(entries as usize);
    let insert_ns = ns_each(entries * 2, |number| ghost.insert(hash_of(number.into()), 1));
    let mut found = 0;
    let take_ns = ns_each(entries * 2, |number| found += u32::from(ghost.take(hash_of(number.into()))));
    let kept = f64::from(found) / f64::from(entries);
    let bytes = ghost.memory_bytes() as f64 / f64::from(entries);
    println!(
        "ghost      {entries:>9} insert {insert_ns:.1} ns, take {take_ns:.1} ns, {kept:.4} kept, {bytes:.1} B each"
    );
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn ns_each(times: u32, mut operation: impl FnMut(u32)) -> f64 {
    let start = Instant::now();
    (0..times).for_each(&mut operation);
    start.elapsed().as_nanos() as f64 / f64::from(times)
}

/// Slots in an order that no prefetcher predicts, computed before the clock starts.
struct Scatter {
    slots: Vec<Slot>,
}

impl Scatter {
    fn over(entries: u32) -> Self {
        Self {
            slots: (0..entries)
                .map(|number| Slot((hash_of(number.into()) % u64::from(entries)) as u32))
                .collect(),
        }
    }

    fn slot(&self, number: u32) -> Slot {
        self.slots[number as usize % self.slots.len()]
    }
}
