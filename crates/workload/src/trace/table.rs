//! The common part of CSV formats: an optional header gives the order of columns.
//!
//! A file without a header has a published order of columns, or that of the previous file, as in the second part of a split file. The first
//! rows of each file decide. If they parse in two ways, it is an error.

use std::marker::PhantomData;
use std::ops::RangeInclusive;

use super::columns::{Columns, RowError, bare, duplicates, lossy};
use super::csv;
use super::cut::Items;
use super::framing::Framing;
use super::framing::comment_text;
use super::framing::mark_bytes;
use super::lines::{Lines, RecordKind};
use super::rows::{HeaderMismatch, Object, Row};
use super::rows::{ReaderOptions, RowReader, Rows};

/// Rows used to detect the order of columns.
const TRIED_ROWS: usize = 32;

/// A published order of columns for files without a header.
pub(super) struct Order {
    /// The field of each column; `None` is unused. Trailing columns can be missing.
    pub(super) fields: &'static [Option<usize>],
    /// Number of columns in such files.
    pub(super) columns: RangeInclusive<usize>,
}

/// A format of up to `N` columns. A trait instead of a value, so that parsing a row is inlined with splitting it: a call between them would
/// cost a tenth of the time.
pub(super) trait Table<const N: usize>: Send + 'static {
    /// Column names in headers. A field is an index into this list.
    const NAMES: [&'static str; N];
    /// The orders of columns without a header.
    const HEADERLESS: &'static [Order];
    /// The required columns.
    const REQUIRED: &'static [usize];
    /// The tenant's columns, unless others are configured.
    const TENANT: &'static [usize];
    /// Unused columns of published files.
    const IGNORED: &'static [&'static str];
    /// Columns whose absence changes the meaning of rows, with the assumption made instead.
    const ASSUMED: &'static [(usize, &'static str)];

    /// Adds the request in a row's fields to `rows`. Missing fields are empty.
    fn read(fields: &[&[u8]; N], options: &ReaderOptions, rows: &mut Rows) -> Result<(), RowError>;
}

pub(super) fn reader<T: Table<N>, const N: usize>(options: &ReaderOptions) -> Box<dyn RowReader> {
    let columns = Columns::positional(T::HEADERLESS.first().map_or(&[], |order| order.fields));
    Box::new(Reader {
        table: PhantomData::<T>,
        columns,
        has_header: false,
        header_columns: 0,
        options: *options,
        tenant: Vec::new(),
    })
}

struct Reader<T, const N: usize> {
    table: PhantomData<T>,
    columns: Columns<N>,
    has_header: bool,
    /// Number of columns in the last header.
    header_columns: usize,
    options: ReaderOptions,
    /// The configured tenant columns.
    tenant: Vec<String>,
}

impl<T: Table<N>, const N: usize> RowReader for Reader<T, N> {
    fn framing(&mut self, head: &[u8]) -> Result<Framing, RowError> {
        if let Some(columns) = self.columns_by_rows(head)? {
            self.has_header &= columns == self.columns;
            self.columns = columns;
            if let Some(name) = self.tenant.first().filter(|_| !self.has_header) {
                return Err(RowError::ChosenWithoutHeader(name.clone()));
            }
        }
        Ok(Framing::Lines)
    }

    fn accept_header(&mut self, line: &[u8]) -> Result<bool, RowError> {
        if self.read(line, &mut Rows::default()).is_ok() {
            return Ok(false);
        }
        self.take_header(line)
    }

    fn accept_comment(&mut self, text: &[u8]) -> bool {
        let names = || T::NAMES.into_iter().chain(self.tenant.iter().map(String::as_str));
        let is_name = |cell: &[u8]| names().any(|name| cell.eq_ignore_ascii_case(name.as_bytes()));
        let mut cells = text.split(|byte| *byte == b',').map(bare).filter(|cell| !cell.is_empty());
        // Other cells are words of a sentence.
        cells.all(|cell| is_name(cell) || csv::is_usual(cell))
            // A comment must not remove a field of the previous header.
            && self.take_header_if(text, |now, before| (0..N).all(|field| now.has(field) || !before.has(field)))
    }

