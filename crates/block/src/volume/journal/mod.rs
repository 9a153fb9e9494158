//! The journal: changes since the table, in atomic commits.
//!
//! A ring of blocks. A commit holds the records of all pages that changed since the previous one and ends with one flush. At most
//! one commit is in flight; later changes wait for the next one together. The [intent log](intent_log) covers acknowledged writes
//! between two commits, and usually also [flushes of clients](flush).

pub mod block;
pub(crate) mod changes;
pub(super) mod commit;
mod flush;
pub(super) mod intent_log;

use block::JOURNAL_BLOCK_BYTES;
use intent_log::IntentLog;

use super::error::VolumeError;
use super::layout::Layout;
use super::superblock::Checkpoint;

/// The position and state of the journal.
pub(super) struct Journal {
    /// Length of the ring in blocks.
    pub(super) blocks: u64,
    /// The next block to write.
    pub(super) next_sequence: u64,
    /// Checksum of the previous block.
    pub(super) chain: u32,
    /// The next commit.
    pub(super) next_commit: u64,
    /// Last commit that is known to be flushed.
    pub(super) confirmed_commit: u64,
    /// The first block that recovery needs.
    pub(super) oldest_sequence: u64,
    /// Whether a commit is in flight.
    pub(super) running: bool,
    /// Whether a commit waits for a flush of the intent log.
    pub(super) is_commit_due: bool,
    /// Whether its blocks are still being written.
    pub(super) is_writing_blocks: bool,
    /// Records of acknowledged writes between commits.
    pub(super) intent_log: IntentLog,
    /// All changes up to this one are durable.
    pub(super) durable: u64,
    /// All changes up to this one are durable or in the commit in flight.
    pub(super) taken: u64,
    /// End of the last commit.
    pub(super) committed_ns: u64,
    /// Time of the last flush or FUA write of a client.
    pub(super) client_flushed_ns: Option<u64>,
    /// Number of commits begun.
    pub(super) attempts: u64,
    /// Number of the last commit that flushed the flash and succeeded.
    pub(super) flushed: u64,
    /// Number of the last commit that failed, and its error.
    pub(super) failure: Option<(u64, VolumeError)>,
    /// The error of a failed flash.
    pub(super) flash_failure: Option<VolumeError>,
}

impl Journal {
    pub(super) fn at(layout: &Layout, checkpoint: &Checkpoint) -> Self {
        let last_commit = checkpoint.next_commit.saturating_sub(1);
        Self {
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
            flash_failure: None,
        }
    }

    /// Continues after a table that recovery wrote with all changes up to commit `checkpoint.confirmed_commit`. New blocks do not
    /// continue any earlier chain.
    pub(super) fn continue_from(&mut self, checkpoint: &Checkpoint) {
        self.chain = checkpoint.journal_chain;
        self.next_commit = checkpoint.next_commit;
        self.confirmed_commit = checkpoint.confirmed_commit;
        self.intent_log.follow(checkpoint.confirmed_commit, checkpoint.journal_chain);
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
        commit::units_in(self.blocks / 4)
    }

    /// Whether `blocks` more blocks fit. A quarter of the ring is reserved for the commit that ends a table.
    fn has_space_for(&self, blocks: u64, for_table: bool) -> bool {
        let limit = if for_table { self.blocks } else { self.blocks - self.blocks / 4 };
        self.used() + blocks <= limit
    }

    /// Whether a commit of `units` units fits.
    pub(super) fn fits_units(&self, units: usize) -> bool {
        self.has_space_for(commit::blocks_for(units), false)
    }

    /// Byte offset of block `sequence` within the journal.
    pub(super) fn place(&self, sequence: u64) -> u64 {
        sequence % self.blocks * JOURNAL_BLOCK_BYTES as u64
    }
}
