//! Meta's CDN traces (CacheBench's `cdn/202303` and `cdn/202504`).
//!
//! | column | required | meaning |
//! |---|---|---|
//! | `timestamp` | yes | milliseconds |
//! | `cacheKey` | yes | the object; `-` if none |
//! | `objectSize` | yes | its length; -1 or 0 if unknown |
//! | `responseSize`, `responseHeaderSize` | no | of this response |
//! | `rangeStart`, `rangeEnd` | no | requested range, both ends included; -1 for all |
//! | `TTL` | no | seconds; 0 never expires |
//! | `RequestHandler`, `cdn_content_type_id`, `vip_type` | no | the tenant, joined by `/` in this order; `-` is kept |
//!
//! Other columns (`OpType`, always 1; `SamplingRate`, `cache_hit`, `item_value`) are ignored. All requests are gets. The header defines the
//! order of columns; without one they have the order of the published files.
//!
//! An access is to the whole object, including the header, regardless of the requested range. With a page size, longer objects are divided
//! into pieces, and an access is to each piece that the range touches.
//!
//! Divided into a cache's pieces, a row is one request for all of them, as in CacheBench's `piecewise-replay`. Rows with uncacheable
//! responses (no bytes, no header, a TTL of 0) are then skipped, as there.

use xxhash_rust::xxh3::xxh3_64;

use super::columns::{RowError, nanoseconds, number};
use super::cut::{Cut, Items, Shape, Span};
use super::format::{FileOrder, Format, Pages, TimeUnits};
use super::head::Head;
use super::rows::{Extent, MAX_OBJECT_BYTES};
use super::rows::{ReaderOptions, Row, Rows};
use super::table::{Order, Table, reader};
use crate::RequestKind;

pub(super) static FORMAT: Format = Format {
    name: "cdn",
    about: "Meta's CDN CSV (cdn/202303, cdn/202504)",
    extensions: &[],
    pages: Pages::IfSet,
    time_units: TimeUnits::Default(1000),
    files: FileOrder::InTurn,
    plausible,
    reader: reader::<Cdn, { NAMES.len() }>,
};

/// Fewest columns of published files without a header.
const FEWEST_COLUMNS: usize = 10;

/// Numbers and commas do not suffice for detection: a header must name the columns, or there are enough columns and the operation is always
/// the same.
fn plausible(head: &Head<'_>) -> bool {
    let row = head.first_line().unwrap_or_default();
    let mut fields = row.split(|byte| *byte == b',');
    head.header_names("cacheKey")
        || (fields.clone().count() >= FEWEST_COLUMNS && fields.nth(OP_TYPE) == Some(b"1"))
}

const NAMES: [&str; 12] = [
    "timestamp",
    "cacheKey",
    "OpType",
    "objectSize",
    "responseSize",
    "responseHeaderSize",
    "rangeStart",
    "rangeEnd",
    "TTL",
    "RequestHandler",
    "cdn_content_type_id",
    "vip_type",
];
const TIMESTAMP: usize = 0;
const CACHE_KEY: usize = 1;
const OP_TYPE: usize = 2;
const OBJECT_SIZE: usize = 3;
const RESPONSE_SIZE: usize = 4;
const RESPONSE_HEADER_SIZE: usize = 5;
const RANGE_START: usize = 6;
const RANGE_END: usize = 7;
const TTL: usize = 8;
const REQUEST_HANDLER: usize = 9;
const CONTENT_TYPE: usize = 10;
const VIP_TYPE: usize = 11;

struct Cdn;

