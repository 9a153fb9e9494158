//! Traces of the Storage Performance Council, as in the University of Massachusetts' repository (Financial1,
//! WebSearch1 and others).
//!
//! A row is `ASU,LBA,Size,Opcode,Timestamp`: the number of the application's storage unit, its block of 512 bytes,
//! bytes, `r` or `w`, seconds. What stands behind is not used.

use super::columns::{Columns, RowError, lossy, number, seconds};
use super::rows::{Extent, MAX_IO_BYTES};
use super::{Format, ReaderOptions, Row, RowReader, Rows};
use crate::RequestKind;

pub(super) static FORMAT: Format = Format {
    name: "spc",
    about: "SPC's block CSV: ASU,LBA,Size,Opcode,Timestamp",
    extensions: &["spc"],
    page_bytes: Some(4096),
    time_units_per_second: 1,
    plausible: |_| true,
    reader,
};

const ASU: usize = 0;
const LBA: usize = 1;
const SIZE: usize = 2;
const OPCODE: usize = 3;
const TIMESTAMP: usize = 4;
const FIELDS: usize = 5;

const BLOCK_BYTES: u64 = 512;

fn reader(options: &ReaderOptions) -> Box<dyn RowReader> {
    let order = [ASU, LBA, SIZE, OPCODE, TIMESTAMP];
    Box::new(Reader { columns: Columns::positional(&order), page_bytes: options.page_bytes })
}

struct Reader {
    columns: Columns<FIELDS>,
    page_bytes: Option<u64>,
}

impl RowReader for Reader {
    fn read(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        // Some of the files have spaces behind the commas.
        let fields = self.columns.split(line).map(<[u8]>::trim_ascii);
        let kind = match fields[OPCODE] {
            b"r" | b"R" => RequestKind::Get,
            b"w" | b"W" => RequestKind::Set,
            b"" => return Err(RowError::Missing("Opcode")),
            other => return Err(RowError::Operation(lossy(other))),
        };
        let unit = number(fields[ASU], "ASU", u64::MAX - 1)?.ok_or(RowError::Missing("ASU"))?;
        let block = number(fields[LBA], "LBA", u64::MAX / BLOCK_BYTES)?.ok_or(RowError::Missing("LBA"))?;
        let bytes = number(fields[SIZE], "Size", MAX_IO_BYTES)?.ok_or(RowError::Missing("Size"))?;
        let time_ns = seconds(fields[TIMESTAMP], "Timestamp")?;
        let extent = Extent { volume: unit + 1, start_bytes: block * BLOCK_BYTES, bytes };
        let (object, size) = extent.cut(self.page_bytes);
        rows.push(Row { time_ns: Some(time_ns), ..Row::new(kind, object, size) });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Object;
    use super::super::rows::only;
    use super::*;

    #[test]
    fn rows_are_read() {
        let read = |line: &str| only(reader(&ReaderOptions::default()).as_mut(), line.as_bytes());
        let (row, _) = read("0,20941264,8192,W,0.551706,x").unwrap();
        assert_eq!(row.object, Object::Numbered { volume: 1, first: 2_617_658, count: 2 });
        assert_eq!((row.kind, row.time_ns), (RequestKind::Set, Some(551_706_000)));
        assert_eq!(read("0, 1, 512, r, 0").unwrap().0.kind, RequestKind::Get);
        for (line, told) in [
            ("0,1,512,x,0", "`x` is no known operation"),
            ("0,1,512,r,", "column `Timestamp` is ``, which is no time in seconds"),
            ("0,,512,r,0", "column `LBA` is missing"),
        ] {
            assert_eq!(read(line).unwrap_err().to_string(), told, "{line}");
        }
    }
}
