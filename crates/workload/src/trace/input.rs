//! Lines of trace files: plain, gzip or zstd, one file after the other.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use memchr::memchr;

const BUFFER_BYTES: usize = 1 << 20;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The lines of one file, decompressed as its first bytes ask for. Lines are handed out in place, without
/// copying.
pub(super) struct Lines {
    reader: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// What has been read and not handed out.
    unread: std::ops::Range<usize>,
    number: u64,
    ended: bool,
}

impl Lines {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            reader: decompressed(File::open(path)?)?,
            buffer: vec![0; BUFFER_BYTES],
            unread: 0..0,
            number: 0,
            ended: false,
        })
    }

    /// Number of the line that was handed out last, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The next line, without its end. Empty lines are left out, but counted.
    pub(super) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        loop {
            let Some(line) = self.next_range()? else { return Ok(None) };
            self.number += 1;
            let line = trimmed(&self.buffer, line);
            if !line.is_empty() {
                return Ok(Some(&self.buffer[line]));
            }
        }
    }

    fn next_range(&mut self) -> io::Result<Option<std::ops::Range<usize>>> {
        let mut searched = self.unread.start;
        loop {
            if let Some(length) = memchr(b'\n', &self.buffer[searched..self.unread.end]) {
                let line = self.unread.start..searched + length;
                self.unread.start = line.end + 1;
                return Ok(Some(line));
            }
            if self.ended {
                let rest = self.unread.clone();
                self.unread.start = rest.end;
                return Ok(if rest.is_empty() { None } else { Some(rest) });
            }
            let length = self.unread.len();
            self.refill()?;
            searched = self.unread.start + length;
        }
    }

    /// Moves the broken line to the front and reads behind it.
    fn refill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        if self.unread.end == self.buffer.len() {
            return Err(io::Error::other(format!(
                "line {} is longer than {BUFFER_BYTES} bytes; this is no text trace",
                self.number + 1
            )));
        }
        let read = read_some(self.reader.as_mut(), &mut self.buffer[self.unread.end..])?;
        self.unread.end += read;
        self.ended = read == 0;
        Ok(())
    }
}

fn trimmed(buffer: &[u8], line: std::ops::Range<usize>) -> std::ops::Range<usize> {
    if buffer[line.clone()].ends_with(b"\r") { line.start..line.end - 1 } else { line }
}

fn read_some(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn decompressed(mut file: File) -> io::Result<Box<dyn Read + Send>> {
    let mut magic = [0; 4];
    let mut known = 0;
    while known < magic.len() {
        match read_some(&mut file, &mut magic[known..])? {
            0 => break,
            read => known += read,
        }
    }
    let whole = io::Cursor::new(magic).take(known as u64).chain(file);
    if magic[..known].starts_with(&GZIP_MAGIC) {
        // Several gzip members in one file are one text: log rotation and pigz write such files.
        return Ok(Box::new(flate2::bufread::MultiGzDecoder::new(BufReader::with_capacity(
            BUFFER_BYTES,
            whole,
        ))));
    }
    if magic[..known] == ZSTD_MAGIC {
        return Ok(Box::new(zstd::Decoder::new(whole)?));
    }
    Ok(Box::new(whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn lines_of(bytes: &[u8]) -> io::Result<Vec<(u64, String)>> {
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(bytes)?;
        let mut lines = Lines::open(file.path())?;
        let mut found = Vec::new();
        while let Some(line) = lines.next()? {
            let line = String::from_utf8_lossy(line).into_owned();
            found.push((lines.number(), line));
        }
        Ok(found)
    }

    fn numbered(lines: &[(u64, &str)]) -> Vec<(u64, String)> {
        lines.iter().map(|(number, line)| (*number, (*line).to_owned())).collect()
    }

    #[test]
    fn every_way_to_end_a_line() {
        let expected = numbered(&[(1, "a,b"), (2, "c"), (4, "d")]);
        assert_eq!(lines_of(b"a,b\nc\r\n\nd").unwrap(), expected);
        assert_eq!(lines_of(b"a,b\nc\r\n\r\nd\n").unwrap(), expected);
        assert!(lines_of(b"").unwrap().is_empty());
        assert_eq!(lines_of(b"x").unwrap(), numbered(&[(1, "x")]));
    }

    #[test]
    fn compressed_files_read_like_plain_ones() {
        let text: String = (0..200_000).map(|i| format!("{i},key{}\n", i * 7919 % 1000)).collect();
        let plain = lines_of(text.as_bytes()).unwrap();
        assert_eq!(plain.len(), 200_000);
        assert_eq!(plain[199_999], (200_000, "199999,key81".to_owned()));
        let (front, back) = text.as_bytes().split_at(text.len() / 3);
        assert_eq!(lines_of(&[gzip(front), gzip(back)].concat()).unwrap(), plain);
        let frames = [zstd::encode_all(front, 1).unwrap(), zstd::encode_all(back, 1).unwrap()];
        assert_eq!(lines_of(&frames.concat()).unwrap(), plain);
    }

    #[test]
    fn a_cut_archive_is_an_error_and_not_a_short_trace() {
        let whole = gzip("some,row,of,text\n".repeat(1000).as_bytes());
        assert!(lines_of(&whole[..whole.len() - 20]).is_err());
        let whole = zstd::encode_all("some,row,of,text\n".repeat(1000).as_bytes(), 1).unwrap();
        assert!(lines_of(&whole[..whole.len() - 5]).is_err());
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let error = lines_of(&vec![b'x'; 3 * BUFFER_BYTES]).unwrap_err();
        assert!(error.to_string().contains("line 1 is longer than"), "{error}");
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }
}
