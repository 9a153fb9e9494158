//! Errors in rows of any format.

use std::borrow::Cow;

/// An error in a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowError {
    /// A field that every row must have is missing or empty.
    #[error("column `{0}` is missing")]
    Missing(&'static str),
    /// A field is not a number or out of range.
    #[error("column `{column}` is `{text}`, which is not a whole number from 0 to {max}")]
    Number {
        /// The column's name.
        column: &'static str,
        /// The text of the field.
        text: String,
        /// The largest valid number.
        max: u64,
    },
    /// A field is not a time in seconds.
    #[error("column `{column}` is `{text}`, which is not a time in seconds")]
    Time {
        /// The column's name.
        column: &'static str,
        /// The text of the field.
        text: String,
    },
    /// A time beyond the supported range.
    #[error(
        "the time is beyond 584 years: the trace has a smaller time unit than it is read with (set how many make a second)"
    )]
    FarTime,
    /// A size larger than any object.
    #[error("the size is {0} bytes; no object is larger than 16 TiB")]
    LargeObject(u64),
    /// An operation that the format does not know.
    #[error("`{0}` is not a known operation")]
    Operation(String),
    /// An operation without an object, such as `OPTIONS`. The row is left out.
    #[error("`{0}` requests no object")]
    NoObject(String),
    /// A repeat count of 0.
    #[error("`op_count` is 0: the row describes no request")]
    NoRequest,
    /// A key longer than caches support.
    #[error("the key has {0} bytes; at most 256 are supported")]
    LongKey(usize),
    /// A row with another structure than the format's.
    #[error("the row does not have the form `{0}`")]
    Shape(&'static str),
    /// The last record of a binary trace is cut off.
    #[error("the record has {has_bytes} of {needs_bytes} bytes: the file is cut off")]
    Cut {
        /// Bytes present.
        has_bytes: usize,
        /// Bytes of a record.
        needs_bytes: usize,
    },
    /// An object of 0 bytes, which a cache cannot store.
    #[error("the size is 0")]
    NoSize,
    /// A time before that of the previous row.
    #[error("the time is {0} ns before that of the previous row")]
    Backwards(u64),
    /// An invalid request of a block trace.
    #[error("{0}")]
    Block(super::block::RowProblem),
    /// A range that extends beyond its block.
    #[error("the range ends at byte {end_bytes}, past the end of the block at {block_bytes}")]
    PastBlock {
        /// End of the range.
        end_bytes: u64,
        /// End of the block.
        block_bytes: u64,
    },
    /// A required number is 0 or unknown.
    #[error("column `{0}` is 0 or unknown")]
    Zero(&'static str),
    /// A response shorter than its header.
    #[error("the response is shorter than its header")]
    ShortResponse,
    /// A binary trace with wrong first bytes.
    #[error("{0}")]
    Marked(&'static str),
    /// A binary trace of an unsupported version.
    #[error(
        "it is a binary trace of version {found}, written by a newer program; this one reads versions up to {known}"
    )]
    Newer {
        /// The version of the trace.
        found: u32,
        /// The newest supported version.
        known: u32,
    },
    /// A header without a required column.
    #[error("the header has no column `{0}`")]
    Header(&'static str),
    /// A configured column is missing or already used.
    #[error("the header has no column `{0}` that is not used already")]
    Chosen(String),
    /// A column is configured by name, but the file has no header.
    #[error("the file has no header to find the column `{0}` by")]
    ChosenWithoutHeader(String),
    /// A configured column, by number or name, does not exist.
    #[error("the table has no column `{column}`{}", hint(nearest.as_deref()))]
    NoColumn {
        /// The column's number or name.
        column: String,
        /// The most similar name in the header, if it is similar enough to be meant.
        nearest: Option<String>,
    },
    /// A table without a configured or recognisable key column.
    #[error(
        "the header does not name the column of the key; say which column is what, as in `csv:time,key,-,size` or `parquet:key=object`"
    )]
    NoKeyColumn,
    /// The header contradicts the configured columns.
    #[error("{0}")]
    Contradicted(Box<Contradiction>),
    /// A text whose lines end in carriage returns.
    #[error("its lines end in carriage returns alone: convert them to line feeds")]
    CarriageReturns,
    /// A file without a header, whose rows can be read in two ways.
    #[error(
        "it has no header, and its rows can be read as `{one}` or as `{other}`: put the header on top of the file"
    )]
    NoHeader {
        /// One of the possible formats.
        one: String,
        /// Another possible format.
        other: String,
    },
    /// A header without any known column.
    #[error("the header has none of the columns of this format, not even `{0}`")]
    UnknownHeader(&'static str),
}

impl RowError {
    /// The problem without the row's values: rows with the same problem are counted together.
    pub(super) fn kind(&self) -> Cow<'static, str> {
        let fixed = match self {
            Self::Number { column, .. } => {
                return format!("column `{column}` is not a whole number in its range").into();
            }
            Self::Time { column, .. } => return format!("column `{column}` is not a time in seconds").into(),
            Self::Block(problem) => return problem.kind(),
            Self::LargeObject(_) => "the size is more than 16 TiB",
            Self::Operation(_) => "the operation is not a known one",
            Self::LongKey(_) => "the key is longer than 256 bytes",
            Self::Cut { .. } => "the record is cut off",
            Self::Backwards(_) => "the time is before that of the previous row",
            Self::PastBlock { .. } => "the range ends past the end of the block",
            other => return other.to_string().into(),
        };
        fixed.into()
    }
}

/// A column whose header name contradicts its configured field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "column {column} was taken for `{taken}`, and the header calls it `{header}`: list the columns as the header has \
     them (csv:{order}), or give a column by its name to take it for something else (as in {taken}={header})"
)]
pub struct Contradiction {
    /// Number of the column, from 1.
    pub column: usize,
    /// The configured field.
    pub taken: &'static str,
    /// The field by the header's name.
    pub header: String,
    /// The columns in the header's order.
    pub order: String,
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}
