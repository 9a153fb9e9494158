//! What a text trace has besides its rows: remarks, and headers.
//!
//! A line that begins with `#` and is no row is a remark; one ahead of all rows may be the header, as plotting programs write
//! it. A header may come again among the rows, where files were joined into one.

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
    /// Whether a header or a row was met.
    begun: bool,
    /// The header; empty where there was none.
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

    /// The header of the lines that were fed; empty where there was none.
    pub(super) fn header(&self) -> &[u8] {
        &self.header
    }

    /// A line ahead of all rows; `None` if it is the first of them.
    #[cold]
    fn begin(&mut self, line: &[u8], reader: &mut dyn RowReader) -> Option<Fed> {
        let remark = remark(line).filter(|_| !is_row(line, reader));
        let is_header = match remark {
            Some(text) => reader.takes_another_header(text),
            None => match reader.takes_header(line) {
                Ok(is_header) => is_header,
                Err(reason) => return Some(Fed::WrongHeader(reason)),
            },
        };
        if is_header {
            self.header = remark.unwrap_or(line).to_vec();
        }
        self.begun = is_header || remark.is_none();
        match (is_header, remark) {
            (true, _) => Some(Fed::Header),
            (false, Some(_)) => Some(Fed::Remark),
            (false, None) => None,
        }
    }

    #[cold]
    fn no_row(&mut self, line: &[u8], reason: RowError, reader: &mut dyn RowReader) -> Fed {
        let (is_remark, text) = remark(line).map_or((false, line), |text| (true, text));
        // A header of one word could be any line.
        if (self.header == text && !text.is_empty()) || reader.takes_another_header(text) {
            return Fed::Header;
        }
        if is_remark { Fed::Remark } else { Fed::Wrong(reason) }
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
