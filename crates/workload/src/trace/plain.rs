//! Plain traces: CSV with the header `ts,key,op,size`.
//!
//! The target format for converted traces. `ts` is in seconds or the configured unit, with decimals; `op` is `GET`, `SET` or `DELETE` in
//! any case, or another usual operation name; `size` is the value's length. Columns `ttl` (seconds) and `tenant` are optional. The header
//! gives the order of columns; without one they are `ts,key,op,size`.

use super::columns::{RowError, lossy, number};
use super::csv::{optional_operation, optional_size, time_or_date};
use super::format::{FileOrder, Format, Pages, TimeUnits};
use super::rows::{ReaderOptions, Row, Rows};
use super::table::{Order, Table, reader};
use crate::RequestKind;

const NAMES: [&str; 6] = ["ts", "key", "op", "size", "ttl", "tenant"];
const TS: usize = 0;
const KEY: usize = 1;
const OP: usize = 2;
const SIZE: usize = 3;
const TTL: usize = 4;
const TENANT: usize = 5;

pub(super) static FORMAT: Format = Format {
    name: "plain",
    about: "CSV with the header ts,key,op,size",
    extensions: &[],
    pages: Pages::Never,
    time_units: TimeUnits::Default(1),
    files: FileOrder::InTurn,
    // Without `ts` the file is also a CacheBench trace, and repeat counts would be lost here.
    plausible: |head| {
        let repeats = head.header_names("op_count") || head.header_names("count");
        !repeats && (!head.header_names("op") || head.header_names("ts"))
    },
    reader: reader::<Plain, { NAMES.len() }>,
};

/// Size of an object whose size is unknown.
const UNKNOWN_SIZE_BYTES: u64 = 4096;

struct Plain;

impl Table<{ NAMES.len() }> for Plain {
    const NAMES: [&'static str; NAMES.len()] = NAMES;
    const HEADERLESS: &'static [Order] =
        &[Order { fields: &[Some(TS), Some(KEY), Some(OP), Some(SIZE)], columns: 4..=6 }];
    const REQUIRED: &'static [usize] = &[KEY, OP, SIZE];
    const TENANT: &'static [usize] = &[TENANT];
    const IGNORED: &'static [&'static str] = &[];
    const ASSUMED: &'static [(usize, &'static str)] = &[];

    #[inline]
    fn read(fields: &[&[u8]; NAMES.len()], options: &ReaderOptions, rows: &mut Rows) -> Result<(), RowError> {
        let Some(kind) = kind(fields[OP], rows)? else { return Ok(()) };
        let value_bytes = optional_size(fields[SIZE], UNKNOWN_SIZE_BYTES, rows)?;
        let ttl = rows.optional("ttl", number(fields[TTL], "ttl", u64::from(u32::MAX)))?.unwrap_or(0);
        let time = Some(fields[TS]).filter(|time| !time.is_empty());
        let time_ns = time.map(|time| time_or_date(time, "ts", options.time_units_per_second)).transpose();
        let time_ns = rows.optional("ts", time_ns)?;
        let object = rows.name(fields[KEY], 0)?;
        let ttl_seconds = if ttl == 0 { None } else { Some(ttl as u32) };
        let tenant = rows.tenant(&[fields[TENANT]]);
        rows.push(Row { ttl_seconds, time_ns, tenant, ..Row::new(kind, object, value_bytes) });
        Ok(())
    }
}

#[inline]
fn kind(op: &[u8], rows: &mut Rows) -> Result<Option<RequestKind>, RowError> {
    // The usual ones first, because they are the fastest path.
    match op {
        b"GET" => Ok(Some(RequestKind::Get)),
        b"SET" => Ok(Some(RequestKind::Set)),
        b"DELETE" => Ok(Some(RequestKind::Delete)),
        other if rows.is_detecting() && !is_own(other) => Err(RowError::Operation(lossy(other))),
        other => optional_operation(other, rows),
    }
}

/// Whether the operation is one of the format's own. Letters such as `W` occur in many tables and do not identify this format.
fn is_own(op: &[u8]) -> bool {
    op.is_empty() || ["get", "set", "delete"].iter().any(|own| op.eq_ignore_ascii_case(own.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<(Row, String), RowError> {
        super::super::rows::only((FORMAT.reader)(&ReaderOptions::default()).as_mut(), line.as_bytes())
    }

    #[test]
    fn row_is_read() {
        let (row, key) = read("12.5,17,get,4096").unwrap();
        assert_eq!((key.as_str(), row.kind, row.value_bytes), ("17", RequestKind::Get, 4096));
        assert_eq!(row.time_ns, Some(12_500_000_000));
        assert_eq!(read(",17,SET,0").unwrap().0.time_ns, None);
        assert_eq!(read("0.0000000019,17,DELETE,0").unwrap().0.time_ns, Some(1));
    }

    #[test]
    fn invalid_row_reports_the_reason() {
        for (line, reason) in [
            ("x,17,GET,1", "column `ts` is `x`, which is not a time in seconds"),
            ("1.x,17,GET,1", "column `ts` is `1.x`, which is not a time in seconds"),
            ("1,17,GIT,1", "`GIT` is not a known operation"),
            ("1,,GET,1", "column `key` is missing"),
            ("1,17,GET", "column `size` is missing"),
        ] {
            assert_eq!(read(line).unwrap_err().to_string(), reason, "{line}");
        }
    }

    #[test]
    fn header_gives_the_order_of_columns() {
        let mut reader = (FORMAT.reader)(&ReaderOptions::default());
        assert_eq!(reader.accept_header(b"key,size,op,ttl"), Ok(true));
        let (row, _) = super::super::rows::only(reader.as_mut(), b"a,1,SET,60").unwrap();
        assert_eq!((row.value_bytes, row.ttl_seconds), (1, Some(60)));
    }
}
