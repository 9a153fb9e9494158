//! Parses times, sizes and operations in a table's columns.

use crate::RequestKind;
use crate::trace::calendar::iso_time_ns;
use crate::trace::columns::{RowError, is_unknown_size, lossy, number, units_with_decimals, whole_number};
use crate::trace::rows::Rows;

/// A time in units of the format, or a date and time as in ISO 8601.
#[inline]
pub(in crate::trace) fn time_or_date(time: &[u8], column: &'static str, units: u64) -> Result<u64, RowError> {
    units_with_decimals(time, column, units).or_else(|reason| iso_time_ns(time).ok_or(reason))
}

/// The operation of a row; a number or `-` counts as absent, that is, a get. Such rows are not accepted while detecting the format.
pub(in crate::trace) fn optional_operation(
    op: &[u8],
    rows: &mut Rows,
) -> Result<Option<RequestKind>, RowError> {
    let found = operation(op, rows);
    let is_absent = !op.is_empty() && op.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-');
    match found {
        Err(reason) if is_absent && !rows.is_detecting() => {
            Ok(rows.optional("op", Err(reason))?.unwrap_or(Some(RequestKind::Get)))
        }
        other => other,
    }
}

/// The size of an object, `absent_bytes` if marked as unknown.
pub(in crate::trace) fn optional_size(
    field: &[u8],
    absent_bytes: u64,
    rows: &mut Rows,
) -> Result<u64, RowError> {
    // The usual field, without the cost of a result that can carry an error's text.
    if let Some(size) = whole_number(field) {
        return Ok(size);
    }
    let size = number(field, "size", u64::MAX).and_then(|size| size.ok_or(RowError::Missing("size")));
    match size {
        Err(reason) if is_unknown_size(field) => {
            Ok(rows.optional("size", Err(reason))?.unwrap_or(absent_bytes))
        }
        other => other,
    }
}

/// Names of operations in lower case. `None` are operations that access no object.
const OPERATIONS: [(Option<RequestKind>, &[&str]); 5] = [
    (Some(RequestKind::Get), &["get", "gets", "read", "r", "lookup", "load", "l", "fetch"]),
    (
        Some(RequestKind::Set),
        &["set", "put", "post", "copy", "write", "w", "insert", "add", "replace", "cas", "store", "s"],
    ),
    (Some(RequestKind::Update), &["update", "append", "prepend", "incr", "decr", "patch"]),
    (
        Some(RequestKind::Delete),
        &["delete", "del", "remove", "d", "purge", "ban", "evict", "invalidate", "unlink", "unset"],
    ),
    (
        None,
        &[
            "head",
            "touch",
            "flush",
            "options",
            "connect",
            "trace",
            "propfind",
            "proppatch",
            "mkcol",
            "lock",
            "unlock",
            "report",
            "search",
            "exists",
            "expire",
            "ttl",
            "nop",
            "ping",
        ],
    ),
];

/// The operation of the first known word in `op`: `GET`, `get_lease`, `REST.GET.OBJECT`. `None` for operations that access no object: the
/// row is [left out](Rows::leave_out).
pub(in crate::trace) fn operation(op: &[u8], rows: &mut Rows) -> Result<Option<RequestKind>, RowError> {
    if op.is_empty() {
        return Err(RowError::Missing("op"));
    }
    let names =
        |word: &[u8], names: &[&str]| names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()));
    let known = |word: &[u8]| OPERATIONS.iter().find(|(_, known)| names(word, known));
    let found = op.split(|byte| !byte.is_ascii_alphabetic()).find_map(known);
    let Some((kind, _)) = found else { return Err(RowError::Operation(lossy(op))) };
    if kind.is_none() {
        rows.leave_out(op);
    }
    Ok(*kind)
}
