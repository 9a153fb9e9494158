//! What can be wrong with a row of any format.

use std::borrow::Cow;

use super::csv::Contradiction;

/// What is wrong with a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowError {
    /// A field that every row must have is missing or empty.
    #[error("column `{0}` is missing")]
    Missing(&'static str),
    /// A field that should be a number is none, or does not fit.
    #[error("column `{column}` is `{text}`, which is not a whole number from 0 to {max}")]
    Number {
        /// The column's name.
        column: &'static str,
        /// What stands there.
        text: String,
        /// The largest number that fits.
        max: u64,
    },
    /// A field that should be a time in seconds is none.
    #[error("column `{column}` is `{text}`, which is not a time in seconds")]
    Time {
        /// The column's name.
        column: &'static str,
        /// What stands there.
        text: String,
    },
    /// A time that no clock shows.
    #[error(
        "the time is beyond 584 years: the trace has a smaller time unit than it is read with (set how many make a second)"
    )]
    FarTime,
    /// A size that no object has.
    #[error("the size is {0} bytes; no object is larger than 16 TiB")]
    LargeObject(u64),
    /// An operation that the format does not know.
    #[error("`{0}` is not a known operation")]
    Operation(String),
    /// An operation that was made zero times.
    #[error("`op_count` is 0: the row describes no request")]
    NoRequest,
    /// A key that is longer than a cache takes.
    #[error("the key has {0} bytes; at most 256 are supported")]
    LongKey(usize),
    /// A row that is shaped otherwise than the format has it.
    #[error("the row does not have the form `{0}`")]
    Shape(&'static str),
    /// The last record of a binary trace is cut off.
    #[error("the record has {has_bytes} of {needs_bytes} bytes: the file is cut off")]
    Cut {
        /// What is there.
        has_bytes: usize,
        /// What a record has.
        needs_bytes: usize,
    },
    /// An object of no bytes: a cache can do nothing with it.
    #[error("the size is 0")]
    NoSize,
    /// A time before the one of the row before.
    #[error("the time is {0} ns before that of the previous row")]
    Backwards(u64),
    /// A request of a block trace that is wrong.
    #[error("{0}")]
    Block(super::block::RowProblem),
    /// A range of a block that reaches beyond it.
    #[error("the range ends at byte {end_bytes}, past the end of the block at {block_bytes}")]
    PastBlock {
        /// Where the range ends.
        end_bytes: u64,
        /// Where the block does.
        block_bytes: u64,
    },
    /// A number without which a row is no request is 0 or unknown.
    #[error("column `{0}` is 0 or unknown")]
    Zero(&'static str),
    /// A response that is shorter than the header in it.
    #[error("the response is shorter than its header")]
    ShortResponse,
    /// A binary trace whose first bytes are not what they ought to be.
    #[error("{0}")]
    Marked(&'static str),
    /// A binary trace of a version that is not known yet.
    #[error(
        "it is a binary trace of version {found}, written by a newer program; this one reads versions up to {known}"
    )]
    Newer {
        /// Its version.
        found: u32,
        /// The newest that is known.
        known: u32,
    },
    /// A header that does not name a column which every row must have.
    #[error("the header has no column `{0}`")]
    Header(&'static str),
    /// A column that was chosen and cannot be had.
    #[error("the header has no column `{0}` that is not used already")]
    Chosen(String),
    /// The same of a file without a header.
    #[error("the file has no header to find the column `{0}` by")]
    ChosenWithoutHeader(String),
    /// A column that was asked for, by its number or its name.
    #[error("the first line has no column `{0}`")]
    NoColumn(String),
    /// A table of which nobody says where its key is.
    #[error(
        "the first line does not name the column of the key; say which column is what, as in `csv:time,key,-,size`"
    )]
    NoKeyColumn,
    /// A column that the header calls otherwise than it was taken for.
    #[error("{0}")]
    Contradicted(Box<Contradiction>),
    /// A text of one line that is many.
    #[error("its lines end in carriage returns alone: convert them to line feeds")]
    CarriageReturns,
    /// A file without a header, whose rows can be read in two ways.
    #[error(
        "it has no header, and its rows can be read as `{one}` or as `{other}`: put the header on top of the file"
    )]
    NoHeader {
        /// One way.
        one: String,
        /// Another.
        other: String,
    },
    /// A header in which no name is known.
    #[error("the header has none of the columns of this format, not even `{0}`")]
    UnknownHeader(&'static str),
}

impl RowError {
    /// What is wrong, without what stands in the row: rows of one kind are counted together.
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
