//! Tables of any columns, which whoever reads them names: `csv:time,key,-,size`, or `csv:key=3,size=bytes`.
//!
//! Traces are published in many small variations of the same table. Either the columns are listed in their order, `-`
//! standing for one that is not used, or each field is given its column, by number from 1 or by what the header calls it.
//! `csv` alone takes the columns that the header gives one of the usual names; so does who tells formats apart, of a table that
//! names its key and its size.
//!
//! | field | meaning |
//! |---|---|
//! | `key` | the object; needed |
//! | `time` | seconds, or what is said to be one, with decimals |
//! | `size` | what the object takes; without it, a page |
//! | `op` | read, get, write, put, delete …; without it, all are gets |
//! | `ttl` | seconds; 0 is for ever |
//! | `tenant` | who asks |
//! | `count` | how many times in a row |
//!
//! Between columns stand commas, semicolons, tabs, bars or blanks: the first of them with which the first line has all
//! columns. Between quotes they divide nothing. A name of the time may end in its unit, as `time_ms` does.

use super::columns::{RowError, bare, column_words, duplicates, number};
use super::{FileOrder, Format, ReaderOptions, Row, RowReader, Rows};
use crate::RequestKind;

mod cells;
mod header;
mod values;

use cells::Cells;
pub use header::Contradiction;
pub(super) use header::{Header, is_time, is_usual};
pub(super) use values::{operation, optional_operation, optional_size, time_or_date};

pub(super) static FORMAT: Format = Format {
    name: "csv",
    about: "any table whose header names key and size; of others, the columns: csv:time,key,-,size or csv:key=3,size=bytes",
    extensions: &[],
    page_bytes: Some(4096),
    time_units_per_second: 1,
    files: FileOrder::InTurn,
    plausible: |head| head.table().is_some_and(|table| table.is_told()),
    reader: |options| Box::new(Reader { columns: CsvColumns::default(), layout: None, options: *options }),
};

const SEPARATORS: [u8; 5] = [b',', b';', b'\t', b'|', b' '];

/// The fields of a row, by their places in [`NAMES`].
const FIELDS: usize = NAMES.len();
const TIME: usize = 0;
const KEY: usize = 1;
const SIZE: usize = 2;
const OP: usize = 3;
const TTL: usize = 4;
const TENANT: usize = 5;
const COUNT: usize = 6;

/// What we call the fields. What else headers call them is in [`header`].
const NAMES: [&str; 7] = ["time", "key", "size", "op", "ttl", "tenant", "count"];

/// Why columns are not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ColumnsError {
    /// No such field.
    #[error("there is no field `{name}`; the fields are {known}, and `-` is a column that is not used")]
    Unknown {
        /// What it was called.
        name: String,
        /// What there is.
        known: String,
    },
    /// A field has two columns.
    #[error("`{0}` is named twice")]
    Twice(&'static str),
    /// The one field without which a row is no request.
    #[error("no column is the `key`")]
    NoKey,
    /// Some fields are listed and some are given their columns.
    #[error("`{0}`: either list the columns in their order, or give each field its column (key=2)")]
    Mixed(String),
    /// A field whose column is not said.
    #[error("`{0}`: a column is a number from 1, or a name in the header")]
    NoColumn(String),
}

/// Which column of a table is what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CsvColumns {
    /// Empty: what the header calls by a usual name.
    fields: Vec<(usize, Column)>,
    /// What the header calls the column of the tenant, whatever else says which it is.
    tenant: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Column {
    /// Its place, from 0.
    At(usize),
    /// What the header calls it.
    Named(String),
}

impl CsvColumns {
    /// Columns as `time,key,-,size` or `key=3,size=bytes`.
    ///
    /// # Errors
    /// A field that does not exist or is there twice, no key, or a column that is none.
    pub fn parse(text: &str) -> Result<Self, ColumnsError> {
        let gives_columns = text.contains('=');
        let mut fields = Vec::new();
        for (place, item) in text.split(',').map(str::trim).enumerate() {
            let (name, column) = match item.split_once('=') {
                Some((name, column)) => (name.trim(), Column::parse(item, column.trim())?),
                None if gives_columns => return Err(ColumnsError::Mixed(item.to_owned())),
                None if matches!(item, "" | "-") => continue,
                None => (item, Column::At(place)),
            };
            let field = header::field_called(name.as_bytes())
                .ok_or_else(|| ColumnsError::Unknown { name: name.to_owned(), known: NAMES.join(", ") })?;
            if fields.iter().any(|(known, _)| *known == field) {
                return Err(ColumnsError::Twice(NAMES[field]));
            }
            fields.push((field, column));
        }
        if !fields.iter().any(|(field, _)| *field == KEY) {
            return Err(ColumnsError::NoKey);
        }
        Ok(Self { fields, tenant: None })
    }

