//! What the volume knows, behind one lock that is never held across I/O.

use std::collections::HashMap;
use std::sync::Arc;

use super::config::Health;
use super::error::VolumeError;
use super::journal::Journal;
use super::journal::changes::{Changes, Gone};
use super::layout::Layout;
use super::order::Order;
use super::pages::Pages;
use super::record::{Held, Sectors};
use super::room::RoomQueue;
use super::stats::IoCounts;
use super::superblock::{FORMAT_WITH_STANDING, Superblock};
use crate::sets::{Cleaning, Sets, Slot, Standing, Streams};

/// Units that may wait for a commit, for each block of the longest run that is cleaned.
const UNITS_PER_RUN_BLOCK: usize = 16;

/// A run is held in memory while it is on its way.
const MOST_RUN_BYTES: u32 = 16 << 20;

/// A slot without a page.
const NO_PAGE: u16 = u16::MAX;

pub(super) struct State {
    pub(super) sets: Sets,
    pub(super) streams: Streams,
    pub(super) pages: Pages,
    pub(super) changes: Changes,
    pub(super) journal: Journal,
    /// Without the disk's part in it.
    pub(super) health: Health,
    /// Whether flash may bring clean blocks back after a crash: if any superblock that is there, or was begun to be written, has a
    /// mode that keeps dirty ones.
    pub(super) brings_back_clean: bool,
    /// How the flash failed first, and when.
    pub(super) flash_failed: Option<(Arc<str>, u64)>,
    pub(super) io: IoCounts,
    /// The order in which dirty blocks must reach the disk, if that matters.
    pub(super) order: Option<Order>,
    /// A table is being written: see [`Changes::leave`].
    pub(super) table_in_writing: bool,
    /// The format of the volume: that of the superblock that counts.
    pub(super) format: u32,
    /// Writes that wait for something to be cleaned.
    pub(super) room: RoomQueue,
    /// Those who wait for everything to be clean.
    pub(super) cleans_asked_for: usize,
    /// Runs of which something that is [owed](Sets::owe_everything) could not be cleaned, and why, of the last one.
    pub(super) cleanings_failed: u64,
    pub(super) cleaning_failure: Option<VolumeError>,
    /// Blocks that were read and are being written to flash.
    pub(super) filling_blocks: usize,
    /// Blocks that requests under way are going to change.
    promised_blocks: usize,
    /// Blocks that requests under way may bring in without some of their sectors.
    promised_partials: usize,
    layout: Layout,
    /// The page of each slot, within the pages of its group.
    page_of: Vec<u16>,
    /// Checksum of each slot's page, if they are kept.
    crc_of: Option<Vec<u32>>,
    /// Expected checksums of pages that recovery found damaged, in a volume without checksums: reading one fails.
    pub(super) damaged: HashMap<u32, u32>,
    /// Slots whose block lacks sectors.
    partial: HashMap<u32, Sectors>,
}

/// Where a block lies on flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Copy {
    pub(super) page: u32,
    /// Checksum of the page, if known.
    pub(super) crc: Option<u32>,
    /// The sectors that are there; `None` is all.
    pub(super) partial: Option<Sectors>,
}

