//! Twitter's cache traces (Yang, Yue and Rashmi, OSDI '20).
//!
//! A row is `time, key, key size, value size, client, operation, TTL`; there is no header. Times and TTLs are seconds; a TTL of 0 means
//! that the request sets none. Keys can contain commas. The size of an object is key plus value, as in the paper. The client is the tenant.

use super::columns::{RowError, bare, lossy, number};
use super::format::{FileOrder, Format, Pages, TimeUnits};
use super::rows::{ReaderOptions, Row, RowReader, Rows};
use crate::RequestKind;

pub(super) static FORMAT: Format = Format {
    name: "twitter",
    about: "Twitter's cache-trace CSV: time,key,key size,value size,client,operation,TTL",
    extensions: &["sort"],
    pages: Pages::Never,
    time_units: TimeUnits::Default(1),
    files: FileOrder::InTurn,
    plausible: |_| true,
    reader: |options: &ReaderOptions| Box::new(Reader { units_per_second: options.time_units_per_second }),
};

const SHAPE: RowError = RowError::Shape("time,key,key size,value size,client,operation,TTL");

struct Reader {
    units_per_second: u64,
}

impl RowReader for Reader {
    fn read(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        // Split from the end, because keys can contain commas.
        let mut fields = line.rsplitn(6, |byte| *byte == b',');
        let mut field = || fields.next().map(bare).ok_or(SHAPE);
        let (ttl, op, client, value_size, key_size) = (field()?, field()?, field()?, field()?, field()?);
        let front = fields.next().ok_or(SHAPE)?;
        let comma = front.iter().position(|byte| *byte == b',').ok_or(SHAPE)?;
        let (time, key) = (bare(&front[..comma]), bare(&front[comma + 1..]));
        let (kind, max) = (kind(op)?, u64::from(u32::MAX));
        let needed = |field, column| number(field, column, max)?.ok_or(RowError::Missing(column));
        let time = number(time, "time", u64::MAX)?.ok_or(RowError::Missing("time"))?;
        let (key_bytes, value_bytes) = (needed(key_size, "key size")?, needed(value_size, "value size")?);
        let ttl = rows.optional("TTL", number(ttl, "TTL", max))?.unwrap_or(0) as u32;
        rows.optional("client", number(client, "client", u64::MAX))?;
        let tenant = rows.tenant(&[client]);
        let object = rows.name(key, 0)?;
        rows.push(Row {
            key_bytes: key_bytes as u32,
            ttl_seconds: if ttl == 0 { None } else { Some(ttl) },
            time_ns: Some(super::columns::nanoseconds(time, self.units_per_second)),
            tenant,
            ..Row::new(kind, object, value_bytes)
        });
        Ok(())
    }
}

fn kind(op: &[u8]) -> Result<RequestKind, RowError> {
    match op {
        b"get" | b"gets" => Ok(RequestKind::Get),
        b"set" | b"add" | b"replace" | b"cas" => Ok(RequestKind::Set),
        b"append" | b"prepend" | b"incr" | b"decr" => Ok(RequestKind::Update),
        b"delete" => Ok(RequestKind::Delete),
        b"" => Err(RowError::Missing("operation")),
        other if other.iter().any(u8::is_ascii_uppercase) => in_small_letters(other),
        other => Err(RowError::Operation(lossy(other))),
    }
}

/// Published traces use lower case; files converted with other tools may not.
#[cold]
fn in_small_letters(op: &[u8]) -> Result<RequestKind, RowError> {
    kind(&op.to_ascii_lowercase()).map_err(|_| RowError::Operation(lossy(op)))
}

#[cfg(test)]
mod tests {
    use super::super::rows::only;
    use super::*;

    fn read(line: &str) -> Result<(Row, String), RowError> {
        only((FORMAT.reader)(&ReaderOptions::default()).as_mut(), line.as_bytes())
    }

    #[test]
    fn rows_are_read_and_keys_may_contain_commas() {
        let (row, key) = read("0,q:q:1:8WTfjZU14ee,17,213,4,get,0").unwrap();
        assert_eq!(key, "q:q:1:8WTfjZU14ee");
        assert_eq!((row.kind, row.value_bytes, row.key_bytes), (RequestKind::Get, 213, 17));
        assert_eq!((row.ttl_seconds, row.time_ns), (None, Some(0)));
        let (row, key) = read("7,a,b,,c,6,1,2,incr,60").unwrap();
        assert_eq!((key.as_str(), row.kind, row.ttl_seconds), ("a,b,,c", RequestKind::Update, Some(60)));
        assert_eq!(read("7,k,1,1,2,GETS,60").unwrap().0.kind, RequestKind::Get);
        assert_eq!(read("7,k,1,1,2,GOT,60").unwrap_err(), RowError::Operation("GOT".to_owned()));
    }

    #[test]
    fn invalid_row_reports_the_reason() {
        for (line, message) in [
            ("1,2,3", "the row does not have the form `time,key,key size,value size,client,operation,TTL`"),
            (
                "1,k,1,1,1,get",
                "the row does not have the form `time,key,key size,value size,client,operation,TTL`",
            ),
            ("1,k,1,1,1,got,0", "`got` is not a known operation"),
            (
                "1,k,1,x,1,get,0",
                "column `value size` is `x`, which is not a whole number from 0 to 4294967295",
            ),
            ("1,,1,1,1,get,0", "column `key` is missing"),
        ] {
            assert_eq!(read(line).unwrap_err().to_string(), message, "{line}");
        }
    }
}
