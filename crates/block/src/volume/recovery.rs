//! Opening a volume, after a close or a crash.
//!
//! The table is read, and the journal's commits are applied to it. A power cut may have come after all blocks of the last
//! commit were on flash and before all of its pages were. That commit is valid only if the checksums of its pages match (rule 2 in
//! the [parent module](super)). Then the intent log's entries after the last commit are applied. Those that a later entry records as
//! flushed count in any case. Of the others, the longest prefix counts after which every page has its recorded contents: all entries
//! after a kill of the process; after a power cut at least those of acknowledged flushes. Finally the result is flushed, and a commit
//! repeats it, so that the next recovery reaches the same result. If the journal has no space, a table is written instead without a
//! commit, so repeated interrupted recoveries use no journal space.
//!
//! The policy state is that of the table, followed by the blocks of the journal and the intent log in their order. After a close it is
//! complete. After a crash the hits since the table are lost, except the hit counts that were recorded when blocks were written.

use std::ops::Range;
use std::sync::Arc;

use device::timer::Timer;
use device::{Device, IoBuffer, Request};

use super::error::{Result, VolumeError, VolumeErrorKind};
use super::flash_map::{FlashMap, damaged};
use super::identity;
use super::inner::Inner;
use super::journal::block::{self, BlockHeader, BlockKind, DamagedHeader, JOURNAL_BLOCK_BYTES};
use super::journal::commit::{CommitReason, Committed};
use super::log_replay::written_pages;
use super::record::{Record, crc32c};
use super::samples::check_samples;
use super::shared::Shared;
use super::superblock::{self, Superblock};
use super::work::Work;
use super::{OsIdentity, Pairing, Volume};

/// The result of opening a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The volume was closed; there was nothing to recover.
    pub was_clean: bool,
    /// Cached blocks.
    pub blocks: u64,
    /// Cached blocks that are dirty.
    pub dirty_blocks: u64,
    /// Journal blocks that were read.
    pub journal_blocks: u64,
    /// Commits that were applied.
    pub commits: u64,
    /// Intent log entries that were applied: writes since the last commit.
    pub log_entries: u64,
    /// The last commit, or entries of the intent log after it, were dropped because their pages have other checksums. A power cut
    /// before the flush completed causes this, and then no flush was acknowledged. Otherwise the flash lost data.
    pub rolled_back: bool,
    /// Blocks written by clients that were dropped with that commit or these entries.
    pub rolled_back_blocks: u64,
    /// The last commit or intent log entry was dropped because one of its blocks is torn, damaged or replaced. The number of writes that it
    /// recorded is unknown. The causes are those of `rolled_back`, which is set too.
    pub lost_last_entry: bool,
    /// Blocks of the last commit, and of flushed entries after it, that the flash lost although the flush was acknowledged. All other
    /// blocks are valid. Reads of a damaged block fail until a client writes it.
    pub damaged_blocks: u64,
    /// Clean blocks that were dropped because the disk may be newer: the mode writes to the disk directly, or a disk that
    /// does not match was accepted.
    pub dropped_blocks: u64,
    /// Duration of opening, including all I/O.
    pub elapsed_ns: u64,
    /// A disk that does not match was accepted.
    pub was_forced: bool,
}

/// Bytes per read during recovery.
pub(super) const READ_BYTES: usize = 256 << 10;

impl Volume {
    /// Opens a volume. `timer` is its clock.
    ///
    /// # Errors
    /// [`VolumeErrorKind::Foreign`], [`VolumeErrorKind::NewerFormat`] and [`VolumeErrorKind::Damaged`] for the contents of the flash,
    /// [`VolumeErrorKind::WrongDisk`], and the devices' failures.
    pub async fn open(
        flash: Arc<dyn Device>,
        disk: Arc<dyn Device>,
        timer: Arc<dyn Timer>,
    ) -> Result<(Self, Recovery)> {
        Self::open_as(flash, disk, timer, Pairing::default()).await
    }

