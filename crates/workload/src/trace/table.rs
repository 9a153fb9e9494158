//! What formats of comma-separated columns share: a header may say which column is which.

use std::marker::PhantomData;

use super::columns::{Columns, RowError, bare};
use super::csv;
use super::{ReaderOptions, RowReader, Rows};

/// What makes a format of up to `N` columns. A trait and no value, so that reading a row is one piece of code with
/// splitting it: a call between them costs a tenth of the row.
pub(super) trait Table<const N: usize>: Send + 'static {
    /// What a header calls the columns. Elsewhere a column is its place in this list.
    const NAMES: [&'static str; N];
    /// The columns of a row, in order, where there is no header.
    const HEADERLESS: &'static [usize];
    /// The columns that a header must name.
    const REQUIRED: &'static [usize];
    /// The columns that are the tenant, unless others are chosen for it.
    const TENANT: &'static [usize];

    /// Adds what a row asks for, given its fields, to the rows. A field that the row lacks is empty.
    fn read(fields: &[&[u8]; N], options: &ReaderOptions, rows: &mut Rows) -> Result<(), RowError>;
}

pub(super) fn reader<T: Table<N>, const N: usize>(options: &ReaderOptions) -> Box<dyn RowReader> {
    let columns = Columns::positional(T::HEADERLESS);
    Box::new(Reader {
        table: PhantomData::<T>,
        columns,
        has_header: false,
        options: *options,
        tenant: Vec::new(),
    })
}

struct Reader<T, const N: usize> {
    table: PhantomData<T>,
    columns: Columns<N>,
    has_header: bool,
    options: ReaderOptions,
    /// The names of the columns that are the tenant, where they were chosen.
    tenant: Vec<String>,
}

impl<T: Table<N>, const N: usize> RowReader for Reader<T, N> {
    fn takes_header(&mut self, line: &[u8]) -> Result<bool, RowError> {
        if self.read(line, &mut Rows::default()).is_ok() {
            return Ok(false);
        }
        self.take_header(line)
    }

    fn takes_remark(&mut self, text: &[u8]) -> bool {
        let names = || T::NAMES.into_iter().chain(self.tenant.iter().map(String::as_str));
        let is_name = |cell: &[u8]| names().any(|name| cell.eq_ignore_ascii_case(name.as_bytes()));
        let mut cells = text.split(|byte| *byte == b',').map(bare).filter(|cell| !cell.is_empty());
        // Others are words of a sentence.
        cells.all(|cell| is_name(cell) || csv::is_usual(cell))
            // A field that the header before it had is not lost by a remark.
            && self.take_header_if(text, |now, before| (0..N).all(|field| now.has(field) || !before.has(field)))
    }

    fn takes_another_header(&mut self, line: &[u8]) -> bool {
        // Rows without a field that those before them had are not of the same trace.
        self.take_header_if(line, |now, before| (0..N).all(|field| now.has(field) == before.has(field)))
    }

    fn columns(&self, header: &[u8]) -> Option<String> {
        Some(self.columns.words(header, &T::NAMES))
    }

    fn choose_tenant(&mut self, columns: &[String]) -> bool {
        self.tenant = columns.to_vec();
        columns.len() <= T::TENANT.len()
    }

    fn read(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        T::read(&self.columns.split(line), &self.options, rows)
    }
}

impl<T: Table<N>, const N: usize> Reader<T, N> {
    fn take_header(&mut self, line: &[u8]) -> Result<bool, RowError> {
        let columns = self.columns_of(line)?;
        let is_header = columns.is_some();
        self.has_header |= is_header;
        self.columns = columns.unwrap_or_else(|| self.columns.clone());
        Ok(is_header)
    }

    /// Takes a header over that stands to the header before it, if there is one, as `is_like` says.
    fn take_header_if(&mut self, line: &[u8], is_like: impl Fn(&Columns<N>, &Columns<N>) -> bool) -> bool {
        let Ok(Some(columns)) = self.columns_of(line) else { return false };
        let takes = !self.has_header || is_like(&columns, &self.columns);
        if takes {
            (self.columns, self.has_header) = (columns, true);
        }
        takes
    }

    /// The columns as a header has them, those chosen for the tenant too; `None` if the line is none.
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
