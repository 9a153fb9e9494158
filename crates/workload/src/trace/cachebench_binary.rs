//! CacheBench's binary traces (`binaryFileName`), little-endian, as its generator maps them into memory.
//!
//! ```text
//! file     records 8 | record 24 … | keys, concatenated | zeros up to a page of 4096
//! record   key bytes 1 | operation 1 | repeats 2 | TTL 4 | key 8 | value bytes 4 | unused 4
//! ```
//!
//! A record's *key* is an offset from the record's own start. There are no times and no tenants. Keys follow all records, so the records
//! are kept in memory, 24 bytes each, while keys are read as a stream; a key before the previous record's key, which CacheBench never
//! writes, makes the row invalid. Records of zeros were reserved by CacheBench and not used; they are skipped. Keys of 256 bytes have the
//! length 0 and are invalid rows.

use std::io::{self, BufRead, Read as _};

use super::columns::RowError;
use super::format::{FileOrder, Format, Pages, TimeUnits};
use super::framing::Framing;
use super::head::Head;
use super::rows::{ReaderOptions, Row, RowReader, Rows};
use crate::RequestKind;

pub(super) static FORMAT: Format = Format {
    name: "cachebench-binary",
    about: "CacheBench's binary key-value traces, without timestamps",
    extensions: &[],
    pages: Pages::Never,
    time_units: TimeUnits::Fixed(1),
    files: FileOrder::InTurn,
    plausible,
    reader,
};

const COUNT_BYTES: usize = 8;
const OPERATION: usize = 1;
const REPEATS: usize = 2;
const TTL: usize = 4;
const KEY: usize = 8;
const VALUE_BYTES: usize = 16;
const RECORD_BYTES: usize = 24;

/// Largest accepted number of records: 24 TB.
const MOST_RECORDS: u64 = 1 << 40;

struct Record {
    key_bytes: u8,
    operation: u8,
    repeats: u16,
    ttl: u32,
    /// Offset from the record's start.
    key: u64,
    value_bytes: u32,
}

impl Record {
    /// `None` for an unused record.
    fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let record = Self {
            key_bytes: bytes[0],
            operation: bytes[OPERATION],
            repeats: u16::from_le_bytes(part(bytes, REPEATS)),
            ttl: u32::from_le_bytes(part(bytes, TTL)),
            key: u64::from_le_bytes(part(bytes, KEY)),
            value_bytes: u32::from_le_bytes(part(bytes, VALUE_BYTES)),
        };
        bytes.iter().any(|byte| *byte != 0).then_some(record)
    }

    /// The operation, and the key's position in the file.
    fn check(&self, index: u64) -> Result<(RequestKind, u64), RowError> {
        let known = RequestKind::ALL.get(usize::from(self.operation));
        let kind = *known.ok_or_else(|| RowError::Operation(self.operation.to_string()))?;
        if self.repeats == 0 {
            return Err(RowError::NoRequest);
        }
        let own = place(index);
        match own.checked_add(self.key).filter(|_| self.key_bytes > 0) {
            Some(key) => Ok((kind, key)),
            None => Err(RowError::Missing("key")),
        }
    }
}

/// Position of record `index`.
fn place(index: u64) -> u64 {
    (COUNT_BYTES as u64).saturating_add(index.saturating_mul(RECORD_BYTES as u64))
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}

/// Whether the first records' keys are consecutive and start at the end of the records.
fn plausible(head: &Head<'_>) -> bool {
    fits(head.bytes)
}

fn fits(head: &[u8]) -> bool {
    let Some((count, records)) = head.split_first_chunk() else { return false };
    let count = u64::from_le_bytes(*count);
    if !(1..=MOST_RECORDS).contains(&count) {
        return false;
    }
    let whole = records.as_chunks::<RECORD_BYTES>().0.iter().take(count.try_into().unwrap_or(usize::MAX));
    let mut key_at = place(count);
    let mut used = 0;
    for (index, bytes) in whole.enumerate() {
        let Some(record) = Record::decode(bytes) else { continue };
        match record.check(index as u64) {
            Ok((_, key)) if key == key_at => key_at += u64::from(record.key_bytes),
            // The key's length is stored in one byte and may be truncated: the next key's position is unknown.
            _ => return false,
        }
        used += 1;
    }
    used > 0
}

