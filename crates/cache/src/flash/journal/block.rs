//! The flash format of a journal block: removals and written regions, in the order in which they happened.
//!
//! ```text
//!      0          4        6       8            16     24        32              40         48      56
//!      +----------+--------+-------+------------+------+---------+---------------+----------+-------+
//!      | checksum | format | words | generation | boot | session | session start | position | floor |
//!      | u32      | u16    | u16   | u64        | u64  | u64     | u64           | u64      | u64   |
//!      +----------+--------+-------+------------+------+---------+---------------+----------+-------+
//!
//!      56               64        72        80
//!      +----------------+---------+---------+- ··· -+
//!      | removals floor | through | durable | words |
//!      | u64            | u64     | u64     | u64   |
//!      +----------------+---------+---------+- ··· -+
//!
//!      63   61      53                                    0
//!      +----+-------+-------------------------------------+
//!      | 1  | 0     | removed address                     |    a removal, in regions through the current one
//!      +----+-------+-------------------------------------+
//!      | 2  | sequence number                             |    the current region, for the removals that follow
//!      +----+---------------------------------------------+
//!      | 3  | sequence number                             |    a written region; two words follow: start,
//!      +----+---------------------------------------------+    and length (u32) with detail (u32)
//! ```
//!
//! The engine defines the address of an item, and the start, the length and the detail of a region.
//! All numbers are little-endian. The checksum is CRC-32C of the bytes from `format` to the last word. `through` is the current region of
//! the first removal. `boot` is 0 if the block's records survive a power cut, otherwise the mark of the system that ran.

use device::checksum::crc32c;

/// Bytes before the words.
pub const HEADER_BYTES: usize = WORDS_START;

pub(super) const FORMAT: u16 = 0x4C4B;
pub(super) const FORMAT_AT: usize = 4;
pub(super) const WORDS_AT: usize = FORMAT_AT + 2;
pub(super) const FIELDS_AT: usize = WORDS_AT + 2;
const FIELDS: usize = 9;
const WORDS_START: usize = FIELDS_AT + FIELDS * 8;

const KIND_SHIFT: u32 = 62;
const NUMBER_MASK: u64 = (1 << KIND_SHIFT) - 1;
const REMOVAL: u64 = 1;
const THROUGH: u64 = 2;
const REGION: u64 = 3;

/// Bits of a removed address.
pub const ADDRESS_BITS: u32 = 54;

/// The most words of one record.
pub const MAX_RECORD_WORDS: usize = 3;

/// The header of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Generation of the engine's content.
    pub generation: u64,
    /// 0 if the block's records survive a power cut, otherwise the mark of the running system.
    pub boot: u64,
    /// Increases with every opening of the engine.
    pub session: u64,
    /// The position of the session's first block.
    pub session_start: u64,
    /// The number of the block; its place in the ring follows from it.
    pub position: u64,
    /// Regions with smaller sequence numbers are evicted or cleared.
    pub floor: u64,
    /// Removals in regions through smaller sequence numbers are not needed; at least `floor`.
    pub removals_floor: u64,
    /// The current region at the start of the block.
    pub through: u64,
    /// Blocks of smaller positions were durable when this one was written.
    pub durable: u64,
}

/// A verified block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub header: Header,
    pub words: Box<[u64]>,
}

/// A written region. The engine defines all fields but the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionRecord {
    pub sequence: u64,
    pub start: u64,
    pub len: u32,
    pub detail: u32,
}

/// The address of a removed item, in [`ADDRESS_BITS`] bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemovedAddress(pub u64);

/// A record of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// The address is removed, in regions up to `through`.
    Removal {
        address: RemovedAddress,
        through: u64,
    },
    Region(RegionRecord),
}

/// The word of a removal.
pub fn removal_word(address: RemovedAddress) -> u64 {
    debug_assert!(address.0 < 1 << ADDRESS_BITS, "an address has few bits");
    REMOVAL << KIND_SHIFT | address.0
}

/// The journal word that changes the current region.
pub fn through_word(sequence: u64) -> u64 {
    THROUGH << KIND_SHIFT | sequence & NUMBER_MASK
}

/// The journal words that record a written region.
pub fn region_words(region: &RegionRecord) -> [u64; MAX_RECORD_WORDS] {
    let sizes = u64::from(region.len) | u64::from(region.detail) << 32;
    [REGION << KIND_SHIFT | region.sequence & NUMBER_MASK, region.start, sizes]
}

