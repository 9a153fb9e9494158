//! Replaying the intent log after a crash: the entries that follow the last commit, in order, as far as they are valid.
//!
//! The whole ring is read. Blocks that name the last commit are kept; the first one is chained to that commit's last block, and
//! each other one to its predecessor. Two blocks of a full ring may have equal checksums, so the chain is followed by
//! sequence number and verified.
//!
//! Most of the ring is not needed, so an unreadable block there is ignored. The block after the chain's end must be
//! readable, because it may hold an acknowledged write.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use device::Device;

use super::journal_replay::{read_blocks, records_in};
use super::{FlashMap, READ_BYTES, Recovery, damaged};
use crate::volume::error::{Result, VolumeError};
use crate::volume::journal::block::{self, BlockKind, DamagedHeader, JOURNAL_BLOCK_BYTES};
use crate::volume::record::Record;

/// A block of the intent log that follows the last commit.
struct LogBlock {
    /// Checksum of the previous block.
    chain: u32,
    crc: u32,
    ends_entry: bool,
    records: Vec<Record>,
}

/// The readable blocks of the ring.
#[derive(Default)]
struct Ring {
    places: u64,
    /// Blocks that follow the last commit, by sequence number.
    following: BTreeMap<u64, LogBlock>,
    /// The newest block that follows an earlier commit: its commit and sequence number.
    earlier: Option<(u64, u64)>,
    /// The last commit that any block records as flushed.
    confirmed: u64,
    /// Blocks after the last commit and before this sequence number had been flushed; 0 if none is known to be.
    flushed: u64,
    /// Pages written according to entries that follow a later commit.
    written_after_commit: Vec<u32>,
    /// Unreadable blocks and their errors.
    unreadable: HashMap<u64, VolumeError>,
    /// Blocks with wrong checksums, by place.
    damaged: HashMap<u64, DamagedHeader>,
    /// Places with [other contents](block::is_foreign) than the volume writes there.
    foreign: BTreeSet<u64>,
}

/// The entries that follow the last commit.
#[derive(Default)]
struct Chain {
    /// The records of each entry, in order.
    entries: Vec<Vec<Record>>,
    /// Number of entries that are known to be flushed.
    flushed: usize,
    /// Pages written according to later entries, which a power cut has separated from these: an entry or a commit between them is missing.
    written_later: Vec<u32>,
    /// A block of the entry that follows these is torn or damaged.
    lost_last: bool,
    /// Places of torn and damaged blocks.
    foreign: BTreeSet<u64>,
}

impl FlashMap {
    /// Applies the valid entries that follow the last commit.
    pub(super) async fn replay_intent_log(
        &mut self,
        flash: &dyn Device,
        uuid: u128,
        recovery: &mut Recovery,
    ) -> Result<()> {
        let Chain { entries, flushed, written_later, lost_last, foreign } =
            self.chained_entries(flash, uuid).await?;
        let offsets = foreign.into_iter().map(|place| self.log_offset(place)).collect::<Vec<_>>();
        self.foreign_blocks.iter_mut().for_each(|found| found.extend(&offsets));
        let (count, damaged) = self.valid_entries(flash, &entries, flushed).await?;
        recovery.lost_last_entry |= lost_last;
        recovery.rolled_back |= lost_last || !written_later.is_empty();
        self.dropped.extend(written_later);
        self.dropped.extend(written_pages(entries[count..].iter().flatten()));
        let commit = self.journal.next_commit();
        for record in entries[..count].iter().flatten() {
            self.apply(record, commit)?;
            self.logged.insert(record.page, *record);
            // An entry may repeat a change of the dropped commit.
            self.dropped.remove(&record.page);
        }
        recovery.damaged_blocks += damaged.len() as u64;
        if self.keeps_no_checksums() {
            self.damaged.extend(damaged);
        }
        recovery.rolled_back_blocks = self.dropped.len() as u64;
        recovery.log_entries = entries[..count].iter().filter(|records| !records.is_empty()).count() as u64;
        recovery.rolled_back |= count < entries.len();
        Ok(())
    }

    /// The last commit that the intent log records as flushed.
    pub(super) async fn confirmed_by_log(&self, flash: &dyn Device, uuid: u128) -> Result<u64> {
        Ok(self.read_ring(flash, uuid).await?.confirmed)
    }

