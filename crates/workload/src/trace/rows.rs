//! What a format's reader makes of its records.

use std::io::{self, BufRead};

use super::Framing;
use super::block::Events;
use super::columns::RowError;
use super::csv::CsvColumns;
use super::cut::{Cut, Items};
use super::tenants::{Interner, TenantNames};
use crate::{RequestKind, Tenant};

/// Longest key that a cache takes, and that padding makes.
const MAX_KEY_BYTES: usize = 256;

/// Turns the records of one format into rows.
pub(super) trait RowReader: Send {
    /// How the file that begins with `head` is cut into records.
    fn framing(&mut self, head: &[u8]) -> Result<Framing, RowError> {
        let _ = head;
        Ok(Framing::Lines)
    }

    /// Looks at the first line of a file, and answers whether it is a header (and then takes its order of
    /// columns over) or already a row. Of a [streamed](Framing::Streamed) format it is asked about the file's beginning, only
    /// to tell what the file is.
    fn takes_header(&mut self, line: &[u8]) -> Result<bool, RowError> {
        let _ = line;
        Ok(false)
    }

    /// Takes the order of columns over from a remark ahead of all rows, without its sign, if it is a header beyond doubt, and
    /// answers whether it is one.
    fn takes_remark(&mut self, text: &[u8]) -> bool {
        let _ = text;
        false
    }

    /// Takes the order of columns over from a line among the rows if it is a header beyond doubt, and answers whether it is
    /// one.
    fn takes_another_header(&mut self, line: &[u8]) -> bool {
        let _ = line;
        false
    }

    /// What the reader makes of the columns of this header, which it took; `None` where it does not go by headers.
    fn columns(&self, header: &[u8]) -> Option<String> {
        let _ = header;
        None
    }

    /// What is to be known of the columns of this header, which it took; nothing where the format does not go by headers.
    fn strangers(&self, header: &[u8]) -> Strangers {
        let _ = header;
        Strangers::default()
    }

    /// Column names that occur more than once in the header. The first column of each is used.
    fn duplicates(&self, header: &[u8]) -> Vec<String> {
        let _ = header;
        Vec::new()
    }

    /// In which order the columns of the file are read, for a message; `None` where they have none.
    fn order(&self) -> Option<String> {
        None
    }

    /// Makes the columns of these names, of those that are used for nothing else, the tenant.
    ///
    /// # Errors
    /// They are more than the format has for it: so many.
    fn choose_tenant(&mut self, columns: &[String]) -> Result<(), usize> {
        let _ = columns;
        Err(0)
    }

    /// Says which columns of a table are what.
    fn choose_columns(&mut self, columns: &CsvColumns) {
        let _ = columns;
    }

    /// Reads a record and adds what it asks for to `rows`: usually one row, none where the record is a remark.
    /// After an error, what was added is to be thrown away.
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

/// Columns of a header that a format does not know, and those of its own that the header lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Strangers {
    /// Columns that are not used, and that published traces do not have.
    pub unknown: Vec<String>,
    /// Columns that the format has and the header lacks.
    pub lacking: Vec<&'static str>,
    /// Those of them without which rows mean something else, and what.
    pub meant: Vec<(&'static str, &'static str)>,
}

/// What a format's reader is told.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReaderOptions {
    /// The trace's time units in a second, where the format leaves that open.
    pub(super) time_units_per_second: u64,
    /// What an object has where the format gives no sizes, and what ranges of bytes are cut into. `None` leaves
    /// ranges whole.
    pub(super) page_bytes: Option<u64>,
    /// Whether ranges are requests for several items of a cache, where the format knows how.
    pub(super) cut: Cut,
    /// Which events of a recording of the block layer are requests.
    pub(super) events: Events,
}

#[cfg(test)]
impl Default for ReaderOptions {
    fn default() -> Self {
        Self { time_units_per_second: 1, page_bytes: Some(4096), cut: Cut::Pages, events: Events::Queue }
    }
}

/// A request as a record has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) kind: RequestKind,
    pub(super) object: Object,
    pub(super) value_bytes: u64,
    /// Length of the recorded key, where the format counts it to the object's size.
    pub(super) key_bytes: u32,
    pub(super) ttl_seconds: Option<u32>,
    pub(super) time_ns: Option<u64>,
    pub(super) repeat: u32,
    pub(super) tenant: Option<Tenant>,
}

/// What a row asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Object {
    /// An object with a name: where it stands in [`Rows`].
    Named(std::ops::Range<u32>),
    /// Numbered objects, `count` of them from `first` on. Ranges of blocks are asked for in that order.
    Numbered {
        /// Tells disks or files apart; 0 where there is only one.
        volume: u64,
        first: u64,
        count: u64,
    },
    /// Several items of a cache: where they stand in [`Rows`]. Only for who asked for a [`Cut`].
    Items(u32),
}

