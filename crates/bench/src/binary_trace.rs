//! `generator` `replay` with a `binaryFileName`: the requests that the replay would make, written as a binary trace.
//!
//! They are made as for a run, so that amplification, what is skipped, repeat counts and the unit of time are in the trace, and
//! not to be told again when it is replayed. It is written once, whatever `repeatTraceReplay` says, and whole, whatever `numOps`
//! says.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use workload::Workload as _;
use workload::trace::{
    Order, Replay, ReplayConfig, ReplayStats, Target, TraceError, WriteError, Writer, Written,
};

use crate::bar::{Bar, Unit};
use crate::config::plan::ReplayPlan;
use crate::report::text::{noun, was};
use crate::run::open;
use crate::run::stop::Stop;

/// Why a binary trace was not written. There is no new file then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The trace is none.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] workload::WorkloadError),
    /// Reading it ended too early.
    #[error("{0}; nothing was written")]
    Cut(String),
    /// No row of it is a request.
    #[error("{}: none of its {rows} rows is a valid request{first}; nothing was written", path.display())]
    NoRequests {
        /// The first file.
        path: PathBuf,
        /// How many there are.
        rows: u64,
        /// What is wrong with the first.
        first: String,
    },
    /// The new file would replace what it is made of.
    #[error("{}: would overwrite the input trace", .0.display())]
    Same(PathBuf),
    /// It cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Somebody ended it.
    #[error("interrupted: nothing was written")]
    Interrupted,
}

/// A binary trace that was written.
#[derive(Debug)]
pub struct Made {
    /// Where.
    pub path: PathBuf,
    /// Requests in it, without their repetitions.
    pub requests: u64,
    /// What is in it, repetitions counted.
    pub written: Written,
    /// What is to be said of the columns of the trace.
    pub warnings: Vec<String>,
    /// How reading went.
    pub reading: ReplayStats,
}

/// Requests between two looks at the bar and at who wants to stop.
const LOOK_REQUESTS: u64 = 1 << 16;

/// Writes what `plan` replays to `path`.
///
/// # Errors
/// The trace cannot be read to its end, the file cannot be written, or `stop` was set.
pub fn write(plan: &ReplayPlan, path: &Path, stop: &Stop, quiet: bool) -> Result<Made, Error> {
    let (replay, warnings) = replay(plan, path)?;
    let mut source = replay.sources(1, 0)?.remove(0);
    let mut writer = Writer::create(path, Target::Binary)?.with_tenants(replay.tenants());
    let bar = Bar::new(Unit::Told, quiet);
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
    // With it the thread that parses ends, and what it had to say is there.
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

/// Finds out what can be wrong before anything is written; answers what is to be said of the trace.
///
/// # Errors
/// A file that is no trace, or that would be replaced.
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
    let columns = replay.check_beginnings()?;
    let warnings = columns.iter().flat_map(|(path, columns)| open::column_warnings(path, columns)).collect();
    Ok((replay, warnings))
}

impl Made {
    /// A line for people, and one for each thing that was wrong.
    #[must_use]
    pub fn words(&self) -> String {
        let (requests, all) = (self.requests, self.written.accesses);
        let noun_of_them = noun(requests, "request");
        let mut words =
            format!("{}: {requests} {noun_of_them}, {all} with repetitions\n", self.path.display());
        self.warnings.iter().for_each(|warning| words += &format!("note: {warning}\n"));
        let wrong = self.reading.rejected_rows;
        if wrong > 0 {
            words += &format!("note: {wrong} malformed {} {} skipped\n", noun(wrong, "row"), was(wrong));
        }
        self.reading.messages.iter().for_each(|message| words += &format!("  {message}\n"));
        words
    }

    /// The same for the result file.
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
