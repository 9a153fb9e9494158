//! Greedy: the unit with the fewest live pages.
//!
//! The policy of most drives, and optimal for uniform traffic: Bux & Iliadis, "Performance of greedy garbage collection
//! in flash-based solid-state drives", Performance Evaluation 2010. Among equals it chooses the unit whose last page
//! was invalidated most recently, which the paper leaves open; choosing the least recent one makes a random region
//! beside a ring 2 % cheaper. Choosing and updating take constant time.

use super::buckets::Buckets;
use super::{Select, Setup};

pub(crate) struct Greedy(Buckets);

impl Greedy {
    pub(super) fn new(setup: &Setup) -> Self {
        Self(Buckets::new(setup.units, setup.unit_pages))
    }
}

impl Select for Greedy {
    fn close(&mut self, unit: u32, live: u32, _now: u64) {
        self.0.insert(unit, live);
    }

    #[inline]
    fn invalidate(&mut self, unit: u32, live: u32) {
        self.0.update(unit, live);
    }

    fn choose(&mut self, _now: u64) -> Option<u32> {
        self.0.emptiest()
    }

    fn remove(&mut self, unit: u32) {
        self.0.remove(unit);
    }

    fn recorded_live(&self, unit: u32) -> Option<Option<u32>> {
        self.0.live(unit).map(Some)
    }

    fn spares_full_units(&self) -> bool {
        true
    }
}
