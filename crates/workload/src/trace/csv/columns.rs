//! The assignment of columns to fields, as users write it.

use super::fields::{KEY, NAMES};
use super::header;

/// An error in a column list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ColumnsError {
    /// An unknown field.
    #[error("there is no field `{name}`; the fields are {known}, and `-` is a column that is not used")]
    Unknown {
        /// The name given.
        name: String,
        /// The known fields.
        known: String,
    },
    /// A field with two columns.
    #[error("`{0}` is named twice")]
    Twice(&'static str),
    /// No column is assigned to the required field.
    #[error("no column is the `key`")]
    NoKey,
    /// Listed and assigned fields are mixed.
    #[error("`{0}`: either list the columns in their order, or give each field its column (key=2)")]
    Mixed(String),
    /// A field without a column.
    #[error("`{0}`: a column is a number from 1, or a name in the header")]
    NoColumn(String),
}

/// The assignment of a table's columns to fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CsvColumns {
    /// Empty: columns with usual names in the header.
    pub(super) fields: Vec<(usize, Column)>,
    /// Header name of the tenant's column, which overrides other assignments.
    pub(super) tenant: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Column {
    /// Position, from 0.
    At(usize),
    /// Name in the header.
    Named(String),
}

impl CsvColumns {
    /// Parses columns such as `time,key,-,size` or `key=3,size=bytes`.
    ///
    /// # Errors
    /// An unknown or repeated field, no key, or an invalid column.
    pub fn parse(text: &str) -> Result<Self, ColumnsError> {
        let gives_columns = text.contains('=');
        let mut fields = Vec::new();
        for (place, item) in text.split(',').map(str::trim).enumerate() {
            let (name, column) = match item.split_once('=') {
                Some((name, column)) => (name.trim(), Column::parse(item, column.trim())?),
                None if gives_columns => return Err(ColumnsError::Mixed(item.to_owned())),
                None if matches!(item, "" | "-") => continue,
                None => (item, Column::At(place)),
            };
            let field = header::field_called(name.as_bytes())
                .ok_or_else(|| ColumnsError::Unknown { name: name.to_owned(), known: NAMES.join(", ") })?;
            if fields.iter().any(|(known, _)| *known == field) {
                return Err(ColumnsError::Twice(NAMES[field]));
            }
            fields.push((field, column));
        }
        if !fields.iter().any(|(field, _)| *field == KEY) {
            return Err(ColumnsError::NoKey);
        }
        Ok(Self { fields, tenant: None })
    }

    /// Whether the columns cannot be determined without a header.
    pub(super) fn needs_header(&self) -> bool {
        let is_named = |(_, column): &(usize, Column)| matches!(column, Column::Named(_));
        self.fields.is_empty() || self.tenant.is_some() || self.fields.iter().any(is_named)
    }
}

impl Column {
    fn parse(item: &str, text: &str) -> Result<Self, ColumnsError> {
        match text.parse::<usize>() {
            Ok(0) => Err(ColumnsError::NoColumn(item.to_owned())),
            Ok(number) => Ok(Self::At(number - 1)),
            Err(_) if text.is_empty() => Err(ColumnsError::NoColumn(item.to_owned())),
            Err(_) => Ok(Self::Named(text.to_owned())),
        }
    }
}
