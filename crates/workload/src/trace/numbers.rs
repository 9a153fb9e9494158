//! Binary numbers, one object each: the format of some traces for Caffeine's simulator. It cannot be detected, so it must be named.

use super::columns::RowError;
use super::format::{FileOrder, Format, Pages, TimeUnits};
use super::framing::Framing;
use super::rows::{Object, ReaderOptions, Row, RowReader, Rows};
use crate::RequestKind;

pub(super) static U32_LE: Format = format("u32le", "binary object numbers, 32 bits, little-endian", u32_le);
pub(super) static U32_BE: Format = format("u32be", "binary object numbers, 32 bits, big-endian", u32_be);
pub(super) static U64_LE: Format = format("u64le", "binary object numbers, 64 bits, little-endian", u64_le);
pub(super) static U64_BE: Format = format("u64be", "binary object numbers, 64 bits, big-endian", u64_be);

/// All formats of this file.
pub(super) static ALL: [&Format; 4] = [&U32_LE, &U32_BE, &U64_LE, &U64_BE];

const fn format(
    name: &'static str,
    about: &'static str,
    reader: fn(&ReaderOptions) -> Box<dyn RowReader>,
) -> Format {
    Format {
        name,
        about,
        extensions: &[],
        pages: Pages::Of(1024),
        time_units: TimeUnits::Fixed(1),
        files: FileOrder::InTurn,
        plausible: |_| false,
        reader,
    }
}

fn u32_le(options: &ReaderOptions) -> Box<dyn RowReader> {
    of::<4>(options, |bytes| u32::from_le_bytes(bytes).into())
}

fn u32_be(options: &ReaderOptions) -> Box<dyn RowReader> {
    of::<4>(options, |bytes| u32::from_be_bytes(bytes).into())
}

fn u64_le(options: &ReaderOptions) -> Box<dyn RowReader> {
    of::<8>(options, u64::from_le_bytes)
}

fn u64_be(options: &ReaderOptions) -> Box<dyn RowReader> {
    of::<8>(options, u64::from_be_bytes)
}

fn of<const N: usize>(options: &ReaderOptions, number: fn([u8; N]) -> u64) -> Box<dyn RowReader> {
    Box::new(Reader { number, object_bytes: options.page_bytes.unwrap_or(1024) })
}

struct Reader<const N: usize> {
    number: fn([u8; N]) -> u64,
    object_bytes: u64,
}

impl<const N: usize> RowReader for Reader<N> {
    fn framing(&mut self, _head: &[u8]) -> Result<Framing, RowError> {
        Ok(Framing::Fixed(N))
    }

    fn read(&mut self, record: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let Ok(bytes) = record.try_into() else {
            return Err(RowError::Cut { has_bytes: record.len(), needs_bytes: N });
        };
        rows.push(Row::new(RequestKind::Get, Object::number((self.number)(bytes)), self.object_bytes));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::only;
    use super::*;

    #[test]
    fn numbers_of_all_widths_and_byte_orders_are_read() {
        let read = |format: &Format, bytes: &[u8]| {
            only((format.reader)(&ReaderOptions::default()).as_mut(), bytes).map(|(row, _)| row.object)
        };
        assert_eq!(read(&U32_LE, b"\x01\x02\0\0"), Ok(Object::number(0x201)));
        assert_eq!(read(&U32_BE, b"\0\0\x01\x02"), Ok(Object::number(0x102)));
        assert_eq!(read(&U64_LE, b"\x01\x02\0\0\0\0\0\x80"), Ok(Object::number(0x8000_0000_0000_0201)));
        assert_eq!(read(&U64_BE, b"\x80\0\0\0\0\0\x01\x02"), Ok(Object::number(0x8000_0000_0000_0102)));
        assert_eq!(read(&U64_BE, b"\0\0\0"), Err(RowError::Cut { has_bytes: 3, needs_bytes: 8 }));
    }
}
