//! Flashwright's binary traces: all fields of a row, in checksummed blocks of columns.
//!
//! Parsing text is most of the cost of a replay. Here a block's column is an array of equally wide numbers, so decoding a row is a few
//! additions; a column with equal values takes only its descriptor.
//!
//! ```text
//! file     header 32 | block | block | … | end
//! header   magic 8 | version 4 | header bytes 4 | time units per second 8 | XXH3-64 of the preceding bytes 8
//! block    rows 4 | payload bytes 4 | payload | XXH3-64 of the preceding bytes 8       little-endian
//! end      0 4 | 8 4 | rows of all blocks 8 | XXH3-64 of the preceding bytes 8
//! ```
//!
//! [`block`] shows the payload. Nothing points forwards, so the file can be written and read as a stream; the end contains the number of
//! rows, and a file without it is cut off. Damage is a read error, as in compressed data: the rows before the block are valid, and the rest
//! is unreadable.

use std::io::{self, BufRead, Read as _};

use xxhash_rust::xxh3::xxh3_64;

use super::columns::RowError;
use super::format::{FileOrder, Format, Pages, TimeUnits};
use super::framing::Framing;
use super::rows::{ReaderOptions, RowReader, Rows};

mod block;
mod encode;

use block::Block;
pub(super) use block::MOST_OBJECTS;
pub(super) use encode::Encoder;

pub(super) static FORMAT: Format = Format {
    name: "binary",
    about: "flashwright's own: all columns of a row, in blocks with checksums",
    extensions: &["fwt"],
    pages: Pages::Never,
    time_units: TimeUnits::Fixed(1),
    files: FileOrder::InTurn,
    plausible: |head| head.bytes.starts_with(&MAGIC),
    reader,
};

/// A non-text byte, and line ends that a text transfer would change.
const MAGIC: [u8; 8] = *b"\x89FWT\r\n\x1a\n";
const VERSION: u32 = 1;
const SECOND_NS: u64 = 1_000_000_000;

const VERSION_AT: usize = MAGIC.len();
const HEADER_BYTES_AT: usize = VERSION_AT + 4;
const UNITS_AT: usize = HEADER_BYTES_AT + 4;
const HEADER_CHECK_AT: usize = UNITS_AT + 8;
const HEADER_BYTES: usize = HEADER_CHECK_AT + CHECK_BYTES;

/// The bytes before a block's payload and after it.
const BLOCK_HEAD_BYTES: usize = 8;
const CHECK_BYTES: usize = 8;
const END_PAYLOAD_BYTES: usize = 8;
/// Largest block that is written or accepted.
const MOST_BLOCK_BYTES: usize = 16 << 20;

fn header() -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..VERSION_AT].copy_from_slice(&MAGIC);
    bytes[VERSION_AT..HEADER_BYTES_AT].copy_from_slice(&VERSION.to_le_bytes());
    bytes[HEADER_BYTES_AT..UNITS_AT].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
    bytes[UNITS_AT..HEADER_CHECK_AT].copy_from_slice(&SECOND_NS.to_le_bytes());
    let check = xxh3_64(&bytes[..HEADER_CHECK_AT]);
    bytes[HEADER_CHECK_AT..].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// The time units of a file that begins with `head`. A newer version is reported before other checks, because its header may differ.
