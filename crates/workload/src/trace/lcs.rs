//! libCacheSim's binary traces with a header (`lcs`), versions 1 to 8 (`traceReader/generalReader/lcs.h` of libCacheSim).
//!
//! ```text
//! header   magic 8 | version 8 | statistics | magic 8       8192 bytes, 1024 in older files; little-endian, packed
//! 1        time s 4 | object 8 | size 4 | next access 8
//! 2        time s 4 | object 8 | size 4 | operation 1, tenant 3 | next access 8
//! 3        time s 4 | object 8 | size 8 | operation 1, tenant 3 | TTL s 4 | next access 8
//! 4 to 8   as 3, and 1, 2, 4, 8 or 16 features of 4 bytes, which are ignored
//! ```
//!
//! Operations are those of libCacheSim's `req_op_e`. An unset operation (0) is a get; version 1 has only gets.

use std::io::{self, BufRead, Read as _};

use super::columns::RowError;
use super::format::{FileOrder, Format, Pages, TimeUnits};
use super::framing::Framing;
use super::rows::{Object, ReaderOptions, Row, RowReader, Rows};
use crate::RequestKind;

pub(super) static FORMAT: Format = Format {
    name: "lcs",
    about: "libCacheSim's binary traces with a header, versions 1 to 8",
    extensions: &["lcs"],
    pages: Pages::Never,
    time_units: TimeUnits::Fixed(1),
    files: FileOrder::InTurn,
    plausible: |head| head.bytes.starts_with(&MAGIC),
    reader: |_: &ReaderOptions| Box::new(Reader::default()),
};

const MAGIC: [u8; 8] = 0x1234_5678_9abc_def0_u64.to_le_bytes();
const VERSION_AT: usize = MAGIC.len();
/// Lengths of the header in the two layouts. The position of the second magic identifies the layout.
const HEADER_BYTES: [usize; 2] = [8192, 1024];
/// Bytes of a record, by version from 1.
const RECORD_BYTES: [usize; 8] = [24, 28, 36, 40, 44, 52, 68, 100];

#[derive(Default)]
struct Reader {
    version: usize,
    /// Header bytes not skipped yet.
    header_bytes: usize,
    record: Vec<u8>,
    ended: bool,
}

