//! Waiting for space before an insert, and for work of a step.

use std::sync::atomic::Ordering;

use super::{Filling, HashLog, MAX_SEALED, removal};
use crate::flash::Waiting;

impl HashLog {
    /// Whether an item can be staged.
    #[must_use]
    pub fn ready(&self) -> bool {
        let filling = self.filling.lock();
        (filling.sealed.len() < MAX_SEALED || !self.is_full(&filling))
            && self.removals_pending.load(Ordering::Acquire) < removal::MAX_PENDING
    }

    /// Waits until an item can be [staged](Self::ready), or the device fails. Another task must be stepping.
    pub async fn wait_ready(&self, waiting: Waiting) {
        waiting.until(&self.room, || self.ready() || self.is_failing()).await;
    }

    /// Whether a [`step`](Self::step) has work: a transfer of a region is [due](super::pace), or removals are to be completed.
    #[must_use]
    pub fn wants_step(&self) -> bool {
        if self.removals_pending.load(Ordering::Acquire) > 0 || self.has_reads.load(Ordering::Acquire) {
            return true;
        }
        let pauses = self.pauses.is_pause();
        let filling = self.filling.lock();
        (self.is_write_due(&filling) && !pauses) || filling.is_to_be_settled()
    }

    /// Waits until the log [wants a step](Self::wants_step) and no other step is running.
    pub async fn wait_work(&self, waiting: Waiting) {
        waiting.until(&self.work, || self.wants_step() && !self.is_writing.load(Ordering::Acquire)).await;
    }

    /// Whether writes fail.
    pub(in crate::flash) fn is_failing(&self) -> bool {
        self.pauses.is_failing()
    }

    /// The last failed write.
    pub(in crate::flash) fn last_error(&self) -> Option<String> {
        self.pauses.last_error()
    }

    /// Wakes [`wait_work`](Self::wait_work) if a pause has ended. Returns the end of the current pause.
    pub(in crate::flash) fn wake_if_due(&self, now_ns: u64) -> Option<u64> {
        self.pauses.wake_if_due(now_ns, &self.work)
    }

    /// Wakes all tasks in [`wait_work`](Self::wait_work) and [`wait_ready`](Self::wait_ready).
    pub fn wake(&self) {
        self.work.notify(usize::MAX);
        self.room.notify(usize::MAX);
    }

    /// Waits until all items committed before are on flash, or lost because their write failed, and until the destructors of items removed
    /// before were called. Another task must be stepping.
    pub async fn settle(&self) {
        self.settle_items().await;
        self.destroy_removed(Waiting::Task).await;
    }

    async fn settle_items(&self) {
        let mut through = {
            let mut filling = self.filling.lock();
            if filling.items == 0 && filling.sealed.is_empty() && !self.is_writing.load(Ordering::Acquire) {
                return;
            }
            filling.settle_through = filling.settle_through.max(filling.open);
            filling.open
        };
        let mut carries_left = FOLLOWED_CARRIES;
        loop {
            let written = self.room.listen();
            let next = self.filling.lock().followed(through);
            match next {
                Some(next) if next > through && carries_left > 0 => {
                    (through, carries_left) = (next, carries_left - 1);
                    continue;
                }
                Some(_) => return,
                None if self.buffered_bytes.load(Ordering::Acquire) == 0 => return,
                None => {}
            }
            self.work.notify(usize::MAX);
            written.await;
        }
    }
}

/// How often [`HashLog::settle`] follows items to a later region. An item is carried over again only if it
/// collides again, so more carries are improbable. Under constant inserts every region carries items over: without a limit, it would not
/// end.
const FOLLOWED_CARRIES: u32 = 4;
/// Number of regions for which the destination of their carried items is recorded.
const RECORDED_CARRIES: usize = 64;

impl Filling {
    pub(super) fn seal(&mut self) {
        self.sealed.push_back(self.open);
        self.open += 1;
        (self.page_bytes, self.items) = (0, 0);
    }

    /// Whether a caller waits for items that are not written.
    pub(super) fn is_to_be_settled(&self) -> bool {
        let open = (self.items > 0).then_some(self.open);
        let oldest = self.sealed.front().copied().or(open);
        oldest.is_some_and(|oldest| self.settle_through >= oldest)
    }

    /// Records that items of the written region `from` were moved to the open region.
    pub(super) fn note_carry(&mut self, from: u64) {
        if self.carries.len() == RECORDED_CARRIES {
            self.carries.pop_front();
        }
        self.carries.push_back((from, self.open));
    }

    /// The last region to which items of the regions through `sequence` were moved, if those regions are written; `None` otherwise.
    /// A caller that waits for those items must also wait for that region.
    fn followed(&mut self, sequence: u64) -> Option<u64> {
        if !self.is_written(sequence) {
            return None;
        }
        let carried = self.carries.iter().filter(|(from, _)| *from <= sequence).map(|(_, to)| *to).max();
        let last = carried.map_or(sequence, |to| to.max(sequence));
        self.settle_through = self.settle_through.max(last);
        Some(last)
    }

    /// Whether all regions through `sequence` are written.
    fn is_written(&self, sequence: u64) -> bool {
        self.sealed.front().copied().unwrap_or(self.open) > sequence
            || (self.sealed.is_empty() && self.open == sequence && self.items == 0)
    }
}
