//! Why a trace cannot be read.

use std::io;
use std::path::PathBuf;

use super::columns::RowError;
use super::csv::ColumnsError;

/// Why a trace cannot be read, or cannot be read on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("cannot open the trace {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// No such format.
    #[error("there is no trace format `{name}`; valid formats are auto, {known}")]
    UnknownFormat {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The columns of a table are not understood.
    #[error("`{columns}`: {reason}")]
    Columns {
        /// What was asked for.
        columns: String,
        /// What is wrong with it.
        reason: ColumnsError,
    },
    /// The file looks like none of the formats.
    #[error("{}: {hint}the content matches none of the formats that can be detected ({known}); the others must be named ({unmarked})", path.display())]
    Unrecognised {
        /// The file.
        path: PathBuf,
        /// What may be the matter, or nothing.
        hint: String,
        /// The formats that a file tells.
        known: String,
        /// Those that it does not.
        unmarked: String,
    },
    /// A table whose header lacks a column, or calls it by an unusual name.
    #[error("{}: its header does not name both an object (key, id, object_id, ...) and its size (size, bytes, ...): read it with {way}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// How it is read.
        way: String,
    },
    /// A time unit is given for a format that defines its own, or has no times.
    #[error("--time-units: `{format}` traces have a time unit of their own or no times; leave the flag out")]
    FixedTimeUnits {
        /// The format.
        format: &'static str,
    },
    /// The file is empty, so that its format cannot be told.
    #[error("{}: the file is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Requests were to be made at the times of the trace.
    #[error("{}: its requests have no timestamps", path.display())]
    NoTimes {
        /// The file.
        path: PathBuf,
    },
    /// The tenant is to be read from columns that the format does not have.
    #[error("{}", too_many_columns(format, asked, *most))]
    NoTenantColumns {
        /// The format.
        format: &'static str,
        /// What was asked for.
        asked: String,
        /// How many columns the tenant may have.
        most: usize,
    },
    /// Events were chosen of a format that has but one of each request.
    #[error("`{}` events cannot be chosen: only blktrace and blkparse recordings have several events of each request, and this is a `{format}` trace", events.name())]
    NoEvents {
        /// The format.
        format: &'static str,
        /// The requested events.
        events: super::block::Events,
    },
    /// The file may be in one of several formats.
    #[error("{}: the format could be {candidates}; name the right one with --format", path.display())]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// What it may be.
        candidates: String,
    },
    /// The first bytes of a file are wrong, so that no row can be read.
    #[error("{}: {reason}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: RowError,
    },
    /// The header has some of the columns of a format, and lacks others.
    #[error("{}: read as `{format}`: {reason}", path.display())]
    HeaderOf {
        /// The file.
        path: PathBuf,
        /// The format.
        format: &'static str,
        /// What is wrong.
        reason: RowError,
    },
    /// A file is in another format than the one that is read.
    #[error("{}: this is a `{found}` trace, but a `{wanted}` trace is needed here: {reason}", path.display())]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What it ought to be.
        wanted: &'static str,
        /// Why it is not.
        reason: RowError,
    },
    /// Not one of the rows that a file begins with could be read.
    #[error("{}: {} a request of a `{wanted}` trace; {why}", path.display(), none_of(*rows))]
    NothingRead {
        /// The file.
        path: PathBuf,
        /// How many were tried.
        rows: u64,
        /// What they ought to be.
        wanted: &'static str,
        /// The first of them, what is wrong with it, and in which order its columns were read.
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
    /// The files of a trace are in more than one format.
    #[error("{}: a `{found}` trace after a `{wanted}` trace: all files of a trace must be in one format; convert it, or name the format of all", path.display())]
    MixedFormats {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What the first file is.
        wanted: &'static str,
    },
    /// A row is wrong, and wrong rows are to stop.
    #[error("{}: row {row}: {reason}; stopped there", path.display())]
    BadRow {
        /// The file.
        path: PathBuf,
        /// The line, or the record in a binary trace, from 1.
        row: u64,
        /// What is wrong.
        reason: RowError,
    },
    /// More rows are wrong than may be skipped.
    #[error("{}: row {row}: {reason}; stopped there: more than {limit} rows are wrong, the first: {first}", path.display())]
    TooManyBadRows {
        /// The file.
        path: PathBuf,
        /// The line, or the record in a binary trace, from 1.
        row: u64,
        /// What is wrong.
        reason: RowError,
        /// How many may be skipped.
        limit: u64,
        /// File, row and reason of the first.
        first: String,
    },
    /// Not one row could be read.
    #[error("{}: none of {rows} rows is a valid request; the first error: {first}", path.display())]
    NoRequests {
        /// The file, or the first of several.
        path: PathBuf,
        /// How many there are.
        rows: u64,
        /// File, row and reason.
        first: String,
    },
    /// All rows are valid, but none is a request.
    #[error("{}: the trace has no requests: none of its {rows} rows is one", path.display())]
    OnlyOtherRows {
        /// The file, or the first of several.
        path: PathBuf,
        /// How many there are.
        rows: u64,
    },
    /// There is not one row, at most a header.
    #[error("{}{}: the trace has no requests, not even one row", path.display(), and_others(*others))]
    NoRows {
        /// The first file.
        path: PathBuf,
        /// How many there are beside it.
        others: usize,
    },
    /// Reading failed in the middle, or compressed data is damaged or cut off.
    #[error("{}: after row {row}: {source}; stopped there", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The last row that was whole.
        row: u64,
        /// Why.
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

/// What is said of more columns for the tenant than a format has for it.
fn too_many_columns(format: &str, asked: &str, most: usize) -> String {
    match most {
        0 => format!("`{format}` traces have no such columns to take the tenant from: {asked}"),
        1 => format!("`{format}` traces take the tenant from at most one column, not from {asked}"),
        _ => format!("`{format}` traces take the tenant from at most {most} columns, not from {asked}"),
    }
}
