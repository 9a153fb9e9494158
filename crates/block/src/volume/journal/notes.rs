//! Notes: what keeps an acknowledged write through the death of the process, though no flush has covered it yet.
//!
//! A disk forgets what was not flushed when the power goes, and never because a program ended. Here the map of what was
//! written is the program's, so before a write is acknowledged its records are *written* to flash, and not flushed: one
//! small write for everyone who waits. The next commit tells all of it again, so notes matter only until then, and a ring of
//! their own, written over again and again, has room for them.
//!
//! Memory that outlives the process is enough for that, so a file or a block device [absorbs](device::Device::absorb) a note
//! instead of being waited for.
//!
//! A note says which commit it follows (`commit` in its blocks) and is chained to the note before it, the first one to the
//! last block of that commit. No note follows a commit whose blocks are not written yet. What recovery makes of them is in
//! [`recovery`](super::super::recovery).
//!
//! Each note also records the last commit whose flush had ended, which proves that this commit was on flash. So recovery
//! can distinguish damage from a power cut before the flush ended. If no note follows a commit for a while, an empty
//! note is written to record its number.
//!
//! A note tells of dirty blocks that were written and of pages that they replaced. It never says that a block became clean:
//! nothing is lost if it is dirty again. That a clean one left it may say, for the disk was flushed before it was called so.

use std::sync::Arc;

use device::{Completion, IoBuffer, IoError, IoSlice, PlacementHandle, Request};

use super::block::{self, BlockHeader, BlockKind, JOURNAL_BLOCK_BYTES};
use super::commit::{blocks_for, chunks_of};
use crate::volume::Shared;
use crate::volume::config::Health;
use crate::volume::error::{Result, VolumeError, VolumeErrorKind};
use crate::volume::record::Record;
use crate::volume::state::State;

/// Idle time after a commit before an empty note confirms it. A client that flushes all the time thus causes no extra
/// writes.
const CONFIRM_AFTER_NS: u64 = 100_000_000;

/// The ring of notes.
pub(in crate::volume) struct Notes {
    blocks: u64,
    /// The block to be written next.
    next_sequence: u64,
    /// The first block that recovery may need.
    oldest_sequence: u64,
    /// The first block after [`base`](Self::base).
    base_sequence: u64,
    /// The commit that notes follow now.
    base: u64,
    /// Checksum of the block before.
    chain: u32,
    /// A note is being written.
    running: bool,
    /// All changes up to this one outlive the process.
    told: u64,
    /// The last commit that a note (or a superblock) says was flushed.
    confirmed: u64,
}

impl Notes {
    /// None yet, after commit `base` whose last block has the checksum `chain`. Commits up to `confirmed` are known to be on flash.
    pub(super) fn new(blocks: u64, base: u64, chain: u32, confirmed: u64) -> Self {
        Self {
            blocks,
            next_sequence: 0,
            oldest_sequence: 0,
            base_sequence: 0,
            base,
            chain,
            running: false,
            told: 0,
            confirmed,
        }
    }

    /// A commit's blocks are laid out: what is noted from now on follows them.
    pub(in crate::volume) fn follow(&mut self, commit: u64, chain: u32) {
        (self.base, self.chain, self.base_sequence) = (commit, chain, self.next_sequence);
    }

    /// The blocks of a commit are written; all changes up to `number` are in it.
    pub(super) fn commit_written(&mut self, number: u64) {
        self.told = self.told.max(number);
    }

    /// The last commit is durable: notes before it are not needed any more.
    pub(super) fn commit_durable(&mut self) {
        self.oldest_sequence = self.base_sequence;
    }

    /// The commit that notes follow, and the checksum that the first of them is chained to.
    pub(in crate::volume) fn start(&self) -> (u64, u32) {
        (self.base, self.chain)
    }

    fn has_room_for(&self, blocks: u64) -> bool {
        self.used() + blocks <= self.blocks
    }

    fn used(&self) -> u64 {
        self.next_sequence - self.oldest_sequence
    }

    /// Whether a commit should empty the ring soon, so that nobody has to wait for it.
    fn is_nearly_full(&self) -> bool {
        self.used() * 4 >= self.blocks * 3
    }
}

/// What beginning a note came to.
enum Begin {
    Run(Note),
    Wait,
    /// Only a commit will do.
    Commit,
    Nothing,
}

/// A note under way. It runs by itself, from completion to completion, like a commit.
struct Note {
    shared: Arc<Shared>,
    /// Parts of the ring to be written, the last one first.
    parts: Vec<(u64, IoSlice)>,
    /// All changes up to this one are in it.
    number: u64,
}

impl Shared {
    /// Waits until everything that changed so far outlives the process.
    pub(in crate::volume) async fn note(self: &Arc<Self>) -> Result<()> {
        let target = self.state.lock().changes.number();
        loop {
            let listener = self.changed.listen();
            let begin = {
                let mut state = self.state.lock();
                if state.journal.notes.told.max(state.journal.durable) >= target {
                    return Ok(());
                }
                if state.health != Health::Healthy {
                    return Err(why_unhealthy(&state));
                }
                self.begin_note(&mut state)
            };
            match begin {
                Begin::Run(note) => note.run(),
                Begin::Wait => {}
                Begin::Commit => return self.commit(target).await,
                Begin::Nothing => return Ok(()),
            }
            listener.await;
        }
    }

