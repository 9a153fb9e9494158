//! fio job files: the requests that fio would send to a drive, generated without fio.
//!
//! [`JobFile::parse`] reads the file, [`requests::Requests`] generates the offsets and lengths of one job. Keys, defaults and formulas
//! are those of fio's HOWTO (version 3.33), so that the same file also runs on a real drive. A key that would change the requests and
//! is not implemented is an error; a key that has no effect on a model is accepted, with a warning if a user might expect one.

pub mod keys;
mod parse;
mod random_map;
pub mod requests;
mod skew;
mod values;

use std::fmt;

pub use skew::Distribution;
pub use values::Amount;

use crate::block::BlockKind;

/// A parsed job file.
#[derive(Debug, Clone, PartialEq)]
pub struct JobFile {
    /// The jobs in the order of the file.
    pub jobs: Vec<Job>,
    /// Keys that were accepted and have no effect, each with its line and the reason.
    pub warnings: Vec<String>,
}

/// Why a job file is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobError {
    /// Line number, from 1; 0 if the error concerns the whole file.
    pub line: usize,
    /// The key, or an empty text.
    pub key: String,
    /// The reason.
    pub reason: String,
    /// Whether [`keys::names`] lacks the key, so that a similar name may help.
    pub is_unknown_key: bool,
}

/// One value for each direction, in the order reads, writes, trims.
pub type PerKind<T> = [T; 3];

/// The index of a direction in [`PerKind`].
#[must_use]
pub fn kind_index(kind: BlockKind) -> usize {
    match kind {
        BlockKind::Read => 0,
        BlockKind::Discard => 2,
        BlockKind::Write | BlockKind::Flush => 1,
    }
}

/// One job section with the defaults of the global sections above it.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Name of the section.
    pub name: String,
    /// Line of the section's header.
    pub line: usize,
    /// Directions, and random or sequential offsets.
    pub pattern: AccessPattern,
    /// Share of reads in a mix of reads and writes.
    pub read_share: f64,
    /// Lengths of the requests.
    pub block_bytes: PerKind<BlockSizes>,
    /// Alignment of random offsets; `None` is the smallest block size.
    pub align_bytes: PerKind<Option<u64>>,
    /// Length of the range that the job covers; `None` is up to the end.
    pub size: Option<Amount>,
    /// Bytes to transfer; `None` is the size.
    pub io_size: Option<Amount>,
    /// Where the range begins.
    pub offset: Amount,
    /// Added to the offset once for each clone before this one.
    pub offset_increment: Amount,
    /// Clones of this job.
    pub clones: u32,
    /// Repetitions of the whole job.
    pub loops: u64,
    /// Most requests of the job, if there is a limit.
    pub max_requests: Option<u64>,
    /// Whether each block is written once before any is written again (fio's random map).
    pub has_random_map: bool,
    /// How random offsets are drawn.
    pub distribution: PerKind<Distribution>,
    /// Share of the requests with random offsets, where the pattern is random.
    pub random_share: PerKind<f64>,
    /// Requests in flight.
    pub queue_depth: u32,
    /// Whether the I/O engine keeps one request in flight and ignores `queue_depth`.
    pub is_synchronous: bool,
    /// Limit of bytes per second.
    pub bytes_per_second: PerKind<Option<u64>>,
    /// Limit of requests per second.
    pub requests_per_second: PerKind<Option<u64>>,
    /// Whether limited requests arrive as a Poisson process instead of evenly.
    pub is_poisson: bool,
    /// Pause after each `think_blocks` requests.
    pub think_ns: u64,
    /// Requests between two pauses.
    pub think_blocks: u64,
    /// Pause before the job begins.
    pub start_delay_ns: u64,
    /// Time limit; `None` is no limit.
    pub runtime_ns: Option<u64>,
    /// Time at the beginning that is not measured.
    pub ramp_ns: u64,
    /// Whether the job repeats until its time limit and ignores its size.
    pub is_time_based: bool,
    /// Whether writes carry placement identifiers.
    pub has_placement: bool,
    /// The placement identifiers used; empty with placement are all that the drive has.
    pub placement_ids: Vec<u16>,
    /// Whether an identifier is drawn at random for each write instead of in turn.
    pub random_placement: bool,
    /// Whether all jobs above must end first.
    pub waits_for_all: bool,
    /// The job that must end first.
    pub waits_for: Option<String>,
    /// Whether all jobs end when this one does.
    pub ends_all: bool,
    /// The file that the job uses; `None` is a file of its own for each clone.
    pub file: Option<String>,
    /// Size of `file`, if the job gives one.
    pub file_bytes: Option<Amount>,
}

