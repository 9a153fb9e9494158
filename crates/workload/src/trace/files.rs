//! The files of a trace: read in sequence or merged by time.
//!
//! The files of a key-value trace follow each other. The files of a block trace are simultaneous recordings: blktrace writes one per CPU,
//! other recorders one per disk, host or job; they are merged by time. Within a file a request up to [`WINDOW`] rows late is sorted,
//! because blktrace's buffers are not ordered.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::block::events::EventCounts;
use super::block::{BlockFormat, Events};
use super::error::TraceError;
use super::foreign;
use super::format::{FileOrder, Format};
use super::framing::Framing;
use super::input;
use super::lines::RecordKind;
use super::parquet;
use super::records::Records;
use super::row_error::RowError;
use super::rows::{Row, RowReader, Rows};

/// Buffered rows per merged file, so that late rows can be sorted.
pub(super) const WINDOW: usize = 4096;

/// Creates a file's reader for these block-layer events.
type MakeReader<'a> = &'a dyn Fn(Events) -> Result<Box<dyn RowReader>, TraceError>;

/// The files of a trace as one stream of rows.
pub(super) struct TraceFiles {
    paths: Vec<PathBuf>,
    /// The file of the last row.
    file: usize,
    /// Lines or records read, without headers and comments.
    rows: u64,
    source: Source,
    notes: Vec<String>,
    /// Counts the bytes read from the files.
    taken: Option<Arc<AtomicU64>>,
}

enum Source {
    InTurn {
        records: Box<Records>,
        reader: Box<dyn RowReader>,
        right: u64,
        first_wrong: Option<(u64, RowError)>,
    },
    ByTime {
        files: Vec<Merged>,
        number: u64,
    },
}

impl TraceFiles {
    /// Opens the first file, or all of them if they are merged. `first` is the first file if it is already open and unread. `events` are
    /// the block-layer events that count; `None` chooses from the files. The bytes read from the files are added to `taken`.
    ///
    /// # Errors
    /// A file cannot be opened or has an invalid beginning, or `events` are selected for a format without events.
    pub(super) fn open(
        format: &'static Format,
        paths: Vec<PathBuf>,
        first: Option<Records>,
        events: Option<Events>,
        taken: Option<Arc<AtomicU64>>,
        make: MakeReader<'_>,
    ) -> Result<Self, TraceError> {
        let is_merged = format.merges(paths.len());
        let begun = if is_merged { paths.len() } else { 1 };
        let first_path = paths.first().ok_or(TraceError::NoFiles)?;
        let mut opened = vec![first.map_or_else(|| open(first_path, taken.as_ref()), Ok)?];
        for path in &paths[1..begun] {
            opened.push(open(path, taken.as_ref())?);
        }
        let mut notes = Vec::new();
        if is_merged && paths.len() > 1 {
            notes.push(format!("{} files are merged by time", paths.len()));
        }
        let events = events_of(format, events, &paths, &mut opened, &mut notes)?;
        if format.name == parquet::FORMAT.name
            && let Some(path) =
                paths.iter().find(|path| !File::open(path).is_ok_and(|file| input::is_parquet(&file)))
        {
            let hint = "it is not a Parquet file: --format csv reads tables of text".to_owned();
            return Err(TraceError::Foreign { path: path.clone(), hint });
        }
        let mut readers = paths.iter().zip(opened).map(|(path, mut records)| {
            let mut reader = make(events)?;
            begin(path, &mut records, reader.as_mut())?;
            Ok((records, reader))
        });
        let source = if is_merged {
            let files: Result<Vec<Merged>, TraceError> =
                readers.map(|read| read.map(|(records, reader)| Merged::new(records, reader))).collect();
            Source::ByTime { files: files?, number: 0 }
        } else {
            let (records, reader) = readers.next().ok_or(TraceError::NoFiles)??;
            Source::InTurn { records: Box::new(records), reader, right: 0, first_wrong: None }
        };
        Ok(Self { paths, file: 0, rows: 0, source, notes, taken })
    }

    /// Notes about whole files.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Adds the rows of the next record to `rows`. [`RecordKind::End`] follows the last file.
    ///
    /// # Errors
    /// A read error, or the next file cannot be opened or is in another format.
    #[inline]
    pub(super) fn feed(&mut self, rows: &mut Rows) -> Result<RecordKind, TraceError> {
        match &mut self.source {
            Source::InTurn { records, reader, right, first_wrong } => {
                let row = records.number();
                let fed = records.feed(reader.as_mut(), rows);
                let fed = fed.map_err(|source| TraceError::Read {
                    path: self.paths[self.file].clone(),
                    row,
                    source,
                })?;
                match &fed {
                    RecordKind::Row => (self.rows, *right) = (self.rows + 1, *right + 1),
                    RecordKind::Wrong(reason) => {
                        self.rows += 1;
                        first_wrong.get_or_insert_with(|| (records.number(), reason.clone()));
                    }
                    RecordKind::End => return self.next_file(rows),
                    _ => {}
                }
                Ok(fed)
            }
            Source::ByTime { .. } => self.feed_earliest(rows),
        }
    }

