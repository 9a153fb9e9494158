//! What notes tell after a crash: those that follow the last commit, in order, as many as count.
//!
//! The ring is read whole, and of its blocks those are taken that say they follow that commit. The first of them is chained to
//! the commit's last block, each other to the one before it. A checksum alone does not name a block, for in a ring full of
//! them two may be equal: the chain is followed by sequence, and checked.

use std::collections::{BTreeMap, HashMap};

use device::Device;

use super::error::Result;
use super::found::Found;
use super::journal::block::{self, BlockKind, JOURNAL_BLOCK_BYTES};
use super::record::Record;
use super::recovery::{READ_BYTES, Recovery, read_blocks, records_in};

/// A block of notes that says that it follows the last commit.
struct NoteBlock {
    /// Checksum of the block before.
    chain: u32,
    crc: u32,
    ends_note: bool,
    records: Vec<Record>,
}

impl Found {
    /// Applies the notes that follow the last commit, as many as count.
    pub(super) async fn read_notes(
        &mut self,
        flash: &dyn Device,
        uuid: u128,
        recovery: &mut Recovery,
    ) -> Result<()> {
        let notes = self.chained_notes(flash, uuid).await?;
        let count = self.notes_that_count(flash, &notes).await?;
        let commit = self.journal.next_commit;
        for record in notes[..count].iter().flatten() {
            self.apply(record, commit)?;
            self.noted.insert(record.page, *record);
        }
        recovery.notes = count as u64;
        recovery.rolled_back |= count < notes.len();
        Ok(())
    }

    /// The notes after the last commit, in order, each as its records.
    async fn chained_notes(&self, flash: &dyn Device, uuid: u128) -> Result<Vec<Vec<Record>>> {
        let (_, mut chain) = self.journal.notes.start();
        let mut blocks = self.note_blocks(flash, uuid).await?;
        let first = blocks.iter().find(|(_, block)| block.chain == chain);
        let Some(first) = first.map(|(&sequence, _)| sequence) else { return Ok(Vec::new()) };
        let (mut notes, mut open) = (Vec::new(), Vec::new());
        for (expected, (sequence, block)) in (first..).zip(blocks.split_off(&first)) {
            if sequence != expected || block.chain != chain {
                break;
            }
            chain = block.crc;
            open.extend(block.records);
            if block.ends_note {
                notes.push(std::mem::take(&mut open));
            }
        }
        Ok(notes)
    }

    /// The ring's blocks that say that they follow the last commit, by sequence.
    async fn note_blocks(&self, flash: &dyn Device, uuid: u128) -> Result<BTreeMap<u64, NoteBlock>> {
        let (base, _) = self.journal.notes.start();
        let mut blocks = BTreeMap::new();
        let mut at = 0;
        while at < self.layout.notes_blocks() {
            let count = (self.layout.notes_blocks() - at).min((READ_BYTES / JOURNAL_BLOCK_BYTES) as u64);
            let offset = self.layout.notes_offset() + at * JOURNAL_BLOCK_BYTES as u64;
            let bytes = read_blocks(flash, offset, count).await?;
            for bytes in bytes.chunks_exact(JOURNAL_BLOCK_BYTES) {
                let decoded = block::decode(BlockKind::Note, uuid, bytes);
                let Some((header, crc, units)) = decoded.filter(|(header, ..)| header.commit == base) else {
                    continue;
                };
                let (chain, ends_note, records) = (header.chain, header.ends_commit, records_in(units)?);
                blocks.insert(header.sequence, NoteBlock { chain, crc, ends_note, records });
            }
            at += count;
        }
        Ok(blocks)
    }

    /// The largest number of notes, from the first on, after which every page that they say was written is as it was
    /// written. A page that a later note gives up may have been written over since.
    async fn notes_that_count(&self, flash: &dyn Device, notes: &[Vec<Record>]) -> Result<usize> {
        // Which pages, of which content, are held after which numbers of notes.
        let mut spans = Vec::new();
        let mut open: HashMap<u32, (u32, usize)> = HashMap::new();
        for (before, records) in notes.iter().enumerate() {
            for record in records {
                self.check_record(record)?;
                if let Some((crc, from)) = open.remove(&record.page) {
                    spans.push((record.page, crc, from..before + 1));
                }
                if let Some(held) = record.held.filter(|held| held.fresh) {
                    open.insert(record.page, (held.crc, before + 1));
                }
            }
        }
        spans.extend(open.into_iter().map(|(page, (crc, from))| (page, crc, from..notes.len() + 1)));
        let mut counts = vec![true; notes.len() + 1];
        for (page, crc, held) in spans {
            if !self.is_as_written(flash, page, crc).await? {
                counts[held].fill(false);
            }
        }
        Ok(counts.iter().rposition(|counts| *counts).unwrap_or(0))
    }
}
