//! The record of a page, in the journal, the intent log and the tables.
//!
//! ```text
//!      0        4        8                   14             15      16                      32
//!      +--------+--------+-------------------+--------------+-------+- - - - - - - - - - - -+
//!      | page   | crc    | block, 48 bits    | policy state | flags | sectors, if partial   |
//!      | u32    | u32    |                   | u8           | u8    | u128                  |
//!      +--------+--------+-------------------+--------------+-------+- - - - - - - - - - - -+
//! ```
//!
//! A record replaces earlier records of its page, so replaying a record twice changes nothing.
//! `flags`: 1 the page holds `block` (otherwise it is free), 2 dirty, 4 partial (a second unit lists the sectors),
//! 8 fresh (the page was written since the previous commit: `crc` shows after a crash whether the write completed),
//! 16 epoch (a last unit has it in its first 8 bytes and zeros in the rest; only in tables of ordered volumes). `crc`
//! is CRC-32C of the page, or 0 if it is unknown and the record is not fresh. The policy state is that of the block when the record was
//! made ([`PolicyState`]); every value is valid, and format 1 always has 0.

use crate::sets::{MAX_DISK_BLOCKS, PolicyState};

/// Sector size that clients may address: offsets and lengths are multiples of it.
pub const SECTOR_BYTES: u32 = 512;

/// Bytes of a unit. A record takes one, and one more each if its block is partial or has an epoch.
pub const UNIT_BYTES: usize = 16;

const HELD: u8 = 1;
const DIRTY: u8 = 2;
const PARTIAL: u8 = 4;
const FRESH: u8 = 8;
const EPOCH: u8 = 16;
const BLOCK_BITS: u32 = 48;
const FLAGS_SHIFT: u32 = BLOCK_BITS + 8;
const _: () = assert!(MAX_DISK_BLOCKS < 1 << BLOCK_BITS, "the byte above the block number was 0 in format 1");

/// A set of a block's 512-byte sectors; the first one is bit 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sectors(pub u128);

impl Sectors {
    /// Sectors `from` to `to`, exclusive.
    #[must_use]
    pub fn range(from: u32, to: u32) -> Self {
        let below = |bits: u32| if bits >= 128 { u128::MAX } else { (1 << bits) - 1 };
        Self(below(to) & !below(from))
    }

    /// Whether all of `other` are in this set.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The union of both sets.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Runs of adjacent sectors, as ranges.
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

/// The contents of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageContents {
    /// Block of the disk.
    pub block: u64,
    /// Whether the page is newer than the disk.
    pub dirty: bool,
    /// The sectors on the page; `None` means all.
    pub partial: Option<Sectors>,
    /// CRC-32C of the page, or 0 if unknown.
    pub crc: u32,
    /// Whether the page was written since the previous commit.
    pub fresh: bool,
    /// The commit that wrote the page, if it must be kept; otherwise 0.
    pub epoch: u64,
    /// Policy state of the block.
    pub policy_state: PolicyState,
}

/// A page and its contents; `None` if it is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Page number.
    pub page: u32,
    /// Contents of the page.
    pub held: Option<PageContents>,
}

impl Record {
    /// Units that [`append_to`](Self::append_to) adds.
    #[must_use]
    pub fn units(&self) -> usize {
        1 + self.held.map_or(0, |held| usize::from(held.partial.is_some()) + usize::from(held.epoch > 0))
    }

