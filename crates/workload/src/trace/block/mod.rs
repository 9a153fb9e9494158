//! Requests of block devices from recorded traces.
//!
//! A format is one file here and one line in [`BLOCK_FORMATS`]: it turns a line, or a binary record, into an [`Event`]. What
//! is common to all lives in [`reader`]: decompression, several files in the order of their times, events that stand a little
//! out of order, devices to choose among, rows that are wrong.
//!
//! In recordings of the kernel's block layer one kind of event counts: queue events, or others if there are none ([`Events`]).

mod alibaba;
mod blkparse;
mod blktrace;
mod cloudphysics;
pub(super) mod events;
mod fields;
mod fio;
mod fiu;
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
pub use reader::{BlockTrace, BlockTraceError, BlockTraceOptions, BlockTraceStats};
pub use write::{BlockWriter, BlockWritten};

use std::borrow::Cow;
use std::io::{self, BufRead};

use crate::block::BlockKind;

/// A format of block traces.
pub struct BlockFormat {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Whether a file that begins so is one.
    knows: fn(&[u8]) -> bool,
    decoder: Decoder,
    /// Whether it records several events per request; [`Events`] selects one kind.
    has_events: bool,
}

#[derive(Clone, Copy)]
enum Decoder {
    Lines(fn() -> Box<dyn LineDecoder>),
    Records(fn() -> Box<dyn RecordDecoder>),
}

/// The formats that can be read. The first that knows a file is the one.
pub static BLOCK_FORMATS: [BlockFormat; 14] = [
    BlockFormat {
        name: "blktrace",
        about: "binary blktrace, version 7, of either byte order",
        knows: blktrace::knows,
        decoder: Decoder::Records(|| Box::<blktrace::Blktrace>::default()),
        has_events: true,
    },
    BlockFormat {
        name: "blkparse",
        about: "blkparse's default text output",
        knows: blkparse::knows,
        decoder: Decoder::Lines(|| Box::<blkparse::Blkparse>::default()),
        has_events: true,
    },
    BlockFormat {
        name: "fio-iolog",
        about: "fio's iolog, versions 2 and 3",
        knows: fio::knows,
        decoder: Decoder::Lines(|| Box::<fio::Iolog>::default()),
        has_events: false,
    },
    BlockFormat {
        name: "msr",
        about: "MSR Cambridge CSV: Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
        knows: msr::knows,
        decoder: Decoder::Lines(|| Box::new(msr::Msr)),
        has_events: false,
    },
    BlockFormat {
        name: "systor",
        about: "SYSTOR '17 CSV: Timestamp,Response,IOType,LUN,Offset,Size",
        knows: systor::knows,
        decoder: Decoder::Lines(|| Box::new(systor::Systor)),
        has_events: false,
    },
    BlockFormat {
        name: "alibaba",
        about: "Alibaba's CSV: device_id,opcode,offset,length,timestamp",
        knows: alibaba::knows,
        decoder: Decoder::Lines(|| Box::new(alibaba::Alibaba)),
        has_events: false,
    },
    BlockFormat {
        name: "tencent",
        about: "Tencent CBS's CSV: Timestamp,Offset,Size,IOType,VolumeID",
        knows: tencent::knows,
        decoder: Decoder::Lines(|| Box::new(tencent::Tencent)),
        has_events: false,
    },
    BlockFormat {
        name: "cloudphysics-csv",
        about: "CloudPhysics CSV: version,time,op,size,lbn; times in seconds",
        knows: cloudphysics::knows,
        decoder: Decoder::Lines(|| Box::new(cloudphysics::CloudPhysics)),
        has_events: false,
    },
    BlockFormat {
        name: "vscsi",
        about: "CloudPhysics binary records of SCSI commands, versions 1 and 2",
        knows: vscsi::knows,
        decoder: Decoder::Records(|| Box::<vscsi::Vscsi>::default()),
        has_events: false,
    },
    BlockFormat {
        name: "block-csv",
        about: "CSV with a header: time_us (or _ns, _ms, _s), op, offset and bytes, in any order",
        knows: plain::knows,
        decoder: Decoder::Lines(|| Box::<plain::Plain>::default()),
        has_events: false,
    },
    BlockFormat {
        name: "spc",
        about: "SPC's CSV: ASU,LBA,Size,Opcode,Timestamp",
        knows: spc::knows,
        decoder: Decoder::Lines(|| Box::new(spc::Spc)),
        has_events: false,
    },
    BlockFormat {
        name: "disksim",
        about: "DiskSim's ASCII traces: time (ms) device sector sectors flags",
        knows: simulators::knows_disksim,
        decoder: Decoder::Lines(|| Box::new(simulators::DiskSim)),
        has_events: false,
    },
    BlockFormat {
        name: "mqsim",
        about: "MQSim's ASCII traces: time (ns) device sector sectors type",
        knows: simulators::knows_mqsim,
        decoder: Decoder::Lines(|| Box::new(simulators::MqSim)),
        has_events: false,
    },
    BlockFormat {
        name: "fiu",
        about: "FIU's traces: time (ns) pid process sector sectors W|R major minor md5",
        knows: fiu::knows,
        decoder: Decoder::Lines(|| Box::new(fiu::Fiu)),
        has_events: false,
    },
];

