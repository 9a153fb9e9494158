//! Repeated iteration over the items in DRAM during a run (`dramIteratorMode`), as by a service that exports or counts the contents of
//! its cache.
//!
//! An iteration is no operation of the run and no use of the items it visits. It holds no lock between two items, so both of
//! CacheBench's modes work the same way. An iteration that the end of the run interrupts is not counted.

use std::time::Duration;

use cache::Cursor;
use device::Clock;
use parking_lot::{Condvar, Mutex};

use crate::config::plan::SweepPlan;

/// Totals of the completed iterations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sweeps {
    /// CacheBench's name of the mode.
    pub mode: &'static str,
    /// Number of iterations.
    pub sweeps: u64,
    /// Items visited in all iterations.
    pub items: u64,
    /// Bytes of the visited keys and values.
    pub bytes: u64,
    /// Duration without pauses, in nanoseconds.
    pub ns: u64,
    /// Items visited in the last iteration.
    pub last_items: Option<u64>,
}

impl Sweeps {
    /// The sum over two instances.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            mode: self.mode,
            sweeps: self.sweeps + other.sweeps,
            items: self.items + other.items,
            bytes: self.bytes.saturating_add(other.bytes),
            ns: self.ns.saturating_add(other.ns),
            last_items: None,
        }
    }

    fn add(&mut self, items: u64, bytes: u64, ns: u64) {
        self.sweeps += 1;
        self.items += items;
        self.bytes = self.bytes.saturating_add(bytes);
        self.ns = self.ns.saturating_add(ns);
        self.last_items = Some(items);
    }
}

/// Iterates over DRAM until the run ends.
pub(super) struct Sweeper {
    plan: SweepPlan,
    totals: Mutex<Sweeps>,
    ended: Mutex<bool>,
    end: Condvar,
}

/// Visits the bytes of some items in DRAM, starting at a cursor; returns where to continue.
type Scan<'a> = &'a dyn Fn(Cursor, &mut dyn FnMut(u64)) -> Option<Cursor>;

/// The run has ended.
struct Ended;

impl Sweeper {
    pub(super) fn new(plan: SweepPlan) -> Self {
        let totals = Mutex::new(Sweeps { mode: plan.mode, ..Sweeps::default() });
        Self { plan, totals, ended: Mutex::new(false), end: Condvar::new() }
    }

    pub(super) fn totals(&self) -> Sweeps {
        *self.totals.lock()
    }

    /// Interrupts the iteration or its pause.
    pub(super) fn end(&self) {
        *self.ended.lock() = true;
        self.end.notify_all();
    }

    /// Repeats iterations until the run ends. The first one starts after one interval, as the cache is almost empty at the start.
    pub(super) fn run(&self, scan: Scan<'_>, clock: &dyn Clock) {
        while self.wait(self.plan.interval).is_ok() && self.iterate(scan, clock).is_ok() {}
    }

    /// Iterates from the first item to the last.
    fn iterate(&self, scan: Scan<'_>, clock: &dyn Clock) -> Result<(), Ended> {
        let (mut items, mut bytes, mut worked) = (0, 0_u64, Duration::ZERO);
        let mut began_ns = clock.monotonic_ns();
        let mut next = Some(Cursor::default());
        while let Some(from) = next {
            next = scan(from, &mut |item_bytes| {
                items += 1;
                bytes = bytes.saturating_add(item_bytes);
            });
            self.wait(Duration::ZERO)?;
            let work = Duration::from_nanos(clock.monotonic_ns().saturating_sub(began_ns));
            let must_pause = !self.plan.sleep.is_zero() && work >= self.plan.work;
            if must_pause || next.is_none() {
                worked += work;
            }
            if must_pause && next.is_some() {
                self.wait(self.plan.sleep)?;
                began_ns = clock.monotonic_ns();
            }
        }
        self.totals.lock().add(items, bytes, u64::try_from(worked.as_nanos()).unwrap_or(u64::MAX));
        Ok(())
    }

    /// Waits for `time`, unless the run ends earlier.
    fn wait(&self, time: Duration) -> Result<(), Ended> {
        let mut ended = self.ended.lock();
        if !*ended && !time.is_zero() {
            self.end.wait_for(&mut ended, time);
        }
        if *ended { Err(Ended) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use cache::{Cache, InsertOptions, Inserted};
    use device::SystemClock;

    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);
    const DAY: Duration = Duration::from_hours(24);

    fn sweeper(interval: Duration, sleep: Duration, work: Duration) -> Sweeper {
        Sweeper::new(SweepPlan { mode: "regular", interval, sleep, work })
    }

    /// The totals once they satisfy `enough`, over 300 items with keys of 5 bytes and values of 100.
    fn totals(sweeper: &Sweeper, enough: impl Fn(Sweeps) -> bool) -> Sweeps {
        let cache = Cache::builder().dram_bytes(8 << 20).open().unwrap();
        let insert = |key: u32| {
            cache.insert_blocking(format!("{key:05}").as_bytes(), &[7; 100], InsertOptions::default())
        };
        assert!((0..300).all(|key| insert(key) == Inserted::Stored));
        let scan = |from: Cursor, visit: &mut dyn FnMut(u64)| {
            cache.scan_dram(from, |key, value| visit((key.len() + value.len()) as u64))
        };
        std::thread::scope(|scope| {
            scope.spawn(|| sweeper.run(&scan, &SystemClock));
            while !enough(sweeper.totals()) {
                std::thread::yield_now();
            }
            sweeper.end();
        });
        sweeper.totals()
    }

    #[test]
    fn each_sweep_visits_every_item_once() {
        for pauses in [(Duration::ZERO, Duration::ZERO), (MILLISECOND / 50, Duration::ZERO)] {
            let totals = totals(&sweeper(MILLISECOND, pauses.0, pauses.1), |totals| totals.sweeps >= 3);
            let Sweeps { mode, sweeps, items, bytes, ns, last_items } = totals;
            assert_eq!((items, bytes, last_items), (300 * sweeps, 300 * 105 * sweeps, Some(300)));
            assert!(ns > 0 && mode == "regular");
        }
    }

    #[test]
    fn sweep_is_interrupted_at_the_end_of_the_run() {
        assert_eq!(totals(&sweeper(DAY, Duration::ZERO, Duration::ZERO), |_| true).sweeps, 0);
        // The run ends during the first pause of the sweeper.
        assert_eq!(totals(&sweeper(MILLISECOND, DAY, Duration::ZERO), |_| true).sweeps, 0);
    }
}