    /// Opens the next file. Fails if the current file is not the first and none of its rows was valid: its format is another one.
    #[cold]
    fn next_file(&mut self, rows: &mut Rows) -> Result<RecordKind, TraceError> {
        let Source::InTurn { records, reader, right, first_wrong } = &mut self.source else {
            return Ok(RecordKind::End);
        };
        if let (true, 0, Some((row, reason))) = (self.file > 0, *right, first_wrong.take()) {
            let path = self.paths[self.file].clone();
            return Err(TraceError::NothingInFile { path, row, reason });
        }
        let Some(path) = self.paths.get(self.file + 1) else { return Ok(RecordKind::End) };
        **records = open(path, self.taken.as_ref())?;
        begin(path, records, reader.as_mut())?;
        (*right, self.file) = (0, self.file + 1);
        self.feed(rows)
    }

    fn feed_earliest(&mut self, rows: &mut Rows) -> Result<RecordKind, TraceError> {
        let Source::ByTime { files, number } = &mut self.source else { return Ok(RecordKind::End) };
        for (at, (file, path)) in files.iter_mut().zip(&self.paths).enumerate() {
            file.fill(path, at > 0);
        }
        let earliest = (0..files.len()).filter(|at| files[*at].next_ns().is_some());
        let Some(at) = earliest.min_by_key(|at| files[*at].next_ns()) else {
            self.rows += files.iter_mut().map(|file| std::mem::take(&mut file.unused)).sum::<u64>();
            return Ok(RecordKind::End);
        };
        let Some(held) = files[at].window.pop() else { return Ok(RecordKind::End) };
        (self.file, *number) = (at, held.number);
        self.rows += held.records;
        match held.item {
            Item::Row(row) => {
                rows.push(row);
                Ok(RecordKind::Row)
            }
            Item::Wrong(reason) => Ok(RecordKind::Wrong(reason)),
            Item::Failed(failure) => Err(*failure),
        }
    }

    /// The file of the last record.
    pub(super) fn path(&self) -> &Path {
        &self.paths[self.file]
    }

    /// Index of the file of the last record, from 0.
    pub(super) fn file(&self) -> usize {
        self.file
    }

    /// The files.
    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Number of the last record in its file, from 1.
    pub(super) fn number(&self) -> u64 {
        match &self.source {
            Source::InTurn { records, .. } => records.number(),
            Source::ByTime { number, .. } => *number,
        }
    }

    /// Lines or records read so far, without headers and comments.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether the rows of several files are merged by time.
    pub(super) fn are_merged(&self) -> bool {
        self.paths.len() > 1 && matches!(self.source, Source::ByTime { .. })
    }

    /// The reader of the current file and its header, which is empty if there is none.
    pub(super) fn header(&self) -> Option<(&dyn RowReader, &[u8])> {
        match &self.source {
            Source::InTurn { records, reader, .. } => Some((reader.as_ref(), records.header())),
            Source::ByTime { .. } => None,
        }
    }
}

impl TraceFiles {
    /// A note for each name that occurs several times in the current file's header.
    pub(super) fn duplicate_columns(&self) -> Vec<String> {
        let Some((reader, header)) = self.header() else { return Vec::new() };
        let path = self.path().display();
        let message =
            |name| format!("{path}: the header has several columns `{name}`; the first one is used");
        reader.duplicates(header).into_iter().map(message).collect()
    }
}

impl Format {
    /// The corresponding block format, if it records several events per request.
    pub(super) fn with_events(&self) -> Option<&'static BlockFormat> {
        BlockFormat::named(self.name).filter(|format| format.has_events())
    }

    /// Whether this number of files is merged. A single blktrace file is sorted too: `blktrace -o -` writes the buffers of all CPUs into
    /// one file.
    fn merges(&self, files: usize) -> bool {
        self.files == FileOrder::ByTime && (files > 1 || self.name == "blktrace")
    }
}

/// The selected events, or those that the first bytes of the files contain.
fn events_of(
    format: &Format,
    requested: Option<Events>,
    paths: &[PathBuf],
    opened: &mut [Records],
    notes: &mut Vec<String>,
) -> Result<Events, TraceError> {
    let Some(block) = format.with_events() else {
        return match requested {
            Some(events) => Err(TraceError::NoEvents { format: format.name, events }),
            None => Ok(Events::Queue),
        };
    };
    if let Some(events) = requested {
        return Ok(events);
    }
    let mut counts = EventCounts::default();
    for (path, records) in paths.iter().zip(opened) {
        let failed = |source| TraceError::Read { path: path.clone(), row: 0, source };
        let (head, is_whole) = records.head().map_err(failed)?;
        counts.merge(EventCounts::of(block, head, is_whole));
    }
    let (events, note) = counts.choose();
    notes.extend(note);
    Ok(events)
}

