//! The blocks of journal, intent log and tables: 4 KiB with units of 16 bytes.
//!
//! ```text
//!      0       4       8          16        24      28      30      32      48          56        64                      4096
//!      +-------+-------+----------+---------+-------+-------+-------+-------+-----------+---------+------+------+-- ··· --+
//!      | magic | crc   | sequence | commit  | chain | units | flags | uuid  | confirmed | flushed | unit | unit |         |
//!      | u32   | u32   | u64      | u64     | u32   | u16   | u16   | u128  | u64       | u64     | 16 B | 16 B |         |
//!      +-------+-------+----------+---------+-------+-------+-------+-------+-----------+---------+------+------+-- ··· --+
//! ```
//!
//! Little-endian. `crc` is CRC-32C of the whole block with this field zero, so a torn block is detected. `sequence` numbers the
//! blocks since the volume was created; `chain` is the `crc` of the previous block, so a block left from before a recovery is not
//! taken for the continuation of a newer one. `flags` bit 0 ends a commit. `uuid` distinguishes the blocks of an
//! earlier volume. `confirmed` and `flushed`, in the intent log only, record the flushes that had completed when the block was written:
//! commits up to `confirmed`, and of the intent log's blocks that follow that commit, those before sequence `flushed` (0 if none). Older
//! programs write 0 and ignore both.

use device::checksum::crc32c_without_field;
use device::{IoBuffer, IoSlice};

use crate::volume::record::{Record, UNIT_BYTES};

/// Size of a metadata block in bytes. It may exceed the device's block size, because a torn block counts as not written.
pub const JOURNAL_BLOCK_BYTES: usize = 4096;

const MAGIC_AT: usize = 0;
const CRC_AT: usize = MAGIC_AT + 4;
const SEQUENCE_AT: usize = CRC_AT + 4;
const COMMIT_AT: usize = SEQUENCE_AT + 8;
const CHAIN_AT: usize = COMMIT_AT + 8;
const UNITS_AT: usize = CHAIN_AT + 4;
const FLAGS_AT: usize = UNITS_AT + 2;
const UUID_AT: usize = FLAGS_AT + 2;
const CONFIRMED_AT: usize = UUID_AT + 16;
const FLUSHED_AT: usize = CONFIRMED_AT + 8;
const HEADER_BYTES: usize = 64;

/// Units per block.
pub const UNITS_PER_BLOCK: usize = (JOURNAL_BLOCK_BYTES - HEADER_BYTES) / UNIT_BYTES;

const FLAG_ENDS_COMMIT: u16 = 1;

/// Where a block belongs. A block of one kind is never decoded as another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// `FWJ1`
    Journal,
    /// `FWN1`
    IntentLog,
    /// `FWT1`
    Table,
    /// `FWE1`: a place of the journal or the intent log that was never written.
    Empty,
}

impl BlockKind {
    fn magic(self) -> u32 {
        u32::from_le_bytes(match self {
            Self::Journal => *b"FWJ1",
            Self::IntentLog => *b"FWN1",
            Self::Table => *b"FWT1",
            Self::Empty => *b"FWE1",
        })
    }
}

/// The header of a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockHeader {
    /// Sequence number of the block.
    pub sequence: u64,
    /// Number of the commit, or of the table, that it belongs to.
    pub commit: u64,
    /// Checksum of the previous block.
    pub chain: u32,
    /// Whether the commit or the table ends here.
    pub ends_commit: bool,
    /// In the intent log: the last commit whose flush had completed; 0 if none.
    pub confirmed: u64,
    /// In the intent log: blocks that follow commit `confirmed` and come before this sequence number had been flushed; 0 if none.
    pub flushed: u64,
}