impl Object {
    /// One object with a number.
    #[inline]
    pub(super) fn number(number: u64) -> Self {
        Self::Numbered { volume: 0, first: number, count: 1 }
    }
}

/// Longer objects than any file system holds were not meant.
pub(super) const MAX_OBJECT_BYTES: u64 = 1 << 44;

/// Longest request of a block trace.
pub(super) const MAX_IO_BYTES: u64 = u32::MAX as u64;

/// A range of bytes of a disk or a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// Tells disks or files apart; 0 where there is only one.
    pub(super) volume: u64,
    pub(super) start_bytes: u64,
    pub(super) bytes: u64,
}

impl Extent {
    /// The pages that the range touches, and what each of them has. Without pages, the range itself is an object.
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

    /// The pages that lie in the range as a whole; `None` if none does.
    pub(super) fn whole_pages(self, page_bytes: u64) -> Option<Object> {
        let Self { volume, start_bytes, bytes } = self;
        let (first, end) = (start_bytes.div_ceil(page_bytes), start_bytes.saturating_add(bytes) / page_bytes);
        (first < end).then(|| Object::Numbered { volume, first, count: end - first })
    }
}

impl Row {
    /// A row that says nothing else.
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
    /// `None` where nobody asks for tenants.
    tenants: Option<Box<Interner>>,
    /// Whether an unreadable optional value is taken as absent. Otherwise it makes the row wrong, as it does while the format is
    /// detected.
    is_lenient: bool,
    /// Whether a trace is read whose format is known. Otherwise its format is being detected.
    is_reading: bool,
    /// Optional values of the record that were taken as absent.
    unreadable: Vec<(&'static str, RowError)>,
}

/// Values of an optional column that could not be read and were taken as absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The column.
    pub column: &'static str,
    /// How many.
    pub values: u64,
    /// File, row and reason of the first.
    pub first: String,
}

impl Unreadable {
    /// Adds one to the count of its column.
    pub(super) fn count(all: &mut Vec<Self>, column: &'static str, first: impl FnOnce() -> String) {
        match all.iter_mut().find(|it| it.column == column) {
            Some(known) => known.values += 1,
            None => all.push(Self { column, values: 1, first: first() }),
        }
    }
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { column, values, first } = self;
        let (noun, was) = if *values == 1 { ("value", "was") } else { ("values", "were") };
        write!(
            out,
            "{values} {noun} of the column `{column}` {was} unreadable and taken as absent; the first: {first}"
        )
    }
}

impl Rows {
    /// Rows that know their tenants.
    pub(super) fn with_tenants(names: TenantNames) -> Self {
        Self { tenants: Some(Box::new(Interner::new(names))), ..Self::default() }
    }

    /// The tenant that these columns name, where tenants are asked for.
    #[inline]
    pub(super) fn tenant(&mut self, columns: &[&[u8]]) -> Option<Tenant> {
        self.tenants.as_mut()?.tenant(columns)
    }

    /// Rows of a trace whose format is known. Unreadable optional values are taken as absent if `is_lenient`.
    pub(super) fn lenient(self, is_lenient: bool) -> Self {
        Self { is_lenient, is_reading: true, ..self }
    }

    /// Rows by which a format is detected, with optional values that cannot be read.
    pub(super) fn detecting() -> Self {
        Self { is_lenient: true, ..Self::default() }
    }

    /// Whether the format is only being detected.
    pub(super) fn is_detecting(&self) -> bool {
        !self.is_reading
    }

    /// The value of an optional column, absent if it cannot be read and may be left out.
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

    /// The optional values of the record that were taken as absent.
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

    /// The object called `raw`, padded with `0` to `length` bytes. CacheBench cuts longer names, which makes
    /// different keys equal; here they are an error.
    #[inline]
    pub(super) fn name(&mut self, raw: &[u8], length: u64) -> Result<Object, RowError> {
        Ok(Object::Named(self.padded_name(raw, length, b"")?))
    }

    /// The same with `end` behind it, all together `length` bytes.
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

    /// The object at this URL. One that is longer than a key is known by its hash.
    pub(super) fn url(&mut self, url: &[u8]) -> Result<Object, RowError> {
        if url.len() <= MAX_KEY_BYTES {
            self.name(url, 0)
        } else {
            Ok(Object::number(xxhash_rust::xxh3::xxh3_64(url)))
        }
    }

    /// The object called `raw`, padded with `0` to `length` bytes, however long it is.
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

    /// The object that consists of `items`.
    pub(super) fn several(&mut self, items: Items) -> Object {
        self.items.push(items);
        Object::Items(self.items.len() as u32 - 1)
    }

    /// The items that `index` stands for.
    pub(super) fn items(&self, index: u32) -> &Items {
        &self.items[index as usize]
    }

    /// The name that `range` stands for.
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

/// The one row of a record, and its name.
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
