//! CacheBench's key-value traces (`kvcache/202206`, `202210`, `202401`).
//!
//! | column | required | meaning |
//! |---|---|---|
//! | `key` | yes | padded with `0` to `key_size`, up to 256 bytes |
//! | `op` | yes | `GET`, `GET_LEASE`, `SET`, `SET_LEASE`, `DELETE` |
//! | `size` | yes | value length; 0 if the recorded get missed |
//! | `op_count` | no: 1 | number of repetitions |
//! | `key_size` | no | length of the key before it was anonymised |
//! | `ttl` | no: 0 | seconds; 0 never expires |
//! | `op_time` | no | time in units of the configured factor |
//! | `usecase`, `sub_usecase` | no | the tenant: `usecase/sub_usecase` |
//! The header gives the order of columns. A first line that parses as data is data (CacheBench drops it). The order is then detected from
//! the first rows: `key, op, size, op_count, key_size, ttl` (2022), `op_time, key, key_size, op, op_count, size, cache_hits, ttl, usecase,
//! sub_usecase` (2024), or that of the previous file.
//! op_count, size, cache_hits, ttl, usecase, sub_usecase` (2024), or that of the file before.

use super::columns::{RowError, is_unknown_size, lossy, nanoseconds, number};
use super::csv::optional_operation;
use super::format::{FileOrder, Format, Pages, TimeUnits};
use super::rows::{ReaderOptions, Row, Rows};
use super::table::{Order, Table, reader};
use crate::RequestKind;

const NAMES: [&str; 9] =
    ["key", "op", "size", "op_count", "key_size", "ttl", "op_time", "usecase", "sub_usecase"];
const KEY: usize = 0;
const OP: usize = 1;
const SIZE: usize = 2;
const OP_COUNT: usize = 3;
const KEY_SIZE: usize = 4;
const TTL: usize = 5;
const OP_TIME: usize = 6;
const USECASE: usize = 7;
const SUB_USECASE: usize = 8;

pub(super) static FORMAT: Format = Format {
    name: "kvcache",
    about: "CacheBench key-value CSV (202206, 202401)",
    extensions: &[],
    pages: Pages::Never,
    time_units: TimeUnits::Default(1),
    files: FileOrder::InTurn,
    // A time column with another name would be ignored here. Plain traces have `ts`; any other table is `csv`.
    plausible: |head| head.header_names("op_time") || !head.header_names_time(),
    reader: reader::<Kv, { NAMES.len() }>,
};

struct Kv;

impl Table<{ NAMES.len() }> for Kv {
    const NAMES: [&'static str; NAMES.len()] = NAMES;
    const HEADERLESS: &'static [Order] = &[
        Order {
            fields: &[Some(KEY), Some(OP), Some(SIZE), Some(OP_COUNT), Some(KEY_SIZE), Some(TTL)],
            columns: 5..=6,
        },
        Order {
            fields: &[
                Some(OP_TIME),
                Some(KEY),
                Some(KEY_SIZE),
                Some(OP),
                Some(OP_COUNT),
                Some(SIZE),
                None,
                Some(TTL),
                Some(USECASE),
                Some(SUB_USECASE),
            ],
            columns: 8..=10,
        },
    ];
    const REQUIRED: &'static [usize] = &[KEY, OP, SIZE];
    const TENANT: &'static [usize] = &[USECASE, SUB_USECASE];
    const IGNORED: &'static [&'static str] = &["cache_hits"];
    const ASSUMED: &'static [(usize, &'static str)] =
        &[(OP_COUNT, "each row is one request"), (KEY_SIZE, "keys are as long as they are in the file")];

    #[inline]
    fn read(fields: &[&[u8]; NAMES.len()], options: &ReaderOptions, rows: &mut Rows) -> Result<(), RowError> {
        let Some(kind) = kind(fields[OP], rows)? else { return Ok(()) };
        // A set requires a size; a get or delete does not.
        let value_bytes = match (number(fields[SIZE], "size", u64::MAX), kind) {
            (Err(reason), RequestKind::Get | RequestKind::Delete) if is_unknown_size(fields[SIZE]) => {
                rows.optional("size", Err(reason))?.unwrap_or(0)
            }
            (size, _) => size?.ok_or(RowError::Missing("size"))?,
        };
        let most = u64::from(u32::MAX);
        let repeat = rows.optional("op_count", number(fields[OP_COUNT], "op_count", most))?.unwrap_or(1);
        if repeat == 0 {
            return Err(RowError::NoRequest);
        }
        let key_bytes =
            rows.optional("key_size", number(fields[KEY_SIZE], "key_size", u64::MAX))?.unwrap_or(0);
        let ttl = rows.optional("ttl", number(fields[TTL], "ttl", most))?.unwrap_or(0);
        let time = rows.optional("op_time", number(fields[OP_TIME], "op_time", u64::MAX))?;
        let object = rows.name(fields[KEY], key_bytes)?;
        let tenant = rows.tenant(&[fields[USECASE], fields[SUB_USECASE]]);
        rows.push(Row {
            ttl_seconds: if ttl == 0 { None } else { Some(ttl as u32) },
            time_ns: time.map(|units| nanoseconds(units, options.time_units_per_second)),
            repeat: repeat as u32,
            tenant,
            ..Row::new(kind, object, value_bytes)
        });
        Ok(())
    }
}

