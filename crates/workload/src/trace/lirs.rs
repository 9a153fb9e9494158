//! The traces of the LIRS paper (Jiang and Zhang, SIGMETRICS '02): one block's number a line.
//!
//! A line with `*` is a marker for plots and is skipped. There are no timestamps and no sizes.

use super::columns::{RowError, whole_number};
use super::format::{FileOrder, Format, Pages, TimeUnits};
use super::rows::{Object, ReaderOptions, Row, RowReader, Rows};
use crate::RequestKind;

pub(super) static FORMAT: Format = Format {
    name: "lirs",
    about: "LIRS's lists: one block number per line, * marks",
    extensions: &["trc"],
    pages: Pages::Of(4096),
    time_units: TimeUnits::Fixed(1),
    files: FileOrder::InTurn,
    plausible: |_| true,
    reader,
};

const SHAPE: RowError = RowError::Shape("a block's number");

fn reader(options: &ReaderOptions) -> Box<dyn RowReader> {
    Box::new(Reader { block_bytes: options.page_bytes.unwrap_or(4096) })
}

struct Reader {
    block_bytes: u64,
}

impl RowReader for Reader {
    fn read(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let line = line.trim_ascii();
        if line.is_empty() || line == b"*" {
            return Ok(());
        }
        let block = whole_number(line).ok_or(SHAPE)?;
        rows.push(Row::new(RequestKind::Get, Object::number(block), self.block_bytes));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::only;
    use super::*;

    #[test]
    fn line_is_a_block_or_a_marker() {
        let mut reader = reader(&ReaderOptions::default());
        let (row, _) = only(reader.as_mut(), b"2819 ").unwrap();
        assert_eq!((row.object, row.value_bytes), (Object::number(2819), 4096));
        let mut rows = Rows::default();
        assert_eq!(reader.read(b"*", &mut rows), Ok(()));
        assert_eq!(rows.len(), 0);
        assert_eq!(only(reader.as_mut(), b"28 19"), Err(SHAPE));
    }
}
