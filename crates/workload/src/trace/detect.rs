//! Detects the format of a file.
//!
//! A format is a candidate if its reader parses the first records and they match the format beyond chance. If there are several, the ending
//! of the file name selects one; if it selects none, the error names the candidates.

use std::path::Path;

use super::FORMATS;
use super::block::Events;
use super::block::events::EventCounts;
use super::columns::{RowError, looks_like_header};
use super::csv;
use super::cut::Cut;
use super::error::TraceError;
use super::foreign;
use super::format::Format;
use super::framing::Framing;
use super::head::{Head, is_text, is_text_or_zeros};
use super::lines::{Lines, RecordKind};
use super::parquet;
use super::records::Records;
use super::rows::{ReaderOptions, RowReader, Rows};

/// Records tried, not counting those without a request: a recording of one CPU can begin with many.
const TRIED_RECORDS: usize = 32;

/// Detects the format of the file at `path`, from whose `records` nothing was read yet.
pub(super) fn detect_files(path: &Path, records: &mut Records) -> Result<&'static Format, TraceError> {
    let failed = |source| TraceError::Read { path: path.to_owned(), row: 0, source };
    let (bytes, is_whole) = records.head().map_err(failed)?;
    if bytes.is_empty() {
        return Err(TraceError::Empty { path: path.to_owned() });
    }
    detect(path, &Head::new(path, bytes, is_whole))
}

/// Checks that a file after the first opens, and is in the detected format of the first.
pub(super) fn check_further(path: &Path, detected: Option<&'static Format>) -> Result<(), TraceError> {
    let opening = |source| TraceError::Open { path: path.to_owned(), source };
    if !path.metadata().map_err(opening)?.is_file() {
        return Ok(());
    }
    let mut records = Records::open(path).map_err(opening)?;
    let Some(expected) = detected else { return Ok(()) };
    // A read error is reported when the file's turn comes, with the row.
    let Ok((bytes, is_whole)) = records.head() else { return Ok(()) };
    match other_than(expected, path, &Head::new(path, bytes, is_whole)) {
        Some(found) => Err(TraceError::MixedFormats {
            path: path.to_owned(),
            found: found.name,
            expected: expected.name,
        }),
        None => Ok(()),
    }
}

/// Detects the format of the file at `path`, which begins with `head`.
pub(super) fn detect(path: &Path, head: &Head<'_>) -> Result<&'static Format, TraceError> {
    let (mut complaint, mut nearest) = (None, None);
    let mut reads = |format: &'static Format| match tried(format, head, false) {
        Ok(trial) if trial.is_clean() => Some((format, true)),
        // The header matches; unreadable optional values do not count against the rows.
        Ok(trial) if trial.succeeded() => Some((format, is_clean(format, head))),
        Ok(trial) => {
            nearest = nearest
                .take()
                .into_iter()
                .chain(trial.nearly(format))
                .max_by_key(|near: &NearMatch| near.read);
            None
        }
        // The line may be no header of this format.
        Err(RowError::UnknownHeader(_) | RowError::NoKeyColumn) => None,
        Err(reason) => {
            // A format without missing columns explains the header better.
            let is_nearer = complaint.is_none() || !matches!(reason, RowError::Header(_));
            complaint = if is_nearer { Some((format.name, reason)) } else { complaint.take() };
            None
        }
    };
    let mut candidates: Vec<_> = FORMATS.iter().copied().filter_map(&mut reads).collect();
    if candidates.is_empty() && complaint.is_none() {
        let reads = FORMATS.iter().copied().filter(|format| is_clean(format, head));
        candidates = reads.map(|format| (format, true)).collect();
    }
    // A format that reads the rows explains the header better.
    if candidates.iter().any(|(_, is_clean)| *is_clean) {
        candidates.retain(|(_, is_clean)| *is_clean);
    }
    let mut candidates: Vec<_> = candidates.into_iter().map(|(format, _)| format).collect();
    // Every table matches `csv`; a more specific format is preferred.
    if candidates.len() > 1 {
        candidates.retain(|format| format.name != csv::FORMAT.name);
    }
    if candidates.iter().any(|format| head.ends_like(format)) {
        candidates.retain(|format| head.ends_like(format));
    }
    match candidates[..] {
        [format] => Ok(format),
        [] => Err(unrecognised(path, head, complaint, nearest)),
        _ => {
            let names: Vec<_> = candidates.iter().map(|format| format.name).collect();
            Err(TraceError::Ambiguous { path: path.to_owned(), candidates: names.join(" or ") })
        }
    }
}

/// A note for a text file without a header or a letter, whose columns are known by their number alone and whose name has no ending of the
/// format.
pub(super) fn note_of_bare_numbers(path: &Path, records: &mut Records, format: &Format) -> Option<String> {
    let (bytes, is_whole) = records.head().ok()?;
    let head = Head::new(path, bytes, is_whole);
    let is_bare = |line: &[u8]| !line.iter().any(u8::is_ascii_alphabetic);
    let is_guessed =
        head.is_text() && !head.ends_like(format) && head.lines().take(TRIED_RECORDS).all(is_bare);
    is_guessed.then(|| {
        format!(
            "{}: read as {} ({}); --format names another format",
            path.display(),
            format.name,
            format.about
        )
    })
}