    async fn chained_entries(&self, flash: &dyn Device, uuid: u128) -> Result<Chain> {
        let (base, mut chain) = self.journal.log_start();
        let mut ring = self.read_ring(flash, uuid).await?;
        if ring.confirmed > base {
            let confirmed = ring.confirmed;
            return Err(damaged(&format!(
                "the journal ends with commit {base}, but commit {confirmed} was flushed: acknowledged writes after it are lost. \
                 Copy the flash, restore the disk (in write-back mode it lacks these writes), and create the cache again with \
                 `block create --force`"
            )));
        }
        let Some(mut next) = ring.first(chain) else {
            ring.first_places().try_for_each(|sequence| ring.must_be_readable(sequence))?;
            return match ring.flushed {
                0 => Ok(Chain {
                    written_later: ring.written_later(0),
                    lost_last: ring.first_places().any(|sequence| ring.is_damaged(sequence, base, chain)),
                    foreign: ring.foreign,
                    ..Chain::default()
                }),
                flushed => Err(lost_entries(0, flushed)),
            };
        };
        let (mut entries, mut open, mut flushed) = (Vec::new(), Vec::new(), 0);
        while let Some(block) = ring.following.remove(&next).filter(|block| block.chain == chain) {
            (next, chain) = (next + 1, block.crc);
            open.extend(block.records);
            if block.ends_entry {
                entries.push(std::mem::take(&mut open));
                flushed = if next <= ring.flushed { entries.len() } else { flushed };
            }
        }
        ring.must_be_readable(next)?;
        if next < ring.flushed {
            return Err(lost_entries(next, ring.flushed));
        }
        let lost_last = ring.is_damaged(next, base, chain);
        let written_later = ring.written_later(next);
        Ok(Chain { entries, flushed, written_later, lost_last, foreign: ring.foreign })
    }

    async fn read_ring(&self, flash: &dyn Device, uuid: u128) -> Result<Ring> {
        let mut ring = Ring { places: self.layout.intent_log_blocks(), ..Ring::default() };
        let mut at = 0;
        while at < ring.places {
            let end = ring.places.min(at + (READ_BYTES / JOURNAL_BLOCK_BYTES) as u64);
            if let Ok(bytes) = read_blocks(flash, self.log_offset(at), end - at).await {
                self.add_blocks(&mut ring, uuid, at, &bytes)?;
            } else {
                for place in at..end {
                    match read_blocks(flash, self.log_offset(place), 1).await {
                        Ok(bytes) => self.add_blocks(&mut ring, uuid, place, &bytes)?,
                        Err(error) => drop(ring.unreadable.insert(place, error)),
                    }
                }
            }
            at = end;
        }
        Ok(ring)
    }

    /// The offset of a place of the intent log.
    fn log_offset(&self, place: u64) -> u64 {
        self.layout.intent_log_offset() + place * JOURNAL_BLOCK_BYTES as u64
    }

    fn add_blocks(&self, ring: &mut Ring, uuid: u128, first_place: u64, bytes: &[u8]) -> Result<()> {
        let (base, _) = self.journal.log_start();
        for (place, bytes) in (first_place..).zip(bytes.chunks_exact(JOURNAL_BLOCK_BYTES)) {
            let Some((header, crc, units)) = block::decode(BlockKind::IntentLog, uuid, bytes) else {
                let damaged = DamagedHeader::of(BlockKind::IntentLog, uuid, bytes);
                ring.damaged.extend(damaged.map(|header| (place, header)));
                if self.is_foreign(BlockKind::IntentLog, uuid, bytes) {
                    ring.foreign.insert(place);
                }
                continue;
            };
            ring.confirmed = ring.confirmed.max(header.confirmed);
            if header.confirmed == base && header.commit >= base {
                ring.flushed = ring.flushed.max(header.flushed);
            }
            if header.commit < base {
                ring.earlier = ring.earlier.max(Some((header.commit, header.sequence)));
            } else if header.commit == base {
                let (chain, ends_entry, records) = (header.chain, header.ends_commit, records_in(units)?);
                ring.following.insert(header.sequence, LogBlock { chain, crc, ends_entry, records });
            } else {
                ring.written_after_commit.extend(written_pages(&records_in(units)?));
            }
        }
        Ok(())
    }