fn reader(_: &ReaderOptions) -> Box<dyn RowReader> {
    Box::new(Reader::default())
}

#[derive(Default)]
struct Reader {
    /// All records, after they were read.
    records: Option<Vec<u8>>,
    next: usize,
    /// Position up to which the file was read.
    at: u64,
    /// Buffer for a key that spans two pieces of the input.
    key: Vec<u8>,
}

impl RowReader for Reader {
    fn framing(&mut self, _head: &[u8]) -> Result<Framing, RowError> {
        *self = Self::default();
        Ok(Framing::Streamed)
    }

    fn accept_header(&mut self, head: &[u8]) -> Result<bool, RowError> {
        Ok(fits(head))
    }

    fn read(&mut self, _record: &[u8], _rows: &mut Rows) -> Result<(), RowError> {
        Err(RowError::Marked("a binary trace has no lines"))
    }

    fn read_from(
        &mut self,
        input: &mut dyn BufRead,
        rows: &mut Rows,
    ) -> io::Result<Option<Result<(), RowError>>> {
        if self.records.is_none() {
            let records = read_records(input)?;
            self.at = (COUNT_BYTES + records.len()) as u64;
            self.records = Some(records);
        }
        let records = self.records.as_deref().unwrap_or_default();
        let Some(bytes) = records.as_chunks::<RECORD_BYTES>().0.get(self.next) else { return Ok(None) };
        let index = self.next as u64;
        self.next += 1;
        let Some(record) = Record::decode(bytes) else { return Ok(Some(Ok(()))) };
        let (kind, key_at) = match record.check(index) {
            Ok(checked) => checked,
            Err(reason) => return Ok(Some(Err(reason))),
        };
        let Some(gap) = key_at.checked_sub(self.at) else {
            return Ok(Some(Err(RowError::Marked("its key lies before that of the previous row"))));
        };
        let skipped = io::copy(&mut input.take(gap), &mut io::sink())?;
        let length = usize::from(record.key_bytes);
        self.at = key_at + length as u64;
        let buffered = input.fill_buf()?;
        let named = if buffered.len() >= length {
            let named = rows.name(&buffered[..length], 0);
            input.consume(length);
            named
        } else {
            self.key.clear();
            input.take(length as u64).read_to_end(&mut self.key)?;
            if skipped < gap || self.key.len() < length {
                return Err(cut(format_args!("it ends within the key of record {}", index + 1)));
            }
            rows.name(&self.key, 0)
        };
        let object = match named {
            Ok(object) => object,
            Err(reason) => return Ok(Some(Err(reason))),
        };
        rows.push(Row {
            ttl_seconds: if record.ttl == 0 { None } else { Some(record.ttl) },
            repeat: record.repeats.into(),
            ..Row::new(kind, object, record.value_bytes.into())
        });
        Ok(Some(Ok(())))
    }
}

fn read_records(input: &mut dyn BufRead) -> io::Result<Vec<u8>> {
    let mut count = [0; COUNT_BYTES];
    input.read_exact(&mut count).map_err(|_| cut(format_args!("it ends within its header")))?;
    let count = u64::from_le_bytes(count);
    let bytes = count.saturating_mul(RECORD_BYTES as u64);
    let mut records = Vec::new();
    // Allocates as the records are read, because the file's count can be wrong.
    input.take(bytes).read_to_end(&mut records)?;
    if (records.len() as u64) < bytes {
        let there = records.len() / RECORD_BYTES;
        return Err(cut(format_args!("it should have {count} records, but has {there}")));
    }
    Ok(records)
}

fn cut(message: std::fmt::Arguments<'_>) -> io::Error {
    let message = format!("the binary trace of CacheBench is cut off: {message}");
    io::Error::new(io::ErrorKind::UnexpectedEof, message)
}

#[cfg(test)]
mod tests;
