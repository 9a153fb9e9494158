//! A Parquet file as the text of a table.

use std::fs::File;
use std::io::{self, Read};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor};

use super::failed;
use super::value::Printer;
use crate::trace::TraceError;

/// Rows that are decoded at a time.
const ROWS: usize = 8192;

/// The text of the Parquet file. The compressed bytes of each row group are added to `taken` when it is read.
///
/// # Errors
/// The file is damaged, or all its columns are nested.
pub(in crate::trace) fn open(file: File, taken: Option<Arc<AtomicU64>>) -> io::Result<Box<dyn Read + Send>> {
    let file = guarded(|| SerializedFileReader::new(file).map_err(failed))?;
    let columns = columns(&file)?;
    let mut text = Vec::new();
    for (number, Column { name, .. }) in columns.iter().enumerate() {
        if number > 0 {
            text.push(b',');
        }
        super::value::push_text(name.as_bytes(), &mut text).map_err(|reason| named(name, &reason))?;
    }
    text.push(b'\n');
    Ok(Box::new(Table { file, taken, columns, next_group: 0, rows_left: 0, text, read: 0 }))
}

/// The names of the columns of a Parquet file, without nested ones.
///
/// # Errors
/// The file cannot be read or is damaged, or all its columns are nested.
pub fn parquet_columns(path: &Path) -> Result<Vec<String>, TraceError> {
    let failed_at = |source| TraceError::Open { path: path.to_owned(), source };
    let file = File::open(path).and_then(|file| guarded(|| SerializedFileReader::new(file).map_err(failed)));
    let columns = file.and_then(|file| columns(&file)).map_err(failed_at)?;
    Ok(columns.into_iter().map(|column| column.name).collect())
}

fn columns(file: &SerializedFileReader<File>) -> io::Result<Vec<Column>> {
    let schema = file.metadata().file_metadata().schema_descr();
    // The values of lists and of optional groups have no row of their own.
    let is_flat = |column: &ColumnDescPtr| column.path().parts().len() == 1 && column.max_rep_level() == 0;
    let flat = schema.columns().iter().enumerate().filter(|(_, column)| is_flat(column));
    let columns: Vec<Column> = flat.map(|(place, column)| Column::new(place, column)).collect();
    if columns.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "all columns of the Parquet file are nested"));
    }
    Ok(columns)
}

/// The decoder of a file's rows.
struct Table {
    file: SerializedFileReader<File>,
    taken: Option<Arc<AtomicU64>>,
    columns: Vec<Column>,
    next_group: usize,
    /// Rows of the current group that are not decoded yet.
    rows_left: usize,
    text: Vec<u8>,
    /// Bytes of the text that were read.
    read: usize,
}

struct Column {
    place: usize,
    printer: Printer,
    is_optional: bool,
    name: String,
    /// The reader of the current group.
    reader: Option<ColumnReader>,
    /// The decoded cells, one after the other, and the end of each.
    cells: Vec<u8>,
    ends: Vec<usize>,
}

impl Read for Table {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.text.len() {
            self.text.clear();
            self.read = 0;
            let is_over = guarded(|| Ok(self.rows_left == 0 && !self.next_group()?))?;
            if is_over {
                return Ok(0);
            }
            guarded(|| self.decode())?;
        }
        let length = buffer.len().min(self.text.len() - self.read);
        buffer[..length].copy_from_slice(&self.text[self.read..self.read + length]);
        self.read += length;
        Ok(length)
    }
}

