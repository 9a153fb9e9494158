//! Statistics of the parser while it runs.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::trace::files::TraceFiles;
use crate::trace::{Cut, RowError, TenantNames, Unreadable};

/// Largest number of stored messages; a trace in the wrong format would fill memory with them.
const KEPT_MESSAGES: usize = 8;

/// Invalid rows with the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The reason, without the rows' values.
    pub reason: String,
    /// Number of rows.
    pub rows: u64,
    /// File, line and reason of the first.
    pub first: String,
}

/// Statistics of reading a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayStats {
    /// Rows that became requests, however many, or were skipped on request; all passes together. Updated once per batch.
    pub rows: u64,
    /// Rows that describe no request, all passes together.
    pub rejected_rows: u64,
    /// Rejected rows by reason, in order of appearance.
    pub rejected: Vec<Rejected>,
    /// File, line and reason of the first few rejected rows.
    pub messages: Vec<String>,
    /// Notes about whole files and columns: for example that files are merged by time, or how many values of an optional column were
    /// unreadable.
    pub notes: Vec<String>,
    /// Rows whose operation is not among those replayed.
    pub filtered_rows: u64,
    /// Requests including repetitions and copies: all of the trace if it was read to the end, otherwise up to the last one that a worker
    /// started.
    pub requests: u64,
    /// Whether the trace was read to the end of its last pass.
    pub read_to_end: bool,
    /// Whether the trace restarts at its end without a limit.
    pub is_endless: bool,
    /// The error that ended reading, if any.
    pub failure: Option<String>,
    /// The division of requests into items.
    pub cut: Cut,
}

#[derive(Default)]
pub(super) struct Report {
    rows: AtomicU64,
    rejected_rows: AtomicU64,
    filtered_rows: AtomicU64,
    /// Requests of all rows read.
    requests_read: AtomicU64,
    /// Bytes read from the files, before decompression.
    bytes_taken: Arc<AtomicU64>,
    /// Requests up to the last row that a worker received.
    requests_handed_out: AtomicU64,
    read_to_end: AtomicBool,
    /// Timestamp of the first row that was not skipped; set before any worker receives one.
    pub(super) first_time_ns: OnceLock<u64>,
    /// Tenants seen so far.
    pub(super) tenants: TenantNames,
    messages: Mutex<Messages>,
}

#[derive(Default)]
struct Messages {
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
        let messages = self.messages.lock().expect("writers only push strings");
        ReplayStats {
            rows: self.rows.load(Ordering::Relaxed),
            rejected_rows: self.rejected_rows.load(Ordering::Relaxed),
            filtered_rows: self.filtered_rows.load(Ordering::Relaxed),
            rejected: messages.rejected.clone(),
            messages: messages.messages.clone(),
            notes: messages
                .notes
                .iter()
                .cloned()
                .chain(messages.unreadable.iter().map(ToString::to_string))
                .collect(),
            requests: requests.load(Ordering::Relaxed),
            read_to_end,
            is_endless,
            failure: messages.failure.clone(),
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
        let mut messages = self.messages.lock().expect("writers only push strings");
        if messages.messages.len() < KEPT_MESSAGES {
            messages.messages.push(message());
        }
        match messages.rejected.iter_mut().find(|it| it.reason == reason) {
            Some(known) => known.rows += 1,
            None => {
                let reason = reason.into_owned();
                messages.rejected.push(Rejected { reason, rows: 1, first: message() });
            }
        }
    }

    /// Counts optional values of a row that were treated as absent.
    #[cold]
    pub(super) fn count_unreadable(&self, files: &TraceFiles, values: &[(&'static str, RowError)]) {
        let mut messages = self.messages.lock().expect("writers only push strings");
        for (column, reason) in values {
            let first = || format!("{}:{}: {reason}", files.path().display(), files.number());
            Unreadable::count(&mut messages.unreadable, column, reason, first);
        }
    }

    /// Adds notes, each only once.
    pub(super) fn note(&self, notes: &[String]) {
        let mut messages = self.messages.lock().expect("writers only push strings");
        for note in notes {
            if messages.notes.len() < KEPT_MESSAGES && !messages.notes.contains(note) {
                messages.notes.push(note.clone());
            }
        }
    }

    pub(super) fn fail(&self, failure: String) {
        self.messages.lock().expect("writers only push strings").failure.get_or_insert(failure);
    }
}
