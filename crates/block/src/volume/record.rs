//! What is told of a page, in the journal and in the tables alike.
//!
//! ```text
//!      0        4        8                   14         15      16                      32
//!      +--------+--------+-------------------+----------+-------+- - - - - - - - - - - -+
//!      | page   | crc    | block, 48 bits    | standing | flags | sectors, if partial   |
//!      | u32    | u32    |                   | u8       | u8    | u128                  |
//!      +--------+--------+-------------------+----------+-------+- - - - - - - - - - - -+
//! ```
//!
//! A record states what a page holds from now on, whatever it held before: replaying records twice changes nothing.
//! `flags`: 1 the page holds `block` (else it is free), 2 dirty, 4 partial (a second unit says which sectors are there),
//! 8 fresh (the page was written since the commit before: if a crash cut this commit off, `crc` tells whether the page
//! was), 16 epoch (a last unit has it in its first 8 bytes, the rest are zeros; in tables of ordered volumes only). `crc`
//! is CRC-32C of the page, or 0 where it is not known and the record not fresh. `standing` is how the block stood with the
//! policy when the record was made ([`Standing`]); every value makes sense, and format 1 always has 0 there.

use crate::sets::{MAX_DISK_BLOCKS, Standing};

/// Bytes of a unit: a record takes one, or two if its block is partial.
pub const UNIT_BYTES: usize = 16;

const HELD: u8 = 1;
const DIRTY: u8 = 2;
const PARTIAL: u8 = 4;
const FRESH: u8 = 8;
const EPOCH: u8 = 16;
const BLOCK_BITS: u32 = 48;
const FLAGS_SHIFT: u32 = BLOCK_BITS + 8;
const _: () = assert!(MAX_DISK_BLOCKS < 1 << BLOCK_BITS, "so the byte above was 0 before it had a meaning");

/// The sectors of 512 bytes of a block that are there, the first one in bit 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sectors(pub u128);

impl Sectors {
    /// Sectors `from` to `to`, exclusive.
    #[must_use]
    pub fn range(from: u32, to: u32) -> Self {
        let below = |bits: u32| if bits >= 128 { u128::MAX } else { (1 << bits) - 1 };
        Self(below(to) & !below(from))
    }

    /// Whether all of `other` are among them.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These and `other`.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Runs of neighbours, as ranges of sectors.
    pub fn runs(self) -> impl Iterator<Item = std::ops::Range<u32>> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let from = left.trailing_zeros();
            if from == 128 {
                return None;
            }
            let len = (left >> from).trailing_ones();
            left &= !Self::range(from, from + len).0;
            Some(from..from + len)
        })
    }
}

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Block of the disk.
    pub block: u64,
    /// Whether the disk has something older.
    pub dirty: bool,
    /// Which sectors are there; `None` is all.
    pub partial: Option<Sectors>,
    /// CRC-32C of the page, or 0 where unknown.
    pub crc: u32,
    /// Whether the page was written since the commit before.
    pub fresh: bool,
    /// The commit that brought it, if that is to be remembered; 0 is not.
    pub epoch: u64,
    /// How the block stands with the policy.
    pub standing: Standing,
}

/// A page and what it holds from now on; `None` is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The page.
    pub page: u32,
    /// What it holds.
    pub held: Option<Held>,
}

impl Record {
    /// Units that [`append_to`](Self::append_to) adds.
    #[must_use]
    pub fn units(&self) -> usize {
        1 + self.held.map_or(0, |held| usize::from(held.partial.is_some()) + usize::from(held.epoch > 0))
    }

