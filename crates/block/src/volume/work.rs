//! What a request holds while it works: released exactly when its last I/O has ended, whether or not anybody still
//! waits for it.

use std::sync::Arc;

use device::{Completion, Device, Pending, Request};
use parking_lot::Mutex;

use super::Shared;
use super::ranges::Held;
use super::state::State;
use crate::sets::Slot;

/// Ranges, slots and pages of a request under way. The request's future has a share, and so has the completion of every
/// I/O it starts.
pub(super) struct Work {
    shared: Arc<Shared>,
    holdings: Mutex<Holdings>,
}

#[derive(Default)]
struct Holdings {
    ranges: Vec<Held>,
    /// Pages that were taken and not installed.
    pages: Vec<u32>,
    /// Slots that are pinned, and their blocks.
    slots: Vec<(Slot, u64)>,
    /// Pages that are being read.
    reads: Vec<u32>,
    /// Pages that could not be read, and their blocks.
    bad: Vec<(u64, u32)>,
    /// Blocks that are going to change.
    promised_blocks: usize,
    /// Of these, so many may lack sectors.
    promised_partials: usize,
}

impl Work {
    pub(super) fn new(shared: &Arc<Shared>, range: Option<Held>) -> Arc<Self> {
        let holdings = Holdings { ranges: range.into_iter().collect(), ..Holdings::default() };
        Arc::new(Self { shared: Arc::clone(shared), holdings: Mutex::new(holdings) })
    }

    /// Holds a range too.
    pub(super) fn hold_range(&self, range: Held) {
        self.holdings.lock().ranges.push(range);
    }

    /// Pins the slot until the end.
    pub(super) fn pin(&self, state: &mut State, slot: Slot, block: u64) {
        state.sets.pin(slot);
        self.holdings.lock().slots.push((slot, block));
    }

    /// Keeps room in the journal for changes of so many blocks, until the end.
    pub(super) fn promise_changes(&self, state: &mut State, blocks: usize) {
        state.promise_changes(blocks);
        self.holdings.lock().promised_blocks += blocks;
    }

    /// Whether the tables have room for blocks that lack sectors; for one that `is_new` among them it is kept until the end.
    pub(super) fn may_be_partial(&self, state: &mut State, is_new: bool) -> bool {
        let has_room = state.has_room_for_partials();
        if has_room && is_new {
            state.promise_partial();
            self.holdings.lock().promised_partials += 1;
        }
        has_room
    }

    /// Reads the page until the end.
    pub(super) fn read_page(&self, state: &mut State, page: u32) {
        state.pages.begin_read(page);
        self.holdings.lock().reads.push(page);
    }

    /// The page of `block` cannot be read. If it is clean the block leaves the cache at the end: until then it may be in use here.
    pub(super) fn found_bad(&self, block: u64, page: u32) {
        self.holdings.lock().bad.push((block, page));
    }

    /// Takes a free page for `block`; it goes back at the end unless it is installed.
    pub(super) fn take_page(&self, state: &mut State, block: u64) -> Option<u32> {
        let group = state.group_of(block);
        let page = state.pages.take(group)?;
        self.holdings.lock().pages.push(page);
        Some(page)
    }

    /// The pages taken became slots': they do not go back.
    pub(super) fn keep_pages(&self) {
        self.holdings.lock().pages.clear();
    }

    /// Starts I/O that holds all this until it has ended.
    pub(super) fn start(self: &Arc<Self>, device: &dyn Device, request: Request) -> Pending {
        self.start_and(device, request, |_| {})
    }

    /// Starts a change of the disk that the next commit is to make durable there. It is noted at its end, though nobody wait for
    /// that any more: what is read from the disk from then on may have it, and be told to be clean.
    pub(super) fn start_on_disk(self: &Arc<Self>, request: Request) -> Pending {
        let failed_before = self.shared.disk_trouble.flushes_failed();
        let written = move |work: &Self| work.shared.state.lock().changes.disk_written(failed_before);
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
                // Released before the outcome is told: who saw a request end finds its ranges free.
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
                // A slot that was taken for a block whose data never came.
                if state.copy(slot).is_none() && state.sets.word(slot).block() == Some(block) {
                    state.sets.forget(slot);
                }
            }
            for page in holdings.pages {
                state.pages.give_back(page);
            }
            for page in holdings.reads {
                state.pages.end_read(page);
            }
            for (block, page) in holdings.bad {
                state.drop_bad(block, page);
            }
            state.end_promises(holdings.promised_blocks, holdings.promised_partials);
        }
        self.shared.changed.notify(usize::MAX);
        drop(holdings.ranges);
    }
}
