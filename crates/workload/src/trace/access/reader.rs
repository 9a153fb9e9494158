//! Reads trace files as accesses.

use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::{
    Access, AccessKind, Accesses, OnBadRow, OpenOptions, PageSize, ReadReport, TenantsFrom, ZeroSize,
};
use crate::RequestKind;
use crate::trace::CsvColumns;
use crate::trace::columns::{RowError, whole_number};
use crate::trace::cut::Cut;
use crate::trace::detect::{check_further, detect_files, note_of_bare_numbers};
use crate::trace::error::TraceError;
use crate::trace::files::TraceFiles;
use crate::trace::format::{Format, Pages, TimeUnits};
use crate::trace::lines::RecordKind;
use crate::trace::records::Records;
use crate::trace::rows::{MAX_OBJECT_BYTES, Object, ReaderOptions, Row, Rows, Unreadable, numbered};
use crate::trace::tenants::TenantNames;

mod copy;

/// Accesses per batch: enough to amortise the call, few enough for the processor's cache.
const BATCH_ACCESSES: usize = 4096;
/// Largest number of stored messages; a trace in the wrong format would fill memory with them.
const KEPT_MESSAGES: usize = 8;
/// Interval between accesses of a trace without timestamps.
const NUMBER_NS: u64 = 1_000_000;

/// The files of a trace, read one after the other.
pub(in crate::trace) struct Reader {
    options: OpenOptions,
    files: TraceFiles,
    /// The file of the last row with a timestamp.
    timed_file: usize,
    /// The rows of the current record, the next row, and the rest of the current one.
    rows: Rows,
    tenants: TenantNames,
    next_row: usize,
    row: RowCursor,
    last_ns: u64,
    /// Whether rows are copied unchanged, including timestamps that go back.
    keeps_rows: bool,
    ended: bool,
    /// An error that ends the trace after the accesses before it have been returned.
    failure: Option<TraceError>,
    first_bad: Option<String>,
    report: ReadReport,
}

