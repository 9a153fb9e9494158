//! The state of a volume, behind one mutex that is never held across I/O.

use std::collections::{BTreeMap, HashMap};

use super::epochs::{Epochs, Version};
use super::error::VolumeError;
use super::health::FlashHealth;
use super::journal::{Journal, PageRelease};
use super::layout::Layout;
use super::pages::Pages;
use super::record::{PageContents, Sectors};
use super::slot_queue::{MAX_CLEANERS, SlotDemand, SlotQueue};
use super::stats::IoCounts;
use super::superblock::{FORMAT_WITH_STANDING, Superblock};
use crate::sets::{Cleaning, Sets, Slot, Standing, Streams};

/// Blocks of cached sequential writes in flight, by set. They are not dirty yet.
pub(super) type IncomingBlocks = BTreeMap<u32, u32>;

/// Journal units that must be available per block of the longest run of cleaning.
const UNITS_PER_RUN_BLOCK: usize = 16;

/// Limit of the length of a run of cleaning, which is held in memory.
const MAX_RUN_BYTES: u32 = 16 << 20;

/// Marks a slot without a page.
const NO_PAGE: u16 = u16::MAX;

pub(super) struct State {
    pub(super) sets: Sets,
    pub(super) streams: Streams,
    pub(super) pages: Pages,
    pub(super) journal: Journal,
    pub(super) health: FlashHealth,
    pub(super) io: IoCounts,
    /// The epochs of an ordered volume.
    pub(super) epochs: Option<Epochs>,
    pub(super) incoming_blocks: IncomingBlocks,
    /// Writes that wait for slots.
    pub(super) slot_queue: SlotQueue,
    /// Callers that wait until everything is clean.
    pub(super) drain_requests: usize,
    /// Runs with a block [to be drained](Sets::start_drain) that could not be cleaned, and the error of the last one.
    pub(super) cleanings_failed: u64,
    pub(super) cleaning_failure: Option<VolumeError>,
    /// Blocks that were read and are being written to flash.
    pub(super) filling_blocks: usize,
    /// Reserved entries for blocks with missing sectors.
    reserved_partials: usize,
    layout: Layout,
    /// Page of each slot, relative to its group.
    page_of: Vec<u16>,
    /// Checksum of each slot's page, if checksums are kept.
    crc_of: Option<Vec<u32>>,
    /// Expected checksums of pages that recovery found damaged, in a volume without checksums: reading one fails.
    pub(super) damaged: HashMap<u32, u32>,
    /// Offsets of torn or damaged blocks of journal and intent log, which are initialized again before the first request.
    pub(super) foreign_blocks: Vec<u64>,
    /// Sectors of the slots whose block lacks some.
    partial: HashMap<u32, Sectors>,
}

