//! Checks before a run whether the files are in the expected format.

use std::io;
use std::path::Path;

use super::super::columns::RowError;
use super::super::detect;
use super::super::foreign;
use super::super::framing::Framing;
use super::super::head::Head;
use super::super::lines::RecordKind;
use super::super::records::Records;
use super::super::rows::{HeaderMismatch, RowReader, Rows};
use super::ReplayConfig;
use crate::trace::TraceError;
use crate::trace::format::Format;

/// One of the first rows must be valid; this many are tried.
const TRIED_ROWS: u64 = 1000;

/// Properties of a file's beginning besides its first row.
pub(super) struct Beginning {
    /// Whether the file has a row.
    pub(super) has_row: bool,
    /// The columns of its header, if it has one.
    pub(super) header_mismatch: Option<HeaderMismatch>,
}

/// The first record after the header.
enum First {
    /// A row with its timestamp.
    Row(Option<u64>),
    /// An invalid row, which any trace can contain.
    Wrong,
    /// No record.
    End,
}

/// Reads the file up to its first row. An invalid row is accepted and counted in the run, unless the file is in another format or none of
/// the rows after it is valid. `reader` has read the beginnings of the previous files.
pub(super) fn check(
    path: &Path,
    config: &ReplayConfig,
    reader: &mut dyn RowReader,
) -> Result<Beginning, TraceError> {
    let (first, header) = first(path, config, reader)?;
    let header_mismatch = (!header.is_empty()).then(|| reader.header_mismatch(&header));
    Ok(Beginning { has_row: !matches!(first, First::End), header_mismatch })
}

/// Checks the first file, and returns the timestamp of its first row.
pub(super) fn time_ns(path: &Path, config: &ReplayConfig) -> Result<Option<u64>, TraceError> {
    match first(path, config, config.reader(config.events.unwrap_or_default()).as_mut())?.0 {
        First::Row(time_ns) => Ok(time_ns),
        First::Wrong | First::End => Ok(None),
    }
}

/// The first record of the file and its header, which is empty if there is none.
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
            RecordKind::Header | RecordKind::Comment => {}
            RecordKind::WrongHeader(reason) => return Err(unreadable(path, config.format, reason)),
            RecordKind::Row if rows.len() > 0 => {
                let time_ns = rows.row(0).time_ns;
                if time_ns.is_none() && (config.timed || config.needs_times) {
                    return Err(TraceError::NoTimes { path: path.to_owned() });
                }
                break First::Row(time_ns);
            }
            RecordKind::Wrong(reason) => {
                another(path, config.format, &reason)?;
                break any_right(path, config.format, reader, &mut records, &reason)?;
            }
            // A row that is not replayed.
            RecordKind::Row => break First::Row(None),
            RecordKind::End => break First::End,
        }
    };
    Ok((first, records.header().to_vec()))
}

/// Handles an invalid first row: an error if the file matches another format.
fn another(path: &Path, expected: &'static Format, reason: &RowError) -> Result<(), TraceError> {
    let mut records = open(path)?;
    let Ok((bytes, is_whole)) = records.head() else { return Ok(()) };
    match detect::other_than(expected, path, &Head::new(path, bytes, is_whole)) {
        Some(found) => Err(TraceError::OtherFormat {
            path: path.to_owned(),
            found: found.name,
            expected: expected.name,
            reason: reason.clone(),
        }),
        None => Ok(()),
    }
}

/// Handles an invalid row: one of the next rows must be valid. Otherwise the columns are probably misread, and a run would make no
/// requests.
fn any_right(
    path: &Path,
    expected: &'static Format,
    reader: &mut dyn RowReader,
    records: &mut Records,
    reason: &RowError,
) -> Result<First, TraceError> {
    let (row, mut tried) = (records.number(), 1);
    let mut rows = Rows::default().lenient(true);
    while tried < TRIED_ROWS {
        rows.clear();
        // A read error is reported in the run, with its row.
        let Ok(fed) = records.feed(reader, &mut rows) else { return Ok(First::Wrong) };
        match fed {
            RecordKind::Row => return Ok(First::Wrong),
            RecordKind::Wrong(_) => tried += 1,
            RecordKind::Header | RecordKind::Comment => {}
            RecordKind::WrongHeader(_) | RecordKind::End => break,
        }
    }
    let order = reader.order().map_or_else(String::new, |order| format!("; {order}"));
    let why = format!("row {row}: {reason}{order}");
    Err(TraceError::NothingRead { path: path.to_owned(), rows: tried, expected: expected.name, why })
}

fn open(path: &Path) -> Result<Records, TraceError> {
    Records::open(path).map_err(|source| TraceError::Open { path: path.to_owned(), source })
}

/// The error for a file without a valid row of `expected`: it may be in another format.
fn unreadable(path: &Path, expected: &'static Format, reason: RowError) -> TraceError {
    let path = path.to_owned();
    match Format::detect_files(std::slice::from_ref(&path)).ok().filter(|found| found.name != expected.name) {
        Some(found) => TraceError::OtherFormat { path, found: found.name, expected: expected.name, reason },
        None => TraceError::Header { path, reason },
    }
}