/// Whether most rows are valid if unreadable optional values count as absent.
fn is_clean(format: &'static Format, head: &Head<'_>) -> bool {
    tried(format, head, true).is_ok_and(|trial| trial.is_clean())
}

/// The error for a file that matches no format: a header known in part, or the most similar format.
fn unrecognised(
    path: &Path,
    head: &Head<'_>,
    complaint: Option<(&'static str, RowError)>,
    nearest: Option<NearMatch>,
) -> TraceError {
    let path = path.to_owned();
    if let (None, None, Some(hint)) = (&complaint, &nearest, foreign::hint_of_unknown(&path, head.bytes)) {
        return TraceError::Foreign { path, hint };
    }
    match (complaint, head.table_perhaps()) {
        // A table without a column of one format can be complete in another.
        (None | Some((_, RowError::Header(_))), Some(table)) => TraceError::Table { path, way: table.way() },
        (Some((format, reason)), _) => TraceError::HeaderOf { path, format, reason },
        (None, None) => TraceError::Unrecognised {
            hint: nearest.map_or_else(|| hint(head.bytes), |near| near.text()),
            path,
            known: names(true),
            unmarked: names(false),
        },
    }
}

/// The format of a file that `expected`, the format of the files before it, cannot read; `None` if undetected.
pub(super) fn other_than(expected: &'static Format, path: &Path, head: &Head<'_>) -> Option<&'static Format> {
    // With configured columns, nothing is known about other tables.
    let is_table = [csv::FORMAT.name, parquet::FORMAT.name].contains(&expected.name);
    if !expected.is_detectable() || (is_table && head.is_text()) {
        return None;
    }
    let reads = [false, true]
        .into_iter()
        .any(|is_lenient| tried(expected, head, is_lenient).is_ok_and(|trial| trial.succeeded()));
    detect(path, head).ok().filter(|found| !reads && found.name != expected.name)
}

/// The detectable formats, or the others, for a message.
fn names(detectable: bool) -> String {
    let names = FORMATS.iter().copied().filter(|format| format.is_detectable() == detectable);
    names.map(|format| format.name).collect::<Vec<_>>().join(", ")
}