/// Encodes a block into `into`, of [`JOURNAL_BLOCK_BYTES`]. Returns its checksum, which is the next block's `chain`.
///
/// # Panics
/// If the units do not fit.
pub fn encode(kind: BlockKind, uuid: u128, header: &BlockHeader, units: &[u8], into: &mut [u8]) -> u32 {
    assert!(units.len() <= UNITS_PER_BLOCK * UNIT_BYTES && units.len().is_multiple_of(UNIT_BYTES));
    into.fill(0);
    let count = (units.len() / UNIT_BYTES) as u16;
    into[MAGIC_AT..][..4].copy_from_slice(&kind.magic().to_le_bytes());
    into[SEQUENCE_AT..][..8].copy_from_slice(&header.sequence.to_le_bytes());
    into[COMMIT_AT..][..8].copy_from_slice(&header.commit.to_le_bytes());
    into[CHAIN_AT..][..4].copy_from_slice(&header.chain.to_le_bytes());
    into[UNITS_AT..][..2].copy_from_slice(&count.to_le_bytes());
    into[FLAGS_AT..][..2].copy_from_slice(&u16::from(header.ends_commit).to_le_bytes());
    into[UUID_AT..][..16].copy_from_slice(&uuid.to_le_bytes());
    into[CONFIRMED_AT..][..8].copy_from_slice(&header.confirmed.to_le_bytes());
    into[FLUSHED_AT..][..8].copy_from_slice(&header.flushed.to_le_bytes());
    into[HEADER_BYTES..][..units.len()].copy_from_slice(units);
    let crc = crc_of(into);
    into[CRC_AT..][..4].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// The initial contents of each place of the journal and the intent log.
#[must_use]
pub fn empty(uuid: u128) -> [u8; JOURNAL_BLOCK_BYTES] {
    let mut block = [0; JOURNAL_BLOCK_BYTES];
    // No block has this sequence number, so older programs do not take the place for a damaged entry.
    let header =
        BlockHeader { sequence: u64::MAX, commit: 0, chain: 0, ends_commit: false, confirmed: 0, flushed: 0 };
    encode(BlockKind::Empty, uuid, &header, &[], &mut block);
    block
}

/// Whether a place of the journal or the intent log, which `kind` selects, holds other contents than the volume writes there: it is
/// torn or damaged.
#[must_use]
pub fn is_foreign(kind: BlockKind, uuid: u128, block: &[u8]) -> bool {
    [kind, BlockKind::Empty].into_iter().all(|kind| decode(kind, uuid, block).is_none())
}

/// Decodes a block: header, checksum and units. `None` if it is of another kind or volume, torn, or was never written.
#[must_use]
pub fn decode(kind: BlockKind, uuid: u128, block: &[u8]) -> Option<(BlockHeader, u32, &[u8])> {
    let u16_at = |at: usize| u16::from_le_bytes(block[at..at + 2].try_into().expect("two bytes"));
    // Kind and UUID first: the checksum of a foreign block has no meaning.
    if u32_at(block, MAGIC_AT) != kind.magic() || block[UUID_AT..UUID_AT + 16] != uuid.to_le_bytes() {
        return None;
    }
    let crc = u32_at(block, CRC_AT);
    let units = usize::from(u16_at(UNITS_AT));
    // `encode` never writes a larger count, even if the checksum is right.
    if crc != crc_of(block) || units > UNITS_PER_BLOCK || u16_at(FLAGS_AT) & !FLAG_ENDS_COMMIT != 0 {
        return None;
    }
    let header = BlockHeader {
        sequence: u64_at(block, SEQUENCE_AT),
        commit: u64_at(block, COMMIT_AT),
        chain: u32_at(block, CHAIN_AT),
        ends_commit: u16_at(FLAGS_AT) & FLAG_ENDS_COMMIT != 0,
        confirmed: u64_at(block, CONFIRMED_AT),
        flushed: u64_at(block, FLUSHED_AT),
    };
    Some((header, crc, &block[HEADER_BYTES..HEADER_BYTES + units * UNIT_BYTES]))
}

/// Units that fit into a block in any case: records are not split, so a block may have one unit unused.
const GUARANTEED_UNITS: usize = UNITS_PER_BLOCK - 1;

/// Upper bound of the blocks that `units` units take.
pub(super) fn blocks_for(units: usize) -> u64 {
    (units.div_ceil(GUARANTEED_UNITS) as u64).max(1)
}

/// Units that fit into `blocks` blocks in any case.
pub(super) fn units_in(blocks: u64) -> usize {
    blocks as usize * GUARANTEED_UNITS
}

/// Encodes records into chained blocks: one commit or entry. `next` is the header of the first block, and afterwards that of the block
/// that follows.
pub(super) fn encode_records(
    kind: BlockKind,
    uuid: u128,
    next: &mut BlockHeader,
    records: impl Iterator<Item = Record>,
) -> IoSlice {
    let chunks = chunks_of(records);
    let mut buffer = IoBuffer::zeroed(chunks.len() * JOURNAL_BLOCK_BYTES);
    for (number, into) in buffer.chunks_exact_mut(JOURNAL_BLOCK_BYTES).enumerate() {
        next.ends_commit = number + 1 == chunks.len();
        next.chain = encode(kind, uuid, next, &chunks[number], into);
        next.sequence += 1;
    }
    buffer.into()
}

/// Encodes records into the units of blocks. A record is not split.
fn chunks_of(records: impl Iterator<Item = Record>) -> Vec<Vec<u8>> {
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

/// The identifying fields of a block with a wrong checksum.
#[derive(Debug, Clone, Copy)]
pub struct DamagedHeader {
    has_magic: bool,
    has_uuid: bool,
    sequence: u64,
    commit: u64,
    chain: u32,
}

impl DamagedHeader {
    /// Reads the fields. `None` if the block decodes, or is of another kind and volume.
    #[must_use]
    pub fn of(kind: BlockKind, uuid: u128, block: &[u8]) -> Option<Self> {
        let has_magic = u32_at(block, MAGIC_AT) == kind.magic();
        let has_uuid = block[UUID_AT..UUID_AT + 16] == uuid.to_le_bytes();
        if !(has_magic || has_uuid) || decode(kind, uuid, block).is_some() {
            return None;
        }
        Some(Self {
            has_magic,
            has_uuid,
            sequence: u64_at(block, SEQUENCE_AT),
            commit: u64_at(block, COMMIT_AT),
            chain: u32_at(block, CHAIN_AT),
        })
    }

    /// Whether the block was written at this place of the chain. One of its five fields may be wrong: the damage may be in it.
    #[must_use]
    pub fn continues(&self, sequence: u64, commit: u64, chain: u32) -> bool {
        let fields = [
            self.has_magic,
            self.has_uuid,
            self.sequence == sequence,
            self.commit == commit,
            self.chain == chain,
        ];
        fields.iter().filter(|is_right| **is_right).count() >= 4
    }
}

fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"))
}

fn crc_of(block: &[u8]) -> u32 {
    crc32c_without_field(&block[..JOURNAL_BLOCK_BYTES], CRC_AT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: u128 = 0x1234_5678_9abc_def0;
    const HEADER: BlockHeader = BlockHeader {
        sequence: 77,
        commit: 9,
        chain: 0xdead_beef,
        ends_commit: true,
        confirmed: 8,
        flushed: 76,
    };

    fn block() -> Vec<u8> {
        let units: Vec<u8> = (0..48).collect();
        let mut block = vec![0xff; JOURNAL_BLOCK_BYTES];
        encode(BlockKind::Journal, UUID, &HEADER, &units, &mut block);
        block
    }

    #[test]
    fn encoded_block_decodes_to_the_same() {
        let block = block();
        let (header, crc, units) = decode(BlockKind::Journal, UUID, &block).unwrap();
        assert_eq!(header, HEADER);
        assert_eq!(crc.to_le_bytes(), block[4..8]);
        assert_eq!(units, (0..48).collect::<Vec<u8>>());
    }

    #[test]
    fn flipped_bit_is_detected() {
        let mut block = block();
        for bit in 0..JOURNAL_BLOCK_BYTES * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(BlockKind::Journal, UUID, &block).is_none(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn damaged_block_still_shows_its_place_in_the_chain() {
        let mut block = block();
        let place = |block: &[u8], sequence| {
            DamagedHeader::of(BlockKind::Journal, UUID, block)
                .is_some_and(|header| header.continues(sequence, 9, 0xdead_beef))
        };
        assert!(!place(&block, 77), "a whole block is not damaged");
        for byte in 0..JOURNAL_BLOCK_BYTES {
            block[byte] ^= 0x10;
            assert!(place(&block, 77), "byte {byte}");
            block[byte] ^= 0x10;
        }
        block[100] ^= 1;
        let at_other_place = DamagedHeader::of(BlockKind::Journal, UUID, &block).unwrap();
        assert!(!at_other_place.continues(78, 10, 0xdead_beef));
        assert!(!place(&[0; JOURNAL_BLOCK_BYTES], 77));
    }

    #[test]
    fn block_of_other_kind_or_volume_is_not_decoded() {
        let block = block();
        assert!(decode(BlockKind::Table, UUID, &block).is_none());
        assert!(decode(BlockKind::Journal, UUID + 1, &block).is_none());
        assert!(decode(BlockKind::Journal, UUID, &[0; JOURNAL_BLOCK_BYTES]).is_none());
    }

    #[test]
    fn encoding_equals_version_1() {
        let block = block();
        assert_eq!(block[..4], *b"FWJ1");
        assert_eq!(
            block[8..32],
            [77, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0xef, 0xbe, 0xad, 0xde, 3, 0, 1, 0]
        );
        assert_eq!(
            block[48..64],
            [8, 0, 0, 0, 0, 0, 0, 0, 76, 0, 0, 0, 0, 0, 0, 0],
            "zeros where nothing is known to be flushed, as in version 1"
        );
        assert_eq!(crc_of(&block), u32::from_le_bytes(block[4..8].try_into().unwrap()));
    }
}