    /// Whether there is no telling the columns without a header.
    fn needs_header(&self) -> bool {
        let is_named = |(_, column): &(usize, Column)| matches!(column, Column::Named(_));
        self.fields.is_empty() || self.tenant.is_some() || self.fields.iter().any(is_named)
    }

    /// Where the fields are in a file whose first line is `line`.
    fn layout(&self, line: &[u8]) -> Result<Layout, RowError> {
        // A table of one column has none of them in it.
        let found = SEPARATORS.into_iter().filter(|separator| line.contains(separator));
        let mut failure = None;
        for separator in found.chain([SEPARATORS[0]]) {
            match self.layout_between(separator, line) {
                Ok(layout) => return Ok(layout),
                Err(reason) => failure = failure.or(Some(reason)),
            }
        }
        Err(failure.expect("there is a separator"))
    }

    fn layout_between(&self, separator: u8, line: &[u8]) -> Result<Layout, RowError> {
        let cells: Vec<&[u8]> = Cells::new(separator, line).map(bare).collect();
        let called = |name: &str| {
            let exactly = cells.iter().position(|cell| cell.eq_ignore_ascii_case(name.as_bytes()));
            exactly.or_else(|| cells.iter().position(|cell| header::is_called(cell, name)))
        };
        let mut places: Vec<(usize, usize)> = match self.fields.as_slice() {
            [] => header::places(&cells),
            fields => fields
                .iter()
                .map(|(field, column)| {
                    let (place, text) = match column {
                        Column::At(place) => {
                            (Some(*place).filter(|place| *place < cells.len()), (place + 1).to_string())
                        }
                        Column::Named(name) => (called(name), name.clone()),
                    };
                    place.map(|place| (place, *field)).ok_or(RowError::NoColumn(text))
                })
                .collect::<Result<_, _>>()?,
        };
        if !places.iter().any(|(_, field)| *field == KEY) {
            return Err(RowError::NoKeyColumn);
        }
        if let Some(name) = &self.tenant {
            places.retain(|(_, field)| *field != TENANT);
            let is_used = |place: &usize| places.iter().any(|(used, _)| used == place);
            let place = called(name).filter(|place| !is_used(place));
            places.push((place.ok_or_else(|| RowError::Chosen(name.clone()))?, TENANT));
        }
        places.sort_unstable();
        let has = std::array::from_fn(|field| places.iter().any(|(_, known)| *known == field));
        Ok(Layout { separator, places, has, time_units_per_second: None })
    }
}

impl Column {
    fn parse(item: &str, text: &str) -> Result<Self, ColumnsError> {
        match text.parse::<usize>() {
            Ok(0) => Err(ColumnsError::NoColumn(item.to_owned())),
            Ok(number) => Ok(Self::At(number - 1)),
            Err(_) if text.is_empty() => Err(ColumnsError::NoColumn(item.to_owned())),
            Err(_) => Ok(Self::Named(text.to_owned())),
        }
    }
}

/// Where the fields are in a file.
struct Layout {
    separator: u8,
    /// Column and field, by column.
    places: Vec<(usize, usize)>,
    /// Which fields there are.
    has: [bool; FIELDS],
    /// The unit of the times, where the header says it.
    time_units_per_second: Option<u64>,
}

