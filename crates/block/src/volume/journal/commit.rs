//! Making changes durable: one flush for everyone who waits.
//!
//! A commit runs by itself, from completion to completion. Nobody's future drives it, so nobody who goes away can stop
//! it half-way and leave the next one to write over it.

use std::sync::Arc;

use device::{Completion, IoBuffer, IoError, IoSlice, PlacementHandle, Request};

use super::block::{self, BlockHeader, BlockKind, JOURNAL_BLOCK_BYTES, UNITS_PER_BLOCK};
use super::changes::Batch;
use super::notes::why_unhealthy;
use crate::volume::Shared;
use crate::volume::config::Health;
use crate::volume::error::{Result, VolumeError, VolumeErrorKind};
use crate::volume::record::{Record, UNIT_BYTES};
use crate::volume::state::State;
use crate::volume::trouble::DiskTask;

/// How to commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::volume) enum Why {
    /// Somebody waits, or pages run short.
    Changes,
    /// A table was written: a commit, even if nothing changed, and the journal's last quarter may be used.
    Table,
}

/// What waiting for a commit came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(in crate::volume) enum Committed {
    Done,
    /// A table must be written first.
    JournalFull,
}

/// What beginning one came to.
pub(in crate::volume) enum Begin {
    Run(Box<Commit>),
    Wait,
    JournalFull,
    Nothing,
}

/// A commit under way.
pub(in crate::volume) struct Commit {
    shared: Arc<Shared>,
    batch: Batch,
    /// Parts of the ring to be written, the last one first.
    parts: Vec<(u64, IoSlice)>,
    /// Whether flash is to be flushed: not if only the disk was written.
    flush_flash: bool,
}

