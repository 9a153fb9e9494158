//! The queue of writes that wait for a slot because all blocks of their set are dirty.
//!
//! Such a write could bypass the cache, as in Flashcache. It would be as slow as the disk and compete with cleaning, so the next
//! write would find no slot either, and the cache would keep old blocks instead of new ones. So the write waits
//! for cleaning, which writes adjacent blocks together.
//!
//! The queue is first-in, first-out, so later writes cannot take the slots that become clean. Up to [`MAX_CLEANERS`] waiting writes clean
//! for all.

use std::collections::{HashMap, VecDeque};
/// Waiting writes that clean concurrently: one flushes its batch while the disk writes the other's. With one, the disk was idle
/// for a quarter of the time.
pub(super) const MAX_CLEANERS: u32 = 2;

/// A set and the number of slots that a write needs there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotDemand {
    pub(super) set: u32,
    pub(super) blocks: u32,
}

/// Writes that wait for slots, in order of arrival.
#[derive(Default)]
pub(super) struct SlotQueue {
    waiting: VecDeque<Waiting>,
    next_number: u64,
    /// Waiting writes that are cleaning.
    cleaners: u32,
}

struct Waiting {
    number: u64,
    demand: SlotDemand,
    /// Waiting is useless: the disk accepts none of the set's dirty blocks.
    is_futile: bool,
}

impl SlotQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Demands in order of arrival, each including the earlier demands for its set.
    pub(super) fn demands(&self) -> Vec<SlotDemand> {
        let mut needed: HashMap<u32, u32> = HashMap::new();
        let sum = |&Waiting { demand: SlotDemand { set, blocks }, .. }: &Waiting| {
            let sum = needed.entry(set).or_default();
            *sum += blocks;
            SlotDemand { set, blocks: *sum }
        };
        self.waiting.iter().map(sum).collect()
    }

    /// Marks writes whose set cannot be cleaned.
    pub(super) fn mark_futile(&mut self, cannot_clean: impl Fn(u32) -> bool) {
        for waiting in self.waiting.iter_mut().filter(|waiting| cannot_clean(waiting.demand.set)) {
            waiting.is_futile = true;
        }
    }

    /// Appends a write. Returns its number in the queue.
    pub(super) fn append(&mut self, demand: SlotDemand) -> u64 {
        self.next_number += 1;
        self.waiting.push_back(Waiting { number: self.next_number, demand, is_futile: false });
        self.next_number
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.waiting.retain(|waiting| waiting.number != number);
    }

    /// Changes the demand of a write. Returns whether it is to clean; then the caller ends its turn with [`end_turn`](Self::end_turn).
    pub(super) fn begin_turn(&mut self, number: u64, demand: SlotDemand) -> bool {
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.number == number) {
            waiting.demand = demand;
        }
        let cleans = self.cleaners < MAX_CLEANERS;
        self.cleaners += u32::from(cleans);
        cleans
    }

    pub(super) fn end_turn(&mut self) {
        self.cleaners -= 1;
    }

    /// Whether it is useless that this write waits.
    pub(super) fn is_futile(&self, number: u64) -> bool {
        self.waiting.iter().any(|waiting| waiting.number == number && waiting.is_futile)
    }

    /// Whether an earlier write than `queued` waits for slots in `set`; any write, if `queued` is `None`.
    pub(super) fn is_before(&self, queued: Option<u64>, set: u32) -> bool {
        let is_earlier = |waiting: &&Waiting| queued.is_none_or(|queued| waiting.number < queued);
        self.waiting.iter().take_while(is_earlier).any(|waiting| waiting.demand.set == set)
    }
}