impl Layout {
    /// The fields of a row; those that it lacks are empty.
    #[inline]
    fn split<'a>(&self, line: &'a [u8]) -> [&'a [u8]; FIELDS] {
        let mut found: [&[u8]; FIELDS] = [&[]; FIELDS];
        let mut wanted = self.places.iter().peekable();
        for (place, cell) in Cells::new(self.separator, line).enumerate() {
            while let Some((_, field)) = wanted.next_if(|(at, _)| *at == place) {
                found[*field] = bare(cell);
            }
            if wanted.peek().is_none() {
                break;
            }
        }
        found
    }

    /// All that stands in the columns of the line.
    fn cells<'a>(&self, line: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        Cells::new(self.separator, line).map(bare)
    }

    /// What the line has in the columns that are used: the field as which it is read, and the cell.
    fn used<'a>(&self, line: &'a [u8]) -> impl Iterator<Item = (usize, usize, &'a [u8])> {
        let cells: Vec<&[u8]> = self.cells(line).collect();
        self.places
            .iter()
            .map(move |&(place, field)| (place, field, cells.get(place).copied().unwrap_or(&[])))
    }

    /// Whether every field of the line is a word, as the names of columns are.
    fn are_words(&self, line: &[u8]) -> bool {
        self.used(line).all(|(_, _, cell)| header::is_word(cell))
    }

    /// Whether no column that is not used is called otherwise than fields usually are.
    fn has_no_strangers(&self, line: &[u8]) -> bool {
        let is_used = |place| self.places.iter().any(|(at, _)| *at == place);
        let mut cells = self.cells(line).enumerate();
        cells.all(|(place, cell)| {
            is_used(place)
                || cell.is_empty()
                || header::field_called(cell).is_some()
                || header::is_unused(cell)
        })
    }

    /// Whether every field of the line has the usual name of one.
    fn are_names(&self, line: &[u8]) -> bool {
        self.used(line).all(|(_, _, cell)| header::field_called(cell).is_some())
    }
}

struct Reader {
    columns: CsvColumns,
    /// Known from the first line on.
    layout: Option<Layout>,
    options: ReaderOptions,
}

impl Reader {
    /// Whether the line is a header of this layout. Where all but the key may be anything, one reads as a row.
    fn is_header(&self, line: &[u8], layout: &Layout) -> bool {
        let reads = || self.read_as(layout, line, &mut Rows::default()).is_ok();
        self.columns.needs_header() || layout.are_names(line) || (layout.are_words(line) && !reads())
    }

    /// The layout of a file whose header is `line`.
    fn by_header(&self, layout: Layout, line: &[u8]) -> Result<Layout, RowError> {
        for (place, field, cell) in layout.used(line) {
            let is_listed = self.columns.fields.contains(&(field, Column::At(place)));
            if is_listed && header::field_called(cell).is_some_and(|called| called != field) {
                let cells = Cells::new(layout.separator, line).map(bare);
                return Err(header::contradiction(place, field, cell, cells));
            }
        }
        let time = layout.used(line).find(|(_, field, _)| *field == TIME);
        let time_units_per_second = time.and_then(|(_, _, cell)| header::time_units_per_second(cell));
        Ok(Layout { time_units_per_second, ..layout })
    }

    /// Takes a header over whose layout is as `is_right` says, and in which the columns that are used are known.
    fn take_header_if(&mut self, line: &[u8], is_right: impl Fn(&Self, &Layout) -> bool) -> bool {
        // What was found by its name may have any.
        let is_known = |layout: &Layout| self.columns.needs_header() || layout.are_names(line);
        let layout = self.columns.layout(line).ok();
        let layout = layout.filter(|layout| is_known(layout) && is_right(self, layout));
        let layout = layout.and_then(|layout| self.by_header(layout, line).ok());
        let is_header = layout.is_some();
        self.layout = layout.or(self.layout.take());
        is_header
    }

    /// Whether a remark that has the columns that are used is a header. If they were not asked for, only one that has no others
    /// is beyond doubt; if they were asked for by their numbers, sentences are told by their blanks.
    fn is_title(&self, layout: &Layout, text: &[u8]) -> bool {
        let is_asked_for = !self.columns.fields.is_empty() && layout.separator != b' ';
        let is_named = || self.columns.needs_header();
        let are_single_words = || layout.cells(text).all(|cell| !cell.contains(&b' '));
        layout.has_no_strangers(text) || (is_asked_for && (is_named() || are_single_words()))
    }

