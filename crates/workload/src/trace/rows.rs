//! Rows: the common form of records in all formats.

use std::io::{self, BufRead};

use super::block::Events;
use super::columns::{RowError, lossy};
use super::csv::CsvColumns;
use super::cut::{Cut, Items};
use super::framing::Framing;
use super::tenants::{Interner, TenantNames};
use crate::{RequestKind, Tenant};

/// Longest key that caches support and that padding creates.
const MAX_KEY_BYTES: usize = 256;

/// Parses the records of one format into rows.
pub(super) trait RowReader: Send {
    /// The framing of the file that begins with `head`.
    fn framing(&mut self, head: &[u8]) -> Result<Framing, RowError> {
        let _ = head;
        Ok(Framing::Lines)
    }

    /// Checks the first line of a file: returns true and uses its order of columns if it is a header, and false if it is a row. For a
    /// [streamed](Framing::Streamed) format `line` is the beginning of the file, and only detection calls this.
    fn accept_header(&mut self, line: &[u8]) -> Result<bool, RowError> {
        let _ = line;
        Ok(false)
    }

    /// Uses the order of columns in a comment before all rows, given without its `#`, if it is certainly a header; returns whether it is.
    fn accept_comment(&mut self, text: &[u8]) -> bool {
        let _ = text;
        false
    }

    /// Uses the order of columns in a line among the rows if it is certainly a header; returns whether it is.
    fn accept_repeated_header(&mut self, line: &[u8]) -> bool {
        let _ = line;
        false
    }

    /// The meaning of the columns in this header, which was accepted; `None` if the format does not use headers.
    fn columns(&self, header: &[u8]) -> Option<String> {
        let _ = header;
        None
    }

    /// Unknown and missing columns of this header, which was accepted; empty if the format does not use headers.
    fn header_mismatch(&self, header: &[u8]) -> HeaderMismatch {
        let _ = header;
        HeaderMismatch::default()
    }

    /// Column names that occur several times in the header. The first column of each is used.
    fn duplicates(&self, header: &[u8]) -> Vec<String> {
        let _ = header;
        Vec::new()
    }

    /// The order in which the file's columns are read, for a message; `None` if there are no columns.
    fn order(&self) -> Option<String> {
        None
    }

    /// Uses the columns with these names, which must be otherwise unused, as the tenant.
    ///
    /// # Errors
    /// The largest number of tenant columns, if there are too many.
    fn choose_tenant(&mut self, columns: &[String]) -> Result<(), usize> {
        let _ = columns;
        Err(0)
    }

    /// Sets the columns of a table.
    fn choose_columns(&mut self, columns: &CsvColumns) {
        let _ = columns;
    }

    /// Parses a record and adds its requests to `rows`: usually one row, none for a marker or an unsupported operation. After an error the
    /// added rows are discarded.
    fn read(&mut self, record: &[u8], rows: &mut Rows) -> Result<(), RowError>;

    /// Reads the next record of a [streamed](Framing::Streamed) format; `None` at the end.
    fn read_from(
        &mut self,
        input: &mut dyn BufRead,
        rows: &mut Rows,
    ) -> io::Result<Option<Result<(), RowError>>> {
        let _ = (input, rows);
        Ok(None)
    }
}

/// Header columns unknown to the format, and columns of the format missing from the header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderMismatch {
    /// Unused columns that published traces do not have.
    pub unknown: Vec<String>,
    /// Columns of the format that the header lacks.
    pub lacking: Vec<&'static str>,
    /// Missing columns that change the meaning of rows, with the assumption made instead.
    pub meant: Vec<(&'static str, &'static str)>,
}

/// Options of a format's reader.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReaderOptions {
    /// The trace's time units per second, for formats without a fixed unit.
    pub(super) time_units_per_second: u64,
    /// Whether the user gave the time units, which then count before the unit in a header.
    pub(super) is_time_unit_given: bool,
    /// Page size: the size of objects if the format records none, and the unit into which byte ranges are divided. `None` leaves ranges
    /// undivided.
    pub(super) page_bytes: Option<u64>,
    /// Division of ranges into cache items, for formats that support it.
    pub(super) cut: Cut,
    /// The block-layer events that count as requests.
    pub(super) events: Events,
}

#[cfg(test)]
impl Default for ReaderOptions {
    fn default() -> Self {
        Self {
            time_units_per_second: 1,
            is_time_unit_given: false,
            page_bytes: Some(4096),
            cut: Cut::Pages,
            events: Events::Queue,
        }
    }
}

/// A request as recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) kind: RequestKind,
    pub(super) object: Object,
    pub(super) value_bytes: u64,
    /// Length of the recorded key, if it counts towards the object's size.
    pub(super) key_bytes: u32,
    pub(super) ttl_seconds: Option<u32>,
    pub(super) time_ns: Option<u64>,
    pub(super) repeat: u32,
    pub(super) tenant: Option<Tenant>,
}

