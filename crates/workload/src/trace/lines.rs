//! What a text trace has besides its rows: remarks, and headers.
//!
//! A line that begins with `#` and is no row is a remark. One ahead of all rows may be the header, as plotting programs write
//! it, unless a header that is no remark stands below it. A header may come again among the rows, where files were joined into
//! one; a remark among them is none, whatever it names.

use super::columns::RowError;
use super::rows::{RowReader, Rows};

/// What became of a record.
pub(super) enum Fed {
    /// It is in the rows.
    Row,
    /// It was a header.
    Header,
    /// It was a remark.
    Remark,
    /// It describes no request.
    Wrong(RowError),
    /// It is a header, and wrong: no row can be read.
    WrongHeader(RowError),
    /// There is none any more.
    End,
}

/// How far a file of lines was read.
#[derive(Default)]
pub(super) struct Lines {
    /// Whether a row was met, or a header that is no remark.
    begun: bool,
    /// The header by which rows are read; empty where there was none.
    header: Vec<u8>,
}

impl Lines {
    /// Lets `reader` make rows of the next line.
    #[inline]
    pub(super) fn feed(&mut self, line: &[u8], reader: &mut dyn RowReader, rows: &mut Rows) -> Fed {
        if !self.begun
            && let Some(fed) = self.begin(line, reader)
        {
            return fed;
        }
        match reader.read(line, rows) {
            Ok(()) => Fed::Row,
            Err(reason) => self.no_row(line, reason, reader),
        }
    }

    /// The last header of the lines that were fed; empty where there was none.
    pub(super) fn header(&self) -> &[u8] {
        &self.header
    }

    /// A line ahead of all rows; `None` if it is the first of them.
    #[cold]
    fn begin(&mut self, line: &[u8], reader: &mut dyn RowReader) -> Option<Fed> {
        if let Some(text) = remark(line) {
            if reader.takes_remark(text) {
                return Some(self.headed(text));
            }
            if !is_row(line, reader) {
                return Some(Fed::Remark);
            }
        }
        self.begun = true;
        match reader.takes_header(line) {
            Ok(true) => Some(self.headed(line)),
            Ok(false) => None,
            Err(reason) => Some(Fed::WrongHeader(reason)),
        }
    }

    /// A line among the rows that is none.
    #[cold]
    fn no_row(&mut self, line: &[u8], reason: RowError, reader: &mut dyn RowReader) -> Fed {
        if remark(line).is_some() {
            return Fed::Remark;
        }
        // A header of one word could be any line.
        if (self.header == line && !line.is_empty()) || reader.takes_another_header(line) {
            return self.headed(line);
        }
        Fed::Wrong(reason)
    }

    fn headed(&mut self, header: &[u8]) -> Fed {
        self.header = header.to_vec();
        Fed::Header
    }
}

/// What a line remarks that begins as remarks do.
pub(super) fn remark(line: &[u8]) -> Option<&[u8]> {
    let text = line.trim_ascii_start().strip_prefix(b"#")?;
    let signs = text.iter().take_while(|byte| **byte == b'#').count();
    Some(text[signs..].trim_ascii())
}

/// Keys may begin as remarks do.
fn is_row(line: &[u8], reader: &mut dyn RowReader) -> bool {
    let mut rows = Rows::default();
    reader.read(line, &mut rows).is_ok() && rows.len() > 0
}
