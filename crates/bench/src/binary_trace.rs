//! Converts a trace to a binary trace, for `generator` `replay` with a `binaryFileName`.
//!
//! The requests are generated as for a run, so that the binary trace includes amplification, skipped rows, repeat counts and
//! the time unit, and these keys are not given again when it is replayed. The trace is written once and completely:
//! `repeatTraceReplay` and `numOps` have no effect.

use std::path::{Path, PathBuf};

use device::names::noun;
use serde_json::{Value, json};
use workload::Workload as _;
use workload::trace::{
    Order, Replay, ReplayConfig, ReplayStats, Target, TraceError, WriteError, Writer, Written,
};

use crate::bar::{Bar, Unit};
use crate::config::plan::ReplayPlan;
use crate::report::numbers::was;
use crate::run::open;
use crate::run::stop::Stop;

/// Error of a conversion; no file is written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The replay cannot be opened.
    #[error(transparent)]
    Open(#[from] workload::WorkloadError),
    /// Reading failed before the end of the trace.
    #[error("{0}; nothing was written")]
    Cut(String),
    /// No row is a valid request.
    #[error("{}: none of its {rows} rows is a valid request{first}; nothing was written", path.display())]
    NoRequests {
        /// The first file.
        path: PathBuf,
        /// Number of rows.
        rows: u64,
        /// The first error.
        first: String,
    },
    /// The output would overwrite the input trace.
    #[error("{}: would overwrite the input trace", .0.display())]
    Same(PathBuf),
    /// The output cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The conversion was stopped.
    #[error("interrupted: nothing was written")]
    Interrupted,
}

/// A written binary trace.
#[derive(Debug)]
pub struct Made {
    /// Path of the file.
    pub path: PathBuf,
    /// Requests, without repetitions.
    pub requests: u64,
    /// Totals with repetitions.
    pub written: Written,
    /// Warnings about the columns of the trace.
    pub warnings: Vec<String>,
    /// Statistics of the reader.
    pub reading: ReplayStats,
}

/// Requests between two updates of the bar, which also check for a stop.
const LOOK_REQUESTS: u64 = 1 << 16;

/// Writes the requests of `plan` to `path`.
///
/// # Errors
/// The trace cannot be read to its end, the file cannot be written, or `stop` was set.
pub fn write(plan: &ReplayPlan, path: &Path, stop: &Stop, quiet: bool) -> Result<Made, Error> {
    let (replay, warnings) = replay(plan, path)?;
    let mut source = replay.sources(1, 0)?.remove(0);
    let mut writer = Writer::create(path, Target::Binary)?.with_tenants(replay.tenants());
    let bar = Bar::new(Unit::Custom, quiet);
    let mut requests = 0_u64;
    while let Some(request) = source.next() {
        writer.write_request(&request)?;
        requests += 1;
        if requests.is_multiple_of(LOOK_REQUESTS) {
            bar.set(requests, requests, format!("{:.1} M requests  ", requests as f64 / 1e6));
            if stop.is_set() {
                break;
            }
        }
    }
    bar.finish();
    // Dropping the source ends the parser thread, so that its errors are complete.
    drop(source);
    if stop.is_set() {
        return Err(Error::Interrupted);
    }
    let reading = replay.stats();
    if let Some(failure) = reading.failure {
        return Err(Error::Cut(failure));
    }
    if requests == 0 {
        let first = plan.files.first().cloned().unwrap_or_default();
        let why =
            reading.messages.first().map_or_else(String::new, |why| format!("; the first error: {why}"));
        return Err(Error::NoRequests {
            path: first,
            rows: reading.rows + reading.rejected_rows,
            first: why,
        });
    }
    Ok(Made { path: path.to_owned(), requests, written: writer.finish()?, warnings, reading })
}

/// Checks for errors before anything is written, and returns the warnings about the trace.
///
/// # Errors
/// A file is not a trace, or would be overwritten.
pub fn check(plan: &ReplayPlan, path: &Path) -> Result<Vec<String>, Error> {
    replay(plan, path).map(|(_, warnings)| warnings)
}

fn replay(plan: &ReplayPlan, path: &Path) -> Result<(Replay, Vec<String>), Error> {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    if plan.files.iter().any(|file| real(file).is_some() && real(file) == real(path)) {
        return Err(Error::Same(path.to_owned()));
    }
    let once = ReplayConfig { repeat: false, passes: None, order: Order::Strict, ..open::replay(plan)? };
    let replay = Replay::new(once);
    let columns = replay.check_files()?;
    let warnings = columns.iter().flat_map(|(path, columns)| open::column_warnings(path, columns)).collect();
    Ok((replay, warnings))
}

impl Made {
    /// A summary line, and a line for each warning or error.
    #[must_use]
    pub fn text(&self) -> String {
        let (requests, all) = (self.requests, self.written.accesses);
        let noun_of_them = noun(requests, "request");
        let mut text =
            format!("{}: {requests} {noun_of_them}, {all} with repetitions\n", self.path.display());
        self.warnings.iter().for_each(|warning| text += &format!("note: {warning}\n"));
        let wrong = self.reading.rejected_rows;
        if wrong > 0 {
            text += &format!("note: {wrong} malformed {} {} skipped\n", noun(wrong, "row"), was(wrong));
        }
        self.reading.messages.iter().for_each(|message| text += &format!("  {message}\n"));
        text
    }

    /// The summary as JSON, for the result file.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "output": self.path.display().to_string(),
            "requests": self.requests,
            "accesses": self.written.accesses,
            "rows": self.reading.rows,
            "bad_rows": self.reading.rejected_rows,
            "warnings": self.warnings,
            "messages": self.reading.messages,
        })
    }
}
