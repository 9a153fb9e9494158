//! The paths by which requests reach the kernel, for a file, a block device or an NVMe namespace.
//!
//! There are three paths: [`Device::submit`](crate::Device::submit) uses io_uring (`ring`), or a few threads if io_uring is not permitted
//! or does not support the request (`pool`); [`Device::execute`](crate::Device::execute) makes a system call on the caller's thread.
//! [`Medium`] defines the kernel calls of each path.

mod engine;
mod in_flight;
mod medium;
mod pool;
mod ring;
pub(crate) mod thread_ring;
pub(crate) mod transfer;

use std::sync::Arc;

use crate::{Completion, Counters, ErrorKind, IoBuffer, IoError, IoSlice, Outcome, Request, RequestKind};
pub use engine::Engine;
pub(crate) use in_flight::Open;
pub(crate) use medium::{FILE, Medium};
use pool::Pool;
use ring::Ring;
use transfer::error_kind;

/// A medium with its request paths. Dropping it waits for the requests in flight.
pub(crate) struct IoPaths<M: Medium> {
    ring: Option<Ring<M>>,
    pool: Pool<M>,
    open: Arc<Open<M>>,
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
