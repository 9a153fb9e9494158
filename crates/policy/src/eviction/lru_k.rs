//! LRU-2, the usual case of LRU-K: evicts the entry whose second last request is the longest ago. Entries with a single request are evicted
//! before all others, in the order of that request.
//!
//! O'Neil, O'Neil, Weikum: "The LRU-K page replacement algorithm for database disk buffering", SIGMOD'93, section 2, with K = 2. As in
//! libCacheSim, requests in quick succession all count (a correlated reference period of 0), and the history of an evicted entry is
//! forgotten (a retained information period of 0).

use std::collections::BTreeSet;

use crate::list::{List, Nodes};
use crate::{Entry, Eviction, HitRule, Slot};

/// Entries by the time of their second last request.
#[derive(Default)]
pub struct LruK {
    nodes: Nodes,
    /// Entries with one request.
    once: List,
    /// Entries with several requests, by the time of the second last one.
    again: BTreeSet<(u64, Slot)>,
    /// Times of the last two requests by slot; the earlier one is 0 after a single request.
    times: Vec<[u64; 2]>,
    /// Requests so far.
    requests: u64,
}

impl LruK {
    /// An empty policy.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the times of a slot that is requested now.
    fn request(&mut self, slot: Slot, earlier: u64) {
        if slot.0 as usize >= self.times.len() {
            self.times.resize(slot.0 as usize + 1, [0; 2]);
        }
        self.times[slot.0 as usize] = [earlier, self.requests];
    }
}

impl Eviction for LruK {
    fn insert(&mut self, slot: Slot, _entry: Entry, _now_seconds: u32) {
        self.requests += 1;
        self.request(slot, 0);
        self.once.push_front(&mut self.nodes, slot);
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        self.remove(slot);
        self.requests += 1;
        let [_, last] = self.times[slot.0 as usize];
        self.request(slot, last);
        self.again.insert((last, slot));
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        self.once.pop_back(&mut self.nodes).or_else(|| self.again.pop_first().map(|(_, slot)| slot))
    }

    fn remove(&mut self, slot: Slot) {
        match self.times[slot.0 as usize] {
            [0, _] => self.once.unlink(&mut self.nodes, slot),
            [earlier, _] => {
                self.again.remove(&(earlier, slot));
            }
        }
    }

    /// The entry is restored as if requested twice now: if all restored entries had one request, victims would be searched among them only.
    fn restore(&mut self, slot: Slot, _entry: Entry, _now_seconds: u32) {
        self.requests += 1;
        self.request(slot, self.requests);
        self.again.insert((self.requests, slot));
    }

    fn len(&self) -> usize {
        self.once.len() + self.again.len()
    }

    fn oldest(&self) -> Option<Slot> {
        self.once.back().or_else(|| self.again.first().map(|(_, slot)| *slot))
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }

    /// Links, times, and a node of the tree, which is at least half full.
    fn bytes_per_slot(&self) -> u32 {
        8 + 16 + 2 * 16
    }

    fn look_ahead(&self, slots: &[Slot]) {
        self.nodes.look_ahead(slots);
    }
}
