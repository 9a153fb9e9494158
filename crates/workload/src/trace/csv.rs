//! Tables with configurable columns: `csv:time,key,-,size`, or `csv:key=3,size=bytes`.
//!
//! Traces are published in many variations of the same table. Either the columns are listed in order, with `-` for an unused one, or each
//! field is assigned its column by number from 1 or by its header name. `csv` alone uses header columns with usual names; format detection
//! does the same for tables that name their key and size.
//!
//! | field | meaning |
//! |---|---|
//! | `key` | the object; required |
//! | `time` | seconds, or the configured unit, with decimals |
//! | `size` | size of the object; without it, a page |
//! | `op` | read, get, write, put, delete …; without it, all are gets |
//! | `ttl` | seconds; 0 never expires |
//! | `tenant` | the client |
//! | `count` | number of repetitions |
//!
//! Columns are separated by commas, semicolons, tabs, bars or spaces: the first one that yields all columns in the first line. A
//! separator inside quotes is part of the field. The name of the time column can end in its unit, as in `time_ms`.

use super::columns::{RowError, bare, column_words, duplicates, number};
use super::format::{FileOrder, Format, Pages, TimeUnits};
use super::rows::{ReaderOptions, Row, RowReader, Rows};
use crate::RequestKind;

mod cells;
mod columns;
mod fields;
mod header;
mod layout;
mod values;

use cells::Cells;
use columns::Column;
pub use columns::{ColumnsError, CsvColumns};
use fields::{COUNT, FIELDS, KEY, NAMES, OP, SIZE, TENANT, TIME, TTL};
pub(super) use header::{Header, is_time, is_usual};
use layout::Layout;
pub(super) use values::{operation, optional_operation, optional_size, time_or_date};

pub(super) static FORMAT: Format = Format {
    name: "csv",
    about: "any table whose header names key and size; of others, the columns: csv:time,key,-,size or csv:key=3,size=bytes",
    extensions: &[],
    pages: Pages::Of(4096),
    time_units: TimeUnits::Default(1),
    files: FileOrder::InTurn,
    plausible: |head| head.table().is_some_and(|table| table.is_identified()),
    reader,
};

/// A reader of tables.
pub(super) fn reader(options: &ReaderOptions) -> Box<dyn RowReader> {
    Box::new(Reader { columns: CsvColumns::default(), layout: None, options: *options })
}

struct Reader {
    columns: CsvColumns,
    /// Set by the first line.
    layout: Option<Layout>,
    options: ReaderOptions,
}