/// The object of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Object {
    /// An object with a name: its position in [`Rows`].
    Named(std::ops::Range<u32>),
    /// Numbered objects: `count` of them from `first` on, requested in that order.
    Numbered {
        /// Distinguishes disks or files; 0 if there is only one.
        volume: u64,
        first: u64,
        count: u64,
    },
    /// Several cache items: their index in [`Rows`]. Only with a [`Cut`].
    Items(u32),
}

impl Object {
    /// One numbered object.
    #[inline]
    pub(super) fn number(number: u64) -> Self {
        Self::Numbered { volume: 0, first: number, count: 1 }
    }
}

/// Largest accepted object: larger than file systems support.
pub(super) const MAX_OBJECT_BYTES: u64 = 1 << 44;

/// Longest request of a block trace.
pub(super) const MAX_IO_BYTES: u64 = u32::MAX as u64;

/// A byte range of a disk or a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// Distinguishes disks or files; 0 if there is only one.
    pub(super) volume: u64,
    pub(super) start_bytes: u64,
    pub(super) bytes: u64,
}

impl Extent {
    /// The pages that the range touches, and their size. Without a page size, the range itself is an object.
    pub(super) fn cut(self, page_bytes: Option<u64>) -> (Object, u64) {
        let Self { volume, start_bytes, bytes } = self;
        match page_bytes.filter(|_| bytes > 0) {
            None => (Object::Numbered { volume, first: start_bytes, count: 1 }, bytes),
            Some(page) => {
                let first = start_bytes / page;
                let last = start_bytes.saturating_add(bytes - 1) / page;
                (Object::Numbered { volume, first, count: last - first + 1 }, page)
            }
        }
    }

    /// The pages that lie completely in the range; `None` if there are none.
    pub(super) fn whole_pages(self, page_bytes: u64) -> Option<Object> {
        let Self { volume, start_bytes, bytes } = self;
        let (first, end) = (start_bytes.div_ceil(page_bytes), start_bytes.saturating_add(bytes) / page_bytes);
        (first < end).then(|| Object::Numbered { volume, first, count: end - first })
    }
}

impl Row {
    /// A row with defaults for the other fields.
    #[inline]
    pub(super) fn new(kind: RequestKind, object: Object, value_bytes: u64) -> Self {
        Self {
            kind,
            object,
            value_bytes,
            key_bytes: 0,
            ttl_seconds: None,
            time_ns: None,
            repeat: 1,
            tenant: None,
        }
    }
}

/// The rows of a record, with their names.
#[derive(Debug, Default)]
pub(super) struct Rows {
    rows: Vec<Row>,
    names: Vec<u8>,
    items: Vec<Items>,
    /// `None` if tenants are not read.
    tenants: Option<Box<Interner>>,
    /// Whether an unreadable optional value is treated as absent. Otherwise it makes the row invalid, as during format detection.
    is_lenient: bool,
    /// Whether the format is known. Otherwise it is being detected.
    is_reading: bool,
    /// Optional values of the record that were treated as absent.
    unreadable: Vec<(&'static str, RowError)>,
}

/// Values of a column that were treated as absent because they are unreadable, or whose rows were left out because they request no object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The column.
    pub column: &'static str,
    /// Whether the rows were left out: their operation requests no object.
    pub is_row_left_out: bool,
    /// Number of values.
    pub values: u64,
    /// File, row and reason of the first.
    pub first: String,
}

impl Unreadable {
    /// Adds one to the count of the column.
    pub(super) fn count(
        all: &mut Vec<Self>,
        column: &'static str,
        reason: &RowError,
        first: impl FnOnce() -> String,
    ) {
        let is_row_left_out = matches!(reason, RowError::NoObject(_));
        match all.iter_mut().find(|it| (it.column, it.is_row_left_out) == (column, is_row_left_out)) {
            Some(known) => known.values += 1,
            None => all.push(Self { column, is_row_left_out, values: 1, first: first() }),
        }
    }
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { column, is_row_left_out, values, first } = self;
        if *is_row_left_out {
            let (noun, was) = if *values == 1 { ("row", "was") } else { ("rows", "were") };
            return write!(
                out,
                "{values} {noun} that {} no object {was} left out; the first: {first}",
                if *values == 1 { "requests" } else { "request" }
            );
        }
        let (noun, was) = if *values == 1 { ("value", "was") } else { ("values", "were") };
        write!(
            out,
            "{values} {noun} of the column `{column}` {was} unreadable and taken as absent; the first: {first}"
        )
    }
}

impl Rows {
    /// Rows with tenants.
    pub(super) fn with_tenants(names: TenantNames) -> Self {
        Self { tenants: Some(Box::new(Interner::new(names))), ..Self::default() }
    }

    /// The tenant named by these columns, if tenants are read.
    #[inline]
    pub(super) fn tenant(&mut self, columns: &[&[u8]]) -> Option<Tenant> {
        self.tenants.as_mut()?.tenant(columns)
    }

    /// Sets the mode for a known format. Unreadable optional values are treated as absent if `is_lenient`.
    pub(super) fn lenient(self, is_lenient: bool) -> Self {
        Self { is_lenient, is_reading: true, ..self }
    }