    /// The length of the longest prefix of the entries after which every page has the contents that they record. A page that a later
    /// entry releases may have been overwritten since. The first `flushed` entries count in any case; their damaged pages are returned
    /// with the expected checksums.
    async fn valid_entries(
        &self,
        flash: &dyn Device,
        entries: &[Vec<Record>],
        flushed: usize,
    ) -> Result<(usize, Vec<(u32, u32)>)> {
        // For each page and checksum: the prefix lengths at which the page must have it.
        let mut spans = Vec::new();
        let mut open: HashMap<u32, (u32, usize)> = HashMap::new();
        for (before, records) in entries.iter().enumerate() {
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
        spans.extend(open.into_iter().map(|(page, (crc, from))| (page, crc, from..entries.len() + 1)));
        let (mut counts, mut damaged) = (vec![true; entries.len() + 1], Vec::new());
        counts[..flushed].fill(false);
        for (page, crc, held) in spans.into_iter().filter(|(_, _, held)| held.end > flushed) {
            let is_flushed = held.start <= flushed;
            match self.has_checksum(flash, page, crc).await {
                Ok(true) => {}
                Ok(false) if !is_flushed => counts[held].fill(false),
                Err(error) if !is_flushed => return Err(error),
                Ok(false) | Err(_) => damaged.push((page, crc, held)),
            }
        }
        let count = counts.iter().rposition(|counts| *counts).unwrap_or(flushed);
        damaged.retain(|(_, _, held)| held.contains(&count));
        Ok((count, damaged.into_iter().map(|(page, crc, _)| (page, crc)).collect()))
    }
}

fn lost_entries(end: u64, flushed: u64) -> VolumeError {
    damaged(&format!(
        "block {end} of the intent log is damaged or missing, but the blocks up to {flushed} were flushed: acknowledged writes are lost. \
         Copy the flash, restore the disk (in write-back mode it lacks these writes), and create the cache again with \
         `block create --force`"
    ))
}

/// The pages on which clients' writes were stored, according to `records`.
pub(super) fn written_pages<'a>(records: impl IntoIterator<Item = &'a Record>) -> impl Iterator<Item = u32> {
    let is_written = |record: &&Record| record.held.is_some_and(|held| held.fresh && held.dirty);
    records.into_iter().filter(is_written).map(|record| record.page)
}

impl Ring {
    /// The sequence number of the block that continues `chain`, the checksum of the last commit's last block.
    fn first(&self, chain: u32) -> Option<u64> {
        self.following.iter().find(|(_, block)| block.chain == chain).map(|(&sequence, _)| sequence)
    }

    /// Possible sequence numbers of the block that continues the chain: 0 after opening, the one after the last block of an earlier commit,
    /// or the one before the first block of the chain.
    fn first_places(&self) -> impl Iterator<Item = u64> + use<> {
        let after_earlier = self.earlier.map(|(_, sequence)| sequence + 1);
        let before_others =
            self.following.first_key_value().and_then(|(sequence, _)| sequence.checked_sub(1));
        [Some(0), after_earlier, before_others].into_iter().flatten()
    }

    /// Pages written according to blocks from `sequence` on that are not in the chain.
    fn written_later(&self, sequence: u64) -> Vec<u32> {
        let records = self.following.range(sequence..).flat_map(|(_, block)| &block.records);
        written_pages(records).chain(self.written_after_commit.iter().copied()).collect()
    }

    /// Whether the block with this sequence number, commit and predecessor was written, and is torn or damaged.
    fn is_damaged(&self, sequence: u64, commit: u64, chain: u32) -> bool {
        let place = sequence % self.places;
        let header = self.damaged.get(&place);
        header.is_some_and(|header| header.continues(sequence, commit, chain))
            || self.foreign.contains(&place)
    }

    /// Fails if a block that may belong to the chain cannot be read.
    fn must_be_readable(&self, sequence: u64) -> Result<()> {
        self.unreadable.get(&(sequence % self.places)).map_or(Ok(()), |error| Err(error.clone()))
    }
}
