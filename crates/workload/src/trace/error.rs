//! Errors in reading traces.

use std::io;
use std::path::PathBuf;

use super::columns::RowError;
use super::csv::ColumnsError;

/// An error in opening or reading a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("cannot open the trace {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// An unknown format.
    #[error("there is no trace format `{name}`; valid formats are auto, {known}")]
    UnknownFormat {
        /// The name given.
        name: String,
        /// The known formats.
        known: String,
    },
    /// An invalid column list.
    #[error("`{columns}`: {reason}")]
    Columns {
        /// The list of columns as typed.
        columns: String,
        /// The problem.
        reason: ColumnsError,
    },
    /// No format matches the file.
    #[error("{}: {hint}the content matches none of the formats that can be detected ({known}); the others must be named ({unmarked})", path.display())]
    Unrecognised {
        /// The file.
        path: PathBuf,
        /// A hint at the cause, or nothing.
        hint: String,
        /// The detectable formats.
        known: String,
        /// The formats that cannot be detected.
        unmarked: String,
    },
    /// A table whose header lacks a column, or calls it by an unusual name.
    #[error("{}: its header does not name both an object (key, id, object_id, ...) and its size (size, bytes, ...): read it with {way}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// The option with which the table can be read.
        way: String,
    },
    /// A time unit is given for a format that defines its own, or has no times.
    #[error("--time-units: `{format}` traces have a time unit of their own or no times; leave the flag out")]
    FixedTimeUnits {
        /// The format.
        format: &'static str,
    },
    /// The file is empty, so its format cannot be detected.
    #[error("{}: the file is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Timestamps are required for replay at the trace's times.
    #[error("{}: its requests have no timestamps", path.display())]
    NoTimes {
        /// The file.
        path: PathBuf,
    },
    /// The tenant columns do not exist in the format.
    #[error("{}", too_many_columns(format, requested, *most))]
    NoTenantColumns {
        /// The format.
        format: &'static str,
        /// The columns given.
        requested: String,
        /// Largest number of tenant columns.
        most: usize,
    },
    /// Events were selected for a format that records one event per request.
    #[error("`{}` events cannot be chosen: only blktrace and blkparse recordings have several events of each request, and this is a `{format}` trace", events.name())]
    NoEvents {
        /// The format.
        format: &'static str,
        /// The requested events.
        events: super::block::Events,
    },
    /// The file matches several formats.
    #[error("{}: the format could be {candidates}; name the right one with --format", path.display())]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// The matching formats.
        candidates: String,
    },
    /// The first bytes of a file are invalid, so no row can be read.
    #[error("{}: {reason}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: RowError,
    },
    /// The header has some of a format's columns and lacks others.
    #[error("{}: read as `{format}`: {reason}", path.display())]
    HeaderOf {
        /// The file.
        path: PathBuf,
        /// The format.
        format: &'static str,
        /// The problem.
        reason: RowError,
    },
    /// A file is in another format than expected.
    #[error("{}: this is a `{found}` trace, but a `{expected}` trace is needed here: {reason}", path.display())]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// The detected format.
        found: &'static str,
        /// The expected format.
        expected: &'static str,
        /// The problem in the expected format.
        reason: RowError,
    },
    /// None of the first rows of a file is valid.
    #[error("{}: {} a request of a `{expected}` trace; {why}", path.display(), none_of(*rows))]
    NothingRead {
        /// The file.
        path: PathBuf,
        /// Number of rows tried.
        rows: u64,
        /// The expected format.
        expected: &'static str,
        /// The first row with its problem, and the order of columns used.
        why: String,
    },
    /// The file must be unpacked or converted first.
    #[error("{}: {hint}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The file type and the command that unpacks it.
        hint: String,
    },
    /// A file after the first has rows, and none of them is valid.
    #[error("{}: none of its rows is valid: row {row}: {reason}; all files of a trace must be in the format of the first", path.display())]
    NothingInFile {
        /// The file.
        path: PathBuf,
        /// The first wrong row, from 1.
        row: u64,
        /// The error of that row.
        reason: RowError,
    },
    /// The files of a trace are in several formats.
    #[error("{}: a `{found}` trace after a `{expected}` trace: all files of a trace must be in one format; convert it, or name the format of all", path.display())]
    MixedFormats {
        /// The file.
        path: PathBuf,
        /// The file's format.
        found: &'static str,
        /// The first file's format.
        expected: &'static str,
    },
    /// An invalid row, if invalid rows stop reading.
    #[error("{}: row {row}: {reason}; stopped there", path.display())]
    BadRow {
        /// The file.
        path: PathBuf,
        /// The line, or the record in a binary trace, from 1.
        row: u64,
        /// The problem.
        reason: RowError,
    },
    /// More invalid rows than may be skipped.
    #[error("{}: row {row}: {reason}; stopped there: more than {limit} rows are wrong, the first: {first}", path.display())]
    TooManyBadRows {
        /// The file.
        path: PathBuf,
        /// The line, or the record in a binary trace, from 1.
        row: u64,
        /// The problem.
        reason: RowError,
        /// Largest number of skipped rows.
        limit: u64,
        /// File, row and reason of the first.
        first: String,
    },
    /// No row is valid.
    #[error("{}: none of {rows} rows is a valid request; the first error: {first}", path.display())]
    NoRequests {
        /// The file, or the first of several.
        path: PathBuf,
        /// Number of rows.
        rows: u64,
        /// File, row and reason.
        first: String,
    },
    /// All rows are valid, but none is a request.
    #[error("{}: the trace has no requests: none of its {rows} rows is one{hint}", path.display())]
    OnlyOtherRows {
        /// The file, or the first of several.
        path: PathBuf,
        /// Number of rows.
        rows: u64,
        /// What to try, or nothing.
        hint: &'static str,
    },
    /// No rows, at most a header.
    #[error("{}{}: the trace has no requests, not even one row", path.display(), and_others(*others))]
    NoRows {
        /// The first file.
        path: PathBuf,
        /// Number of further files.
        others: usize,
    },
    /// Reading failed in the middle, or compressed data is damaged or cut off.
    #[error("{}: after row {row}: {source}; stopped there", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The last complete row.
        row: u64,
        /// The error.
        source: io::Error,
    },
    /// No file is named.
    #[error("no trace is given")]
    NoFiles,
}

fn none_of(rows: u64) -> String {
    if rows == 1 { "its only row is not".to_owned() } else { format!("none of its first {rows} rows is") }
}

fn and_others(count: usize) -> String {
    if count == 0 { String::new() } else { format!(" and {count} more") }
}

/// The message for more tenant columns than the format supports.
fn too_many_columns(format: &str, requested: &str, most: usize) -> String {
    match most {
        0 => format!("`{format}` traces have no such columns to take the tenant from: {requested}"),
        1 => format!("`{format}` traces take the tenant from at most one column, not from {requested}"),
        _ => format!("`{format}` traces take the tenant from at most {most} columns, not from {requested}"),
    }
}