/// Directions and order of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessPattern {
    /// The kinds of requests: reads, writes, trims or a mix.
    pub mix: Mix,
    /// Whether offsets are random.
    pub is_random: bool,
    /// Random: requests per random offset, the others follow it. Default 1.
    pub run_length: u32,
    /// Sequential: bytes skipped after each request.
    pub skip_bytes: u64,
}

/// Which requests a job sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Reads.
    Reads,
    /// Writes.
    Writes,
    /// Trims.
    Trims,
    /// Reads and writes.
    ReadsAndWrites,
    /// Each block is trimmed and then written.
    TrimsThenWrites,
}

/// Lengths of a job's requests in one direction.
#[derive(Debug, Clone, PartialEq)]
pub enum BlockSizes {
    /// From the first to the last, in multiples of the first.
    Range(u64, u64),
    /// Lengths with their shares, which add up to 1.
    Split(Vec<(u64, f64)>),
}

impl BlockSizes {
    /// The smallest length.
    #[must_use]
    pub fn smallest(&self) -> u64 {
        match self {
            Self::Range(smallest, _) => *smallest,
            Self::Split(lengths) => lengths.iter().map(|length| length.0).min().unwrap_or(1),
        }
    }

    /// The largest length.
    #[must_use]
    pub fn largest(&self) -> u64 {
        match self {
            Self::Range(_, largest) => *largest,
            Self::Split(lengths) => lengths.iter().map(|length| length.0).max().unwrap_or(1),
        }
    }
}

impl Mix {
    /// The directions that occur.
    #[must_use]
    pub fn kinds(self) -> &'static [BlockKind] {
        match self {
            Self::Reads => &[BlockKind::Read],
            Self::Writes => &[BlockKind::Write],
            Self::Trims => &[BlockKind::Discard],
            Self::ReadsAndWrites => &[BlockKind::Read, BlockKind::Write],
            Self::TrimsThenWrites => &[BlockKind::Discard, BlockKind::Write],
        }
    }
}

impl Default for Job {
    /// fio's defaults.
    fn default() -> Self {
        let pattern = AccessPattern { mix: Mix::Reads, is_random: false, run_length: 1, skip_bytes: 0 };
        Self {
            name: String::new(),
            line: 0,
            pattern,
            read_share: 0.5,
            block_bytes: [const { BlockSizes::Range(4096, 4096) }; 3],
            align_bytes: [None; 3],
            size: None,
            io_size: None,
            offset: Amount::Bytes(0),
            offset_increment: Amount::Bytes(0),
            clones: 1,
            loops: 1,
            max_requests: None,
            has_random_map: true,
            distribution: [const { Distribution::Uniform }; 3],
            random_share: [1.0; 3],
            queue_depth: 1,
            is_synchronous: true,
            bytes_per_second: [None; 3],
            requests_per_second: [None; 3],
            is_poisson: false,
            think_ns: 0,
            think_blocks: 1,
            start_delay_ns: 0,
            runtime_ns: None,
            ramp_ns: 0,
            is_time_based: false,
            has_placement: false,
            placement_ids: Vec::new(),
            random_placement: false,
            waits_for_all: false,
            waits_for: None,
            ends_all: false,
            file: None,
            file_bytes: None,
        }
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        match self.key.as_str() {
            "" => f.write_str(&self.reason),
            key => write!(f, "{key}: {}", self.reason),
        }
    }
}

impl std::error::Error for JobError {}
