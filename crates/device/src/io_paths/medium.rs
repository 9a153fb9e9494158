//! The kernel calls of an open file or NVMe namespace, as system calls and as ring entries.

use std::io;
use std::os::fd::BorrowedFd;

use io_uring::{cqueue, squeue, types};

use super::transfer::{Call, Kernel};
use crate::RequestKind;

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
