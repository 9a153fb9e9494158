//! Reading a journal after a crash: the last blocks that follow each other without a gap.

use std::sync::Arc;

use device::{Device, IoError, Request};

use super::block::{self, Block, Header, Record};
use super::{FLUSHED, JournalPlace, Position, TAIL_SLOTS};
use crate::flash::Waiting;

/// Bytes of one read.
const READ_BYTES: u64 = 1 << 20;

/// The records that are needed to rebuild the index, oldest first.
#[derive(Debug)]
pub struct Chain {
    blocks: Vec<Block>,
    /// The header of the newest block, which may follow a gap.
    newest: Header,
    /// The tail slot that has the last block, if the ring lacks it.
    tail_slot: Option<u64>,
}

/// The reason why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// A read failed. A later one may succeed.
    #[error(transparent)]
    Io(IoError),
    /// There is no block of this engine.
    #[error("there is no journal")]
    Empty,
    /// It was written under another boot of the system, without flushes.
    #[error("the system was restarted, and removals were not flushed (recover_after)")]
    OtherBoot,
    /// A needed block is missing or damaged.
    #[error("the journal is damaged")]
    Damaged,
}

impl Chain {
    /// Reads the journal, and checks that it contains all acknowledged records.
    ///
    /// # Errors
    /// See [`ChainError`].
    pub async fn read(
        device: &Arc<dyn Device>,
        place: &JournalPlace,
        waiting: Waiting,
    ) -> Result<Self, ChainError> {
        let mut stored = Stored::read(device, place, waiting).await?;
        let newest = stored.newest().ok_or(ChainError::Empty)?;
        if !place.options.accepts(newest.boot) {
            return Err(ChainError::OtherBoot);
        }
        let chain = stored.chain_to(newest)?;
        if chain.blocks.is_empty() { Err(ChainError::Damaged) } else { Ok(chain) }
    }

    /// Regions with smaller sequence numbers are evicted or cleared.
    ///
    /// It is the floor of the newest block, even if that follows a gap: blocks below this floor may be overwritten.
    pub fn floor(&self) -> u64 {
        self.newest.floor
    }

    /// The newest region in any record.
    pub fn through(&self) -> u64 {
        self.blocks.last().map_or(0, Block::last_through)
    }

    /// The records in their order.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.blocks.iter().flat_map(Block::records)
    }

    /// The position from which a new session continues. Blocks after a gap are overwritten.
    pub fn position(&self) -> Position {
        let last_block = self.blocks.last().expect("a chain has blocks");
        let header = last_block.header;
        Position {
            session: self.newest.session,
            session_start: header.session_start,
            last: header.position,
            floor: self.newest.floor,
            removals_floor: self.newest.removals_floor,
            durable: header.position,
            throughs: self.blocks.iter().map(Block::last_through).collect(),
            next_slot: self.tail_slot.map_or(0, |slot| (slot + 1) % TAIL_SLOTS),
            last_block: self.tail_slot.map(|_| last_block.clone()),
        }
    }
}

/// All valid blocks of a journal.
struct Stored {
    tails: Vec<Option<Block>>,
    ring: Vec<Option<Block>>,
}

impl Stored {
    async fn read(
        device: &Arc<dyn Device>,
        place: &JournalPlace,
        waiting: Waiting,
    ) -> Result<Self, ChainError> {
        let block_bytes = u64::from(place.options.block_bytes);
        let mut blocks = Vec::with_capacity((TAIL_SLOTS + place.blocks) as usize);
        let all = place.offset_bytes..place.offset_bytes + place.bytes();
        for part in device.geometry().transfers_of(block_bytes, READ_BYTES, all) {
            let request = Request::read(part.start, (part.end - part.start) as usize);
            let bytes = waiting.start(&**device, request).await.map_err(ChainError::Io)?;
            for bytes in bytes.chunks_exact(block_bytes as usize) {
                let ring_slot = (blocks.len() as u64).checked_sub(TAIL_SLOTS);
                let is_in_place =
                    |it: &Block| ring_slot.is_none_or(|slot| it.header.position % place.blocks == slot);
                let is_used = |it: &Block| it.header.generation == place.generation && is_in_place(it);
                blocks.push(block::decode(bytes).filter(is_used));
            }
        }
        let ring = blocks.split_off(TAIL_SLOTS as usize);
        Ok(Self { tails: blocks, ring })
    }

    /// The header of the newest block.
    fn newest(&self) -> Option<Header> {
        let blocks = self.tails.iter().chain(&self.ring).flatten();
        let newest = blocks.max_by_key(|it| (it.header.session, it.header.position, version(it)))?;
        Some(newest.header)
    }

    /// The blocks from the oldest needed one to the last before a gap.
    fn chain_to(&mut self, newest: Header) -> Result<Chain, ChainError> {
        let mut chain = Chain { blocks: Vec::new(), newest, tail_slot: None };
        let (mut session, mut session_start) = (newest.session, newest.session_start);
        for position in (0..=newest.position).rev().take(self.ring.len()) {
            let found = self.take(position, |it| {
                if position < session_start { it.session < session } else { it.session == session }
            });
            let is_complete =
                found.as_ref().is_some_and(|(_, slot)| slot.is_none() || position == newest.position);
            if !is_complete {
                // The blocks of one group reach the medium in any order, so a group with a missing block was not acknowledged.
                if newest.boot != FLUSHED || position < newest.durable {
                    return Err(ChainError::Damaged);
                }
                chain.blocks.clear();
            }
            let Some((block, slot)) = found else { continue };
            (session, session_start) = (block.header.session, block.header.session_start);
            let is_first = block.last_through() < newest.removals_floor;
            if chain.blocks.is_empty() {
                chain.tail_slot = slot;
            }
            chain.blocks.push(block);
            if is_first {
                break;
            }
        }
        chain.blocks.reverse();
        Ok(chain)
    }

    /// Takes the block at a position whose header satisfies `is_wanted`: from the ring, otherwise the longest one from the tail slots.
    /// Returns it with its tail slot.
    fn take(&mut self, position: u64, is_wanted: impl Fn(&Header) -> bool) -> Option<(Block, Option<u64>)> {
        let is_wanted = |it: &Block| it.header.position == position && is_wanted(&it.header);
        let ring_slot = (position % self.ring.len() as u64) as usize;
        if let Some(block) = self.ring[ring_slot].take_if(|it| is_wanted(it)) {
            return Some((block, None));
        }
        let tails = (0_u64..).zip(&self.tails).filter_map(|(slot, block)| Some((slot, block.as_ref()?)));
        let wanted = tails.filter(|(_, block)| is_wanted(block));
        let (slot, _) = wanted.max_by_key(|(_, block)| version(block))?;
        Some((self.tails[slot as usize].take()?, Some(slot)))
    }
}

/// Orders the versions of a block: later ones have at least as many words and as high floors.
fn version(block: &Block) -> (usize, u64, u64) {
    (block.words.len(), block.header.floor, block.header.removals_floor)
}
