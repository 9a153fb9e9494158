//! A trace as accesses to objects: what simulators, statistics and conversions read.
//!
//! Where a [`replay`](super::replay) hands keys' bytes to a cache, here an object is a number. A row that asks for
//! several blocks, or several times, is several accesses. What is wrong in a trace is skipped and counted, or
//! stops it, as [`OpenOptions`] say; nothing is dropped without a word.
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

use super::Format;
use super::block::Events;
use super::error::TraceError;
use super::rows::Unreadable;
use super::tenants::{Tenant, TenantNames};
use super::write::{WriteError, Writer};

mod reader;

/// One access to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// When, on the trace's own clock; never before the access ahead of it. Where the trace has no time, the
    /// access's number (from 0) in milliseconds.
    pub time_ns: u64,
    /// The object. Keys that are decimal numbers of 64 bits (without leading zeros) are kept, other keys are
    /// hashed with XXH3-64, and so are blocks of a numbered disk.
    pub key: u64,
    /// What the object takes. Never 0, except where the trace deletes or [`ZeroSize::Keep`] is asked for.
    pub size_bytes: u64,
    /// Seconds it lives once it is set; `None` is for ever.
    pub ttl_seconds: Option<u32>,
    /// Who asks, where the trace tells and it was to be read.
    pub tenant: Option<Tenant>,
    /// What is asked.
    pub kind: AccessKind,
}

/// What an access asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AccessKind {
    /// Look the object up.
    Get,
    /// Store it.
    Set,
    /// Remove it.
    Delete,
}

/// A run of accesses: a trace that is read, or a generator.
pub trait Accesses: Send {
    /// Puts the next accesses, some thousands, in place of what is in `batch`. False at the end; `batch` is empty then.
    ///
    /// # Errors
    /// Something is wrong and may not be skipped. What came before it in the trace has been handed out.
    fn next_batch(&mut self, batch: &mut Vec<Access>) -> Result<bool, TraceError>;

    /// How reading goes so far.
    fn report(&self) -> &ReadReport;

    /// The names of the tenants that were met so far; none where there are none.
    fn tenants(&self) -> TenantNames {
        TenantNames::default()
    }
}

/// How reading goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadReport {
    /// Name of the format that is read, or of the generator.
    pub format: &'static str,
    /// What the columns of the header are, and which are not used; `None` where there is no header.
    pub columns: Option<String>,
    /// Lines or records read, headers and remarks aside.
    pub rows: u64,
    /// Accesses handed out.
    pub accesses: u64,
    /// Rows that describe no request, and were skipped.
    pub bad_rows: u64,
    /// Accesses to objects of no bytes (deletes aside) that were skipped, kept or given a size.
    pub zero_sizes: u64,
    /// Times before the one of the row ahead, which were taken for that one's.
    pub backward_times: u64,
    /// Whether the trace tells the time. Otherwise accesses have their number for it.
    pub has_time: bool,
    /// Accesses ahead of the first row with a time, where there is one: they have their number for it, which may be later than that
    /// row's time.
    pub untimed: u64,
    /// File, row, what was wrong and what was done, of the first few.
    pub messages: Vec<String>,
    /// Values of optional columns that could not be read, by column.
    pub unreadable: Vec<Unreadable>,
    /// Remarks about whole files, such as that they are merged by time.
    pub notes: Vec<String>,
}

impl ReadReport {
    /// Remarks about whole files and columns, one line each.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        self.notes.iter().cloned().chain(self.unreadable.iter().map(ToString::to_string)).collect()
    }
}

/// How a trace is read.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Bytes of a page: what ranges of bytes are cut into, and what objects have where the format gives no sizes.
    /// `None` is the format's default.
    pub page: Option<PageSize>,
    /// The trace's time units in a second, for formats that leave that open. `None` is the format's default.
    pub time_units_per_second: Option<u64>,
    /// What to do with rows that describe no request, and with times that go back.
    pub on_bad_row: OnBadRow,
    /// Rows that may be skipped.
    pub bad_rows_limit: u64,
    /// What to do with objects of no bytes.
    pub zero_size: ZeroSize,
    /// Accesses after which the trace ends.
    pub limit: Option<u64>,
    /// Which columns tell who asks.
    pub tenants: TenantsFrom,
    /// Which events of a recording of the block layer are requests; `None` takes what there is, the queue events first.
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

/// Which columns tell who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TenantsFrom {
    /// Nobody wants to know, and reading is a little faster.
    #[default]
    Nothing,
    /// Those that the format has for it.
    Usual,
    /// Columns of a header that mean nothing else, by their names; as many as the format has at most.
    Columns(Vec<String>),
}

/// What ranges of bytes are cut into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageSize {
    /// Pages of so many bytes (at least 1).
    Bytes(u64),
    /// Nothing: a range is an object, known by where it begins.
    Whole,
}

/// What to do with a row that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnBadRow {
    /// Leave it out and count it; a time that goes back is taken for the one before.
    Skip,
    /// End with an error.
    Stop,
}

/// What to do with objects of no bytes. CacheBench's traces have them where the recorded get missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroSize {
    /// Leave the access out and count it, or stop where wrong rows stop.
    Skip,
    /// Keep it as it is.
    Keep,
    /// Take the object to have so many bytes.
    As(u64),
}

/// Opens a trace of one or several files, in their order; `-` is standard input. `format` is a format's name, with
/// [columns](super::CsvColumns) or without, `auto` or `None` to tell it by the first file.
///
/// # Errors
/// A file that cannot be opened, a format that does not exist or cannot be told, or a header that is wrong.
pub fn open<P: AsRef<Path>>(
    paths: &[P],
    format: Option<&str>,
    options: &OpenOptions,
) -> Result<Box<dyn Accesses>, TraceError> {
    Ok(Box::new(reader(paths, format, options)?))
}

/// Opens a trace to write it again as it is, in the binary form: with keys and repetitions, and with times and sizes as they
/// stand there.
///
/// # Errors
/// As [`open`].
pub fn copy<P: AsRef<Path>>(
    paths: &[P],
    format: Option<&str>,
    options: &OpenOptions,
) -> Result<Copying, TraceError> {
    Ok(Copying(reader(paths, format, options)?.of_rows()))
}

/// A trace that is being written again.
pub struct Copying(reader::Reader);

/// Why a trace cannot be copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] TraceError),
    /// The new one cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Copying {
    /// Copies the next rows, some thousands. False at the end.
    ///
    /// # Errors
    /// Something is wrong and may not be skipped, or `to` cannot be written.
    pub fn step(&mut self, to: &mut Writer) -> Result<bool, CopyError> {
        self.0.copy_rows(to)
    }

    /// How reading goes so far; accesses are those that the rows stand for.
    #[must_use]
    pub fn report(&self) -> &ReadReport {
        self.0.report()
    }

    /// The names of the tenants that were met so far, for the [writer](Writer::with_tenants).
    #[must_use]
    pub fn tenants(&self) -> TenantNames {
        self.0.tenants()
    }
}

fn reader<P: AsRef<Path>>(
    paths: &[P],
    format: Option<&str>,
    options: &OpenOptions,
) -> Result<reader::Reader, TraceError> {
    let format = match format {
        None | Some("auto") => None,
        Some(name) => Some(Format::with_columns(name)?),
    };
    let paths: Vec<PathBuf> = paths.iter().map(|path| path.as_ref().to_owned()).collect();
    reader::Reader::open(paths, format, options.clone())
}
