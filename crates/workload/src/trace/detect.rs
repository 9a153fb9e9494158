//! Which format a file is in.
//!
//! A format is a candidate if its own reader reads the first records of the file, and if they look like it beyond
//! chance. Among several the ending of the name decides, where it does. Otherwise nobody guesses: it is an error
//! that names them.

use std::path::Path;

use super::block::Events;
use super::block::events::EventCounts;
use super::columns::{RowError, bare, looks_like_header};
use super::csv::{self, Header};
use super::cut::Cut;
use super::error::TraceError;
use super::foreign;
use super::lines::{Fed, Lines, remark};
use super::records::{Framing, Records, mark_bytes};
use super::rows::{ReaderOptions, RowReader, Rows};
use super::{FORMATS, Format};

/// Records that are tried, besides those that ask for nothing: a recording of one processor may begin with many.
const TRIED_RECORDS: usize = 32;
const COMPRESSIONS: [&str; 3] = ["gz", "zst", "xz"];

/// The beginning of a file.
pub(super) struct Head<'a> {
    /// Its name in small letters, without the ending of a compression.
    pub(super) name: String,
    /// Its first bytes.
    pub(super) bytes: &'a [u8],
    /// Whether these are all.
    pub(super) is_whole: bool,
}

impl<'a> Head<'a> {
    pub(super) fn new(path: &Path, bytes: &'a [u8], is_whole: bool) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let bytes = if is_text(bytes) { &bytes[mark_bytes(bytes)..] } else { bytes };
        let compressed = COMPRESSIONS.iter().find_map(|ending| name.strip_suffix(&format!(".{ending}")));
        Self { name: compressed.unwrap_or(&name).to_owned(), bytes, is_whole }
    }

    /// Its first lines that are not empty and not cut off.
    pub(super) fn lines(&self) -> impl Iterator<Item = &'a [u8]> {
        let text = self.bytes;
        let end = match text.iter().rposition(|byte| *byte == b'\n') {
            _ if self.is_whole => text.len(),
            Some(last) => last,
            None => 0,
        };
        let lines = text[..end].split(|byte| *byte == b'\n');
        lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)).filter(|line| !line.is_empty())
    }

    /// The same without the remarks ahead of the first that is none.
    pub(super) fn rows(&self) -> impl Iterator<Item = &'a [u8]> {
        self.lines().skip_while(|line| remark(line).is_some())
    }

    /// The first line that is no remark.
    pub(super) fn first_line(&self) -> Option<&'a [u8]> {
        self.rows().next()
    }

    /// The line that would be the header, if there is one: the first, or the remark ahead of it where the first is none.
    fn header_lines(&self) -> impl Iterator<Item = &'a [u8]> {
        let first = self.first_line();
        let remark = self.lines().map_while(remark).last();
        let remark = remark.filter(|_| !first.is_some_and(looks_like_header));
        first.into_iter().chain(remark)
    }

    /// Whether a header names this column.
    pub(super) fn header_names(&self, column: &str) -> bool {
        let is_it = |name: &[u8]| bare(name).eq_ignore_ascii_case(column.as_bytes());
        self.header_lines().any(|line| line.split(|byte| *byte == b',').any(is_it))
    }

    /// Whether a header names the time of a request.
    pub(super) fn header_names_time(&self) -> bool {
        self.header_lines().any(|line| line.split(|byte| *byte == b',').any(csv::is_time))
    }

    /// The header of a table, whatever separates its columns.
    pub(super) fn table(&self) -> Option<Header<'a>> {
        self.table_or(Header::is_all_usual)
    }

    /// The same, or a remark that may be meant as one: for a message.
    fn table_perhaps(&self) -> Option<Header<'a>> {
        self.table_or(|_| true)
    }

    fn table_or(&self, is_header: impl Fn(&Header<'a>) -> bool) -> Option<Header<'a>> {
        let first = self.first_line()?;
        let remark = || Header::of(self.header_lines().nth(1)?).filter(|it| it.fits(first) && is_header(it));
        if self.is_text() { Header::of(first).or_else(remark) } else { None }
    }

    /// Whether there is nothing in it that text would not have.
    pub(super) fn is_text(&self) -> bool {
        is_text(self.bytes)
    }

    /// Whether its name ends as this format's files do.
    pub(super) fn ends_like(&self, format: &Format) -> bool {
        format.extensions.iter().any(|ending| self.name.ends_with(&format!(".{ending}")))
    }
}

/// Whether there is nothing in it that text would not have, but for a stray zero byte as a crash leaves them in a log.
fn is_text(bytes: &[u8]) -> bool {
    const ZEROS_PER_BYTE: usize = 1024;
    let zeros = bytes.iter().filter(|byte| **byte == 0).count();
    zeros <= 1 + bytes.len() / ZEROS_PER_BYTE && is_text_but_for_zeros(bytes)
}

fn is_text_but_for_zeros(bytes: &[u8]) -> bool {
    !bytes.iter().any(|byte| (1..b' ').contains(byte) && !b"\t\n\r".contains(byte))
}

/// The format of the file at `path`, of whose `records` none was read yet.
pub(super) fn told_by(path: &Path, records: &mut Records) -> Result<&'static Format, TraceError> {
    let failed = |source| TraceError::Read { path: path.to_owned(), row: 0, source };
    let (bytes, is_whole) = records.head().map_err(failed)?;
    if bytes.is_empty() {
        return Err(TraceError::Empty { path: path.to_owned() });
    }
    detect(path, &Head::new(path, bytes, is_whole))
}

