//! What notes tell after a crash: those that follow the last commit, in order, as many as count.
//!
//! The ring is read whole, and of its blocks those are taken that say they follow that commit. The first of them is chained to
//! the commit's last block, each other to the one before it. A checksum alone does not name a block, for in a ring full of
//! them two may be equal: the chain is followed by sequence, and checked.
//!
//! Most of the ring is not needed, and of a block that is not needed it does not matter whether it can be read. The block
//! where the chain would go on is: it may hold what was acknowledged.

use std::collections::{BTreeMap, HashMap};

use device::Device;

use super::error::{Result, VolumeError};
use super::found::{Found, damaged};
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

/// The ring, as far as it can be read.
#[derive(Default)]
struct Ring {
    places: u64,
    /// Blocks that say that they follow the last commit, by sequence.
    following: BTreeMap<u64, NoteBlock>,
    /// The newest block that follows an earlier commit: the commit and the sequence.
    earlier: Option<(u64, u64)>,
    /// The last commit that any block says was flushed.
    confirmed: u64,
    /// Pages written according to notes that follow a later commit than the last one.
    written_later: Vec<u32>,
    /// Places that cannot be read, and why.
    unreadable: HashMap<u64, VolumeError>,
}

impl Found {
    /// Applies the notes that follow the last commit, as many as count.
    pub(super) async fn read_notes(
        &mut self,
        flash: &dyn Device,
        uuid: u128,
        recovery: &mut Recovery,
    ) -> Result<()> {
        let (notes, written_later) = self.chained_notes(flash, uuid).await?;
        let count = self.notes_that_count(flash, &notes).await?;
        if recovery.rolled_back {
            self.dropped.extend(written_later);
        }
        self.dropped.extend(written_pages(notes[count..].iter().flatten()));
        let commit = self.journal.next_commit;
        for record in notes[..count].iter().flatten() {
            self.apply(record, commit)?;
            self.noted.insert(record.page, *record);
            // A note may tell again what the commit that was dropped did.
            self.dropped.remove(&record.page);
        }
        recovery.rolled_back_blocks = self.dropped.len() as u64;
        recovery.notes = notes[..count].iter().filter(|records| !records.is_empty()).count() as u64;
        recovery.rolled_back |= count < notes.len();
        Ok(())
    }

    /// The last commit that notes say was flushed.
    pub(super) async fn confirmed_by_notes(&self, flash: &dyn Device, uuid: u128) -> Result<u64> {
        Ok(self.read_ring(flash, uuid).await?.confirmed)
    }

    /// The notes after the last commit, in order, each as its records; and the pages that those after a later one wrote.
    async fn chained_notes(&self, flash: &dyn Device, uuid: u128) -> Result<(Vec<Vec<Record>>, Vec<u32>)> {
        let (base, mut chain) = self.journal.notes.start();
        let mut ring = self.read_ring(flash, uuid).await?;
        if ring.confirmed > base {
            let confirmed = ring.confirmed;
            return Err(damaged(&format!(
                "the journal ends with commit {base}, but commit {confirmed} was flushed: what was acknowledged since is lost. \
                 Copy the flash, restore the disk if it lacks anything (in write-back it does), and make the cache anew with \
                 `block create --force`"
            )));
        }
        let Some(mut next) = ring.first(chain) else {
            ring.first_places().try_for_each(|sequence| ring.must_be_readable(sequence))?;
            return Ok((Vec::new(), ring.written_later));
        };
        let (mut notes, mut open) = (Vec::new(), Vec::new());
        while let Some(block) = ring.following.remove(&next).filter(|block| block.chain == chain) {
            (next, chain) = (next + 1, block.crc);
            open.extend(block.records);
            if block.ends_note {
                notes.push(std::mem::take(&mut open));
            }
        }
        ring.must_be_readable(next)?;
        Ok((notes, ring.written_later))
    }

    async fn read_ring(&self, flash: &dyn Device, uuid: u128) -> Result<Ring> {
        let mut ring = Ring { places: self.layout.notes_blocks(), ..Ring::default() };
        let offset_of = |place: u64| self.layout.notes_offset() + place * JOURNAL_BLOCK_BYTES as u64;
        let mut at = 0;
        while at < ring.places {
            let end = ring.places.min(at + (READ_BYTES / JOURNAL_BLOCK_BYTES) as u64);
            if let Ok(bytes) = read_blocks(flash, offset_of(at), end - at).await {
                self.add_blocks(&mut ring, uuid, &bytes)?;
            } else {
                for place in at..end {
                    match read_blocks(flash, offset_of(place), 1).await {
                        Ok(bytes) => self.add_blocks(&mut ring, uuid, &bytes)?,
                        Err(error) => drop(ring.unreadable.insert(place, error)),
                    }
                }
            }
            at = end;
        }
        Ok(ring)
    }

    fn add_blocks(&self, ring: &mut Ring, uuid: u128, bytes: &[u8]) -> Result<()> {
        let (base, _) = self.journal.notes.start();
        for bytes in bytes.chunks_exact(JOURNAL_BLOCK_BYTES) {
            let Some((header, crc, units)) = block::decode(BlockKind::Note, uuid, bytes) else { continue };
            ring.confirmed = ring.confirmed.max(header.confirmed);
            if header.commit < base {
                ring.earlier = ring.earlier.max(Some((header.commit, header.sequence)));
            } else if header.commit == base {
                let (chain, ends_note, records) = (header.chain, header.ends_commit, records_in(units)?);
                ring.following.insert(header.sequence, NoteBlock { chain, crc, ends_note, records });
            } else {
                ring.written_later.extend(written_pages(&records_in(units)?));
            }
        }
        Ok(())
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

/// Pages to which clients' blocks were written, according to these records.
pub(super) fn written_pages<'a>(records: impl IntoIterator<Item = &'a Record>) -> impl Iterator<Item = u32> {
    let is_written = |record: &&Record| record.held.is_some_and(|held| held.fresh && held.dirty);
    records.into_iter().filter(is_written).map(|record| record.page)
}

impl Ring {
    /// The sequence of the first block after the last commit, whose last block has the checksum `chain`.
    fn first(&self, chain: u32) -> Option<u64> {
        self.following.iter().find(|(_, block)| block.chain == chain).map(|(&sequence, _)| sequence)
    }

    /// Where that block would be: whoever opens the volume begins at 0, and goes on after what followed an earlier commit. What
    /// is there of the chain without its beginning came right after it, unless more is lost.
    fn first_places(&self) -> impl Iterator<Item = u64> + use<> {
        let after_earlier = self.earlier.map(|(_, sequence)| sequence + 1);
        let before_others =
            self.following.first_key_value().and_then(|(sequence, _)| sequence.checked_sub(1));
        [Some(0), after_earlier, before_others].into_iter().flatten()
    }

    /// Refuses to go on without a block that may be one of the chain.
    fn must_be_readable(&self, sequence: u64) -> Result<()> {
        self.unreadable.get(&(sequence % self.places)).map_or(Ok(()), |error| Err(error.clone()))
    }
}
