//! What the parser tells of its work while it runs.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::trace::files::TraceFiles;
use crate::trace::{Cut, RowError, TenantNames, Unreadable};

/// Messages kept; a trace in the wrong format would fill memory with them.
const KEPT_MESSAGES: usize = 8;

/// Rows that describe no request for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The reason, without what stands in the rows.
    pub reason: String,
    /// How many there are.
    pub rows: u64,
    /// File, line and reason of the first.
    pub first: String,
}

/// How reading a trace goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayStats {
    /// Rows that became requests, however many of them, or were skipped on purpose, every pass counted. Brought up to date once a
    /// batch.
    pub rows: u64,
    /// Rows that describe no request, every pass counted.
    pub rejected_rows: u64,
    /// The same by their reasons, as they were met.
    pub rejected: Vec<Rejected>,
    /// File, line and reason of the first of those.
    pub messages: Vec<String>,
    /// Remarks about whole files and columns: that files are merged by time, or how many values of an optional column could not
    /// be read.
    pub notes: Vec<String>,
    /// Rows whose operation is not among those that are replayed.
    pub filtered_rows: u64,
    /// Requests that the replay asked for, repetitions and copies included: all of the trace if it was read to its end, else
    /// those up to the last one that a worker began.
    pub requests: u64,
    /// Whether the trace was read to the end of its last pass.
    pub read_to_end: bool,
    /// Whether the trace begins again at its end, any number of times.
    pub is_endless: bool,
    /// Why reading ended before the trace did, if it did.
    pub failure: Option<String>,
    /// What its requests were cut into.
    pub cut: Cut,
}

#[derive(Default)]
pub(super) struct Report {
    rows: AtomicU64,
    rejected_rows: AtomicU64,
    filtered_rows: AtomicU64,
    /// Requests of all rows that were read.
    requests_read: AtomicU64,
    /// Bytes taken from the files, compressed as they are.
    bytes_taken: Arc<AtomicU64>,
    /// Requests up to the last row that a worker was given.
    requests_handed_out: AtomicU64,
    read_to_end: AtomicBool,
    /// When the first row that was not skipped was recorded; set before any worker is given one.
    pub(super) first_time_ns: OnceLock<u64>,
    /// Who was met.
    pub(super) tenants: TenantNames,
    texts: Mutex<Texts>,
}

#[derive(Default)]
struct Texts {
    messages: Vec<String>,
    rejected: Vec<Rejected>,
    notes: Vec<String>,
    unreadable: Vec<Unreadable>,
    failure: Option<String>,
}

impl Report {
    pub(super) fn stats(&self, cut: Cut, is_endless: bool) -> ReplayStats {
        let read_to_end = self.read_to_end.load(Ordering::Relaxed);
        let requests = if read_to_end { &self.requests_read } else { &self.requests_handed_out };
        let texts = self.texts.lock().expect("writers only push strings");
        ReplayStats {
            rows: self.rows.load(Ordering::Relaxed),
            rejected_rows: self.rejected_rows.load(Ordering::Relaxed),
            filtered_rows: self.filtered_rows.load(Ordering::Relaxed),
            rejected: texts.rejected.clone(),
            messages: texts.messages.clone(),
            notes: texts
                .notes
                .iter()
                .cloned()
                .chain(texts.unreadable.iter().map(ToString::to_string))
                .collect(),
            requests: requests.load(Ordering::Relaxed),
            read_to_end,
            is_endless,
            failure: texts.failure.clone(),
            cut,
        }
    }

    pub(super) fn add_rows(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    pub(super) fn filter_out(&self) {
        self.filtered_rows.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn bytes_taken(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes_taken)
    }

    pub(super) fn read_requests(&self, requests: u64) {
        self.requests_read.store(requests, Ordering::Relaxed);
    }

    pub(super) fn handed_out(&self, requests: u64) {
        self.requests_handed_out.fetch_max(requests, Ordering::Relaxed);
    }

    pub(super) fn reached_end(&self) {
        self.read_to_end.store(true, Ordering::Relaxed);
    }

    pub(super) fn reject(&self, path: &Path, line: u64, error: &RowError) {
        self.rejected_rows.fetch_add(1, Ordering::Relaxed);
        let reason = error.kind();
        let message = || format!("{}:{line}: {error}", path.display());
        let mut texts = self.texts.lock().expect("writers only push strings");
        if texts.messages.len() < KEPT_MESSAGES {
            texts.messages.push(message());
        }
        match texts.rejected.iter_mut().find(|it| it.reason == reason) {
            Some(known) => known.rows += 1,
            None => {
                let reason = reason.into_owned();
                texts.rejected.push(Rejected { reason, rows: 1, first: message() });
            }
        }
    }

    /// Counts optional values of a row that were taken as absent.
    #[cold]
    pub(super) fn count_unreadable(&self, files: &TraceFiles, values: &[(&'static str, RowError)]) {
        let mut texts = self.texts.lock().expect("writers only push strings");
        for (column, reason) in values {
            let first = || format!("{}:{}: {reason}", files.path().display(), files.number());
            Unreadable::count(&mut texts.unreadable, column, first);
        }
    }

    /// Keeps remarks, each once.
    pub(super) fn note(&self, notes: &[String]) {
        let mut texts = self.texts.lock().expect("writers only push strings");
        for note in notes {
            if texts.notes.len() < KEPT_MESSAGES && !texts.notes.contains(note) {
                texts.notes.push(note.clone());
            }
        }
    }

    pub(super) fn fail(&self, failure: String) {
        self.texts.lock().expect("writers only push strings").failure.get_or_insert(failure);
    }
}