/// A hint at a common obstacle that the first bytes reveal.
fn hint(head: &[u8]) -> String {
    if let Some(at) = head.iter().position(|byte| *byte == 0).filter(|_| is_text_or_zeros(head)) {
        let line = head[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        return format!("line {line} has a NUL byte (tr -d '\\000' removes them); ");
    }
    if let Some(at) = control_byte(head) {
        let line = head[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        return format!(
            "line {line} has a control byte {0:#04x} (tr -d '\\{0:03o}' removes them); ",
            head[at]
        );
    }
    let first = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let has = |byte| is_text(head) && first.contains(&byte) && !first.contains(&b',');
    let numbers = || first.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect::<Vec<_>>();
    let hint = match () {
        () if is_text(head) && head.contains(&b'\r') && !head.contains(&b'\n') => {
            "its lines end in carriage returns alone: convert them to line feeds (tr '\\r' '\\n'); "
        }
        () if has(b';') => {
            "its columns are separated by semicolons: name them to read it (as in csv:time,key,-,size); "
        }
        () if is_text(first) && looks_like_header(first) => {
            "its header has no known column (a plain trace has ts,key,op,size): name those that are needed to read \
             it (as in csv:key=2,size=bytes); "
        }
        () if has(b'\t') => {
            "its columns are separated by tabs: name them to read it (as in csv:time,key,-,size), or name the format; "
        }
        () if is_text(head) && first.contains(&b',') => {
            "it may be a table without a header: name its columns to read it (as in csv:time,key,-,size); "
        }
        () if has(b' ') && numbers().len() == 4 => {
            "it could be ARC's lists of blocks (--format arc), or a table with a feature (--format webcachesim); "
        }
        () if has(b' ') && numbers().len() > 1 => {
            "it may be a table without a header: name its columns to read it (as in csv:time,key,size); "
        }
        () => "",
    };
    hint.to_owned()
}

/// The place of the first control byte in a file that is text but for one byte in a hundred at most.
fn control_byte(head: &[u8]) -> Option<usize> {
    let is_control = |byte: &u8| *byte < b' ' && !b"\t\n\r".contains(byte);
    let controls = head.iter().filter(|byte| is_control(byte)).count();
    head.iter().position(is_control).filter(|_| controls <= 1 + head.len() / 100)
}

/// Tries the format's reader on the first records; `is_lenient` treats unreadable optional values as absent. An error is a header with some
/// of the format's columns but not all required ones.
fn tried(format: &Format, head: &Head<'_>, is_lenient: bool) -> Result<Trial, RowError> {
    if !(format.plausible)(head) {
        return Ok(Trial::default());
    }
    let options = ReaderOptions {
        time_units_per_second: format.time_units_per_second(),
        is_time_unit_given: false,
        page_bytes: format.page_bytes(),
        cut: Cut::Pages,
        events: events_in(format, head),
    };
    let mut reader = (format.reader)(&options);
    let rows = if is_lenient { Rows::detecting() } else { Rows::default() };
    let mut trial = Trial { rows, ..Trial::default() };
    match reader.framing(head.bytes)? {
        Framing::Fixed(_) | Framing::Streamed if head.is_text() => return Ok(trial),
        // Text within binary data, for example an archive in an archive, is not a header.
        Framing::Lines if !head.lines().next().is_none_or(is_text) => return Ok(trial),
        Framing::Fixed(bytes) => {
            let records = head.bytes.chunks_exact(bytes);
            trial.read_all(records, |record, rows| {
                reader.read(record, rows).map_or_else(RecordKind::Wrong, |()| RecordKind::Row)
            })?;
        }
        Framing::Streamed => {
            trial.has_header = reader.accept_header(head.bytes)?;
            trial.read_stream(reader.as_mut(), head);
        }
        Framing::Lines => {
            let mut lines = Lines::default();
            trial.read_all(head.lines(), |line, rows| lines.feed(line, reader.as_mut(), rows))?;
            // The column names would be an invalid row, and the columns could be in another order.
            if !trial.has_header && head.table().is_some_and(|table| table.has_key()) {
                return Ok(Trial::default());
            }
        }
    }
    Ok(trial)
}

/// The events that a block-layer recording begins with.
fn events_in(format: &Format, head: &Head<'_>) -> Events {
    let counts = |format| EventCounts::of(format, head.bytes, head.is_whole);
    format.with_events().map_or(Events::Queue, |format| counts(format).choose().0)
}

/// The result of trying a format.
#[derive(Default)]
struct Trial {
    has_header: bool,
    rows: Rows,
    /// Records with a request, and invalid ones.
    tried: usize,
    /// Valid rows.
    read: usize,
    wrong: usize,
    /// The first problem.
    first: Option<RowError>,
}

/// A format that can read some of the records, but not enough.
struct NearMatch {
    format: &'static str,
    read: usize,
    wrong: usize,
    first: RowError,
}

impl NearMatch {
    fn text(&self) -> String {
        let Self { format, read, wrong, first } = self;
        let all = read + wrong;
        format!(
            "{wrong} of its first {all} rows are wrong for `{format}` (the first: {first}); \
             name that format to read it anyway; "
        )
    }
}

impl Trial {
    fn read_all<'a>(
        &mut self,
        records: impl Iterator<Item = &'a [u8]>,
        mut feed: impl FnMut(&'a [u8], &mut Rows) -> RecordKind,
    ) -> Result<(), RowError> {
        for record in records {
            self.rows.clear();
            match feed(record, &mut self.rows) {
                RecordKind::Row => self.is_read(),
                // A header after invalid rows does not count.
                RecordKind::Header => self.has_header |= self.tried == 0,
                RecordKind::Comment | RecordKind::End => {}
                RecordKind::Wrong(reason) => self.is_wrong(Some(reason)),
                RecordKind::WrongHeader(reason) => return Err(reason),
            }
            if self.tried == TRIED_RECORDS {
                break;
            }
        }
        Ok(())
    }

    fn read_stream(&mut self, reader: &mut dyn RowReader, head: &Head<'_>) {
        let mut input = head.bytes;
        while self.tried < TRIED_RECORDS {
            self.rows.clear();
            let read = reader.read_from(&mut input, &mut self.rows);
            // The head can end within a record.
            let is_cut = input.is_empty() && !head.is_whole;
            match read {
                Ok(None) => break,
                Ok(Some(Ok(()))) => self.is_read(),
                Ok(Some(Err(_))) | Err(_) if is_cut => break,
                Ok(Some(Err(reason))) => self.is_wrong(Some(reason)),
                Err(_) => self.is_wrong(None),
            }
        }
    }

    fn is_read(&mut self) {
        self.tried += usize::from(self.rows.len() > 0);
        self.read += self.rows.len();
    }

    fn is_wrong(&mut self, reason: Option<RowError>) {
        self.tried += 1;
        self.wrong += 1;
        self.first = self.first.take().or(reason);
    }

    /// The failed trial for a message, if at least half of the records were read.
    fn nearly(self, format: &Format) -> Option<NearMatch> {
        let Self { read, wrong, first, .. } = self;
        let is_near = read > 0 && read >= wrong;
        first.filter(|_| is_near).map(|first| NearMatch { format: format.name, read, wrong, first })
    }

    fn succeeded(&self) -> bool {
        self.has_header || self.is_clean()
    }

    /// Whether most records are valid, or there is only a header.
    fn is_clean(&self) -> bool {
        self.read > 3 * self.wrong || (self.has_header && self.wrong == 0)
    }
}
