//! Opening a volume: after a close, and after a crash.
//!
//! The table, then the journal's commits over it. The last commit may have been cut off by a power cut after all of its
//! blocks and before all of its pages were on flash: it counts only if the checksums of the pages that it brought are right
//! (rule 2 in the [parent module](super)). Then the notes that follow the last commit: they were written and not flushed, so
//! of those that are there as many count, from the first one on, as leave no page held that is not as it was written. After
//! the death of the process that is all of them; after a power cut a part, of which nobody was promised anything. Then what
//! was found is made durable and a commit is added that tells it, so that the next recovery decides the same. Where the
//! journal has no room for that a table is written instead, with no commit after it: recoveries that are cut off, however
//! many, use nothing up.
//!
//! Blocks stand with the policy as the table says, which has those of a set in their order, and after them what the journal
//! and the notes brought since, in theirs. After a close that is all there is to know. After a crash the hits since the
//! table are lost, but for how often blocks had been hit when they were written.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use device::timer::Timer;
use device::{Device, IoBuffer, Request};
use event_listener::Event;
use parking_lot::Mutex;

use super::error::{Result, VolumeError, VolumeErrorKind};
use super::found::{Found, damaged};
use super::identity;
use super::journal::block::{self, BlockHeader, BlockKind, JOURNAL_BLOCK_BYTES};
use super::journal::commit::{Committed, Why};
use super::noted::written_pages;
use super::read::crc32c;
use super::record::Record;
use super::state::State;
use super::superblock::{self, Superblock};
use super::trouble::{DiskTrouble, WatchedDisk};
use super::work::Work;
use super::{Pairing, Shared, Traces, Volume};

/// What opening a volume found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The volume was closed before; nothing had to be recovered.
    pub was_clean: bool,
    /// Blocks found.
    pub blocks: u64,
    /// Of those, blocks that are newer than the disk's.
    pub dirty_blocks: u64,
    /// Blocks of the journal that were read.
    pub journal_blocks: u64,
    /// Commits that were applied.
    pub commits: u64,
    /// Notes that were applied: what was written since the last commit.
    pub notes: u64,
    /// The last commit, or notes after it, were dropped because their pages do not have the recorded checksums. A power cut
    /// before the flush ended leaves this state; no flush was acknowledged then. Otherwise the flash lost data.
    pub rolled_back: bool,
    /// Blocks written by clients and dropped with that commit and those notes.
    pub rolled_back_blocks: u64,
    /// Blocks of the last commit that the flash lost although the flush was acknowledged. The rest of the commit is kept. Reads of
    /// these blocks fail until a client writes them again.
    pub damaged_blocks: u64,
    /// Clean blocks that were dropped because the mode writes to the disk directly and the disk may be newer, or the disk was
    /// taken though it seemed wrong.
    pub dropped_blocks: u64,
    /// What opening took, with all reading, checking and writing: nanoseconds.
    pub elapsed_ns: u64,
    /// The disk was taken though it seemed wrong.
    pub was_forced: bool,
}

/// Bytes read with one request while recovering.
pub(super) const READ_BYTES: usize = 256 << 10;

impl Volume {
    /// Opens a volume. `timer` is what time is told by.
    ///
    /// # Errors
    /// [`VolumeErrorKind::Foreign`], [`VolumeErrorKind::NewerFormat`] and [`VolumeErrorKind::Damaged`] by what is on the
    /// flash, [`VolumeErrorKind::WrongDisk`], and the devices' failures.
    pub async fn open(
        flash: Arc<dyn Device>,
        disk: Arc<dyn Device>,
        timer: Arc<dyn Timer>,
    ) -> Result<(Self, Recovery)> {
        Self::open_as(flash, disk, timer, Pairing::default()).await
    }

    /// Reads the state on `flash` without its disk: the superblock, and the numbers of blocks that [`open`](Self::open) would find.
    /// Writes nothing. The volume must be closed.
    ///
    /// # Errors
    /// As [`open`](Self::open), but for those of the disk.
    pub async fn survey(flash: &Arc<dyn Device>) -> Result<(Superblock, Recovery)> {
        let superblock = superblock::read(&**flash).await?;
        check_flash(&**flash, &superblock)?;
        let (found, mut recovery) = Found::read(&**flash, &superblock).await?;
        found.into_state(&superblock, &mut recovery, Trust::Whole)?;
        Ok((superblock, recovery))
    }