impl Table<{ NAMES.len() }> for Cdn {
    const NAMES: [&'static str; NAMES.len()] = NAMES;
    const HEADERLESS: &'static [Order] = &[Order {
        fields: &[
            Some(TIMESTAMP),
            Some(CACHE_KEY),
            Some(OP_TYPE),
            Some(OBJECT_SIZE),
            Some(RESPONSE_SIZE),
            Some(RESPONSE_HEADER_SIZE),
            Some(RANGE_START),
            Some(RANGE_END),
            Some(TTL),
        ],
        columns: FEWEST_COLUMNS..=usize::MAX,
    }];
    const REQUIRED: &'static [usize] = &[TIMESTAMP, CACHE_KEY, OBJECT_SIZE];
    const TENANT: &'static [usize] = &[REQUEST_HANDLER, CONTENT_TYPE, VIP_TYPE];
    const IGNORED: &'static [&'static str] = &["SamplingRate", "cache_hit", "item_value"];
    const ASSUMED: &'static [(usize, &'static str)] =
        &[(RANGE_START, "each request is for all of its object")];

    #[inline]
    fn read(fields: &[&[u8]; NAMES.len()], options: &ReaderOptions, rows: &mut Rows) -> Result<(), RowError> {
        if fields[CACHE_KEY] == b"-" {
            return Err(RowError::Missing("cacheKey"));
        }
        let known = |field: usize| known(fields[field], NAMES[field], MAX_OBJECT_BYTES);
        let time = number(fields[TIMESTAMP], "timestamp", u64::MAX)?.ok_or(RowError::Missing("timestamp"))?;
        let mut optional = |field: usize| rows.optional(NAMES[field], known(field));
        optional(OP_TYPE)?;
        let header_bytes = optional(RESPONSE_HEADER_SIZE)?.unwrap_or(0);
        let response_bytes = optional(RESPONSE_SIZE)?.unwrap_or(0);
        let ttl = optional(TTL)?.unwrap_or(0).min(u64::from(u32::MAX)) as u32;
        let body_bytes = match known(OBJECT_SIZE)? {
            None | Some(0) => response_bytes.saturating_sub(header_bytes),
            Some(bytes) => bytes,
        };
        // Requests for the rest of an object can end at the largest number.
        let mut end =
            |field: usize| rows.optional(NAMES[field], self::known(fields[field], NAMES[field], u64::MAX));
        let range = (end(RANGE_START)?, end(RANGE_END)?);
        let (object, size) = match (options.cut, options.page_bytes.filter(|page| body_bytes > *page)) {
            (Cut::Pieces { piece_bytes, most }, _) => {
                let response = Response { response_bytes, header_bytes, ttl, body_bytes };
                let shape = response.shape(range, piece_bytes, most)?;
                let name = rows.padded_name(fields[CACHE_KEY], 0, b"")?;
                (rows.several(Items { name, shape }), body_bytes + header_bytes)
            }
            (_, None) => (rows.name(fields[CACHE_KEY], 0)?, body_bytes + header_bytes),
            (_, Some(page)) => pieces(fields[CACHE_KEY], body_bytes, range).cut(Some(page)),
        };
        let tenant = rows.tenant(&[fields[REQUEST_HANDLER], fields[CONTENT_TYPE], fields[VIP_TYPE]]);
        rows.push(Row {
            ttl_seconds: if ttl == 0 { None } else { Some(ttl) },
            time_ns: Some(nanoseconds(time, options.time_units_per_second)),
            tenant,
            ..Row::new(RequestKind::Get, object, size)
        });
        Ok(())
    }
}

/// The requested part of the object.
fn pieces(key: &[u8], body_bytes: u64, range: ByteRange) -> Extent {
    let requested = clipped(range, body_bytes);
    Extent { volume: xxh3_64(key), start_bytes: requested.start, bytes: requested.end - requested.start }
}

/// First and last byte, if recorded.
type ByteRange = (Option<u64>, Option<u64>);

/// The part of `bytes` bytes in the range: at least one byte, unless `bytes` is 0.
fn clipped(range: ByteRange, bytes: u64) -> std::ops::Range<u64> {
    let end = range.1.map_or(bytes, |last| last.saturating_add(1).min(bytes));
    range.0.unwrap_or(0).min(end.saturating_sub(1))..end
}

/// A row's response and object.
struct Response {
    response_bytes: u64,
    header_bytes: u64,
    ttl: u32,
    body_bytes: u64,
}

