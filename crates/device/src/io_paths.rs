//! The paths by which requests reach the kernel, for a file, a block device or an NVMe namespace.
//!
//! There are three paths: [`Device::submit`](crate::Device::submit) uses io_uring (`ring`), or a few threads if io_uring is not permitted
//! or does not support the request (`pool`); [`Device::execute`](crate::Device::execute) makes a system call on the caller's thread.
//! [`Medium`] defines the kernel calls of each path.

mod pool;
mod ring;
pub(crate) mod thread_ring;
pub(crate) mod transfer;

use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use io_uring::{cqueue, squeue, types};

use crate::file::{Engine, OpenOptions};
use crate::tally::Tally;
use crate::{
    Completion, Counters, ErrorKind, Geometry, IoBuffer, IoError, IoSlice, Outcome, Request, RequestKind,
};
use pool::Pool;
use ring::Ring;
use transfer::{Call, Kernel, Transfer, error_kind, run};

/// An open file or namespace, and its kernel calls.
pub(crate) trait Medium: Kernel + Send + Sync + 'static {
    /// Types of the ring's submission and completion entries.
    type Submission: squeue::EntryMarker;
    type Completion: cqueue::EntryMarker;

    /// The io_uring operations that the medium submits.
    const OPERATIONS: &'static [u8];

    /// The descriptor that entries refer to as [`FILE`].
    fn fd(&self) -> BorrowedFd<'_>;

    /// Whether requests of this kind have a ring entry. Others go to blocking threads.
    fn has_entry(&self, kind: RequestKind) -> bool;

    /// The ring's entry for a call.
    fn entry(&self, call: Call<'_>) -> Self::Submission;

    /// Whether [`plain_entry`](Self::plain_entry) returns entries.
    const HAS_PLAIN_ENTRIES: bool = false;

    /// The entry for a call on any ring, with the file's descriptor.
    fn plain_entry(&self, call: Call<'_>) -> Option<squeue::Entry> {
        let _ = call;
        None
    }

    /// Copies `data` into memory above the medium that outlives this process, if there is any.
    fn absorb(&self, offset: u64, data: &[u8]) -> Option<io::Result<()>> {
        let _ = (offset, data);
        None
    }

    /// Interprets the result of a call over `requested_bytes`: bytes moved, or an error.
    fn moved(result: i32, requested_bytes: usize) -> io::Result<usize>;
}

/// The medium's file, as registered with its ring.
pub(crate) const FILE: types::Fixed = types::Fixed(0);

/// A medium with its request paths. Dropping it waits for the requests in flight.
pub(crate) struct IoPaths<M: Medium> {
    ring: Option<Ring<M>>,
    pool: Pool<M>,
    open: Arc<Open<M>>,
}

/// A medium with its path. The last owner (the paths, or a request in flight) closes it.
#[derive(Debug)]
pub(crate) struct Open<M> {
    pub(crate) medium: M,
    pub(crate) path: PathBuf,
    /// At opening.
    geometry: Geometry,
    capacity_bytes: AtomicU64,
    /// Writes and trims are refused.
    read_only: bool,
    tally: Tally,
    /// Requests in flight on the rings of [event loops](crate::event_loop).
    on_thread_rings: AtomicUsize,
}

