//! The interface between front ends (NBD, FUSE, ublk) and the storage that they serve.
//!
//! A [`DeviceExport`] serves any device, a [`VolumeExport`] a cached disk. The others wrap an export: [`ByteExport`] accepts any offset
//! and length, [`RecordedExport`] records requests, [`MeasuredExport`] counts them, and [`ClientExport`] selects an export by
//! client. [`Tasks`] runs the futures of a volume.

mod absorbing;
mod bytes;
mod clients;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod contract;
mod current_volume;
mod device;
mod extents;
mod measured;
mod ranges;
mod recorded;
mod tasks;
mod transfers;
mod volume;

pub use bytes::ByteExport;
pub use clients::{Admission, Client, ClientExport, ClientName, ClientNameError, ClientRules};
pub use current_volume::{CurrentVolume, Exchange};
pub use device::DeviceExport;
pub use measured::{MeasuredExport, Meter, RequestKind, Requests};
pub use recorded::{Recorded, RecordedExport, Recording};
pub use tasks::Tasks;
pub(crate) use tasks::run_inline;
pub use volume::VolumeExport;

use ::device::{ErrorKind, IoError, IoSlice};

/// A range of bytes that clients read, write and flush.
///
/// # Contract
///
/// * **Shape.** Offsets and lengths are multiples of [`Shape::block_bytes`], lengths are not 0, and ranges end within
///   [`Shape::size_bytes`]; the front end has checked this. No buffer is longer than 32 MiB plus a block at each end.
/// * **Completion.** Every operation completes exactly once, on any thread, possibly within [`submit`](Self::submit),
///   which never waits for a device. A read returns as many bytes as were requested.
/// * **Durability.** A flush covers all writes that completed before it was submitted, by any client, so a client may use
///   several connections. A `durable` operation is flushed before it completes.
/// * **Order.** Operations in flight have no order.
pub trait Export: Send + Sync {
    /// The geometry of the export. Only the size can change, and only grow.
    fn shape(&self) -> Shape;

    /// Submits `operation`; its result is passed to `reply`.
    fn submit(&self, operation: Operation, reply: Reply);

    /// As [`submit`](Self::submit), with the client that makes the request. Most exports ignore it. Exports that distinguish clients must
    /// be the outermost ones.
    fn submit_for(&self, _client: &Client, operation: Operation, reply: Reply) {
        self.submit(operation, reply);
    }

    /// The contexts that [`extents`](Self::extents) supports.
    fn contexts(&self) -> &[Context] {
        &[Context::Allocation]
    }

    /// The status of `len` bytes at `offset`: from one to `most` extents, in order and without gaps. They may cover only the
    /// beginning of the range, and the last may extend past its end.
    ///
    /// # Errors
    /// If the status is unavailable.
    fn extents(&self, context: Context, offset: u64, len: u64, most: usize) -> Result<Vec<Extent>, IoError>;
}

/// Step size for zeroing and prefetching a range, which limits the memory needed.
pub(crate) const STEP_BYTES: usize = 256 << 10;

/// The geometry of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Unit of offsets and lengths, a power of two.
    pub block_bytes: u32,
    /// Sector size presented to clients, a power of two of at least 512: the logical block size of a block device, the minimum
    /// block size of NBD. Partition tables and file systems depend on it. Smaller requests are served if
    /// `block_bytes` permits.
    pub sector_bytes: u32,
    /// Preferred unit of requests, a power of two of at least `sector_bytes`: aligned requests are the fastest.
    pub preferred_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
}

/// The result of an operation: the bytes of a read, `None` for others.
pub type OperationResult = Result<Option<IoSlice>, IoError>;

/// Receives the result of an operation once, on any thread. If it is dropped, the result is an error.
pub struct Reply(Option<Box<dyn FnOnce(OperationResult) + Send>>);

impl Reply {
    /// Passes the result to `then`, which must not block.
    pub fn new(then: impl FnOnce(OperationResult) + Send + 'static) -> Self {
        Self(Some(Box::new(then)))
    }

    /// Delivers the result.
    pub fn send(mut self, result: OperationResult) {
        if let Some(then) = self.0.take() {
            then(result);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(then) = self.0.take() {
            then(Err(IoError::new(ErrorKind::Closed, "the operation was dropped")));
        }
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reply")
    }
}

/// An operation of an export.
#[derive(Debug)]
pub enum Operation {
    /// Reads `len` bytes at `offset`.
    Read {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u32,
    },
    /// Writes `data` at `offset`.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes to write.
        data: IoSlice,
        /// Whether the write must survive a power cut when it completes (FUA).
        durable: bool,
    },
    /// Zeroes a range.
    Zero {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Whether the space may be freed; otherwise later writes there must not fail for lack of space.
        may_trim: bool,
        /// Whether to fail with [`Unsupported`](ErrorKind::Unsupported) if zeroing is not faster than writing zeros.
        only_if_fast: bool,
        /// Whether the zeros must survive a power cut when the operation completes (FUA).
        durable: bool,
    },
    /// Discards a range, whose contents are then undefined.
    Trim {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Whether the trim must survive a power cut when the operation completes (FUA).
        durable: bool,
    },
    /// Reads a range into the cache. Completes when the range is read, or immediately if nothing must be read.
    Prefetch {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Makes all completed operations durable.
    Flush,
}

/// A property of ranges that clients can query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Context {
    /// Data or holes. Ranges of unknown status count as data.
    Allocation,
    /// Whether flash is newer than the disk.
    Dirty,
    /// Whether flash has the data.
    Cached,
}

impl Context {
    /// All contexts. The index is the identifier in the NBD protocol.
    pub const ALL: [Self; 3] = [Self::Allocation, Self::Dirty, Self::Cached];

    /// The name in the NBD protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Allocation => "base:allocation",
            Self::Dirty => "flashwright:dirty",
            Self::Cached => "flashwright:cached",
        }
    }
}

/// Consecutive bytes with the same status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes, not 0.
    pub len: u64,
    /// For [`Context::Allocation`]: 1 a hole, 2 zeros. For the others: 1 yes, 0 no.
    pub flags: u32,
}
