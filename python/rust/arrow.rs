//! Columns of Python values as an Arrow stream, by the PyCapsule interface.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray,
};
use arrow_schema::{DataType, Field, Schema};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// An `arrow_array_stream` capsule with one record batch of `rows` rows.
///
/// A column is a name, one of the types `int64`, `float64`, `bool` and `string`, and a list of values, `None` for null.
#[pyfunction]
pub fn arrow_stream<'py>(
    py: Python<'py>,
    columns: Vec<(String, String, Bound<'py, PyAny>)>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let failed = |error: arrow_schema::ArrowError| PyValueError::new_err(error.to_string());
    let mut fields = Vec::new();
    let mut arrays = Vec::new();
    for (name, kind, values) in columns {
        let (data_type, array) = array(&kind, &values)?;
        fields.push(Field::new(name, data_type, true));
        arrays.push(array);
    }
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays).map_err(failed)?;
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    let stream = FFI_ArrowArrayStream::new(Box::new(reader));
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}

fn array(kind: &str, values: &Bound<'_, PyAny>) -> PyResult<(DataType, ArrayRef)> {
    Ok(match kind {
        "int64" => {
            (DataType::Int64, Arc::new(Int64Array::from(values.extract::<Vec<Option<i64>>>()?)) as ArrayRef)
        }
        "float64" => (DataType::Float64, Arc::new(Float64Array::from(values.extract::<Vec<Option<f64>>>()?))),
        "bool" => (DataType::Boolean, Arc::new(BooleanArray::from(values.extract::<Vec<Option<bool>>>()?))),
        "string" => (DataType::Utf8, Arc::new(StringArray::from(values.extract::<Vec<Option<String>>>()?))),
        other => return Err(PyValueError::new_err(format!("unknown column type {other}"))),
    })
}
