//! The state of a volume, behind one mutex that is never held across I/O.

use std::collections::BTreeMap;

use super::drains::Drains;
use super::epochs::{Epochs, Version};
use super::error::VolumeError;
use super::health::FlashHealth;
use super::journal::{Journal, PageRelease};
use super::layout::Layout;
use super::page_map::PageMap;
use super::pages::Pages;
use super::record::{PageContents, Sectors};
use super::slot_queue::{MAX_CLEANERS, SlotDemand, SlotQueue};
use super::stats::IoCounts;
use super::superblock::{FORMAT_WITH_POLICY_STATE, Superblock};
use crate::sets::{Admit, Cleaning, PolicyState, Sets, Slot, Streams, Tuning};

/// Blocks of cached sequential writes in flight, by set. They are not dirty yet.
pub(super) type IncomingBlocks = BTreeMap<u32, u32>;

/// Journal units that must be available per block of the longest run of cleaning.
const UNITS_PER_RUN_BLOCK: usize = 16;

/// Limit of the length of a run of cleaning, which is held in memory.
const MAX_RUN_BYTES: u32 = 16 << 20;

pub(super) struct State {
    pub(super) sets: Sets,
    streams: Streams,
    pub(super) pages: Pages,
    pub(super) map: PageMap,
    layout: Layout,
    pub(super) journal: Journal,
    pub(super) health: FlashHealth,
    pub(super) io: IoCounts,
    /// The epochs of an ordered volume.
    pub(super) epochs: Option<Epochs>,
    pub(super) incoming_blocks: IncomingBlocks,
    /// Writes that wait for slots.
    pub(super) slot_queue: SlotQueue,
    /// Callers that wait until everything is clean.
    pub(super) drains: Drains,
    /// Blocks that were read and are being written to flash.
    filling_blocks: usize,
}

/// A page that was written for a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written {
    pub(super) slot: Slot,
    pub(super) block: u64,
    pub(super) page: u32,
    pub(super) crc: u32,
    pub(super) partial: Option<Sectors>,
    pub(super) dirty: bool,
}

impl State {
    pub(super) fn new(superblock: &Superblock, mut sets: Sets, journal: Journal) -> Self {
        let layout = superblock.layout;
        // The changes of one run must fit into the journal, together with those of concurrent requests.
        let max_blocks = (journal.max_pending_units() / UNITS_PER_RUN_BLOCK) as u32;
        sets.limit_runs(max_blocks.min(MAX_RUN_BYTES / layout.block_bytes));
        Self {
            sets,
            streams: Streams::new(),
            pages: Pages::new(&layout),
            map: PageMap::new(layout, superblock.checksums),
            layout,
            journal,
            health: FlashHealth::default(),
            io: IoCounts::default(),
            epochs: superblock.ordered.then(Epochs::default),
            slot_queue: SlotQueue::default(),
            drains: Drains::default(),
            filling_blocks: 0,
            incoming_blocks: IncomingBlocks::new(),
        }
    }

    /// Records a failed write or flush of the flash. Nothing later can be made durable, and every waiting request gets the error.
    pub(super) fn fail_flash(&mut self, error: VolumeError, now_ns: u64) {
        self.journal.fail(error.clone());
        self.health.fail(error, now_ns);
    }

    /// Adds the request to the sequential streams. Returns whether its blocks may be cached, and the length of its stream; a request of a
    /// client that does not use the cache is a stream of its own. `limit` selects the stream length limit.
    pub(super) fn admit(
        &mut self,
        offset: u64,
        len: usize,
        may_cache: bool,
        limit: fn(&Tuning) -> u64,
    ) -> (Admit, u64) {
        if !may_cache {
            return (Admit::Refused, len as u64);
        }
        let stream_bytes = self.streams.record(offset, len as u64);
        let limit = limit(self.sets.tuning());
        let is_limited = limit > 0 && stream_bytes > limit;
        (if is_limited { Admit::Sequential } else { Admit::Yes }, stream_bytes)
    }

    /// Blocks that were read and are being written to flash.
    pub(super) fn filling_blocks(&self) -> usize {
        self.filling_blocks
    }

    pub(super) fn begin_fill(&mut self, blocks: usize) {
        self.filling_blocks += blocks;
    }

    pub(super) fn end_fill(&mut self, blocks: usize) {
        self.filling_blocks -= blocks;
    }

    /// The group whose pages hold `block`.
    pub(super) fn group_of(&self, block: u64) -> u32 {
        self.sets.set_of(block) / self.layout.sets_per_group()
    }

    /// Makes the written page the slot's page and releases the previous one.
    pub(super) fn install(&mut self, written: &Written) {
        let &Written { slot, block, page, crc, partial, dirty } = written;
        self.vacate(slot, block);
        self.map.place(slot, page, crc, partial);
        if dirty || self.journal.recovers_clean() {
            let policy_state = self.recorded_policy_state(slot, self.journal.format());
            let contents = PageContents { block, dirty, partial, crc, fresh: true, epoch: 0, policy_state };
            self.journal.hold(page, contents);
        }
        if dirty {
            self.sets.mark_dirty(slot);
        } else {
            self.sets.mark_clean(slot);
        }
    }

    /// Releases the page of a slot that holds `block`.
    pub(super) fn vacate(&mut self, slot: Slot, block: u64) {
        self.vacate_as(slot, block, self.sets.word(slot).is_dirty());
    }

    /// As [`vacate`](Self::vacate), for a block whose state is given.
    fn vacate_as(&mut self, slot: Slot, block: u64, dirty: bool) {
        let Some(copy) = self.map.remove(slot) else { return };
        // The page of an older version is kept until that version is on the disk.
        if self.epochs.as_ref().is_some_and(|epochs| epochs.has(copy.page)) {
            return;
        }
        self.release_page(copy.page, block, dirty);
    }

