//! The journal: what changed since the table, in commits that are there whole or not at all.
//!
//! A ring of blocks. A commit is the records of all pages that changed since the one before, written to as many blocks as
//! they take, and then one flush. At most one commit is under way: whoever wants to be durable meanwhile waits for the
//! next one, together with everyone else. [Notes](notes) keep what is acknowledged between two commits.

pub mod block;
pub(crate) mod changes;
pub(super) mod commit;
pub(super) mod notes;

use block::JOURNAL_BLOCK_BYTES;
use notes::Notes;

use super::error::VolumeError;
use super::layout::Layout;
use super::superblock::Checkpoint;

/// Where the journal is.
pub(super) struct Journal {
    /// Blocks of the ring.
    pub(super) blocks: u64,
    /// The block to be written next.
    pub(super) next_sequence: u64,
    /// Checksum of the one before.
    pub(super) chain: u32,
    /// The commit to be written next.
    pub(super) next_commit: u64,
    /// Commits up to this one are on flash for certain.
    pub(super) confirmed_commit: u64,
    /// The first block that recovery would need.
    pub(super) oldest_sequence: u64,
    /// A commit is under way.
    pub(super) running: bool,
    /// And its blocks are not all written.
    pub(super) is_laying_out: bool,
    /// What is told between commits.
    pub(super) notes: Notes,
    /// All changes up to this one are durable.
    pub(super) durable: u64,
    /// All up to this one are, or are in the commit under way.
    pub(super) taken: u64,
    /// When the last commit ended.
    pub(super) committed_ns: u64,
    /// When a client last had something made durable.
    pub(super) client_flushed_ns: Option<u64>,
    /// Commits tried.
    pub(super) attempts: u64,
    /// The last one of them that flushed the flash and succeeded.
    pub(super) flushed: u64,
    /// How the last one that failed did: its attempt and why.
    pub(super) failure: Option<(u64, VolumeError)>,
    /// Why the flash takes no more, if it does not.
    pub(super) flash_failure: Option<VolumeError>,
}

impl Journal {
    pub(super) fn at(layout: &Layout, checkpoint: &Checkpoint) -> Self {
        let last_commit = checkpoint.next_commit.saturating_sub(1);
        Self {
            blocks: layout.journal_blocks,
            notes: Notes::new(
                layout.notes_blocks(),
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
            is_laying_out: false,
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

    /// Recovery wrote a table that has everything, as if commit `checkpoint.confirmed_commit` had told it. What is written now
    /// continues nothing that was there before.
    pub(super) fn go_on_from(&mut self, checkpoint: &Checkpoint) {
        self.chain = checkpoint.journal_chain;
        self.next_commit = checkpoint.next_commit;
        self.confirmed_commit = checkpoint.confirmed_commit;
        self.notes.follow(checkpoint.confirmed_commit, checkpoint.journal_chain);
    }

    /// Blocks in use.
    pub(super) fn used(&self) -> u64 {
        self.next_sequence - self.oldest_sequence
    }

    /// Whether a table should be written soon, so that nobody has to wait for it.
    pub(super) fn is_half_full(&self) -> bool {
        self.used() * 2 >= self.blocks
    }

    /// Units that may wait for a commit: as many as fit into what is kept for the one that ends a table. Of more there would be
    /// no way out when the journal is full: no commit without a table, and no table without a commit.
    pub(super) fn most_pending_units(&self) -> usize {
        commit::units_in(self.blocks / 4)
    }

    /// Whether so many blocks more fit. A quarter is kept for the commit that ends a table.
    fn has_room_for(&self, blocks: u64, for_table: bool) -> bool {
        let limit = if for_table { self.blocks } else { self.blocks - self.blocks / 4 };
        self.used() + blocks <= limit
    }

    /// Whether a commit of so many units fits.
    pub(super) fn has_room_for_units(&self, units: usize) -> bool {
        self.has_room_for(commit::blocks_for(units), false)
    }

    /// The place of block `sequence`, in bytes from the journal's start.
    pub(super) fn place(&self, sequence: u64) -> u64 {
        sequence % self.blocks * JOURNAL_BLOCK_BYTES as u64
    }
}
