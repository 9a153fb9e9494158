//! The queue of writes that wait for a slot because all blocks of their set are dirty.
//!
//! Such a write could bypass the cache, as in Flashcache. It would be as slow as the disk and compete with cleaning, so the next
//! write would find no slot either, and the cache would keep old blocks instead of new ones. So the write waits
//! for cleaning, which writes adjacent blocks together.
//!
//! The queue is first-in, first-out, so later writes cannot take the slots that become clean. Up to [`MAX_CLEANERS`] waiting writes clean
//! for all.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::Shared;
use super::error::{Result, VolumeErrorKind};
use super::state::State;
use super::writeback::Batch;
use crate::sets::Cleaning;

/// Delay before a retry when all blocks of the set are in use by requests.
const IN_USE_NS: u64 = 100_000;

/// Waiting writes that clean concurrently: one flushes its batch while the disk writes the other's. With one, the disk was idle
/// for a quarter of the time.
const MAX_CLEANERS: u32 = 2;

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
    pub(super) fn give_up(&mut self, cannot_clean: impl Fn(u32) -> bool) {
        for waiting in self.waiting.iter_mut().filter(|waiting| cannot_clean(waiting.demand.set)) {
            waiting.is_futile = true;
        }
    }

    /// Whether an earlier write than `queued` waits for slots in `set`; any write, if `queued` is `None`.
    pub(super) fn is_before(&self, queued: Option<&QueuedWrite>, set: u32) -> bool {
        let is_earlier = |waiting: &&Waiting| queued.is_none_or(|queued| waiting.number < queued.number);
        self.waiting.iter().take_while(is_earlier).any(|waiting| waiting.demand.set == set)
    }
}

/// A write in the queue; dropping it removes the write.
pub(super) struct QueuedWrite {
    shared: Arc<Shared>,
    number: u64,
}

impl QueuedWrite {
    /// Appends a write to the queue.
    pub(super) fn enqueue(shared: &Arc<Shared>, demand: SlotDemand) -> Self {
        let number = {
            let mut state = shared.state.lock();
            state.io.room_waits += 1;
            let queue = &mut state.slot_queue;
            queue.next_number += 1;
            queue.waiting.push_back(Waiting { number: queue.next_number, demand, is_futile: false });
            queue.next_number
        };
        Self { shared: Arc::clone(shared), number }
    }

    /// Whether waiting is useless.
    pub(super) fn is_futile(&self, state: &State) -> bool {
        state.slot_queue.waiting.iter().any(|waiting| waiting.number == self.number && waiting.is_futile)
    }

    /// Waits until slots of the set may have become clean.
    pub(super) async fn wait(&self, demand: SlotDemand) -> Result<()> {
        let set = demand.set;
        let shared = &self.shared;
        let freed_by_others = shared.slots_freed.listen();
        let cleans = {
            let queue = &mut shared.state.lock().slot_queue;
            if let Some(waiting) = queue.waiting.iter_mut().find(|waiting| waiting.number == self.number) {
                waiting.demand = demand;
            }
            let cleans = queue.cleaners < MAX_CLEANERS;
            queue.cleaners += u32::from(cleans);
            cleans
        };
        if !cleans {
            freed_by_others.await;
            return Ok(());
        }
        let turn = CleaningTurn(shared);
        let has_failed = match shared.clean_batch().await {
            Ok(Batch { cleaned: 1.., .. }) => return Ok(()),
            Ok(Batch { failed, .. }) => failed.is_some(),
            // The write itself has not failed: it may bypass the cache.
            Err(error) if error.kind() == VolumeErrorKind::Disk => true,
            Err(error) => return Err(error),
        };
        if has_failed {
            shared.state.lock().slot_queue.give_up(|_| true);
            return Ok(());
        }
        let are_under_way = {
            let mut state = shared.state.lock();
            if state.sets.cannot_clean(set) {
                state.slot_queue.give_up(|given_up| given_up == set);
                return Ok(());
            }
            state.sets.cleanings_in_flight() > 0
        };
        // Other waiting writes would find nothing to clean either, so they are not notified.
        turn.end();
        // Other tasks may have the permitted number of cleanings in flight. Each of them ends.
        if are_under_way {
            freed_by_others.await;
        } else {
            device::timer::sleep(&*shared.timer, IN_USE_NS).await;
        }
        Ok(())
    }
}

impl Drop for QueuedWrite {
    fn drop(&mut self) {
        self.shared.state.lock().slot_queue.waiting.retain(|waiting| waiting.number != self.number);
        // The next write may be the first of its set now.
        self.shared.slots_freed.notify(usize::MAX);
    }
}

impl State {
    /// The next runs to clean, for waiting writes in order of arrival; others only if those runs free no slots. Limited, so that each of
    /// the [concurrent cleaners](MAX_CLEANERS) gets some, because a writer waits until its whole batch is flushed.
    pub(super) fn next_for_waiting_writes(&mut self) -> Vec<Cleaning> {
        let most = (self.sets.tuning().cleanings_total / MAX_CLEANERS).max(1) as usize;
        self.sets.clear_slot_requests();
        let mut runs = Vec::new();
        for SlotDemand { set, blocks } in self.slot_queue.demands() {
            while runs.len() < most && self.sets.request_slots(set, blocks) {
                let Some(cleaning) = self.next_cleaning() else { return runs };
                runs.push(cleaning);
            }
        }
        if runs.is_empty() {
            runs.extend(self.next_cleaning());
        }
        runs
    }
}

/// A waiting write that is cleaning. When its turn ends or is dropped, the other waiting writes are notified.
struct CleaningTurn<'a>(&'a Arc<Shared>);

impl CleaningTurn<'_> {
    /// Ends the turn without notifying the other waiting writes.
    fn end(self) {
        self.0.state.lock().slot_queue.cleaners -= 1;
        std::mem::forget(self);
    }
}

impl Drop for CleaningTurn<'_> {
    fn drop(&mut self) {
        self.0.state.lock().slot_queue.cleaners -= 1;
        self.0.slots_freed.notify(usize::MAX);
    }
}
