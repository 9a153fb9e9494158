//! The opened file or block device, and what one call to the kernel does with it.

use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, FlockOperation};

use super::discard::discard;
use super::transfer::{Call, Kernel, Transfer, run};
use crate::tally::Tally;
use crate::{Completion, Geometry, Outcome, Request};

/// What is open. Its last owner (the device, or a request still in flight) closes it.
#[derive(Debug)]
pub(super) struct Medium {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) geometry: Geometry,
    pub(super) is_block_device: bool,
    pub(super) tally: Tally,
    /// Closed after `file`: fields drop in order.
    pub(super) _removal: Option<Removal>,
}

/// Removes the file, and the directory made for it, when dropped.
#[derive(Debug)]
pub(super) struct Removal {
    pub(super) armed: bool,
    pub(super) file: PathBuf,
    pub(super) directory: Option<PathBuf>,
}

impl Drop for Removal {
    /// Best effort: a file that somebody removed already, or a directory with something else in it, is no
    /// concern of a device that is going away.
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let _ = std::fs::remove_file(&self.file);
        if let Some(directory) = &self.directory {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

impl Drop for Medium {
    /// A kernel thread that ended the last transfer may hold the file a moment longer than we do; the lock must not
    /// wait for it.
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// A request on its way, with the end that waits for it.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) transfer: Transfer,
    completion: Completion,
}

impl Medium {
    /// The request as something to carry through the kernel. One that breaks the contract, or asks for nothing, ends
    /// at once.
    pub(super) fn accept(&self, request: Request, completion: Completion) -> Option<InFlight> {
        match self.check(request) {
            Ok(transfer) => Some(InFlight { transfer, completion }),
            Err(outcome) => {
                completion.complete(outcome);
                None
            }
        }
    }

    /// The same for a caller who waits: the outcome.
    pub(super) fn execute(&self, request: Request) -> Outcome {
        let transfer = match self.check(request) {
            Ok(transfer) => transfer,
            Err(outcome) => return outcome,
        };
        let (kind, bytes) = (transfer.request().kind(), transfer.request().len_bytes());
        let outcome = run(self, transfer, &self.path);
        self.tally.count(kind, bytes, &outcome);
        outcome
    }

    /// Counts and tells how a request ended. A caller who panics on being told is reported by the panic itself; the
    /// thread that tells him serves others too and goes on.
    pub(super) fn finish(&self, ended: Ended) {
        let Ended { kind, bytes, outcome, completion } = ended;
        self.tally.count(kind, bytes, &outcome);
        let _ = catch_unwind(AssertUnwindSafe(|| completion.complete(outcome)));
    }

    fn check(&self, request: Request) -> Result<Transfer, Outcome> {
        let (kind, bytes) = (request.kind(), request.len_bytes());
        let outcome = match (self.geometry.check(&request), request) {
            (Err(error), _) => Err(error),
            (Ok(()), Request::Read { buffer, .. }) if bytes == 0 => Ok(Some(buffer)),
            (Ok(()), Request::Write { .. } | Request::Trim { .. }) if bytes == 0 => Ok(None),
            (Ok(()), request) => return Ok(Transfer::new(request, self.geometry.block_bytes)),
        };
        self.tally.count(kind, bytes, &outcome);
        Err(outcome)
    }
}

/// A request that has ended and is to be told so.
pub(super) struct Ended {
    kind: crate::RequestKind,
    bytes: u64,
    outcome: Outcome,
    completion: Completion,
}

impl InFlight {
    /// Takes in the result of the last call: either the request has ended or it needs another call.
    pub(super) fn advance(
        mut self: Box<Self>,
        result: io::Result<usize>,
        medium: &Medium,
    ) -> Result<Ended, Box<Self>> {
        let (kind, bytes) = (self.transfer.request().kind(), self.transfer.request().len_bytes());
        match self.transfer.advance(result, &medium.path) {
            Some(outcome) => Ok(Ended { kind, bytes, outcome, completion: self.completion }),
            None => Err(self),
        }
    }

    /// Runs the rest on the calling thread.
    pub(super) fn run(self, medium: &Medium) -> Ended {
        let (kind, bytes) = (self.transfer.request().kind(), self.transfer.request().len_bytes());
        let outcome = run(medium, self.transfer, &medium.path);
        Ended { kind, bytes, outcome, completion: self.completion }
    }

    /// Ends the request with an error before it reached the kernel.
    pub(super) fn refuse(self, error: crate::IoError) -> Ended {
        let (kind, bytes) = (self.transfer.request().kind(), self.transfer.request().len_bytes());
        Ended { kind, bytes, outcome: Err(error), completion: self.completion }
    }
}

/// How a file forgets a range and keeps its size.
pub(super) const PUNCH_HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

impl Kernel for Medium {
    fn call(&self, call: Call<'_>) -> io::Result<usize> {
        match call {
            Call::Read { offset, into } => Ok(rustix::io::pread(&self.file, into, offset)?),
            Call::Write { offset, from } => Ok(rustix::io::pwrite(&self.file, from, offset)?),
            Call::Trim { offset, len } if self.is_block_device => {
                Ok(discard(&self.file, offset, len).map(|()| 0)?)
            }
            Call::Trim { offset, len } => {
                Ok(rustix::fs::fallocate(&self.file, PUNCH_HOLE, offset, len).map(|()| 0)?)
            }
            Call::Flush => Ok(rustix::fs::fdatasync(&self.file).map(|()| 0)?),
        }
    }
}