/// Words that fit a block of `block_bytes`.
pub fn words_per_block(block_bytes: u32) -> usize {
    (block_bytes as usize - HEADER_BYTES) / 8
}

/// Writes a block into zeroed bytes.
///
/// # Panics
/// If the words do not fit.
pub fn encode(header: &Header, words: &[u64], bytes: &mut [u8]) {
    bytes[FORMAT_AT..WORDS_AT].copy_from_slice(&FORMAT.to_le_bytes());
    let count = u16::try_from(words.len()).expect("a block has few words");
    bytes[WORDS_AT..FIELDS_AT].copy_from_slice(&count.to_le_bytes());
    let Header { generation, boot, session, session_start, position, .. } = *header;
    let Header { floor, removals_floor, through, durable, .. } = *header;
    let fields =
        [generation, boot, session, session_start, position, floor, removals_floor, through, durable];
    let end = WORDS_START + words.len() * 8;
    let numbers = fields.iter().chain(words);
    for (to, number) in bytes[FIELDS_AT..end].chunks_exact_mut(8).zip(numbers) {
        to.copy_from_slice(&number.to_le_bytes());
    }
    let checksum = crc32c(&bytes[FORMAT_AT..end]);
    bytes[..FORMAT_AT].copy_from_slice(&checksum.to_le_bytes());
}

/// Decodes a block; `None` if it was never written, or is damaged.
pub fn decode(bytes: &[u8]) -> Option<Block> {
    let count = usize::from(u16::from_le_bytes(bytes.get(WORDS_AT..FIELDS_AT)?.try_into().ok()?));
    let content = bytes.get(FORMAT_AT..WORDS_START + count * 8)?;
    let checksum = u32::from_le_bytes(bytes[..FORMAT_AT].try_into().ok()?);
    if checksum != crc32c(content) || content[..2] != FORMAT.to_le_bytes() {
        return None;
    }
    let mut numbers = content[FIELDS_AT - FORMAT_AT..]
        .chunks_exact(8)
        .map(|it| u64::from_le_bytes(it.try_into().expect("eight bytes")));
    let mut next = || numbers.next().expect("the header is whole");
    let header = Header {
        generation: next(),
        boot: next(),
        session: next(),
        session_start: next(),
        position: next(),
        floor: next(),
        removals_floor: next(),
        through: next(),
        durable: next(),
    };
    let block = Block { header, words: numbers.collect() };
    // Checked completely, because records are used without further checks.
    (is_in_range(&header) && block.is_well_formed()).then_some(block)
}

/// Larger numbers cannot occur; the limit prevents an overflow of the next ones.
fn is_in_range(header: &Header) -> bool {
    let Header { session, session_start, position, floor, removals_floor, through, durable, .. } = *header;
    [session, position, removals_floor, through].into_iter().all(|number| number < NUMBER_MASK / 2)
        && (1..=removals_floor).contains(&floor)
        && session_start <= position
        && durable <= position
}

impl Block {
    fn is_well_formed(&self) -> bool {
        let mut at = 0;
        while let Some(&word) = self.words.get(at) {
            let is_valid = match word >> KIND_SHIFT {
                REMOVAL => word & NUMBER_MASK < 1 << ADDRESS_BITS,
                THROUGH => word & NUMBER_MASK < NUMBER_MASK / 2,
                REGION => {
                    word & NUMBER_MASK < NUMBER_MASK / 2
                        && self.words.get(at + 1).is_some_and(|&start| start < NUMBER_MASK / 2)
                        && at + 2 < self.words.len()
                }
                _ => false,
            };
            if !is_valid {
                return false;
            }
            at += record_words(word);
        }
        true
    }

    /// The records in their order.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let (mut at, mut through) = (0, self.header.through);
        std::iter::from_fn(move || {
            loop {
                let word = *self.words.get(at)?;
                let from = at;
                at += record_words(word);
                match word >> KIND_SHIFT {
                    THROUGH => through = word & NUMBER_MASK,
                    REGION => return Some(Record::Region(region_of(&self.words[from..at]))),
                    _ => {
                        let address = RemovedAddress(word & NUMBER_MASK);
                        return Some(Record::Removal { address, through });
                    }
                }
            }
        })
    }

    /// The current region at the end of the block.
    pub fn last_through(&self) -> u64 {
        let (mut at, mut through) = (0, self.header.through);
        while let Some(&word) = self.words.get(at) {
            if word >> KIND_SHIFT == THROUGH {
                through = word & NUMBER_MASK;
            }
            at += record_words(word);
        }
        through
    }
}

