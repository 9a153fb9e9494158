//! Commits: making changes durable with one flush for all waiting requests.
//!
//! Each completion of a commit submits its next step. No future drives it, so a dropped future cannot leave it half done for
//! the next commit to overwrite.

use std::sync::Arc;

use device::{Completion, Device, IoError, IoSlice, Request};
use event_listener::Event;
use parking_lot::MutexGuard;

use super::block::{BlockHeader, BlockKind, JOURNAL_BLOCK_BYTES, blocks_for, encode_records};
use super::changes::Batch;
use crate::volume::disk::DiskTask;
use crate::volume::error::{Result, VolumeError, VolumeErrorKind};
use crate::volume::ranges::{RangeGuard, RangeLock};
use crate::volume::shared::Shared;
use crate::volume::state::State;

/// Makes changes durable: with commits, entries of the intent log, tables and superblocks.
pub(in crate::volume) struct Committer {
    pub(super) shared: Arc<Shared>,
    /// A mutex (the range 0..1) held while a table or the superblock is written.
    pub(super) metadata_writer: Arc<RangeLock>,
    /// Notified when a commit or an intent log entry ends, and when enough writes wait for an entry.
    pub(super) log_advanced: Event,
}

/// Why a commit is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::volume) enum CommitReason {
    /// A request waits for its changes, or pages run short.
    Changes,
    /// A table was written: commits even without changes, and may use the journal's last quarter.
    Table,
}

/// Result of waiting for a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(in crate::volume) enum Committed {
    Done,
    /// A table must be written first.
    JournalFull,
}

/// Result of an attempt to begin a commit.
pub(in crate::volume) enum Begin {
    Run(Box<Commit>),
    Wait,
    JournalFull,
    Nothing,
}

/// A commit in flight.
pub(in crate::volume) struct Commit {
    committer: Arc<Committer>,
    batch: Batch,
    /// Parts of the ring to write, in reverse order.
    parts: Vec<(u64, IoSlice)>,
    /// Whether the flash is flushed: not if only the disk was written.
    flush_flash: bool,
}

