//! The contents of each flash page, as recorded by the table, the journal and the intent log; and the state built from them.
//!
//! Each record replaces earlier records of its page. Each page also has a *rank*: the position of the record that
//! assigned its block.
//! A table lists the blocks of a set in eviction order, and the journal follows it, so ranks give the order of the sets' queues.

mod journal_replay;
mod log_replay;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::sets::{Allocation, PolicyState, Sets, SetsConfig, Slot};
use crate::volume::epochs::Version;
use crate::volume::error::{Result, VolumeError, VolumeErrorKind};
use crate::volume::journal::Journal;
use crate::volume::journal::block::{self, BlockKind};
use crate::volume::layout::Layout;
use crate::volume::page_copy::Move;
use crate::volume::record::{PageContents, Record, SECTOR_BYTES, Sectors};
use crate::volume::state::State;
use crate::volume::superblock::{FORMAT_WITH_POLICY_STATE, Superblock};

/// Bytes per read during recovery.
pub(super) const READ_BYTES: usize = 256 << 10;

/// The result of opening a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The volume was closed; there was nothing to recover.
    pub was_clean: bool,
    /// Cached blocks.
    pub blocks: u64,
    /// Cached blocks that are dirty.
    pub dirty_blocks: u64,
    /// Journal blocks that were read.
    pub journal_blocks: u64,
    /// Commits that were applied.
    pub commits: u64,
    /// Intent log entries that were applied: writes since the last commit.
    pub log_entries: u64,
    /// The last commit, or entries of the intent log after it, were dropped because their pages have other checksums. A power cut
    /// before the flush completed causes this, and then no flush was acknowledged. Otherwise the flash lost data.
    pub rolled_back: bool,
    /// Blocks written by clients that were dropped with that commit or these entries.
    pub rolled_back_blocks: u64,
    /// The last commit or intent log entry was dropped because one of its blocks is torn, damaged or replaced. The number of writes that it
    /// recorded is unknown. The causes are those of `rolled_back`, which is set too.
    pub lost_last_entry: bool,
    /// Blocks of the last commit, and of flushed entries after it, that the flash lost although the flush was acknowledged. All other
    /// blocks are valid. Reads of a damaged block fail until a client writes it.
    pub damaged_blocks: u64,
    /// Clean blocks that were dropped because the disk may be newer: the mode writes to the disk directly, or a disk that
    /// does not match was accepted.
    pub dropped_blocks: u64,
    /// Duration of opening, including all I/O.
    pub elapsed_ns: u64,
    /// A disk that does not match was accepted.
    pub was_forced: bool,
}

/// Which recovered blocks are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeptBlocks {
    /// All valid blocks.
    All,
    /// Only dirty blocks: clean ones may differ from this disk.
    DirtyOnly,
}

/// The contents of each page of a flash device.
pub(super) struct FlashMap {
    layout: Layout,
    format: u32,
    /// Block, policy state and flags of each page; 0 if free.
    words: Vec<u64>,
    /// Position of the record that assigned each page its block, oldest first; 0 if none.
    ranks: Vec<u32>,
    last_rank: u32,
    /// Last commit before the table's end. The table has newer policy state than the commits up to this one.
    table_commit: u64,
    crcs: Vec<u32>,
    partial: HashMap<u32, Sectors>,
    /// The commit that wrote each page, in an ordered volume.
    epochs: Vec<u64>,
    /// The last record of each page in the intent log. The commit that ends recovery repeats them.
    logged: BTreeMap<u32, Record>,
    /// Pages written by the dropped commit and dropped intent log entries, except those that a valid entry wrote.
    dropped: BTreeSet<u32>,
    /// Expected checksums of pages that recovery found damaged, in a volume without checksums.
    damaged: HashMap<u32, u32>,
    journal: Journal,
    /// Offsets of blocks of journal and intent log with [other contents](block::is_foreign) than the volume writes there. Only recorded after
    /// a crash, and if all of them were initialized.
    foreign_blocks: Option<Vec<u64>>,
}