    /// Rows for format detection, in which unreadable optional values are errors.
    pub(super) fn detecting() -> Self {
        Self { is_lenient: true, ..Self::default() }
    }

    /// Whether the format is being detected.
    pub(super) fn is_detecting(&self) -> bool {
        !self.is_reading
    }

    /// The value of an optional column; absent if it is unreadable and `is_lenient` is set.
    #[inline]
    pub(super) fn optional<T>(
        &mut self,
        column: &'static str,
        value: Result<Option<T>, RowError>,
    ) -> Result<Option<T>, RowError> {
        match value {
            Err(reason) if self.is_lenient => {
                self.unreadable.push((column, reason));
                Ok(None)
            }
            other => other,
        }
    }

    /// Notes that the record is left out, because `operation` requests no object.
    #[cold]
    pub(super) fn leave_out(&mut self, operation: &[u8]) {
        self.unreadable.push(("op", RowError::NoObject(lossy(operation))));
    }

    /// The optional values of the record that were treated as absent, and the operation if it is left out.
    #[inline]
    pub(super) fn unreadable(&self) -> &[(&'static str, RowError)] {
        &self.unreadable
    }

    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.names.clear();
        self.items.clear();
        self.unreadable.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    #[inline]
    pub(super) fn row(&self, index: usize) -> &Row {
        &self.rows[index]
    }

    #[inline]
    pub(super) fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// The object called `raw`, padded with `0` to `length` bytes. CacheBench truncates longer names, so different keys become equal; here
    /// they are an error.
    #[inline]
    pub(super) fn name(&mut self, raw: &[u8], length: u64) -> Result<Object, RowError> {
        Ok(Object::Named(self.padded_name(raw, length, b"")?))
    }

    /// Like [`name`](Self::name) with `end` appended, `length` bytes in total.
    #[inline]
    pub(super) fn padded_name(
        &mut self,
        raw: &[u8],
        length: u64,
        end: &[u8],
    ) -> Result<std::ops::Range<u32>, RowError> {
        if raw.is_empty() {
            return Err(RowError::Missing("key"));
        }
        let bytes = raw.len() + end.len();
        if bytes > MAX_KEY_BYTES {
            return Err(RowError::LongKey(bytes));
        }
        let padded = (length.min(MAX_KEY_BYTES as u64) as usize).max(bytes);
        Ok(self.append_name(raw, padded - end.len(), end))
    }

    /// The object with this URL. A URL longer than a key is replaced by its hash.
    pub(super) fn url(&mut self, url: &[u8]) -> Result<Object, RowError> {
        if url.len() <= MAX_KEY_BYTES {
            self.name(url, 0)
        } else {
            Ok(Object::number(xxhash_rust::xxh3::xxh3_64(url)))
        }
    }

    /// The object called `raw`, padded with `0` to `length` bytes, of any length.
    #[inline]
    pub(super) fn long_name(&mut self, raw: &[u8], length: usize) -> Result<Object, RowError> {
        if raw.is_empty() {
            return Err(RowError::Missing("key"));
        }
        Ok(Object::Named(self.append_name(raw, length.max(raw.len()), b"")))
    }

    #[inline]
    fn append_name(&mut self, raw: &[u8], padded: usize, end: &[u8]) -> std::ops::Range<u32> {
        let start = self.names.len();
        self.names.extend_from_slice(raw);
        self.names.resize(start + padded, b'0');
        self.names.extend_from_slice(end);
        start as u32..self.names.len() as u32
    }

    /// The object consisting of `items`.
    pub(super) fn several(&mut self, items: Items) -> Object {
        self.items.push(items);
        Object::Items(self.items.len() as u32 - 1)
    }

    /// The items at `index`.
    pub(super) fn items(&self, index: u32) -> &Items {
        &self.items[index as usize]
    }

    /// The name at `range`.
    #[inline]
    pub(super) fn named(&self, range: &std::ops::Range<u32>) -> &[u8] {
        &self.names[range.start as usize..range.end as usize]
    }
}

/// Number `index` of a row's numbered objects.
#[inline]
pub(super) fn numbered(volume: u64, first: u64, index: u64) -> u64 {
    let number = first.wrapping_add(index);
    if volume == 0 {
        return number;
    }
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&volume.to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    xxhash_rust::xxh3::xxh3_64(&bytes)
}

/// The single row of a record, and its name.
#[cfg(test)]
pub(super) fn only(reader: &mut dyn RowReader, record: &[u8]) -> Result<(Row, String), RowError> {
    let mut rows = Rows::default();
    reader.read(record, &mut rows)?;
    assert_eq!(rows.len(), 1, "rows of {record:?}");
    let row = rows.row(0).clone();
    let name = match &row.object {
        Object::Named(range) => String::from_utf8(rows.named(range).to_vec()).unwrap(),
        Object::Numbered { volume, first, .. } => numbered(*volume, *first, 0).to_string(),
        Object::Items(index) => String::from_utf8(rows.named(&rows.items(*index).name).to_vec()).unwrap(),
    };
    Ok((row, name))
}
