//! The cache engine as a Python class.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use cache::{InsertOptions, Inserted};
use device::FileDevice;
use device::file::OpenOptions;
use device::size::parse_size;
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};

use crate::Error;

/// The engine. `flashwright.Cache` adds the conveniences.
#[pyclass(subclass, frozen)]
pub struct Cache {
    /// `None` once closed.
    engine: RwLock<Option<Arc<cache::Cache>>>,
}

#[pymethods]
impl Cache {
    #[new]
    #[pyo3(signature = (dram = None, flash = None, flash_size = None, max_item = None, small_item_share = None))]
    fn new(
        py: Python<'_>,
        dram: Option<Bound<'_, PyAny>>,
        flash: Option<PathBuf>,
        flash_size: Option<Bound<'_, PyAny>>,
        max_item: Option<Bound<'_, PyAny>>,
        small_item_share: Option<f64>,
    ) -> PyResult<Self> {
        let mut builder = cache::Cache::builder();
        if let Some(bytes) = size("dram", dram)? {
            builder = builder.dram_bytes(bytes);
        }
        if let Some(bytes) = size("max_item", max_item)? {
            let bytes =
                u32::try_from(bytes).map_err(|_| PyValueError::new_err("max_item: must be below 4 GiB"))?;
            builder = builder.max_item_bytes(bytes);
        }
        let size_bytes = size("flash_size", flash_size)?;
        if flash.is_none() && (size_bytes.is_some() || small_item_share.is_some()) {
            return Err(PyValueError::new_err(
                "flash_size and small_item_share need flash, the path of a file or device",
            ));
        }
        if let Some(share) = small_item_share.filter(|share| !(0.0..=1.0).contains(share)) {
            return Err(PyValueError::new_err(format!("small_item_share {share}: must be from 0 to 1")));
        }
        let opened = py.detach(|| -> Result<cache::Cache, String> {
            let place = flash.as_ref().map_or_else(String::new, |path| format!("{}: ", path.display()));
            if let Some(path) = flash {
                let options = OpenOptions { size_bytes, create: true, ..OpenOptions::default() };
                let device = FileDevice::open(&path, &options);
                builder = builder.flash(Arc::new(device.map_err(|error| format!("{place}{error}"))?));
            }
            if let Some(share) = small_item_share {
                builder = builder.small_item_share(share);
            }
            builder.open().map_err(|error| format!("{place}{error}"))
        });
        let engine = opened.map_err(Error::new_err)?;
        Ok(Self { engine: RwLock::new(Some(Arc::new(engine))) })
    }

