//! Whether a file begins as its format does: found out before a run, and not in it.

use std::io;
use std::path::Path;

use super::super::columns::RowError;
use super::super::detect::{self, Head};
use super::super::foreign;
use super::super::lines::Fed;
use super::super::records::{Framing, Records};
use super::super::rows::{RowReader, Rows, Strangers};
use super::ReplayConfig;
use crate::trace::{Format, TraceError};

/// Rows of which one must be right.
const TRIED_ROWS: u64 = 1000;

/// What is to be known of a file besides its first row.
pub(super) struct Beginning {
    /// Whether it has a row.
    pub(super) has_row: bool,
    /// The columns of its header, where it has one.
    pub(super) strangers: Option<Strangers>,
}

/// What a file begins with, after its header.
enum First {
    /// A row, recorded then.
    Row(Option<u64>),
    /// A row that is wrong, as it may be in any trace.
    Wrong,
    /// Nothing.
    End,
}

/// Reads the file as far as its first row. A row that is wrong is counted in the run, as any later one,
/// unless the file is a trace of another format, or none of the rows behind it is right either. The `reader` has read the
/// beginnings of the files before it.
pub(super) fn check(
    path: &Path,
    config: &ReplayConfig,
    reader: &mut dyn RowReader,
) -> Result<Beginning, TraceError> {
    let (first, header) = first(path, config, reader)?;
    let strangers = (!header.is_empty()).then(|| reader.strangers(&header));
    Ok(Beginning { has_row: !matches!(first, First::End), strangers })
}

/// The same of the first file, and answers when that row was recorded.
pub(super) fn time_ns(path: &Path, config: &ReplayConfig) -> Result<Option<u64>, TraceError> {
    match first(path, config, config.reader(config.events.unwrap_or_default()).as_mut())?.0 {
        First::Row(time_ns) => Ok(time_ns),
        First::Wrong | First::End => Ok(None),
    }
}

/// What the file begins with, and its header; that is empty where it has none.
fn first(
    path: &Path,
    config: &ReplayConfig,
    reader: &mut dyn RowReader,
) -> Result<(First, Vec<u8>), TraceError> {
    let reading = |source: io::Error| TraceError::Read { path: path.to_owned(), row: 0, source };
    let mut records = open(path)?;
    let (head, _) = records.head().map_err(reading)?;
    let framing = reader.framing(head);
    let is_text = !matches!(framing, Ok(Framing::Fixed(_) | Framing::Streamed));
    if let Some(hint) = foreign::hint(path, head, is_text) {
        return Err(TraceError::Foreign { path: path.to_owned(), hint });
    }
    let framing = framing.map_err(|reason| unreadable(path, config.format, reason))?;
    records.cut(framing);
    let first = loop {
        let mut rows = Rows::default().lenient(true);
        match records.feed(reader, &mut rows).map_err(reading)? {
            Fed::Header | Fed::Remark => {}
            Fed::WrongHeader(reason) => return Err(unreadable(path, config.format, reason)),
            Fed::Row if rows.len() > 0 => {
                let time_ns = rows.row(0).time_ns;
                if time_ns.is_none() && (config.timed || config.needs_times) {
                    return Err(TraceError::NoTimes { path: path.to_owned() });
                }
                break First::Row(time_ns);
            }
            Fed::Wrong(reason) => {
                another(path, config.format, &reason)?;
                break any_right(path, config.format, reader, &mut records, &reason)?;
            }
            // One that asks for nothing that is replayed.
            Fed::Row => break First::Row(None),
            Fed::End => break First::End,
        }
    };
    Ok((first, records.header().to_vec()))
}

/// The first row is wrong. Alone that is no reason to stop, unless all that is tried of the file is, and another format reads it.
fn another(path: &Path, wanted: &'static Format, reason: &RowError) -> Result<(), TraceError> {
    let mut records = open(path)?;
    let Ok((bytes, is_whole)) = records.head() else { return Ok(()) };
    match detect::other_than(wanted, path, &Head::new(path, bytes, is_whole)) {
        Some(found) => Err(TraceError::OtherFormat {
            path: path.to_owned(),
            found: found.name,
            wanted: wanted.name,
            reason: reason.clone(),
        }),
        None => Ok(()),
    }
}

/// The row that was read last is wrong: there must be one behind it that is not. Otherwise its columns are taken for others
/// than they are, and a run would make no request.
fn any_right(
    path: &Path,
    wanted: &'static Format,
    reader: &mut dyn RowReader,
    records: &mut Records,
    reason: &RowError,
) -> Result<First, TraceError> {
    let (row, mut tried) = (records.number(), 1);
    let mut rows = Rows::default().lenient(true);
    while tried < TRIED_ROWS {
        rows.clear();
        // What cannot be read is told in its turn, with the row.
        let Ok(fed) = records.feed(reader, &mut rows) else { return Ok(First::Wrong) };
        match fed {
            Fed::Row => return Ok(First::Wrong),
            Fed::Wrong(_) => tried += 1,
            Fed::Header | Fed::Remark => {}
            Fed::WrongHeader(_) | Fed::End => break,
        }
    }
    let order = reader.order().map_or_else(String::new, |order| format!("; {order}"));
    let why = format!("row {row}: {reason}{order}");
    Err(TraceError::NothingRead { path: path.to_owned(), rows: tried, wanted: wanted.name, why })
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
