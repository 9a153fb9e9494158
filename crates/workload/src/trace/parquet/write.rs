//! Accesses as a Parquet file with the columns `time_ns`, `key`, `op`, `size`, `ttl` and `tenant`.

use std::fs::File;
use std::io;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use super::failed;
use crate::trace::access::{Access, AccessKind};

/// Accesses of a row group.
const GROUP_ROWS: usize = 1 << 20;

/// A file to which accesses are written.
pub(in crate::trace) struct ParquetFile {
    writer: SerializedFileWriter<File>,
    rows: AccessColumns,
}

/// The columns of a row group.
#[derive(Default)]
struct AccessColumns {
    times_ns: Vec<i64>,
    keys: Vec<i64>,
    operations: Vec<ByteArray>,
    sizes: Vec<i64>,
    /// Values that are present, and whether each row has one.
    ttls: (Vec<i64>, Vec<i16>),
    tenants: (Vec<ByteArray>, Vec<i16>),
}

impl ParquetFile {
    pub(in crate::trace) fn create(file: File) -> io::Result<Self> {
        let compression = Compression::ZSTD(ZstdLevel::default());
        let properties = WriterProperties::builder().set_compression(compression).build();
        let writer =
            SerializedFileWriter::new(file, Arc::new(schema().map_err(failed)?), Arc::new(properties));
        Ok(Self { writer: writer.map_err(failed)?, rows: AccessColumns::default() })
    }

    /// Appends an access; `tenant` is the name of its tenant.
    pub(in crate::trace) fn push(&mut self, access: &Access, tenant: Option<&str>) -> io::Result<()> {
        let Access { time_ns, key, size_bytes, ttl_seconds, kind, .. } = *access;
        let rows = &mut self.rows;
        // Unsigned numbers are stored as the signed ones with the same bits.
        rows.times_ns.push(time_ns as i64);
        rows.keys.push(key as i64);
        rows.operations.push(ByteArray::from(match kind {
            AccessKind::Get => "get",
            AccessKind::Set => "set",
            AccessKind::Delete => "delete",
        }));
        rows.sizes.push(size_bytes as i64);
        rows.ttls.0.extend(ttl_seconds.map(i64::from));
        rows.ttls.1.push(i16::from(ttl_seconds.is_some()));
        rows.tenants.0.extend(tenant.map(ByteArray::from));
        rows.tenants.1.push(i16::from(tenant.is_some()));
        if rows.keys.len() < GROUP_ROWS { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> io::Result<()> {
        let rows = std::mem::take(&mut self.rows);
        let mut group = self.writer.next_row_group().map_err(failed)?;
        column::<Int64Type>(&mut group, &rows.times_ns, None)?;
        column::<Int64Type>(&mut group, &rows.keys, None)?;
        column::<ByteArrayType>(&mut group, &rows.operations, None)?;
        column::<Int64Type>(&mut group, &rows.sizes, None)?;
        column::<Int64Type>(&mut group, &rows.ttls.0, Some(&rows.ttls.1))?;
        column::<ByteArrayType>(&mut group, &rows.tenants.0, Some(&rows.tenants.1))?;
        group.close().map_err(failed)?;
        Ok(())
    }

    /// Completes the file.
    pub(in crate::trace) fn finish(mut self) -> io::Result<()> {
        if !self.rows.keys.is_empty() {
            self.flush()?;
        }
        let file = self.writer.into_inner().map_err(failed)?;
        // The rename must not become durable before the contents.
        file.sync_all()
    }
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
    present: Option<&[i16]>,
) -> io::Result<()> {
    let mut column = group.next_column().map_err(failed)?.expect("the schema has the column");
    column.typed::<T>().write_batch(values, present, None).map_err(failed)?;
    column.close().map_err(failed)
}

fn schema() -> Result<Type, parquet::errors::ParquetError> {
    let unsigned = Some(LogicalType::integer(64, false));
    let columns = [
        ("time_ns", Physical::INT64, unsigned.clone(), Repetition::REQUIRED),
        ("key", Physical::INT64, unsigned.clone(), Repetition::REQUIRED),
        ("op", Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::REQUIRED),
        ("size", Physical::INT64, unsigned.clone(), Repetition::REQUIRED),
        ("ttl", Physical::INT64, unsigned, Repetition::OPTIONAL),
        ("tenant", Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::OPTIONAL),
    ];
    let column = |(name, physical, logical, repetition)| {
        let column = Type::primitive_type_builder(name, physical);
        column.with_repetition(repetition).with_logical_type(logical).build().map(Arc::new)
    };
    let fields = columns.into_iter().map(column).collect::<Result<Vec<_>, _>>()?;
    Type::group_type_builder("trace").with_fields(fields).build()
}
