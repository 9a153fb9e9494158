//! The first bytes of a file, by which its format is detected.

use std::path::Path;

use super::columns::{bare, looks_like_header};
use super::csv::{self, Header};
use super::framing::{comment_text, mark_bytes};

const COMPRESSIONS: [&str; 3] = ["gz", "zst", "xz"];

/// The first bytes of a file.
pub(super) struct Head<'a> {
    /// Its name in lower case, without the ending of a compression.
    pub(super) name: String,
    /// Its first bytes.
    pub(super) bytes: &'a [u8],
    /// Whether the file has no more bytes.
    pub(super) is_whole: bool,
    /// Stored, because the test is a pass over the bytes and every format needs its result.
    is_text: bool,
}

impl<'a> Head<'a> {
    pub(super) fn new(path: &Path, bytes: &'a [u8], is_whole: bool) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let is_text = is_text(bytes);
        let bytes = if is_text { &bytes[mark_bytes(bytes)..] } else { bytes };
        let compressed = COMPRESSIONS.iter().find_map(|ending| name.strip_suffix(&format!(".{ending}")));
        Self { name: compressed.unwrap_or(&name).to_owned(), bytes, is_whole, is_text }
    }

    /// Its first lines that are neither empty nor cut off.
    pub(super) fn lines(&self) -> impl Iterator<Item = &'a [u8]> {
        let text = self.bytes;
        let end = match text.iter().rposition(|byte| *byte == b'\n') {
            _ if self.is_whole => text.len(),
            Some(last) => last,
            None => 0,
        };
        let lines = text[..end].split(|byte| *byte == b'\n');
        lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)).filter(|line| !line.is_empty())
    }

    /// Its first lines from the first that is not a comment.
    pub(super) fn rows(&self) -> impl Iterator<Item = &'a [u8]> {
        self.lines().skip_while(|line| comment_text(line).is_some())
    }

    /// The first line that is not a comment.
    pub(super) fn first_line(&self) -> Option<&'a [u8]> {
        self.rows().next()
    }

    /// Candidates for the header: the first line that is not a comment, and the comment before it.
    pub(super) fn header_lines(&self) -> impl Iterator<Item = &'a [u8]> {
        let first = self.first_line();
        let comment_text = self.lines().map_while(comment_text).last();
        let comment_text = comment_text.filter(|_| !first.is_some_and(looks_like_header));
        first.into_iter().chain(comment_text)
    }

    /// Whether a header contains this column.
    pub(super) fn header_names(&self, column: &str) -> bool {
        let is_it = |name: &[u8]| bare(name).eq_ignore_ascii_case(column.as_bytes());
        self.header_lines().any(|line| line.split(|byte| *byte == b',').any(is_it))
    }

    /// Whether a header contains a request time.
    pub(super) fn header_names_time(&self) -> bool {
        self.header_lines().any(|line| line.split(|byte| *byte == b',').any(csv::is_time))
    }

    /// The header of a table with any separator.
    pub(super) fn table(&self) -> Option<Header<'a>> {
        self.table_or(Header::is_all_usual)
    }

    /// The header of a table, or a comment that could be one, for a message.
    pub(super) fn table_perhaps(&self) -> Option<Header<'a>> {
        self.table_or(|_| true)
    }

    fn table_or(&self, is_header: impl Fn(&Header<'a>) -> bool) -> Option<Header<'a>> {
        let first = self.first_line()?;
        let comment_text =
            || Header::of(self.header_lines().nth(1)?).filter(|it| it.fits(first) && is_header(it));
        if self.is_text() { Header::of(first).or_else(comment_text) } else { None }
    }

    /// Whether all bytes can occur in text.
    pub(super) fn is_text(&self) -> bool {
        self.is_text
    }
}

/// Whether all bytes can occur in text, except for stray zero bytes, which a crash can leave in a log.
pub(super) fn is_text(bytes: &[u8]) -> bool {
    const ZEROS_PER_BYTE: usize = 1024;
    let zeros = bytes.iter().filter(|byte| **byte == 0).count();
    zeros <= 1 + bytes.len() / ZEROS_PER_BYTE && is_text_or_zeros(bytes)
}

pub(super) fn is_text_or_zeros(bytes: &[u8]) -> bool {
    !bytes.iter().any(|byte| (1..b' ').contains(byte) && !b"\t\n\r".contains(byte))
}
