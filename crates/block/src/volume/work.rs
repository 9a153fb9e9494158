//! The resources of an operation in flight. They are released when its last I/O has completed, even if its future was dropped.

use std::sync::Arc;

use device::{Completion, Device, Pending, Request};
use parking_lot::Mutex;

use super::ranges::RangeGuard;
use super::shared::Shared;
use super::state::State;
use crate::sets::Slot;

/// Range locks, pins, pages and reservations of an operation. The operation's future and the completion of each I/O that it
/// submits share ownership.
pub(super) struct Work {
    shared: Arc<Shared>,
    holdings: Mutex<Holdings>,
}

#[derive(Default)]
struct Holdings {
    ranges: Vec<RangeGuard>,
    /// Pages that were allocated and are not installed.
    pages: Vec<u32>,
    /// Pinned slots and their blocks.
    slots: Vec<(Slot, u64)>,
    /// Pages being read.
    reads: Vec<u32>,
    /// Blocks and pages that could not be read.
    bad: Vec<(u64, u32)>,
    /// Blocks whose changes have reserved journal space.
    reserved_blocks: usize,
    /// Reserved entries for blocks with missing sectors.
    reserved_partials: usize,
}

impl Work {
    pub(super) fn new(shared: &Arc<Shared>, range: Option<RangeGuard>) -> Arc<Self> {
        let holdings = Holdings { ranges: range.into_iter().collect(), ..Holdings::default() };
        Arc::new(Self { shared: Arc::clone(shared), holdings: Mutex::new(holdings) })
    }

    /// Adds a range lock.
    pub(super) fn hold_range(&self, range: RangeGuard) {
        self.holdings.lock().ranges.push(range);
    }

    /// Pins the slot until the operation ends.
    pub(super) fn pin(&self, state: &mut State, slot: Slot, block: u64) {
        state.sets.pin(slot);
        self.holdings.lock().slots.push((slot, block));
    }

    /// Reserves journal space for changes of `blocks` blocks until the operation ends.
    pub(super) fn reserve_changes(&self, state: &mut State, blocks: usize) {
        state.journal.reserve_changes(blocks);
        self.holdings.lock().reserved_blocks += blocks;
    }

    /// Whether the tables have space for one more block with missing sectors. If `is_new`, that space is reserved until the end.
    pub(super) fn may_be_partial(&self, state: &mut State, is_new: bool) -> bool {
        let has_space = state.map.has_space_for_partials();
        if has_space && is_new {
            state.map.reserve_partial();
            self.holdings.lock().reserved_partials += 1;
        }
        has_space
    }

    /// Keeps the page from being reused until the operation ends.
    pub(super) fn read_page(&self, state: &mut State, page: u32) {
        state.pages.begin_read(page);
        self.holdings.lock().reads.push(page);
    }

    /// Reports that the page of `block` cannot be read. A clean block is dropped at the end, because this operation may still use it.
    pub(super) fn report_damaged(&self, block: u64, page: u32) {
        self.holdings.lock().bad.push((block, page));
    }

    /// Allocates a page for `block`. It is freed at the end unless it is installed.
    pub(super) fn take_page(&self, state: &mut State, block: u64) -> Option<u32> {
        let group = state.group_of(block);
        let page = state.pages.take(group)?;
        self.holdings.lock().pages.push(page);
        Some(page)
    }

    /// Marks the allocated pages as installed: they are not freed at the end.
    pub(super) fn keep_pages(&self) {
        self.holdings.lock().pages.clear();
    }

    /// Submits I/O that keeps these resources until it completes.
    pub(super) fn start(self: &Arc<Self>, device: &dyn Device, request: Request) -> Pending {
        self.start_and(device, request, |_| {})
    }

    /// Submits a change of the disk that the next commit must flush. It is recorded when the I/O completes, even if no future
    /// waits for it: later reads of the disk may return the new data and cache it as clean.
    pub(super) fn start_on_disk(self: &Arc<Self>, request: Request) -> Pending {
        let failed_before = self.shared.disk.flushes_failed();
        let written = move |work: &Self| work.shared.state.lock().journal.disk_written(failed_before);
        self.start_and(&*self.shared.disk, request, written)
    }

    fn start_and(
        self: &Arc<Self>,
        device: &dyn Device,
        request: Request,
        end: impl FnOnce(&Self) + Send + 'static,
    ) -> Pending {
        let (completion, pending) = Completion::pair();
        let held = Arc::clone(self);
        device.submit(
            request,
            Completion::new(move |outcome| {
                end(&held);
                // Released before the completion runs, so that its receiver finds the ranges unlocked.
                drop(held);
                completion.complete(outcome);
            }),
        );
        pending
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let holdings = std::mem::take(self.holdings.get_mut());
        {
            let mut state = self.shared.state.lock();
            for (slot, block) in holdings.slots {
                state.sets.unpin(slot);
                // The slot was allocated for a block whose data was never written.
                if state.map.copy(slot).is_none() && state.sets.word(slot).block() == Some(block) {
                    state.sets.forget(slot);
                }
            }
            for page in holdings.pages {
                state.pages.free(page);
            }
            for page in holdings.reads {
                state.pages.end_read(page);
            }
            for (block, page) in holdings.bad {
                state.drop_damaged(block, page);
            }
            state.journal.release_reserved(holdings.reserved_blocks);
            state.map.release_partials(holdings.reserved_partials);
        }
        self.shared.changed.notify(usize::MAX);
        drop(holdings.ranges);
    }
}