/// The location of a block on flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FlashCopy {
    pub(super) page: u32,
    /// Checksum of the page, if known.
    pub(super) crc: Option<u32>,
    /// The sectors on the page; `None` means all.
    pub(super) partial: Option<Sectors>,
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
        let slots = layout.slots() as usize;
        Self {
            sets,
            streams: Streams::new(),
            pages: Pages::new(&layout),
            journal,
            health: FlashHealth::default(),
            io: IoCounts::default(),
            epochs: superblock.ordered.then(Epochs::default),
            slot_queue: SlotQueue::default(),
            drain_requests: 0,
            cleanings_failed: 0,
            cleaning_failure: None,
            filling_blocks: 0,
            reserved_partials: 0,
            layout,
            page_of: vec![NO_PAGE; slots],
            crc_of: superblock.checksums.then(|| vec![0; slots]),
            damaged: HashMap::new(),
            incoming_blocks: IncomingBlocks::new(),
            foreign_blocks: Vec::new(),
            partial: HashMap::new(),
        }
    }

    /// Records a failed write or flush of the flash. Nothing later can be made durable, and every waiting request gets the error.
    pub(super) fn fail_flash(&mut self, error: VolumeError, now_ns: u64) {
        self.journal.fail(error.clone());
        self.health.fail(error, now_ns);
    }

    /// The group whose pages hold `block`.
    pub(super) fn group_of(&self, block: u64) -> u32 {
        self.sets.set_of(block) / self.layout.sets_per_group()
    }

    /// The location of the block in `slot`; `None` while the block is being inserted.
    pub(super) fn copy(&self, slot: Slot) -> Option<FlashCopy> {
        let page = self.page_of[slot.0 as usize];
        (page != NO_PAGE).then(|| {
            let page = self.first_page(slot) + u32::from(page);
            let crc = self.crc_of.as_ref().map(|crcs| crcs[slot.0 as usize]);
            FlashCopy {
                page,
                crc: crc.or_else(|| self.damaged_crc(page)),
                partial: self.partial.get(&slot.0).copied(),
            }
        })
    }

    /// The expected checksum of a page that recovery found damaged.
    pub(super) fn damaged_crc(&self, page: u32) -> Option<u32> {
        if self.damaged.is_empty() { None } else { self.damaged.get(&page).copied() }
    }

    /// Makes the written page the slot's page and releases the previous one.
    pub(super) fn install(&mut self, written: &Written) {
        let &Written { slot, block, page, crc, partial, dirty } = written;
        self.vacate(slot, block);
        self.damaged.remove(&page);
        self.place(slot, page, crc, partial);
        if dirty || self.journal.recovers_clean() {
            let standing = self.recorded_standing(slot, self.journal.format());
            let contents = PageContents { block, dirty, partial, crc, fresh: true, epoch: 0, standing };
            self.journal.hold(page, contents);
        }
        if dirty {
            self.sets.mark_dirty(slot);
        } else {
            self.sets.mark_clean(slot);
        }
    }

    /// Restores the page of a slot during recovery, without recording a change.
    pub(super) fn place(&mut self, slot: Slot, page: u32, crc: u32, partial: Option<Sectors>) {
        let within = page - self.first_page(slot);
        self.page_of[slot.0 as usize] = u16::try_from(within).expect("a group has fewer than 2^16 pages");
        if let Some(crcs) = &mut self.crc_of {
            crcs[slot.0 as usize] = crc;
        }
        match partial {
            Some(sectors) => self.partial.insert(slot.0, sectors),
            None => self.partial.remove(&slot.0),
        };
    }

    /// Releases the page of a slot that holds `block`.
    pub(super) fn vacate(&mut self, slot: Slot, block: u64) {
        self.vacate_as(slot, block, self.sets.word(slot).is_dirty());
    }

    /// As [`vacate`](Self::vacate), for a block whose state is given.
    fn vacate_as(&mut self, slot: Slot, block: u64, dirty: bool) {
        let Some(copy) = self.copy(slot) else { return };
        self.page_of[slot.0 as usize] = NO_PAGE;
        self.partial.remove(&slot.0);
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
        let is_same = self.copy(slot).is_some_and(|copy| copy.page == page);
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

    /// Whether there is space to record one more block with missing sectors.
    pub(super) fn has_space_for_partials(&self) -> bool {
        self.partial.len() + self.reserved_partials < self.layout.partial_limit()
    }

    /// Reserves space for one block with missing sectors.
    pub(super) fn reserve_partial(&mut self) {
        self.reserved_partials += 1;
    }

    /// Releases space for blocks with missing sectors.
    pub(super) fn release_partials(&mut self, partials: usize) {
        self.reserved_partials -= partials;
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
        let Self { sets, journal, page_of, layout, .. } = self;
        let is_committed = |slot: Slot| {
            let page = page_of[slot.0 as usize];
            page == NO_PAGE || journal.is_committed(first_page(layout, slot) + u32::from(page))
        };
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
        let copy = self.sets.find(version.block).and_then(|slot| self.copy(slot));
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
        let (Some(copy), Some(block)) = (self.copy(slot), self.sets.word(slot).block()) else { return };
        let held = PageContents {
            block,
            dirty: false,
            partial: copy.partial,
            crc: copy.crc.unwrap_or(0),
            fresh: false,
            epoch: 0,
            standing: self.recorded_standing(slot, self.journal.format()),
        };
        self.journal.record_clean(copy.page, held);
    }

    /// The policy state to record for `slot`; the default if `format` has no field for it.
    pub(super) fn recorded_standing(&self, slot: Slot, format: u32) -> Standing {
        if format >= FORMAT_WITH_STANDING { self.sets.standing(slot) } else { Standing::default() }
    }

    /// Memory for cached blocks, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.sets.memory_bytes()
            + self.pages.memory_bytes()
            + self.page_of.capacity() * 2
            + self.crc_of.as_ref().map_or(0, |crcs| crcs.capacity() * 4)
            + self.partial.capacity() * 40
    }

    fn first_page(&self, slot: Slot) -> u32 {
        first_page(&self.layout, slot)
    }
}

/// The first page of the slot's group.
fn first_page(layout: &Layout, slot: Slot) -> u32 {
    slot.0 / layout.ways / layout.sets_per_group() * layout.pages_per_group()
}
