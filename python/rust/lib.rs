//! The native part of the Python module `flashwright`: commands as calls, traces from arrays, Arrow tables, and the cache.

mod arrow;
mod cache;
mod command;
mod policy;
mod trace;

use pyo3::prelude::*;

pyo3::create_exception!(
    flashwright,
    Error,
    pyo3::exceptions::PyException,
    "A command or the cache failed; the message is that of the command line."
);

/// `flashwright._native`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::Error;
    #[pymodule_export]
    use super::arrow::arrow_stream;
    #[pymodule_export]
    use super::cache::Cache;
    #[pymodule_export]
    use super::command::{call, main};
    #[pymodule_export]
    use super::trace::{parquet_columns, write_trace};
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "the name is Python's")]
    const __version__: &str = flashwright_cli::VERSION;
}
