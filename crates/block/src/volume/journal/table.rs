//! Writing tables: checkpoints of the contents of all pages, which make the earlier journal unnecessary.
//!
//! A table is written in parts while requests continue, each part with the contents at that moment. It may be inconsistent:
//! recovery replays the journal from the table's beginning, and records replace earlier contents. A part may even include
//! uncommitted changes, so a commit must follow the last part before the superblock refers to the table.
//!
//! The blocks of a set are listed in eviction order. That order is a snapshot of slots; their records are added part by
//! part. A slot that was free in the snapshot is covered by the journal.

use std::sync::Arc;

use device::{Completion, ErrorKind, IoBuffer, IoError, Request};

use super::block::{self, BlockHeader, BlockKind, JOURNAL_BLOCK_BYTES, UNITS_PER_BLOCK};
use super::commit::Committer;
use super::commit::{CommitReason, Committed};
use crate::sets::Slot;
use crate::volume::error::{Result, VolumeError, VolumeErrorKind};
use crate::volume::record::{PageContents, Record, UNIT_BYTES};
use crate::volume::state::State;
use crate::volume::superblock::{self, Checkpoint, FORMAT_VERSION, Superblock};
use crate::volume::work::Work;

/// Slots that are processed under one hold of the lock.
const SLOTS_PER_PART: u32 = 4096;

impl Committer {
    /// Writes a table, unless another task did so meanwhile: the journal is less than half full and has space for the pending
    /// changes.
    pub(in crate::volume) async fn write_table_if_needed(self: &Arc<Self>) -> Result<()> {
        let work = Work::new(&self.shared, Some(self.metadata_writer.lock(0..1).await));
        let is_needed = {
            let state = self.state();
            state.journal.is_half_full() || !state.journal.fits_changes()
        };
        if is_needed {
            let superblock = self.shared.identity.superblock();
            self.write_table(&work, superblock).await?;
        }
        Ok(())
    }

    /// Writes a table and a superblock that refers to it. The caller's `work` holds `metadata_writer`.
    pub(in crate::volume) async fn write_table(
        self: &Arc<Self>,
        work: &Arc<Work>,
        superblock: Superblock,
    ) -> Result<()> {
        let _writing = TableInWriting(self);
        self.write_table_parts(work, superblock).await
    }

    async fn write_table_parts(self: &Arc<Self>, work: &Arc<Work>, mut superblock: Superblock) -> Result<()> {
        let old = superblock.checkpoint;
        let mut checkpoint = {
            let mut state = self.state();
            state.journal.is_writing_table = true;
            Checkpoint {
                table: 1 - old.table,
                number: old.number + 1,
                table_blocks: 0,
                journal_sequence: state.journal.next_sequence,
                journal_chain: state.journal.chain,
                next_commit: state.journal.next_commit,
                confirmed_commit: 0,
            }
        };
        let mut writer = TableWriter::new(self, work, checkpoint);
        self.write_records(&mut writer, superblock.format).await?;
        (checkpoint.table_blocks, _) = writer.finish().await?;
        if self.commit_once(0, CommitReason::Table).await? == Committed::JournalFull {
            // A quarter of the ring is reserved for this commit, which never needs more.
            return Err(VolumeError::new(
                VolumeErrorKind::Damaged,
                "the journal has no space for the commit after a table",
            ));
        }
        checkpoint.confirmed_commit = self.state().journal.confirmed_commit;
        superblock.checkpoint = checkpoint;
        self.write_superblock(work, superblock).await?;
        let mut state = self.state();
        state.io.checkpoints += 1;
        state.io.metadata_ssd_writes += checkpoint.table_blocks;
        Ok(())
    }

    /// Writes a table of the recovered state, before the first request. It is consistent and complete, so no commit follows: the
    /// journal, which may be full, continues after it. It includes the records of the intent log and starts a new chain, so these are not
    /// replayed again.
    pub(in crate::volume) async fn write_recovered_table(self: &Arc<Self>, work: &Arc<Work>) -> Result<()> {
        let mut superblock = self.shared.identity.superblock();
        let mut checkpoint = {
            let journal = &self.state().journal;
            Checkpoint {
                table: 1 - superblock.checkpoint.table,
                number: superblock.checkpoint.number + 1,
                table_blocks: 0,
                journal_sequence: journal.next_sequence,
                journal_chain: 0,
                next_commit: journal.next_commit + 1,
                confirmed_commit: journal.next_commit,
            }
        };
        let mut writer = TableWriter::new(self, work, checkpoint);
        self.write_records(&mut writer, superblock.format).await?;
        (checkpoint.table_blocks, checkpoint.journal_chain) = writer.finish().await?;
        self.shared.flash.start(Request::Flush).await.map_err(|error| self.table_failed(error))?;
        superblock.checkpoint = checkpoint;
        self.write_superblock(work, superblock).await?;
        self.initialize_foreign_blocks().await?;
        let mut state = self.state();
        let state = &mut *state;
        let batch = state.journal.changes.take(true);
        state.journal.changes.disk_flushed();
        state.journal.durable = batch.number;
        state.journal.continue_from(&checkpoint);
        for page in state.journal.changes.committed(batch) {
            state.pages.free(page);
        }
        state.io.checkpoints += 1;
        state.io.metadata_ssd_writes += checkpoint.table_blocks;
        Ok(())
    }

