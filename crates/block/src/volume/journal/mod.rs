//! The journal: changes since the table, in atomic commits.
//!
//! A ring of blocks. A commit holds the records of all pages that changed since the previous one and ends with one flush. At most
//! one commit is in flight; later changes wait for the next one together. The [intent log](intent_log) covers acknowledged writes
//! between two commits, and usually also [flushes of clients](flush).

pub mod block;
mod changes;
pub(super) mod commit;
mod flush;
mod intent_log;
mod log_write;
mod table;

use std::ops::Range;

use block::{JOURNAL_BLOCK_BYTES, blocks_for, units_in};
use changes::Changes;
use intent_log::IntentLog;

pub(super) use changes::PageRelease;
#[cfg(test)]
pub(super) use changes::{EXAMINED, count_examined};
pub(super) use commit::Committer;
pub(super) use log_write::IncomingWrite;

use super::error::VolumeError;
use super::record::{PageContents, Record};
use super::superblock::{Checkpoint, Superblock};

/// Journal units of a changed block: at most two for the page that is released and two for the one that is assigned.
const UNITS_PER_CHANGE: usize = 4;

/// The changes that are not durable yet, and the position and state of the ring.
pub(super) struct Journal {
    uuid: u128,
    /// Changes since the last commit.
    changes: Changes,
    /// Whether recovery may restore clean blocks: if the superblock in force, or one being written, has a mode that keeps dirty
    /// blocks. Otherwise they need no records: closing the volume, or a change to such a mode, writes a table of all blocks.
    recovers_clean: bool,
    /// Whether a table is being written; see [`Changes::release`].
    is_writing_table: bool,
    /// The format of the superblock in force.
    format: u32,
    /// Blocks whose changes have reserved space.
    reserved_blocks: usize,
    /// Length of the ring in blocks.
    blocks: u64,
    /// The next block to write.
    next_sequence: u64,
    /// Checksum of the previous block.
    chain: u32,
    /// The next commit.
    next_commit: u64,
    /// Last commit that is known to be flushed.
    confirmed_commit: u64,
    /// The first block that recovery needs.
    oldest_sequence: u64,
    /// Offsets of torn or damaged blocks of journal and intent log, which are initialized again before the first request.
    foreign_blocks: Vec<u64>,
    /// Whether a commit is in flight.
    running: bool,
    /// Whether a commit waits for a flush of the intent log.
    is_commit_due: bool,
    /// Whether its blocks are still being written.
    is_writing_blocks: bool,
    /// Records of acknowledged writes between commits.
    intent_log: IntentLog,
    /// All changes up to this one are durable.
    durable: u64,
    /// All changes up to this one are durable or in the commit in flight.
    taken: u64,
    /// End of the last commit.
    committed_ns: u64,
    /// Time of the last flush or FUA write of a client.
    client_flushed_ns: Option<u64>,
    /// Number of commits begun.
    attempts: u64,
    /// Number of the last commit that flushed the flash and succeeded.
    flushed: u64,
    /// Number of the last commit that failed, and its error.
    failure: Option<(u64, VolumeError)>,
}

impl Journal {
    /// The journal after the table that the superblock names.
    pub(super) fn after_table(superblock: &Superblock) -> Self {
        let Superblock { layout, checkpoint, .. } = superblock;
        let last_commit = checkpoint.next_commit.saturating_sub(1);
        Self {
            uuid: superblock.uuid,
            changes: Changes::default(),
            recovers_clean: superblock.tuning.mode.keeps_dirty(),
            is_writing_table: false,
            format: superblock.format,
            reserved_blocks: 0,
            blocks: layout.journal_blocks,
            intent_log: IntentLog::new(
                layout.intent_log_blocks(),
                last_commit,
                checkpoint.journal_chain,
                checkpoint.confirmed_commit,
            ),
            next_sequence: checkpoint.journal_sequence,
            chain: checkpoint.journal_chain,
            next_commit: checkpoint.next_commit,
            confirmed_commit: checkpoint.confirmed_commit,
            oldest_sequence: checkpoint.journal_sequence,
            foreign_blocks: Vec::new(),
            running: false,
            is_commit_due: false,
            is_writing_blocks: false,
            durable: 0,
            taken: 0,
            committed_ns: 0,
            client_flushed_ns: None,
            attempts: 0,
            flushed: 0,
            failure: None,
        }
    }

