//! Progress of a request through the kernel: the next call, and when the request is complete.
//!
//! The kernel can transfer fewer bytes than requested, or require a repetition. Only this file handles that; the ring, the pool and the
//! blocking path pass calls and results.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use crate::nvme::Status;
use crate::{ErrorKind, IoBuffer, IoError, Outcome, PlacementHandle, Request, RequestKind};

/// Consecutive attempts without progress before a transfer fails. Interruptions and EAGAIN resolve within a few; only a broken driver comes
/// near this.
const MAX_ATTEMPTS_WITHOUT_PROGRESS: u32 = 64;

/// A call to the kernel.
#[derive(Debug)]
pub(crate) enum Call<'a> {
    Read { offset: u64, into: &'a mut [u8] },
    Write { offset: u64, from: &'a [u8], placement: PlacementHandle },
    Trim { offset: u64, len: u64 },
    Flush,
}

/// Executes one call: the real kernel, or a test's.
pub(crate) trait Kernel {
    /// Bytes moved (0 for trim and flush), perhaps fewer than requested.
    fn call(&self, call: Call<'_>) -> io::Result<usize>;
}

/// A request and its progress.
#[derive(Debug)]
pub(crate) struct Transfer {
    request: Request,
    done: usize,
    attempts_without_progress: u32,
    block_bytes: usize,
}

impl Transfer {
    pub(crate) fn new(request: Request, block_bytes: u32) -> Self {
        Self { request, done: 0, attempts_without_progress: 0, block_bytes: block_bytes as usize }
    }

    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// The next call: the whole request, or the remaining part.
    pub(crate) fn next_call(&mut self) -> Call<'_> {
        let done = self.done;
        match &mut self.request {
            Request::Read { offset, buffer } => {
                Call::Read { offset: *offset + done as u64, into: &mut buffer[done..] }
            }
            Request::Write { offset, data, placement } => {
                Call::Write { offset: *offset + done as u64, from: &data[done..], placement: *placement }
            }
            Request::Trim { offset, len } => Call::Trim { offset: *offset, len: *len },
            Request::Flush => Call::Flush,
        }
    }

    /// Bytes of the next call; 0 for a trim or a flush.
    pub(crate) fn remaining_bytes(&self) -> usize {
        match self.request.kind() {
            RequestKind::Read | RequestKind::Write => self.request.len_bytes() as usize - self.done,
            RequestKind::Trim | RequestKind::Flush => 0,
        }
    }

    /// Processes the result of the last call. Returns the outcome when the request is complete; otherwise another call is due.
    pub(crate) fn advance(&mut self, result: io::Result<usize>, path: &Path) -> Option<Outcome> {
        match result {
            Ok(moved) => self.moved(moved, path),
            Err(error) if is_transient(&error) => self.stop_without_progress(path, Some(error)),
            Err(error) => Some(Err(self.failed(path, error))),
        }
    }

    fn moved(&mut self, moved: usize, path: &Path) -> Option<Outcome> {
        let len = match self.request.kind() {
            RequestKind::Read | RequestKind::Write => self.request.len_bytes() as usize,
            RequestKind::Trim | RequestKind::Flush => return Some(Ok(IoBuffer::empty())),
        };
        let reached = self.done + moved;
        if reached >= len {
            return Some(Ok(self.take_buffer()));
        }
        if moved == 0 {
            let what = self.describe(path);
            return Some(Err(IoError::new(
                ErrorKind::Medium,
                format!("{what}: completed after {reached} bytes"),
            )));
        }
        // Direct I/O continues at whole blocks only; a partly transferred block is transferred again.
        let whole = reached - reached % self.block_bytes;
        if whole == self.done {
            return self.stop_without_progress(path, None);
        }
        self.done = whole;
        self.attempts_without_progress = 0;
        None
    }

    fn stop_without_progress(&mut self, path: &Path, error: Option<io::Error>) -> Option<Outcome> {
        self.attempts_without_progress += 1;
        if self.attempts_without_progress < MAX_ATTEMPTS_WITHOUT_PROGRESS {
            return None;
        }
        let what =
            format!("{}: no progress in {} attempts", self.describe(path), self.attempts_without_progress);
        Some(Err(match error {
            Some(error) => IoError::with_source(ErrorKind::Medium, what, error),
            None => IoError::new(ErrorKind::Medium, what),
        }))
    }

    fn take_buffer(&mut self) -> IoBuffer {
        match std::mem::replace(&mut self.request, Request::Flush) {
            Request::Read { buffer, .. } => buffer,
            _ => IoBuffer::empty(),
        }
    }

    fn failed(&self, path: &Path, error: io::Error) -> IoError {
        IoError::with_source(error_kind(&error), self.describe(path), error)
    }

    fn describe(&self, path: &Path) -> String {
        let (path, len) = (path.display(), self.request.len_bytes());
        match &self.request {
            Request::Read { offset, .. } => format!("{path}: read of {len} bytes at {offset}"),
            Request::Write { offset, .. } => format!("{path}: write of {len} bytes at {offset}"),
            Request::Trim { offset, .. } => format!("{path}: trim of {len} bytes at {offset}"),
            Request::Flush => format!("{path}: flush"),
        }
    }
}

/// Runs `transfer` to completion on the calling thread.
pub(crate) fn run(kernel: &impl Kernel, mut transfer: Transfer, path: &Path) -> Outcome {
    loop {
        let result = kernel.call(transfer.next_call());
        if let Some(outcome) = transfer.advance(result, path) {
            return outcome;
        }
    }
}

/// Whether the error is temporary. Requests can be cancelled when the thread that submitted them ends.
fn is_transient(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INTR | Errno::AGAIN | Errno::CANCELED))
        || Status::of(error).is_some_and(Status::is_temporary)
}

/// The error kind of a failed transfer, from the drive's status or the system's error.
pub(crate) fn error_kind(error: &io::Error) -> ErrorKind {
    if let Some(status) = Status::of(error) {
        return status.kind();
    }
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => ErrorKind::NoSpace,
        Some(Errno::INVAL) => ErrorKind::Invalid,
        Some(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS) => ErrorKind::Unsupported,
        Some(Errno::BUSY) => ErrorKind::Busy,
        _ => ErrorKind::Medium,
    }
}

#[cfg(test)]
mod tests;
