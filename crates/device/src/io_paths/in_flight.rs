//! An open medium and its requests in flight: checked when accepted, counted when completed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use io_uring::squeue;

use super::medium::Medium;
use super::transfer::{Call, Transfer, run};
use crate::tally::Tally;
use crate::{Completion, ErrorKind, Geometry, IoBuffer, IoError, Outcome, Request, RequestKind};

/// A medium with its path. The last owner (the paths, or a request in flight) closes it.
#[derive(Debug)]
pub(crate) struct Open<M> {
    pub(crate) medium: M,
    pub(crate) path: PathBuf,
    /// The geometry at opening.
    geometry: Geometry,
    capacity_bytes: AtomicU64,
    /// Writes and trims are refused.
    read_only: bool,
    pub(super) tally: Tally,
    /// Requests in flight on the rings of [event loops](crate::event_loop).
    pub(super) on_thread_rings: AtomicUsize,
}

impl<M> Open<M> {
    pub(crate) fn new(medium: M, path: PathBuf, geometry: Geometry, read_only: bool) -> Self {
        Self {
            medium,
            path,
            geometry,
            capacity_bytes: AtomicU64::new(geometry.capacity_bytes),
            read_only,
            tally: Tally::default(),
            on_thread_rings: AtomicUsize::new(0),
        }
    }
}

impl<M> Open<M> {
    pub(crate) fn geometry(&self) -> Geometry {
        Geometry { capacity_bytes: self.capacity_bytes.load(Ordering::Acquire), ..self.geometry }
    }

    pub(crate) fn set_capacity(&self, bytes: u64) {
        self.capacity_bytes.store(bytes, Ordering::Release);
    }
}

/// A request in flight with its completion.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) transfer: Transfer,
    pub(super) completion: Completion,
}

impl<M: Medium> Open<M> {
    /// Converts the request to a transfer. One that is invalid or empty completes immediately.
    pub(super) fn accept(&self, request: Request, completion: Completion) -> Option<InFlight> {
        match self.check(request) {
            Ok(transfer) => Some(InFlight { transfer, completion }),
            Err(outcome) => {
                completion.complete(outcome);
                None
            }
        }
    }

    /// Executes a request for a blocking caller and returns the outcome.
    pub(super) fn execute(&self, request: Request) -> Outcome {
        let transfer = match self.check(request) {
            Ok(transfer) => transfer,
            Err(outcome) => return outcome,
        };
        let (kind, bytes) = (transfer.request().kind(), transfer.request().len_bytes());
        let outcome = run(&self.medium, transfer, &self.path);
        self.tally.count(kind, bytes, &outcome);
        outcome
    }

    /// Counts a completed request and calls its completion. A panic of the completion is reported by the panic itself; this thread serves
    /// other requests and continues.
    pub(super) fn finish(&self, completed: Completed) {
        let Completed { kind, bytes, outcome, completion } = completed;
        self.tally.count(kind, bytes, &outcome);
        let _ = catch_unwind(AssertUnwindSafe(|| completion.complete(outcome)));
    }

    pub(super) fn permit(&self, request: &Request) -> Result<(), IoError> {
        self.geometry().check(request)?;
        if self.read_only && matches!(request, Request::Write { .. } | Request::Trim { .. }) {
            let message = format!("{}: cannot write or trim: opened read-only", self.path.display());
            return Err(IoError::new(ErrorKind::Unsupported, message));
        }
        Ok(())
    }

    fn check(&self, request: Request) -> Result<Transfer, Outcome> {
        let (kind, bytes) = (request.kind(), request.len_bytes());
        let outcome = match (self.permit(&request), request) {
            (Err(error), _) => Err(error),
            (Ok(()), Request::Read { buffer, .. }) if bytes == 0 => Ok(buffer),
            (Ok(()), Request::Write { .. } | Request::Trim { .. }) if bytes == 0 => Ok(IoBuffer::empty()),
            (Ok(()), request) => return Ok(Transfer::new(request, self.geometry.block_bytes)),
        };
        self.tally.count(kind, bytes, &outcome);
        Err(outcome)
    }
}

/// An open medium of any type, for a ring that serves several.
pub(super) trait Opened: Send + Sync {
    /// As [`Medium::plain_entry`].
    fn plain_entry(&self, call: Call<'_>) -> Option<squeue::Entry>;

    /// As [`InFlight::advance`].
    fn advance(&self, request: &mut InFlight, result: i32) -> Option<Completed>;

    /// As [`Open::finish`].
    fn finish(&self, completed: Completed);
}

impl<M: Medium> Opened for Open<M> {
    fn plain_entry(&self, call: Call<'_>) -> Option<squeue::Entry> {
        self.medium.plain_entry(call)
    }

    fn advance(&self, request: &mut InFlight, result: i32) -> Option<Completed> {
        let completed = request.advance(result, self)?;
        self.on_thread_rings.fetch_sub(1, Ordering::Release);
        Some(completed)
    }

    fn finish(&self, completed: Completed) {
        self.finish(completed);
    }
}

/// A completed request whose completion was not called yet.
pub(super) struct Completed {
    kind: RequestKind,
    bytes: u64,
    outcome: Outcome,
    completion: Completion,
}

impl InFlight {
    /// Processes the result of the last call. Returns the completed request, or `None` if it needs another call.
    pub(super) fn advance<M: Medium>(&mut self, result: i32, open: &Open<M>) -> Option<Completed> {
        let (kind, bytes) = (self.transfer.request().kind(), self.transfer.request().len_bytes());
        let moved = M::moved(result, self.transfer.remaining_bytes());
        let outcome = self.transfer.advance(moved, &open.path)?;
        Some(Completed { kind, bytes, outcome, completion: self.completion.take() })
    }

    /// Runs the remaining calls on the calling thread.
    pub(super) fn run<M: Medium>(self, open: &Open<M>) -> Completed {
        let (kind, bytes) = (self.transfer.request().kind(), self.transfer.request().len_bytes());
        let outcome = run(&open.medium, self.transfer, &open.path);
        Completed { kind, bytes, outcome, completion: self.completion }
    }

    /// Completes the request with an error before it reached the kernel.
    pub(super) fn refuse(self, error: IoError) -> Completed {
        let (kind, bytes) = (self.transfer.request().kind(), self.transfer.request().len_bytes());
        Completed { kind, bytes, outcome: Err(error), completion: self.completion }
    }
}
