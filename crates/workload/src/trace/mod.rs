//! Requests from recorded traces.
//!
//! A trace format is one file here and one line in [`FORMATS`]: it turns a line of text into a request.
//! Everything else, decompression, several files, amplification, repetition, order and threads, is common to
//! all and lives in [`replay`].

pub mod amplify;
mod columns;
mod input;
mod kv;
mod plain;
pub mod replay;

pub use amplify::{Amplify, SuffixRule};
pub use columns::RowError;
pub use replay::{Order, Replay, ReplayConfig, ReplayStats};

use crate::{RequestKind, Tenant};

/// A format that traces come in.
pub struct Format {
    /// Its name on the command line and in configs.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    reader: fn(&ReaderOptions) -> Box<dyn RowReader>,
}

/// The formats that can be read.
pub static FORMATS: [Format; 2] = [
    Format { name: "kvcache", about: "CacheBench key-value CSV (202206, 202401)", reader: kv::reader },
    Format { name: "plain", about: "CSV with the header ts,key,op,size", reader: plain::reader },
];

impl Format {
    /// The format called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.name == name)
    }
}

impl std::fmt::Debug for Format {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

/// What a format's reader is told.
#[derive(Debug, Clone, Copy)]
struct ReaderOptions {
    /// The trace's time units in a second, where the format leaves that open.
    time_units_per_second: u64,
}

/// A request as a row has it; its key is kept beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    kind: RequestKind,
    value_bytes: u64,
    ttl_seconds: Option<u32>,
    time_ns: Option<u64>,
    repeat: u32,
    tenant: Option<Tenant>,
}

/// Turns lines of one format into rows.
trait RowReader: Send {
    /// Looks at the first line of a file, and answers whether it is a header (and then takes its order of
    /// columns over) or already a row.
    fn takes_header(&mut self, line: &[u8]) -> Result<bool, RowError>;

    /// Reads a row and appends its key to `key`. After an error, what was appended is to be thrown away.
    fn row(&mut self, line: &[u8], key: &mut Vec<u8>) -> Result<Row, RowError>;
}
