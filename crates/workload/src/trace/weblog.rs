//! Access logs of web servers and proxies: requested URLs and bytes sent.
//!
//! | format | a line |
//! |---|---|
//! | Squid's native log | `time elapsed client code/status bytes method URL ident hierarchy/peer type` |
//! | common log format, also combined | `host ident user [10/Oct/2000:13:55:36 -0700] "GET /url HTTP/1.0" status bytes …` |
//!
//! The object is the URL, the client is the tenant. GET and methods that store or remove are accesses; HEAD, OPTIONS, CONNECT and similar
//! methods are skipped. A size of `-` belongs to a response without a body, such as a 304.

use super::calendar::log_time_ns;
use super::columns::{RowError, lossy, seconds, words};
use super::csv::{operation, optional_size};
use super::format::{FileOrder, Format, Pages, TimeUnits};
use super::rows::{ReaderOptions, Row, RowReader, Rows};
use crate::RequestKind;

pub(super) static SQUID: Format = Format {
    name: "squid",
    about: "Squid's native access log",
    extensions: &[],
    pages: Pages::Never,
    time_units: TimeUnits::Fixed(1),
    files: FileOrder::InTurn,
    plausible: |head| head.first_line().is_some_and(|line| Squid.read(line, &mut Rows::default()).is_ok()),
    reader: |_: &ReaderOptions| Box::new(Squid),
};

pub(super) static COMMON_LOG: Format = Format {
    name: "common-log",
    about: "common log format of web servers (Apache, nginx), also combined",
    plausible: |head| head.first_line().is_some_and(|line| split(line).is_ok()),
    reader: |_: &ReaderOptions| Box::new(CommonLog),
    ..SQUID
};

const SQUID_SHAPE: RowError =
    RowError::Shape("time elapsed client code/status bytes method URL ident hierarchy type");
const LOG_SHAPE: RowError =
    RowError::Shape("host ident user [day/month/year:time zone] \"method URL protocol\" status bytes");
/// Size of an object for which no bytes are logged.
const UNKNOWN_SIZE_BYTES: u64 = 4096;

/// The fields of a line.
struct Line<'a> {
    client: &'a [u8],
    time_ns: u64,
    method: &'a [u8],
    url: &'a [u8],
    bytes: &'a [u8],
}

impl Line<'_> {
    fn add_to(&self, rows: &mut Rows) -> Result<(), RowError> {
        let Some(kind) = method(self.method, rows)? else { return Ok(()) };
        let size = match kind {
            RequestKind::Delete => 0,
            _ => optional_size(self.bytes, UNKNOWN_SIZE_BYTES, rows)?,
        };
        let object = rows.url(self.url)?;
        let tenant = rows.tenant(&[self.client]);
        rows.push(Row { time_ns: Some(self.time_ns), tenant, ..Row::new(kind, object, size) });
        Ok(())
    }
}

/// The operation. Squid logs `NONE` for invalid requests, and methods of its own protocols.
fn method(method: &[u8], rows: &mut Rows) -> Result<Option<RequestKind>, RowError> {
    match method {
        b"GET" => Ok(Some(RequestKind::Get)),
        b"NONE" | b"NONE_NONE" | b"-" | b"ICP_QUERY" | b"HTCP_TST" => {
            rows.leave_out(method);
            Ok(None)
        }
        other => operation(other, rows),
    }
}

struct Squid;

impl RowReader for Squid {
    fn read(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let ([time, elapsed, client, status, bytes, method, url], count) = words::<7>(line);
        let is_number = |word: &[u8]| {
            let digits = word.strip_prefix(b"-").unwrap_or(word);
            !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
        };
        if count < 9 || !status.contains(&b'/') || !is_number(elapsed) {
            return Err(SQUID_SHAPE);
        }
        let time_ns = seconds(time, "time")?;
        Line { client, time_ns, method, url, bytes }.add_to(rows)
    }
}

struct CommonLog;

impl RowReader for CommonLog {
    fn read(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        split(line)?.add_to(rows)
    }
}