impl Response {
    /// The items in which a cache keeps the object, and the requested part of them.
    fn shape(&self, range: ByteRange, piece_bytes: u64, most: u64) -> Result<Shape, RowError> {
        let Self { response_bytes, header_bytes, ttl, body_bytes } = *self;
        for (column, value) in
            [(RESPONSE_SIZE, response_bytes), (RESPONSE_HEADER_SIZE, header_bytes), (TTL, u64::from(ttl))]
        {
            if value == 0 {
                return Err(RowError::Zero(NAMES[column]));
            }
        }
        let sent = response_bytes.checked_sub(header_bytes).ok_or(RowError::ShortResponse)?;
        let requested = match range {
            // Bytes that were not sent count as not requested, even without a range.
            (None, None) => 0..sent.min(body_bytes),
            range => clipped(range, body_bytes),
        };
        if body_bytes < piece_bytes {
            let requested_bytes = header_bytes.saturating_add(requested.end - requested.start);
            return Ok(Shape::One { header_bytes, body_bytes, requested_bytes });
        }
        let of = Span { whole_bytes: body_bytes, requested };
        Ok(Shape::Pieces { header_bytes, piece_bytes, most, of })
    }
}

/// A number; `None` if unknown, that is, -1 or empty.
fn known(field: &[u8], column: &'static str, max: u64) -> Result<Option<u64>, RowError> {
    match field {
        b"-" | b"-1" | b"-1.0" => Ok(None),
        _ => number(field, column, max),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::Object;
    use super::super::rows::only;
    use super::*;

    const HEADER: &str = "timestamp,cacheKey,OpType,objectSize,responseSize,responseHeaderSize,rangeStart,rangeEnd,TTL,SamplingRate,cache_hit,item_value,RequestHandler,cdn_content_type_id,vip_type";

    fn read(line: &str, page_bytes: Option<u64>) -> Result<Row, RowError> {
        read_cut(line, page_bytes, Cut::Pages)
    }

    fn read_cut(line: &str, page_bytes: Option<u64>, cut: Cut) -> Result<Row, RowError> {
        let options =
            ReaderOptions { time_units_per_second: 1000, page_bytes, cut, ..ReaderOptions::default() };
        let mut reader = (FORMAT.reader)(&options);
        assert_eq!(reader.accept_header(HEADER.as_bytes()), Ok(true));
        Ok(only(reader.as_mut(), line.as_bytes())?.0)
    }

    #[test]
    fn access_is_to_the_whole_object() {
        let row = read("1678924800123,2994250588,1,59378,50381,381,-1,-1,3600,1,0,0,24,-,4", None).unwrap();
        assert_eq!((row.value_bytes, row.ttl_seconds), (59_378 + 381, Some(3600)));
        assert_eq!(row.time_ns, Some(1_678_924_800_123_000_000));
        let row = read("1,2994250588,1,-1,50381,381,-1,-1,0,1,0,0,24,-,4", None).unwrap();
        assert_eq!((row.value_bytes, row.ttl_seconds), (50_381, None));
    }

    #[test]
    fn with_page_size_accesses_are_to_the_pieces_of_the_range() {
        let page = Some(65_536);
        let row = read("1,k,1,1000000,500,300,65535,65536,0,1,0,0", page).unwrap();
        assert!(matches!(row.object, Object::Numbered { first: 0, count: 2, .. }));
        let row = read("1,k,1,1000000,500,300,983040,-1,0,1,0,0", page).unwrap();
        assert!(matches!(row.object, Object::Numbered { first: 15, count: 1, .. }));
        let row = read("1,k,1,60000,500,300,0,1,0,1,0,0", page).unwrap();
        assert!(matches!(row.object, Object::Named(_)) && row.value_bytes == 60_300);
    }

    #[test]
    fn invalid_row_reports_the_reason() {
        for (line, message) in [
            ("1,-,1,1,1,1,-1,-1,0,1,0,0", "column `cacheKey` is missing"),
            (
                "x,k,1,1,1,1,-1,-1,0,1,0,0",
                "column `timestamp` is `x`, which is not a whole number from 0 to 18446744073709551615",
            ),
            (
                "1,k,1,-2,1,1,-1,-1,0,1,0,0",
                "column `objectSize` is `-2`, which is not a whole number from 0 to 17592186044416",
            ),
        ] {
            assert_eq!(read(line, None).unwrap_err().to_string(), message, "{line}");
        }
    }
}
