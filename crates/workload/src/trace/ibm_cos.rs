//! IBM's object storage traces (Eytan, Harnik, Ofer, Friedman, Kat: "It's Time to Revisit LRU vs. FIFO", HotStorage '20; SNIA IOTTA).
//!
//! A line is `time operation object [size [first last]]`, separated by spaces: milliseconds since the trace began, an operation such as
//! `REST.GET.OBJECT`, the object's name in hexadecimal digits, its size in bytes, and the requested byte range. An access is to the whole
//! object. HEAD requests are skipped.

use super::columns::{RowError, nanoseconds, number};
use super::csv::{operation, optional_size};
use super::format::{FileOrder, Format, Pages, TimeUnits};
use super::rows::{ReaderOptions, Row, RowReader, Rows};
use crate::RequestKind;

pub(super) static FORMAT: Format = Format {
    name: "ibm-cos",
    about: "IBM's object storage traces: time REST.operation.OBJECT object size first last",
    extensions: &[],
    pages: Pages::Never,
    time_units: TimeUnits::Default(1000),
    files: FileOrder::InTurn,
    plausible: |head| {
        let reads = |line| Reader { units: 1000 }.read(line, &mut Rows::detecting()).is_ok();
        head.first_line().is_some_and(reads)
    },
    reader: |options: &ReaderOptions| Box::new(Reader { units: options.time_units_per_second }),
};

const SHAPE: RowError = RowError::Shape("time REST.operation.OBJECT object size first last");
/// Size of an object whose size is not recorded.
const UNKNOWN_SIZE_BYTES: u64 = 4096;

struct Reader {
    units: u64,
}

impl RowReader for Reader {
    fn read(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        // Some copies use commas.
        let mut words = line.split(|byte| b" \t,".contains(byte)).filter(|word| !word.is_empty());
        let mut next = || words.next().unwrap_or_default();
        let (time, op, object, size) = (next(), next(), next(), next());
        if !op.starts_with(b"REST.") || object.is_empty() {
            return Err(SHAPE);
        }
        let time = number(time, "time", u64::MAX)?.ok_or(RowError::Missing("time"))?;
        let Some(kind) = operation(op, rows)? else { return Ok(()) };
        let size = match kind {
            RequestKind::Delete => 0,
            _ => optional_size(if size.is_empty() { b"-" } else { size }, UNKNOWN_SIZE_BYTES, rows)?,
        };
        let object = rows.name(object, 0)?;
        rows.push(Row { time_ns: Some(nanoseconds(time, self.units)), ..Row::new(kind, object, size) });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::only;
    use super::*;

    fn read(line: &str) -> Result<(Row, String), RowError> {
        only(&mut Reader { units: 1000 }, line.as_bytes())
    }

    #[test]
    fn published_rows_are_read() {
        let (row, key) = read("1232488 REST.GET.OBJECT 95d363d3fbdc0b03 1168 0 1167").unwrap();
        assert_eq!((key.as_str(), row.kind, row.value_bytes), ("95d363d3fbdc0b03", RequestKind::Get, 1168));
        assert_eq!(row.time_ns, Some(1_232_488_000_000));
        let (row, _) = read("1219008 REST.PUT.OBJECT 8d4fcda3d675bac9 1056").unwrap();
        assert_eq!((row.kind, row.value_bytes), (RequestKind::Set, 1056));
        assert_eq!(read("1219009 REST.DELETE.OBJECT 8d4fcda3d675bac9").unwrap().0.kind, RequestKind::Delete);
        let mut rows = Rows::default();
        Reader { units: 1000 }.read(b"1221974 REST.HEAD.OBJECT 39d177fb735ac5df 528", &mut rows).unwrap();
        assert_eq!(rows.len(), 0);
        assert_eq!(read("1 GET a 5").unwrap_err(), SHAPE);
    }
}
