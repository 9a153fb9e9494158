//! What formats of comma-separated columns share: a header may say which column is which.

use std::marker::PhantomData;

use super::columns::{Columns, RowError};
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

    fn takes_another_header(&mut self, line: &[u8]) -> bool {
        // Rows without a field that those before them had are not of the same trace.
        let is_like = |columns: Columns<N>| (0..N).all(|field| columns.has(field) == self.columns.has(field));
        let is_another = !self.has_header || Columns::from_header(line, &T::NAMES).is_some_and(is_like);
        is_another && matches!(self.take_header(line), Ok(true))
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
        let is_header = self.columns.take_header(line, &T::NAMES, T::REQUIRED)?;
        self.has_header |= is_header;
        if is_header && !self.tenant.is_empty() {
            self.columns.choose(line, &self.tenant, T::TENANT)?;
        }
        Ok(is_header)
    }
}
