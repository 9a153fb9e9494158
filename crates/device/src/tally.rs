//! Counters that many threads update.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::{AtomicCounters, Completion, Counters, Outcome, Request, RequestKind};

/// [`Counters`] that threads add to. Each number is exact; together they are not a consistent snapshot.
#[derive(Debug, Default)]
pub struct Tally(AtomicCounters);

impl Tally {
    /// Counts a completed request of `kind` over `bytes`. Call this before the completion, so that the caller finds its request counted.
    /// Failed requests count as errors only.
    pub fn count(&self, kind: RequestKind, bytes: u64, outcome: &Outcome) {
        let (requests, moved) = match kind {
            _ if outcome.is_err() => (&self.0.errors, None),
            RequestKind::Read => (&self.0.reads, Some(&self.0.read_bytes)),
            RequestKind::Write => (&self.0.writes, Some(&self.0.written_bytes)),
            RequestKind::Trim => (&self.0.trims, Some(&self.0.trimmed_bytes)),
            RequestKind::Flush => (&self.0.flushes, None),
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
        self.0.read()
    }
}
