//! The table as Parquet: `runs.parquet`, one row per run, compressed with Snappy, which every reader has.
//! Rows are in order of the run's number and row groups hold a fixed number of runs, so that the bytes depend
//! on the sweep alone. The table is written under a temporary name and renamed when it is complete.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};
use ropewalk_lab::tidy::{self, Column, Head};

/// Runs in a row group.
pub const RUNS_PER_GROUP: u64 = 10_000;

fn field(head: &Head) -> Result<Arc<Type>, ParquetError> {
    let (physical, logical, repetition) = match head.kind {
        Column::Whole(_) => (Physical::INT64, None, Repetition::REQUIRED),
        Column::Number(_) => (Physical::DOUBLE, None, Repetition::OPTIONAL),
        Column::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::OPTIONAL),
        Column::Flag(_) => (Physical::BOOLEAN, None, Repetition::REQUIRED),
    };
    let builder = Type::primitive_type_builder(&head.name, physical);
    builder.with_repetition(repetition).with_logical_type(logical).build().map(Arc::new)
}

/// A table that is being written.
pub struct TableWriter {
    writer: SerializedFileWriter<File>,
}

impl std::fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableWriter").finish_non_exhaustive()
    }
}

/// The file system's error within a library error.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(io) => *io,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other.to_string()),
    }
}

impl TableWriter {
    /// Begins a table.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn create(path: &Path, heads: &[Head], provenance: &[(String, String)]) -> io::Result<Self> {
        let fields = heads.iter().map(field).collect::<Result<Vec<_>, _>>().map_err(io_error)?;
        let schema = Type::group_type_builder("ropewalk").with_fields(fields).build().map_err(io_error)?;
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("ropewalk ", env!("CARGO_PKG_VERSION")).to_string())
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_compression(Compression::SNAPPY)
            .set_key_value_metadata(Some(
                tidy::metadata(heads, provenance)
                    .into_iter()
                    .map(|(key, text)| KeyValue::new(key, text))
                    .collect(),
            ));
        for head in heads {
            let column = ColumnPath::from(vec![head.name.clone()]);
            properties = match head.kind {
                // Numbers rarely repeat: a dictionary would only add cost.
                Column::Number(_) => properties.set_column_dictionary_enabled(column, false),
                Column::Whole(_) => properties
                    .set_column_dictionary_enabled(column.clone(), false)
                    .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED),
                Column::Text(_) | Column::Flag(_) => properties,
            };
        }
        let file = File::create(path)?;
        let writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties.build()));
        Ok(TableWriter { writer: writer.map_err(io_error)? })
    }

    /// Writes a row group: the columns in the table's order, all of one length.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn group(&mut self, columns: &[Column]) -> io::Result<()> {
        let mut group = self.writer.next_row_group().map_err(io_error)?;
        for column in columns {
            write_column(&mut group, column).map_err(io_error)?;
        }
        group.close().map_err(io_error)?;
        Ok(())
    }

    /// Ends the table and syncs it to the disk.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn finish(self) -> io::Result<()> {
        self.writer.into_inner().map_err(io_error)?.sync_all()
    }
}

fn write_column(group: &mut SerializedRowGroupWriter<'_, File>, column: &Column) -> Result<(), ParquetError> {
    let Some(mut writer) = group.next_column()? else {
        return Err(ParquetError::General("more columns than the table has".into()));
    };
    match column {
        Column::Whole(values) => {
            writer.typed::<Int64Type>().write_batch(values, None, None)?;
        }
        Column::Number(values) => {
            let there: Vec<f64> = values.iter().flatten().copied().collect();
            let levels = levels(values);
            writer.typed::<DoubleType>().write_batch(&there, Some(&levels), None)?;
        }
        Column::Flag(values) => {
            writer.typed::<BoolType>().write_batch(values, None, None)?;
        }
        Column::Text(values) => {
            let there: Vec<ByteArray> =
                values.iter().flatten().map(|text| ByteArray::from(text.as_str())).collect();
            let levels = levels(values);
            writer.typed::<ByteArrayType>().write_batch(&there, Some(&levels), None)?;
        }
    }
    writer.close()
}

/// Definition levels of an optional column.
fn levels<T>(values: &[Option<T>]) -> Vec<i16> {
    values.iter().map(|value| i16::from(value.is_some())).collect()
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

    fn write(path: &Path, groups: usize) {
        let heads =
            [Head::whole("run", "", "its number"), Head::text("path", ""), Head::number("value", "s", "")];
        let mut table = TableWriter::create(path, &heads, &[]).unwrap();
        for group in 0..groups as i64 {
            let columns = [
                Column::Whole(vec![group * 2, group * 2 + 1]),
                Column::Text(vec![None, Some("wi-fi".into())]),
                Column::Number(vec![Some(0.1 + group as f64), None]),
            ];
            table.group(&columns).unwrap();
        }
        table.finish().unwrap();
    }

    #[test]
    fn tables_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.parquet");
        write(&path, 2);
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let metadata = reader.metadata().file_metadata().key_value_metadata().unwrap();
        let units = metadata.iter().find(|pair| pair.key == "ropewalk.units").unwrap();
        assert_eq!(units.value.as_deref(), Some("{\"value\":\"s\"}"));
        let rows: Vec<String> =
            reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        assert_eq!(
            rows,
            [
                "{run: 0, path: null, value: 0.1}",
                "{run: 1, path: \"wi-fi\", value: null}",
                "{run: 2, path: null, value: 1.1}",
                "{run: 3, path: \"wi-fi\", value: null}",
            ]
        );
    }

    #[test]
    fn the_same_table_has_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = ["a", "b"].map(|name| {
            let path = folder.path().join(name);
            write(&path, 3);
            std::fs::read(path).unwrap()
        });
        assert_eq!(bytes[0], bytes[1]);
    }

    #[test]
    fn a_full_disk_is_an_error() {
        // /dev/full is always full.
        if Path::new("/dev/full").exists() {
            let heads = [Head::whole("run", "", "")];
            let mut table = TableWriter::create(Path::new("/dev/full"), &heads, &[]).unwrap();
            let wrote = table.group(&[Column::Whole((0..100_000).collect())]);
            let error = wrote.and_then(|()| table.finish()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        }
    }
}