    /// Reads the state on `flash` without its disk: the superblock, and the block counts that [`open`](Self::open) would report.
    /// Writes nothing. The volume must not be open.
    ///
    /// # Errors
    /// As [`open`](Self::open), except those of the disk.
    pub async fn survey(flash: &Arc<dyn Device>) -> Result<(Superblock, Recovery)> {
        let superblock = superblock::read(&**flash).await?;
        check_flash(&**flash, &superblock)?;
        let (found, mut recovery) = FlashMap::read(&**flash, &superblock).await?;
        found.into_state(&superblock, &mut recovery, KeptBlocks::All)?;
        Ok((superblock, recovery))
    }

    /// As [`open`](Self::open), given the operating system's identity of the disk, on which the volume sets its mark. `is_forced` accepts a
    /// disk that does not match.
    ///
    /// # Errors
    /// As [`open`](Self::open). A disk of another size is refused even if forced.
    pub async fn open_as(
        flash: Arc<dyn Device>,
        disk: Arc<dyn Device>,
        timer: Arc<dyn Timer>,
        pairing: Pairing,
    ) -> Result<(Self, Recovery)> {
        let begun_ns = timer.monotonic_ns();
        let Pairing { os_identity, is_forced } = pairing;
        let again = (Arc::clone(&flash), Arc::clone(&disk), Arc::clone(&timer));
        let kept = if is_forced { os_identity.duplicate() } else { OsIdentity::default() };
        let loaded = match sampled(flash, disk, timer, os_identity).await {
            Err(error) if is_forced && error.kind() == VolumeErrorKind::WrongDisk => {
                let (flash, disk, timer) = again;
                let superblock = superblock::read(&*flash).await?;
                load(flash, disk, timer, kept, superblock, KeptBlocks::DirtyOnly).await
            }
            loaded => loaded,
        };
        let (inner, mut recovery, dropped) = loaded?;
        let shared = &inner.shared;
        let gate_ms = shared.identity.superblock().tuning.latency_gate_ms;
        inner.cleaner.set_latency_gate(gate_ms);
        shared.identity.claim_disk(recovery.was_clean);
        make_durable(&inner, &recovery, &dropped).await?;
        *shared.state.lock().sets.counters_mut() = crate::sets::Counters::default();
        recovery.elapsed_ns = shared.timer.monotonic_ns().saturating_sub(begun_ns);
        Ok((Self { inner, may_cache: true }, recovery))
    }
}

/// Which recovered blocks are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeptBlocks {
    /// All valid blocks.
    All,
    /// Only dirty blocks: clean ones may differ from this disk.
    DirtyOnly,
}

/// A recovered volume before any write, and the pages of dropped blocks.
pub(super) type Loaded = (Arc<Inner>, Recovery, Vec<u32>);

/// Loads a volume whose disk matches, apart from the comparison of blocks.
pub(super) async fn verified(
    flash: Arc<dyn Device>,
    disk: Arc<dyn Device>,
    timer: Arc<dyn Timer>,
    os_identity: OsIdentity,
) -> Result<Loaded> {
    let superblock = superblock::read(&*flash).await?;
    check_flash(&*flash, &superblock)?;
    identity::check_disk(&*disk, &superblock, &os_identity).await?;
    load(flash, disk, timer, os_identity, superblock, KeptBlocks::All).await
}

/// As [`verified`], and compares some clean blocks with the disk.
async fn sampled(
    flash: Arc<dyn Device>,
    disk: Arc<dyn Device>,
    timer: Arc<dyn Timer>,
    os_identity: OsIdentity,
) -> Result<Loaded> {
    let loaded = verified(flash, disk, timer, os_identity).await?;
    // Damaged pages are counted when a client reads them.
    let _bad = check_samples(&loaded.0.shared).await?;
    Ok(loaded)
}

