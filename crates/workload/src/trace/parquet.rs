//! Parquet files: tables, whose columns mean what those of [`csv`](super::csv) mean.
//!
//! A file is read as the text of the table with the same columns, so that columns, units, names of operations and the handling of bad rows
//! are those of other tables, and every format with a header accepts a Parquet file too. Nested columns are left out.

use super::csv::{self, FORMAT as CSV};
use super::format::{FileOrder, Format, TimeUnits};

mod read;
mod value;
mod write;

pub(super) use read::open;
pub use read::parquet_columns;
pub(super) use write::ParquetFile;

pub(super) const MAGIC: [u8; 4] = *b"PAR1";

pub(super) static FORMAT: Format = Format {
    name: "parquet",
    about: "Parquet files whose columns name key and size; of others, the columns: parquet:key=object,size=bytes",
    extensions: &["parquet"],
    pages: CSV.pages,
    time_units: TimeUnits::Default(1),
    files: FileOrder::InTurn,
    plausible: |head| head.ends_like(&FORMAT) && (CSV.plausible)(head),
    reader: csv::reader,
};

/// The last component of an error of the Parquet library.
fn failed(error: parquet::errors::ParquetError) -> std::io::Error {
    use parquet::errors::ParquetError;
    let message = match error {
        ParquetError::General(message) | ParquetError::NYI(message) | ParquetError::EOF(message) => message,
        other => other.to_string(),
    };
    std::io::Error::new(std::io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests;
