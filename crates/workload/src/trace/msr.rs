//! MSR Cambridge's block traces (Narayanan, Donnelly and Rowstron, FAST '08), from SNIA's IOTTA.
//!
//! A row is `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`: Windows file time (100 ns since 1601),
//! `Read` or `Write`, bytes. Host and disk together are a disk of their own.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::columns::{Columns, RowError, lossy, number};
use super::rows::{Extent, MAX_IO_BYTES};
use super::{Format, ReaderOptions, Row, RowReader, Rows};
use crate::RequestKind;

pub(super) static FORMAT: Format = Format {
    name: "msr",
    about: "MSR Cambridge's block CSV: Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
    extensions: &[],
    page_bytes: Some(4096),
    time_units_per_second: 10_000_000,
    plausible: |_| true,
    reader,
};

const NAMES: [&str; 6] = ["Timestamp", "Hostname", "DiskNumber", "Type", "Offset", "Size"];
const TIMESTAMP: usize = 0;
const HOSTNAME: usize = 1;
const DISK_NUMBER: usize = 2;
const TYPE: usize = 3;
const OFFSET: usize = 4;
const SIZE: usize = 5;

const UNIT_NS: u64 = 100;

fn reader(options: &ReaderOptions) -> Box<dyn RowReader> {
    let order = [TIMESTAMP, HOSTNAME, DISK_NUMBER, TYPE, OFFSET, SIZE];
    Box::new(Reader { columns: Columns::positional(&order), page_bytes: options.page_bytes })
}

struct Reader {
    columns: Columns<{ NAMES.len() }>,
    page_bytes: Option<u64>,
}

impl RowReader for Reader {
    fn takes_header(&mut self, line: &[u8]) -> Result<bool, RowError> {
        if self.read(line, &mut Rows::default()).is_ok() {
            return Ok(false);
        }
        self.columns.take_header(line, &NAMES, &[TYPE, OFFSET, SIZE])
    }

    fn read(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let fields = self.columns.split(line);
        let kind = match fields[TYPE] {
            word if word.eq_ignore_ascii_case(b"read") => RequestKind::Get,
            word if word.eq_ignore_ascii_case(b"write") => RequestKind::Set,
            b"" => return Err(RowError::Missing("Type")),
            other => return Err(RowError::Operation(lossy(other))),
        };
        let time = number(fields[TIMESTAMP], "Timestamp", u64::MAX / UNIT_NS)?;
        let start_bytes = number(fields[OFFSET], "Offset", u64::MAX)?.ok_or(RowError::Missing("Offset"))?;
        let bytes = number(fields[SIZE], "Size", MAX_IO_BYTES)?.ok_or(RowError::Missing("Size"))?;
        let disk = number(fields[DISK_NUMBER], "DiskNumber", u64::MAX)?.unwrap_or(0);
        let volume = xxh3_64_with_seed(fields[HOSTNAME], disk);
        let (object, size) = Extent { volume, start_bytes, bytes }.cut(self.page_bytes);
        rows.push(Row { time_ns: time.map(|time| time * UNIT_NS), ..Row::new(kind, object, size) });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Object;
    use super::super::rows::only;
    use super::*;

    fn read(line: &str, page_bytes: Option<u64>) -> Result<Row, RowError> {
        let mut reader = reader(&ReaderOptions { page_bytes, ..ReaderOptions::default() });
        Ok(only(reader.as_mut(), line.as_bytes())?.0)
    }

    #[test]
    fn a_row_is_the_pages_that_it_touches() {
        let row = read("128166372003061629,hm,1,Read,383496000,8192,1331", Some(4096)).unwrap();
        let Object::Numbered { first, count, .. } = row.object else { panic!("blocks have numbers") };
        assert_eq!((first, count, row.value_bytes), (93_626, 3, 4096));
        assert_eq!(row.time_ns, Some(12_816_637_200_306_162_900));
        let row = read("1,hm,1,Write,383496000,8192,1331", None).unwrap();
        let Object::Numbered { first, count, .. } = row.object else { panic!("blocks have numbers") };
        assert_eq!((first, count, row.value_bytes, row.kind), (383_496_000, 1, 8192, RequestKind::Set));
    }

    #[test]
    fn disks_of_hosts_are_told_apart() {
        let rows = ["1,hm,1,Read,0,1,1", "1,hm,0,Read,0,1,1", "1,mh,1,Read,0,1,1"];
        let objects = rows.map(|line| read(line, Some(512)).unwrap().object);
        assert!(objects[0] != objects[1] && objects[0] != objects[2] && objects[1] != objects[2]);
    }

    #[test]
    fn bad_rows_say_why() {
        for (line, told) in [
            ("1,hm,1,Raed,0,1,1", "`Raed` is no known operation"),
            ("1,hm,1,Read,0", "column `Size` is missing"),
            (
                "1,hm,1,Read,-5,1,1",
                "column `Offset` is `-5`, which is no whole number from 0 to 18446744073709551615",
            ),
        ] {
            assert_eq!(read(line, None).unwrap_err().to_string(), told, "{line}");
        }
    }
}
