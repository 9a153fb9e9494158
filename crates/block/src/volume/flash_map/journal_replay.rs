//! Reading the table, and replaying the journal's commits.

use std::ops::Range;

use device::checksum::crc32c;
use device::{Device, IoBuffer};

use super::log_replay::written_pages;
use super::{FlashMap, READ_BYTES, Recovery, damaged};
use crate::volume::error::{Result, VolumeError};
use crate::volume::journal::block::{self, BlockHeader, BlockKind, DamagedHeader, JOURNAL_BLOCK_BYTES};
use crate::volume::record::Record;
use crate::volume::superblock::Superblock;

/// A commit that was read.
#[derive(Default)]
struct ReadCommit {
    records: Vec<Record>,
    number: u64,
    is_whole: bool,
    /// Position in the journal after the commit: the next block's sequence number, and the checksum of the commit's last one.
    end: (u64, u32),
}

/// A page with a wrong checksum, or an unreadable one.
struct DamagedPage {
    page: u32,
    /// The expected checksum.
    crc: u32,
    dirty: bool,
    /// The error, if the read failed.
    error: Option<VolumeError>,
}

impl FlashMap {
    pub(in crate::volume) async fn read(
        flash: &dyn Device,
        superblock: &Superblock,
    ) -> Result<(Self, Recovery)> {
        let mut found = Self::empty(superblock);
        let mut recovery = Recovery { was_clean: superblock.clean, ..Recovery::default() };
        found.read_table(flash, superblock).await?;
        found.read_journal(flash, superblock, &mut recovery).await?;
        found.journal.end_replay();
        if !superblock.clean {
            found.check_end(flash, superblock.uuid).await?;
            // A commit of the next number may have been in flight and be lost, with intent log entries after it left over. The
            // commit that ends recovery may have the same contents, so it gets another number.
            found.journal.skip_commit();
            found.replay_intent_log(flash, superblock.uuid, &mut recovery).await?;
        }
        Ok((found, recovery))
    }

    async fn read_table(&mut self, flash: &dyn Device, superblock: &Superblock) -> Result<()> {
        let checkpoint = &superblock.checkpoint;
        let offset = self.layout.table_offset(checkpoint.table);
        let (mut chain, mut read) = (0, 0);
        while read < checkpoint.table_blocks {
            let count = (checkpoint.table_blocks - read).min((READ_BYTES / JOURNAL_BLOCK_BYTES) as u64);
            let bytes = read_blocks(flash, offset + read * JOURNAL_BLOCK_BYTES as u64, count).await?;
            for bytes in bytes.chunks_exact(JOURNAL_BLOCK_BYTES) {
                let expected = BlockHeader {
                    sequence: read,
                    commit: checkpoint.number,
                    chain,
                    ends_commit: read + 1 == checkpoint.table_blocks,
                    ..BlockHeader::default()
                };
                let decoded = block::decode(BlockKind::Table, superblock.uuid, bytes);
                let Some((_, crc, units)) = decoded.filter(|(header, ..)| *header == expected) else {
                    return Err(damaged(&format!("block {read} of table {} is damaged", checkpoint.table)));
                };
                for record in records_in(units)? {
                    self.apply(&record, 0)?;
                }
                (chain, read) = (crc, read + 1);
            }
        }
        Ok(())
    }

