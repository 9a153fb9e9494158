//! Plain traces: CSV with the header `ts,key,op,size`.
//!
//! The form that traces from elsewhere are brought into. `ts` is in seconds, with decimals; `op` is `GET`,
//! `SET` or `DELETE` in any case; `size` is the value's length. A column `ttl` (seconds) may stand beside them.
//! Columns come in any order, named by the header; without one they are `ts,key,op,size`.

use super::columns::{Columns, RowError, lossy, number, whole_number};
use super::{ReaderOptions, Row, RowReader};
use crate::RequestKind;

const NAMES: [&str; 5] = ["ts", "key", "op", "size", "ttl"];
const TS: usize = 0;
const KEY: usize = 1;
const OP: usize = 2;
const SIZE: usize = 3;
const TTL: usize = 4;
const HEADERLESS: [usize; 4] = [TS, KEY, OP, SIZE];

const MAX_KEY_BYTES: usize = 256;

/// Reads rows of this format. Its time is always in seconds.
pub(super) fn reader(_: &ReaderOptions) -> Box<dyn RowReader> {
    Box::new(Reader { columns: Columns::positional(&HEADERLESS) })
}

struct Reader {
    columns: Columns<{ NAMES.len() }>,
}

impl RowReader for Reader {
    fn takes_header(&mut self, line: &[u8]) -> Result<bool, RowError> {
        if self.row(line, &mut Vec::new()).is_ok() {
            return Ok(false);
        }
        let Some(columns) = Columns::from_header(line, &NAMES) else {
            return Ok(false);
        };
        if let Some(missing) = [KEY, OP, SIZE].into_iter().find(|field| !columns.has(*field)) {
            return Err(RowError::Header(NAMES[missing]));
        }
        self.columns = columns;
        Ok(true)
    }

    fn row(&mut self, line: &[u8], key: &mut Vec<u8>) -> Result<Row, RowError> {
        let fields = self.columns.split(line);
        let kind = kind(fields[OP])?;
        let value_bytes = number(fields[SIZE], "size", u64::MAX)?.ok_or(RowError::Missing("size"))?;
        let ttl = number(fields[TTL], "ttl", u64::from(u32::MAX))?.unwrap_or(0);
        let time_ns = if fields[TS].is_empty() { None } else { Some(seconds(fields[TS])?) };
        match fields[KEY].len() {
            0 => return Err(RowError::Missing("key")),
            length if length > MAX_KEY_BYTES => return Err(RowError::LongKey(length)),
            _ => key.extend_from_slice(fields[KEY]),
        }
        let ttl_seconds = if ttl == 0 { None } else { Some(ttl as u32) };
        Ok(Row { kind, value_bytes, ttl_seconds, time_ns, repeat: 1, tenant: None })
    }
}

fn kind(op: &[u8]) -> Result<RequestKind, RowError> {
    if op.eq_ignore_ascii_case(b"get") {
        Ok(RequestKind::Get)
    } else if op.eq_ignore_ascii_case(b"set") {
        Ok(RequestKind::Set)
    } else if op.eq_ignore_ascii_case(b"delete") {
        Ok(RequestKind::Delete)
    } else if op.is_empty() {
        Err(RowError::Missing("op"))
    } else {
        Err(RowError::Operation(lossy(op)))
    }
}

/// Seconds with up to nine decimals, in nanoseconds. More decimals are cut.
fn seconds(field: &[u8]) -> Result<u64, RowError> {
    let wrong = || RowError::Time { column: "ts", text: lossy(field) };
    let point = field.iter().position(|byte| *byte == b'.').unwrap_or(field.len());
    let whole = whole_number(&field[..point]).ok_or_else(wrong)?;
    let decimals = field.get(point + 1..).unwrap_or(&[]);
    if !decimals.iter().all(u8::is_ascii_digit) {
        return Err(wrong());
    }
    let digit = |place: usize| decimals.get(place).map_or(0, |byte| u64::from(byte - b'0'));
    let below = (0..9).fold(0, |value, place| value * 10 + digit(place));
    whole.checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(below)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<(Row, String), RowError> {
        let mut key = Vec::new();
        let row = reader(&ReaderOptions { time_units_per_second: 1 }).row(line.as_bytes(), &mut key)?;
        Ok((row, String::from_utf8(key).unwrap()))
    }

    #[test]
    fn rows_are_read() {
        let (row, key) = read("12.5,17,get,4096").unwrap();
        assert_eq!((key.as_str(), row.kind, row.value_bytes), ("17", RequestKind::Get, 4096));
        assert_eq!(row.time_ns, Some(12_500_000_000));
        assert_eq!(read(",17,SET,0").unwrap().0.time_ns, None);
        assert_eq!(read("0.0000000019,17,DELETE,0").unwrap().0.time_ns, Some(1));
    }

    #[test]
    fn bad_rows_say_why() {
        for (line, reason) in [
            ("x,17,GET,1", "column `ts` is `x`, which is no time in seconds"),
            ("1.x,17,GET,1", "column `ts` is `1.x`, which is no time in seconds"),
            ("1,17,GIT,1", "`GIT` is no known operation"),
            ("1,,GET,1", "column `key` is missing"),
            ("1,17,GET", "column `size` is missing"),
        ] {
            assert_eq!(read(line).unwrap_err().to_string(), reason, "{line}");
        }
    }

    #[test]
    fn the_header_names_the_order() {
        let mut reader = reader(&ReaderOptions { time_units_per_second: 1 });
        assert_eq!(reader.takes_header(b"key,size,op,ttl"), Ok(true));
        let row = reader.row(b"a,1,SET,60", &mut Vec::new()).unwrap();
        assert_eq!((row.value_bytes, row.ttl_seconds), (1, Some(60)));
    }
}