    /// A line ahead of those by which the layout is told: where the columns have numbers, it may be a row already.
    #[cold]
    fn read_first(&self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        if self.columns.needs_header() {
            return Err(RowError::NoKeyColumn);
        }
        let layout = self.columns.layout(line)?;
        // The sign of a remark alone is no key.
        if layout.split(line)[KEY].iter().all(|byte| *byte == b'#') {
            return Err(RowError::Missing("key"));
        }
        self.read_as(&layout, line, rows)
    }

    /// Whether a line below a header is a row and no other header, where nobody asked for columns: an object may be called
    /// `id`.
    fn is_row_below(&self, layout: &Layout, line: &[u8]) -> bool {
        let is_header = || layout.are_names(line) || Header::of(line).is_some();
        self.columns.fields.is_empty()
            && !is_header()
            && self.read_as(layout, line, &mut Rows::default()).is_ok()
    }

    fn read_as(&self, layout: &Layout, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let fields = layout.split(line);
        let kind =
            if layout.has[OP] { optional_operation(fields[OP], rows)? } else { Some(RequestKind::Get) };
        let page_bytes = self.options.page_bytes.unwrap_or(4096);
        let size = match layout.has[SIZE] {
            true if kind == Some(RequestKind::Delete) && fields[SIZE].is_empty() => Some(0),
            true => Some(optional_size(fields[SIZE], page_bytes, rows)?),
            false => Some(page_bytes),
        };
        let time = Some(fields[TIME]).filter(|time| !time.is_empty());
        let units = layout.time_units_per_second.unwrap_or(self.options.time_units_per_second);
        let time_ns = time.map(|time| time_or_date(time, "time", units)).transpose();
        let time_ns = rows.optional("time", time_ns)?;
        let most = u64::from(u32::MAX);
        let ttl = rows.optional("ttl", number(fields[TTL], "ttl", most))?.unwrap_or(0);
        let repeat = rows.optional("count", number(fields[COUNT], "count", most))?.unwrap_or(1);
        if repeat == 0 {
            return Err(RowError::Zero("count"));
        }
        let Some(kind) = kind else { return Ok(()) };
        let size = size.ok_or(RowError::Missing("size"))?;
        let object = rows.name(fields[KEY], 0)?;
        let tenant = rows.tenant(&[fields[TENANT]]);
        rows.push(Row {
            ttl_seconds: if ttl == 0 { None } else { Some(ttl as u32) },
            time_ns,
            repeat: repeat as u32,
            tenant,
            ..Row::new(kind, object, size)
        });
        Ok(())
    }
}

impl RowReader for Reader {
    fn choose_tenant(&mut self, columns: &[String]) -> Result<(), usize> {
        let [name] = columns else { return Err(1) };
        self.columns.tenant = Some(name.clone());
        Ok(())
    }

    fn choose_columns(&mut self, columns: &CsvColumns) {
        self.columns = columns.clone();
    }

    fn takes_header(&mut self, line: &[u8]) -> Result<bool, RowError> {
        if let Some(layout) = &self.layout
            && !self.columns.needs_header()
            && !self.is_header(line, layout)
            && self.read_as(layout, line, &mut Rows::default()).is_ok()
        {
            return Ok(false);
        }
        if self.layout.as_ref().is_some_and(|layout| self.is_row_below(layout, line)) {
            return Ok(false);
        }
        let layout = match self.columns.layout(line) {
            // A second file need not repeat the header.
            Err(_) if self.layout.is_some() => return Ok(false),
            found => found?,
        };
        let is_header = self.is_header(line, &layout);
        self.layout = Some(if is_header { self.by_header(layout, line)? } else { layout });
        Ok(is_header)
    }

    fn takes_remark(&mut self, text: &[u8]) -> bool {
        self.take_header_if(text, |reader, layout| {
            // A field that the header before it had is not lost by a remark.
            let loses = |before: &Layout| (0..FIELDS).any(|field| before.has[field] && !layout.has[field]);
            reader.is_title(layout, text) && !reader.layout.as_ref().is_some_and(loses)
        })
    }

    fn takes_another_header(&mut self, line: &[u8]) -> bool {
        self.take_header_if(line, |reader, layout| {
            // Between blanks may stand the words of a sentence. Rows without a field that those before them had are not of
            // the same trace.
            (layout.separator != b' ' || layout.has_no_strangers(line))
                && reader.layout.as_ref().is_none_or(|before| before.has == layout.has)
        })
    }

