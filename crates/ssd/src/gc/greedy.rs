//! Greedy: the unit with the fewest live pages.
//!
//! The policy of most drives, and optimal for uniform traffic: Bux & Iliadis, "Performance of greedy garbage collection
//! in flash-based solid-state drives", Performance Evaluation 2010. Among equals it chooses the unit whose last page
//! was invalidated most recently, which the paper leaves open; choosing the least recent one makes a random region
//! beside a ring 2 % cheaper. Choosing and updating take constant time.

use super::buckets::Buckets;

pub(crate) struct Greedy(Buckets);

impl Greedy {
    pub(super) fn new(units: u32, unit_pages: u32) -> Self {
        Self(Buckets::new(units, unit_pages))
    }

    pub(super) fn close(&mut self, unit: u32, live: u32) {
        self.0.insert(unit, live);
    }

    #[inline]
    pub(super) fn invalidate(&mut self, unit: u32, live: u32) {
        self.0.update(unit, live);
    }

    pub(super) fn choose(&mut self) -> Option<u32> {
        self.0.emptiest()
    }

    pub(super) fn remove(&mut self, unit: u32) {
        self.0.remove(unit);
    }

    pub(super) fn recorded_live(&self, unit: u32) -> Option<u32> {
        self.0.live(unit)
    }
}