impl Table {
    /// Opens the next row group. Returns false at the end.
    fn next_group(&mut self) -> io::Result<bool> {
        if self.next_group == self.file.num_row_groups() {
            return Ok(false);
        }
        let group = self.file.get_row_group(self.next_group).map_err(failed)?;
        for column in &mut self.columns {
            let reader = group.get_column_reader(column.place);
            column.reader = Some(reader.map_err(|error| named(&column.name, &failed(error)))?);
        }
        self.next_group += 1;
        self.rows_left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        if let Some(taken) = &self.taken {
            let bytes = u64::try_from(group.metadata().compressed_size()).unwrap_or(0);
            taken.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(true)
    }

    /// Decodes some rows of the group to text.
    fn decode(&mut self) -> io::Result<()> {
        let rows = self.rows_left.min(ROWS);
        self.rows_left -= rows;
        for column in &mut self.columns {
            column.decode(rows).map_err(|error| named(&column.name, &error))?;
        }
        for row in 0..rows {
            for (number, column) in self.columns.iter().enumerate() {
                if number > 0 {
                    self.text.push(b',');
                }
                self.text.extend_from_slice(column.cell(row));
            }
            self.text.push(b'\n');
        }
        Ok(())
    }
}

impl Column {
    fn new(place: usize, descriptor: &ColumnDescriptor) -> Self {
        Self {
            place,
            printer: Printer::of(descriptor),
            is_optional: descriptor.max_def_level() > 0,
            name: descriptor.name().to_owned(),
            reader: None,
            cells: Vec::new(),
            ends: Vec::new(),
        }
    }

    fn cell(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.cells[start..self.ends[row]]
    }

    fn decode(&mut self, rows: usize) -> io::Result<()> {
        self.cells.clear();
        self.ends.clear();
        let mut reader = self.reader.take().expect("a group is open");
        let printer = self.printer;
        match &mut reader {
            ColumnReader::BoolColumnReader(it) => self.fill(rows, it, |it, out| printer.bool(*it, out)),
            ColumnReader::Int32ColumnReader(it) => {
                self.fill(rows, it, |it, out| printer.integer(i64::from(*it), 32, out))
            }
            ColumnReader::Int64ColumnReader(it) => {
                self.fill(rows, it, |it, out| printer.integer(*it, 64, out))
            }
            ColumnReader::Int96ColumnReader(it) => self.fill(rows, it, |it, out| printer.int96(it, out)),
            ColumnReader::FloatColumnReader(it) => {
                self.fill(rows, it, |it, out| printer.float(f64::from(*it), out))
            }
            ColumnReader::DoubleColumnReader(it) => self.fill(rows, it, |it, out| printer.float(*it, out)),
            ColumnReader::ByteArrayColumnReader(it) => {
                self.fill(rows, it, |it, out| printer.bytes(it.data(), out))
            }
            ColumnReader::FixedLenByteArrayColumnReader(it) => {
                self.fill(rows, it, |it, out| printer.bytes(it.data(), out))
            }
        }?;
        self.reader = Some(reader);
        Ok(())
    }

    /// Decodes the cells of the next `rows` rows.
    fn fill<T: DataType>(
        &mut self,
        rows: usize,
        reader: &mut ColumnReaderImpl<T>,
        print: impl Fn(&T::T, &mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut decoded = 0;
        while decoded < rows {
            let (mut values, mut levels) = (Vec::new(), Vec::new());
            let levels_out = self.is_optional.then_some(&mut levels);
            let (records, _, _) =
                reader.read_records(rows - decoded, levels_out, None, &mut values).map_err(failed)?;
            if records == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends before the other columns"));
            }
            let mut values = values.iter();
            for row in 0..records {
                // Nulls are empty cells.
                if levels.get(row).is_none_or(|level| *level > 0)
                    && let Some(value) = values.next()
                {
                    print(value, &mut self.cells)?;
                }
                self.ends.push(self.cells.len());
            }
            decoded += records;
        }
        Ok(())
    }
}

/// Calls the Parquet library, which panics for some damaged data.
fn guarded<T>(call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let damaged = |_| io::Error::new(io::ErrorKind::InvalidData, "the Parquet data is damaged");
    std::panic::catch_unwind(AssertUnwindSafe(call)).map_err(damaged)?
}

fn named(column: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("the column `{column}`: {error}"))
}