impl Reader {
    /// Whether the line is a header of this layout. If only the key is used, a header also parses as a row.
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
        let time = time.filter(|_| !self.options.is_time_unit_given);
        let time_units_per_second = time.and_then(|(_, _, cell)| header::time_units_per_second(cell));
        Ok(Layout { time_units_per_second, ..layout })
    }

    /// Uses the header's layout if `is_right` accepts it and the names of its used columns are known.
    fn take_header_if(&mut self, line: &[u8], is_right: impl Fn(&Self, &Layout) -> bool) -> bool {
        // Columns that were found by name need no usual name.
        let is_known = |layout: &Layout| self.columns.needs_header() || layout.are_names(line);
        let layout = self.columns.layout(line).ok();
        let layout = layout.filter(|layout| is_known(layout) && is_right(self, layout));
        let layout = layout.and_then(|layout| self.by_header(layout, line).ok());
        let is_header = layout.is_some();
        self.layout = layout.or(self.layout.take());
        is_header
    }

    /// Whether a comment that contains the used columns is a header. Without configured columns it must contain no other names; with
    /// columns configured by number, spaces identify a sentence.
    fn is_title(&self, layout: &Layout, text: &[u8]) -> bool {
        let is_asked_for = !self.columns.fields.is_empty() && layout.separator != b' ';
        let is_named = || self.columns.needs_header();
        let are_single_words = || layout.cells(text).all(|cell| !cell.contains(&b' '));
        layout.has_only_known_unused_columns(text) || (is_asked_for && (is_named() || are_single_words()))
    }

    /// A line before the layout is known: with columns configured by number it can already be a row.
    #[cold]
    fn read_first(&self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        if self.columns.needs_header() {
            return Err(RowError::NoKeyColumn);
        }
        let layout = self.columns.layout(line)?;
        // A comment sign alone is not a key.
        if layout.split(line)[KEY].iter().all(|byte| *byte == b'#') {
            return Err(RowError::Missing("key"));
        }
        self.read_as(&layout, line, rows)
    }

    /// Whether a line below a header is a row and not another header, if no columns are configured: an object can be called `id`.
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

    fn accept_header(&mut self, line: &[u8]) -> Result<bool, RowError> {
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
            // A second file can lack the header.
            Err(_) if self.layout.is_some() => return Ok(false),
            found => found?,
        };
        let is_header = self.is_header(line, &layout);
        self.layout = Some(if is_header { self.by_header(layout, line)? } else { layout });
        Ok(is_header)
    }

    fn accept_comment(&mut self, text: &[u8]) -> bool {
        self.take_header_if(text, |reader, layout| {
            // A comment must not remove a field of the previous header.
            let loses = |before: &Layout| (0..FIELDS).any(|field| before.has[field] && !layout.has[field]);
            reader.is_title(layout, text) && !reader.layout.as_ref().is_some_and(loses)
        })
    }

    fn accept_repeated_header(&mut self, line: &[u8]) -> bool {
        self.take_header_if(line, |reader, layout| {
            // Between spaces can be the words of a sentence. A header with fewer fields belongs to another trace.
            (layout.separator != b' ' || layout.has_only_known_unused_columns(line))
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

    /// A row: operation, key, size, time and repeat count.
    type Read = (RequestKind, String, u64, Option<u64>, u32);

    /// The rows of a table, without the header.
    fn read(columns: &str, lines: &[&str]) -> Result<Vec<Read>, RowError> {
        let mut reader = (FORMAT.reader)(&ReaderOptions::default());
        if !columns.is_empty() {
            reader.choose_columns(&CsvColumns::parse(columns).unwrap());
        }
        let is_header = reader.accept_header(lines[0].as_bytes())?;
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
    fn columns_are_listed_or_assigned_by_number_or_name() {
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
    fn separator_is_detected() {
        let expected = Ok(vec![get("a", 10, 1), get("b", 20, 2)]);
        for between in [",", ";", "\t", "|", " ", "   "] {
            let (first, second) = (["1", "a", "10"].join(between), ["2", "b", "20"].join(between));
            assert_eq!(read("time,key,size", &[&first, &second]), expected, "{between:?}");
        }
        // A separator that yields too few columns is not used.
        assert_eq!(read("time,key,size", &["1;a,7;10"]), Ok(vec![get("a,7", 10, 1)]));
        assert_eq!(read("key", &["a"]).unwrap()[0].1, "a");
        assert_eq!(read("key", &["a;b"]).unwrap()[0].1, "a");
        let empty = read("time,key,-,size", &["1\ta\t\t10"]);
        assert_eq!(empty, Ok(vec![get("a", 10, 1)]), "each of two tabs separates a column");
    }

    #[test]
    fn header_row_and_invalid_row_are_distinguished() {
        let expected = Ok(vec![get("a", 10, 1)]);
        assert_eq!(read("time,key,size", &["# time,obj,size", "1,a,10"]), expected);
        assert_eq!(read("time,key,size", &["1,a,10"]), expected);
        assert_eq!(
            read("time,key,size", &["1,a,ten"]),
            Err(RowError::Number { column: "size", text: "ten".to_owned(), max: u64::MAX })
        );
    }

    #[test]
    fn operations_are_recognised_in_many_spellings() {
        let kind_of = |op: &str| operation(op.as_bytes(), &mut Rows::default());
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
    fn field_without_a_column_has_a_default() {
        let rows = read("key,op,count", &["a,put,3"]).unwrap();
        assert_eq!(rows, [(RequestKind::Set, "a".to_owned(), 4096, None, 3)]);
        assert_eq!(read("key,size", &["a,"]), Err(RowError::Missing("size")));
        let deleted = read("key,size,op", &["a,,DELETE"]).unwrap();
        assert_eq!((deleted[0].0, deleted[0].2), (RequestKind::Delete, 0), "a delete needs no size");
        assert_eq!(read("key,count", &["a,0"]), Err(RowError::Zero("count")));
    }

    #[test]
    fn second_file_without_header_is_read() {
        let mut reader = (FORMAT.reader)(&ReaderOptions::default());
        assert_eq!(reader.accept_header(b"size;key"), Ok(true));
        assert_eq!(reader.accept_header(b"10;a"), Ok(false));
        assert_eq!(only(reader.as_mut(), b"10;a").unwrap().1, "a");
        assert_eq!(reader.accept_header(b"wrong"), Ok(false), "it is counted as an invalid row");
        assert_eq!(reader.accept_header(b"key;size"), Ok(true));
        assert_eq!(only(reader.as_mut(), b"a;10").unwrap().1, "a");
    }

    /// If only the key has a column, any line parses as a row.
    #[test]
    fn header_of_a_second_file_is_not_a_row() {
        let mut reader = (FORMAT.reader)(&ReaderOptions::default());
        reader.choose_columns(&CsvColumns::parse("key=obj").unwrap());
        for header in ["when,obj", "obj,when"] {
            assert_eq!(reader.accept_header(header.as_bytes()), Ok(true), "{header}");
        }
        assert_eq!(reader.accept_header(b"a,1"), Ok(false));
        assert_eq!(only(reader.as_mut(), b"a,1").unwrap().1, "a");
    }

    #[test]
    fn missing_column_is_reported_by_name() {
        let lacks = |columns, line: &str| read(columns, &[line]).unwrap_err().to_string();
        assert_eq!(lacks("key=5", "a,b"), "the table has no column `5`");
        assert_eq!(lacks("key=obj", "id,size"), "the table has no column `obj`");
        let misspelt = "the table has no column `lenght`; did you mean `Length`?";
        assert_eq!(lacks("key=id,size=lenght", "id,Length"), misspelt);
        let unnamed = "the header does not name the column of the key; \
                       say which column is what, as in `csv:time,key,-,size` or `parquet:key=object`";
        assert_eq!(lacks("", "when,what"), unnamed);
    }

    #[test]
    fn invalid_column_list_is_rejected() {
        let refused = |text| CsvColumns::parse(text).unwrap_err().to_string();
        let unknown = "there is no field `kee`; the fields are time, key, size, op, ttl, tenant, count, \
                       and `-` is a column that is not used";
        assert_eq!(refused("time,kee"), unknown);
        assert_eq!(refused("key,id"), "`key` is named twice");
        assert_eq!(refused("time,size"), "no column is the `key`");
        assert_eq!(refused(""), "no column is the `key`");
        for item in ["key=", "key=0"] {
            let message = format!("`{item}`: a column is a number from 1, or a name in the header");
            assert_eq!(refused(item), message);
        }
        let mixed = "either list the columns in their order, or give each field its column (key=2)";
        assert_eq!(refused("time,key=2"), format!("`time`: {mixed}"));
    }
}
