//! A trace as accesses to objects, for simulators, statistics and conversions.
//!
//! A [`replay`](super::replay) passes the bytes of keys to a cache; here an object is a number. A row for several blocks, or with a repeat
//! count, becomes several accesses. Invalid rows are skipped and counted, or stop the trace, as configured in [`OpenOptions`]; none is
//! dropped silently.
//!
//! ```no_run
//! use flashwright_workload::trace::access::{self, Access, OpenOptions};
//!
//! let mut trace = access::open(&["trace.csv.zst"], None, &OpenOptions::default())?;
//! let (mut batch, mut bytes) = (Vec::new(), 0);
//! while trace.next_batch(&mut batch)? {
//!     bytes += batch.iter().map(|access| access.size_bytes).sum::<u64>();
//! }
//! for message in &trace.report().messages {
//!     eprintln!("{message}");
//! }
//! # Ok::<(), flashwright_workload::trace::TraceError>(())
//! ```

use std::path::{Path, PathBuf};

use super::block::Events;
use super::error::TraceError;
use super::format::Format;
use super::rows::Unreadable;
use super::tenants::{Tenant, TenantNames};

mod reader;

pub(super) use reader::Reader;
pub use reader::key_of;

/// One access to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Time on the trace's clock; never before that of the previous access. Without timestamps, the access's number (from 0) in
    /// milliseconds.
    pub time_ns: u64,
    /// The object. Keys that are decimal numbers of 64 bits (without leading zeros) are used directly; other keys, and blocks of a numbered
    /// disk, are hashed with XXH3-64.
    pub key: u64,
    /// Size of the object. 0 only for deletes and with [`ZeroSize::Keep`].
    pub size_bytes: u64,
    /// TTL in seconds once the object is set; `None` never expires.
    pub ttl_seconds: Option<u32>,
    /// The client, if the trace records it and [`OpenOptions::tenants`] selects it.
    pub tenant: Option<Tenant>,
    /// The operation.
    pub kind: AccessKind,
}

/// The operation of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AccessKind {
    /// Look the object up.
    Get,
    /// Store the object.
    Set,
    /// Remove the object.
    Delete,
}

/// A sequence of accesses: a trace or a generator.
pub trait Accesses: Send {
    /// Replaces the contents of `batch` by the next accesses, some thousands. Returns false, with `batch` empty, at the end.
    ///
    /// # Errors
    /// An error that may not be skipped. The accesses before it have been returned.
    fn next_batch(&mut self, batch: &mut Vec<Access>) -> Result<bool, TraceError>;

    /// Reading statistics so far.
    fn report(&self) -> &ReadReport;

    /// Names of the tenants seen so far.
    fn tenants(&self) -> TenantNames {
        TenantNames::default()
    }
}

/// Reading statistics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadReport {
    /// Name of the trace format or the generator.
    pub format: &'static str,
    /// Meaning of the header's columns, and the unused ones; `None` if there is no header.
    pub columns: Option<String>,
    /// Lines or records read, without headers and comments.
    pub rows: u64,
    /// Accesses returned.
    pub accesses: u64,
    /// Skipped rows that describe no request.
    pub bad_rows: u64,
    /// Accesses to objects of 0 bytes (except deletes) that were skipped, kept or given a size.
    pub zero_sizes: u64,
    /// Timestamps before that of the previous row, which were replaced by it.
    pub backward_times: u64,
    /// Whether the trace has timestamps. Otherwise the time of an access is its number.
    pub has_time: bool,
    /// Accesses before the first row with a timestamp, if there is one: their time is their number, which can exceed that timestamp.
    pub untimed: u64,
    /// File, row, problem and handling of the first few problems.
    pub messages: Vec<String>,
    /// Unreadable values of optional columns, by column.
    pub unreadable: Vec<Unreadable>,
    /// Notes about whole files, for example that they are merged by time.
    pub notes: Vec<String>,
}

impl ReadReport {
    /// Notes about whole files and columns, one line each.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        self.notes.iter().cloned().chain(self.unreadable.iter().map(ToString::to_string)).collect()
    }
}

/// Options for reading a trace.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Page size: the unit into which byte ranges are divided, and the size of objects if the format records none. `None` is the format's
    /// default.
    pub page: Option<PageSize>,
    /// The trace's time units per second, for formats without a fixed unit. `None` is the format's default.
    pub time_units_per_second: Option<u64>,
    /// Handling of rows that describe no request, and of timestamps that go back.
    pub on_bad_row: OnBadRow,
    /// Largest number of rows to skip.
    pub bad_rows_limit: u64,
    /// Handling of objects of 0 bytes.
    pub zero_size: ZeroSize,
    /// Number of accesses after which reading stops.
    pub limit: Option<u64>,
    /// The columns that identify the client.
    pub tenants: TenantsFrom,
    /// The block-layer events that count as requests; `None` uses queue events if there are any.
    pub events: Option<Events>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            page: None,
            time_units_per_second: None,
            on_bad_row: OnBadRow::Skip,
            bad_rows_limit: 1000,
            zero_size: ZeroSize::Skip,
            limit: None,
            tenants: TenantsFrom::default(),
            events: None,
        }
    }
}

/// The columns that identify the client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TenantsFrom {
    /// None; reading is slightly faster.
    #[default]
    Nothing,
    /// The format's usual columns.
    Usual,
    /// Columns named in the header that have no other meaning; up to the number that the format supports.
    Columns(Vec<String>),
}

/// Division of byte ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageSize {
    /// Pages of this size (at least 1).
    Bytes(u64),
    /// No division: a range is an object, identified by its start.
    Whole,
}

/// Handling of invalid rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnBadRow {
    /// Skip and count the row; a timestamp that goes back is replaced by the previous one.
    Skip,
    /// Stop with an error.
    Stop,
}

/// Handling of objects of 0 bytes. CacheBench's traces contain them for gets that missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroSize {
    /// Skip and count the access, or stop if invalid rows stop.
    Skip,
    /// Keep the access unchanged.
    Keep,
    /// Use this size for the object.
    As(u64),
}

/// Opens a trace of one or several files, in this order; `-` is standard input. `format` is a format's name, optionally with
/// [columns](super::CsvColumns). `auto` and `None` detect the format from the first file.
///
/// # Errors
/// A file that cannot be opened, an unknown format, a failed detection, or an invalid header.
pub fn open<P: AsRef<Path>>(
    paths: &[P],
    format: Option<&str>,
    options: &OpenOptions,
) -> Result<Box<dyn Accesses>, TraceError> {
    Ok(Box::new(reader(paths, format, options)?))
}

pub(super) fn reader<P: AsRef<Path>>(
    paths: &[P],
    format: Option<&str>,
    options: &OpenOptions,
) -> Result<Reader, TraceError> {
    let format = match format {
        None | Some("auto") => None,
        Some(name) => Some(Format::with_columns(name)?),
    };
    let paths: Vec<PathBuf> = paths.iter().map(|path| path.as_ref().to_owned()).collect();
    Reader::open(paths, format, options.clone())
}