/// A page that was written, to take the place of a slot's.
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
        // What a run changes must fit into the journal, beside what requests change meanwhile.
        let most_told = (journal.most_pending_units() / UNITS_PER_RUN_BLOCK) as u32;
        sets.limit_runs(most_told.min(MOST_RUN_BYTES / layout.block_bytes));
        let slots = layout.slots() as usize;
        Self {
            sets,
            streams: Streams::new(),
            pages: Pages::new(&layout),
            changes: Changes::default(),
            journal,
            health: Health::Healthy,
            brings_back_clean: superblock.tuning.mode.keeps_dirty(),
            flash_failed: None,
            io: IoCounts::default(),
            order: superblock.ordered.then(Order::default),
            table_in_writing: false,
            format: superblock.format,
            room: RoomQueue::default(),
            cleans_asked_for: 0,
            cleanings_failed: 0,
            cleaning_failure: None,
            filling_blocks: 0,
            promised_blocks: 0,
            promised_partials: 0,
            layout,
            page_of: vec![NO_PAGE; slots],
            crc_of: superblock.checksums.then(|| vec![0; slots]),
            damaged: HashMap::new(),
            partial: HashMap::new(),
        }
    }

    /// The flash failed a write or a flush now: nothing that follows can be promised, and everyone who waits is told why.
    pub(super) fn fail_flash(&mut self, error: VolumeError, now_ns: u64) {
        self.flash_failed.get_or_insert_with(|| (error.to_string().into(), now_ns));
        self.io.ssd_write_errors += 1;
        self.journal.failure = Some((self.journal.attempts, error.clone()));
        self.journal.flash_failure = Some(error);
        if self.health == Health::Healthy {
            self.health = Health::FlashFailed;
        }
    }

    /// The group whose pages the slots of `block` use.
    pub(super) fn group_of(&self, block: u64) -> u32 {
        self.sets.set_of(block) / self.layout.sets_per_group()
    }

    /// Where the block in `slot` lies; `None` while it is being brought in.
    pub(super) fn copy(&self, slot: Slot) -> Option<Copy> {
        let page = self.page_of[slot.0 as usize];
        (page != NO_PAGE).then(|| {
            let page = self.first_page(slot) + u32::from(page);
            let crc = self.crc_of.as_ref().map(|crcs| crcs[slot.0 as usize]);
            Copy {
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

    /// The page written is the slot's from now on; the one it had leaves.
    pub(super) fn install(&mut self, written: &Written) {
        let &Written { slot, block, page, crc, partial, dirty } = written;
        self.vacate(slot, block);
        self.damaged.remove(&page);
        self.place(slot, page, crc, partial);
        let standing = self.told_standing(slot, self.format);
        self.changes.hold(page, Held { block, dirty, partial, crc, fresh: true, epoch: 0, standing });
        if dirty {
            self.sets.mark_dirty(slot);
        } else {
            self.sets.mark_clean(slot);
        }
    }

    /// What was found on flash: the slot has this page, and nothing changes by it.
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

    /// The slot's page, which held `block`, leaves.
    pub(super) fn vacate(&mut self, slot: Slot, block: u64) {
        self.vacate_as(slot, block, self.sets.word(slot).is_dirty());
    }

    /// The same of a block that was `dirty` or not.
    fn vacate_as(&mut self, slot: Slot, block: u64, dirty: bool) {
        let Some(copy) = self.copy(slot) else { return };
        self.page_of[slot.0 as usize] = NO_PAGE;
        self.partial.remove(&slot.0);
        // An older version goes to the disk before a newer one: its page stays until then.
        if self.order.as_ref().is_some_and(|order| order.has(copy.page)) {
            return;
        }
        self.leave(copy.page, block, dirty);
    }

    /// Nothing needs the page any more, which held `block`, dirty or not.
    pub(super) fn leave(&mut self, page: u32, block: u64, dirty: bool) {
        match self.changes.leave(page, block, dirty, self.table_in_writing) {
            Gone::AtOnce => self.pages.give_back(page),
            Gone::AfterCommit => {}
        }
    }

    /// Drops the block in `slot`, dirty or not. False if it is in use: try again when it is not.
    pub(super) fn forget(&mut self, slot: Slot, block: u64) -> bool {
        let dirty = self.sets.word(slot).is_dirty();
        let forgotten = self.sets.forget(slot);
        if forgotten {
            self.vacate_as(slot, block, dirty);
        }
        forgotten
    }

    /// Whether flash may say after a crash that it has `block`, whatever the disk has by then: it is there now, or was.
    pub(super) fn may_come_back(&self, block: u64) -> bool {
        let is_told = |slot| self.brings_back_clean || self.sets.word(slot).is_dirty();
        self.changes.may_come_back(block..block + 1, !self.brings_back_clean)
            || self.sets.find(block).is_some_and(is_told)
    }

    /// Drops `block`, of which flash has a bad copy on `page`: if it still has that one, and the disk has as good a one.
    pub(super) fn drop_bad(&mut self, block: u64, page: u32) {
        let Some(slot) = self.sets.find(block) else { return };
        let is_same = self.copy(slot).is_some_and(|copy| copy.page == page);
        if is_same && !self.sets.word(slot).is_dirty() && self.forget(slot, block) {
            self.sets.counters_mut().read_invalidates += 1;
        }
    }

    /// Whether so many blocks more may change before the next commit, beside those that requests under way will: what
    /// waits for one must fit into the journal. After the last commit, which a failed flash has seen, everything may.
    pub(super) fn has_room_for_changes(&self, blocks: usize) -> bool {
        // A block's old page leaves and its new one comes, each in two units at most.
        let units = self.changes.units() + 4 * (self.promised_blocks + blocks);
        self.health != Health::Healthy || units <= self.journal.most_pending_units()
    }

    /// Whether a write waits for cleaning to make room.
    pub(super) fn has_waiting_writes(&self) -> bool {
        !self.room.is_empty() || self.order.as_ref().is_some_and(Order::has_waiting_writes)
    }

    /// A request that found [room](Self::has_room_for_changes) is going to change so many blocks.
    pub(super) fn promise_changes(&mut self, blocks: usize) {
        self.promised_blocks += blocks;
    }

    /// Whether one block more may lack sectors, beside those that requests under way may bring in so.
    pub(super) fn has_room_for_partials(&self) -> bool {
        self.partial.len() + self.promised_partials < self.layout.partial_limit()
    }

    /// A request may bring in one more.
    pub(super) fn promise_partial(&mut self) {
        self.promised_partials += 1;
    }

    /// It has changed so many blocks, of which so many lack sectors, or never will.
    pub(super) fn end_promises(&mut self, blocks: usize, partials: usize) {
        self.promised_blocks -= blocks;
        self.promised_partials -= partials;
    }

    /// What makes room for changes: a commit up to this one, or, if nothing waits for one, the end of requests under way.
    pub(super) fn makes_room(&self) -> Option<u64> {
        (self.changes.units() > 0).then(|| self.changes.number())
    }

    /// Whether a commit should begin now that a block like `block` came in, or did not for want of a page, lest somebody has to
    /// wait for it.
    pub(super) fn should_commit(&self, block: u64) -> bool {
        let is_journal_short = self.changes.units() * 2 > self.journal.most_pending_units();
        is_journal_short || self.is_short_of_pages(block)
    }

    /// Whether the pages for blocks like `block` are half used up, and a commit frees enough of them to be worth its flush: in an
    /// ordered volume most may be older versions, which no commit frees.
    fn is_short_of_pages(&self, block: u64) -> bool {
        let (group, per_group) = (self.group_of(block), self.layout.sets_per_group());
        // The last group may have fewer sets, and fewer spares.
        let sets = per_group.min(self.layout.sets - group * per_group);
        let spares = self.pages.all_in(group) - sets * self.layout.ways;
        self.changes.leaving() >= (spares / 8) as usize && self.pages.free_in(group) < spares / 2
    }

    /// The next blocks to clean. A block that was part of a commit takes no neighbours along that were not: they would need
    /// another first.
    pub(super) fn next_cleaning(&mut self) -> Option<Cleaning> {
        let Self { sets, changes, page_of, layout, .. } = self;
        let is_told = |slot: Slot| {
            let page = page_of[slot.0 as usize];
            page == NO_PAGE || changes.is_told(first_page(layout, slot) + u32::from(page))
        };
        sets.next_cleaning_with(|slot, neighbour| !is_told(slot) || is_told(neighbour))
    }

    /// The next runs to clean, at most so many.
    pub(super) fn next_cleanings(&mut self, most: usize) -> Vec<Cleaning> {
        std::iter::from_fn(|| self.next_cleaning()).take(most).collect()
    }

    /// The block in `slot` is on the disk as it is here: says so in the journal.
    pub(super) fn tell_clean(&mut self, slot: Slot) {
        let (Some(copy), Some(block)) = (self.copy(slot), self.sets.word(slot).block()) else { return };
        let held = Held {
            block,
            dirty: false,
            partial: copy.partial,
            crc: copy.crc.unwrap_or(0),
            fresh: false,
            epoch: 0,
            standing: self.told_standing(slot, self.format),
        };
        self.changes.turn(copy.page, held);
    }

    /// How the block in `slot` stands with the policy, as far as `format` can tell it.
    pub(super) fn told_standing(&self, slot: Slot, format: u32) -> Standing {
        if format >= FORMAT_WITH_STANDING { self.sets.standing(slot) } else { Standing::default() }
    }

    /// Bytes of memory that the cached blocks take.
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