impl BlockFormat {
    /// The format called `name`. `plain`, which is another where keys are read, is an older name of `block-csv`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        let name = if name == "plain" { "block-csv" } else { name };
        BLOCK_FORMATS.iter().find(|format| format.name == name)
    }

    /// The format of a file that begins so.
    #[must_use]
    pub fn of(head: &[u8]) -> Option<&'static Self> {
        BLOCK_FORMATS.iter().find(|format| (format.knows)(head))
    }

    /// Whether it records several events per request; [`Events`] selects one kind.
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.has_events
    }

    /// The names of all.
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

/// A request as a row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Event {
    /// Since whatever the trace counts from.
    time_ns: u64,
    kind: BlockKind,
    first_byte: u64,
    bytes: u64,
    device: Device,
}

/// Which device of those traced.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Device {
    /// The format knows one only.
    Only,
    /// Major and minor number.
    Numbered(u32, u32),
    /// A disk or file of this name.
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

/// What a row is.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// A request.
    Event(Event),
    /// The same request at a later event: issued or completed.
    Later(Events, Event),
    /// Something else that the format has: a header, another kind of event.
    Other,
}

impl Found {
    /// The same request, recorded at this event.
    fn at(self, events: Events) -> Self {
        match self {
            Self::Event(event) if events != Events::Queue => Self::Later(events, event),
            other => other,
        }
    }
}

/// Turns lines into events.
trait LineDecoder: Send {
    /// Looks at the first line of a file that is read for its rows: whether it is a header, by which no other format begins.
    ///
    /// # Errors
    /// It is one, and no row can be read.
    fn takes_header(&mut self, line: &[u8]) -> Result<bool, RowProblem> {
        let _ = line;
        Ok(false)
    }

    fn line(&mut self, line: &[u8]) -> Result<Found, RowProblem>;
}

/// Turns binary records into events.
trait RecordDecoder: Send {
    /// Whether the file that begins so has a mark that no other format has.
    fn is_marked(&self, head: &[u8]) -> bool {
        let _ = head;
        false
    }

    /// The next record; `None` at the end of the input.
    fn record(&mut self, input: &mut dyn BufRead) -> io::Result<Option<Result<Found, RowProblem>>>;
}

/// What is wrong with a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowProblem {
    /// A field that every row has.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// A field that should be a number.
    #[error("`{field}` is `{text}`, which is not a number, or is out of range")]
    Number {
        /// The field.
        field: &'static str,
        /// What stands there.
        text: String,
    },
    /// A time that should be in seconds.
    #[error("`{field}` is `{text}`, which is not a number of seconds, or is beyond 584 years")]
    Seconds {
        /// The field.
        field: &'static str,
        /// What stands there.
        text: String,
    },
    /// A line that begins with no device, and is nothing else that the format has.
    #[error("`{0}` is not a device number, such as `8,16`")]
    Device(String),
    /// A row of another number of columns.
    #[error("the row has {has} columns and not {needs}")]
    Columns {
        /// Those that there are.
        has: usize,
        /// Those that a row has.
        needs: usize,
    },
    /// An operation that nobody knows.
    #[error("`{0}` is not a known operation")]
    Operation(String),
    /// A place beyond any disk.
    #[error("the request ends at byte {0}, past the limit of 8 PiB less one sector")]
    TooFar(u64),
    /// A read or write that no program makes.
    #[error("the request is {0} bytes long, more than 1 GiB")]
    TooLong(u64),
    /// A read or write of nothing.
    #[error("the request is 0 bytes long")]
    Empty,
    /// The last record is not whole.
    #[error("the record is cut off after {has_bytes} of {needs_bytes} bytes")]
    Cut {
        /// What is there.
        has_bytes: usize,
        /// What a record has.
        needs_bytes: usize,
    },
    /// A binary record that begins with something else than its mark; what follows cannot be trusted.
    #[error("the record begins with {0:#010x}, which is not blktrace version 7")]
    Magic(u32),
    /// A header that lacks a column.
    #[error("the header has no column for {0}")]
    Header(&'static str),
    /// A header by which times mean nothing.
    #[error("the column `{0}` does not say its unit: call it `time_ns`, `time_us`, `time_ms` or `time_s`")]
    TimeUnit(String),
}

impl RowProblem {
    /// What is wrong, without what stands in the row.
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
