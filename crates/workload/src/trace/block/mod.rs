//! Reads block device requests from recorded traces.
//!
//! A format is one file here and one entry in [`formats`]: it parses a line or a binary record into an [`Event`]. [`reader`] contains
//! the common part: decompression, merging several files by time, sorting events slightly out of order, selecting a device, invalid rows.
//!
//! In block-layer recordings one kind of event counts: queue events, or others if there are none ([`Events`]).

mod alibaba;
mod blkparse;
mod blktrace;
mod cloudphysics;
pub(super) mod events;
mod fields;
mod fio;
mod fiu;
pub(super) mod formats;
mod msr;
mod plain;
pub mod reader;
pub(super) mod rows;
mod simulators;
mod spc;
mod systor;
mod tencent;
mod vscsi;
pub mod write;

pub use events::Events;
pub use formats::BLOCK_FORMATS;
pub use reader::{BlockTrace, BlockTraceError, BlockTraceOptions, BlockTraceStats};
pub use write::{BlockWriter, BlockWritten};

use std::borrow::Cow;
use std::io::{self, BufRead};

use crate::block::BlockKind;

/// A format of block traces.
pub struct BlockFormat {
    /// Its name on the command line.
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// Whether a file with these first bytes is in this format.
    matches_head: fn(&[u8]) -> bool,
    decoder: Decoder,
    /// Whether it records several events per request; [`Events`] selects one kind.
    has_events: bool,
}

#[derive(Clone, Copy)]
enum Decoder {
    Lines(fn() -> Box<dyn LineDecoder>),
    Records(fn() -> Box<dyn RecordDecoder>),
}

impl BlockFormat {
    /// The format called `name`. `plain`, which is a different format for key traces, is an older name of `block-csv`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        let name = if name == "plain" { "block-csv" } else { name };
        BLOCK_FORMATS.iter().find(|format| format.name == name)
    }

    /// The format of a file with these first bytes.
    #[must_use]
    pub fn of(head: &[u8]) -> Option<&'static Self> {
        BLOCK_FORMATS.iter().find(|format| (format.matches_head)(head))
    }

    /// Whether it records several events per request; [`Events`] selects one kind.
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.has_events
    }

    /// The names of all formats.
    #[must_use]
    pub fn names() -> String {
        BLOCK_FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().join(", ")
    }
}

impl std::fmt::Debug for BlockFormat {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

/// A request as recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Event {
    /// Time relative to the trace's origin.
    time_ns: u64,
    kind: BlockKind,
    first_byte: u64,
    bytes: u64,
    device: Device,
}

/// The traced device.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Device {
    /// The format records a single device.
    Only,
    /// Major and minor number.
    Numbered(u32, u32),
    /// A disk or file with this name.
    Named(String),
}

impl std::fmt::Display for Device {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Only => out.write_str("-"),
            Self::Numbered(major, minor) => write!(out, "{major},{minor}"),
            Self::Named(name) => out.write_str(name),
        }
    }
}

/// The content of a row.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// A request.
    Event(Event),
    /// A request at an event after it was queued: issued or completed.
    Later(Events, Event),
    /// Anything else that the format contains: a header, another kind of event.
    Other,
}

impl Found {
    /// The request, marked as recorded at this event.
    fn at(self, events: Events) -> Self {
        match self {
            Self::Event(event) if events != Events::Queue => Self::Later(events, event),
            other => other,
        }
    }
}

/// Turns lines into events.
trait LineDecoder: Send {
    /// Checks the first line of a file that is read for its rows: whether it is a header that identifies this format.
    ///
    /// # Errors
    /// It is a header, but no row can be read with it.
    fn accept_header(&mut self, line: &[u8]) -> Result<bool, RowProblem> {
        let _ = line;
        Ok(false)
    }

    fn line(&mut self, line: &[u8]) -> Result<Found, RowProblem>;
}

/// Turns binary records into events.
trait RecordDecoder: Send {
    /// Whether the file begins with bytes that identify this format.
    fn is_marked(&self, head: &[u8]) -> bool {
        let _ = head;
        false
    }

    /// The next record; `None` at the end of the input.
    fn record(&mut self, input: &mut dyn BufRead) -> io::Result<Option<Result<Found, RowProblem>>>;
}

/// A problem with a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowProblem {
    /// A missing required field.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// A field that is not a number.
    #[error("`{field}` is `{text}`, which is not a number, or is out of range")]
    Number {
        /// The field.
        field: &'static str,
        /// The text of the field.
        text: String,
    },
    /// A time that is not in seconds.
    #[error("`{field}` is `{text}`, which is not a number of seconds, or is beyond 584 years")]
    Seconds {
        /// The field.
        field: &'static str,
        /// The text of the field.
        text: String,
    },
    /// A line that neither begins with a device nor is another known line.
    #[error("`{0}` is not a device number, such as `8,16`")]
    Device(String),
    /// A row with a wrong number of columns.
    #[error("the row has {has} columns and not {needs}")]
    Columns {
        /// Columns of the row.
        has: usize,
        /// Required columns.
        needs: usize,
    },
    /// An unknown operation.
    #[error("`{0}` is not a known operation")]
    Operation(String),
    /// A position beyond any disk.
    #[error("the request ends at byte {0}, past the limit of 8 PiB less one sector")]
    TooFar(u64),
    /// A read or write longer than any program makes.
    #[error("the request is {0} bytes long, more than 1 GiB")]
    TooLong(u64),
    /// A read or write of 0 bytes.
    #[error("the request is 0 bytes long")]
    Empty,
    /// The last record is incomplete.
    #[error("the record is cut off after {has_bytes} of {needs_bytes} bytes")]
    Cut {
        /// Bytes present.
        has_bytes: usize,
        /// Bytes of a record.
        needs_bytes: usize,
    },
    /// A binary record without the magic; the rest of the file is unreliable.
    #[error("the record begins with {0:#010x}, which is not blktrace version 7")]
    Magic(u32),
    /// A header without a required column.
    #[error("the header has no column for {0}")]
    Header(&'static str),
    /// A header that leaves the time unit open.
    #[error("the column `{0}` does not say its unit: call it `time_ns`, `time_us`, `time_ms` or `time_s`")]
    TimeUnit(String),
}

impl RowProblem {
    /// The problem without the row's values.
    pub(super) fn kind(&self) -> Cow<'static, str> {
        let fixed = match self {
            Self::Number { field, .. } => {
                return format!("`{field}` is not a number, or is out of range").into();
            }
            Self::Seconds { field, .. } => return format!("`{field}` is not a number of seconds").into(),
            Self::Device(_) => "the line does not begin with a device number",
            Self::Operation(_) => "the operation is not a known one",
            Self::TooFar(_) => "the request ends past the limit of 8 PiB less one sector",
            Self::TooLong(_) => "the request is longer than 1 GiB",
            Self::Cut { .. } => "the record is cut off",
            Self::Columns { .. } => "the row has another number of columns",
            other => return other.to_string().into(),
        };
        fixed.into()
    }
}
