//! The payload of a block.
//!
//! ```text
//! ```text
//! present 4 | tenants 4 | descriptor 16 of each present column | its values, column after column
//!           | tenants: name length 2, name | names, concatenated
//! descriptor   base 8 | step 4 | bytes per value 1 | 0 3
//! ```
//!
//! Bit *n* of *present* is column *n* of [`COLUMNS`]; its value in row *i* is `base + step × value i`. A missing column is 0 in every row.

use std::ops::Range;

use super::super::columns::{RowError, nanoseconds};
use super::super::rows::{Object, Row, Rows};
use super::{SECOND_NS, u32_at, u64_at};
use crate::RequestKind;

/// Rows per block: enough to amortise the descriptors, few enough for the processor's cache.
pub(super) const BLOCK_ROWS: usize = 2048;
/// Blocks with more rows are rejected as damaged.
const MOST_ROWS: usize = 1 << 16;

/// Number of columns.
pub(super) const COLUMNS: usize = 12;
/// Index into [`RequestKind::ALL`], and the flags below.
pub(super) const WHAT: usize = 0;
/// Timestamp in the header's units.
pub(super) const TIME: usize = 1;
/// Length of the value.
pub(super) const VALUE: usize = 2;
/// Length of the recorded key, if it counts towards the object's size.
pub(super) const KEY: usize = 3;
/// TTL in seconds; 0 never expires.
pub(super) const TTL: usize = 4;
/// Repeat count minus one.
pub(super) const REPEAT: usize = 5;
/// Number of the tenant in the block's table, from 1; 0 is none.
pub(super) const TENANT: usize = 6;
/// Length of the name.
pub(super) const NAME: usize = 7;
/// Bytes of the name that are stored; the rest are `0`s.
pub(super) const STORED: usize = 8;
/// A numbered object's disk, its first number, and the number of objects after the first.
pub(super) const VOLUME: usize = 9;
pub(super) const FIRST: usize = 10;
pub(super) const FOLLOWING: usize = 11;

/// Flag in `WHAT`: the object has a number instead of a name.
pub(super) const NUMBERED: u64 = 8;
/// Flag in `WHAT`: the row has a timestamp.
pub(super) const TIMED: u64 = 16;

/// Longest name: traces have at most 256 bytes, amplified ones slightly more.
pub(super) const MOST_NAME_BYTES: u64 = 1024;

/// Largest number of numbered objects per row.
pub(in crate::trace) const MOST_OBJECTS: u64 = 1 << 32;

/// The largest value of each column. Tenants are checked against the table.
const LARGEST: [u64; COLUMNS] = [
    31,
    u64::MAX,
    u64::MAX,
    u32::MAX as u64,
    u32::MAX as u64,
    u32::MAX as u64 - 1,
    u32::MAX as u64,
    MOST_NAME_BYTES,
    MOST_NAME_BYTES,
    u64::MAX,
    u64::MAX,
    MOST_OBJECTS - 1,
];

pub(super) const HEAD_BYTES: usize = 8;
pub(super) const DESCRIPTOR_BYTES: usize = 16;
/// Length field before a tenant's name.
pub(super) const TENANT_HEAD_BYTES: usize = 2;

/// A decoded block: its columns and the next row.
#[derive(Default)]
pub(super) struct Block {
    columns: [Vec<u64>; COLUMNS],
    /// Positions of the tenants' names in `names`.
    tenants: Vec<Range<usize>>,
    names: Vec<u8>,
    rows: usize,
    next: usize,
    next_name: usize,
}

impl Block {
    /// Removes the rows and keeps the allocations.
    pub(super) fn emptied(mut self) -> Self {
        (self.rows, self.next) = (0, 0);
        self
    }

