//! What a flash holds, page by page, as table, journal and notes tell it; and the state that is made of it.
//!
//! Every record is applied over those before it. Besides what the page holds, its *rank* is kept: its place among all that
//! were told of. A table has the blocks of a set in the order in which they would leave, and the journal tells of what came
//! later, so ranks are the order of the sets' queues.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::error::{Result, VolumeError, VolumeErrorKind};
use super::journal::Journal;
use super::order::Version;
use super::record::{Held, Record, Sectors};
use super::recovery::{Recovery, Trust};
use super::replace::Move;
use super::state::State;
use super::superblock::{FORMAT_WITH_STANDING, Superblock};
use super::{Layout, SECTOR_BYTES};
use crate::sets::{Allocation, Sets, SetsConfig, Slot, Standing};

/// What a flash holds, page by page.
pub(super) struct Found {
    pub(super) layout: Layout,
    format: u32,
    /// Block, standing and flags of each page; 0 is a free one.
    words: Vec<u64>,
    /// The place of each page's block among all that were told of, the longest ago first; 0 is none.
    ranks: Vec<u32>,
    last_rank: u32,
    /// Commits up to this one were begun before the table's end: of a page that both tell of, the table knows more.
    table_commit: u64,
    crcs: Vec<u32>,
    partial: HashMap<u32, Sectors>,
    /// The commit that brought each page, if order matters.
    epochs: Vec<u64>,
    /// What notes told last of each page: the commit that ends recovery tells it again.
    pub(super) noted: BTreeMap<u32, Record>,
    /// Pages written by the dropped commit and dropped notes, except those that an applied note wrote.
    pub(super) dropped: BTreeSet<u32>,
    /// Expected checksums of pages that recovery found damaged, in a volume without checksums.
    pub(super) damaged: HashMap<u32, u32>,
    pub(super) journal: Journal,
}

const HELD: u64 = 1 << 63;
const DIRTY: u64 = 1 << 62;
/// Above the block.
const STANDING_SHIFT: u32 = 48;
const BLOCK_MASK: u64 = (1 << STANDING_SHIFT) - 1;
const STANDING_MASK: u64 = 0xff << STANDING_SHIFT;

