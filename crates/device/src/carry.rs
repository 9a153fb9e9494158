//! A request's way through the kernel, for whatever is open: a file, a block device, a namespace of a drive.
//!
//! Three ways lead there: [`Device::submit`](crate::Device::submit) through io_uring (`ring`), or through a few threads where
//! io_uring is not permitted or has no operation for it (`pool`), and [`Device::execute`](crate::Device::execute) by a
//! system call on the caller's own thread. What is open says in [`Medium`] what each of them asks the kernel.

mod pool;
mod ring;
pub(crate) mod seat;
pub(crate) mod transfer;

use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use io_uring::{cqueue, squeue, types};

use crate::file::{Engine, OpenOptions};
use crate::tally::Tally;
use crate::{
    Completion, Counters, ErrorKind, Geometry, IoError, IoSlice, Outcome, PlacementHandle, Request,
    RequestKind,
};
use pool::Pool;
use ring::Ring;
use transfer::{Call, Kernel, Transfer, kind_of, run};

/// What is open, and how the kernel is asked about it.
pub(crate) trait Medium: Kernel + Send + Sync + 'static {
    /// What the ring is given, and what it gives back.
    type Submission: squeue::EntryMarker;
    type Completion: cqueue::EntryMarker;

    /// The ring operations that its entries use.
    const OPERATIONS: &'static [u8];

    /// What entries call [`FILE`].
    fn fd(&self) -> BorrowedFd<'_>;

    /// Whether requests of this kind have an entry. The others go to threads that block.
    fn has_entry(&self, kind: RequestKind) -> bool;

    /// The ring's entry for a call.
    fn entry(&self, call: Call<'_>) -> Self::Submission;

    /// Whether [`plain_entry`](Self::plain_entry) gives entries.
    const HAS_PLAIN_ENTRIES: bool = false;

    /// The entry for a call on any ring, where the file goes by its descriptor.
    fn plain_entry(&self, call: Call<'_>) -> Option<squeue::Entry> {
        let _ = call;
        None
    }

    /// Copies `data` into memory in front of the medium that outlives this process, if there is any.
    fn absorb(&self, offset: u64, data: &[u8]) -> Option<io::Result<()>> {
        let _ = (offset, data);
        None
    }

    /// What the result of a call over `asked_bytes` says: bytes moved, or why none were.
    fn moved(result: i32, asked_bytes: usize) -> io::Result<usize>;
}

/// The medium's file, as registered with its ring.
pub(crate) const FILE: types::Fixed = types::Fixed(0);

/// A medium, and everything that carries requests to it. Dropping it waits for what is in flight.
pub(crate) struct Carrier<M: Medium> {
    ring: Option<Ring<M>>,
    pool: Pool<M>,
    open: Arc<Open<M>>,
}

/// A medium under its name. Its last owner (the carrier, or a request still in flight) closes it.
#[derive(Debug)]
pub(crate) struct Open<M> {
    pub(crate) medium: M,
    pub(crate) path: PathBuf,
    pub(crate) geometry: Geometry,
    /// Writes and trims are refused.
    read_only: bool,
    tally: Tally,
    /// Requests that the kernel has by the rings of threads at [desks](crate::desk).
    at_desks: AtomicUsize,
}

impl<M> Open<M> {
    pub(crate) fn new(medium: M, path: PathBuf, geometry: Geometry, options: &OpenOptions) -> Self {
        Self {
            medium,
            path,
            geometry,
            read_only: options.read_only,
            tally: Tally::default(),
            at_desks: AtomicUsize::new(0),
        }
    }
}

impl<M: Medium> Carrier<M> {
    /// Carries requests to what is `open` by `engine`, or by the best that is to be had.
    pub(crate) fn start(open: Open<M>, engine: Option<Engine>) -> Result<Self, IoError> {
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
                if let Err(request) = seat::submit(&self.open, request) {
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
        let request = Request::Write { offset, data: data.clone(), placement: PlacementHandle::DEFAULT };
        let absorbed = match open.permit(&request) {
            Ok(()) => open.medium.absorb(offset, data)?.map_err(|error| {
                let path = open.path.display();
                let context = format!("{path}: write of {} bytes at {offset}, into memory", data.len());
                IoError::with_source(kind_of(&error), context, error)
            }),
            Err(error) => Err(error),
        };
        let outcome = absorbed.map(|()| None);
        open.tally.count(RequestKind::Write, data.len() as u64, &outcome);
        Some(outcome.map(drop))
    }

    pub(crate) fn counters(&self) -> Counters {
        self.open.tally.counters()
    }
}

impl<M: Medium> Drop for Carrier<M> {
    fn drop(&mut self) {
        seat::settle(&self.open);
    }
}

/// A request on its way, with the end that waits for it.
#[derive(Debug)]
struct InFlight {
    transfer: Transfer,
    completion: Completion,
}

impl<M: Medium> Open<M> {
    /// The request as something to carry through the kernel. One that breaks the contract, or asks for nothing, ends
    /// at once.
    fn accept(&self, request: Request, completion: Completion) -> Option<InFlight> {
        match self.check(request) {
            Ok(transfer) => Some(InFlight { transfer, completion }),
            Err(outcome) => {
                completion.complete(outcome);
                None
            }
        }
    }