impl Committer {
    pub(in crate::volume) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self { shared, metadata_writer: Arc::default(), log_advanced: Event::new() })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock()
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.shared.timer.monotonic_ns()
    }

    /// Waits until no table and no superblock is being written.
    pub(in crate::volume) async fn lock_metadata(&self) -> RangeGuard {
        self.metadata_writer.lock(0..1).await
    }

    /// Waits until change `target` and all earlier ones are durable.
    pub(in crate::volume) async fn commit(self: &Arc<Self>, target: u64) -> Result<()> {
        while self.commit_once(target, CommitReason::Changes).await? == Committed::JournalFull {
            if let Err(error) = self.write_table_if_needed().await
                && !can_continue_without_flash(&self.state(), &error)
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// As [`commit`](Self::commit), but returns if a table is needed first.
    pub(in crate::volume) async fn commit_once(
        self: &Arc<Self>,
        target: u64,
        why: CommitReason,
    ) -> Result<Committed> {
        let attempts_before = self.state().journal.attempts;
        loop {
            let listener = self.shared.changed.listen();
            let begin = {
                let mut state = self.state();
                let done = match why {
                    CommitReason::Changes => state.journal.durable >= target,
                    // A commit in flight may have taken its changes before the table's last part, and one that flushed
                    // only the disk has not made the table durable.
                    CommitReason::Table => state.journal.flushed > attempts_before,
                };
                if done {
                    return Ok(Committed::Done);
                }
                if let Some((attempt, error)) = &state.journal.failure
                    && *attempt > attempts_before
                    && (why == CommitReason::Table || !can_continue_without_flash(&state, error))
                {
                    return Err(error.clone());
                }
                if needs_failed_flash(&state, why) {
                    return Err(state.health.error());
                }
                // A commit in flight may include the change.
                if !state.journal.running {
                    state.health.check_open()?;
                }
                self.begin_commit(&mut state, why)
            };
            match begin {
                Begin::Run(commit) => commit.run(),
                Begin::Wait => {}
                Begin::JournalFull => return Ok(Committed::JournalFull),
                Begin::Nothing => return Ok(Committed::Done),
            }
            listener.await;
        }
    }

    /// Begins a commit in the background if there are changes and none is in flight.
    pub(in crate::volume) fn commit_in_background(self: &Arc<Self>) {
        let begin = self.begin_commit(&mut self.state(), CommitReason::Changes);
        if let Begin::Run(commit) = begin {
            commit.run();
        }
    }

    /// Wakes requests that wait for a commit, for the pages that it frees, or for an intent log entry.
    pub(super) fn journal_advanced(&self) {
        self.shared.changed.notify(usize::MAX);
        self.log_advanced.notify(usize::MAX);
    }

    /// Takes all changes for a commit. The caller runs it after unlocking the state.
    fn begin_commit(self: &Arc<Self>, state: &mut State, why: CommitReason) -> Begin {
        if state.journal.running {
            return Begin::Wait;
        }
        // If that flush fails, a later one proves nothing about the pages written before it.
        if state.journal.intent_log.is_flushing() {
            state.journal.is_commit_due = true;
            return Begin::Wait;
        }
        state.journal.is_commit_due = false;
        if state.health.is_closed() || needs_failed_flash(state, why) {
            return Begin::Nothing;
        }
        if why == CommitReason::Changes && state.journal.durable == state.journal.changes.number() {
            return Begin::Nothing;
        }
        if state.health.has_failed() {
            let batch = state.journal.changes.take_disk_written();
            return self.begin_with(state, batch, false);
        }
        let most_blocks = blocks_for(match why {
            CommitReason::Changes => state.journal.changes.units(),
            // Cleaning may have exceeded the bound. Without this commit the journal would stay full.
            CommitReason::Table => state.journal.changes.exact_units(),
        });
        if !state.journal.has_space_for(most_blocks, why == CommitReason::Table) {
            return Begin::JournalFull;
        }
        // The mode may change with a table.
        let batch = state.journal.changes.take(state.journal.recovers_clean && why == CommitReason::Changes);
        let flush_flash = batch.has_records() || why == CommitReason::Table;
        if let Some(epochs) = &mut state.epochs {
            epochs.enter(state.journal.next_commit, batch.records());
        }
        self.begin_with(state, batch, flush_flash)
    }

    fn begin_with(self: &Arc<Self>, state: &mut State, batch: Batch, flush_flash: bool) -> Begin {
        state.journal.running = true;
        state.journal.is_writing_blocks = true;
        state.journal.attempts += 1;
        state.journal.taken = batch.number;
        Begin::Run(Box::new(Commit { committer: Arc::clone(self), batch, parts: Vec::new(), flush_flash }))
    }

    /// Encodes the commit's blocks, split into parts of the ring, and advances the journal.
    fn encode_commit(&self, state: &mut State, batch: &Batch) -> Vec<(u64, IoSlice)> {
        count_records(batch, &mut state.io);
        let journal = &mut state.journal;
        let first_sequence = journal.next_sequence;
        let mut next = BlockHeader {
            sequence: first_sequence,
            commit: journal.next_commit,
            chain: journal.chain,
            ..BlockHeader::default()
        };
        let blocks = encode_records(BlockKind::Journal, journal.uuid, &mut next, batch.records());
        (journal.next_sequence, journal.chain) = (next.sequence, next.chain);
        journal.intent_log.follow(journal.next_commit, journal.chain);
        journal.next_commit += 1;
        state.io.metadata_ssd_writes += next.sequence - first_sequence;
        self.ring_parts(
            (self.shared.layout.journal_offset(), self.shared.layout.journal_blocks),
            first_sequence,
            &blocks,
        )
    }

    /// Splits blocks at the end of the ring and at the largest transfer, in reverse order. `ring_offset` is in bytes, `ring_blocks` its
    /// length.
    pub(super) fn ring_parts(
        &self,
        (ring_offset, ring_blocks): (u64, u64),
        first_sequence: u64,
        data: &IoSlice,
    ) -> Vec<(u64, IoSlice)> {
        let most = self.shared.flash.geometry().transfer_units(JOURNAL_BLOCK_BYTES as u64, u64::MAX) as usize;
        let count = data.len() / JOURNAL_BLOCK_BYTES;
        let mut parts = Vec::new();
        let mut done = 0;
        while done < count {
            let sequence = first_sequence + done as u64;
            let place = sequence % ring_blocks;
            let to_end = (ring_blocks - place) as usize;
            let blocks = to_end.min(most).min(count - done);
            let bytes = done * JOURNAL_BLOCK_BYTES..(done + blocks) * JOURNAL_BLOCK_BYTES;
            parts.push((ring_offset + place * JOURNAL_BLOCK_BYTES as u64, data.part(bytes)));
            done += blocks;
        }
        parts.reverse();
        parts
    }
}

/// Whether a commit needs a flash that has failed: for records of dirty blocks. Records of clean or removed blocks may be lost.
fn needs_failed_flash(state: &State, why: CommitReason) -> bool {
    state.health.has_failed() && (why == CommitReason::Table || state.journal.changes.needs_flash())
}

/// Whether the flash failed with `error` and the changes do not need it. In an ordered volume they do: cleaned epochs must be
/// recorded first.
fn can_continue_without_flash(state: &State, error: &VolumeError) -> bool {
    let has_failed = error.kind() == VolumeErrorKind::Flash && state.health.has_failed();
    has_failed && state.epochs.is_none() && !state.journal.changes.needs_flash()
}

fn count_records(batch: &Batch, io: &mut crate::volume::stats::IoCounts) {
    let mut records = 0;
    for record in batch.records() {
        records += 1;
        let is_dirty = record.held.is_some_and(|held| held.dirty);
        *(if is_dirty { &mut io.metadata_dirties } else { &mut io.metadata_cleans }) += 1;
    }
    io.metadata_batch += if records > 1 { records } else { 0 };
}

impl Commit {
    /// Flushes the disk if records depend on it; then writes the journal; then flushes data and journal together.
    pub(in crate::volume) fn run(self: Box<Self>) {
        let Some(failed_before) = self.batch.flush_disk else { return self.write_journal() };
        let disk = Arc::clone(&self.committer.shared.disk);
        disk.submit(
            Request::Flush,
            Completion::new(move |outcome| {
                match outcome
                    .map(drop)
                    .and_then(|()| self.committer.shared.disk.check_flushes_since(failed_before))
                {
                    Ok(()) => self.write_journal(),
                    Err(error) => self.fail_disk(error),
                }
            }),
        );
    }

    fn write_journal(mut self: Box<Self>) {
        {
            let mut state = self.committer.state();
            state.journal.changes.disk_flushed();
            if self.flush_flash {
                self.parts = self.committer.encode_commit(&mut state, &self.batch);
            }
        }
        self.write_next();
    }

    fn write_next(mut self: Box<Self>) {
        let flash = Arc::clone(&self.committer.shared.flash);
        if self.parts.is_empty() {
            self.end_block_writes();
        }
        match self.parts.pop() {
            Some((offset, data)) => flash.submit(
                Request::write(offset, data),
                Completion::new(move |outcome| match outcome {
                    Ok(_) => self.write_next(),
                    Err(error) => self.fail_flash("writing the journal", error),
                }),
            ),
            None if self.flush_flash => flash.submit(
                Request::Flush,
                Completion::new(move |outcome| match outcome {
                    Ok(_) => self.succeed(),
                    Err(error) => self.fail_flash("flushing the flash", error),
                }),
            ),
            None => self.succeed(),
        }
    }

    /// All blocks are written: their changes survive a kill of the process, and intent log entries may follow.
    fn end_block_writes(&self) {
        {
            let journal = &mut self.committer.state().journal;
            journal.is_writing_blocks = false;
            if self.flush_flash {
                journal.intent_log.commit_written(self.batch.number);
            }
        }
        self.committer.journal_advanced();
    }

    fn succeed(self) {
        let Self { committer, batch, flush_flash, .. } = self;
        {
            let mut state = committer.state();
            let state = &mut *state;
            state.journal.running = false;
            state.journal.committed_ns = committer.now_ns();
            state.journal.durable = batch.number;
            state.io.ssd_flushes += u64::from(flush_flash);
            state.io.disk_flushes += u64::from(batch.flush_disk.is_some());
            if flush_flash {
                state.io.commits += 1;
                state.journal.flushed = state.journal.attempts;
                state.journal.confirmed_commit = state.journal.next_commit - 1;
                state.journal.intent_log.commit_durable();
            }
            for page in state.journal.changes.committed(batch) {
                state.pages.free(page);
            }
        }
        committer.journal_advanced();
    }

    /// The disk's flush failed: disk writes may be lost. Waiting requests get the error, and the next commit flushes again.
    fn fail_disk(mut self, error: IoError) {
        // The failure is reported once.
        self.batch.flush_disk = Some(self.committer.shared.disk.flushes_failed());
        let error = self.committer.shared.disk.failed(DiskTask::Flush, error);
        self.fail(|state, batch| {
            state.journal.changes.put_back(batch);
            state.undo_epoch(state.journal.next_commit);
            state.journal.failure = Some((state.journal.attempts, error));
        });
    }

    /// After a failed flush it is unknown what the flash kept, so nothing later can be made durable.
    fn fail_flash(self, context: &str, error: IoError) {
        let now_ns = self.committer.now_ns();
        self.fail(|state, batch| {
            state.journal.changes.put_back_as_written(batch);
            state.fail_flash(VolumeError::flash(context, error), now_ns);
        });
    }

    fn fail(self, put_back: impl FnOnce(&mut State, Batch)) {
        let Self { committer, batch, .. } = self;
        {
            let mut state = committer.state();
            state.journal.running = false;
            state.journal.is_writing_blocks = false;
            put_back(&mut state, batch);
        }
        committer.journal_advanced();
    }
}