    /// Replaces the rows by those of a payload; `None` if the payload is invalid, which despite a correct checksum only a faulty writer
    /// produces.
    pub(super) fn decode(&mut self, rows: usize, payload: &[u8], units_per_second: u64) -> Option<()> {
        (self.rows, self.next) = (0, 0);
        if rows > MOST_ROWS || payload.len() < HEAD_BYTES {
            return None;
        }
        let (present, tenants) = (u32_at(payload, 0), u32_at(payload, 4) as usize);
        if present >> COLUMNS != 0 || tenants > rows {
            return None;
        }
        let (descriptors, mut rest) =
            payload[HEAD_BYTES..].split_at_checked(present.count_ones() as usize * DESCRIPTOR_BYTES)?;
        let mut descriptors = descriptors.chunks_exact(DESCRIPTOR_BYTES);
        for (column, numbers) in self.columns.iter_mut().enumerate() {
            numbers.clear();
            if present >> column & 1 == 0 {
                numbers.resize(rows, 0);
                continue;
            }
            let descriptor = Descriptor::decode(descriptors.next()?);
            let (bytes, behind) = rest.split_at_checked(rows.checked_mul(descriptor.width)?)?;
            descriptor.numbers(bytes, rows, LARGEST[column], numbers)?;
            rest = behind;
        }
        self.tenants.clear();
        let mut behind = 0;
        for _ in 0..tenants {
            let start = behind + TENANT_HEAD_BYTES;
            let bytes = u16::from_le_bytes(rest.get(behind..start)?.try_into().ok()?);
            behind = start + usize::from(bytes);
            self.tenants.push(start..behind);
        }
        let most = *self.columns[TENANT].iter().max()?;
        if most > tenants as u64
            || behind as u64 + self.columns[STORED].iter().sum::<u64>() != rest.len() as u64
        {
            return None;
        }
        if units_per_second != SECOND_NS {
            self.columns[TIME].iter_mut().for_each(|time| *time = nanoseconds(*time, units_per_second));
        }
        self.names.clear();
        self.names.extend_from_slice(rest);
        self.next_name = behind;
        self.rows = rows;
        Some(())
    }

    /// Adds the next row to `into`; `None` after the last.
    #[inline]
    pub(super) fn next_row(&mut self, into: &mut Rows) -> Option<Result<(), RowError>> {
        if self.next == self.rows {
            return None;
        }
        let index = self.next;
        self.next += 1;
        let at = |column: usize| self.columns[column][index];
        let what = at(WHAT);
        let stored = at(STORED) as usize;
        let name = self.next_name..self.next_name + stored;
        self.next_name = name.end;
        let object = if what & NUMBERED == 0 {
            match into.long_name(&self.names[name], at(NAME) as usize) {
                Ok(object) => object,
                Err(reason) => return Some(Err(reason)),
            }
        } else {
            Object::Numbered { volume: at(VOLUME), first: at(FIRST), count: at(FOLLOWING) + 1 }
        };
        let ttl = at(TTL) as u32;
        let tenant = match at(TENANT) as usize {
            0 => None,
            number => into.tenant(&[&self.names[self.tenants[number - 1].clone()]]),
        };
        into.push(Row {
            kind: RequestKind::ALL[(what & 7) as usize],
            object,
            value_bytes: at(VALUE),
            key_bytes: at(KEY) as u32,
            ttl_seconds: if ttl == 0 { None } else { Some(ttl) },
            time_ns: if what & TIMED == 0 { None } else { Some(at(TIME)) },
            repeat: at(REPEAT) as u32 + 1,
            tenant,
        });
        Some(Ok(()))
    }
}

/// The encoding of a column.
pub(super) struct Descriptor {
    pub(super) base: u64,
    pub(super) step: u32,
    /// Bytes per value; 0 if all equal the base.
    pub(super) width: usize,
}

impl Descriptor {
    fn decode(bytes: &[u8]) -> Self {
        Self { base: u64_at(bytes, 0), step: u32_at(bytes, 8), width: usize::from(bytes[12]) }
    }

    pub(super) fn encode(&self) -> [u8; DESCRIPTOR_BYTES] {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        bytes[..8].copy_from_slice(&self.base.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.step.to_le_bytes());
        bytes[12] = self.width as u8;
        bytes
    }

    /// The column's values; `None` if one exceeds `largest`.
    fn numbers(&self, bytes: &[u8], rows: usize, largest: u64, into: &mut Vec<u64>) -> Option<()> {
        match self.width {
            0 => into.resize(rows, 0),
            1 => into.extend(bytes.iter().map(|byte| u64::from(*byte))),
            2 => into.extend(bytes.as_chunks().0.iter().map(|it| u64::from(u16::from_le_bytes(*it)))),
            4 => into.extend(bytes.as_chunks().0.iter().map(|it| u64::from(u32::from_le_bytes(*it)))),
            8 => into.extend(bytes.as_chunks().0.iter().map(|it| u64::from_le_bytes(*it))),
            _ => return None,
        }
        let (base, step) = (self.base, u64::from(self.step));
        let most = base.checked_add(into.iter().max()?.checked_mul(step)?)?;
        if base != 0 || step != 1 {
            into.iter_mut().for_each(|number| *number = base + step * *number);
        }
        (most <= largest).then_some(())
    }
}
