//! Comments and headers of text traces.
//!
//! A line that begins with `#` and does not parse as a row is a comment. A comment before all rows can be the header, as plotting programs
//! write it, unless a header without `#` follows. A header can recur among the rows if files were concatenated; a comment among the rows is
//! never a header.

use super::framing::comment_text;
use super::row_error::RowError;
use super::rows::{RowReader, Rows};

/// The result of reading a record.
pub(super) enum RecordKind {
    /// Rows were added.
    Row,
    /// A header.
    Header,
    /// A comment.
    Comment,
    /// The record describes no request.
    Wrong(RowError),
    /// An invalid header: no row can be read.
    WrongHeader(RowError),
    /// The end of the input.
    End,
}

/// State of reading a text file.
#[derive(Default)]
pub(super) struct Lines {
    /// Whether a row or a header without `#` was read.
    begun: bool,
    /// The current header; empty if there is none.
    header: Vec<u8>,
}

impl Lines {
    /// Passes the next line to `reader`.
    #[inline]
    pub(super) fn feed(&mut self, line: &[u8], reader: &mut dyn RowReader, rows: &mut Rows) -> RecordKind {
        if !self.begun
            && let Some(fed) = self.begin(line, reader)
        {
            return fed;
        }
        match reader.read(line, rows) {
            Ok(()) => RecordKind::Row,
            Err(reason) => self.handle_unparsed(line, reason, reader),
        }
    }

    /// The last header read; empty if there is none.
    pub(super) fn header(&self) -> &[u8] {
        &self.header
    }

    /// Handles a line before all rows; `None` if it is the first row.
    #[cold]
    fn begin(&mut self, line: &[u8], reader: &mut dyn RowReader) -> Option<RecordKind> {
        if let Some(text) = comment_text(line) {
            if reader.accept_comment(text) {
                return Some(self.set_header(text));
            }
            if !is_row(line, reader) {
                return Some(RecordKind::Comment);
            }
        }
        self.begun = true;
        match reader.accept_header(line) {
            Ok(true) => Some(self.set_header(line)),
            Ok(false) => None,
            Err(reason) => Some(RecordKind::WrongHeader(reason)),
        }
    }

    /// Handles a line among the rows that does not parse.
    #[cold]
    fn handle_unparsed(&mut self, line: &[u8], reason: RowError, reader: &mut dyn RowReader) -> RecordKind {
        if comment_text(line).is_some() {
            return RecordKind::Comment;
        }
        // A one-word header could be any line.
        if (self.header == line && !line.is_empty()) || reader.accept_repeated_header(line) {
            return self.set_header(line);
        }
        RecordKind::Wrong(reason)
    }

    fn set_header(&mut self, header: &[u8]) -> RecordKind {
        self.header = header.to_vec();
        RecordKind::Header
    }
}

/// A key can begin with `#`.
fn is_row(line: &[u8], reader: &mut dyn RowReader) -> bool {
    let mut rows = Rows::default();
    reader.read(line, &mut rows).is_ok() && rows.len() > 0
}
