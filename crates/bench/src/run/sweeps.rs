//! A walk over the items in DRAM again and again while a run lasts (`dramIteratorMode`), as a service has that writes out or
//! counts what its cache holds.
//!
//! It takes no part in the run: it is no operation, and no use of the items it sees. It holds no lock between two items, so
//! both of CacheBench's modes walk the same way. A walk that the end of the run cuts off is not counted.

use std::time::Duration;

use cache::dram::Cursor;
use device::Clock;
use parking_lot::{Condvar, Mutex};

use crate::config::plan::SweepPlan;

/// What the walks saw that came to their end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sweeps {
    /// What CacheBench calls them.
    pub mode: &'static str,
    /// How many there were.
    pub sweeps: u64,
    /// Items in all of them.
    pub items: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// How long they took, their pauses left out, nanoseconds.
    pub ns: u64,
    /// Items in the last one.
    pub last_items: Option<u64>,
}

impl Sweeps {
    /// Those of two instances together.
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

/// Who walks.
pub(super) struct Sweeper {
    plan: SweepPlan,
    seen: Mutex<Sweeps>,
    ended: Mutex<bool>,
    end: Condvar,
}

/// Shows the bytes of some items in DRAM, from a place on; answers where to go on.
type Scan<'a> = &'a dyn Fn(Cursor, &mut dyn FnMut(u64)) -> Option<Cursor>;

/// The run is over.
struct Ended;

impl Sweeper {
    pub(super) fn new(plan: SweepPlan) -> Self {
        let seen = Mutex::new(Sweeps { mode: plan.mode, ..Sweeps::default() });
        Self { plan, seen, ended: Mutex::new(false), end: Condvar::new() }
    }

    pub(super) fn seen(&self) -> Sweeps {
        *self.seen.lock()
    }

    /// Has the walk end at once, wherever it is.
    pub(super) fn end(&self) {
        *self.ended.lock() = true;
        self.end.notify_all();
    }

    /// Walks by `scan` until the run is over. The first walk begins after an interval: there is little to see at the start.
    pub(super) fn run(&self, scan: Scan<'_>, clock: &dyn Clock) {
        while self.rest(self.plan.interval).is_ok() && self.walk(scan, clock).is_ok() {}
    }

    /// From the first item to the last.
    fn walk(&self, scan: Scan<'_>, clock: &dyn Clock) -> Result<(), Ended> {
        let (mut items, mut bytes, mut worked) = (0, 0_u64, Duration::ZERO);
        let mut began_ns = clock.monotonic_ns();
        let mut next = Some(Cursor::default());
        while let Some(from) = next {
            next = scan(from, &mut |item_bytes| {
                items += 1;
                bytes = bytes.saturating_add(item_bytes);
            });
            self.rest(Duration::ZERO)?;
            let work = Duration::from_nanos(clock.monotonic_ns().saturating_sub(began_ns));
            let is_tired = !self.plan.sleep.is_zero() && work >= self.plan.work;
            if is_tired || next.is_none() {
                worked += work;
            }
            if is_tired && next.is_some() {
                self.rest(self.plan.sleep)?;
                began_ns = clock.monotonic_ns();
            }
        }
        self.seen.lock().add(items, bytes, u64::try_from(worked.as_nanos()).unwrap_or(u64::MAX));
        Ok(())
    }

    /// Waits so long, unless the run is over before.
    fn rest(&self, time: Duration) -> Result<(), Ended> {
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

    /// What was seen once `enough` is, of 300 items with 5 bytes of key and 100 of value.
    fn seen(sweeper: &Sweeper, enough: impl Fn(Sweeps) -> bool) -> Sweeps {
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
            while !enough(sweeper.seen()) {
                std::thread::yield_now();
            }
            sweeper.end();
        });
        sweeper.seen()
    }

    #[test]
    fn each_walk_sees_every_item_once() {
        for pauses in [(Duration::ZERO, Duration::ZERO), (MILLISECOND / 50, Duration::ZERO)] {
            let walks = seen(&sweeper(MILLISECOND, pauses.0, pauses.1), |seen| seen.sweeps >= 3);
            let Sweeps { mode, sweeps, items, bytes, ns, last_items } = walks;
            assert_eq!((items, bytes, last_items), (300 * sweeps, 300 * 105 * sweeps, Some(300)));
            assert!(ns > 0 && mode == "regular");
        }
    }

    #[test]
    fn a_walk_ends_with_the_run_however_long_it_was_to_rest() {
        assert_eq!(seen(&sweeper(DAY, Duration::ZERO, Duration::ZERO), |_| true).sweeps, 0);
        // In its first pause.
        assert_eq!(seen(&sweeper(MILLISECOND, DAY, Duration::ZERO), |_| true).sweeps, 0);
    }
}