fn record_words(first: u64) -> usize {
    if first >> KIND_SHIFT == REGION { MAX_RECORD_WORDS } else { 1 }
}

fn region_of(words: &[u64]) -> RegionRecord {
    RegionRecord {
        sequence: words[0] & NUMBER_MASK,
        start: words[1],
        len: words[2] as u32,
        detail: (words[2] >> 32) as u32,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADER: Header = Header {
        generation: 0x1122_3344_5566_7788,
        boot: 9,
        session: 3,
        session_start: 40,
        position: 41,
        floor: 100,
        removals_floor: 120,
        through: 130,
        durable: 41,
    };
    const ADDRESS: RemovedAddress = RemovedAddress(0x003F_07FE_DEAD_BEEF);
    const LAST: RemovedAddress = RemovedAddress(1 << 32);
    const WRITTEN: RegionRecord = RegionRecord { sequence: 131, start: 77, len: 12, detail: 11 };

    fn sample_words() -> Vec<u64> {
        let mut words = vec![removal_word(ADDRESS), through_word(131)];
        words.extend(region_words(&WRITTEN));
        words.push(removal_word(LAST));
        words
    }

    fn sample() -> Vec<u8> {
        let mut bytes = vec![0; 512];
        encode(&HEADER, &sample_words(), &mut bytes);
        bytes
    }

    #[test]
    fn encoded_block_returns_its_records_in_order() {
        let block = decode(&sample()).expect("the block is valid");
        assert_eq!(block.header, HEADER);
        let expected = [
            Record::Removal { address: ADDRESS, through: 130 },
            Record::Region(WRITTEN),
            Record::Removal { address: LAST, through: 131 },
        ];
        assert_eq!(block.records().collect::<Vec<_>>(), expected);
        assert_eq!(block.last_through(), 131);
    }

    #[test]
    fn block_has_its_golden_bytes() {
        let bytes = sample();
        let fields =
            [0x1122_3344_5566_7788_u64, 9, 3, 40, 41, 100, 120, 130, 41].map(u64::to_le_bytes).concat();
        let content = [
            &[0x4B, 0x4C][..],
            &[6, 0],
            &fields,
            &[0xEF, 0xBE, 0xAD, 0xDE, 0xFE, 0x07, 0x3F, 0x40],
            &[131, 0, 0, 0, 0, 0, 0, 0x80],
            &[131, 0, 0, 0, 0, 0, 0, 0xC0],
            &[77, 0, 0, 0, 0, 0, 0, 0],
            &[12, 0, 0, 0, 11, 0, 0, 0],
            &[0, 0, 0, 0, 1, 0, 0, 0x40],
        ]
        .concat();
        assert_eq!(&bytes[4..4 + content.len()], &content[..]);
        assert_eq!(bytes[..4], crc32c(&content).to_le_bytes());
        assert!(bytes[4 + content.len()..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn every_flipped_bit_of_header_and_records_is_detected() {
        let bytes = sample();
        for at in 0..HEADER_BYTES + sample_words().len() * 8 {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                assert_eq!(decode(&changed), None, "byte {at}, bit {bit}");
            }
        }
        assert_eq!(decode(&[0; 512]), None);
    }

    #[test]
    fn region_record_without_its_last_word_is_refused() {
        let mut bytes = vec![0; 512];
        encode(&HEADER, &region_words(&WRITTEN)[..2], &mut bytes);
        assert_eq!(decode(&bytes), None);
    }

    proptest! {
        #[test]
        fn arbitrary_words_with_a_right_checksum_are_refused_or_decoded_without_panic(
            fields in proptest::array::uniform9(any::<u64>()),
            words in proptest::collection::vec(any::<u64>(), 0..50),
        ) {
            let [generation, boot, session, session_start, position, floor, removals_floor, through, durable] = fields;
            let header = Header {
                generation, boot, session, session_start, position, floor, removals_floor, through, durable,
            };
            let mut bytes = vec![0; 512];
            encode(&header, &words, &mut bytes);
            if let Some(block) = decode(&bytes) {
                prop_assert_eq!(&block.words[..], &words[..]);
                prop_assert!(block.records().count() <= words.len());
                prop_assert!(block.last_through() < NUMBER_MASK / 2);
            }
        }
    }
}