    /// Continues after a table that recovery wrote with all changes up to commit `checkpoint.confirmed_commit`. New blocks do not
    /// continue any earlier chain.
    fn continue_from(&mut self, checkpoint: &Checkpoint) {
        self.chain = checkpoint.journal_chain;
        self.next_commit = checkpoint.next_commit;
        self.confirmed_commit = checkpoint.confirmed_commit;
        self.intent_log.follow(checkpoint.confirmed_commit, checkpoint.journal_chain);
    }

    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Blocks in use.
    pub(super) fn used(&self) -> u64 {
        self.next_sequence - self.oldest_sequence
    }

    /// Whether a table should be written soon, before a request has to wait for it.
    pub(super) fn is_half_full(&self) -> bool {
        self.used() * 2 >= self.blocks
    }

    /// Maximum of pending units: the capacity of the quarter reserved for the commit that ends a table. With more, a full journal
    /// would block: no commit without a table, and no table without a commit.
    pub(super) fn max_pending_units(&self) -> usize {
        units_in(self.blocks / 4)
    }

    /// Whether `blocks` more blocks fit. A quarter of the ring is reserved for the commit that ends a table.
    fn has_space_for(&self, blocks: u64, for_table: bool) -> bool {
        let limit = if for_table { self.blocks } else { self.blocks - self.blocks / 4 };
        self.used() + blocks <= limit
    }

    /// Whether a commit of all changes fits.
    pub(super) fn fits_changes(&self) -> bool {
        self.has_space_for(blocks_for(self.changes.units()), false)
    }

    /// Byte offset of block `sequence` within the journal.
    pub(super) fn place(&self, sequence: u64) -> u64 {
        sequence % self.blocks * JOURNAL_BLOCK_BYTES as u64
    }
}

/// Recovery.
impl Journal {
    /// Sequence number of the next block, and checksum of the previous one.
    pub(super) fn end(&self) -> (u64, u32) {
        (self.next_sequence, self.chain)
    }

    pub(super) fn next_commit(&self) -> u64 {
        self.next_commit
    }

    pub(super) fn confirmed_commit(&self) -> u64 {
        self.confirmed_commit
    }

    /// Sequence numbers from the end to that of the block at the beginning in the ring's next round.
    pub(super) fn beyond_end(&self) -> Range<u64> {
        self.next_sequence..self.oldest_sequence + self.blocks
    }

    /// Continues after a commit that was found on flash and ends at `end`.
    pub(super) fn replayed(&mut self, commit: u64, end: (u64, u32)) {
        (self.next_sequence, self.chain) = end;
        (self.next_commit, self.confirmed_commit) = (commit + 1, commit);
    }

    /// The last commit was replayed: entries of the intent log follow it.
    pub(super) fn end_replay(&mut self) {
        self.intent_log.follow(self.next_commit.saturating_sub(1), self.chain);
    }

    /// Leaves out a number that a lost commit may have.
    pub(super) fn skip_commit(&mut self) {
        self.next_commit += 1;
    }

    pub(super) fn set_foreign_blocks(&mut self, offsets: Vec<u64>) {
        self.foreign_blocks = offsets;
    }

    pub(super) fn has_foreign_blocks(&self) -> bool {
        !self.foreign_blocks.is_empty()
    }

    /// The commit that entries of the intent log follow, and the checksum to which the first of them is chained.
    pub(super) fn log_start(&self) -> (u64, u32) {
        self.intent_log.start()
    }

