//! Traces from columns in memory: written to a binary trace, which the commands read like any other.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use workload::trace::access::key_of;
use workload::trace::{Access, AccessKind, Target, WriteError, Writer};

use crate::Error;

/// An access's time if the table has none, as for files without times: its number, in milliseconds.
const NUMBER_NS: u64 = 1_000_000;

/// Columns of a part of a trace, each as the little-endian bytes of an array.
#[derive(FromPyObject)]
pub struct Columns {
    /// `uint64`.
    #[pyo3(item)]
    keys: Option<PyBackedBytes>,
    /// Keys that are no numbers, in place of `keys`.
    #[pyo3(item)]
    names: Option<Vec<PyBackedBytes>>,
    /// `uint64`, bytes.
    #[pyo3(item)]
    sizes: PyBackedBytes,
    /// `uint64`, nanoseconds.
    #[pyo3(item)]
    times: Option<PyBackedBytes>,
    /// `uint32`, seconds; 0 never expires.
    #[pyo3(item)]
    ttls: Option<PyBackedBytes>,
    /// `uint8`: 0 get, 1 set, 2 delete.
    #[pyo3(item)]
    kinds: Option<PyBackedBytes>,
}

/// Writes these parts to `path` as a binary trace. Returns the number of accesses.
#[pyfunction]
pub fn write_trace(py: Python<'_>, path: PathBuf, parts: &Bound<'_, PyAny>) -> PyResult<u64> {
    let failed = |error: WriteError| Error::new_err(error.to_string());
    let mut writer = Writer::create(&path, Target::Binary).map_err(failed)?;
    let (mut batch, mut first) = (Vec::new(), 0);
    for part in parts.try_iter()? {
        let columns: Columns = part?.extract()?;
        columns.check()?;
        py.detach(|| {
            batch.clear();
            batch.extend((0..columns.len()).map(|at| columns.access(at, first)));
            writer.write(&batch)
        })
        .map_err(failed)?;
        first += columns.len() as u64;
    }
    py.detach(|| writer.finish()).map(|written| written.accesses).map_err(failed)
}

/// The names of the columns of a Parquet file.
#[pyfunction]
pub fn parquet_columns(path: PathBuf) -> PyResult<Vec<String>> {
    workload::trace::parquet_columns(&path).map_err(|error| Error::new_err(error.to_string()))
}

impl Columns {
    fn len(&self) -> usize {
        self.sizes.len() / 8
    }

    fn check(&self) -> PyResult<()> {
        let keys = match (&self.keys, &self.names) {
            (Some(keys), None) => keys.len() / 8,
            (None, Some(names)) => names.len(),
            _ => return Err(PyValueError::new_err("one of keys and names must be given")),
        };
        let widths = [("times", &self.times, 8), ("ttls", &self.ttls, 4), ("kinds", &self.kinds, 1)];
        let lengths =
            widths.iter().filter_map(|(name, column, width)| Some((*name, column.as_ref()?.len() / width)));
        for (name, length) in lengths.chain([("keys", keys)]) {
            if length != self.len() {
                let message = format!("{name} has {length} values, but sizes has {}", self.len());
                return Err(PyValueError::new_err(message));
            }
        }
        Ok(())
    }

    /// The access `at` of this part, whose first one is number `first` of the trace.
    #[inline]
    fn access(&self, at: usize, first: u64) -> Access {
        let key = match (&self.keys, &self.names) {
            (Some(keys), _) => u64_at(keys, at),
            (None, Some(names)) => key_of(&names[at]),
            (None, None) => 0,
        };
        let ttl_seconds = self.ttls.as_ref().map(|ttls| u32_at(ttls, at)).filter(|ttl| *ttl > 0);
        let number_ns = (first + at as u64) * NUMBER_NS;
        Access {
            time_ns: self.times.as_ref().map_or(number_ns, |times| u64_at(times, at)),
            key,
            size_bytes: u64_at(&self.sizes, at),
            ttl_seconds,
            tenant: None,
            kind: match self.kinds.as_ref().map_or(0, |kinds| kinds[at]) {
                1 => AccessKind::Set,
                2 => AccessKind::Delete,
                _ => AccessKind::Get,
            },
        }
    }
}

#[inline]
fn u64_at(column: &[u8], number: usize) -> u64 {
    column.as_chunks::<8>().0.get(number).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[inline]
fn u32_at(column: &[u8], number: usize) -> u32 {
    column.as_chunks::<4>().0.get(number).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
