//! MIN: evicts the entry whose next use is furthest in the future. With entries of equal weight no policy has more hits, so it is the
//! upper bound for the others. It needs the future requests, so it serves simulation only.
//!
//! Belady: "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966. It ignores weights, and
//! a new entry is always inserted, even if its own next use is the furthest.
//!
//! A hit pushes the entry onto the heap again under its new time. The old heap node has a time in the past, so it lies below all valid
//! nodes; stale nodes are swept out when they are the majority.

use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Entry, Eviction, HitRule, Slot};

/// Next use of the current request: set before each request, read by the policy at an insertion or hit.
#[derive(Clone, Default)]
pub struct NextUse(Arc<ClairvoyantState>);

#[derive(Default)]
struct ClairvoyantState {
    now: AtomicU64,
    next_use: AtomicU64,
}

/// There is no next use.
pub const NEVER: u64 = u64::MAX;
/// The slot has no entry.
const GONE: u64 = u64::MAX - 1;

impl NextUse {
    /// Sets the number of the current request, and that of the next one for the same key, or [`NEVER`].
    #[inline]
    pub fn set(&self, now: u64, next_use: u64) {
        self.0.now.store(now, Ordering::Relaxed);
        self.0.next_use.store(next_use, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.next_use.load(Ordering::Relaxed)
    }

    pub(super) fn now(&self) -> u64 {
        self.0.now.load(Ordering::Relaxed)
    }
}

/// Entries by their next use.
pub struct Clairvoyant {
    future: NextUse,
    next_use: Vec<u64>,
    /// The top is always valid: a slot with its current next use.
    order: BinaryHeap<(u64, Slot)>,
    len: usize,
}

impl Clairvoyant {
    /// Returns the policy and the handle that feeds it the future requests.
    #[must_use]
    pub fn new() -> (Self, NextUse) {
        let future = NextUse::default();
        (Self { future: future.clone(), next_use: Vec::new(), order: BinaryHeap::new(), len: 0 }, future)
    }

    fn enter(&mut self, slot: Slot) {
        let next_use = self.future.get();
        self.next_use[slot.0 as usize] = next_use;
        self.order.push((next_use, slot));
        self.settle();
    }

    /// Removes stale nodes from the top, and all of them when they are the majority.
    fn settle(&mut self) {
        let Self { next_use, order, len, .. } = self;
        let valid = |&(time, slot): &(u64, Slot)| next_use[slot.0 as usize] == time;
        while order.peek().is_some_and(|top| !valid(top)) {
            order.pop();
        }
        if order.len() > 2 * *len + 64 {
            order.retain(valid);
        }
    }

    fn leave(&mut self, slot: Slot) {
        self.next_use[slot.0 as usize] = GONE;
        self.len -= 1;
        self.settle();
    }
}

/// For each request, the number of the next one for the same key.
#[must_use]
pub fn next_uses(keys: impl DoubleEndedIterator<Item = u64> + ExactSizeIterator) -> Vec<u64> {
    let mut seen = HashMap::new();
    let mut next_uses = vec![NEVER; keys.len()];
    for (number, key) in keys.enumerate().rev() {
        next_uses[number] = seen.insert(key, number as u64).unwrap_or(NEVER);
    }
    next_uses
}

impl Eviction for Clairvoyant {
    fn insert(&mut self, slot: Slot, _entry: Entry, _now_seconds: u32) {
        if slot.0 as usize >= self.next_use.len() {
            self.next_use.resize(slot.0 as usize + 1, GONE);
        }
        self.len += 1;
        self.enter(slot);
    }

    fn hit(&mut self, slot: Slot, _now_seconds: u32) {
        if self.next_use[slot.0 as usize] != self.future.get() {
            self.enter(slot);
        }
    }

    fn evict(&mut self, _now_seconds: u32) -> Option<Slot> {
        let (_, slot) = self.order.pop()?;
        self.leave(slot);
        Some(slot)
    }

    fn remove(&mut self, slot: Slot) {
        assert_ne!(self.next_use[slot.0 as usize], GONE, "slot {} is not held", slot.0);
        self.leave(slot);
    }

    fn len(&self) -> usize {
        self.len
    }

    fn oldest(&self) -> Option<Slot> {
        self.order.peek().map(|&(_, slot)| slot)
    }

    fn hit_rule(&self) -> HitRule {
        HitRule::Every
    }

    fn look_ahead(&self, slots: &[Slot]) {
        let times = slots.iter().map(|slot| self.next_use.get(slot.0 as usize).copied().unwrap_or(GONE));
        std::hint::black_box(times.fold(0, |read, time| read ^ time));
    }
}
