//! Splits a trace into records: lines of text or binary records of fixed length. They are returned in place, without copying.

use std::io::{self, BufRead, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use memchr::memchr;

use super::framing::{Framing, mark_bytes};
use super::input;
use super::lines::{Lines, RecordKind};
use super::rows::{RowReader, Rows};

const BUFFER_BYTES: usize = 1 << 20;
/// Bytes read in advance to detect the format.
const HEAD_BYTES: usize = 64 << 10;

/// The records of one file.
pub(super) struct Records {
    reader: Box<dyn Read + Send>,
    framing: Framing,
    buffer: Vec<u8>,
    /// Bytes read from the file and not returned yet.
    unread: std::ops::Range<usize>,
    number: u64,
    lines: Lines,
    ended: bool,
    /// An error from reading the head, reported when the records are read.
    failure: Option<io::Error>,
}

impl Records {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::of(input::open(path)?))
    }

    /// Like [`open`](Self::open), and adds the bytes read from the file to `taken`.
    pub(super) fn open_counting(path: &Path, taken: Arc<AtomicU64>) -> io::Result<Self> {
        Ok(Self::of(input::open_counting(path, taken)?))
    }

    fn of(reader: Box<dyn Read + Send>) -> Self {
        Self {
            reader,
            framing: Framing::Lines,
            buffer: vec![0; BUFFER_BYTES],
            unread: 0..0,
            number: 0,
            lines: Lines::default(),
            ended: false,
            failure: None,
        }
    }

    /// The first bytes of a file from which no record was read, and whether the file has no more. A later read error is reported when the
    /// records are read.
    pub(super) fn head(&mut self) -> io::Result<(&[u8], bool)> {
        while self.unread.len() < HEAD_BYTES && !self.ended && self.failure.is_none() {
            self.failure = self.refill().err();
        }
        match self.failure.take() {
            Some(failure) if self.unread.is_empty() => return Err(failure),
            other => self.failure = other,
        }
        Ok((&self.buffer[self.unread.clone()], self.ended))
    }

    /// Sets the framing before the first record is read. The default is lines.
    pub(super) fn cut(&mut self, framing: Framing) {
        self.framing = framing;
        if framing == Framing::Lines {
            self.unread.start += mark_bytes(&self.buffer[self.unread.clone()]);
        }
    }

    /// Number of the last record, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Passes the next record to `reader`, which adds rows.
    #[inline]
    pub(super) fn feed(&mut self, reader: &mut dyn RowReader, rows: &mut Rows) -> io::Result<RecordKind> {
        if self.framing == Framing::Streamed {
            let read = reader.read_from(self, rows)?;
            self.number += u64::from(read.is_some());
            return Ok(match read {
                None => RecordKind::End,
                Some(Ok(())) => RecordKind::Row,
                Some(Err(reason)) => RecordKind::Wrong(reason),
            });
        }
        let Some(range) = self.next()? else { return Ok(RecordKind::End) };
        let record = &self.buffer[range];
        if self.framing == Framing::Lines {
            return Ok(self.lines.feed(record, reader, rows));
        }
        Ok(match reader.read(record, rows) {
            Ok(()) => RecordKind::Row,
            Err(reason) => RecordKind::Wrong(reason),
        })
    }

    /// The header of the lines read; empty if there is none.
    pub(super) fn header(&self) -> &[u8] {
        self.lines.header()
    }

    /// Position of the next record in the buffer; a line without its end.
    #[inline]
    fn next(&mut self) -> io::Result<Option<std::ops::Range<usize>>> {
        loop {
            let range = match self.framing {
                Framing::Lines => self.next_line()?,
                Framing::Fixed(bytes) => self.next_fixed(bytes)?,
                Framing::Streamed => None,
            };
            let Some(range) = range else { return Ok(None) };
            self.number += 1;
            if !range.is_empty() {
                return Ok(Some(range));
            }
        }
    }

    #[inline]
    fn next_line(&mut self) -> io::Result<Option<std::ops::Range<usize>>> {
        let mut searched = self.unread.start;
        loop {
            if let Some(length) = memchr(b'\n', &self.buffer[searched..self.unread.end]) {
                let line = self.unread.start..searched + length;
                self.unread.start = line.end + 1;
                return Ok(Some(self.trimmed(line)));
            }
            if self.ended {
                let rest = self.unread.clone();
                self.unread.start = rest.end;
                return Ok(if rest.is_empty() { None } else { Some(self.trimmed(rest)) });
            }
            let length = self.unread.len();
            self.refill()?;
            searched = self.unread.start + length;
        }
    }

    fn trimmed(&self, line: std::ops::Range<usize>) -> std::ops::Range<usize> {
        if self.buffer[line.clone()].ends_with(b"\r") { line.start..line.end - 1 } else { line }
    }

    #[inline]
    fn next_fixed(&mut self, bytes: usize) -> io::Result<Option<std::ops::Range<usize>>> {
        while self.unread.len() < bytes && !self.ended {
            self.refill()?;
        }
        let record = self.unread.start..self.unread.end.min(self.unread.start + bytes);
        self.unread.start = record.end;
        Ok(if record.is_empty() { None } else { Some(record) })
    }

    /// Moves the incomplete record to the front of the buffer and reads more.
    fn refill(&mut self) -> io::Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.buffer.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        if self.unread.end == self.buffer.len() {
            return Err(io::Error::other(format!(
                "line {} is longer than {BUFFER_BYTES} bytes; this is not a text trace",
                self.number + 1
            )));
        }
        let read = input::read_some(self.reader.as_mut(), &mut self.buffer[self.unread.end..])?;
        self.unread.end += read;
        self.ended = read == 0;
        Ok(())
    }
}