impl Reader {
    pub(super) fn open(
        paths: Vec<PathBuf>,
        named: Option<(&'static Format, Option<CsvColumns>)>,
        options: OpenOptions,
    ) -> Result<Self, TraceError> {
        let (format, columns) = named.map_or((None, None), |(format, columns)| (Some(format), columns));
        let (path, further) = paths.split_first().ok_or(TraceError::NoFiles)?;
        let mut records = open_file(path)?;
        let detected = if format.is_none() { Some(detect_files(path, &mut records)?) } else { None };
        let guess = detected.and_then(|format| note_of_bare_numbers(path, &mut records, format));
        // Checked early, so that a wrong later file does not fail after an hour of work. A pipe can be read only once.
        further
            .iter()
            .filter(|path| path.as_os_str() != "-")
            .try_for_each(|path| check_further(path, detected))?;
        let format = format.or(detected).expect("the format is named or detected");
        let page_bytes = match options.page {
            None => format.page_bytes(),
            Some(PageSize::Bytes(bytes)) => Some(bytes.max(1)),
            Some(PageSize::Whole) => None,
        };
        if options.time_units_per_second.is_some() && matches!(format.time_units, TimeUnits::Fixed(_)) {
            return Err(TraceError::FixedTimeUnits { format: format.name });
        }
        let units = options.time_units_per_second.unwrap_or(format.time_units_per_second()).max(1);
        let make = |events| {
            let cut = Cut::Pages;
            let is_time_unit_given = options.time_units_per_second.is_some();
            let mut reader = (format.reader)(&ReaderOptions {
                time_units_per_second: units,
                is_time_unit_given,
                page_bytes,
                cut,
                events,
            });
            if let Some(columns) = &columns {
                reader.choose_columns(columns);
            }
            if let TenantsFrom::Columns(names) = &options.tenants {
                let requested = |most| TraceError::NoTenantColumns {
                    format: format.name,
                    requested: names.join(","),
                    most,
                };
                reader.choose_tenant(names).map_err(requested)?;
            }
            Ok(reader)
        };
        let files = TraceFiles::open(format, paths, Some(records), options.events, None, &make)?;
        let mut messages = Vec::new();
        if options.page.is_some() && format.pages == Pages::Never {
            messages.push(format!(
                "a page size has no effect: `{}` traces have no byte ranges, and record the size of every object",
                format.name
            ));
        }
        let tenants = TenantNames::default();
        let notes = guess.into_iter().chain(files.notes().iter().cloned()).collect();
        Ok(Self {
            rows: match options.tenants {
                TenantsFrom::Nothing => Rows::default(),
                _ => Rows::with_tenants(tenants.clone()),
            }
            .lenient(options.on_bad_row == OnBadRow::Skip),
            tenants,
            options,
            files,
            timed_file: 0,
            next_row: 0,
            row: RowCursor::EMPTY,
            last_ns: 0,
            keeps_rows: false,
            ended: false,
            failure: None,
            first_bad: None,
            report: ReadReport { format: format.name, messages, notes, ..ReadReport::default() },
        })
    }

    /// Fills the batch. Returns false at the end of the trace.
    fn fill(&mut self, batch: &mut Vec<Access>) -> Result<bool, TraceError> {
        let limit = self.options.limit.unwrap_or(u64::MAX);
        loop {
            while self.row.left > 0 && self.report.accesses < limit {
                if batch.len() == BATCH_ACCESSES {
                    return Ok(true);
                }
                batch.push(self.row.next(self.report.accesses));
                self.report.accesses += 1;
            }
            // Rows behind the limit are not read: they can be invalid or not written yet.
            if self.report.accesses == limit {
                return Ok(false);
            }
            if self.next_row < self.rows.len() {
                self.begin_row()?;
                self.next_row += 1;
                continue;
            }
            self.rows.clear();
            self.next_row = 0;
            if !self.read_record()? {
                return Ok(false);
            }
        }
    }

    /// Reads a record into the empty `rows`. Returns false at the end.
    #[inline]
    fn read_record(&mut self) -> Result<bool, TraceError> {
        let fed = self.files.feed(&mut self.rows)?;
        let had_rows = self.report.rows > 0;
        self.report.rows = self.files.rows();
        match fed {
            RecordKind::Row => {
                if !self.rows.unreadable().is_empty() {
                    self.count_unreadable();
                }
            }
            RecordKind::Comment => {}
            RecordKind::Header => self.take_header(had_rows),
            RecordKind::Wrong(reason) => {
                self.rows.clear();
                self.bad_row(reason)?;
            }
            RecordKind::WrongHeader(reason) => {
                return Err(TraceError::Header { path: self.files.path().to_owned(), reason });
            }
            RecordKind::End => return Ok(false),
        }
        Ok(true)
    }

    #[inline]
    fn begin_row(&mut self) -> Result<(), TraceError> {
        let row = self.rows.row(self.next_row);
        let mut cursor = RowCursor::new(row, &self.rows);
        if cursor.access.size_bytes > MAX_OBJECT_BYTES {
            return self.bad_row(RowError::LargeObject(cursor.access.size_bytes));
        }
        if cursor.has_time && cursor.access.time_ns == u64::MAX {
            return self.bad_row(RowError::FarTime);
        }
        if cursor.access.size_bytes == 0 && row.kind != RequestKind::Delete {
            self.report.zero_sizes += cursor.left;
            match self.options.zero_size {
                ZeroSize::Keep => {}
                ZeroSize::As(bytes) => cursor.access.size_bytes = bytes,
                ZeroSize::Skip => return self.report_problem(RowError::NoSize, "skipped"),
            }
        }
        if !cursor.has_time && self.report.has_time {
            // Other rows have timestamps: this access takes the last one instead of its number.
            (cursor.access.time_ns, cursor.has_time) = (self.last_ns, true);
        }
        if cursor.has_time {
            if !self.report.has_time {
                self.report.untimed = self.report.accesses;
                // The accesses before have their numbers as times: the trace's clock starts here, with any value.
                self.last_ns = cursor.access.time_ns;
            }
            let back_ns = self.last_ns.saturating_sub(cursor.access.time_ns);
            let is_new_file = std::mem::replace(&mut self.timed_file, self.files.file()) != self.timed_file;
            if back_ns > 0 && is_new_file && !self.files.are_merged() {
                self.note_overlap(back_ns);
            }
            if back_ns > 0 {
                self.report.backward_times += 1;
                cursor.access.time_ns = self.last_ns;
                let done = if self.keeps_rows { "kept unchanged" } else { "set to that row's time" };
                self.report_problem(RowError::Backwards(back_ns), done)?;
            }
            self.last_ns = cursor.access.time_ns;
            self.report.has_time = true;
        }
        self.row = cursor;
        Ok(())
    }

    #[cold]
    fn count_unreadable(&mut self) {
        let Self { rows, report, files, .. } = self;
        for (column, reason) in rows.unreadable() {
            Unreadable::count(&mut report.unreadable, column, reason, || {
                message(files.path(), files.number(), reason)
            });
        }
    }

    #[cold]
    fn take_header(&mut self, had_rows: bool) {
        let Some((reader, header)) = self.files.header() else { return };
        // The last header line above the rows counts.
        if self.report.columns.is_none() || !had_rows {
            self.report.columns = reader.columns(header);
        }
        for note in self.files.duplicate_columns() {
            if self.report.notes.len() < KEPT_MESSAGES && !self.report.notes.contains(&note) {
                self.report.notes.push(note);
            }
        }
    }

    /// Notes that the file begins before the end of the previous one.
    #[cold]
    fn note_overlap(&mut self, back_ns: u64) {
        if self.report.notes.len() < KEPT_MESSAGES {
            self.report.notes.push(format!(
                "{}: its first timestamp is {} s before the last one of the files ahead of it; the files are read one after \
                 the other in the order given, and not merged",
                self.files.path().display(),
                back_ns as f64 / 1e9
            ));
        }
    }

    /// Skips a row that describes no request, or stops.
    fn bad_row(&mut self, reason: RowError) -> Result<(), TraceError> {
        self.report.bad_rows += 1;
        let limit = self.options.bad_rows_limit;
        if self.options.on_bad_row == OnBadRow::Skip && self.report.bad_rows > limit {
            let (path, row) = (self.files.path().to_owned(), self.files.number());
            let first = self.first_bad.take().unwrap_or_else(|| message(&path, row, &reason));
            return Err(TraceError::TooManyBadRows { path, row, reason, limit, first });
        }
        self.first_bad.get_or_insert_with(|| message(self.files.path(), self.files.number(), &reason));
        self.report_problem(reason, "skipped")
    }

    /// The error for a trace with rows but no request: the format is wrong, or the counted data is missing. Statistics of nothing would
    /// look like a result.
    fn without_requests(&mut self) -> Option<TraceError> {
        if self.report.accesses > 0 || self.report.zero_sizes > 0 || self.options.limit == Some(0) {
            return None;
        }
        let (path, rows) = (self.files.paths()[0].clone(), self.report.rows);
        match self.first_bad.take() {
            Some(first) => {
                let first = format!("{first}{}", self.other_format());
                Some(TraceError::NoRequests { path, rows, first })
            }
            None if rows > 0 => {
                let hint = match self.options.events {
                    Some(_) => "; without --events, the events that it has are used",
                    None => "",
                };
                Some(TraceError::OnlyOtherRows { path, rows, hint })
            }
            None => None,
        }
    }

    /// A hint if the first file's content matches another format than the one it was read as.
    fn other_format(&self) -> String {
        let path = &self.files.paths()[..1];
        let found = Format::detect_files(path)
            .ok()
            .filter(|found| found.name != self.report.format && path[0].is_file());
        found.map_or_else(String::new, |found| {
            format!("; by its content it is a `{0}` trace: --format {0}", found.name)
        })
    }

    /// Reports a problem with the current record and its handling, or stops.
    #[cold]
    fn report_problem(&mut self, reason: RowError, done: &str) -> Result<(), TraceError> {
        let (path, row) = (self.files.path(), self.files.number());
        if self.options.on_bad_row == OnBadRow::Stop {
            return Err(TraceError::BadRow { path: path.to_owned(), row, reason });
        }
        if self.report.messages.len() < KEPT_MESSAGES {
            self.report.messages.push(format!("{}; {done}", message(path, row, &reason)));
        }
        Ok(())
    }
}

fn message(path: &Path, row: u64, reason: &RowError) -> String {
    format!("{}: row {row}: {reason}", path.display())
}

fn open_file(path: &Path) -> Result<Records, TraceError> {
    Records::open(path).map_err(|source| TraceError::Open { path: path.to_owned(), source })
}

/// The row that is being returned as accesses.
struct RowCursor {
    access: Access,
    has_time: bool,
    volume: u64,
    first: u64,
    count: u64,
    /// Index of the next numbered object; `left` counts the remaining accesses.
    index: u64,
    left: u64,
}

impl RowCursor {
    const EMPTY: Self = Self {
        access: Access {
            time_ns: 0,
            key: 0,
            size_bytes: 0,
            ttl_seconds: None,
            tenant: None,
            kind: AccessKind::Get,
        },
        has_time: false,
        volume: 0,
        first: 0,
        count: 0,
        index: 0,
        left: 0,
    };

