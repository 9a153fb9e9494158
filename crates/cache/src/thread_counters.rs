//! Counters for frequent events: each thread counts separately, and a reader sums.
//!
//! A shared counter needs an atomic read-modify-write, which waits for the thread's earlier writes, and its cache line moves between cores.
//! Here each thread owns a stripe while it lives, and updates it by plain loads and stores. Threads beyond the number of stripes share
//! some, with atomic additions.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A row of counters, numbered from 0.
pub(crate) struct ThreadCounters {
    lines: Box<[Line]>,
    lines_per_stripe: usize,
}

/// Counters of one thread. Two cache lines, because processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Line([AtomicU64; COUNTERS_PER_LINE]);

const COUNTERS_PER_LINE: usize = 16;

/// Stripes owned by one thread each, followed by shared stripes.
const OWNED: u32 = 48;
const SHARED: u32 = 16;
const STRIPES: usize = (OWNED + SHARED) as usize;

/// The unowned stripes, one bit each, and the number of threads that found none.
struct Free {
    stripes: AtomicU64,
    sharing: AtomicU32,
}

/// The stripe of a living thread.
struct Own {
    stripe: u32,
    from: &'static Free,
}

static FREE: Free = Free::all();

thread_local! {
    /// The number of this thread's stripe, cached so that it can be read without a check of `OWN`.
    static STRIPE: Cell<u32> = const { Cell::new(UNKNOWN) };
    static OWN: Own = FREE.take();
}

/// The stripe of a thread that has not counted anything yet.
const UNKNOWN: u32 = u32::MAX;

#[cold]
fn first_stripe() -> u32 {
    let stripe = OWN.with(|own| own.stripe);
    STRIPE.set(stripe);
    stripe
}

impl Free {
    const fn all() -> Self {
        Self { stripes: AtomicU64::new((1 << OWNED) - 1), sharing: AtomicU32::new(0) }
    }

    fn take(&'static self) -> Own {
        let without_first = |free: u64| (free != 0).then(|| free & (free - 1));
        // Acquire: the counts of the last owner are visible, because it released the stripe after them.
        let before = self.stripes.fetch_update(Ordering::Acquire, Ordering::Relaxed, without_first);
        let shared = |_| OWNED + self.sharing.fetch_add(1, Ordering::Relaxed) % SHARED;
        Own { stripe: before.map_or_else(shared, u64::trailing_zeros), from: self }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // Destructors of this thread may still count after the stripe is released.
        STRIPE.set(OWNED);
        if self.stripe < OWNED {
            self.from.stripes.fetch_or(1 << self.stripe, Ordering::Release);
        }
    }
}

impl ThreadCounters {
    pub(crate) fn new(counters: usize) -> Self {
        let lines_per_stripe = counters.div_ceil(COUNTERS_PER_LINE);
        let lines = std::iter::repeat_with(Line::default).take(lines_per_stripe * STRIPES).collect();
        Self { lines, lines_per_stripe }
    }

    /// Adds one to a counter.
    #[inline]
    pub(crate) fn count(&self, counter: usize) {
        let stripe = match STRIPE.get() {
            UNKNOWN => first_stripe(),
            known => known,
        };
        let line = stripe as usize * self.lines_per_stripe + counter / COUNTERS_PER_LINE;
        let count = &self.lines[line].0[counter % COUNTERS_PER_LINE];
        if stripe < OWNED {
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        } else {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The value of a counter.
    pub(crate) fn sum(&self, counter: usize) -> u64 {
        let lines = self.lines[counter / COUNTERS_PER_LINE..].iter().step_by(self.lines_per_stripe);
        lines.map(|line| line.0[counter % COUNTERS_PER_LINE].load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    const COUNTERS: usize = 2 * COUNTERS_PER_LINE + 3;

    #[test]
    fn more_threads_than_stripes_are_all_counted() {
        let counted = if cfg!(miri) { 5 } else { 10_000 };
        let (counters, threads) = (ThreadCounters::new(COUNTERS), 2 * STRIPES);
        let all_have_one = std::sync::Barrier::new(threads);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (counters, all_have_one) = (&counters, &all_have_one);
                scope.spawn(move || {
                    OWN.with(|_| ());
                    all_have_one.wait();
                    (0..counted).for_each(|_| counters.count(thread % COUNTERS));
                });
            }
        });
        for counter in 0..COUNTERS {
            let threads = (0..threads).filter(|thread| thread % COUNTERS == counter).count() as u64;
            assert_eq!(counters.sum(counter), threads * counted, "counter {counter}");
        }
    }

    #[test]
    fn ended_threads_release_their_stripes() {
        static FREE: Free = Free::all();
        let mut all: Vec<Own> = (0..OWNED).map(|_| FREE.take()).collect();
        all.sort_by_key(|own| own.stripe);
        assert!(all.iter().map(|own| own.stripe).eq(0..OWNED), "each has one owner");
        let shared: Vec<u32> = (0..2 * SHARED).map(|_| FREE.take().stripe).collect();
        assert!((OWNED..OWNED + SHARED).all(|stripe| shared.iter().filter(|of| **of == stripe).count() == 2));
        drop(all.remove(40));
        assert_eq!(FREE.take().stripe, 40);
        all.clear();
        assert_eq!(FREE.stripes.load(Ordering::Relaxed).count_ones(), OWNED);
    }

    #[test]
    fn ending_thread_counts_in_a_shared_stripe_after_it_released_its_own() {
        struct AtTheEnd(std::sync::Arc<ThreadCounters>);
        impl Drop for AtTheEnd {
            fn drop(&mut self) {
                // Another thread may own the stripe now, so a plain store could lose a count.
                ENDED_SHARING.store(STRIPE.get() >= OWNED, Ordering::Relaxed);
                self.0.count(0);
            }
        }
        static ENDED_SHARING: AtomicBool = AtomicBool::new(false);
        thread_local! {
            static LAST: std::cell::RefCell<Option<AtTheEnd>> = const { std::cell::RefCell::new(None) };
        }
        let counters = std::sync::Arc::new(ThreadCounters::new(1));
        let ending = std::sync::Arc::clone(&counters);
        // Thread locals are destroyed in reverse order: the stripe first.
        let thread = std::thread::Builder::new().spawn(move || {
            LAST.with(|last| *last.borrow_mut() = Some(AtTheEnd(std::sync::Arc::clone(&ending))));
            ending.count(0);
        });
        thread.expect("a thread starts").join().expect("it does not panic");
        assert_eq!(counters.sum(0), 2);
        assert!(ENDED_SHARING.load(Ordering::Relaxed));
    }
}