    /// Adds the record's bytes.
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        let held = self.held.unwrap_or(Held {
            block: 0,
            dirty: false,
            partial: None,
            crc: 0,
            fresh: false,
            epoch: 0,
            standing: Standing::default(),
        });
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        let flags = flag(self.held.is_some(), HELD)
            | flag(held.dirty, DIRTY)
            | flag(held.partial.is_some(), PARTIAL)
            | flag(held.fresh, FRESH)
            | flag(held.epoch > 0, EPOCH);
        debug_assert!(held.block >> BLOCK_BITS == 0, "block {} of a disk of 2^60 bytes", held.block);
        bytes.extend_from_slice(&self.page.to_le_bytes());
        bytes.extend_from_slice(&held.crc.to_le_bytes());
        let word = held.block | u64::from(held.standing.0) << BLOCK_BITS | u64::from(flags) << FLAGS_SHIFT;
        bytes.extend_from_slice(&word.to_le_bytes());
        if let Some(sectors) = held.partial {
            bytes.extend_from_slice(&sectors.0.to_le_bytes());
        }
        if held.epoch > 0 {
            bytes.extend_from_slice(&u128::from(held.epoch).to_le_bytes());
        }
    }

    /// Takes the first record off `units`. `None` if there is none or it makes no sense, which a checksummed block
    /// never holds.
    pub fn take_from(units: &mut &[u8]) -> Option<Self> {
        let (unit, rest) = units.split_first_chunk::<UNIT_BYTES>()?;
        let page = u32::from_le_bytes(unit[0..4].try_into().expect("four bytes"));
        let crc = u32::from_le_bytes(unit[4..8].try_into().expect("four bytes"));
        let word = u64::from_le_bytes(unit[8..16].try_into().expect("eight bytes"));
        let (flags, block) = ((word >> FLAGS_SHIFT) as u8, word & ((1 << BLOCK_BITS) - 1));
        let standing = Standing((word >> BLOCK_BITS) as u8);
        *units = rest;
        if flags == 0 {
            return Some(Self { page, held: None });
        }
        if flags & !(HELD | DIRTY | PARTIAL | FRESH | EPOCH) != 0 || flags & HELD == 0 {
            return None;
        }
        let mut more = |flag: u8| -> Option<u128> {
            if flags & flag == 0 {
                return Some(0);
            }
            let (unit, rest) = units.split_first_chunk::<UNIT_BYTES>()?;
            *units = rest;
            Some(u128::from_le_bytes(*unit))
        };
        let (sectors, epoch) = (more(PARTIAL)?, u64::try_from(more(EPOCH)?).ok()?);
        let partial = (flags & PARTIAL != 0).then_some(Sectors(sectors));
        let (dirty, fresh) = (flags & DIRTY != 0, flags & FRESH != 0);
        Some(Self { page, held: Some(Held { block, dirty, partial, crc, fresh, epoch, standing }) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were() {
        let held = |block, dirty, partial| {
            let standing = Standing(block as u8);
            Some(Held { block, dirty, partial, crc: 0x0102_0304, fresh: dirty, epoch: 0, standing })
        };
        let records = [
            Record { page: 7, held: None },
            Record { page: u32::MAX - 1, held: held((1 << 48) - 1, true, None) },
            Record { page: 0, held: held(5, true, Some(Sectors::range(3, 128))) },
            Record { page: 9, held: held(6, false, None) },
            Record { page: 8, held: held(7, true, Some(Sectors(5))).map(|held| Held { epoch: 99, ..held }) },
            Record { page: 7, held: held(8, true, None).map(|held| Held { epoch: u64::MAX, ..held }) },
        ];
        let mut bytes = Vec::new();
        for record in &records {
            let before = bytes.len();
            record.append_to(&mut bytes);
            assert_eq!(bytes.len() - before, record.units() * UNIT_BYTES);
        }
        let mut units = &bytes[..];
        let back: Vec<_> = std::iter::from_fn(|| Record::take_from(&mut units)).collect();
        assert_eq!(back, records);
        assert!(units.is_empty());
    }

    /// So that a record of format 1 is read as what it was, and one of format 2 with nothing to tell is one of format 1.
    #[test]
    fn the_bytes_are_those_of_version_1_but_for_the_standing() {
        let mut held = Held {
            block: 0x0a0b_0c0d_0e0f,
            dirty: true,
            partial: None,
            crc: 0x0102_0304,
            fresh: true,
            epoch: 0,
            standing: Standing::default(),
        };
        let mut bytes = Vec::new();
        Record { page: 7, held: Some(held) }.append_to(&mut bytes);
        assert_eq!(bytes, [7, 0, 0, 0, 4, 3, 2, 1, 0xf, 0xe, 0xd, 0xc, 0xb, 0xa, 0, 11]);
        held.standing = Standing(0x82);
        Record { page: 7, held: Some(held) }.append_to(&mut bytes);
        assert_eq!(bytes[16..], [7, 0, 0, 0, 4, 3, 2, 1, 0xf, 0xe, 0xd, 0xc, 0xb, 0xa, 0x82, 11]);
    }

    #[test]
    fn unknown_flags_and_cut_off_records_are_no_records() {
        let mut bytes = Vec::new();
        let standing = Standing::default();
        let held = Held {
            block: 1,
            dirty: true,
            partial: Some(Sectors(1)),
            crc: 0,
            fresh: false,
            epoch: 0,
            standing,
        };
        Record { page: 1, held: Some(held) }.append_to(&mut bytes);
        assert_eq!(Record::take_from(&mut &bytes[..16]), None, "the mask is missing");
        for flags in [2, 4, 6, 8, 0x20, 0x41, 0x81] {
            bytes[15] = flags;
            assert_eq!(Record::take_from(&mut &bytes[..]), None, "flags {flags}");
        }
    }

    #[test]
    fn runs_of_sectors_are_found() {
        assert_eq!(Sectors(0b1110_0101).runs().collect::<Vec<_>>(), [0..1, 2..3, 5..8]);
        assert!(Sectors(u128::MAX).runs().eq(std::iter::once(0..128)));
        assert!(Sectors::range(127, 128).runs().eq(std::iter::once(127..128)));
        assert_eq!(Sectors(0).runs().count(), 0);
        assert!(Sectors::range(0, 8).contains(Sectors::range(3, 5)));
        assert!(!Sectors::range(4, 8).contains(Sectors::range(3, 5)));
    }
}