    /// Applies all complete commits.
    async fn read_journal(
        &mut self,
        flash: &dyn Device,
        superblock: &Superblock,
        recovery: &mut Recovery,
    ) -> Result<()> {
        let mut last: Option<ReadCommit> = None;
        loop {
            let from = last.as_ref().map_or(self.journal.end(), |last| last.end);
            let next = self.read_commit(flash, superblock.uuid, from, recovery).await?;
            // Any block of the next commit was written after the flush of this one.
            let is_confirmed = next.is_some();
            if let Some(commit) = last.take() {
                let damaged = match is_confirmed || commit.number <= superblock.checkpoint.confirmed_commit {
                    true => Vec::new(),
                    false => self.damaged_pages(flash, &commit).await?,
                };
                if !damaged.is_empty() && self.confirmed_by_log(flash, superblock.uuid).await? < commit.number
                {
                    // An unreadable page may hold acknowledged data.
                    if let Some(error) = damaged.into_iter().find_map(|page| page.error) {
                        return Err(error);
                    }
                    recovery.rolled_back = true;
                    self.dropped.extend(written_pages(&commit.records));
                    return Ok(());
                }
                self.take_commit(&commit, recovery)?;
                // Damaged clean blocks are still on the disk.
                recovery.damaged_blocks = damaged.iter().filter(|page| page.dirty).count() as u64;
                if !superblock.checksums {
                    self.damaged.extend(damaged.iter().map(|page| (page.page, page.crc)));
                }
            }
            match next {
                Some(commit) if commit.is_whole => last = Some(commit),
                incomplete => {
                    let (sequence, chain) = incomplete.map_or(self.journal.end(), |commit| commit.end);
                    recovery.lost_last_entry =
                        self.is_damaged(flash, superblock.uuid, sequence, chain).await?;
                    recovery.rolled_back |= recovery.lost_last_entry;
                    return Ok(());
                }
            }
        }
    }

    /// Whether the block of the next commit with this sequence number and predecessor was written, and is torn or damaged.
    async fn is_damaged(&self, flash: &dyn Device, uuid: u128, sequence: u64, chain: u32) -> Result<bool> {
        let offset = self.layout.journal_offset() + self.journal.place(sequence);
        let bytes = read_blocks(flash, offset, 1).await?;
        let header = DamagedHeader::of(BlockKind::Journal, uuid, &bytes);
        let is_next = |header: DamagedHeader| header.continues(sequence, self.journal.next_commit(), chain);
        Ok(header.is_some_and(is_next) || self.is_foreign(BlockKind::Journal, uuid, &bytes))
    }

    /// Checks that the journal ends where a power cut may have ended it, and not at a block that was lost later. A commit begins after
    /// the flush of the previous one, so a block two or more commits after the end proves that the block at the end had been flushed.
    /// The very next commit proves nothing: it may be that of an interrupted recovery, which has another number.
    async fn check_end(&mut self, flash: &dyn Device, uuid: u128) -> Result<()> {
        let blocks = self.journal.blocks();
        let Range { start: mut sequence, end } = self.journal.beyond_end();
        while sequence < end {
            let to_wrap = blocks - sequence % blocks;
            let count = (end - sequence).min(to_wrap).min((READ_BYTES / JOURNAL_BLOCK_BYTES) as u64);
            let offset = self.layout.journal_offset() + self.journal.place(sequence);
            if let Ok(bytes) = read_blocks(flash, offset, count).await {
                self.check_beyond_end(uuid, sequence, &bytes)?;
            } else {
                // Opening does not need these blocks, so an unreadable one is ignored.
                for i in 0..count {
                    let offset = offset + i * JOURNAL_BLOCK_BYTES as u64;
                    if let Ok(bytes) = read_blocks(flash, offset, 1).await {
                        self.check_beyond_end(uuid, sequence + i, &bytes)?;
                    }
                }
            }
            sequence += count;
        }
        Ok(())
    }

