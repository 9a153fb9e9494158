//! Requests from recorded traces.
//!
//! A trace format is one file here and one line in [`FORMATS`]: it turns a record, a line of text or so many
//! bytes, into requests. Everything else is common to all: decompression ([`input`]), cutting files into records
//! ([`records`]), telling formats apart ([`detect`]). Two things read them: [`replay`] makes requests for a cache
//! out of a trace, with amplification, repetition, order and threads; [`access`] makes accesses to objects, which
//! is what simulators and statistics want.

pub mod access;
pub mod amplify;
mod arc;
mod binary;
pub mod block;
mod cachebench_binary;
mod calendar;
mod cdn;
mod columns;
mod csv;
mod cut;
mod detect;
mod error;
mod files;
mod foreign;
mod ibm_cos;
mod input;
mod kv;
mod lcs;
mod lines;
mod lirs;
mod mooncake;
mod numbers;
mod oracle_general;
mod plain;
mod records;
pub mod replay;
mod row_error;
mod rows;
mod storage;
pub mod survey;
mod table;
pub mod tenants;
mod twitter;
mod webcachesim;
mod weblog;
pub mod write;

pub use access::{
    Access, AccessKind, Accesses, CopyError, Copying, OnBadRow, OpenOptions, PageSize, ReadReport,
    TenantsFrom, ZeroSize, copy, open,
};
pub use amplify::{Amplify, SuffixRule};
pub use csv::{ColumnsError, Contradiction, CsvColumns};
pub use cut::Cut;
pub use error::TraceError;
pub use replay::{Order, Rejected, Replay, ReplayConfig, ReplayStats};
pub use row_error::RowError;
pub use rows::{Strangers, Unreadable};
pub use survey::Survey;
pub use tenants::TenantNames;
pub use write::{Miss, MissWriter, Target, WriteError, Writer, Written};

use std::path::PathBuf;

use detect::Head;
use files::FileOrder;
use records::{Framing, Records};
use rows::{Object, ReaderOptions, Row, RowReader, Rows};

/// A format that traces come in.
pub struct Format {
    /// Its name on the command line and in configs.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// How its files' names end, before the ending of a compression.
    pub extensions: &'static [&'static str],
    /// What objects have where the format gives no sizes, and what ranges of bytes are cut into; `None` where
    /// the format has sizes of objects, or where its ranges are objects.
    pub page_bytes: Option<u64>,
    /// Its time units in a second, where the published traces agree on one.
    pub time_units_per_second: u64,
    /// How several files belong together.
    files: FileOrder,
    /// Whether a file that its reader can read looks like this format and not by chance.
    plausible: fn(&Head<'_>) -> bool,
    reader: fn(&ReaderOptions) -> Box<dyn RowReader>,
}

/// The formats that can be read.
pub static FORMATS: [&Format; 35] = [
    &plain::FORMAT,
    &kv::FORMAT,
    &cdn::FORMAT,
    &storage::FORMAT,
    &twitter::FORMAT,
    &oracle_general::FORMAT,
    &webcachesim::FORMAT,
    &block::rows::MSR,
    &block::rows::SYSTOR,
    &block::rows::ALIBABA,
    &block::rows::TENCENT,
    &block::rows::CLOUDPHYSICS,
    &block::rows::CSV,
    &block::rows::BLKPARSE,
    &block::rows::BLKTRACE,
    &block::rows::FIO_IOLOG,
    &block::rows::SPC,
    &arc::FORMAT,
    &lirs::FORMAT,
    &block::rows::VSCSI,
    &mooncake::FORMAT,
    &numbers::U32_LE,
    &numbers::U32_BE,
    &numbers::U64_LE,
    &numbers::U64_BE,
    &csv::FORMAT,
    &binary::FORMAT,
    &cachebench_binary::FORMAT,
    &lcs::FORMAT,
    &block::rows::DISKSIM,
    &block::rows::MQSIM,
    &block::rows::FIU,
    &weblog::SQUID,
    &weblog::COMMON_LOG,
    &ibm_cos::FORMAT,
];

impl Format {
    /// Whether anything is as large as a page, or cut into pages. Ranges may be objects as long as nobody asks for pages.
    fn has_pages(&self) -> bool {
        self.page_bytes.is_some() || ["cdn", "vscsi"].contains(&self.name)
    }

    /// Whether the format leaves the unit of its times open, so that the reader can choose it.
    pub(super) fn has_time_units(&self) -> bool {
        const OPEN: [&str; 9] =
            ["cdn", "csv", "ibm-cos", "kvcache", "mooncake", "plain", "storage", "twitter", "webcachesim"];
        OPEN.contains(&self.name)
    }

    /// The format called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        FORMATS.into_iter().find(|format| format.name == name)
    }

    /// The format called `name`, and the columns that may stand behind the name of a [table](CsvColumns), as in
    /// `csv:time,key,-,size`.
    ///
    /// # Errors
    /// There is no such format, or the columns are not understood.
    pub fn with_columns(name: &str) -> Result<(&'static Self, Option<CsvColumns>), TraceError> {
        let format = |name: &str| {
            let unknown = || TraceError::UnknownFormat { name: name.to_owned(), known: Self::names() };
            Self::named(name).ok_or_else(unknown)
        };
        let Some((table, columns)) = name.split_once(':').filter(|(table, _)| *table == csv::FORMAT.name)
        else {
            return Ok((format(name)?, None));
        };
        let parsed = CsvColumns::parse(columns);
        let columns = parsed.map_err(|reason| TraceError::Columns { columns: name.to_owned(), reason })?;
        Ok((format(table)?, Some(columns)))
    }

    /// The format that the first of some files tells by what it begins with.
    ///
    /// # Errors
    /// A file that cannot be read or is in another format than the first, which may be in none or several.
    pub fn told_by(paths: &[PathBuf]) -> Result<&'static Self, TraceError> {
        let (first, further) = paths.split_first().ok_or(TraceError::NoFiles)?;
        let opened = Records::open(first);
        let mut records = opened.map_err(|source| TraceError::Open { path: first.clone(), source })?;
        let format = detect::told_by(first, &mut records)?;
        further.iter().try_for_each(|path| detect::check_further(path, Some(format)))?;
        Ok(format)
    }

    /// Whether a file tells that it is in this format. Otherwise somebody has to name it.
    #[must_use]
    pub fn is_told_apart(&self) -> bool {
        numbers::ALL.iter().all(|bare| bare.name != self.name)
    }

    /// The names of all formats, for a message.
    #[must_use]
    pub fn names() -> String {
        FORMATS.map(|format| format.name).join(", ")
    }
}

impl std::fmt::Debug for Format {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}