    fn columns(&self, header: &[u8]) -> Option<String> {
        let layout = self.layout.as_ref()?;
        let cells = Cells::new(layout.separator, header).map(bare).enumerate();
        let field = |place| layout.places.iter().find(|(at, _)| *at == place).map(|(_, field)| NAMES[*field]);
        Some(column_words(cells.map(|(place, cell)| (field(place), cell))))
    }

    fn duplicates(&self, header: &[u8]) -> Vec<String> {
        self.layout.iter().flat_map(|layout| duplicates(layout.cells(header))).collect()
    }

    fn read(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        match &self.layout {
            Some(layout) => self.read_as(layout, line, rows),
            None => self.read_first(line, rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::only;
    use super::*;

    /// A row: operation, key, size, time and how often.
    type Read = (RequestKind, String, u64, Option<u64>, u32);

    /// The rows of a table, the header aside.
    fn read(columns: &str, lines: &[&str]) -> Result<Vec<Read>, RowError> {
        let mut reader = (FORMAT.reader)(&ReaderOptions::default());
        if !columns.is_empty() {
            reader.choose_columns(&CsvColumns::parse(columns).unwrap());
        }
        let is_header = reader.takes_header(lines[0].as_bytes())?;
        let rows = lines.iter().skip(usize::from(is_header));
        rows.map(|line| {
            let (row, key) = only(reader.as_mut(), line.as_bytes())?;
            Ok((row.kind, key, row.value_bytes, row.time_ns, row.repeat))
        })
        .collect()
    }

    fn get(key: &str, size: u64, seconds: u64) -> Read {
        (RequestKind::Get, key.to_owned(), size, Some(seconds * 1_000_000_000), 1)
    }

    #[test]
    fn columns_are_listed_or_given_by_number_or_by_name() {
        let expected = Ok(vec![get("a", 10, 1), get("b", 20, 2)]);
        assert_eq!(read("time,key,-,size", &["1,a,x,10", "2,b,y,20"]), expected);
        assert_eq!(read("time,key,,size,-", &["1,a,x,10,z", "2,b,y,20"]), expected, "a short row");
        assert_eq!(read("size=4,key=2,time=1", &["1,a,x,10", "2,b,y,20"]), expected);
        let named = ["When,what,kind,how much", "1,a,x,10", "2,b,y,20"];
        assert_eq!(read("key=what, size=how much, time=1", &named), expected);
        let usual = ["\"obj_size\",op_time,x,\"obj_id\"", "10,1,x,a", "20,2,y,b"];
        assert_eq!(read("", &usual), expected);
    }

    #[test]
    fn whatever_stands_between_columns_is_found() {
        let expected = Ok(vec![get("a", 10, 1), get("b", 20, 2)]);
        for between in [",", ";", "\t", "|", " ", "   "] {
            let (first, second) = (["1", "a", "10"].join(between), ["2", "b", "20"].join(between));
            assert_eq!(read("time,key,size", &[&first, &second]), expected, "{between:?}");
        }
        // A comma inside of a column does not divide the line where that gives too few columns.
        assert_eq!(read("time,key,size", &["1;a,7;10"]), Ok(vec![get("a,7", 10, 1)]));
        assert_eq!(read("key", &["a"]).unwrap()[0].1, "a");
        assert_eq!(read("key", &["a;b"]).unwrap()[0].1, "a");
        let empty = read("time,key,-,size", &["1\ta\t\t10"]);
        assert_eq!(empty, Ok(vec![get("a", 10, 1)]), "of two tabs each is a column's");
    }

    #[test]
    fn a_header_is_told_from_a_row_and_a_wrong_row_from_a_header() {
        let expected = Ok(vec![get("a", 10, 1)]);
        assert_eq!(read("time,key,size", &["# time,obj,size", "1,a,10"]), expected);
        assert_eq!(read("time,key,size", &["1,a,10"]), expected);
        assert_eq!(
            read("time,key,size", &["1,a,ten"]),
            Err(RowError::Number { column: "size", text: "ten".to_owned(), max: u64::MAX })
        );
    }

    #[test]
    fn operations_are_known_in_many_spellings() {
        let kind_of = |op: &str| operation(op.as_bytes());
        for op in ["GET", "get_lease", "REST.GET.OBJECT", "Read", "r"] {
            assert_eq!(kind_of(op), Ok(Some(RequestKind::Get)), "{op}");
        }
        for op in ["SET", "Write", "REST.PUT.OBJECT", "w"] {
            assert_eq!(kind_of(op), Ok(Some(RequestKind::Set)), "{op}");
        }
        assert_eq!(kind_of("REST.DELETE.OBJECT"), Ok(Some(RequestKind::Delete)));
        assert_eq!(kind_of("REST.HEAD.OBJECT"), Ok(None));
        assert_eq!(kind_of("got"), Err(RowError::Operation("got".to_owned())));
        assert_eq!(kind_of(""), Err(RowError::Missing("op")));
    }

    #[test]
    fn what_has_no_column_has_a_usual_value() {
        let rows = read("key,op,count", &["a,put,3"]).unwrap();
        assert_eq!(rows, [(RequestKind::Set, "a".to_owned(), 4096, None, 3)]);
        assert_eq!(read("key,size", &["a,"]), Err(RowError::Missing("size")));
        let deleted = read("key,size,op", &["a,,DELETE"]).unwrap();
        assert_eq!((deleted[0].0, deleted[0].2), (RequestKind::Delete, 0), "what is deleted needs no size");
        assert_eq!(read("key,count", &["a,0"]), Err(RowError::Zero("count")));
    }

    #[test]
    fn a_second_file_need_not_repeat_the_header() {
        let mut reader = (FORMAT.reader)(&ReaderOptions::default());
        assert_eq!(reader.takes_header(b"size;key"), Ok(true));
        assert_eq!(reader.takes_header(b"10;a"), Ok(false));
        assert_eq!(only(reader.as_mut(), b"10;a").unwrap().1, "a");
        assert_eq!(reader.takes_header(b"wrong"), Ok(false), "it is counted as a wrong row");
        assert_eq!(reader.takes_header(b"key;size"), Ok(true));
        assert_eq!(only(reader.as_mut(), b"a;10").unwrap().1, "a");
    }

    /// Where nothing but the key has a column, any line reads as a row.
    #[test]
    fn the_header_of_a_second_file_is_no_key() {
        let mut reader = (FORMAT.reader)(&ReaderOptions::default());
        reader.choose_columns(&CsvColumns::parse("key=obj").unwrap());
        for header in ["when,obj", "obj,when"] {
            assert_eq!(reader.takes_header(header.as_bytes()), Ok(true), "{header}");
        }
        assert_eq!(reader.takes_header(b"a,1"), Ok(false));
        assert_eq!(only(reader.as_mut(), b"a,1").unwrap().1, "a");
    }

    #[test]
    fn columns_that_are_not_there_are_named() {
        let lacks = |columns, line: &str| read(columns, &[line]).unwrap_err().to_string();
        assert_eq!(lacks("key=5", "a,b"), "the first line has no column `5`");
        assert_eq!(lacks("key=obj", "id,size"), "the first line has no column `obj`");
        let unnamed = "the first line does not name the column of the key; \
                       say which column is what, as in `csv:time,key,-,size`";
        assert_eq!(lacks("", "when,what"), unnamed);
    }

    #[test]
    fn columns_that_say_nothing_are_refused() {
        let refused = |text| CsvColumns::parse(text).unwrap_err().to_string();
        let unknown = "there is no field `kee`; the fields are time, key, size, op, ttl, tenant, count, \
                       and `-` is a column that is not used";
        assert_eq!(refused("time,kee"), unknown);
        assert_eq!(refused("key,id"), "`key` is named twice");
        assert_eq!(refused("time,size"), "no column is the `key`");
        assert_eq!(refused(""), "no column is the `key`");
        for item in ["key=", "key=0"] {
            let told = format!("`{item}`: a column is a number from 1, or a name in the header");
            assert_eq!(refused(item), told);
        }
        let mixed = "either list the columns in their order, or give each field its column (key=2)";
        assert_eq!(refused("time,key=2"), format!("`time`: {mixed}"));
    }
}
