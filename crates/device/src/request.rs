//! Requests and their completion.

use crate::{ErrorKind, IoBuffer, IoError, IoSlice, PlacementHandle};

/// A request to a device. The contract is in [`crate::Device`].
#[derive(Debug)]
pub enum Request {
    /// Fill `buffer` from `offset` on.
    Read {
        /// First byte on the device.
        offset: u64,
        /// The buffer, which a successful read fills completely and returns in the [`Outcome`].
        buffer: IoBuffer,
    },
    /// Write `data` from `offset` on.
    Write {
        /// First byte on the device.
        offset: u64,
        /// The data, which a successful write has written completely.
        data: IoSlice,
        /// Placement on a device that supports it.
        placement: PlacementHandle,
    },
    /// Discard a range.
    Trim {
        /// First byte on the device.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Make all completed writes durable.
    Flush,
}

/// The kind of a request, for counting and measuring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestKind {
    /// [`Request::Read`].
    Read,
    /// [`Request::Write`].
    Write,
    /// [`Request::Trim`].
    Trim,
    /// [`Request::Flush`].
    Flush,
}

impl Request {
    /// A read of `len` bytes into a new buffer.
    #[must_use]
    pub fn read(offset: u64, len: usize) -> Self {
        Self::Read { offset, buffer: IoBuffer::zeroed(len) }
    }

    /// A write with the default placement.
    #[must_use]
    pub fn write(offset: u64, data: impl Into<IoSlice>) -> Self {
        Self::Write { offset, data: data.into(), placement: PlacementHandle::DEFAULT }
    }

    /// The kind of this request.
    #[must_use]
    pub fn kind(&self) -> RequestKind {
        match self {
            Self::Read { .. } => RequestKind::Read,
            Self::Write { .. } => RequestKind::Write,
            Self::Trim { .. } => RequestKind::Trim,
            Self::Flush => RequestKind::Flush,
        }
    }

    /// Length in bytes: of the buffer or the trimmed range, 0 for a flush.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        match self {
            Self::Read { buffer, .. } => buffer.len() as u64,
            Self::Write { data, .. } => data.len() as u64,
            Self::Trim { len, .. } => *len,
            Self::Flush => 0,
        }
    }
}

/// The result of a request: the filled buffer of a read, otherwise an empty buffer.
pub type Outcome = Result<IoBuffer, IoError>;

/// The callback of a request, called once with its outcome.
pub struct Completion(Option<Box<dyn FnOnce(Outcome) + Send>>);

impl Completion {
    /// A completion that runs `then`. It can run on any thread, also within `submit`, and must not block.
    pub fn new(then: impl FnOnce(Outcome) + Send + 'static) -> Self {
        Self(Some(Box::new(then)))
    }

    /// Moves the completion out of a request that is dropped, so that the drop does not call it.
    pub(crate) fn take(&mut self) -> Self {
        Self(self.0.take())
    }

    /// Calls the callback with the outcome.
    pub fn complete(mut self, outcome: Outcome) {
        if let Some(then) = self.0.take() {
            then(outcome);
        }
    }
}

impl Drop for Completion {
    /// A device that drops a request must not leave its caller waiting indefinitely.
    fn drop(&mut self) {
        if let Some(then) = self.0.take() {
            then(Err(IoError::new(ErrorKind::Closed, "the device dropped the request")));
        }
    }
}

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Completion")
    }
}
