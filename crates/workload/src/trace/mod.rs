//! Reads requests from recorded traces.
//!
//! A trace format is one file here and one entry in [`FORMATS`]: it parses a record, a line of text or a fixed number of bytes, into
//! requests. The rest is shared: decompression ([`input`]), splitting files into records ([`records`]), format detection ([`detect`]).
//! There are two consumers: [`replay`] makes cache requests, with amplification, repetition, ordering and threads; [`access`] makes object
//! accesses for simulators and statistics.

pub mod access;
pub mod amplify;
mod arc;
mod binary;
pub mod block;
mod cachebench_binary;
mod calendar;
mod cdn;
mod columns;
mod copy;
mod csv;
mod cut;
mod detect;
mod error;
mod files;
mod foreign;
mod format;
mod framing;
mod head;
mod ibm_cos;
mod input;
mod kv;
mod lcs;
mod lines;
mod lirs;
mod mooncake;
mod numbers;
mod oracle_general;
mod parquet;
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
    Access, AccessKind, Accesses, OnBadRow, OpenOptions, PageSize, ReadReport, TenantsFrom, ZeroSize, open,
};
pub use amplify::{Amplify, SuffixRule};
pub use copy::{CopyError, Copying, copy};
pub use csv::{ColumnsError, CsvColumns};
pub use cut::Cut;
pub use error::TraceError;
pub use parquet::parquet_columns;
pub use replay::{Order, Rejected, Replay, ReplayConfig, ReplayStats};
pub use row_error::{Contradiction, RowError};
pub use rows::{HeaderMismatch, Unreadable};
pub use survey::Survey;
pub use tenants::TenantNames;
pub use write::{Miss, MissWriter, Target, WriteError, Writer, Written};

use std::path::PathBuf;

pub use format::Format;
use records::Records;

/// The readable formats.
pub static FORMATS: &[&Format] = &[
    &plain::FORMAT,
    &kv::FORMAT,
    &cdn::FORMAT,
    &storage::FORMAT,
    &twitter::FORMAT,
    &oracle_general::FORMAT,
    &webcachesim::FORMAT,
    &block::formats::MSR,
    &block::formats::SYSTOR,
    &block::formats::ALIBABA,
    &block::formats::TENCENT,
    &block::formats::CLOUDPHYSICS,
    &block::formats::CSV,
    &block::formats::BLKPARSE,
    &block::formats::BLKTRACE,
    &block::formats::FIO_IOLOG,
    &block::formats::SPC,
    &arc::FORMAT,
    &lirs::FORMAT,
    &block::formats::VSCSI,
    &mooncake::FORMAT,
    &numbers::U32_LE,
    &numbers::U32_BE,
    &numbers::U64_LE,
    &numbers::U64_BE,
    &csv::FORMAT,
    &parquet::FORMAT,
    &binary::FORMAT,
    &cachebench_binary::FORMAT,
    &lcs::FORMAT,
    &block::formats::DISKSIM,
    &block::formats::MQSIM,
    &block::formats::FIU,
    &weblog::SQUID,
    &weblog::COMMON_LOG,
    &ibm_cos::FORMAT,
];

impl Format {
    /// The format called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        FORMATS.iter().copied().find(|format| format.name == name)
    }

    /// The format called `name`, and the columns that can follow a [table](CsvColumns)'s name, as in `csv:time,key,-,size`.
    ///
    /// # Errors
    /// An unknown format, or invalid columns.
    pub fn with_columns(name: &str) -> Result<(&'static Self, Option<CsvColumns>), TraceError> {
        let format = |name: &str| {
            let unknown = || TraceError::UnknownFormat { name: name.to_owned(), known: Self::names() };
            Self::named(name).ok_or_else(unknown)
        };
        let tables = [csv::FORMAT.name, parquet::FORMAT.name];
        let Some((table, columns)) = name.split_once(':').filter(|(table, _)| tables.contains(table)) else {
            return Ok((format(name)?, None));
        };
        let parsed = CsvColumns::parse(columns);
        let columns = parsed.map_err(|reason| TraceError::Columns { columns: name.to_owned(), reason })?;
        Ok((format(table)?, Some(columns)))
    }

    /// Detects the format of files from their first bytes.
    ///
    /// # Errors
    /// A file that cannot be read or is in another format than the first, or no or several formats match.
    pub fn detect_files(paths: &[PathBuf]) -> Result<&'static Self, TraceError> {
        let (first, further) = paths.split_first().ok_or(TraceError::NoFiles)?;
        let opened = Records::open(first);
        let mut records = opened.map_err(|source| TraceError::Open { path: first.clone(), source })?;
        let format = detect::detect_files(first, &mut records)?;
        further.iter().try_for_each(|path| detect::check_further(path, Some(format)))?;
        Ok(format)
    }

    /// Whether the format can be detected. Otherwise the user must name it.
    #[must_use]
    pub fn is_detectable(&self) -> bool {
        numbers::ALL.iter().all(|bare| bare.name != self.name)
    }

    /// The names of all formats, for a message.
    #[must_use]
    pub fn names() -> String {
        FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().join(", ")
    }
}