    #[inline]
    fn new(row: &Row, rows: &Rows) -> Self {
        let (volume, first, count) = match &row.object {
            Object::Named(range) => (0, key_of(rows.named(range)), 1),
            Object::Numbered { volume, first, count } => (*volume, *first, *count),
            Object::Items(_) => unreachable!("ranges are not split here"),
        };
        let access = Access {
            time_ns: row.time_ns.unwrap_or(0),
            key: 0,
            size_bytes: row.value_bytes.saturating_add(u64::from(row.key_bytes)),
            ttl_seconds: row.ttl_seconds,
            tenant: row.tenant,
            kind: kind_of(row.kind),
        };
        let left = count.saturating_mul(u64::from(row.repeat));
        Self { access, has_time: row.time_ns.is_some(), volume, first, count, index: 0, left }
    }

    /// The next access, which is number `number` of the trace.
    #[inline]
    fn next(&mut self, number: u64) -> Access {
        self.access.key = numbered(self.volume, self.first, self.index);
        if !self.has_time {
            self.access.time_ns = number * NUMBER_NS;
        }
        self.index += 1;
        if self.index == self.count {
            self.index = 0;
        }
        self.left -= 1;
        self.access
    }
}

/// The number of the object with this name. A decimal number is its own key; one with leading zeros (`07`) is hashed like text.
#[inline]
#[must_use]
pub fn key_of(name: &[u8]) -> u64 {
    let has_leading_zero = name.len() > 1 && name[0] == b'0';
    match whole_number(name) {
        Some(number) if !has_leading_zero => number,
        _ => xxh3_64(name),
    }
}

fn kind_of(kind: RequestKind) -> AccessKind {
    match kind {
        RequestKind::Get | RequestKind::LoneGet | RequestKind::CouldExist => AccessKind::Get,
        RequestKind::Set | RequestKind::LoneSet | RequestKind::Update | RequestKind::AddChained => {
            AccessKind::Set
        }
        RequestKind::Delete => AccessKind::Delete,
    }
}

impl Accesses for Reader {
    fn next_batch(&mut self, batch: &mut Vec<Access>) -> Result<bool, TraceError> {
        batch.clear();
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if !self.ended {
            match self.fill(batch) {
                Ok(true) => {}
                Ok(false) => {
                    self.ended = true;
                    self.failure = self.without_requests();
                }
                Err(failure) => {
                    self.ended = true;
                    self.failure = Some(failure);
                }
            }
        }
        match self.failure.take() {
            Some(failure) if batch.is_empty() => Err(failure),
            other => {
                self.failure = other;
                Ok(!batch.is_empty())
            }
        }
    }

    fn report(&self) -> &ReadReport {
        &self.report
    }

    fn tenants(&self) -> TenantNames {
        self.tenants.clone()
    }
}