/// Formats that find their records themselves read the bytes.
impl Read for Records {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let length = available.len().min(buffer.len());
        buffer[..length].copy_from_slice(&available[..length]);
        self.consume(length);
        Ok(length)
    }
}

impl BufRead for Records {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.unread.is_empty() && !self.ended {
            self.refill()?;
        }
        Ok(&self.buffer[self.unread.clone()])
    }

    fn consume(&mut self, bytes: usize) {
        self.unread.start = self.unread.end.min(self.unread.start + bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn records_of(bytes: &[u8], framing: Framing) -> io::Result<Vec<(u64, String)>> {
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(bytes)?;
        let mut records = Records::open(file.path())?;
        records.head()?;
        records.cut(framing);
        let mut found = Vec::new();
        while let Some(range) = records.next()? {
            let record = String::from_utf8_lossy(&records.buffer[range]).into_owned();
            found.push((records.number(), record));
        }
        Ok(found)
    }

    fn lines_of(bytes: &[u8]) -> io::Result<Vec<(u64, String)>> {
        records_of(bytes, Framing::Lines)
    }

    fn numbered(lines: &[(u64, &str)]) -> Vec<(u64, String)> {
        lines.iter().map(|(number, line)| (*number, (*line).to_owned())).collect()
    }

    #[test]
    fn all_line_ends_are_recognised() {
        let expected = numbered(&[(1, "a,b"), (2, "c"), (4, "d")]);
        assert_eq!(lines_of(b"a,b\nc\r\n\nd").unwrap(), expected);
        assert_eq!(lines_of(b"a,b\nc\r\n\r\nd\n").unwrap(), expected);
        assert!(lines_of(b"").unwrap().is_empty());
        assert_eq!(lines_of(b"x").unwrap(), numbered(&[(1, "x")]));
    }

    #[test]
    fn fixed_records_are_split_and_the_rest_returned() {
        let fixed = |bytes: &[u8]| records_of(bytes, Framing::Fixed(3)).unwrap();
        assert_eq!(fixed(b"abc\n\n\nx"), numbered(&[(1, "abc"), (2, "\n\n\n"), (3, "x")]));
        assert_eq!(fixed(b"abcdef"), numbered(&[(1, "abc"), (2, "def")]));
        assert!(fixed(b"").is_empty());
        let many = fixed(&b"abc".repeat(1_000_000));
        assert_eq!(many.len(), 1_000_000);
        assert!(many.iter().all(|(_, record)| record == "abc"));
    }

    #[test]
    fn endless_line_is_rejected() {
        let error = lines_of(&vec![b'x'; 3 * BUFFER_BYTES]).unwrap_err();
        assert!(error.to_string().contains("line 1 is longer than"), "{error}");
    }

    #[test]
    fn cut_archive_is_an_error() {
        // Short enough that reading the head already finds the cut.
        let whole = zstd::encode_all("some,row,of,text\n".repeat(1000).as_bytes(), 1).unwrap();
        assert_eq!(lines_of(&whole).unwrap().len(), 1000);
        assert!(lines_of(&whole[..whole.len() - 5]).is_err());
    }
}