/// The parts of a line of the common log format.
fn split(line: &[u8]) -> Result<Line<'_>, RowError> {
    let find = |from: usize, byte: u8| {
        line[from..].iter().position(|it| *it == byte).map(|at| from + at).ok_or(LOG_SHAPE)
    };
    let client = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    let open = find(0, b'[')?;
    let close = find(open, b']')?;
    let time = &line[open + 1..close];
    let time_ns = log_time_ns(time).ok_or_else(|| RowError::Time { column: "time", text: lossy(time) })?;
    let quote = find(close, b'"')?;
    let end = end_of_quotes(line, quote + 1).ok_or(LOG_SHAPE)?;
    let request = &line[quote + 1..end];
    let ([_status, bytes], count) = words::<2>(&line[end + 1..]);
    if count < 2 || client.is_empty() {
        return Err(LOG_SHAPE);
    }
    let ([method, url], count) = words::<2>(request);
    // An invalid request is logged verbatim, or as `-`.
    let (method, url) = if count < 2 { (&b"-"[..], &b"-"[..]) } else { (method, url) };
    Ok(Line { client, time_ns, method, url, bytes })
}

/// The end of the quotes that are open at `from`. A backslash escapes the next character.
fn end_of_quotes(line: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(byte) = line.get(at) {
        match byte {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::rows::only;
    use super::*;

    const SQUID_LINE: &str = "1066036250.129    345 10.0.0.7 TCP_MISS/200 4519 GET http://a.example/x.gif - DIRECT/1.2.3.4 image/gif";
    const LOG_LINE: &str =
        "127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] \"GET /apache_pb.gif HTTP/1.0\" 200 2326";

    fn read(reader: &mut dyn RowReader, line: &str) -> Result<(Row, String), RowError> {
        only(reader, line.as_bytes())
    }

    #[test]
    fn squid_line_is_a_request_for_its_url() {
        let (row, key) = read(&mut Squid, SQUID_LINE).unwrap();
        assert_eq!(
            (key.as_str(), row.value_bytes, row.kind),
            ("http://a.example/x.gif", 4519, RequestKind::Get)
        );
        assert_eq!(row.time_ns, Some(1_066_036_250_129_000_000));
        for other in ["1 2 3", "1066036250.129 345 10.0.0.7 TCP_MISS 4519 GET http://a - x y"] {
            assert_eq!(read(&mut Squid, other).unwrap_err(), SQUID_SHAPE);
        }
    }

    #[test]
    fn common_and_combined_log_lines_are_requests() {
        let combined =
            format!("{LOG_LINE} \"http://www.example.com/\" \"Mozilla/4.08 [en] (Win98; I ;Nav)\"");
        for line in [LOG_LINE, &combined] {
            let (row, key) = read(&mut CommonLog, line).unwrap();
            assert_eq!((key.as_str(), row.value_bytes), ("/apache_pb.gif", 2326));
            assert_eq!(row.time_ns, Some(971_211_336_000_000_000));
        }
        let quoted = LOG_LINE.replace("pb.gif", "\\\"pb\\\".gif");
        assert_eq!(read(&mut CommonLog, &quoted).unwrap().1, "/apache_\\\"pb\\\".gif");
    }

    #[test]
    fn methods_without_access_are_skipped_and_purge_deletes() {
        let with = |method: &str| LOG_LINE.replace("GET", method);
        for method in ["HEAD", "OPTIONS", "CONNECT", "PROPFIND"] {
            let mut rows = Rows::default();
            CommonLog.read(with(method).as_bytes(), &mut rows).unwrap();
            assert_eq!(rows.len(), 0, "{method}");
        }
        assert_eq!(read(&mut CommonLog, &with("PURGE")).unwrap().0.kind, RequestKind::Delete);
        assert_eq!(read(&mut CommonLog, &with("POST")).unwrap().0.kind, RequestKind::Set);
        let mut rows = Rows::default();
        let garbage = "1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] \"\\x16\\x03\\x01\" 400 226";
        CommonLog.read(garbage.as_bytes(), &mut rows).unwrap();
        assert_eq!(rows.len(), 0, "no request at all");
    }

    #[test]
    fn missing_byte_count_is_absent() {
        let line = LOG_LINE.replace("200 2326", "304 -");
        let mut rows = Rows::default().lenient(true);
        CommonLog.read(line.as_bytes(), &mut rows).unwrap();
        assert_eq!((rows.row(0).value_bytes, rows.unreadable().len()), (UNKNOWN_SIZE_BYTES, 1));
    }

    #[test]
    fn url_longer_than_a_key_is_hashed() {
        let long = LOG_LINE.replace("/apache_pb.gif", &format!("/{}", "x".repeat(2000)));
        assert!(read(&mut CommonLog, &long).is_ok());
    }
}