/// Version and length of the header that a file begins with.
fn header(head: &[u8]) -> Result<(usize, usize), RowError> {
    if !head.starts_with(&MAGIC) {
        return Err(RowError::Marked("it does not begin with the header of libCacheSim's lcs traces"));
    }
    let version = head.get(VERSION_AT..VERSION_AT + 8).map_or(0, |bytes| u64_at(bytes, 0));
    if version > RECORD_BYTES.len() as u64 {
        let found = u32::try_from(version).unwrap_or(u32::MAX);
        return Err(RowError::Newer { found, known: RECORD_BYTES.len() as u32 });
    }
    let ends_at = |bytes: &&usize| head.get(**bytes - MAGIC.len()..**bytes) == Some(&MAGIC[..]);
    match HEADER_BYTES.iter().find(ends_at) {
        Some(bytes) if version > 0 => Ok((version as usize, *bytes)),
        _ if head.len() < HEADER_BYTES[1] => {
            Err(RowError::Cut { has_bytes: head.len(), needs_bytes: HEADER_BYTES[1] })
        }
        _ => Err(RowError::Marked("its header is damaged, or of a layout before version 1")),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn kind(operation: u8) -> Result<RequestKind, RowError> {
    match operation {
        0 | 1 | 2 | 12 => Ok(RequestKind::Get),
        3..=6 | 13 => Ok(RequestKind::Set),
        7 | 8 | 10 | 11 | 14 => Ok(RequestKind::Update),
        9 => Ok(RequestKind::Delete),
        other => Err(RowError::Operation(other.to_string())),
    }
}

impl Reader {
    fn row(&self, rows: &mut Rows) -> Result<Row, RowError> {
        let record = &self.record;
        let object = Object::number(u64_at(record, 4));
        let time_ns = Some(u64::from(u32_at(record, 0)) * 1_000_000_000);
        if self.version == 1 {
            return Ok(Row { time_ns, ..Row::new(RequestKind::Get, object, u64::from(u32_at(record, 12))) });
        }
        let (size, rest) = match self.version {
            2 => (u64::from(u32_at(record, 12)), 16),
            _ => (u64_at(record, 12), 20),
        };
        if i64::try_from(size).is_err() {
            let text = (size as i64).to_string();
            return Err(RowError::Number { column: "obj_size", text, max: i64::MAX as u64 });
        }
        let (kind, tenant) = (kind(record[rest])?, u32_at(record, rest) >> 8);
        let tenant = if tenant == 0 { None } else { rows.tenant(&[tenant.to_string().as_bytes()]) };
        let ttl = if self.version == 2 { 0 } else { u32_at(record, rest + 4) };
        let ttl_seconds = if ttl == 0 || ttl == u32::MAX { None } else { Some(ttl) };
        Ok(Row { time_ns, tenant, ttl_seconds, ..Row::new(kind, object, size) })
    }
}

impl RowReader for Reader {
    fn framing(&mut self, head: &[u8]) -> Result<Framing, RowError> {
        (self.version, self.header_bytes) = header(head)?;
        self.ended = false;
        Ok(Framing::Streamed)
    }

    fn accept_header(&mut self, head: &[u8]) -> Result<bool, RowError> {
        header(head).map(|_| true)
    }

    fn read(&mut self, mut record: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        // Reading from memory cannot fail.
        self.read_from(&mut record, rows).ok().flatten().unwrap_or(Ok(()))
    }

    fn read_from(
        &mut self,
        input: &mut dyn BufRead,
        rows: &mut Rows,
    ) -> io::Result<Option<Result<(), RowError>>> {
        let header_bytes = std::mem::take(&mut self.header_bytes) as u64;
        io::copy(&mut input.take(header_bytes), &mut io::sink())?;
        let needs_bytes =
            self.version.checked_sub(1).and_then(|at| RECORD_BYTES.get(at).copied()).unwrap_or(24);
        self.record.clear();
        if self.ended || input.take(needs_bytes as u64).read_to_end(&mut self.record)? == 0 {
            return Ok(None);
        }
        let has_bytes = self.record.len();
        if has_bytes < needs_bytes {
            self.ended = true;
            return Ok(Some(Err(RowError::Cut { has_bytes, needs_bytes })));
        }
        Ok(Some(self.row(rows).map(|row| rows.push(row))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u64, header_bytes: usize, record: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; header_bytes];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&version.to_le_bytes());
        bytes[header_bytes - 8..].copy_from_slice(&MAGIC);
        [bytes, record.to_vec()].concat()
    }

    /// Time 7, object 42, size 512; from version 2 on a write of tenant 3; from version 3 on a TTL of 60 seconds.
    fn record(version: usize) -> Vec<u8> {
        let mut bytes = [7_u32.to_le_bytes().to_vec(), 42_u64.to_le_bytes().to_vec()].concat();
        match version {
            1 | 2 => bytes.extend(512_u32.to_le_bytes()),
            _ => bytes.extend(512_u64.to_le_bytes()),
        }
        if version > 1 {
            bytes.extend((3_u32 << 8 | 13).to_le_bytes());
        }
        if version > 2 {
            bytes.extend(60_u32.to_le_bytes());
        }
        bytes.extend((-1_i64).to_le_bytes());
        bytes.resize(RECORD_BYTES[version - 1], 0xee);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<Result<Row, RowError>>, RowError> {
        let mut reader = Reader::default();
        reader.framing(bytes)?;
        let (mut input, mut all) = (bytes, Vec::new());
        loop {
            let mut rows = Rows::default();
            match reader.read_from(&mut input, &mut rows).expect("memory can be read") {
                None => return Ok(all),
                Some(read) => all.push(read.map(|()| rows.row(0).clone())),
            }
        }
    }

    #[test]
    fn every_version_is_read_with_both_header_layouts() {
        for version in 1..=8 {
            for header_bytes in HEADER_BYTES {
                let bytes = file(version as u64, header_bytes, &record(version).repeat(2));
                let rows = read(&bytes).unwrap();
                assert_eq!(rows.len(), 2, "version {version}");
                let row = rows[1].as_ref().unwrap();
                assert_eq!((row.object.clone(), row.value_bytes), (Object::number(42), 512));
                assert_eq!(row.time_ns, Some(7_000_000_000));
                assert_eq!(row.kind, if version == 1 { RequestKind::Get } else { RequestKind::Set });
                assert_eq!(row.ttl_seconds, if version < 3 { None } else { Some(60) });
            }
        }
    }

    #[test]
    fn damage_and_newer_versions_are_reported() {
        let message = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
        assert!(message(&file(9, 8192, &[])).contains("version 9"));
        assert!(message(&file(0, 8192, &[])).starts_with("its header is damaged"));
        assert!(message(&file(1, 1024, &[])[..100]).contains("has 100 of 1024 bytes"));
        let mut bytes = file(1, 1024, &record(1));
        bytes[1020] ^= 1;
        assert!(message(&bytes).starts_with("its header is damaged"));
        let cut = file(2, 8192, &record(2)[..20]);
        assert_eq!(read(&cut).unwrap(), [Err(RowError::Cut { has_bytes: 20, needs_bytes: 28 })]);
        let mut unknown = record(2);
        unknown[16] = 99;
        assert_eq!(read(&file(2, 8192, &unknown)).unwrap(), [Err(RowError::Operation("99".to_owned()))]);
    }
}