    /// Opens a volume as [`open`](Self::open) does, given the system's knowledge of the disk. `is_forced` accepts a wrong
    /// disk. Sets the volume's mark on the disk.
    ///
    /// # Errors
    /// As [`open`](Self::open). A disk of another size is refused in any case.
    pub async fn open_as(
        flash: Arc<dyn Device>,
        disk: Arc<dyn Device>,
        timer: Arc<dyn Timer>,
        pairing: Pairing,
    ) -> Result<(Self, Recovery)> {
        let begun_ns = timer.monotonic_ns();
        let Pairing { traces, is_forced } = pairing;
        let again = (Arc::clone(&flash), Arc::clone(&disk), Arc::clone(&timer));
        let kept = if is_forced { traces.duplicate() } else { Traces::default() };
        let loaded = match sampled(flash, disk, timer, traces).await {
            Err(error) if is_forced && error.kind() == VolumeErrorKind::WrongDisk => {
                let (flash, disk, timer) = again;
                let superblock = superblock::read(&*flash).await?;
                load(flash, disk, timer, kept, superblock, Trust::DirtyAlone).await
            }
            loaded => loaded,
        };
        let (shared, mut recovery, dropped) = loaded?;
        let gate_ms = shared.superblock.lock().tuning.latency_gate_ms;
        shared.set_latency_gate(gate_ms);
        shared.adopt_disk(recovery.was_clean);
        shared.settle(&recovery, &dropped).await?;
        *shared.state.lock().sets.counters_mut() = crate::sets::Counters::default();
        recovery.elapsed_ns = shared.timer.monotonic_ns().saturating_sub(begun_ns);
        Ok((Self { shared, may_cache: true }, recovery))
    }
}

/// How much of what flash has is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// All that counts.
    Whole,
    /// What the disk does not have: it is not the one that the rest was read from, or was changed since.
    DirtyAlone,
}

/// A volume as it is found, nothing changed; and the pages of blocks that do not count any more.
pub(super) type Loaded = (Arc<Shared>, Recovery, Vec<u32>);

/// A volume as it is found, with a disk that is its own as far as can be told without its blocks.
pub(super) async fn verified(
    flash: Arc<dyn Device>,
    disk: Arc<dyn Device>,
    timer: Arc<dyn Timer>,
    traces: Traces,
) -> Result<Loaded> {
    let superblock = superblock::read(&*flash).await?;
    check_flash(&*flash, &superblock)?;
    identity::check_disk(&*disk, &superblock, &traces).await?;
    load(flash, disk, timer, traces, superblock, Trust::Whole).await
}

/// The same, by some of its blocks too.
async fn sampled(
    flash: Arc<dyn Device>,
    disk: Arc<dyn Device>,
    timer: Arc<dyn Timer>,
    traces: Traces,
) -> Result<Loaded> {
    let loaded = verified(flash, disk, timer, traces).await?;
    // What is bad there is counted when somebody reads it.
    let _bad = loaded.0.check_samples().await?;
    Ok(loaded)
}

pub(super) async fn load(
    flash: Arc<dyn Device>,
    disk: Arc<dyn Device>,
    timer: Arc<dyn Timer>,
    traces: Traces,
    mut superblock: Superblock,
    trust: Trust,
) -> Result<Loaded> {
    identity::check_size(&*disk, &superblock.disk)?;
    if trust == Trust::DirtyAlone {
        // Recovered as after a crash: blocks are dropped, and what is known of the disk does not hold.
        superblock.clean = false;
        superblock.disk.holds = false;
    }
    let (found, mut recovery) = Found::read(&*flash, &superblock).await?;
    let (state, dropped) = found.into_state(&superblock, &mut recovery, trust)?;
    recovery.was_forced = trust == Trust::DirtyAlone;
    Ok((shared_of(flash, disk, timer, traces, superblock, state), recovery, dropped))
}