    fn accept_repeated_header(&mut self, line: &[u8]) -> bool {
        // A header with other fields belongs to another trace.
        self.take_header_if(line, |now, before| (0..N).all(|field| now.has(field) == before.has(field)))
    }

    fn columns(&self, header: &[u8]) -> Option<String> {
        Some(self.columns.text(header, &T::NAMES))
    }

    fn header_mismatch(&self, header: &[u8]) -> HeaderMismatch {
        let known =
            || T::NAMES.iter().chain(T::IGNORED).copied().chain(self.tenant.iter().map(String::as_str));
        let is_known = |cell: &&[u8]| known().any(|name| cell.eq_ignore_ascii_case(name.as_bytes()));
        let cells = header.split(|byte| *byte == b',').map(bare);
        HeaderMismatch {
            unknown: cells.filter(|cell| !cell.is_empty() && !is_known(cell)).map(lossy).collect(),
            lacking: (0..N).filter(|field| !self.columns.has(*field)).map(|field| T::NAMES[field]).collect(),
            meant: T::ASSUMED
                .iter()
                .filter(|(field, _)| !self.columns.has(*field))
                .map(|(field, meaning)| (T::NAMES[*field], *meaning))
                .collect(),
        }
    }

    fn duplicates(&self, header: &[u8]) -> Vec<String> {
        duplicates(header.split(|byte| *byte == b',').map(bare))
    }

    fn order(&self) -> Option<String> {
        let orders =
            || T::HEADERLESS.iter().map(|order| Columns::<N>::positional(order.fields).order(&T::NAMES));
        Some(match (self.has_header, T::HEADERLESS) {
            (true, _) => format!("its columns are read as {}", self.columns.order(&T::NAMES)),
            (false, []) => "its first line must name the columns".to_owned(),
            (false, _) => format!(
                "it has no header, and without one its columns are {}",
                orders().collect::<Vec<_>>().join(" or ")
            ),
        })
    }

    fn choose_tenant(&mut self, columns: &[String]) -> Result<(), usize> {
        let most = T::TENANT.len();
        self.tenant = columns.to_vec();
        if columns.len() > most { Err(most) } else { Ok(()) }
    }

    fn read(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        T::read(&self.columns.split(line), &self.options, rows)
    }
}

/// A row as parsed with some order of columns: the row, its name and its items.
type Reading = Option<(Row, Vec<u8>, Option<Items>)>;

/// Files without a header.
impl<T: Table<N>, const N: usize> Reader<T, N> {
    /// The columns of the file that begins with `head`, if it has no header and at least one row parses. Of several possible orders, the
    /// one with the file's number of columns is used.
    fn columns_by_rows(&self, head: &[u8]) -> Result<Option<Columns<N>>, RowError> {
        let rows = first_lines(head);
        if T::HEADERLESS.is_empty() || self.begins_with_header(&rows) {
            return Ok(None);
        }
        let rows: Vec<&[u8]> =
            rows.into_iter().filter(|line| comment_text(line).is_none()).take(TRIED_ROWS).collect();
        let published = T::HEADERLESS.iter();
        let published = published.map(|it| (Columns::positional(it.fields), it.columns.clone()));
        let before =
            self.has_header.then(|| (self.columns.clone(), self.header_columns..=self.header_columns));
        let known: Vec<_> = before.into_iter().chain(published).collect();
        let read = |is_lenient| {
            let ways = known.iter().map(|(columns, widths)| {
                let readings = self.readings(columns, &rows, is_lenient);
                (columns.clone(), widths.clone(), readings)
            });
            ways.collect::<Vec<_>>()
        };
        let mut ways = read(false);
        if ways.iter().all(|(.., readings)| count(readings) == 0) {
            ways = read(true);
        }
        let most = ways.iter().map(|(.., readings)| count(readings)).max().unwrap_or(0);
        ways.retain(|(.., readings)| most > 0 && count(readings) == most);
        let differs = |ways: &[(Columns<N>, RangeInclusive<usize>, Vec<Reading>)]| {
            ways.iter().skip(1).position(|(.., readings)| *readings != ways[0].2)
        };
        if let Some(other) = differs(&ways) {
            let [one, other] = [0, other + 1].map(|at| ways[at].0.order(&T::NAMES));
            let width = rows[0].split(|byte| *byte == b',').count();
            ways.retain(|(_, widths, _)| widths.contains(&width));
            if ways.is_empty() || differs(&ways).is_some() {
                return Err(RowError::NoHeader { one, other });
            }
        }
        Ok(ways.into_iter().next().map(|(columns, ..)| columns))
    }