/// A file behind the first, whose format was told by its contents, can be opened and is not in another.
pub(super) fn check_further(path: &Path, told: Option<&'static Format>) -> Result<(), TraceError> {
    let opening = |source| TraceError::Open { path: path.to_owned(), source };
    if !path.metadata().map_err(opening)?.is_file() {
        return Ok(());
    }
    let mut records = Records::open(path).map_err(opening)?;
    let Some(wanted) = told else { return Ok(()) };
    // What cannot be read is told in its turn, with the row.
    let Ok((bytes, is_whole)) = records.head() else { return Ok(()) };
    match other_than(wanted, path, &Head::new(path, bytes, is_whole)) {
        Some(found) => {
            Err(TraceError::MixedFormats { path: path.to_owned(), found: found.name, wanted: wanted.name })
        }
        None => Ok(()),
    }
}

/// The format of the file at `path`, which begins with `head`.
pub(super) fn detect(path: &Path, head: &Head<'_>) -> Result<&'static Format, TraceError> {
    let (mut complaint, mut nearest) = (None, None);
    let mut reads = |format: &'static Format| match tried(format, head, false) {
        Ok(trial) if trial.is_clean() => Some((format, true)),
        // The header matches; unreadable optional values do not count against the rows.
        Ok(trial) if trial.succeeded() => Some((format, is_clean(format, head))),
        Ok(trial) => {
            nearest =
                nearest.take().into_iter().chain(trial.nearly(format)).max_by_key(|near: &Nearly| near.read);
            None
        }
        // It need not be a header of this format at all.
        Err(RowError::UnknownHeader(_) | RowError::NoKeyColumn) => None,
        Err(reason) => {
            // Who lacks a column knows the header less well than who lacks none.
            let is_nearer = complaint.is_none() || !matches!(reason, RowError::Header(_));
            complaint = if is_nearer { Some((format.name, reason)) } else { complaint.take() };
            None
        }
    };
    let mut candidates: Vec<_> = FORMATS.into_iter().filter_map(&mut reads).collect();
    if candidates.is_empty() && complaint.is_none() {
        let reads = FORMATS.into_iter().filter(|format| is_clean(format, head));
        candidates = reads.map(|format| (format, true)).collect();
    }
    // What makes requests of the rows knows the header better.
    if candidates.iter().any(|(_, is_clean)| *is_clean) {
        candidates.retain(|(_, is_clean)| *is_clean);
    }
    let mut candidates: Vec<_> = candidates.into_iter().map(|(format, _)| format).collect();
    // Any table is one of `csv`, and what has a format of its own is more.
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

/// Whether most rows are right once unreadable optional values are taken as absent.
fn is_clean(format: &'static Format, head: &Head<'_>) -> bool {
    tried(format, head, true).is_ok_and(|trial| trial.is_clean())
}

/// Why a file is in no format: a header that one of them knows in part, or what its rows are most like.
fn unrecognised(
    path: &Path,
    head: &Head<'_>,
    complaint: Option<(&'static str, RowError)>,
    nearest: Option<Nearly>,
) -> TraceError {
    let path = path.to_owned();
    match (complaint, head.table_perhaps()) {
        // A table that lacks a column of one format may be complete in another.
        (None | Some((_, RowError::Header(_))), Some(table)) => TraceError::Table { path, way: table.way() },
        (Some((format, reason)), _) => TraceError::HeaderOf { path, format, reason },
        (None, None) => TraceError::Unrecognised {
            hint: nearest.map_or_else(|| hint(&path, head.bytes), |near| near.words()),
            path,
            known: names(true),
            unmarked: names(false),
        },
    }
}

/// The format of a file that `wanted`, in which the files before it are, makes nothing of; `None` where there is no telling.
pub(super) fn other_than(wanted: &'static Format, path: &Path, head: &Head<'_>) -> Option<&'static Format> {
    // Of a table nobody but who named its columns knows how it reads.
    if !wanted.is_told_apart() || (wanted.name == csv::FORMAT.name && head.is_text()) {
        return None;
    }
    let reads = [false, true]
        .into_iter()
        .any(|is_lenient| tried(wanted, head, is_lenient).is_ok_and(|trial| trial.succeeded()));
    detect(path, head).ok().filter(|found| !reads && found.name != wanted.name)
}

/// The formats that are told apart, or those that are not, for a message.
fn names(told_apart: bool) -> String {
    let names = FORMATS.into_iter().filter(|format| format.is_told_apart() == told_apart);
    names.map(|format| format.name).collect::<Vec<_>>().join(", ")
}

/// What keeps many a file from being read, where its first bytes tell.
fn hint(path: &Path, head: &[u8]) -> String {
    if let Some(foreign) = foreign::hint(path, head, true) {
        return format!("{foreign}; ");
    }
    if let Some(at) = head.iter().position(|byte| *byte == 0).filter(|_| is_text_but_for_zeros(head)) {
        let line = head[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        return format!("line {line} has a NUL byte (tr -d '\\000' removes them); ");
    }
    let first = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let has = |byte| is_text(head) && first.contains(&byte) && !first.contains(&b',');
    let numbers = || first.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect::<Vec<_>>();
    let words = match () {
        () if is_text(head) && head.contains(&b'\r') && !head.contains(&b'\n') => {
            "its lines end in carriage returns alone: convert them to line feeds; "
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
    words.to_owned()
}

/// How the format's reader fares with the first records, if unreadable optional values are taken as absent or not. An error is a header that names some of its columns and lacks
/// others.
fn tried(format: &Format, head: &Head<'_>, is_lenient: bool) -> Result<Trial, RowError> {
    if !(format.plausible)(head) {
        return Ok(Trial::default());
    }
    let options = ReaderOptions {
        time_units_per_second: format.time_units_per_second,
        page_bytes: format.page_bytes,
        cut: Cut::Pages,
        events: events_in(format, head),
    };
    let mut reader = (format.reader)(&options);
    let rows = if is_lenient { Rows::detecting() } else { Rows::default() };
    let mut trial = Trial { rows, ..Trial::default() };
    match reader.framing(head.bytes)? {
        Framing::Fixed(_) | Framing::Streamed if head.is_text() => return Ok(trial),
        // Text in the middle of something else, such as an archive in an archive, is no header.
        Framing::Lines if !head.lines().next().is_none_or(is_text) => return Ok(trial),
        Framing::Fixed(bytes) => {
            let records = head.bytes.chunks_exact(bytes);
            trial.read_all(records, |record, rows| {
                reader.read(record, rows).map_or_else(Fed::Wrong, |()| Fed::Row)
            })?;
        }
        Framing::Streamed => {
            trial.has_header = reader.takes_header(head.bytes)?;
            trial.read_stream(reader.as_mut(), head);
        }
        Framing::Lines => {
            let mut lines = Lines::default();
            trial.read_all(head.lines(), |line, rows| lines.feed(line, reader.as_mut(), rows))?;
            // The names of the columns would be wrong rows, and the columns those of another order.
            if !trial.has_header && head.table().is_some_and(|table| table.has_key()) {
                return Ok(Trial::default());
            }
        }
    }
    Ok(trial)
}

/// The events that a recording of the block layer begins with.
fn events_in(format: &Format, head: &Head<'_>) -> Events {
    let counts = |format| EventCounts::of(format, head.bytes, head.is_whole);
    format.with_events().map_or(Events::Queue, |format| counts(format).choose().0)
}

/// How trying a format goes.
#[derive(Default)]
struct Trial {
    has_header: bool,
    rows: Rows,
    /// Records that asked for something, or were wrong.
    tried: usize,
    /// Rows.
    read: usize,
    wrong: usize,
    /// What is wrong with the first that is.
    first: Option<RowError>,
}

/// A format whose reader made something of the records, and not enough.
struct Nearly {
    format: &'static str,
    read: usize,
    wrong: usize,
    first: RowError,
}

impl Nearly {
    fn words(&self) -> String {
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
        mut feed: impl FnMut(&'a [u8], &mut Rows) -> Fed,
    ) -> Result<(), RowError> {
        for record in records {
            self.rows.clear();
            match feed(record, &mut self.rows) {
                Fed::Row => self.is_read(),
                // Behind wrong rows it may be anything.
                Fed::Header => self.has_header |= self.tried == 0,
                Fed::Remark | Fed::End => {}
                Fed::Wrong(reason) => self.is_wrong(Some(reason)),
                Fed::WrongHeader(reason) => return Err(reason),
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
            // The head ends where it does, and not with a record.
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

    /// What may be told of a trial that did not succeed: half of the records at least were read.
    fn nearly(self, format: &Format) -> Option<Nearly> {
        let Self { read, wrong, first, .. } = self;
        let is_near = read > 0 && read >= wrong;
        first.filter(|_| is_near).map(|first| Nearly { format: format.name, read, wrong, first })
    }

    fn succeeded(&self) -> bool {
        self.has_header || self.is_clean()
    }

    /// Most records are right; or there is but a header.
    fn is_clean(&self) -> bool {
        self.read > 3 * self.wrong || (self.has_header && self.wrong == 0)
    }
}