    /// Initializes damaged blocks of journal and intent log again, so that the next recovery does not report them.
    async fn initialize_foreign_blocks(&self) -> Result<()> {
        let foreign = std::mem::take(&mut self.state().journal.foreign_blocks);
        let empty = block::empty(self.shared.identity.uuid());
        for offset in foreign {
            let written = self.shared.flash.write(offset, IoBuffer::copy_of(&empty)).await;
            written.map_err(|error| VolumeError::flash("initializing the journal", error))?;
        }
        Ok(())
    }

    async fn write_records(&self, writer: &mut TableWriter<'_>, format: u32) -> Result<()> {
        let (sets, sets_per_part) =
            (self.shared.layout.sets, (SLOTS_PER_PART / self.shared.layout.ways).max(1));
        for first in (0..sets).step_by(sets_per_part as usize) {
            let slots = slots_in_order(&self.state(), first..sets.min(first + sets_per_part));
            for part in slots.chunks(SLOTS_PER_PART as usize) {
                let records = records_of(&self.state(), part, format);
                for record in records {
                    writer.add(&record).await?;
                }
            }
        }
        let older = older_versions(&self.state());
        for record in older {
            writer.add(&record).await?;
        }
        Ok(())
    }

    /// Writes the superblock. The caller's `work` holds `metadata_writer` until the end, even if the caller's future is dropped:
    /// until then it is unknown which superblock, and which table, is in force.
    pub(in crate::volume) async fn write_superblock(
        self: &Arc<Self>,
        work: &Arc<Work>,
        mut superblock: Superblock,
    ) -> Result<()> {
        self.shared.identity.number(&mut superblock);
        let steps: Vec<_> = superblock::steps(&*self.shared.flash, &superblock).collect();
        let (completion, written) = Completion::pair();
        let (committer, work, steps) = (Arc::clone(self), Arc::clone(work), steps.into_iter());
        SuperblockWrite { committer, _work: work, steps, superblock, completion }.run();
        written.await.map(drop).map_err(|_| self.state().health.error())
    }

    /// Writes a table in the newest format, unless the volume has it.
    pub(in crate::volume) async fn upgrade(self: &Arc<Self>) -> Result<u32> {
        let work = Work::new(&self.shared, Some(self.metadata_writer.lock(0..1).await));
        self.state().health.check_open()?;
        let superblock = self.shared.identity.superblock();
        let old = superblock.format;
        if old < FORMAT_VERSION {
            self.write_table(&work, Superblock { format: FORMAT_VERSION, ..superblock }).await?;
        }
        Ok(old)
    }
}

/// A table being written, until dropped.
struct TableInWriting<'a>(&'a Committer);

impl Drop for TableInWriting<'_> {
    fn drop(&mut self) {
        self.0.state().journal.is_writing_table = false;
    }
}

/// A superblock being written. Each completion submits the next step, as for a commit.
struct SuperblockWrite {
    committer: Arc<Committer>,
    _work: Arc<Work>,
    steps: std::vec::IntoIter<Request>,
    superblock: Superblock,
    completion: Completion,
}

impl SuperblockWrite {
    fn run(mut self) {
        let flash = Arc::clone(&self.committer.shared.flash);
        match self.steps.next() {
            Some(step) => flash.submit(
                step,
                Completion::new(move |outcome| match outcome {
                    Ok(_) => self.run(),
                    Err(error) => self.fail(error),
                }),
            ),
            None => self.succeed(),
        }
    }

    fn succeed(self) {
        let Self { committer, _work: work, superblock, completion, .. } = self;
        {
            let mut state = committer.state();
            // Commits may use the new format only now; until here the previous superblock may be in force.
            state.journal.format = superblock.format;
            state.journal.oldest_sequence = superblock.checkpoint.journal_sequence;
        }
        committer.shared.identity.install(superblock);
        committer.shared.changed.notify(usize::MAX);
        drop(work);
        completion.complete(Ok(IoBuffer::empty()));
    }