pub(super) async fn load(
    flash: Arc<dyn Device>,
    disk: Arc<dyn Device>,
    timer: Arc<dyn Timer>,
    os_identity: OsIdentity,
    mut superblock: Superblock,
    kept: KeptBlocks,
) -> Result<Loaded> {
    identity::check_size(&*disk, &superblock.disk)?;
    if kept == KeptBlocks::DirtyOnly {
        // Treated as a crash: clean blocks are dropped, and the recorded state of the disk is void.
        superblock.clean = false;
        superblock.disk.is_current = false;
    }
    let (found, mut recovery) = FlashMap::read(&*flash, &superblock).await?;
    let (state, dropped) = found.into_state(&superblock, &mut recovery, kept)?;
    recovery.was_forced = kept == KeptBlocks::DirtyOnly;
    let shared = Shared::new(flash, disk, timer, os_identity, superblock, state);
    Ok((Inner::new(shared), recovery, dropped))
}

pub(super) fn check_flash(flash: &dyn Device, superblock: &Superblock) -> Result<()> {
    let has = flash.geometry().capacity_bytes;
    if !superblock.layout.is_possible_on(has) {
        let why =
            format!("the recorded layout is impossible on {has} bytes of flash: {:?}", superblock.layout);
        return Err(VolumeError::new(VolumeErrorKind::Damaged, why));
    }
    let needs = superblock.layout.end();
    if has < needs {
        let why = format!("the flash has {has} bytes; the cache on it needs {needs}");
        return Err(VolumeError::new(VolumeErrorKind::Damaged, why));
    }
    Ok(())
}

/// Makes the recovered state durable and marks the volume as open (rule 6).
async fn make_durable(inner: &Inner, recovery: &Recovery, dropped: &[u32]) -> Result<()> {
    let Inner { shared, committer, .. } = inner;
    let work = Work::new(shared, Some(committer.lock_metadata().await));
    let flushed = shared.flash.start(Request::Flush).await;
    flushed.map_err(|error| VolumeError::flash("flushing the recovered state", error))?;
    if recovery.was_clean {
        let open = Superblock { clean: false, ..shared.identity.superblock() };
        committer.write_superblock(&work, open).await?;
        return Ok(());
    }
    let needs_table = {
        let state = shared.state.lock();
        recovery.was_forced
            || !dropped.is_empty()
            // A commit would make the damaged one appear whole.
            || state.map.has_damaged()
            || state.journal.has_foreign_blocks()
            || recovery.damaged_blocks > 0
            || !state.journal.fits_changes()
    };
    if needs_table {
        committer.write_recovered_table(&work).await?;
    } else if superblock::copies(&*shared.flash).await != superblock::Copies::Agree {
        // Otherwise damage to the newer copy would bring back a superblock whose journal is being overwritten.
        let superblock = shared.identity.superblock();
        committer.write_superblock(&work, superblock).await?;
    }
    if !needs_table && committer.commit_once(0, CommitReason::Table).await? == Committed::JournalFull {
        return Err(damaged("the journal has no space for the commit that ends recovery"));
    }
    shared.state.lock().free_pages(dropped.iter().copied());
    // Writes of the previous process to the disk may not be durable yet; the next flush must include the disk.
    shared.state.lock().journal.disk_written(shared.disk.flushes_failed());
    Ok(())
}

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
    pub(super) async fn read(flash: &dyn Device, superblock: &Superblock) -> Result<(Self, Recovery)> {
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
            let error = match self.is_as_written(flash, record.page, held.crc).await {
                Ok(true) => continue,
                Ok(false) => None,
                Err(error) => Some(error),
            };
            damaged.push(DamagedPage { page: record.page, crc: held.crc, dirty: held.dirty, error });
        }
        Ok(damaged)
    }

    pub(super) async fn is_as_written(&self, flash: &dyn Device, page: u32, crc: u32) -> Result<bool> {
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