fn open(path: &Path, taken: Option<&Arc<AtomicU64>>) -> Result<Records, TraceError> {
    let opened = match taken {
        Some(taken) => Records::open_counting(path, Arc::clone(taken)),
        None => Records::open(path),
    };
    opened.map_err(|source| TraceError::Open { path: path.to_owned(), source })
}

fn begin(path: &Path, records: &mut Records, reader: &mut dyn RowReader) -> Result<(), TraceError> {
    let failed = |source| TraceError::Read { path: path.to_owned(), row: 0, source };
    let (head, _) = records.head().map_err(failed)?;
    let framing = reader.framing(head);
    let is_text = !matches!(framing, Ok(Framing::Fixed(_) | Framing::Streamed));
    if let Some(hint) = foreign::hint(path, head, is_text) {
        return Err(TraceError::Foreign { path: path.to_owned(), hint });
    }
    records.cut(framing.map_err(|reason| TraceError::Header { path: path.to_owned(), reason })?);
    Ok(())
}

/// A merged file.
struct Merged {
    records: Records,
    reader: Box<dyn RowReader>,
    rows: Rows,
    window: BinaryHeap<Buffered>,
    /// Items buffered so far.
    sequence: u64,
    /// Records without a request since the last item.
    unused: u64,
    last_ns: u64,
    /// Whether a valid row was found; `first_wrong` is the first invalid one.
    has_right: bool,
    first_wrong: Option<(u64, RowError)>,
    ended: bool,
}

/// A buffered row or error. The earliest is the greatest, because a heap pops its greatest element.
struct Buffered {
    time_ns: u64,
    sequence: u64,
    number: u64,
    /// Records that it accounts for: itself and the preceding ones without a request.
    records: u64,
    item: Item,
}

enum Item {
    Row(Row),
    Wrong(RowError),
    Failed(Box<TraceError>),
}

impl Merged {
    fn new(records: Records, reader: Box<dyn RowReader>) -> Self {
        Self {
            records,
            reader,
            rows: Rows::default(),
            window: BinaryHeap::new(),
            sequence: 0,
            unused: 0,
            last_ns: 0,
            has_right: false,
            first_wrong: None,
            ended: false,
        }
    }

    fn next_ns(&self) -> Option<u64> {
        self.window.peek().map(|held| held.time_ns)
    }

    /// Reads until the window is full or the file ends. `is_further`: the file is not the first of several.
    fn fill(&mut self, path: &Path, is_further: bool) {
        while !self.ended && self.window.len() < WINDOW {
            let row = self.records.number();
            self.rows.clear();
            match self.records.feed(self.reader.as_mut(), &mut self.rows) {
                Ok(RecordKind::Row) => {
                    self.unused += 1;
                    self.has_right = true;
                    for index in 0..self.rows.len() {
                        let row = self.rows.row(index).clone();
                        let time_ns = row.time_ns.unwrap_or(self.last_ns);
                        self.last_ns = time_ns;
                        self.buffer(time_ns, Item::Row(row));
                    }
                }
                Ok(RecordKind::Wrong(reason)) => {
                    self.unused += 1;
                    self.first_wrong.get_or_insert_with(|| (self.records.number(), reason.clone()));
                    self.buffer(self.last_ns, Item::Wrong(reason));
                }
                Ok(RecordKind::WrongHeader(reason)) => {
                    self.fail(TraceError::Header { path: path.to_owned(), reason });
                }
                Ok(RecordKind::Header | RecordKind::Comment) => {}
                Ok(RecordKind::End) => {
                    self.ended = true;
                    if let Some((row, reason)) =
                        self.first_wrong.take().filter(|_| !self.has_right && is_further)
                    {
                        self.fail(TraceError::NothingInFile { path: path.to_owned(), row, reason });
                    }
                }
                Err(source) => self.fail(TraceError::Read { path: path.to_owned(), row, source }),
            }
        }
    }

    fn buffer(&mut self, time_ns: u64, item: Item) {
        let (number, records) = (self.records.number(), std::mem::take(&mut self.unused));
        self.window.push(Buffered { time_ns, sequence: self.sequence, number, records, item });
        self.sequence += 1;
    }

    fn fail(&mut self, failure: TraceError) {
        self.ended = true;
        // The error is reported after all rows that were read before it.
        let last_ns = self.window.iter().map(|held| held.time_ns).max().unwrap_or(self.last_ns);
        self.buffer(last_ns, Item::Failed(Box::new(failure)));
    }
}

impl Ord for Buffered {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time_ns, other.sequence).cmp(&(self.time_ns, self.sequence))
    }
}

impl PartialOrd for Buffered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Buffered {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Buffered {}