const HELD: u64 = 1 << 63;
const DIRTY: u64 = 1 << 62;
/// Position in a word of the block's policy state, which lies above the block number.
const POLICY_STATE_SHIFT: u32 = 48;
const BLOCK_MASK: u64 = (1 << POLICY_STATE_SHIFT) - 1;
const POLICY_STATE_MASK: u64 = 0xff << POLICY_STATE_SHIFT;

impl FlashMap {
    /// The map of an empty flash.
    pub(super) fn empty(superblock: &Superblock) -> Self {
        let layout = superblock.layout;
        let pages = layout.pages() as usize;
        Self {
            layout,
            format: superblock.format,
            words: vec![0; pages],
            ranks: vec![0; pages],
            last_rank: 0,
            table_commit: superblock.checkpoint.confirmed_commit,
            crcs: vec![0; if superblock.checksums { pages } else { 0 }],
            partial: HashMap::new(),
            epochs: vec![0; if superblock.ordered { pages } else { 0 }],
            logged: BTreeMap::new(),
            dropped: BTreeSet::new(),
            damaged: HashMap::new(),
            journal: Journal::after_table(superblock),
            foreign_blocks: (superblock.has_initial_blocks && !superblock.clean).then(Vec::new),
        }
    }

    /// Whether the contents of `block` are [foreign](block::is_foreign) and therefore show damage.
    pub(super) fn is_foreign(&self, kind: BlockKind, uuid: u128, block: &[u8]) -> bool {
        self.foreign_blocks.is_some() && block::is_foreign(kind, uuid, block)
    }

