//! Writes the misses of a run as a trace (`missTraceFile`): the requests that a cache behind this one would receive.
//!
//! A request is written when it completes. Threads are at different rows of the input trace, so rows from several threads pass through
//! a window of [`WINDOW_ROWS`] that sorts them by time. A thread that falls further behind writes rows out of order, but none is
//! lost. Rows of a single thread are in order already.
//!
//! A write error does not end the run, as its other figures remain valid. The report names the error, and no file is left.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use workload::trace::{Miss, MissWriter, TenantNames, WriteError};

use super::error::OpenError;
use crate::config::plan::{ReplayPlan, RunPlan, WorkloadPlan};

/// Rows of several threads that wait to be sorted.
const WINDOW_ROWS: usize = 1 << 16;

/// The trace file, shared by all threads of an instance.
pub struct MissTrace {
    path: PathBuf,
    tenants: TenantNames,
    state: Mutex<State>,
}

/// The completed trace of misses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misses {
    /// The file.
    pub path: PathBuf,
    /// Requests that were not fully served by the cache, warm-up included.
    pub requests: u64,
}

struct State {
    /// `None` after the file was completed or failed.
    writer: Option<MissWriter>,
    window: BinaryHeap<Reverse<Row>>,
    window_rows: usize,
    requests: u64,
    failure: Option<WriteError>,
}

/// A row in the window, ordered by time and then by arrival.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    time_ns: u64,
    number: u64,
    line: Vec<u8>,
}

impl MissTrace {
    /// Creates the file at `path` for `threads` threads; `tenants` has the names of the tenants.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path, threads: usize, tenants: TenantNames) -> Result<Self, WriteError> {
        let state = State {
            writer: Some(MissWriter::create(path)?),
            window: BinaryHeap::new(),
            window_rows: if threads > 1 { WINDOW_ROWS } else { 0 },
            requests: 0,
            failure: None,
        };
        Ok(Self { path: path.to_owned(), tenants, state: Mutex::new(state) })
    }

    /// The names of the tenants.
    pub(super) fn tenants(&self) -> &TenantNames {
        &self.tenants
    }

    /// Adds a miss.
    pub(super) fn add(&self, miss: &Miss<'_>) {
        let mut line = Vec::new();
        miss.encode(&mut line);
        let mut state = self.state.lock();
        let number = state.requests;
        state.requests += 1;
        state.window.push(Reverse(Row { time_ns: miss.time_ns, number, line }));
        let max_rows = state.window_rows;
        state.drain(max_rows);
    }

    /// Completes the file. If the input trace was not `read` to its end, misses are incomplete, and the file is discarded.
    ///
    /// # Errors
    /// A message with the reason why there is no file.
    pub(super) fn finish(&self, read: bool) -> Result<Misses, String> {
        let mut state = self.state.lock();
        let requests = state.requests;
        if !read {
            state.writer = None;
            return Err("No misses were written: the trace was not read to its end".to_owned());
        }
        state.drain(0);
        let done = match (state.writer.take(), state.failure.take()) {
            (Some(writer), None) => writer.finish(),
            (_, failure) => failure.map_or(Ok(()), Err),
        };
        done.map_err(|error| format!("No misses were written: {error}"))?;
        Ok(Misses { path: self.path.clone(), requests })
    }
}

impl State {
    /// Writes the earliest rows until at most `max_rows` remain in the window.
    fn drain(&mut self, max_rows: usize) {
        while self.window.len() > max_rows
            && let Some(Reverse(row)) = self.window.pop()
        {
            let Some(writer) = &mut self.writer else { continue };
            if let Err(error) = writer.write(&row.line) {
                // Dropping the writer removes its file.
                (self.writer, self.failure) = (None, Some(error));
            }
        }
    }
}

