//! Rows of a result, which are JSON objects, as a Parquet file.
//!
//! Nested values are columns with dotted names, and lists are JSON text. A column has the narrowest type for all its values: truths, 64-bit
//! integers, double precision, or text. A JSON null and an absent value are nulls.

use std::collections::HashMap;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use serde_json::Value;

/// The rows as a Parquet file.
///
/// # Errors
/// An error of the Parquet library. Writing to memory should cause none.
pub fn parquet(rows: &[Value]) -> Result<Vec<u8>, ParquetError> {
    let columns = columns(rows);
    let fields = columns.iter().map(|column| column.kind().field(&column.name).map(Arc::new));
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("rows").with_fields(fields).build()?;
    let compression = Compression::ZSTD(ZstdLevel::default());
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
    // Readers reject a group without columns.
    if !columns.is_empty() {
        let mut group = writer.next_row_group()?;
        for column in &columns {
            let mut into = group.next_column()?.expect("the schema has the column");
            column.write(&mut into)?;
            into.close()?;
        }
        group.close()?;
    }
    writer.into_inner()
}

/// The values of all rows at one path.
struct Column<'a> {
    name: String,
    /// `None` is null or absent.
    values: Vec<Option<&'a Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Bool,
    Integer,
    /// Integers that need 64 bits without a sign.
    Unsigned,
    Double,
    Text,
}

impl Kind {
    fn field(self, name: &str) -> Result<Type, ParquetError> {
        let physical = match self {
            Self::Bool => Physical::BOOLEAN,
            Self::Integer | Self::Unsigned => Physical::INT64,
            Self::Double => Physical::DOUBLE,
            Self::Text => Physical::BYTE_ARRAY,
        };
        let logical = match self {
            Self::Text => Some(LogicalType::String),
            Self::Unsigned => Some(LogicalType::integer(64, false)),
            _ => None,
        };
        let column = Type::primitive_type_builder(name, physical);
        column.with_repetition(Repetition::OPTIONAL).with_logical_type(logical).build()
    }
}

impl Column<'_> {
    fn kind(&self) -> Kind {
        let present = || self.values.iter().flatten();
        let are = |test: fn(&Value) -> bool| present().next().is_some() && present().all(|value| test(value));
        match () {
            () if are(Value::is_boolean) => Kind::Bool,
            () if are(Value::is_i64) => Kind::Integer,
            () if are(Value::is_u64) => Kind::Unsigned,
            () if are(Value::is_number) => Kind::Double,
            () => Kind::Text,
        }
    }

    fn write(&self, into: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        match self.kind() {
            Kind::Bool => self.write_as::<BoolType>(into, Value::as_bool),
            Kind::Integer => self.write_as::<Int64Type>(into, Value::as_i64),
            Kind::Unsigned => self.write_as::<Int64Type>(into, |value| value.as_u64().map(u64::cast_signed)),
            Kind::Double => self.write_as::<DoubleType>(into, Value::as_f64),
            Kind::Text => self.write_as::<ByteArrayType>(into, |value| {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                Some(ByteArray::from(text.into_bytes()))
            }),
        }
    }

    fn write_as<T: DataType>(
        &self,
        into: &mut SerializedColumnWriter<'_>,
        read: impl Fn(&Value) -> Option<T::T>,
    ) -> Result<(), ParquetError> {
        let cells: Vec<Option<T::T>> = self.values.iter().map(|value| value.and_then(&read)).collect();
        let present: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
        let values: Vec<T::T> = cells.into_iter().flatten().collect();
        into.typed::<T>().write_batch(&values, Some(&present), None).map(drop)
    }
}

/// The columns in the order of their first appearance.
fn columns(rows: &[Value]) -> Vec<Column<'_>> {
    let mut columns: Vec<Column<'_>> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (number, row) in rows.iter().enumerate() {
        visit(row, String::new(), &mut |name, value| {
            let place = *places.entry(name.clone()).or_insert_with(|| {
                columns.push(Column { name, values: vec![None; rows.len()] });
                columns.len() - 1
            });
            columns[place].values[number] = Some(value).filter(|value| !value.is_null());
        });
    }
    // An object that is null in some rows has no column of its own.
    let names: Vec<String> = columns.iter().map(|column| format!("{}.", column.name)).collect();
    let is_object = |name: &String| columns.iter().any(|column| column.name.starts_with(name.as_str()));
    let objects: Vec<bool> = names.iter().map(is_object).collect();
    let mut objects = objects.into_iter();
    columns.retain(|_| !objects.next().unwrap_or(false));
    columns
}

/// Visits the values of a row that are no objects, with their paths.
fn visit<'a>(value: &'a Value, path: String, found: &mut impl FnMut(String, &'a Value)) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                visit(value, path, found);
            }
        }
        value => found(path, value),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_read_back_with_types_nulls_and_dotted_names() {
        let rows = [
            json!({ "policy": "lru", "hits": 5, "ratio": 1, "is": true, "at": { "low": null, "high": 2 }, "list": [1, 2] }),
            json!({ "policy": null, "hits": 7, "ratio": 0.5, "is": false, "at": null, "more": u64::MAX }),
        ];
        let mut stored = tempfile::tempfile().unwrap();
        stored.write_all(&parquet(&rows).unwrap()).unwrap();
        let file = SerializedFileReader::new(stored).unwrap();
        let cells = |row: parquet::record::Row| -> HashMap<String, String> {
            row.get_column_iter().map(|(name, field)| (name.clone(), field.to_string())).collect()
        };
        let read: Vec<_> = file.get_row_iter(None).unwrap().map(|row| cells(row.unwrap())).collect();
        let names = ["policy", "hits", "ratio", "is", "at.low", "at.high", "list", "more"];
        let schema = file.metadata().file_metadata().schema_descr();
        assert_eq!(schema.columns().iter().map(|it| it.name().to_owned()).collect::<Vec<_>>(), names);
        let types: Vec<Physical> = schema.columns().iter().map(|it| it.physical_type()).collect();
        assert_eq!(
            types[..6],
            [
                Physical::BYTE_ARRAY,
                Physical::INT64,
                Physical::DOUBLE,
                Physical::BOOLEAN,
                Physical::BYTE_ARRAY,
                Physical::INT64
            ]
        );
        let of = |row: usize, names: [&str; 3]| names.map(|name| read[row][name].clone());
        assert_eq!(of(0, ["ratio", "at.high", "list"]), ["1.0", "2", "\"[1,2]\""]);
        assert_eq!(of(1, ["policy", "at.high", "is"]), ["null", "null", "false"]);
        assert_eq!((&*read[0]["more"], &*read[1]["more"]), ("null", "18446744073709551615"));
    }

    #[test]
    fn no_rows_make_a_file_without_columns() {
        let bytes = parquet(&[]).unwrap();
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    }
}