    /// Appends the encoded record.
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        let held = self.held.unwrap_or(PageContents {
            block: 0,
            dirty: false,
            partial: None,
            crc: 0,
            fresh: false,
            epoch: 0,
            policy_state: PolicyState::default(),
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
        let word =
            held.block | u64::from(held.policy_state.0) << BLOCK_BITS | u64::from(flags) << FLAGS_SHIFT;
        bytes.extend_from_slice(&word.to_le_bytes());
        if let Some(sectors) = held.partial {
            bytes.extend_from_slice(&sectors.0.to_le_bytes());
        }
        if held.epoch > 0 {
            bytes.extend_from_slice(&u128::from(held.epoch).to_le_bytes());
        }
    }

    /// Removes the first record from `units`. `None` if there is none or it is invalid, which never occurs in a block with a valid
    /// checksum.
    pub fn take_from(units: &mut &[u8]) -> Option<Self> {
        let (unit, rest) = units.split_first_chunk::<UNIT_BYTES>()?;
        let page = u32::from_le_bytes(unit[0..4].try_into().expect("four bytes"));
        let crc = u32::from_le_bytes(unit[4..8].try_into().expect("four bytes"));
        let word = u64::from_le_bytes(unit[8..16].try_into().expect("eight bytes"));
        let (flags, block) = ((word >> FLAGS_SHIFT) as u8, word & ((1 << BLOCK_BITS) - 1));
        let policy_state = PolicyState((word >> BLOCK_BITS) as u8);
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
        Some(Self {
            page,
            held: Some(PageContents { block, dirty, partial, crc, fresh, epoch, policy_state }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_records_decode_to_the_same() {
        let held = |block, dirty, partial| {
            let policy_state = PolicyState(block as u8);
            Some(PageContents {
                block,
                dirty,
                partial,
                crc: 0x0102_0304,
                fresh: dirty,
                epoch: 0,
                policy_state,
            })
        };
        let records = [
            Record { page: 7, held: None },
            Record { page: u32::MAX - 1, held: held((1 << 48) - 1, true, None) },
            Record { page: 0, held: held(5, true, Some(Sectors::range(3, 128))) },
            Record { page: 9, held: held(6, false, None) },
            Record {
                page: 8,
                held: held(7, true, Some(Sectors(5))).map(|held| PageContents { epoch: 99, ..held }),
            },
            Record {
                page: 7,
                held: held(8, true, None).map(|held| PageContents { epoch: u64::MAX, ..held }),
            },
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

    /// A record of format 2 with the default policy state equals one of format 1.
    #[test]
    fn encoding_equals_version_1_except_policy_state() {
        let mut held = PageContents {
            block: 0x0a0b_0c0d_0e0f,
            dirty: true,
            partial: None,
            crc: 0x0102_0304,
            fresh: true,
            epoch: 0,
            policy_state: PolicyState::default(),
        };
        let mut bytes = Vec::new();
        Record { page: 7, held: Some(held) }.append_to(&mut bytes);
        assert_eq!(bytes, [7, 0, 0, 0, 4, 3, 2, 1, 0xf, 0xe, 0xd, 0xc, 0xb, 0xa, 0, 11]);
        held.policy_state = PolicyState(0x82);
        Record { page: 7, held: Some(held) }.append_to(&mut bytes);
        assert_eq!(bytes[16..], [7, 0, 0, 0, 4, 3, 2, 1, 0xf, 0xe, 0xd, 0xc, 0xb, 0xa, 0x82, 11]);
    }

    #[test]
    fn unknown_flags_and_truncated_records_are_rejected() {
        let mut bytes = Vec::new();
        let policy_state = PolicyState::default();
        let held = PageContents {
            block: 1,
            dirty: true,
            partial: Some(Sectors(1)),
            crc: 0,
            fresh: false,
            epoch: 0,
            policy_state,
        };
        Record { page: 1, held: Some(held) }.append_to(&mut bytes);
        assert_eq!(Record::take_from(&mut &bytes[..16]), None, "the sector mask is missing");
        for flags in [2, 4, 6, 8, 0x20, 0x41, 0x81] {
            bytes[15] = flags;
            assert_eq!(Record::take_from(&mut &bytes[..]), None, "flags {flags}");
        }
    }

    #[test]
    fn sector_runs_are_maximal() {
        assert_eq!(Sectors(0b1110_0101).runs().collect::<Vec<_>>(), [0..1, 2..3, 5..8]);
        assert!(Sectors(u128::MAX).runs().eq(std::iter::once(0..128)));
        assert!(Sectors::range(127, 128).runs().eq(std::iter::once(127..128)));
        assert_eq!(Sectors(0).runs().count(), 0);
        assert!(Sectors::range(0, 8).contains(Sectors::range(3, 5)));
        assert!(!Sectors::range(4, 8).contains(Sectors::range(3, 5)));
    }
}