fn check_header(head: &[u8]) -> Result<u64, RowError> {
    if !head.starts_with(&MAGIC) {
        return Err(RowError::Marked("it does not begin with the header of a binary trace"));
    }
    let Some(header) = head.first_chunk::<HEADER_BYTES>() else {
        return Err(RowError::Cut { has_bytes: head.len(), needs_bytes: HEADER_BYTES });
    };
    let version = u32_at(header, VERSION_AT);
    if version > VERSION {
        return Err(RowError::Newer { found: version, known: VERSION });
    }
    let units = u64_at(header, UNITS_AT);
    let whole = u64_at(header, HEADER_CHECK_AT) == xxh3_64(&header[..HEADER_CHECK_AT]);
    if !whole || version == 0 || u32_at(header, HEADER_BYTES_AT) as usize != HEADER_BYTES || units == 0 {
        return Err(RowError::Marked("its header is damaged"));
    }
    Ok(units)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn reader(_: &ReaderOptions) -> Box<dyn RowReader> {
    Box::new(Reader::default())
}

/// Reads whole blocks and returns their rows one by one.
#[derive(Default)]
struct Reader {
    /// Whether the header was read.
    begun: bool,
    units_per_second: u64,
    /// The bytes of the current block, with its head and checksum.
    bytes: Vec<u8>,
    block: Block,
    blocks: u64,
    rows: u64,
    ended: bool,
}

impl RowReader for Reader {
    fn framing(&mut self, head: &[u8]) -> Result<Framing, RowError> {
        let units_per_second = check_header(head)?;
        // Also called at the start of another file, so the state of the previous one is dropped.
        let (bytes, block) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.block));
        *self = Self { units_per_second, bytes, block: block.emptied(), ..Self::default() };
        Ok(Framing::Streamed)
    }

    /// A valid header alone identifies the format.
    fn accept_header(&mut self, _head: &[u8]) -> Result<bool, RowError> {
        Ok(true)
    }

    fn read(&mut self, _record: &[u8], _rows: &mut Rows) -> Result<(), RowError> {
        Err(RowError::Marked("a binary trace has no lines"))
    }

    #[inline]
    fn read_from(
        &mut self,
        input: &mut dyn BufRead,
        rows: &mut Rows,
    ) -> io::Result<Option<Result<(), RowError>>> {
        loop {
            if let Some(row) = self.block.next_row(rows) {
                return Ok(Some(row));
            }
            if !self.next_block(input)? {
                return Ok(None);
            }
        }
    }
}

impl Reader {
    /// Reads the next block; returns false at the end.
    #[cold]
    fn next_block(&mut self, input: &mut dyn BufRead) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        if !self.begun {
            io::copy(&mut input.take(HEADER_BYTES as u64), &mut io::sink())?;
            self.begun = true;
        }
        self.blocks += 1;
        self.bytes.clear();
        self.read_on(input, BLOCK_HEAD_BYTES)?;
        let (rows, payload_bytes) = (u32_at(&self.bytes, 0) as usize, u32_at(&self.bytes, 4) as usize);
        if payload_bytes > MOST_BLOCK_BYTES {
            return Err(self.damaged());
        }
        self.read_on(input, payload_bytes + CHECK_BYTES)?;
        let (checked, check) = self.bytes.split_at(BLOCK_HEAD_BYTES + payload_bytes);
        if xxh3_64(checked) != u64_at(check, 0) {
            return Err(self.damaged());
        }
        let payload = &checked[BLOCK_HEAD_BYTES..];
        if rows > 0 {
            self.rows += rows as u64;
            return match self.block.decode(rows, payload, self.units_per_second) {
                Some(()) => Ok(true),
                None => Err(self.damaged()),
            };
        }
        let is_end = payload.len() == END_PAYLOAD_BYTES && u64_at(payload, 0) == self.rows;
        if !is_end || !input.fill_buf()?.is_empty() {
            return Err(self.damaged());
        }
        self.ended = true;
        Ok(false)
    }

    fn read_on(&mut self, input: &mut dyn BufRead, bytes: usize) -> io::Result<()> {
        if input.take(bytes as u64).read_to_end(&mut self.bytes)? == bytes {
            return Ok(());
        }
        let message = format!("the binary trace is cut off: it ends in block {}", self.blocks);
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, message))
    }

    fn damaged(&self) -> io::Error {
        let message = format!("block {} of the binary trace is damaged", self.blocks);
        io::Error::new(io::ErrorKind::InvalidData, message)
    }
}

#[cfg(test)]
mod tests;