    fn fail(self, error: IoError) {
        let words = error.to_string();
        let error = VolumeError::flash("writing a superblock", error);
        self.committer.state().fail_flash(error, self.committer.now_ns());
        self.completion.complete(Err(IoError::new(ErrorKind::Medium, words)));
    }
}

/// Used slots, set by set, in eviction order.
fn slots_in_order(state: &State, sets: std::ops::Range<u32>) -> Vec<Slot> {
    sets.flat_map(|set| state.sets.oldest_first(set)).collect()
}

fn records_of(state: &State, slots: &[Slot], format: u32) -> Vec<Record> {
    let record = |&slot: &Slot| {
        let (copy, word) = (state.map.copy(slot)?, state.sets.word(slot));
        let held = PageContents {
            block: word.block()?,
            dirty: word.is_dirty(),
            partial: copy.partial,
            crc: copy.crc.unwrap_or(0),
            fresh: false,
            epoch: state.epochs.as_ref().map_or(0, |epochs| epochs.epoch_of(copy.page)),
            policy_state: state.recorded_policy_state(slot, format),
        };
        Some(Record { page: copy.page, held: Some(held) })
    };
    slots.iter().filter_map(record).collect()
}

/// Records of older versions of blocks in an ordered volume.
fn older_versions(state: &State) -> Vec<Record> {
    let Some(epochs) = &state.epochs else { return Vec::new() };
    epochs
        .versions()
        .filter(|(_, version)| !state.is_newest(version))
        .map(|(epoch, version)| version.record(epoch))
        .collect()
}

/// Writes the blocks of a table, many per request.
struct TableWriter<'a> {
    committer: &'a Arc<Committer>,
    work: &'a Arc<Work>,
    checkpoint: Checkpoint,
    chain: u32,
    blocks: u64,
    /// Units of the block that is being filled.
    units: Vec<u8>,
    /// Complete blocks that are not written yet.
    waiting: Vec<u8>,
}

/// Bytes per request.
const TABLE_WRITE_BYTES: usize = 64 * JOURNAL_BLOCK_BYTES;

impl<'a> TableWriter<'a> {
    fn new(committer: &'a Arc<Committer>, work: &'a Arc<Work>, checkpoint: Checkpoint) -> Self {
        Self { committer, work, checkpoint, chain: 0, blocks: 0, units: Vec::new(), waiting: Vec::new() }
    }

    async fn add(&mut self, record: &Record) -> Result<()> {
        if self.units.len() + record.units() * UNIT_BYTES > UNITS_PER_BLOCK * UNIT_BYTES {
            self.end_block(false).await?;
        }
        record.append_to(&mut self.units);
        Ok(())
    }

    /// Writes the rest. Returns the number of blocks and the checksum of the last one.
    async fn finish(mut self) -> Result<(u64, u32)> {
        self.end_block(true).await?;
        self.write_waiting().await?;
        Ok((self.blocks, self.chain))
    }

    async fn end_block(&mut self, is_last: bool) -> Result<()> {
        if self.blocks == self.committer.shared.layout.table_blocks {
            return Err(VolumeError::new(
                VolumeErrorKind::Damaged,
                "there are more records than fit into a table",
            ));
        }
        let header = BlockHeader {
            sequence: self.blocks,
            commit: self.checkpoint.number,
            chain: self.chain,
            ends_commit: is_last,
            ..BlockHeader::default()
        };
        let start = self.waiting.len();
        self.waiting.resize(start + JOURNAL_BLOCK_BYTES, 0);
        let into = &mut self.waiting[start..];
        self.chain = block::encode(
            BlockKind::Table,
            self.committer.shared.identity.uuid(),
            &header,
            &self.units,
            into,
        );
        self.units.clear();
        self.blocks += 1;
        if self.waiting.len()
            >= TABLE_WRITE_BYTES.min(self.committer.shared.flash.geometry().max_io_bytes as usize)
        {
            self.write_waiting().await?;
        }
        Ok(())
    }

    async fn write_waiting(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let first = self.blocks - (self.waiting.len() / JOURNAL_BLOCK_BYTES) as u64;
        let offset = self.committer.shared.layout.table_offset(self.checkpoint.table)
            + first * JOURNAL_BLOCK_BYTES as u64;
        let data = IoBuffer::copy_of(&self.waiting);
        self.waiting.clear();
        let request = Request::write(offset, data);
        let written = self.work.start(&*self.committer.shared.flash, request).await;
        written.map(|_| ()).map_err(|error| self.committer.table_failed(error))
    }
}

impl Committer {
    fn table_failed(&self, error: device::IoError) -> VolumeError {
        let error = VolumeError::flash("writing a table", error);
        self.state().fail_flash(error.clone(), self.now_ns());
        error
    }
}