    fn begin_note(self: &Arc<Self>, state: &mut State) -> Begin {
        let journal = &state.journal;
        if journal.notes.running || journal.is_laying_out {
            return Begin::Wait;
        }
        let most_blocks = blocks_for(state.changes.units_to_note());
        if !journal.notes.has_room_for(most_blocks) {
            return Begin::Commit;
        }
        let number = state.changes.number();
        let records = state.changes.take_notes();
        if records.is_empty() {
            state.journal.notes.told = number;
            return Begin::Nothing;
        }
        let parts = self.lay_out_note(state, &records);
        state.journal.notes.running = true;
        Begin::Run(Note { shared: Arc::clone(self), parts, number })
    }

    /// Writes an empty note that confirms the last commit, if no note or superblock does so yet and the journal is idle.
    pub(in crate::volume) fn confirm_last_commit(self: &Arc<Self>) {
        let now_ns = self.timer.monotonic_ns();
        let note = {
            let mut state = self.state.lock();
            let journal = &state.journal;
            let is_busy = journal.running || journal.notes.running || state.health != Health::Healthy;
            let is_news = journal.notes.confirmed < journal.confirmed_commit;
            let is_quiet = now_ns.saturating_sub(journal.committed_ns) >= CONFIRM_AFTER_NS;
            if is_busy || !is_news || !is_quiet || !journal.notes.has_room_for(1) {
                return;
            }
            let parts = self.lay_out_note(&mut state, &[]);
            state.journal.notes.running = true;
            Note { shared: Arc::clone(self), parts, number: state.journal.notes.told }
        };
        note.run();
    }

    fn lay_out_note(&self, state: &mut State, records: &[Record]) -> Vec<(u64, IoSlice)> {
        let chunks = chunks_of(records.iter().copied());
        let mut buffer = IoBuffer::zeroed(chunks.len() * JOURNAL_BLOCK_BYTES);
        let confirmed = state.journal.confirmed_commit;
        let notes = &mut state.journal.notes;
        notes.confirmed = confirmed;
        let first_sequence = notes.next_sequence;
        for (number, units) in chunks.iter().enumerate() {
            let header = BlockHeader {
                sequence: notes.next_sequence,
                commit: notes.base,
                chain: notes.chain,
                ends_commit: number + 1 == chunks.len(),
                confirmed,
            };
            let into = &mut buffer[number * JOURNAL_BLOCK_BYTES..][..JOURNAL_BLOCK_BYTES];
            notes.chain = block::encode(BlockKind::Note, self.uuid, &header, units, into);
            notes.next_sequence += 1;
        }
        state.io.notes += u64::from(!records.is_empty());
        state.io.metadata_ssd_writes += chunks.len() as u64;
        let ring = (self.layout.notes_offset(), self.layout.notes_blocks());
        let mut parts = self.ring_parts(ring, first_sequence, &buffer.into());
        parts.reverse();
        parts
    }
}

/// What is told of a flash that failed, or of a volume that was closed.
pub(in crate::volume) fn why_unhealthy(state: &State) -> VolumeError {
    if state.health == Health::Closed {
        return VolumeError::new(VolumeErrorKind::Closed, "the volume is closed");
    }
    state
        .journal
        .flash_failure
        .clone()
        .unwrap_or_else(|| VolumeError::new(VolumeErrorKind::Flash, "the flash failed"))
}

impl Note {
    fn run(mut self) {
        let flash = Arc::clone(&self.shared.flash);
        while let Some((offset, data)) = self.parts.pop() {
            match flash.absorb(offset, &data) {
                Some(Ok(())) => {}
                Some(Err(error)) => return self.fail(error),
                None => {
                    let told = Completion::new(move |outcome| match outcome {
                        Ok(_) => self.run(),
                        Err(error) => self.fail(error),
                    });
                    let placement = PlacementHandle::DEFAULT;
                    return flash.submit(Request::Write { offset, data, placement }, told);
                }
            }
        }
        self.succeed();
    }

    fn succeed(self) {
        let is_nearly_full = {
            let notes = &mut self.shared.state.lock().journal.notes;
            notes.running = false;
            notes.told = notes.told.max(self.number);
            notes.is_nearly_full()
        };
        self.shared.changed.notify(usize::MAX);
        if is_nearly_full {
            self.shared.commit_in_background();
        }
    }

    fn fail(self, error: IoError) {
        let now_ns = self.shared.timer.monotonic_ns();
        {
            let mut state = self.shared.state.lock();
            state.journal.notes.running = false;
            state.fail_flash(VolumeError::flash("writing a note", error), now_ns);
        }
        self.shared.changed.notify(usize::MAX);
    }
}
