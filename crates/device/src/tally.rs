//! Counters that many threads update.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{Completion, Counters, Outcome, Request, RequestKind};

/// [`Counters`] that threads add to. Each number is exact; together they are not a consistent snapshot.
#[derive(Debug, Default)]
pub struct Tally {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    trimmed_bytes: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    trims: AtomicU64,
    flushes: AtomicU64,
    errors: AtomicU64,
}

impl Tally {
    /// Counts a completed request of `kind` over `bytes`. Call this before the completion, so that the caller finds its request counted.
    /// Failed requests count as errors only.
    pub fn count(&self, kind: RequestKind, bytes: u64, outcome: &Outcome) {
        let (requests, moved) = match kind {
            _ if outcome.is_err() => (&self.errors, None),
            RequestKind::Read => (&self.reads, Some(&self.read_bytes)),
            RequestKind::Write => (&self.writes, Some(&self.written_bytes)),
            RequestKind::Trim => (&self.trims, Some(&self.trimmed_bytes)),
            RequestKind::Flush => (&self.flushes, None),
        };
        requests.fetch_add(1, Relaxed);
        if let Some(moved) = moved {
            moved.fetch_add(bytes, Relaxed);
        }
    }

    /// Wraps `completion` of `request` so that the request is counted before it completes.
    pub fn counting(self: &Arc<Self>, request: &Request, completion: Completion) -> Completion {
        let (tally, kind, bytes) = (Arc::clone(self), request.kind(), request.len_bytes());
        Completion::new(move |outcome| {
            tally.count(kind, bytes, &outcome);
            completion.complete(outcome);
        })
    }

    /// The numbers so far; media bytes are unknown here.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            read_bytes: self.read_bytes.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
            trimmed_bytes: self.trimmed_bytes.load(Relaxed),
            reads: self.reads.load(Relaxed),
            writes: self.writes.load(Relaxed),
            trims: self.trims.load(Relaxed),
            flushes: self.flushes.load(Relaxed),
            errors: self.errors.load(Relaxed),
            media_written_bytes: None,
        }
    }
}
