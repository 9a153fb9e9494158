//! Copying a trace to the binary format, row by row.

use std::path::Path;

use super::access::{Accesses, OpenOptions, ReadReport, Reader, reader};
use super::error::TraceError;
use super::tenants::TenantNames;
use super::write::{WriteError, Writer};

/// Opens a trace for copying to the binary format, with unchanged keys, repeat counts, times and sizes.
///
/// # Errors
/// As [`open`](super::access::open).
pub fn copy<P: AsRef<Path>>(
    paths: &[P],
    format: Option<&str>,
    options: &OpenOptions,
) -> Result<Copying, TraceError> {
    Ok(Copying(reader(paths, format, options)?.for_rows()))
}

/// A trace that is being copied.
pub struct Copying(Reader);

/// An error while copying a trace.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The trace cannot be read.
    #[error(transparent)]
    Read(#[from] TraceError),
    /// The copy cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Copying {
    /// Copies the next rows, some thousands. Returns false at the end.
    ///
    /// # Errors
    /// An error that may not be skipped, or `to` cannot be written.
    pub fn step(&mut self, to: &mut Writer) -> Result<bool, CopyError> {
        self.0.copy_rows(to)
    }

    /// Reading statistics so far; counts the accesses that the rows represent.
    #[must_use]
    pub fn report(&self) -> &ReadReport {
        self.0.report()
    }

    /// The names of the tenants seen so far, for the [writer](Writer::with_tenants).
    #[must_use]
    pub fn tenants(&self) -> TenantNames {
        self.0.tenants()
    }
}
