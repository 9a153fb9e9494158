//! Whether a file begins as its format does: found out before a run, and not in it.

use std::io;
use std::path::Path;

use super::super::columns::RowError;
use super::super::detect::{self, Head};
use super::super::lines::Fed;
use super::super::records::Records;
use super::super::rows::Rows;
use super::ReplayConfig;
use crate::trace::{Format, TraceError};

/// What a file begins with, after its header.
enum First {
    /// A row, recorded then.
    Row(Option<u64>),
    /// A row that is wrong, as it may be in any trace.
    Wrong,
    /// Nothing.
    End,
}

/// Reads the file as far as its first row; whether there is one. A row that is wrong is counted in the run, as any later one,
/// unless the file is a trace of another format.
pub(super) fn check(path: &Path, config: &ReplayConfig) -> Result<bool, TraceError> {
    Ok(!matches!(first(path, config)?, First::End))
}

/// The same, and answers when that row was recorded.
pub(super) fn time_ns(path: &Path, config: &ReplayConfig) -> Result<Option<u64>, TraceError> {
    match first(path, config)? {
        First::Row(time_ns) => Ok(time_ns),
        First::Wrong | First::End => Ok(None),
    }
}

fn first(path: &Path, config: &ReplayConfig) -> Result<First, TraceError> {
    let reading = |source: io::Error| TraceError::Read { path: path.to_owned(), row: 0, source };
    let mut reader = config.reader();
    let mut records = open(path)?;
    let (head, _) = records.head().map_err(reading)?;
    let framing = reader.framing(head).map_err(|reason| unreadable(path, config.format, reason))?;
    records.cut(framing);
    loop {
        let mut rows = Rows::default();
        match records.feed(reader.as_mut(), &mut rows).map_err(reading)? {
            Fed::Header | Fed::Remark => {}
            Fed::WrongHeader(reason) => return Err(unreadable(path, config.format, reason)),
            Fed::Row if rows.len() > 0 => {
                let time_ns = rows.row(0).time_ns;
                if time_ns.is_none() && (config.timed || config.needs_times) {
                    return Err(TraceError::NoTimes { path: path.to_owned() });
                }
                return Ok(First::Row(time_ns));
            }
            Fed::Wrong(reason) => return another(path, config.format, reason),
            // One that asks for nothing that is replayed.
            Fed::Row => return Ok(First::Row(None)),
            Fed::End => return Ok(First::End),
        }
    }
}

/// The first row is wrong. Alone that is no reason to stop, unless all that is tried of the file is, and another format reads it.
fn another(path: &Path, wanted: &'static Format, reason: RowError) -> Result<First, TraceError> {
    let mut records = open(path)?;
    let Ok((bytes, is_whole)) = records.head() else { return Ok(First::Wrong) };
    match detect::other_than(wanted, path, &Head::new(path, bytes, is_whole)) {
        Some(found) => Err(TraceError::OtherFormat {
            path: path.to_owned(),
            found: found.name,
            wanted: wanted.name,
            reason,
        }),
        None => Ok(First::Wrong),
    }
}

fn open(path: &Path) -> Result<Records, TraceError> {
    Records::open(path).map_err(|source| TraceError::Open { path: path.to_owned(), source })
}

/// No row of `wanted` can be read, because of `reason`: it may be a trace of another format.
fn unreadable(path: &Path, wanted: &'static Format, reason: RowError) -> TraceError {
    let path = path.to_owned();
    match Format::told_by(std::slice::from_ref(&path)).ok().filter(|found| found.name != wanted.name) {
        Some(found) => TraceError::OtherFormat { path, found: found.name, wanted: wanted.name, reason },
        None => TraceError::Header { path, reason },
    }
}