    /// The value under `key`, or `None`.
    fn get<'py>(&self, py: Python<'py>, key: PyBackedBytes) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let engine = self.engine()?;
        // A DRAM hit takes less time than a release of the GIL, but a flash hit must not hold it.
        let found = py.detach(|| engine.get_owned_blocking(&key));
        Ok(found.map(|item| PyBytes::new(py, &item)))
    }

    /// Stores `value` under `key` for `ttl` seconds; with `None` it does not expire.
    #[pyo3(signature = (key, value, ttl = None))]
    fn set(
        &self,
        py: Python<'_>,
        key: PyBackedBytes,
        value: PyBackedBytes,
        ttl: Option<u32>,
    ) -> PyResult<()> {
        let engine = self.engine()?;
        let options = InsertOptions { ttl_seconds: ttl, ..InsertOptions::default() };
        match py.detach(|| engine.insert_blocking(&key, &value, options)) {
            Inserted::Stored => Ok(()),
            Inserted::Rejected(refusal) => Err(Error::new_err(refusal.to_string())),
        }
    }

    /// The value under `key`. If there is none, it is loaded by `load(key)` and stored; concurrent callers of one key load once.
    #[pyo3(signature = (key, load, ttl = None))]
    fn get_or_load<'py>(
        &self,
        py: Python<'py>,
        key: PyBackedBytes,
        load: Py<PyAny>,
        ttl: Option<u32>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let engine = self.engine()?;
        let options = InsertOptions { ttl_seconds: ttl, ..InsertOptions::default() };
        let found = py.detach(|| {
            let fetch = || {
                Python::attach(|py| {
                    let value = load.call1(py, (PyBytes::new(py, &key),))?;
                    value.extract::<PyBackedBytes>(py).map(|value| value.to_vec()).map_err(|_| {
                        PyTypeError::new_err("the loader of get_or_load must return bytes or bytearray")
                    })
                })
            };
            let fetched = engine.get_or_insert_with_blocking::<PyErr>(&key, options, fetch);
            fetched.map(|value| value.to_vec())
        });
        match found {
            Ok(value) => Ok(PyBytes::new(py, &value)),
            Err(error) => Err(error.clone_ref(py)),
        }
    }

    /// Removes `key`. Returns whether it may have been present, which is certain for DRAM.
    fn delete(&self, py: Python<'_>, key: PyBackedBytes) -> PyResult<bool> {
        let engine = self.engine()?;
        Ok(py.detach(|| engine.remove(&key)))
    }

    /// Removes all items.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let engine = self.engine()?;
        py.detach(|| engine.clear());
        Ok(())
    }

    fn __contains__(&self, key: PyBackedBytes) -> PyResult<bool> {
        Ok(self.engine()?.contains(&key))
    }

    /// The number of keys. Reads all of the flash tier.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let engine = self.engine()?;
        Ok(py.detach(|| {
            let mut keys = HashSet::new();
            engine.for_each_key_in_dram(|key| {
                keys.insert(engine.key_hash(key));
            });
            engine.for_each_key_on_flash_blocking(|key| {
                keys.insert(engine.key_hash(key));
            });
            keys.len()
        }))
    }

    /// Hits, misses and bytes so far.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.engine()?.stats();
        let out = PyDict::new(py);
        out.set_item("hits_dram", stats.gets.hits_dram)?;
        out.set_item("hits_flash", stats.gets.hits_flash)?;
        out.set_item("misses", stats.gets.misses)?;
        out.set_item("recovered", stats.flash.as_ref().map(|flash| flash.recovered))?;
        out.set_item("flash_written_bytes", stats.flash.as_ref().map(|flash| flash.device.written_bytes))?;
        out.set_item(
            "write_amplification",
            stats.flash.as_ref().and_then(|flash| flash.write_amplification()),
        )?;
        Ok(out)
    }

    /// Writes the items in DRAM to flash and closes the cache, so that the next cache on this flash has them. Does nothing if closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let taken = self.engine.write().unwrap_or_else(PoisonError::into_inner).take();
        let Some(engine) = taken else { return Ok(()) };
        py.detach(|| match Arc::try_unwrap(engine) {
            Ok(engine) => engine.close(),
            // Another thread is in an operation, which completes or is refused.
            Err(shared) => shared.close_within(std::time::Duration::MAX),
        })
        .map_err(|error| Error::new_err(error.to_string()))
    }

    /// Whether [`close`](Self::close) was called.
    #[getter]
    fn closed(&self) -> bool {
        self.engine.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: PyBackedBytes) -> PyResult<Bound<'py, PyBytes>> {
        let name = PyBytes::new(py, &key).unbind();
        self.get(py, key)?.ok_or_else(|| PyKeyError::new_err(name))
    }

    fn __setitem__(&self, py: Python<'_>, key: PyBackedBytes, value: PyBackedBytes) -> PyResult<()> {
        self.set(py, key, value, None)
    }

    fn __delitem__(&self, py: Python<'_>, key: PyBackedBytes) -> PyResult<()> {
        let name = PyBytes::new(py, &key).unbind();
        if self.delete(py, key)? { Ok(()) } else { Err(PyKeyError::new_err(name)) }
    }
}

impl Cache {
    fn engine(&self) -> PyResult<Arc<cache::Cache>> {
        let engine = self.engine.read().unwrap_or_else(PoisonError::into_inner).clone();
        engine.ok_or_else(|| Error::new_err("the cache is closed"))
    }
}

/// A number of bytes: an integer, or text such as `64MiB`.
fn size(name: &str, value: Option<Bound<'_, PyAny>>) -> PyResult<Option<u64>> {
    let Some(value) = value else { return Ok(None) };
    if let Ok(bytes) = value.extract::<u64>() {
        return Ok(Some(bytes));
    }
    let text: String = value
        .extract()
        .map_err(|_| PyTypeError::new_err(format!("{name}: give bytes, or text such as 64MiB")))?;
    parse_size(&text).map(Some).map_err(|error| PyValueError::new_err(format!("{name}: {error}")))
}
