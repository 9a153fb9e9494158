//! Waiting for a slot in the [slot queue](crate::volume::slot_queue).

use std::sync::Arc;

use super::{Batch, Cleaner};
use crate::volume::error::{Result, VolumeErrorKind};
use crate::volume::slot_queue::SlotDemand;

/// Delay before a retry when all blocks of the set are in use by requests.
const IN_USE_NS: u64 = 100_000;

/// A write in the queue; dropping it removes the write.
pub(in crate::volume) struct QueuedWrite {
    cleaner: Arc<Cleaner>,
    number: u64,
}

impl QueuedWrite {
    /// Appends a write to the queue.
    pub(in crate::volume) fn enqueue(cleaner: &Arc<Cleaner>, demand: SlotDemand) -> Self {
        let number = {
            let mut state = cleaner.shared.state.lock();
            state.io.room_waits += 1;
            state.slot_queue.append(demand)
        };
        Self { cleaner: Arc::clone(cleaner), number }
    }

    /// Its number in the queue.
    pub(in crate::volume) fn number(&self) -> u64 {
        self.number
    }

    /// Waits until slots of the set may have become clean.
    pub(in crate::volume) async fn wait(&self, demand: SlotDemand) -> Result<()> {
        let set = demand.set;
        let (cleaner, shared) = (&self.cleaner, &self.cleaner.shared);
        let freed_by_others = cleaner.slots_freed.listen();
        if !shared.state.lock().slot_queue.begin_turn(self.number, demand) {
            freed_by_others.await;
            return Ok(());
        }
        let turn = CleaningTurn(cleaner);
        let has_failed = match cleaner.clean_batch().await {
            Ok(Batch { cleaned: 1.., .. }) => return Ok(()),
            Ok(Batch { failed, .. }) => failed.is_some(),
            // The write itself has not failed: it may bypass the cache.
            Err(error) if error.kind() == VolumeErrorKind::Disk => true,
            Err(error) => return Err(error),
        };
        if has_failed {
            shared.state.lock().slot_queue.mark_futile(|_| true);
            return Ok(());
        }
        let are_under_way = {
            let mut state = shared.state.lock();
            if state.sets.cannot_clean(set) {
                state.slot_queue.mark_futile(|other| other == set);
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
        self.cleaner.shared.state.lock().slot_queue.remove(self.number);
        // The next write may be the first of its set now.
        self.cleaner.slots_freed.notify(usize::MAX);
    }
}

/// A waiting write that is cleaning. When its turn ends or is dropped, the other waiting writes are notified.
struct CleaningTurn<'a>(&'a Cleaner);

impl CleaningTurn<'_> {
    /// Ends the turn without notifying the other waiting writes.
    fn end(self) {
        self.0.shared.state.lock().slot_queue.end_turn();
        std::mem::forget(self);
    }
}

impl Drop for CleaningTurn<'_> {
    fn drop(&mut self) {
        self.0.shared.state.lock().slot_queue.end_turn();
        self.0.slots_freed.notify(usize::MAX);
    }
}