impl Shared {
    /// Waits until change `target` and all before it are durable.
    pub(in crate::volume) async fn commit(self: &Arc<Self>, target: u64) -> Result<()> {
        while self.commit_once(target, Why::Changes).await? == Committed::JournalFull {
            if let Err(error) = self.write_table_if_needed().await
                && !does_without_flash(&self.state.lock(), &error)
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// As [`commit`](Self::commit), but stops where a table is needed first.
    pub(in crate::volume) async fn commit_once(self: &Arc<Self>, target: u64, why: Why) -> Result<Committed> {
        let attempts_before = self.state.lock().journal.attempts;
        loop {
            let listener = self.changed.listen();
            let begin = {
                let mut state = self.state.lock();
                let done = match why {
                    Why::Changes => state.journal.durable >= target,
                    // One that is under way has taken its changes already, perhaps before the table's last part; and one
                    // that had only the disk to flush has not made the table durable.
                    Why::Table => state.journal.flushed > attempts_before,
                };
                if done {
                    return Ok(Committed::Done);
                }
                if let Some((attempt, error)) = &state.journal.failure
                    && *attempt > attempts_before
                    && (why == Why::Table || !does_without_flash(&state, error))
                {
                    return Err(error.clone());
                }
                if needs_failed_flash(&state, why) {
                    return Err(why_unhealthy(&state));
                }
                // One that is under way may yet have the change in it.
                if !state.journal.running {
                    self.check_open(&state)?;
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

    /// Starts a commit in the background, if there is anything to commit and none is under way.
    pub(in crate::volume) fn commit_in_background(self: &Arc<Self>) {
        let begin = self.begin_commit(&mut self.state.lock(), Why::Changes);
        if let Begin::Run(commit) = begin {
            commit.run();
        }
    }

    /// Takes all changes for a commit. The caller runs it after giving the state back.
    fn begin_commit(self: &Arc<Self>, state: &mut State, why: Why) -> Begin {
        if state.journal.running {
            return Begin::Wait;
        }
        if state.health == Health::Closed || needs_failed_flash(state, why) {
            return Begin::Nothing;
        }
        if why == Why::Changes && state.journal.durable == state.changes.number() {
            return Begin::Nothing;
        }
        if state.health == Health::FlashFailed {
            let batch = state.changes.take_disk_written();
            return self.begin_with(state, batch, false);
        }
        let most_blocks = blocks_for(match why {
            Why::Changes => state.changes.units(),
            // Cleaning may have changed more than there was room for. Without this commit there would be none ever after.
            Why::Table => state.changes.exact_units(),
        });
        if !state.journal.has_room_for(most_blocks, why == Why::Table) {
            return Begin::JournalFull;
        }
        let batch = state.changes.take();
        let flush_flash = batch.has_records() || why == Why::Table;
        if let Some(order) = &mut state.order {
            order.enter(state.journal.next_commit, batch.records());
        }
        self.begin_with(state, batch, flush_flash)
    }

    fn begin_with(self: &Arc<Self>, state: &mut State, batch: Batch, flush_flash: bool) -> Begin {
        state.journal.running = true;
        state.journal.is_laying_out = true;
        state.journal.attempts += 1;
        state.journal.taken = batch.number;
        Begin::Run(Box::new(Commit { shared: Arc::clone(self), batch, parts: Vec::new(), flush_flash }))
    }

    /// The commit's blocks, as the parts of the ring that they take; moves the journal on.
    fn lay_out(&self, state: &mut State, batch: &Batch) -> Vec<(u64, IoSlice)> {
        count_records(batch, &mut state.io);
        let chunks = chunks_of(batch.records());
        let mut buffer = IoBuffer::zeroed(chunks.len() * JOURNAL_BLOCK_BYTES);
        let journal = &mut state.journal;
        let first_sequence = journal.next_sequence;
        for (number, units) in chunks.iter().enumerate() {
            let header = BlockHeader {
                sequence: journal.next_sequence,
                commit: journal.next_commit,
                chain: journal.chain,
                ends_commit: number + 1 == chunks.len(),
                confirmed: 0,
            };
            let into = &mut buffer[number * JOURNAL_BLOCK_BYTES..][..JOURNAL_BLOCK_BYTES];
            journal.chain = block::encode(BlockKind::Journal, self.uuid, &header, units, into);
            journal.next_sequence += 1;
        }
        journal.notes.follow(journal.next_commit, journal.chain);
        journal.next_commit += 1;
        state.io.metadata_ssd_writes += chunks.len() as u64;
        let ring = (self.layout.journal_offset(), self.layout.journal_blocks);
        let mut parts = self.ring_parts(ring, first_sequence, &buffer.into());
        parts.reverse();
        parts
    }

    /// Cuts blocks where the ring (its offset and its blocks) ends and where a request would be too long.
    pub(super) fn ring_parts(
        &self,
        (ring_offset, ring_blocks): (u64, u64),
        first_sequence: u64,
        data: &IoSlice,
    ) -> Vec<(u64, IoSlice)> {
        let most = (self.flash.geometry().max_io_bytes as usize / JOURNAL_BLOCK_BYTES).max(1);
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
        parts
    }
}

/// Whether a commit would have to tell a flash that takes no more: of what is newer there than on the disk. What became clean
/// or left it does not miss.
fn needs_failed_flash(state: &State, why: Why) -> bool {
    state.health == Health::FlashFailed && (why == Why::Table || state.changes.needs_flash())
}

/// Whether the flash failed, by `error`, and what is to be committed does not need it. In an ordered volume it may: what was
/// cleaned must be told before anything else is.
fn does_without_flash(state: &State, error: &VolumeError) -> bool {
    let has_failed = error.kind() == VolumeErrorKind::Flash && state.health == Health::FlashFailed;
    has_failed && state.order.is_none() && !state.changes.needs_flash()
}

/// Units that certainly fit into a block: a record of two is not cut, so the block may stay a unit short.
const CERTAIN_UNITS: usize = UNITS_PER_BLOCK - 1;

/// Blocks that so many units take at most.
pub(super) fn blocks_for(units: usize) -> u64 {
    (units.div_ceil(CERTAIN_UNITS) as u64).max(1)
}

/// Units that certainly fit into so many blocks.
pub(super) fn units_in(blocks: u64) -> usize {
    blocks as usize * CERTAIN_UNITS
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

/// The records' units, cut into blocks; a record is never cut.
pub(super) fn chunks_of(records: impl Iterator<Item = Record>) -> Vec<Vec<u8>> {
    let mut chunks = vec![Vec::new()];
    for record in records {
        let last = chunks.last_mut().expect("there is one from the beginning");
        if last.len() + record.units() * UNIT_BYTES > UNITS_PER_BLOCK * UNIT_BYTES {
            chunks.push(Vec::new());
        }
        record.append_to(chunks.last_mut().expect("as above"));
    }
    chunks
}

impl Commit {
    /// The disk first, where a record relies on it; then the journal; then one flush for data and journal alike.
    pub(in crate::volume) fn run(self: Box<Self>) {
        let Some(failed_before) = self.batch.flush_disk else { return self.write_journal() };
        let disk = Arc::clone(&self.shared.disk);
        disk.submit(
            Request::Flush,
            Completion::new(move |outcome| {
                match outcome.map(drop).and_then(|()| self.shared.none_failed_since(failed_before)) {
                    Ok(()) => self.write_journal(),
                    Err(error) => self.fail_disk(error),
                }
            }),
        );
    }

    fn write_journal(mut self: Box<Self>) {
        {
            let mut state = self.shared.state.lock();
            state.changes.disk_flushed();
            if self.flush_flash {
                self.parts = self.shared.lay_out(&mut state, &self.batch);
            }
        }
        self.write_next();
    }

    fn write_next(mut self: Box<Self>) {
        let flash = Arc::clone(&self.shared.flash);
        if self.parts.is_empty() {
            self.end_laying_out();
        }
        match self.parts.pop() {
            Some((offset, data)) => flash.submit(
                Request::Write { offset, data, placement: PlacementHandle::DEFAULT },
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

    /// All blocks are written: what they tell outlives the process, and notes may follow.
    fn end_laying_out(&self) {
        {
            let journal = &mut self.shared.state.lock().journal;
            journal.is_laying_out = false;
            if self.flush_flash {
                journal.notes.commit_written(self.batch.number);
            }
        }
        self.shared.changed.notify(usize::MAX);
    }

    fn succeed(self) {
        let Self { shared, batch, flush_flash, .. } = self;
        {
            let mut state = shared.state.lock();
            let state = &mut *state;
            state.journal.running = false;
            state.journal.committed_ns = shared.timer.monotonic_ns();
            state.journal.durable = batch.number;
            state.io.ssd_flushes += u64::from(flush_flash);
            state.io.disk_flushes += u64::from(batch.flush_disk.is_some());
            if flush_flash {
                state.io.commits += 1;
                state.journal.flushed = state.journal.attempts;
                state.journal.confirmed_commit = state.journal.next_commit - 1;
                state.journal.notes.commit_durable();
            }
            for page in state.changes.committed(batch) {
                state.pages.give_back(page);
            }
        }
        shared.changed.notify(usize::MAX);
    }

    /// What was written to the disk may be lost: whoever waits is told, and the next commit tries again.
    fn fail_disk(mut self, error: IoError) {
        // Once is enough.
        self.batch.flush_disk = Some(self.shared.disk_trouble.flushes_failed());
        let error = self.shared.disk_failed(DiskTask::Flush, error);
        self.fail(|state, batch| {
            state.changes.put_back(batch);
            state.take_back_epoch(state.journal.next_commit);
            state.journal.failure = Some((state.journal.attempts, error));
        });
    }

    /// Nobody knows what a flash that failed a flush has kept. Nothing that follows can be promised any more.
    fn fail_flash(self, context: &str, error: IoError) {
        let now_ns = self.shared.timer.monotonic_ns();
        self.fail(|state, batch| {
            state.changes.put_back_as_told(batch);
            state.fail_flash(VolumeError::flash(context, error), now_ns);
        });
    }

    fn fail(self, put_back: impl FnOnce(&mut State, Batch)) {
        let Self { shared, batch, .. } = self;
        {
            let mut state = shared.state.lock();
            state.journal.running = false;
            state.journal.is_laying_out = false;
            put_back(&mut state, batch);
        }
        shared.changed.notify(usize::MAX);
    }
}
