//! The misses of a run as a trace (`missTraceFile`): what the cache behind this one would be asked for.
//!
//! A request is written when it is over. Threads are at different places of the trace, so what several of them hand in waits in
//! a window of [`WINDOW_ROWS`] and leaves it by its time: rows are in order unless a thread falls that many misses behind the
//! others, and then late, not lost. What one thread hands in is in order already.
//!
//! A file that cannot be written does not end the run, whose figures are worth more; the report says so, and there is no file.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use workload::trace::{Miss, MissWriter, TenantNames, WriteError};

use super::error::OpenError;
use crate::config::plan::{ReplayPlan, RunPlan, WorkloadPlan};

/// Misses of several threads that wait to be brought in order.
const WINDOW_ROWS: usize = 1 << 16;

/// The trace, as all threads of an instance write it.
pub struct MissTrace {
    path: PathBuf,
    tenants: TenantNames,
    state: Mutex<State>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misses {
    /// Where.
    pub path: PathBuf,
    /// Requests that were not answered in full, those of the warm-up too.
    pub requests: u64,
}

struct State {
    /// `None` once it is complete, or could not be written.
    writer: Option<MissWriter>,
    window: BinaryHeap<Reverse<Row>>,
    window_rows: usize,
    requests: u64,
    failure: Option<WriteError>,
}

/// A row that waits. Of those of one time, the one that came first is the first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    time_ns: u64,
    number: u64,
    line: Vec<u8>,
}

impl MissTrace {
    /// A trace that will be called `path`, of so many threads; tenants are called by `tenants`.
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

    /// Who the tenants are.
    pub(super) fn tenants(&self) -> &TenantNames {
        &self.tenants
    }

    /// Takes a miss in.
    pub(super) fn add(&self, miss: &Miss<'_>) {
        let mut line = Vec::new();
        miss.encode(&mut line);
        let mut state = self.state.lock();
        let number = state.requests;
        state.requests += 1;
        state.window.push(Reverse(Row { time_ns: miss.time_ns, number, line }));
        let most = state.window_rows;
        state.let_go(most);
    }

    /// Completes the file, where the run was one: a trace that could not be `read` to its end has misses that nobody saw.
    ///
    /// # Errors
    /// In words, why there is no file.
    pub(super) fn finish(&self, read: bool) -> Result<Misses, String> {
        let mut state = self.state.lock();
        let requests = state.requests;
        if !read {
            state.writer = None;
            return Err("No misses were written: the trace was not read to its end".to_owned());
        }
        state.let_go(0);
        let done = match (state.writer.take(), state.failure.take()) {
            (Some(writer), None) => writer.finish(),
            (_, failure) => failure.map_or(Ok(()), Err),
        };
        done.map_err(|error| format!("No misses were written: {error}"))?;
        Ok(Misses { path: self.path.clone(), requests })
    }
}

impl State {
    /// Writes the first rows until at most `most` wait.
    fn let_go(&mut self, most: usize) {
        while self.window.len() > most
            && let Some(Reverse(row)) = self.window.pop()
        {
            let Some(writer) = &mut self.writer else { continue };
            if let Err(error) = writer.write(&row.line) {
                // With the writer goes what it had written.
                (self.writer, self.failure) = (None, Some(error));
            }
        }
    }
}

/// Refuses what would be written over a trace that is read.
///
/// # Errors
/// The number of the instance that says so, and what is wrong.
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
            let words = format!("{KEY}: {} would overwrite an input trace", path.display());
            return Err((number, OpenError::Config(words)));
        }
    }
    Ok(())
}

/// The trace that the misses of a run are written to, if any, begun.
///
/// # Errors
/// It cannot be created.
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
    fn misses_of_several_threads_are_brought_in_order_and_those_of_one_are_left_as_they_are() {
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
    fn a_miss_that_comes_after_the_window_is_late_and_not_lost() {
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
    fn a_trace_that_was_not_read_to_its_end_leaves_no_misses() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("misses.csv");
        let trace = MissTrace::create(&path, 1, TenantNames::default()).unwrap();
        add(&trace, 1, "a");
        assert!(trace.finish(false).unwrap_err().contains("was not read to its end"));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