/// A volume in this state, not yet at work.
pub(super) fn shared_of(
    flash: Arc<dyn Device>,
    disk: Arc<dyn Device>,
    timer: Arc<dyn Timer>,
    traces: Traces,
    superblock: Superblock,
    state: State,
) -> Arc<Shared> {
    let disk_trouble = Arc::<DiskTrouble>::default();
    let watched = WatchedDisk { disk, timer: Arc::clone(&timer), trouble: Arc::clone(&disk_trouble) };
    Arc::new(Shared {
        uuid: superblock.uuid,
        layout: superblock.layout,
        disk_bytes: superblock.disk.bytes,
        flash,
        disk: Arc::new(watched),
        disk_trouble,
        traces,
        timer,
        blocks: Arc::default(),
        disk_writers: Arc::default(),
        destager: Arc::default(),
        keeper: Arc::default(),
        cleaners: Arc::default(),
        superblock: Mutex::new(superblock),
        pace: Mutex::default(),
        is_paced: AtomicBool::new(false),
        state: Mutex::new(state),
        changed: Event::new(),
        room: Event::new(),
    })
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

impl Shared {
    /// Makes what was found durable, and says that the volume is open (rule 6).
    async fn settle(self: &Arc<Self>, recovery: &Recovery, dropped: &[u32]) -> Result<()> {
        let work = Work::new(self, Some(self.keeper.lock(0..1).await));
        let flushed = Self::flush_device(&*self.flash).await;
        flushed.map_err(|error| VolumeError::flash("flushing what was recovered", error))?;
        if recovery.was_clean {
            let open = Superblock { clean: false, ..self.superblock.lock().clone() };
            self.write_superblock(&work, open).await?;
            return Ok(());
        }
        let needs_table = {
            let state = self.state.lock();
            recovery.was_forced
                || !dropped.is_empty()
                // The commit that ends recovery would make the damaged one look whole.
                || !state.damaged.is_empty()
                || !state.journal.has_room_for_units(state.changes.units())
        };
        if needs_table {
            self.write_found(&work).await?;
        } else if superblock::copies(&*self.flash).await != superblock::Copies::Agree {
            // Else damage to the newer one would bring back what is given up when the journal goes on.
            let superblock = self.superblock.lock().clone();
            self.write_superblock(&work, superblock).await?;
        }
        if !needs_table && self.commit_once(0, Why::Table).await? == Committed::JournalFull {
            return Err(damaged("the journal has no room for the commit that ends recovery"));
        }
        self.give_back_dropped(dropped);
        // What the process before wrote to the disk may not be durable there, and a flush is asked of this one.
        self.state.lock().changes.disk_written(self.disk_trouble.flushes_failed());
        Ok(())
    }

    /// Flash says now that these pages, of blocks that were dropped, hold nothing.
    pub(super) fn give_back_dropped(&self, dropped: &[u32]) {
        let mut state = self.state.lock();
        for &page in dropped {
            state.pages.give_back(page);
        }
    }
}

/// A commit as it was read.
#[derive(Default)]
struct ReadCommit {
    records: Vec<Record>,
    number: u64,
    is_whole: bool,
    /// The journal's place after it.
    next_sequence: u64,
    chain: u32,
}

/// A page whose checksum is wrong, or that cannot be read.
struct DamagedPage {
    page: u32,
    /// The expected checksum.
    crc: u32,
    dirty: bool,
    /// The error, if the read failed.
    error: Option<VolumeError>,
}

impl Found {
    pub(super) async fn read(flash: &dyn Device, superblock: &Superblock) -> Result<(Self, Recovery)> {
        let mut found = Self::nothing(superblock);
        let mut recovery = Recovery { was_clean: superblock.clean, ..Recovery::default() };
        found.read_table(flash, superblock).await?;
        found.read_journal(flash, superblock, &mut recovery).await?;
        let last_commit = found.journal.next_commit.saturating_sub(1);
        found.journal.notes.follow(last_commit, found.journal.chain);
        if !superblock.clean {
            found.check_end(flash, superblock.uuid).await?;
            // A commit of the next number may have been under way, and be lost with notes that followed it left. The one that
            // ends recovery may tell the same as that one did, and must not be taken for it.
            found.journal.next_commit += 1;
            found.read_notes(flash, superblock.uuid, &mut recovery).await?;
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
                    confirmed: 0,
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

    /// Applies all commits but those that were cut off.
    async fn read_journal(
        &mut self,
        flash: &dyn Device,
        superblock: &Superblock,
        recovery: &mut Recovery,
    ) -> Result<()> {
        let mut last: Option<ReadCommit> = None;
        loop {
            let from = last.as_ref().map_or((self.journal.next_sequence, self.journal.chain), |last| {
                (last.next_sequence, last.chain)
            });
            let next = self.read_commit(flash, superblock.uuid, from, recovery).await?;
            // Whatever there is of the next commit was written after the flush of this one.
            let is_confirmed = next.is_some();
            if let Some(commit) = last.take() {
                let damaged = match is_confirmed || commit.number <= superblock.checkpoint.confirmed_commit {
                    true => Vec::new(),
                    false => self.damaged_pages(flash, &commit).await?,
                };
                if !damaged.is_empty()
                    && self.confirmed_by_notes(flash, superblock.uuid).await? < commit.number
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
                // The disk has the clean ones.
                recovery.damaged_blocks = damaged.iter().filter(|page| page.dirty).count() as u64;
                if !superblock.checksums {
                    self.damaged.extend(damaged.iter().map(|page| (page.page, page.crc)));
                }
            }
            match next {
                Some(commit) if commit.is_whole => last = Some(commit),
                _ => return Ok(()),
            }
        }
    }

    /// Whether the journal ends where a power cut may have ended it, and not at a block that was lost later. A commit is begun
    /// after the flush of the one before: one that has another between itself and the end proves that the block at the end had been
    /// on flash. The very next one proves nothing, for it may be that of a recovery which was cut off, and so has another number.
    async fn check_end(&self, flash: &dyn Device, uuid: u128) -> Result<()> {
        let journal = &self.journal;
        let end = journal.oldest_sequence + journal.blocks;
        let mut sequence = journal.next_sequence;
        while sequence < end {
            let to_wrap = journal.blocks - sequence % journal.blocks;
            let count = (end - sequence).min(to_wrap).min((READ_BYTES / JOURNAL_BLOCK_BYTES) as u64);
            let offset = self.layout.journal_offset() + journal.place(sequence);
            if let Ok(bytes) = read_blocks(flash, offset, count).await {
                self.check_beyond_end(uuid, sequence, &bytes)?;
            } else {
                // One that cannot be read proves nothing: opening needs none of them.
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

    /// Whether the blocks from `sequence` on are such as may lie beyond the journal's end.
    fn check_beyond_end(&self, uuid: u128, sequence: u64, bytes: &[u8]) -> Result<()> {
        let journal = &self.journal;
        for (sequence, bytes) in (sequence..).zip(bytes.chunks_exact(JOURNAL_BLOCK_BYTES)) {
            let decoded = block::decode(BlockKind::Journal, uuid, bytes);
            let is_later =
                |header: &BlockHeader| header.sequence == sequence && header.commit > journal.next_commit + 1;
            if decoded.is_some_and(|(header, ..)| is_later(&header)) {
                let lost = journal.next_sequence;
                return Err(damaged(&format!(
                    "block {lost} of the journal is damaged or missing, though later ones are there: what they held is lost. \
                     Copy the flash, restore the disk if it lacks anything (in write-back it does), and make the cache \
                     anew with `block create --force`"
                )));
            }
        }
        Ok(())
    }

    /// The commit that begins at `from`, or what there is of it.
    async fn read_commit(
        &self,
        flash: &dyn Device,
        uuid: u128,
        (mut sequence, mut chain): (u64, u32),
        recovery: &mut Recovery,
    ) -> Result<Option<ReadCommit>> {
        let mut commit = ReadCommit { number: self.journal.next_commit, ..ReadCommit::default() };
        let mut any = false;
        while sequence - self.journal.oldest_sequence < self.journal.blocks {
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
            if header.ends_commit {
                (commit.is_whole, commit.next_sequence, commit.chain) = (true, sequence, chain);
                break;
            }
        }
        Ok(any.then_some(commit))
    }

    /// Pages of the commit whose checksums are wrong, or that cannot be read.
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
        let buffer = IoBuffer::zeroed(self.layout.block_bytes as usize);
        let read = flash.start(Request::Read { offset: self.layout.page_offset(page), buffer }).await;
        let page = read.map_err(|error| VolumeError::flash("reading the flash", error))?;
        Ok(crc32c(&page.expect("a read gives its buffer back")) == crc)
    }

    fn take_commit(&mut self, commit: &ReadCommit, recovery: &mut Recovery) -> Result<()> {
        for record in &commit.records {
            self.apply(record, commit.number)?;
        }
        recovery.commits += 1;
        self.journal.next_sequence = commit.next_sequence;
        self.journal.chain = commit.chain;
        self.journal.next_commit = commit.number + 1;
        self.journal.confirmed_commit = commit.number;
        Ok(())
    }
}

pub(super) async fn read_blocks(flash: &dyn Device, offset: u64, count: u64) -> Result<IoBuffer> {
    let buffer = IoBuffer::zeroed(count as usize * JOURNAL_BLOCK_BYTES);
    let read = flash.start(Request::Read { offset, buffer }).await;
    let read = read.map_err(|error| VolumeError::flash("reading tables and journal", error))?;
    Ok(read.expect("a read gives its buffer back"))
}

pub(super) fn records_in(mut units: &[u8]) -> Result<Vec<Record>> {
    let mut records = Vec::with_capacity(units.len() / 16);
    while !units.is_empty() {
        let record = Record::take_from(&mut units);
        records.push(record.ok_or_else(|| damaged("an intact block holds an invalid record"))?);
    }
    Ok(records)
}