impl Found {
    /// What an empty flash holds.
    pub(super) fn nothing(superblock: &Superblock) -> Self {
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
            noted: BTreeMap::new(),
            dropped: BTreeSet::new(),
            damaged: HashMap::new(),
            journal: Journal::at(&layout, &superblock.checkpoint),
        }
    }

    /// `commit` is the one that the record was read from, 0 for a table's.
    pub(super) fn apply(&mut self, record: &Record, commit: u64) -> Result<()> {
        self.check_record(record)?;
        let page = record.page as usize;
        self.partial.remove(&record.page);
        self.damaged.remove(&record.page);
        let Some(Held { block, dirty, partial, crc, fresh, epoch, standing }) = record.held else {
            self.words[page] = 0;
            return Ok(());
        };
        let known = self.words[page];
        let is_known = known & (HELD | BLOCK_MASK) == HELD | block;
        // A page is written once: of one that is known to hold the block this says nothing new of its place.
        if !is_known {
            self.last_rank = self.last_rank.saturating_add(1);
            self.ranks[page] = self.last_rank;
        }
        let standing = match is_known && commit <= self.table_commit {
            true => known & STANDING_MASK,
            false => u64::from(standing.0) << STANDING_SHIFT,
        };
        self.words[page] = HELD | if dirty { DIRTY } else { 0 } | standing | block;
        if let Some(sectors) = partial {
            self.partial.insert(record.page, sectors);
        }
        if let Some(place) = self.epochs.get_mut(page)
            && (fresh || epoch > 0)
        {
            *place = commit.max(epoch);
        }
        // A record that is not fresh may not know the checksum; where they are kept it does. Where they are not, it knows that of
        // a damaged page alone.
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
        let is_told = record.held.is_some_and(|held| held.standing != Standing::default());
        if is_told && self.format < FORMAT_WITH_STANDING {
            let why = format!(
                "a record of page {} has a field that format {} does not have",
                record.page, self.format
            );
            return Err(damaged(&why));
        }
        Ok(())
    }

    /// Whether blocks cannot be placed in the order in which they stand.
    fn is_placed_out_of_order(&self) -> bool {
        !self.epochs.is_empty() || !self.noted.is_empty()
    }

    /// The pages that hold something, as they are to be placed: in the order in which they stand, but of an ordered volume
    /// those that were brought last come first.
    fn in_turn(&self) -> Vec<u32> {
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
        if !self.noted.is_empty() {
            // Notes do not tell which clean blocks gave way to others: the dirty ones come first, and the newest of the
            // clean ones fill up.
            pages.sort_by_key(|&page| match self.words[page as usize] & DIRTY {
                0 => (true, u32::MAX - self.ranks[page as usize]),
                _ => (false, 0),
            });
        }
        pages
    }

    /// The pages that hold something, those first that a smaller cache must keep: dirty ones, then the newest.
    pub(super) fn pages_to_keep_first(&self) -> Vec<u32> {
        let mut pages: Vec<u32> =
            (0..).zip(&self.words).filter(|(_, word)| **word & HELD != 0).map(|(page, _)| page).collect();
        pages.sort_by_key(|&page| {
            let is_clean = self.words[page as usize] & DIRTY == 0;
            (is_clean, u32::MAX - self.ranks[page as usize])
        });
        pages
    }

    /// The block that a page holds, and whether it is dirty.
    pub(super) fn block_of(&self, page: u32) -> (u64, bool) {
        let word = self.words[page as usize];
        (word & BLOCK_MASK, word & DIRTY != 0)
    }

    /// The checksum that a page should have, if that is known.
    pub(super) fn known_crc(&self, page: u32) -> Option<u32> {
        self.crcs.get(page as usize).or_else(|| self.damaged.get(&page)).copied()
    }

    /// The same contents on another flash, each page where `moves` takes it.
    pub(super) fn moved(self, superblock: &Superblock, moves: &[Move]) -> Self {
        let mut moved = Self::nothing(superblock);
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

    /// Nothing is on the page.
    pub(super) fn drop_page(&mut self, page: u32) {
        self.words[page as usize] = 0;
        self.partial.remove(&page);
    }

    /// The state, and the pages of blocks that were dropped: free once flash says so.
    pub(super) fn into_state(
        mut self,
        superblock: &Superblock,
        recovery: &mut Recovery,
        trust: Trust,
    ) -> Result<(State, Vec<u32>)> {
        let config = SetsConfig { geometry: superblock.geometry(), tuning: superblock.tuning };
        let sets = Sets::new(config).map_err(|error| damaged(&error.to_string()))?;
        let keeps_clean = trust == Trust::Whole && (superblock.clean || superblock.tuning.mode.keeps_dirty());
        let pages = self.in_turn();
        let is_out_of_order = self.is_placed_out_of_order();
        let is_noted = !self.noted.is_empty();
        let mut state = State::new(superblock, sets, self.journal);
        let blocks_of_disk = superblock.disk.bytes.div_ceil(u64::from(self.layout.block_bytes));
        let mut dropped = Vec::new();
        for page in pages {
            let word = self.words[page as usize];
            state.pages.occupy(page);
            let (block, dirty) = (word & BLOCK_MASK, word & DIRTY != 0);
            if !dirty && !keeps_clean {
                dropped.push(page);
                continue;
            }
            if let Some(order) = &mut state.order
                && dirty
            {
                let partial = self.partial.get(&page).copied();
                let crc = self.crcs.get(page as usize).copied().unwrap_or(0);
                let is_current = state.sets.find(block).is_none();
                order.restore(self.epochs[page as usize], Version { block, page, crc, partial });
                if !is_current {
                    continue;
                }
            }
            if block >= blocks_of_disk || state.sets.find(block).is_some() {
                return Err(damaged(&format!(
                    "block {block} on page {page} is recorded twice, or lies past the end of the disk"
                )));
            }
            if is_noted && !dirty && state.sets.set(state.sets.set_of(block)).held >= self.layout.ways {
                self.noted.insert(page, Record { page, held: None });
                dropped.push(page);
                continue;
            }
            let Allocation::Free(slot) = state.sets.allocate(block) else {
                return Err(damaged(&format!(
                    "the set of block {block} is recorded with more blocks than it can hold"
                )));
            };
            let crc = self.crcs.get(page as usize).copied().unwrap_or(0);
            state.place(slot, page, crc, self.partial.get(&page).copied());
            let standing = standing_in(word);
            if standing != Standing::default() {
                state.sets.reinstate(slot, standing);
            }
            recovery.blocks += 1;
            if dirty {
                state.sets.mark_dirty(slot);
                recovery.dirty_blocks += 1;
            }
        }
        if is_out_of_order {
            reinstate(&mut state, &self.words, &self.ranks);
        }
        state.damaged = self.damaged;
        state.changes.restore(self.noted.into_values());
        recovery.dropped_blocks = dropped.len() as u64;
        Ok((state, dropped))
    }
}

/// Gives the blocks of each set the order and the standing that they were told to have.
fn reinstate(state: &mut State, words: &[u64], ranks: &[u32]) {
    for set in 0..state.sets.geometry().sets {
        let page = |slot: Slot| Some((state.copy(slot)?.page as usize, slot));
        let mut told: Vec<(usize, Slot)> = state.sets.oldest_first(set).filter_map(page).collect();
        told.sort_unstable_by_key(|&(page, _)| ranks[page]);
        for (page, slot) in told {
            state.sets.reinstate(slot, standing_in(words[page]));
        }
    }
}

fn standing_in(word: u64) -> Standing {
    Standing((word >> STANDING_SHIFT) as u8)
}

pub(super) fn damaged(why: &str) -> VolumeError {
    VolumeError::new(VolumeErrorKind::Damaged, why)
}