/// Refuses a trace of misses that would overwrite an input trace.
///
/// # Errors
/// The number of the instance, and the error.
pub fn check(plan: &RunPlan) -> Result<(), (usize, OpenError)> {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let read: Vec<PathBuf> = plan
        .instances
        .iter()
        .filter_map(|it| replay(&it.workload))
        .flat_map(|it| &it.files)
        .filter_map(|it| real(it))
        .collect();
    for (number, instance) in plan.instances.iter().enumerate() {
        let Some(path) = path(&instance.workload) else { continue };
        let replaced = MissWriter::replaces(path);
        if replaced.iter().filter_map(|it| real(it)).any(|it| read.contains(&it)) {
            let message = format!("{KEY}: {} would overwrite an input trace", path.display());
            return Err((number, OpenError::Config(message)));
        }
    }
    Ok(())
}

/// Creates the trace of misses, if `plan` has one.
///
/// # Errors
/// The file cannot be created.
pub fn open(
    plan: &WorkloadPlan,
    threads: usize,
    tenants: Option<TenantNames>,
) -> Result<Option<MissTrace>, OpenError> {
    let create = |path: &Path| MissTrace::create(path, threads, tenants.unwrap_or_default());
    path(plan).map(create).transpose().map_err(|error| OpenError::Config(format!("{KEY}: {error}")))
}

const KEY: &str = "test_config.missTraceFile";

fn path(plan: &WorkloadPlan) -> Option<&Path> {
    replay(plan)?.miss_trace.as_deref()
}

fn replay(plan: &WorkloadPlan) -> Option<&ReplayPlan> {
    match plan {
        WorkloadPlan::Replay(plan) => Some(plan.as_ref()),
        WorkloadPlan::Online(_) | WorkloadPlan::Prepared { .. } | WorkloadPlan::Stressor(_) => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use workload::Fetch;

    use super::*;

    fn add(trace: &MissTrace, milliseconds: u64, key: &str) {
        let fetch = Fetch { header_bytes: 1, body_bytes: 2, from_bytes: 0, to_bytes: 2 };
        let (time_ns, key) = (milliseconds * 1_000_000, key.as_bytes());
        trace.add(&Miss { time_ns, key, fetch, ttl_seconds: 1, tenant: "" });
    }

    /// Times and keys of the rows.
    fn rows(path: &Path) -> Vec<(u64, String)> {
        let text = std::fs::read_to_string(path).unwrap();
        let row = |line: &str| {
            let mut fields = line.split(',');
            (fields.next().unwrap().parse().unwrap(), fields.next().unwrap().to_owned())
        };
        text.lines().skip(1).map(row).collect()
    }

    #[test]
    fn rows_of_several_threads_are_sorted_and_those_of_one_are_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("misses.csv");
        let written = |threads: usize| {
            let trace = MissTrace::create(&path, threads, TenantNames::default()).unwrap();
            [(5, "a"), (3, "b"), (5, "c"), (4, "d"), (3, "e")]
                .iter()
                .for_each(|(time, key)| add(&trace, *time, key));
            assert_eq!(trace.finish(true), Ok(Misses { path: path.clone(), requests: 5 }));
            rows(&path).into_iter().map(|(_, key)| key).collect::<Vec<_>>().concat()
        };
        assert_eq!((written(1), written(2)), ("abcde".to_owned(), "bedac".to_owned()));
    }

    #[test]
    fn row_later_than_the_window_is_written_out_of_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("misses.csv");
        let trace = MissTrace::create(&path, 2, TenantNames::default()).unwrap();
        let many = WINDOW_ROWS as u64 + 10;
        (0..many).for_each(|time| add(&trace, 100 + time, "on time"));
        add(&trace, 1, "late");
        assert_eq!(trace.state.lock().window.len(), WINDOW_ROWS, "memory is bounded");
        trace.finish(true).unwrap();
        let rows = rows(&path);
        let late = rows.iter().position(|(_, key)| key == "late");
        assert_eq!((rows.len() as u64, late), (many + 1, Some(10)));
        assert!(rows.windows(2).filter(|pair| pair[0].0 > pair[1].0).count() == 1);
    }

    #[test]
    fn input_not_read_to_its_end_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("misses.csv");
        let trace = MissTrace::create(&path, 1, TenantNames::default()).unwrap();
        add(&trace, 1, "a");
        assert!(trace.finish(false).unwrap_err().contains("was not read to its end"));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
