//! webcachesim's text traces: `time id size`, separated by spaces, and any number of ignored features.

use super::columns::{RowError, nanoseconds, number, seconds, whole_number, words};
use super::csv::Header;
use super::format::{FileOrder, Format, Pages, TimeUnits};
use super::head::Head;
use super::rows::{ReaderOptions, Row, RowReader, Rows};
use crate::RequestKind;

pub(super) static FORMAT: Format = Format {
    name: "webcachesim",
    about: "text: time id size, separated by spaces",
    extensions: &["tr"],
    pages: Pages::Never,
    time_units: TimeUnits::Default(1),
    files: FileOrder::InTurn,
    plausible: |head| {
        head.ends_like(&FORMAT)
            || head.first_line().is_some_and(|line| words::<3>(line).1 == 3)
            || has_one_feature(head)
    },
    reader: |options: &ReaderOptions| Box::new(Reader { units_per_second: options.time_units_per_second }),
};

/// Whether the rows look like LRB's: four numbers, the first a time that never decreases, the third a size above 0. Tables with more
/// columns are ambiguous.
fn has_one_feature(head: &Head<'_>) -> bool {
    const TRIED_ROWS: usize = 32;
    let (mut last, mut rows) = (0, 0);
    for line in head.rows().filter(|line| Header::of(line).is_none()).take(TRIED_ROWS) {
        let (cells, count) = words::<4>(line);
        let [Some(time), Some(_), Some(size), Some(_)] = cells.map(whole_number) else { return false };
        if count != 4 || size == 0 || time < last {
            return false;
        }
        (last, rows) = (time, rows + 1);
    }
    rows > 1
}

struct Reader {
    units_per_second: u64,
}

/// Names of the columns in a header.
const COLUMNS: [&str; 3] = ["time", "key", "size"];

impl RowReader for Reader {
    /// The published traces have no header.
    fn accept_header(&mut self, line: &[u8]) -> Result<bool, RowError> {
        let header = Header::of(line).filter(Header::is_spaced);
        match header.map(|header| header.contradicts(&COLUMNS)) {
            Some(Some(contradiction)) => Err(contradiction),
            header => Ok(header.is_some()),
        }
    }

    fn accept_comment(&mut self, text: &[u8]) -> bool {
        Header::of(text).is_some_and(|header| header.is_all_usual())
            && matches!(self.accept_header(text), Ok(true))
    }

    fn accept_repeated_header(&mut self, line: &[u8]) -> bool {
        matches!(self.accept_header(line), Ok(true))
    }

    fn read(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let ([time, id, size], count) = words::<3>(line);
        if count < 3 {
            return Err(RowError::Shape("time id size"));
        }
        let time_ns = match number(time, "time", u64::MAX) {
            Ok(units) => nanoseconds(units.unwrap_or(0), self.units_per_second),
            Err(_) if self.units_per_second == 1 => seconds(time, "time")?,
            Err(error) => return Err(error),
        };
        let size = number(size, "size", u64::MAX)?.unwrap_or(0);
        let object = rows.name(id, 0)?;
        rows.push(Row { time_ns: Some(time_ns), ..Row::new(RequestKind::Get, object, size) });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::only;
    use super::*;

    #[test]
    fn row_is_read() {
        let read = |line: &str| only((FORMAT.reader)(&ReaderOptions::default()).as_mut(), line.as_bytes());
        let (row, id) = read("4 17 120 0 3").unwrap();
        assert_eq!((id.as_str(), row.value_bytes, row.time_ns), ("17", 120, Some(4_000_000_000)));
        assert_eq!(read("4.5\tx 1").unwrap().0.time_ns, Some(4_500_000_000));
        assert_eq!(read("4 17").unwrap_err().to_string(), "the row does not have the form `time id size`");
        let message = read("4 17 -1").unwrap_err().to_string();
        assert_eq!(
            message,
            "column `size` is `-1`, which is not a whole number from 0 to 18446744073709551615"
        );
    }
}