    /// Fails if one of the blocks from `sequence` on proves that the journal's end was lost.
    fn check_beyond_end(&mut self, uuid: u128, sequence: u64, bytes: &[u8]) -> Result<()> {
        for (sequence, bytes) in (sequence..).zip(bytes.chunks_exact(JOURNAL_BLOCK_BYTES)) {
            if self.is_foreign(BlockKind::Journal, uuid, bytes) {
                let offset = self.layout.journal_offset() + self.journal.place(sequence);
                self.foreign_blocks.iter_mut().for_each(|found| found.push(offset));
            }
            let journal = &self.journal;
            let decoded = block::decode(BlockKind::Journal, uuid, bytes);
            let is_later = |header: &BlockHeader| {
                header.sequence == sequence && header.commit > journal.next_commit() + 1
            };
            if decoded.is_some_and(|(header, ..)| is_later(&header)) {
                let (lost, _) = journal.end();
                return Err(damaged(&format!(
                    "block {lost} of the journal is damaged or missing, but later blocks exist: the writes that they recorded are lost. \
                     Copy the flash, restore the disk (in write-back mode it lacks these writes), and create the cache \
                     again with `block create --force`"
                )));
            }
        }
        Ok(())
    }

    /// Reads the commit at the given position, complete or not; `None` if there is no block of it.
    async fn read_commit(
        &self,
        flash: &dyn Device,
        uuid: u128,
        (mut sequence, mut chain): (u64, u32),
        recovery: &mut Recovery,
    ) -> Result<Option<ReadCommit>> {
        let mut commit = ReadCommit { number: self.journal.next_commit(), ..ReadCommit::default() };
        let mut any = false;
        while sequence < self.journal.beyond_end().end {
            let offset = self.layout.journal_offset() + self.journal.place(sequence);
            let bytes = read_blocks(flash, offset, 1).await?;
            let decoded = block::decode(BlockKind::Journal, uuid, &bytes);
            let Some((header, crc, units)) = decoded.filter(|(header, ..)| {
                header.sequence == sequence
                    && header.chain == chain
                    && (!any || header.commit == commit.number)
            }) else {
                break;
            };
            any = true;
            recovery.journal_blocks += 1;
            commit.number = header.commit;
            commit.records.extend(records_in(units)?);
            (sequence, chain) = (sequence + 1, crc);
            commit.end = (sequence, chain);
            if header.ends_commit {
                commit.is_whole = true;
                break;
            }
        }
        Ok(any.then_some(commit))
    }

    /// Pages of the commit with wrong checksums, and unreadable ones.
    async fn damaged_pages(&self, flash: &dyn Device, commit: &ReadCommit) -> Result<Vec<DamagedPage>> {
        let mut damaged = Vec::new();
        for record in &commit.records {
            let Some(held) = record.held.filter(|held| held.fresh) else { continue };
            self.check_record(record)?;
            let error = match self.has_checksum(flash, record.page, held.crc).await {
                Ok(true) => continue,
                Ok(false) => None,
                Err(error) => Some(error),
            };
            damaged.push(DamagedPage { page: record.page, crc: held.crc, dirty: held.dirty, error });
        }
        Ok(damaged)
    }

    pub(super) async fn has_checksum(&self, flash: &dyn Device, page: u32, crc: u32) -> Result<bool> {
        let read = flash.read(self.layout.page_offset(page), self.layout.block_bytes as usize).await;
        let page = read.map_err(|error| VolumeError::flash("reading the flash", error))?;
        Ok(crc32c(&page) == crc)
    }

    fn take_commit(&mut self, commit: &ReadCommit, recovery: &mut Recovery) -> Result<()> {
        for record in &commit.records {
            self.apply(record, commit.number)?;
        }
        recovery.commits += 1;
        self.journal.replayed(commit.number, commit.end);
        Ok(())
    }
}

pub(super) async fn read_blocks(flash: &dyn Device, offset: u64, count: u64) -> Result<IoBuffer> {
    let read = flash.read(offset, count as usize * JOURNAL_BLOCK_BYTES).await;
    read.map_err(|error| VolumeError::flash("reading tables and journal", error))
}

pub(super) fn records_in(mut units: &[u8]) -> Result<Vec<Record>> {
    let mut records = Vec::with_capacity(units.len() / 16);
    while !units.is_empty() {
        let record = Record::take_from(&mut units);
        records.push(record.ok_or_else(|| damaged("an intact block holds an invalid record"))?);
    }
    Ok(records)
}