    pub(super) fn restore(&mut self, records: impl IntoIterator<Item = Record>) {
        self.changes.restore(records);
    }
}

/// Changes.
impl Journal {
    pub(super) fn recovers_clean(&self) -> bool {
        self.recovers_clean
    }

    pub(super) fn set_recovers_clean(&mut self, recovers_clean: bool) {
        self.recovers_clean = recovers_clean;
    }

    /// Whether a table is being written.
    #[cfg(test)]
    pub(super) fn is_writing_table(&self) -> bool {
        self.is_writing_table
    }

    pub(super) fn format(&self) -> u32 {
        self.format
    }

    /// Records the contents of a page that was written.
    pub(super) fn hold(&mut self, page: u32, held: PageContents) {
        self.changes.hold(page, held);
    }

    pub(super) fn record_clean(&mut self, page: u32, held: PageContents) {
        self.changes.record_clean(page, held);
    }

    /// Records that `page` lost `block`, which was `dirty`. Returns when the page becomes free.
    pub(super) fn release(&mut self, page: u32, block: u64, dirty: bool) -> PageRelease {
        if !self.recovers_clean && self.changes.is_recorded_clean(page, dirty) {
            return PageRelease::Immediate;
        }
        self.changes.release(page, block, dirty, self.is_writing_table)
    }

    pub(super) fn disk_written(&mut self, flushes_failed: u64) {
        self.changes.disk_written(flushes_failed);
    }

    /// Number of the last change.
    pub(super) fn last_change(&self) -> u64 {
        self.changes.number()
    }

    pub(super) fn is_committed(&self, page: u32) -> bool {
        self.changes.is_committed(page)
    }

    /// The last change of the commit in flight.
    pub(super) fn in_flight(&self) -> Option<u64> {
        self.running.then_some(self.taken)
    }

    /// The change to commit before recovery restores none of `blocks`, which were removed. `None` if it would restore none already.
    pub(super) fn removal_of(&self, blocks: impl IntoIterator<Item = Range<u64>>) -> Option<u64> {
        let is_recoverable = |blocks| self.changes.may_be_recovered(blocks, !self.recovers_clean);
        blocks.into_iter().any(is_recoverable).then(|| self.changes.number())
    }

    pub(super) fn clean_inserted(&self) -> usize {
        self.changes.clean_inserted()
    }

    /// Number of pages that the next commit frees.
    pub(super) fn released_pages(&self) -> usize {
        self.changes.released_pages()
    }

    /// Number of blocks whose changes fit before the next commit, beside those of concurrent requests.
    pub(super) fn blocks_that_may_change(&self) -> usize {
        let units = self.max_pending_units().saturating_sub(self.changes.units());
        (units / UNITS_PER_CHANGE).saturating_sub(self.reserved_blocks)
    }

    pub(super) fn reserve_changes(&mut self, blocks: usize) {
        self.reserved_blocks += blocks;
    }

    pub(super) fn release_reserved(&mut self, blocks: usize) {
        self.reserved_blocks -= blocks;
    }

    /// The change whose commit frees space. `None` if only the end of concurrent requests does.
    pub(super) fn space_freeing_change(&self) -> Option<u64> {
        (self.changes.units() > 0).then(|| self.changes.number())
    }

    /// Whether a commit should begin before a request has to wait for space.
    pub(super) fn is_short_of_space(&self) -> bool {
        self.changes.units() * 2 > self.max_pending_units()
    }

    /// Records the time of a flush or FUA write of a client.
    pub(super) fn client_flushed(&mut self, now_ns: u64) {
        self.client_flushed_ns = Some(now_ns);
    }

    pub(super) fn client_flushed_ns(&self) -> Option<u64> {
        self.client_flushed_ns
    }

    /// The flash failed with `error`: every waiting request gets it.
    pub(super) fn fail(&mut self, error: VolumeError) {
        self.failure = Some((self.attempts, error));
    }
}
