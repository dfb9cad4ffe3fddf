//! Tables for Python: Arrow through the PyCapsule interface, so that pandas, Polars, PyArrow and DuckDB take
//! them without a copy.

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray,
};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, Field, Schema};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};
use ropewalk_lab::tidy::{self, Column, Head};

use crate::errors;

const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";

/// A table of typed columns; see `python/ropewalk/_table.py`.
#[pyclass(frozen, module = "ropewalk._native")]
pub(crate) struct Table {
    batch: RecordBatch,
    heads: Vec<Head>,
}

fn array(column: Column) -> (DataType, ArrayRef) {
    match column {
        Column::Whole(values) => (DataType::Int64, Arc::new(Int64Array::from(values))),
        Column::Number(values) => (DataType::Float64, Arc::new(Float64Array::from(values))),
        Column::Text(values) => (DataType::Utf8, Arc::new(StringArray::from(values))),
        Column::Flag(values) => (DataType::Boolean, Arc::new(BooleanArray::from(values))),
    }
}

impl Table {
    pub(crate) fn new(table: tidy::Table) -> PyResult<Self> {
        let metadata: HashMap<String, String> = table.metadata().into_iter().collect();
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        for (head, column) in table.heads.iter().zip(table.columns) {
            let optional = matches!(column, Column::Number(_) | Column::Text(_));
            let (kind, array) = array(column);
            let about = [("unit", &head.unit), ("meaning", &head.meaning)];
            let about = about.iter().filter(|(_, text)| !text.is_empty());
            let about = about.map(|(key, text)| (key.to_string(), text.to_string()));
            fields.push(
                Field::new(&head.name, kind, optional)
                    .with_metadata(about.collect::<HashMap<String, String>>()),
            );
            arrays.push(array);
        }
        let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
        let batch = RecordBatch::try_new(schema, arrays).map_err(errors::other)?;
        Ok(Table { batch, heads: table.heads })
    }
}

#[pymethods]
impl Table {
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets the producer ignore the request.
        let _ = requested_schema;
        let reader = RecordBatchIterator::new(vec![Ok(self.batch.clone())], self.batch.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), STREAM)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema().as_ref()).map_err(errors::other)?;
        PyCapsule::new_with_value(py, schema, SCHEMA)
    }

    #[getter]
    fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.heads.iter().map(|head| head.name.clone()).collect()
    }

    #[getter]
    fn metadata(&self) -> HashMap<String, String> {
        self.batch.schema().metadata().clone().into()
    }

    #[getter]
    fn units(&self) -> HashMap<String, String> {
        let with_unit = self.heads.iter().filter(|head| !head.unit.is_empty());
        with_unit.map(|head| (head.name.clone(), head.unit.clone())).collect()
    }

    #[getter]
    fn meanings(&self) -> HashMap<String, String> {
        self.heads.iter().map(|head| (head.name.clone(), head.meaning.clone())).collect()
    }

    /// A column as a list.
    fn column<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let Some(index) = self.heads.iter().position(|head| head.name == name) else {
            return Err(PyKeyError::new_err(name.to_string()));
        };
        let array = self.batch.column(index).as_any();
        if let Some(values) = array.downcast_ref::<Int64Array>() {
            PyList::new(py, values.values().iter())
        } else if let Some(values) = array.downcast_ref::<Float64Array>() {
            PyList::new(py, values.iter().collect::<Vec<_>>())
        } else if let Some(values) = array.downcast_ref::<BooleanArray>() {
            PyList::new(py, values.iter().collect::<Vec<_>>())
        } else if let Some(values) = array.downcast_ref::<StringArray>() {
            PyList::new(py, values.iter().collect::<Vec<_>>())
        } else {
            Err(errors::other("a column of another type"))
        }
    }
}