impl<M> Open<M> {
    pub(crate) fn new(medium: M, path: PathBuf, geometry: Geometry, options: &OpenOptions) -> Self {
        Self {
            medium,
            path,
            geometry,
            capacity_bytes: AtomicU64::new(geometry.capacity_bytes),
            read_only: options.read_only,
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

impl<M: Medium> IoPaths<M> {
    /// The paths to `open` that `engine` uses, or the best available ones.
    pub(crate) fn new(open: Open<M>, engine: Option<Engine>) -> Result<Self, IoError> {
        let open = Arc::new(open);
        let ring = match engine {
            Some(Engine::ThreadPool) => None,
            Some(Engine::IoUring) => Some(Ring::new(Arc::clone(&open)).map_err(|error| {
                let context = format!("{}: io_uring is not available", open.path.display());
                IoError::with_source(ErrorKind::Unsupported, context, error)
            })?),
            None => Ring::new(Arc::clone(&open)).ok(),
        };
        Ok(Self { ring, pool: Pool::new(Arc::clone(&open)), open })
    }

    pub(crate) fn engine(&self) -> Engine {
        if self.ring.is_some() { Engine::IoUring } else { Engine::ThreadPool }
    }

    pub(crate) fn open(&self) -> &Open<M> {
        &self.open
    }

    pub(crate) fn submit(&self, request: Request, completion: Completion) {
        let has_entry = self.open.medium.has_entry(request.kind());
        let Some(request) = self.open.accept(request, completion) else { return };
        match &self.ring {
            Some(ring) if has_entry => {
                if let Err(request) = thread_ring::submit(&self.open, request) {
                    ring.submit(request);
                }
            }
            _ => self.pool.submit(request),
        }
    }

    pub(crate) fn execute(&self, request: Request) -> Outcome {
        self.open.execute(request)
    }

    /// As [`Device::absorb`](crate::Device::absorb).
    pub(crate) fn absorb(&self, offset: u64, data: &IoSlice) -> Option<Result<(), IoError>> {
        let open = &*self.open;
        let request = Request::write(offset, data.clone());
        let absorbed = match open.permit(&request) {
            Ok(()) => open.medium.absorb(offset, data)?.map_err(|error| {
                let path = open.path.display();
                let context = format!("{path}: write of {} bytes at {offset}, into memory", data.len());
                IoError::with_source(error_kind(&error), context, error)
            }),
            Err(error) => Err(error),
        };
        let outcome = absorbed.map(|()| IoBuffer::empty());
        open.tally.count(RequestKind::Write, data.len() as u64, &outcome);
        Some(outcome.map(drop))
    }

    pub(crate) fn counters(&self) -> Counters {
        self.open.tally.counters()
    }
}

impl<M: Medium> Drop for IoPaths<M> {
    fn drop(&mut self) {
        thread_ring::wait_until_idle(&self.open);
    }
}

/// A request in flight with its completion.
#[derive(Debug)]
struct InFlight {
    transfer: Transfer,
    completion: Completion,
}

impl<M: Medium> Open<M> {
    /// Converts the request to a transfer. One that is invalid or empty completes immediately.
    fn accept(&self, request: Request, completion: Completion) -> Option<InFlight> {
        match self.check(request) {
            Ok(transfer) => Some(InFlight { transfer, completion }),
            Err(outcome) => {
                completion.complete(outcome);
                None
            }
        }
    }

    /// Executes a request for a blocking caller and returns the outcome.
    fn execute(&self, request: Request) -> Outcome {
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
    fn finish(&self, completed: Completed) {
        let Completed { kind, bytes, outcome, completion } = completed;
        self.tally.count(kind, bytes, &outcome);
        let _ = catch_unwind(AssertUnwindSafe(|| completion.complete(outcome)));
    }

    fn permit(&self, request: &Request) -> Result<(), IoError> {
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
trait Opened: Send + Sync {
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
struct Completed {
    kind: RequestKind,
    bytes: u64,
    outcome: Outcome,
    completion: Completion,
}

impl InFlight {
    /// Processes the result of the last call. Returns the completed request, or `None` if it needs another call.
    fn advance<M: Medium>(&mut self, result: i32, open: &Open<M>) -> Option<Completed> {
        let (kind, bytes) = (self.transfer.request().kind(), self.transfer.request().len_bytes());
        let moved = M::moved(result, self.transfer.remaining_bytes());
        let outcome = self.transfer.advance(moved, &open.path)?;
        Some(Completed { kind, bytes, outcome, completion: self.completion.take() })
    }

    /// Runs the remaining calls on the calling thread.
    fn run<M: Medium>(self, open: &Open<M>) -> Completed {
        let (kind, bytes) = (self.transfer.request().kind(), self.transfer.request().len_bytes());
        let outcome = run(&open.medium, self.transfer, &open.path);
        Completed { kind, bytes, outcome, completion: self.completion }
    }

    /// Completes the request with an error before it reached the kernel.
    fn refuse(self, error: IoError) -> Completed {
        let (kind, bytes) = (self.transfer.request().kind(), self.transfer.request().len_bytes());
        Completed { kind, bytes, outcome: Err(error), completion: self.completion }
    }
}
