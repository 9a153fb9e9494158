//! Evictions whose reads complete in any order, with lookups, overwrites and removals between.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

use device::wrap::{FaultDevice, Faults};
use device::{Completion, Counters, Geometry, Outcome, Request, RequestKind};
use parking_lot::Mutex as TestMutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

/// Holds submitted reads until the test releases them. A blocking call is never held, and never fails.
struct HeldReads {
    memory: Arc<MemoryDevice>,
    faulty: FaultDevice,
    held: TestMutex<Vec<(Held, Completion)>>,
}

/// A read sees the medium at its start or at its completion.
enum Held {
    Outcome(Outcome),
    Request(Request),
}

impl HeldReads {
    fn new(seed: u64, failed_reads: f64) -> Self {
        let memory = memory();
        let faulty =
            FaultDevice::new(Arc::clone(&memory) as _, seed, Faults { failed_reads, ..Faults::default() });
        Self { memory, faulty, held: TestMutex::default() }
    }

    /// Completes one of the held reads. Returns false if there is none.
    fn release(&self, random: &mut StdRng) -> bool {
        let mut held = self.held.lock();
        if held.is_empty() {
            return false;
        }
        let at = random.random_range(0..held.len());
        let (read, completion) = held.swap_remove(at);
        drop(held);
        match read {
            Held::Outcome(outcome) => completion.complete(outcome),
            Held::Request(request) => self.faulty.submit(request, completion),
        }
        true
    }
}

impl Device for HeldReads {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn submit(&self, request: Request, completion: Completion) {
        if request.kind() != RequestKind::Read {
            return self.memory.submit(request, completion);
        }
        let mut held = self.held.lock();
        let sees_start = held.len().is_multiple_of(2);
        let read =
            if sees_start { Held::Outcome(self.faulty.execute(request)) } else { Held::Request(request) };
        held.push((read, completion));
    }

    fn execute(&self, request: Request) -> Outcome {
        self.memory.execute(request)
    }

    fn counters(&self) -> Counters {
        self.memory.counters()
    }
}

type Step<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Polls the log's step, or begins one if it is due.
fn poll_step<'a>(log: &'a HashLog, step: &mut Option<Step<'a>>) {
    if step.is_none() && log.wants_step() {
        *step = Some(Box::pin(async { _ = log.step(Waiting::Task, NOW).await }));
    }
    let mut context = Context::from_waker(Waker::noop());
    if step.as_mut().is_some_and(|step| step.as_mut().poll(&mut context).is_ready()) {
        *step = None;
    }
}

#[derive(Debug, Default)]
struct Run {
    hits: usize,
    misses: usize,
    most_held: usize,
    evicted: usize,
    stats: SocStats,
}

type Versions = Arc<TestMutex<HashMap<String, String>>>;

/// Receives evicted items, which must be the last versions of their keys.
fn on_eviction(expected: &Versions, evicted: &Arc<AtomicUsize>) -> OnEviction {
    let (expected, evicted) = (Arc::clone(expected), Arc::clone(evicted));
    Arc::new(move |item, take_out| {
        if take_out() {
            let key = String::from_utf8(item.key.to_vec()).expect("a key is text");
            let value = item.value.concat();
            let last = expected.lock().remove(&key);
            assert_eq!(last.map(String::into_bytes), Some(value), "{key} was replaced or removed before");
            evicted.fetch_add(1, Ordering::Relaxed);
        }
    })
}

fn run(seed: u64, failed_reads: f64, reports_evictions: bool) -> Run {
    let random = &mut StdRng::seed_from_u64(seed);
    let device = Arc::new(HeldReads::new(seed, failed_reads));
    // A read per page.
    let config = LogConfig { readmission_share: 0.25, max_write_bytes: 4096, ..config() };
    let (expected, evicted) = (Versions::default(), Arc::<AtomicUsize>::default());
    let mut log = log_on(&device, config);
    if reports_evictions {
        log = log.with_eviction_callback(on_eviction(&expected, &evicted), Arc::new(|_| true));
    }
    let mut step = None;
    let mut run = Run::default();
    for operation in 0..40_000 {
        // Some keys are read often.
        let number =
            if random.random() { random.random_range(0..600) } else { random.random_range(600..6000) };
        let key = format!("key-{number}");
        match random.random_range(0..100) {
            0..40 => {
                while !log.ready() {
                    poll_step(&log, &mut step);
                    device.release(random);
                }
                let value = format!("{operation}.").repeat(random.random_range(1..60));
                forget(&log, &key);
                put(&log, &key, &value, 0);
                expected.lock().insert(key, value);
            }
            40..45 => {
                forget(&log, &key);
                expected.lock().remove(&key);
            }
            45..65 => poll_step(&log, &mut step),
            65..68 => _ = device.release(random),
            68 if random.random_ratio(1, 20) => step = None,
            _ => {
                let found = get(&log, &key);
                let live = expected.lock().get(&key).cloned();
                run.hits += usize::from(found.is_some());
                run.misses += usize::from(found.is_none() && live.is_some());
                assert!(found.is_none() || found == live, "seed {seed} at {operation}: {key} is stale");
            }
        }
        run.most_held = run.most_held.max(device.held.lock().len());
    }
    drop(step);
    run.evicted = evicted.load(Ordering::Relaxed);
    run.stats = log.stats();
    run
}

#[test]
fn eviction_reads_that_complete_in_any_order_return_no_stale_item() {
    for seed in 0..6 {
        let run = run(seed, 0.0, false);
        assert!(run.most_held > 2 && run.hits > 500, "seed {seed}: {run:?}");
        assert!(run.stats.readmitted_items > 100 && run.stats.evictions > 1000, "seed {seed}: {run:?}");
    }
}

#[test]
fn eviction_reads_that_fail_return_no_stale_item() {
    for seed in 10..14 {
        let run = run(seed, 0.3, false);
        assert!(run.hits > 500 && run.stats.readmitted_items > 50, "seed {seed}: {run:?}");
    }
}

#[test]
fn item_is_found_until_its_eviction_is_reported_once() {
    for seed in 20..24 {
        let run = run(seed, 0.0, true);
        assert!(
            run.most_held > 6 && run.evicted > 1000 && run.stats.readmitted_items > 100,
            "seed {seed}: {run:?}"
        );
        assert_eq!(run.misses, 0, "seed {seed}: items left without a report: {run:?}");
    }
}
