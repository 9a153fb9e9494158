//! VMware's vscsiStats traces, binary, as CloudPhysics collected them (Waldspurger et al., FAST '15).
//!
//! ```text
//! version 1, 32 bytes: ┌ number u32 ┬ bytes u32 ┬ segments u32 ┬ command u16 ┬ version u16 ┬ block u64 ┬ time µs u64 ┐
//! version 2, 40 bytes: ┌ command u16 ┬ version u16 ┬ number u32 ┬ bytes u32 ┬ segments u32 ┬ block u64 ┬ time µs u64 ┬ response u64 ┐
//! ```
//!
//! All little-endian. The version is in the upper byte of its field; commands are SCSI's, blocks have 512 bytes.
//! A request is one object, known by where it begins, unless pages are asked for: so it is in the published miss
//! ratios of these traces.

use super::columns::RowError;
use super::detect::Head;
use super::rows::Extent;
use super::{Format, Framing, ReaderOptions, Row, RowReader, Rows};
use crate::RequestKind;

pub(super) static FORMAT: Format = Format {
    name: "vscsi",
    about: "VMware's binary block traces (CloudPhysics), versions 1 and 2",
    extensions: &["vscsi", "vscsi1", "vscsi2", "vscsitrace"],
    page_bytes: None,
    time_units_per_second: 1_000_000,
    plausible,
    reader: |options: &ReaderOptions| Box::new(Reader { layout: &VERSION_1, page_bytes: options.page_bytes }),
};

/// Where the fields of a version stand.
struct Layout {
    version: u16,
    record_bytes: usize,
    command: usize,
    version_at: usize,
    bytes: usize,
    block: usize,
    time_us: usize,
}

static VERSION_1: Layout =
    Layout { version: 1, record_bytes: 32, command: 12, version_at: 14, bytes: 4, block: 16, time_us: 24 };
static VERSION_2: Layout =
    Layout { version: 2, record_bytes: 40, command: 0, version_at: 2, bytes: 8, block: 16, time_us: 24 };

const BLOCK_BYTES: u64 = 512;
const READS: [u16; 4] = [0x08, 0x28, 0xa8, 0x88];
const WRITES: [u16; 4] = [0x0a, 0x2a, 0xaa, 0x8a];

impl Layout {
    /// The version of a trace that begins like this: both of its first records say so.
    fn of(head: &[u8]) -> Option<&'static Self> {
        [&VERSION_1, &VERSION_2].into_iter().find(|layout| {
            let mut records = head.chunks_exact(layout.record_bytes).take(2).peekable();
            records.peek().is_some() && records.all(|record| layout.fits(record))
        })
    }

    fn fits(&self, record: &[u8]) -> bool {
        u16_at(record, self.version_at) >> 8 == self.version
    }
}

struct Reader {
    layout: &'static Layout,
    page_bytes: Option<u64>,
}

impl RowReader for Reader {
    fn framing(&mut self, head: &[u8]) -> Result<Framing, RowError> {
        if !head.is_empty() {
            let shape = RowError::Shape("a vscsi record of version 1 or 2");
            self.layout = Layout::of(head).ok_or(shape)?;
        }
        Ok(Framing::Fixed(self.layout.record_bytes))
    }

    fn read(&mut self, record: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let layout = self.layout;
        if record.len() < layout.record_bytes {
            return Err(RowError::Cut { has_bytes: record.len(), needs_bytes: layout.record_bytes });
        }
        if !layout.fits(record) {
            return Err(RowError::Shape("a vscsi record of the version that the trace began with"));
        }
        let kind = match u16_at(record, layout.command) {
            read if READS.contains(&read) => RequestKind::Get,
            write if WRITES.contains(&write) => RequestKind::Set,
            other => return Err(RowError::Operation(format!("SCSI command {other:#04x}"))),
        };
        let start_bytes = u64_at(record, layout.block).saturating_mul(BLOCK_BYTES);
        let bytes = u64::from(u32_at(record, layout.bytes));
        let (object, size) = Extent { volume: 0, start_bytes, bytes }.cut(self.page_bytes);
        let time_ns = u64_at(record, layout.time_us).saturating_mul(1000);
        rows.push(Row { time_ns: Some(time_ns), ..Row::new(kind, object, size) });
        Ok(())
    }
}

/// Besides the version, the first commands are reads and writes of whole blocks.
fn plausible(head: &Head<'_>) -> bool {
    let Some(layout) = Layout::of(head.bytes) else { return false };
    head.bytes.chunks_exact(layout.record_bytes).take(16).all(|record| {
        let command = u16_at(record, layout.command);
        let transfers = READS.contains(&command) || WRITES.contains(&command);
        !transfers || u64::from(u32_at(record, layout.bytes)) % BLOCK_BYTES == 0
    })
}

fn u16_at(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([record[at], record[at + 1]])
}

fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| record[at + i]))
}

fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| record[at + i]))
}

#[cfg(test)]
mod tests {
    use super::super::Object;
    use super::super::rows::only;
    use super::*;

    const WRITE_V1: &[u8; 32] =
        b"\xf4\0\0\x80\0\x02\0\0\x01\0\0\0\x2a\0\0\x01\x09\x1a\x8f\x02\0\0\0\0\x22\xcf\x82\xbe\x1f\x05\0\0";
    const READ_V2: &[u8; 40] =
        b"\x28\0\0\x02\xf4\0\0\x80\0\x10\0\0\x01\0\0\0\x09\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0";

    fn read(record: &[u8], page_bytes: Option<u64>) -> Result<Row, RowError> {
        let mut reader = (FORMAT.reader)(&ReaderOptions { page_bytes, ..ReaderOptions::default() });
        assert_eq!(reader.framing(record)?, Framing::Fixed(record.len()));
        Ok(only(reader.as_mut(), record)?.0)
    }

    #[test]
    fn golden_bytes_of_both_versions() {
        let row = read(WRITE_V1, None).unwrap();
        assert_eq!((row.kind, row.value_bytes), (RequestKind::Set, 512));
        assert_eq!(row.object, Object::number(42_932_745 * 512));
        assert_eq!(row.time_ns, Some(5_633_898_368_802_000));
        let row = read(READ_V2, Some(4096)).unwrap();
        assert_eq!((row.kind, row.value_bytes, row.time_ns), (RequestKind::Get, 4096, Some(1000)));
        assert_eq!(row.object, Object::Numbered { volume: 0, first: 1, count: 2 });
    }

    #[test]
    fn every_byte_matters_or_is_known_not_to() {
        // Number, segments and response time are not used.
        let unused = [(0..4, 8..12, 0..0), (4..8, 12..16, 32..40)];
        for (bytes, unused) in [&WRITE_V1[..], &READ_V2[..]].into_iter().zip(unused) {
            let whole = read(bytes, None).unwrap();
            for at in 0..bytes.len() {
                let mut flipped = bytes.to_vec();
                flipped[at] ^= 0x40;
                let is_unused = unused.0.contains(&at) || unused.1.contains(&at) || unused.2.contains(&at);
                // The version is in the upper byte alone.
                let is_lower_version = at == if bytes.len() == 32 { 14 } else { 2 };
                let same = read(&flipped, None).is_ok_and(|row| row == whole);
                assert_eq!(same, is_unused || is_lower_version, "byte {at} of {}", bytes.len());
            }
        }
    }
}
