//! The traces of the ARC paper (Megiddo and Modha, FAST '03): `.lis` lists of ranges of blocks.
//!
//! A line is `start count ignored number`, decimal numbers separated by spaces: request `number` of the trace was for `count` blocks
//! starting at block `start`. Every block is one access; there are no timestamps. The block size is not recorded: 512 bytes in the traces
//! of workstations (P1 to P14), 4096 in OLTP.
//! block has is not message: 512 bytes in the traces of workstations (P1 to P14), 4096 in OLTP.

use super::columns::{RowError, words};
use super::format::{FileOrder, Format, Pages, TimeUnits};
use super::head::Head;
use super::rows::{Object, ReaderOptions, Row, RowReader, Rows};
use crate::RequestKind;

pub(super) static FORMAT: Format = Format {
    name: "arc",
    about: "ARC's lists of block ranges: start count ignored number",
    extensions: &["lis"],
    pages: Pages::Of(4096),
    time_units: TimeUnits::Fixed(1),
    files: FileOrder::InTurn,
    plausible,
    reader,
};

/// Larger counts are invalid: no disk has as many blocks.
const MAX_BLOCKS: u64 = 1 << 32;
const SHAPE: RowError = RowError::Shape("start count ignored number");

fn reader(options: &ReaderOptions) -> Box<dyn RowReader> {
    Box::new(Reader { block_bytes: options.page_bytes.unwrap_or(4096) })
}

struct Reader {
    block_bytes: u64,
}

impl RowReader for Reader {
    fn read(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let [start, count, ..] = numbers(line).ok_or(SHAPE)?;
        if count == 0 {
            return Err(RowError::NoSize);
        }
        if count > MAX_BLOCKS {
            return Err(RowError::Number { column: "count", text: count.to_string(), max: MAX_BLOCKS });
        }
        let blocks = Object::Numbered { volume: 0, first: start, count };
        rows.push(Row::new(RequestKind::Get, blocks, self.block_bytes));
        Ok(())
    }
}

fn numbers(line: &[u8]) -> Option<[u64; 4]> {
    let (found, count) = words::<4>(line);
    if count != 4 {
        return None;
    }
    let numbers = found.map(super::columns::whole_number);
    numbers.iter().all(Option::is_some).then(|| numbers.map(Option::unwrap_or_default))
}

/// Rows checked to detect the format.
const TRIED_ROWS: usize = 32;

/// The third column is always 0, and request numbers never decrease: they are constant in OLTP and increase by one elsewhere.
fn plausible(head: &Head<'_>) -> bool {
    if head.ends_like(&FORMAT) {
        return true;
    }
    let (mut last, mut rows) = (0, 0);
    for line in head.rows().take(TRIED_ROWS) {
        let Some([_, count, ignored, number]) = numbers(line) else { return false };
        if count == 0 || ignored != 0 || number < last {
            return false;
        }
        (last, rows) = (number, rows + 1);
    }
    rows > 0
}

#[cfg(test)]
mod tests {
    use super::super::rows::only;
    use super::*;

    #[test]
    fn line_is_a_range_of_blocks() {
        let mut reader = reader(&ReaderOptions::default());
        let (row, _) = only(reader.as_mut(), b"230027 8 0 12").unwrap();
        assert_eq!(row.object, Object::Numbered { volume: 0, first: 230_027, count: 8 });
        assert_eq!((row.value_bytes, row.time_ns), (4096, None));
    }

    #[test]
    fn invalid_line_reports_the_reason() {
        for (line, message) in [
            ("1 2 3", "the row does not have the form `start count ignored number`"),
            ("1 2 3 4 5", "the row does not have the form `start count ignored number`"),
            ("1 x 3 4", "the row does not have the form `start count ignored number`"),
            ("1 0 0 4", "the size is 0"),
            (
                "1 4294967297 0 4",
                "column `count` is `4294967297`, which is not a whole number from 0 to 4294967296",
            ),
        ] {
            let error = only(reader(&ReaderOptions::default()).as_mut(), line.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), message, "{line}");
        }
    }
}