    /// Applies a record of commit `commit`; 0 for a record of the table.
    pub(super) fn apply(&mut self, record: &Record, commit: u64) -> Result<()> {
        self.check_record(record)?;
        let page = record.page as usize;
        self.partial.remove(&record.page);
        self.damaged.remove(&record.page);
        let Some(PageContents { block, dirty, partial, crc, fresh, epoch, policy_state }) = record.held
        else {
            self.words[page] = 0;
            return Ok(());
        };
        let known = self.words[page];
        let is_known = known & (HELD | BLOCK_MASK) == HELD | block;
        // A page is written once, so a repeated record of the same block does not change its rank.
        if !is_known {
            self.last_rank = self.last_rank.saturating_add(1);
            self.ranks[page] = self.last_rank;
        }
        let policy_state = match is_known && commit <= self.table_commit {
            true => known & POLICY_STATE_MASK,
            false => u64::from(policy_state.0) << POLICY_STATE_SHIFT,
        };
        self.words[page] = HELD | if dirty { DIRTY } else { 0 } | policy_state | block;
        if let Some(sectors) = partial {
            self.partial.insert(record.page, sectors);
        }
        if let Some(place) = self.epochs.get_mut(page)
            && (fresh || epoch > 0)
        {
            *place = commit.max(epoch);
        }
        // Records that are not fresh may lack the checksum in a volume without checksums. If they have one there, recovery
        // found the page damaged.
        match self.crcs.get_mut(page) {
            Some(place) if fresh || crc != 0 => *place = crc,
            None if !fresh && crc != 0 => drop(self.damaged.insert(record.page, crc)),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn check_record(&self, record: &Record) -> Result<()> {
        if record.page >= self.layout.pages() {
            let (page, pages) = (record.page, self.layout.pages());
            return Err(damaged(&format!("a record names page {page}, but there are only {pages}")));
        }
        let sectors = Sectors::range(0, self.layout.block_bytes / SECTOR_BYTES);
        if record.held.and_then(|held| held.partial).is_some_and(|partial| !sectors.contains(partial)) {
            return Err(damaged(&format!(
                "a record of page {} names sectors past the end of a block",
                record.page
            )));
        }
        let has_policy_state = record.held.is_some_and(|held| held.policy_state != PolicyState::default());
        if has_policy_state && self.format < FORMAT_WITH_POLICY_STATE {
            let why = format!(
                "a record of page {} has a field that format {} does not have",
                record.page, self.format
            );
            return Err(damaged(&why));
        }
        Ok(())
    }

    /// Whether pages are restored in another order than that of their ranks.
    fn needs_reordering(&self) -> bool {
        !self.epochs.is_empty() || !self.logged.is_empty()
    }

    /// The pages in use, in the order in which they are restored: by rank, but in an ordered volume by descending epoch.
    fn restore_order(&self) -> Vec<u32> {
        const NONE: u32 = u32::MAX;
        let mut pages = vec![NONE; self.last_rank as usize + 1];
        for (page, (word, &rank)) in (0_u32..).zip(self.words.iter().zip(&self.ranks)) {
            if word & HELD != 0 {
                pages[rank as usize] = page;
            }
        }
        pages.retain(|&page| page != NONE);
        if !self.epochs.is_empty() {
            pages.sort_by_key(|&page| std::cmp::Reverse(self.epochs[page as usize]));
        }
        if !self.logged.is_empty() {
            // The intent log does not record evictions of clean blocks. Dirty blocks are restored first, then the newest
            // clean ones while their set has free slots.
            pages.sort_by_key(|&page| match self.words[page as usize] & DIRTY {
                0 => (true, u32::MAX - self.ranks[page as usize]),
                _ => (false, 0),
            });
        }
        pages
    }

    /// The pages in use, by priority for a smaller cache: dirty ones, then the newest.
    pub(super) fn pages_to_keep_first(&self) -> Vec<u32> {
        let mut pages: Vec<u32> =
            (0..).zip(&self.words).filter(|(_, word)| **word & HELD != 0).map(|(page, _)| page).collect();
        pages.sort_by_key(|&page| {
            let is_clean = self.words[page as usize] & DIRTY == 0;
            (is_clean, u32::MAX - self.ranks[page as usize])
        });
        pages
    }

    /// The block on a page, and whether it is dirty.
    pub(super) fn block_of(&self, page: u32) -> (u64, bool) {
        let word = self.words[page as usize];
        (word & BLOCK_MASK, word & DIRTY != 0)
    }

    /// The expected checksum of a page, if known.
    pub(super) fn known_crc(&self, page: u32) -> Option<u32> {
        self.crcs.get(page as usize).or_else(|| self.damaged.get(&page)).copied()
    }

    /// The same contents on another flash device, with each page at its new place in `moves`.
    pub(super) fn moved(self, superblock: &Superblock, moves: &[Move]) -> Self {
        let mut moved = Self::empty(superblock);
        moved.last_rank = self.last_rank;
        for step in moves {
            let (from, to) = (step.from as usize, step.to as usize);
            (moved.words[to], moved.ranks[to]) = (self.words[from], self.ranks[from]);
            if let (Some(place), Some(crc)) = (moved.crcs.get_mut(to), self.crcs.get(from)) {
                *place = *crc;
            }
            if let Some(sectors) = self.partial.get(&step.from) {
                moved.partial.insert(step.to, *sectors);
            }
        }
        moved
    }

    /// Whether the volume has no checksums of its pages, so that expected ones of damaged pages are kept apart.
    pub(super) fn keeps_no_checksums(&self) -> bool {
        self.crcs.is_empty()
    }

    /// Marks the page as free.
    pub(super) fn drop_page(&mut self, page: u32) {
        self.words[page as usize] = 0;
        self.partial.remove(&page);
    }

    /// Builds the state. Also returns the pages of dropped blocks, which are free once flash records that.
    pub(super) fn into_state(
        mut self,
        superblock: &Superblock,
        recovery: &mut Recovery,
        kept: KeptBlocks,
    ) -> Result<(State, Vec<u32>)> {
        let config = SetsConfig { geometry: superblock.geometry(), tuning: superblock.tuning };
        let sets = Sets::new(config).map_err(|error| damaged(&error.to_string()))?;
        let pages = self.restore_order();
        let is_out_of_order = self.needs_reordering();
        let mut state = State::new(superblock, sets, self.journal);
        let mut restorer = BlockRestorer {
            words: &self.words,
            epochs: &self.epochs,
            crcs: &self.crcs,
            partial: &self.partial,
            ways: self.layout.ways,
            keeps_clean: kept == KeptBlocks::All
                && (superblock.clean || superblock.tuning.mode.keeps_dirty()),
            blocks_of_disk: superblock.disk.bytes.div_ceil(u64::from(self.layout.block_bytes)),
            has_log_entries: !self.logged.is_empty(),
            logged: &mut self.logged,
        };
        let mut dropped = Vec::new();
        for page in pages {
            if restorer.restore(page, &mut state, recovery)? == Restored::Dropped {
                dropped.push(page);
            }
        }
        if is_out_of_order {
            restore_policy_state(&mut state, &self.words, &self.ranks);
        }
        state.map.set_damaged(self.damaged);
        state.journal.set_foreign_blocks(self.foreign_blocks.unwrap_or_default());
        state.journal.restore(self.logged.into_values());
        recovery.dropped_blocks = dropped.len() as u64;
        Ok((state, dropped))
    }
}

/// Adds blocks to the state.
struct BlockRestorer<'a> {
    words: &'a [u64],
    epochs: &'a [u64],
    crcs: &'a [u32],
    partial: &'a HashMap<u32, Sectors>,
    ways: u32,
    keeps_clean: bool,
    blocks_of_disk: u64,
    /// Entries of the intent log can add dirty blocks to a full set, so clean ones are dropped.
    has_log_entries: bool,
    logged: &'a mut BTreeMap<u32, Record>,
}

#[derive(PartialEq, Eq)]
enum Restored {
    Kept,
    Dropped,
}

impl BlockRestorer<'_> {
    /// Adds the block on `page`.
    fn restore(&mut self, page: u32, state: &mut State, recovery: &mut Recovery) -> Result<Restored> {
        let word = self.words[page as usize];
        state.pages.occupy(page);
        let (block, dirty) = (word & BLOCK_MASK, word & DIRTY != 0);
        if !dirty && !self.keeps_clean {
            return Ok(Restored::Dropped);
        }
        let partial = self.partial.get(&page).copied();
        let crc = self.crcs.get(page as usize).copied().unwrap_or(0);
        let is_present = state.sets.find(block).is_some();
        if let Some(epochs) = &mut state.epochs
            && dirty
        {
            epochs.restore(self.epochs[page as usize], Version { block, page, crc, partial });
            if is_present {
                return Ok(Restored::Kept);
            }
        }
        if block >= self.blocks_of_disk || is_present {
            return Err(damaged(&format!(
                "block {block} on page {page} is recorded twice, or lies past the end of the disk"
            )));
        }
        let set_is_full = |sets: &Sets| sets.set(sets.set_of(block)).held >= self.ways;
        if self.has_log_entries && !dirty && set_is_full(&state.sets) {
            self.logged.insert(page, Record { page, held: None });
            return Ok(Restored::Dropped);
        }
        let Allocation::Free(slot) = state.sets.allocate(block) else {
            return Err(damaged(&format!(
                "the set of block {block} is recorded with more blocks than it can hold"
            )));
        };
        state.map.place(slot, page, crc, partial);
        let policy_state = policy_state_in(word);
        if policy_state != PolicyState::default() {
            state.sets.restore_policy_state(slot, policy_state);
        }
        recovery.blocks += 1;
        if dirty {
            state.sets.mark_dirty(slot);
            recovery.dirty_blocks += 1;
        }
        Ok(Restored::Kept)
    }
}

/// Restores the order and the policy state of the blocks of each set.
fn restore_policy_state(state: &mut State, words: &[u64], ranks: &[u32]) {
    for set in 0..state.sets.geometry().sets {
        let page = |slot: Slot| Some((state.map.copy(slot)?.page as usize, slot));
        let mut slots: Vec<(usize, Slot)> = state.sets.oldest_first(set).filter_map(page).collect();
        slots.sort_unstable_by_key(|&(page, _)| ranks[page]);
        for (page, slot) in slots {
            state.sets.restore_policy_state(slot, policy_state_in(words[page]));
        }
    }
}

fn policy_state_in(word: u64) -> PolicyState {
    PolicyState((word >> POLICY_STATE_SHIFT) as u8)
}

pub(super) fn damaged(why: &str) -> VolumeError {
    VolumeError::new(VolumeErrorKind::Damaged, why)
}