    fn begins_with_header(&self, lines: &[&[u8]]) -> bool {
        let mut reader = Self { columns: self.columns.clone(), tenant: self.tenant.clone(), ..*self };
        let mut fed = Lines::default();
        for line in lines {
            match fed.feed(line, &mut reader, &mut Rows::default()) {
                RecordKind::Comment => {}
                RecordKind::Header | RecordKind::WrongHeader(_) => return true,
                RecordKind::Row | RecordKind::Wrong(_) | RecordKind::End => return false,
            }
        }
        false
    }

    /// The lines as parsed with these columns; unreadable optional values are absent if `is_lenient`.
    fn readings(&self, columns: &Columns<N>, lines: &[&[u8]], is_lenient: bool) -> Vec<Reading> {
        let mut rows = if is_lenient { Rows::detecting() } else { Rows::default() };
        let mut reading = |line: &[u8]| {
            rows.clear();
            T::read(&columns.split(line), &self.options, &mut rows).ok()?;
            let row = (rows.len() > 0).then(|| rows.row(0).clone())?;
            let (name, items) = match &row.object {
                Object::Named(range) => (rows.named(range).to_vec(), None),
                Object::Items(index) => {
                    let items = rows.items(*index);
                    (rows.named(&items.name).to_vec(), Some(items.clone()))
                }
                Object::Numbered { .. } => (Vec::new(), None),
            };
            Some((row, name, items))
        };
        lines.iter().map(|line| reading(line)).collect()
    }
}

fn count(readings: &[Reading]) -> usize {
    readings.iter().flatten().count()
}

/// The first lines, without the last, which can be cut off unless it is the only one.
fn first_lines(head: &[u8]) -> Vec<&[u8]> {
    let text = &head[mark_bytes(head)..];
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(text, |last| &text[..last]);
    let lines = whole.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.filter(|line| !line.is_empty()).collect()
}

impl<T: Table<N>, const N: usize> Reader<T, N> {
    fn take_header(&mut self, line: &[u8]) -> Result<bool, RowError> {
        let columns = self.columns_of(line)?;
        let is_header = columns.is_some();
        if is_header {
            (self.has_header, self.header_columns) = (true, line.split(|byte| *byte == b',').count());
        }
        self.columns = columns.unwrap_or_else(|| self.columns.clone());
        Ok(is_header)
    }

    /// Uses a header if `is_like` accepts it in comparison with the previous header.
    fn take_header_if(&mut self, line: &[u8], is_like: impl Fn(&Columns<N>, &Columns<N>) -> bool) -> bool {
        let Ok(Some(columns)) = self.columns_of(line) else { return false };
        let takes = !self.has_header || is_like(&columns, &self.columns);
        if takes {
            (self.columns, self.has_header) = (columns, true);
            self.header_columns = line.split(|byte| *byte == b',').count();
        }
        takes
    }

    /// The columns of a header, including configured tenant columns; `None` if the line is not a header.
    fn columns_of(&self, header: &[u8]) -> Result<Option<Columns<N>>, RowError> {
        let mut columns = self.columns.clone();
        if !columns.take_header(header, &T::NAMES, T::REQUIRED)? {
            return Ok(None);
        }
        if !self.tenant.is_empty() {
            columns.choose(header, &self.tenant, T::TENANT)?;
        }
        Ok(Some(columns))
    }
}