/// Published traces have few operations, in capitals; files converted with other tools may have others.
#[inline]
fn kind(op: &[u8], rows: &mut Rows) -> Result<Option<RequestKind>, RowError> {
    match op {
        b"GET" | b"GET_LEASE" => Ok(Some(RequestKind::Get)),
        b"SET" | b"SET_LEASE" => Ok(Some(RequestKind::Set)),
        b"DELETE" => Ok(Some(RequestKind::Delete)),
        other if rows.is_detecting() && !is_own(other) => Err(RowError::Operation(lossy(other))),
        other => optional_operation(other, rows),
    }
}

/// Whether the operation is one of the format's own. Letters such as `W` occur in many tables and do not identify this format.
fn is_own(op: &[u8]) -> bool {
    let own = ["get", "get_lease", "set", "set_lease", "delete"];
    op.is_empty() || own.iter().any(|own| op.eq_ignore_ascii_case(own.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::super::rows::RowReader;
    use super::*;

    fn fresh() -> Box<dyn RowReader> {
        (FORMAT.reader)(&ReaderOptions::default())
    }

    fn read(reader: &mut dyn RowReader, line: &str) -> Result<(Row, String), RowError> {
        super::super::rows::only(reader, line.as_bytes())
    }

    #[test]
    fn columns_are_read_in_every_order() {
        let names = ["op_time", "key", "key_size", "op", "op_count", "size", "cache_hits", "ttl", "usecase"];
        let values = ["604038471", "82131353", "12", "GET_LEASE", "3", "87", "1", "7200", "366387042"];
        for turn in 0..names.len() {
            let turned = |list: [&str; 9]| {
                let mut list = list;
                list.rotate_left(turn);
                list.swap(0, turn / 2);
                list.join(",")
            };
            let mut reader = fresh();
            assert_eq!(reader.accept_header(turned(names).as_bytes()), Ok(true));
            let (row, key) = read(reader.as_mut(), &turned(values)).unwrap();
            assert_eq!(key, "821313530000");
            let expected = Row {
                ttl_seconds: Some(7200),
                time_ns: Some(604_038_471_000_000_000),
                repeat: 3,
                ..Row::new(RequestKind::Get, row.object.clone(), 87)
            };
            assert_eq!(row, expected, "rotated by {turn}");
        }
    }

    #[test]
    fn first_line_of_data_is_read() {
        let mut reader = fresh();
        assert_eq!(reader.accept_header(b"abc,GET,10,2,5,60"), Ok(false));
        let (row, key) = read(reader.as_mut(), "abc,GET,10,2,5,60").unwrap();
        assert_eq!((key.as_str(), row.value_bytes, row.repeat, row.ttl_seconds), ("abc00", 10, 2, Some(60)));
        let (row, key) = read(reader.as_mut(), "abc,SET,10").unwrap();
        assert_eq!((key.as_str(), row.kind, row.repeat, row.ttl_seconds), ("abc", RequestKind::Set, 1, None));
        assert_eq!(row.time_ns, None);
    }

    #[test]
    fn second_file_without_header_keeps_the_column_order_of_the_first() {
        let mut reader = fresh();
        assert_eq!(reader.accept_header(b"size,op,key"), Ok(true));
        assert_eq!(reader.accept_header(b"10,GET,abc"), Ok(false));
        assert_eq!(read(reader.as_mut(), "10,GET,abc").unwrap().1, "abc");
    }

    #[test]
    fn header_without_a_required_column_is_rejected() {
        assert_eq!(fresh().accept_header(b"key,op,ttl"), Err(RowError::Header("size")));
    }

    #[test]
    fn invalid_row_reports_the_reason() {
        let bad = [
            ("k,PUT,1", RowError::Operation("PUT".to_owned())),
            ("k,,1", RowError::Missing("op")),
            ("k,GET", RowError::Missing("size")),
            (",GET,1", RowError::Missing("key")),
            ("k,GET,1,0", RowError::NoRequest),
            ("k,GET,x", RowError::Number { column: "size", text: "x".to_owned(), max: u64::MAX }),
            (
                "k,GET,1,4294967296",
                RowError::Number {
                    column: "op_count",
                    text: "4294967296".to_owned(),
                    max: u64::from(u32::MAX),
                },
            ),
        ];
        for (line, expected) in bad {
            assert_eq!(read(fresh().as_mut(), line).unwrap_err(), expected, "{line}");
        }
        let long = format!("{},GET,1", "k".repeat(257));
        assert_eq!(read(fresh().as_mut(), &long).unwrap_err(), RowError::LongKey(257));
    }

    #[test]
    fn lower_case_operations_are_read() {
        assert_eq!(read(fresh().as_mut(), "k,get_lease,1").unwrap().0.kind, RequestKind::Get);
        assert_eq!(read(fresh().as_mut(), "k,Set,1").unwrap().0.kind, RequestKind::Set);
        assert_eq!(read(fresh().as_mut(), "k,put,1").unwrap_err(), RowError::Operation("put".to_owned()));
    }

    #[test]
    fn large_counts_and_key_sizes_are_not_truncated() {
        let (row, _) = read(fresh().as_mut(), "k,GET,1,65536").unwrap();
        assert_eq!(row.repeat, 65_536, "CacheBench cuts this to 0");
        let (_, key) = read(fresh().as_mut(), "k,GET,1,1,9999").unwrap();
        assert_eq!(key.len(), 256);
    }
}
