//! Reading a journal after an unclean end: the last blocks that follow each other without a gap.

use std::sync::Arc;

use device::{Device, IoError, Request};

use super::block::{self, Block, Header, Record, RegionRecord};
use super::{FLUSHED, JournalPlace, Position};
use crate::flash::Waiting;

/// Bytes of one read.
const READ_BYTES: u64 = 1 << 20;

/// The records that are needed to rebuild the index, oldest first.
#[derive(Debug)]
pub struct Chain {
    blocks: Vec<Block>,
    /// The header of the newest block, which may be behind a gap.
    newest: Header,
}

/// The reason why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// A read failed. A later one may succeed.
    #[error(transparent)]
    Io(IoError),
    /// There is no block of this log.
    #[error("the log for small items has no journal")]
    Empty,
    /// It was written under another boot of the system, without flushes.
    #[error("the system was restarted, and removals were not flushed (recover_after)")]
    OtherBoot,
    /// A needed block is missing or damaged.
    #[error("the journal of the log for small items is damaged")]
    Damaged,
}

impl Chain {
    /// Reads the journal, and checks that all records are there that were ever acknowledged.
    ///
    /// # Errors
    /// See [`ChainError`].
    pub async fn read(
        device: &Arc<dyn Device>,
        place: &JournalPlace,
        waiting: Waiting,
    ) -> Result<Self, ChainError> {
        let mut ring = read_ring(device, place, waiting).await?;
        let newest = ring.iter().flatten().map(|it| it.header).max_by_key(|it| (it.session, it.position));
        let newest = newest.ok_or(ChainError::Empty)?;
        if !place.options.accepts(newest.boot) {
            return Err(ChainError::OtherBoot);
        }
        let chain = Self { blocks: linked_blocks(&mut ring, &newest, place.blocks)?, newest };
        if chain.blocks.is_empty() || !chain.has_all_regions() {
            return Err(ChainError::Damaged);
        }
        Ok(chain)
    }

    /// Regions with smaller sequence numbers are evicted or cleared.
    ///
    /// That of the newest block counts, even if it is behind a gap: blocks below this floor may be overwritten.
    pub fn floor(&self) -> u64 {
        self.newest.floor
    }

    /// The newest region that a record names.
    pub fn through(&self) -> u64 {
        self.blocks.last().map_or(0, Block::last_through)
    }

    /// The records in their order.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.blocks.iter().flat_map(Block::records)
    }

    fn regions(&self) -> impl Iterator<Item = RegionRecord> + '_ {
        self.records().filter_map(|record| match record {
            Record::Region(region) => Some(region),
            Record::Removal { .. } => None,
        })
    }

    /// Whether the live regions follow each other from the floor on.
    fn has_all_regions(&self) -> bool {
        let floor = self.floor();
        let live: Vec<RegionRecord> = self.regions().filter(|region| region.sequence >= floor).collect();
        live.iter().zip(floor..).all(|(region, sequence)| region.sequence == sequence)
            && live.windows(2).all(|pair| pair[0].start_page + u64::from(pair[0].pages) == pair[1].start_page)
    }

    /// The position from which a new session continues. Blocks behind a gap are overwritten.
    pub fn position(&self) -> Position {
        let header = self.blocks.last().expect("a chain has blocks").header;
        Position {
            session: self.newest.session,
            session_start: header.session_start,
            last: header.position,
            floor: self.newest.floor,
            durable: header.position,
            throughs: self.blocks.iter().map(Block::last_through).collect(),
        }
    }
}

/// The blocks from the oldest needed one to the last before a gap.
fn linked_blocks(
    ring: &mut [Option<Block>],
    newest: &Header,
    ring_blocks: u64,
) -> Result<Vec<Block>, ChainError> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut session, mut session_start) = (newest.session, newest.session_start);
    for position in (0..=newest.position).rev().take(ring_blocks as usize) {
        let follows = |it: &mut Block| {
            let found = it.header;
            let is_of_session =
                if position < session_start { found.session < session } else { found.session == session };
            found.position == position && is_of_session
        };
        match ring[(position % ring_blocks) as usize].take_if(follows) {
            Some(found) => {
                (session, session_start) = (found.header.session, found.header.session_start);
                let is_first = found.last_through() < newest.floor;
                blocks.push(found);
                if is_first {
                    break;
                }
            }
            // The blocks of one group reach the medium in any order, so a group with a missing block was not acknowledged.
            None if newest.boot == FLUSHED && position >= newest.durable => blocks.clear(),
            None => return Err(ChainError::Damaged),
        }
    }
    blocks.reverse();
    Ok(blocks)
}

async fn read_ring(
    device: &Arc<dyn Device>,
    place: &JournalPlace,
    waiting: Waiting,
) -> Result<Vec<Option<Block>>, ChainError> {
    let block_bytes = u64::from(place.options.block_bytes);
    let ring_bytes = place.offset_bytes..place.offset_bytes + place.blocks * block_bytes;
    let mut ring = Vec::with_capacity(place.blocks as usize);
    for part in device.geometry().transfers_of(block_bytes, READ_BYTES, ring_bytes) {
        let request = Request::read(part.start, (part.end - part.start) as usize);
        let bytes = waiting.start(&**device, request).await.map_err(ChainError::Io)?;
        for bytes in bytes.chunks_exact(block_bytes as usize) {
            let slot = ring.len() as u64;
            let of_log = |it: &Block| {
                it.header.generation == place.generation && it.header.position % place.blocks == slot
            };
            ring.push(block::decode(bytes).filter(of_log));
        }
    }
    Ok(ring)
}