    /// The same for a caller who waits: the outcome.
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

    /// Counts and tells how a request ended. A caller who panics on being told is reported by the panic itself; the
    /// thread that tells him serves others too and goes on.
    fn finish(&self, ended: Ended) {
        let Ended { kind, bytes, outcome, completion } = ended;
        self.tally.count(kind, bytes, &outcome);
        let _ = catch_unwind(AssertUnwindSafe(|| completion.complete(outcome)));
    }

    fn permit(&self, request: &Request) -> Result<(), IoError> {
        self.geometry.check(request)?;
        if self.read_only && matches!(request, Request::Write { .. } | Request::Trim { .. }) {
            let words = format!("{}: cannot write or trim: opened read-only", self.path.display());
            return Err(IoError::new(ErrorKind::Unsupported, words));
        }
        Ok(())
    }

    fn check(&self, request: Request) -> Result<Transfer, Outcome> {
        let (kind, bytes) = (request.kind(), request.len_bytes());
        let outcome = match (self.permit(&request), request) {
            (Err(error), _) => Err(error),
            (Ok(()), Request::Read { buffer, .. }) if bytes == 0 => Ok(Some(buffer)),
            (Ok(()), Request::Write { .. } | Request::Trim { .. }) if bytes == 0 => Ok(None),
            (Ok(()), request) => return Ok(Transfer::new(request, self.geometry.block_bytes)),
        };
        self.tally.count(kind, bytes, &outcome);
        Err(outcome)
    }
}

/// What is open, whatever it is, to a ring that serves several.
trait Opened: Send + Sync {
    /// As [`Medium::plain_entry`].
    fn plain_entry(&self, call: Call<'_>) -> Option<squeue::Entry>;

    /// As [`InFlight::advance`].
    fn advance(&self, request: &mut InFlight, result: i32) -> Option<Ended>;

    /// As [`Open::finish`].
    fn finish(&self, ended: Ended);
}

impl<M: Medium> Opened for Open<M> {
    fn plain_entry(&self, call: Call<'_>) -> Option<squeue::Entry> {
        self.medium.plain_entry(call)
    }

    fn advance(&self, request: &mut InFlight, result: i32) -> Option<Ended> {
        let ended = request.advance(result, self)?;
        self.at_desks.fetch_sub(1, Ordering::Release);
        Some(ended)
    }

    fn finish(&self, ended: Ended) {
        self.finish(ended);
    }
}

/// A request that has ended and is to be told so.
struct Ended {
    kind: RequestKind,
    bytes: u64,
    outcome: Outcome,
    completion: Completion,
}

impl InFlight {
    /// Takes in the result of the last call: either the request has ended, and nothing is left here, or it needs another call.
    fn advance<M: Medium>(&mut self, result: i32, open: &Open<M>) -> Option<Ended> {
        let (kind, bytes) = (self.transfer.request().kind(), self.transfer.request().len_bytes());
        let moved = M::moved(result, self.transfer.left_bytes());
        let outcome = self.transfer.advance(moved, &open.path)?;
        Some(Ended { kind, bytes, outcome, completion: self.completion.take() })
    }

    /// Runs the rest on the calling thread.
    fn run<M: Medium>(self, open: &Open<M>) -> Ended {
        let (kind, bytes) = (self.transfer.request().kind(), self.transfer.request().len_bytes());
        let outcome = run(&open.medium, self.transfer, &open.path);
        Ended { kind, bytes, outcome, completion: self.completion }
    }

    /// Ends the request with an error before it reached the kernel.
    fn refuse(self, error: IoError) -> Ended {
        let (kind, bytes) = (self.transfer.request().kind(), self.transfer.request().len_bytes());
        Ended { kind, bytes, outcome: Err(error), completion: self.completion }
    }
}
