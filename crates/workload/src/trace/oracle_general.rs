//! libCacheSim's binary traces (`oracleGeneral`), the format of most public cache traces.
//!
//! ```text
//! 0        4                12       16                24
//! ┌────────┬────────────────┬────────┬────────────────┐
//! │ time s │ object         │ size   │ next access    │   little-endian, packed
//! │ u32    │ u64            │ u32    │ i64            │
//! └────────┴────────────────┴────────┴────────────────┘
//! ```
//!
//! *Next access* is the number of the object's next request, counted from 1, or -1 (in some files the largest number) if there is none. All
//! requests are gets: the format has no operations.

use super::columns::RowError;
use super::format::{FileOrder, Format, Pages, TimeUnits};
use super::framing::Framing;
use super::head::Head;
use super::rows::{Object, ReaderOptions, Row, RowReader, Rows};
use crate::RequestKind;

pub(super) static FORMAT: Format = Format {
    name: "oracle-general",
    about: "libCacheSim's binary records of 24 bytes",
    extensions: &["oraclegeneral", "oraclegeneral.bin"],
    pages: Pages::Never,
    time_units: TimeUnits::Fixed(1),
    files: FileOrder::InTurn,
    plausible,
    reader,
};

const TIME: usize = 0;
const OBJECT: usize = TIME + 4;
const SIZE: usize = OBJECT + 8;
const NEXT: usize = SIZE + 4;
/// Bytes of a record.
pub(super) const RECORD_BYTES: usize = NEXT + 8;

/// The next access of an object that is not requested again.
pub(super) const NEVER: i64 = -1;

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) time_seconds: u32,
    pub(super) object: u64,
    pub(super) size_bytes: u32,
    /// Number of the object's next request, from 1; [`NEVER`] if there is none.
    pub(super) next_access: i64,
}

impl Record {
    pub(super) fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[TIME..OBJECT].copy_from_slice(&self.time_seconds.to_le_bytes());
        bytes[OBJECT..SIZE].copy_from_slice(&self.object.to_le_bytes());
        bytes[SIZE..NEXT].copy_from_slice(&self.size_bytes.to_le_bytes());
        bytes[NEXT..].copy_from_slice(&self.next_access.to_le_bytes());
        bytes
    }

    #[inline]
    pub(super) fn decode(bytes: &[u8; RECORD_BYTES]) -> Self {
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Self {
            time_seconds: u32_at(TIME),
            object: u64_at(OBJECT),
            size_bytes: u32_at(SIZE),
            next_access: u64_at(NEXT) as i64,
        }
    }
}

fn reader(_: &ReaderOptions) -> Box<dyn RowReader> {
    Box::new(Reader)
}

struct Reader;

impl RowReader for Reader {
    fn framing(&mut self, _head: &[u8]) -> Result<Framing, RowError> {
        Ok(Framing::Fixed(RECORD_BYTES))
    }

    #[inline]
    fn read(&mut self, record: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let Ok(record) = record.try_into() else {
            return Err(RowError::Cut { has_bytes: record.len(), needs_bytes: RECORD_BYTES });
        };
        let Record { time_seconds, object, size_bytes, .. } = Record::decode(record);
        let mut row = Row::new(RequestKind::Get, Object::number(object), u64::from(size_bytes));
        row.time_ns = Some(u64::from(time_seconds) * 1_000_000_000);
        rows.push(row);
        Ok(())
    }
}

/// Largest accepted request number: 24 TB of records.
const MAX_NUMBER: i64 = 1 << 40;

/// The next access must be later, at most as far as a trace is long. If the file name does not indicate the format, times must not go back,
/// and objects with further accesses must have a size.
fn plausible(head: &Head<'_>) -> bool {
    let is_named = head.ends_like(&FORMAT);
    let (records, _) = head.bytes.as_chunks::<RECORD_BYTES>();
    let mut last_seconds = 0;
    let mut holds = |(index, bytes): (usize, &[u8; RECORD_BYTES])| {
        let record = Record::decode(bytes);
        let goes_on = record.time_seconds >= std::mem::replace(&mut last_seconds, record.time_seconds);
        let is_last = [NEVER, i64::MAX].contains(&record.next_access);
        let is_ahead = is_last || (index as i64 + 2..=MAX_NUMBER).contains(&record.next_access);
        is_ahead && (is_named || goes_on && (record.size_bytes > 0 || is_last))
    };
    !records.is_empty() && records.iter().enumerate().all(&mut holds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn encoded_records_decode_unchanged(
            time_seconds in any::<u32>(), object in any::<u64>(),
            size_bytes in any::<u32>(), next_access in any::<i64>(),
        ) {
            let record = Record { time_seconds, object, size_bytes, next_access };
            prop_assert_eq!(Record::decode(&record.encode()), record);
        }
    }

    #[test]
    fn record_has_the_golden_bytes() {
        let bytes = *b"\x6a\xf7\x55\x00\x09\x1a\x8f\x02\0\0\0\0\x00\x02\0\0\xff\xff\xff\xff\xff\xff\xff\xff";
        let record =
            Record { time_seconds: 5_633_898, object: 42_932_745, size_bytes: 512, next_access: NEVER };
        assert_eq!(Record::decode(&bytes), record);
        assert_eq!(record.encode(), bytes);
    }
}