    /// Releases a page that held `block`.
    pub(super) fn release_page(&mut self, page: u32, block: u64, dirty: bool) {
        if self.journal.release(page, block, dirty) == PageRelease::Immediate {
            self.pages.free(page);
        }
    }

    /// Frees pages that flash records as free.
    pub(super) fn free_pages(&mut self, pages: impl IntoIterator<Item = u32>) {
        pages.into_iter().for_each(|page| self.pages.free(page));
    }

    /// Drops the block in `slot`, dirty or clean. Returns false if it is in use: retry when it is not.
    pub(super) fn forget(&mut self, slot: Slot, block: u64) -> bool {
        let dirty = self.sets.word(slot).is_dirty();
        let forgotten = self.sets.forget(slot);
        if forgotten {
            self.vacate_as(slot, block, dirty);
        }
        forgotten
    }

    /// Whether recovery could restore `block` from flash, now or because its removal is not committed.
    pub(super) fn may_be_recovered(&self, block: u64) -> bool {
        let is_recovered = |slot| self.journal.recovers_clean() || self.sets.word(slot).is_dirty();
        self.journal.removal_of(std::iter::once(block..block + 1)).is_some()
            || self.sets.find(block).is_some_and(is_recovered)
    }

    /// Drops `block` if it is clean and still on the damaged `page`.
    pub(super) fn drop_damaged(&mut self, block: u64, page: u32) {
        let Some(slot) = self.sets.find(block) else { return };
        let is_same = self.map.copy(slot).is_some_and(|copy| copy.page == page);
        if is_same && !self.sets.word(slot).is_dirty() && self.forget(slot, block) {
            self.sets.counters_mut().read_invalidates += 1;
        }
    }

    /// Whether changes of `blocks` more blocks fit into the journal before the next commit, beside those of concurrent requests. A
    /// failed flash records nothing, so there is no limit.
    pub(super) fn has_space_for_changes(&self, blocks: usize) -> bool {
        blocks <= self.blocks_that_may_change()
    }

    /// Number of blocks whose changes fit.
    pub(super) fn blocks_that_may_change(&self) -> usize {
        if self.health.is_healthy() { self.journal.blocks_that_may_change() } else { usize::MAX }
    }

    /// Whether a write waits for cleaning.
    pub(super) fn has_waiting_writes(&self) -> bool {
        !self.slot_queue.is_empty() || self.epochs.as_ref().is_some_and(Epochs::has_waiting_writes)
    }

    /// Whether a commit should begin now that a block of this group was inserted, or could not be for lack of a page, before a
    /// request has to wait for it.
    pub(super) fn should_commit(&self, block: u64) -> bool {
        self.journal.is_short_of_space() || self.is_short_of_pages(block)
    }

    /// Whether half of the group's spare pages are used and a commit would free enough of them. In an ordered volume older
    /// versions may occupy most spare pages, which no commit frees.
    fn is_short_of_pages(&self, block: u64) -> bool {
        let (group, per_group) = (self.group_of(block), self.layout.sets_per_group());
        // The last group may be smaller.
        let sets = per_group.min(self.layout.sets - group * per_group);
        let spares = self.pages.all_in(group) - sets * self.layout.ways;
        self.journal.released_pages() >= (spares / 8) as usize && self.pages.free_in(group) < spares / 2
    }

    /// The next run to clean. A committed block is not joined with uncommitted neighbours, which would need another commit first.
    pub(super) fn next_cleaning(&mut self) -> Option<Cleaning> {
        let Self { sets, journal, map, .. } = self;
        let is_committed = |slot: Slot| map.page(slot).is_none_or(|page| journal.is_committed(page));
        sets.next_cleaning_with(|slot, neighbour| !is_committed(slot) || is_committed(neighbour))
    }

    /// Up to `most` next runs to clean.
    pub(super) fn next_cleanings(&mut self, most: usize) -> Vec<Cleaning> {
        std::iter::from_fn(|| self.next_cleaning()).take(most).collect()
    }

    /// Removes the epoch of a commit that failed before any of it was written: the next commit records the same changes. A page
    /// whose block was rewritten meanwhile was kept for this epoch, and is released.
    pub(super) fn undo_epoch(&mut self, epoch: u64) {
        let Some(epochs) = &mut self.epochs else { return };
        for version in epochs.end(epoch) {
            if !self.is_newest(&version) {
                self.release_page(version.page, version.block, true);
            }
        }
    }

    /// Whether the cache has no newer version of the block.
    pub(super) fn is_newest(&self, version: &Version) -> bool {
        let copy = self.sets.find(version.block).and_then(|slot| self.map.copy(slot));
        copy.is_some_and(|copy| copy.page == version.page)
    }

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

    /// Records in the journal that the block in `slot` is clean.
    pub(super) fn record_clean(&mut self, slot: Slot) {
        let (Some(copy), Some(block)) = (self.map.copy(slot), self.sets.word(slot).block()) else { return };
        let held = PageContents {
            block,
            dirty: false,
            partial: copy.partial,
            crc: copy.crc.unwrap_or(0),
            fresh: false,
            epoch: 0,
            policy_state: self.recorded_policy_state(slot, self.journal.format()),
        };
        self.journal.record_clean(copy.page, held);
    }

    /// The policy state to record for `slot`; the default if `format` has no field for it.
    pub(super) fn recorded_policy_state(&self, slot: Slot, format: u32) -> PolicyState {
        if format >= FORMAT_WITH_POLICY_STATE { self.sets.policy_state(slot) } else { PolicyState::default() }
    }

    /// Memory for cached blocks, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.sets.memory_bytes() + self.pages.memory_bytes() + self.map.memory_bytes()
    }
}
