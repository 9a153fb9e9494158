//! What can be served: the seam between the fronts (NBD, FUSE) and whatever keeps the bytes.
//!
//! A [`DeviceExport`] serves any device, a [`VolumeExport`] a cached disk; a [`ByteExport`] takes requests of any offset and
//! length for either, and a [`RecordedExport`] writes down what is asked, a [`MeasuredExport`] counts it, a [`ClientExport`] goes by who
//! asks. [`Tasks`] runs the futures of a volume.

mod absorbing;
mod bytes;
mod clients;
mod device;
mod extents;
mod measured;
mod pieces;
mod ranges;
mod recorded;
mod tasks;
mod volume;

pub use bytes::ByteExport;
pub use clients::{Admission, Client, ClientExport, ClientName, ClientNameError, ClientRules};
pub use device::DeviceExport;
pub use measured::{MeasuredExport, Meter, RequestKind, Requests};
pub use recorded::{Recorded, RecordedExport, Recording};
pub use tasks::Tasks;
pub(crate) use tasks::staying;
pub use volume::VolumeExport;

use ::device::{ErrorKind, IoError, IoSlice};

/// A range of bytes that clients read, write and flush.
///
/// # Contract
///
/// * **Shape.** Offsets and lengths are multiples of [`Shape::block_bytes`], never 0 long, and end inside
///   [`Shape::size_bytes`]: the server has checked. No buffer is longer than 32 MiB and a block at each end.
/// * **Completion.** Every operation is completed exactly once, from any thread, perhaps within [`submit`](Self::submit),
///   which never waits for a medium. A read brings as many bytes as were asked for.
/// * **Durability.** A flush covers every write completed before it was submitted, whoever submitted them: that is what lets
///   one client use several connections. A `durable` operation is covered by the time it completes.
/// * **Order.** None between operations in flight at once.
pub trait Export: Send + Sync {
    /// What the export is like. Constant for its life.
    fn shape(&self) -> Shape;

    /// Starts `operation`; `caller` is told how it ended.
    fn submit(&self, operation: Operation, caller: Caller);

    /// The same, by a front that can tell who asks. Most exports treat all clients alike, and tell none behind them: what goes by
    /// who asks stands in front of the others.
    fn submit_for(&self, _client: &Client, operation: Operation, caller: Caller) {
        self.submit(operation, caller);
    }

    /// What can be asked about ranges.
    fn contexts(&self) -> &[Context] {
        &[Context::Allocation]
    }

    /// What is known of `len` bytes from `offset` on: at least one extent and at most `most`, in order, without gaps, from
    /// `offset` on. They may end before the range does, and the last may reach past it.
    ///
    /// # Errors
    /// If it cannot be told.
    fn extents(&self, context: Context, offset: u64, len: u64, most: usize) -> Result<Vec<Extent>, IoError>;
}

/// Bytes that an export takes at once, at most, of a range that is to be made zero or brought in: so much memory does it need.
pub(crate) const STEP_BYTES: usize = 256 << 10;

/// What an export is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes that can be addressed.
    pub size_bytes: u64,
    /// Unit of offsets and lengths, a power of two.
    pub block_bytes: u32,
    /// Sector size that clients see, a power of two of at least 512: the logical block size of a block device, the minimum
    /// block size of NBD. Partition tables and file systems depend on it. Requests in smaller units are served as far as
    /// `block_bytes` allows.
    pub sector_bytes: u32,
    /// Requests in multiples of this are the quick ones, a power of two of at least `sector_bytes`.
    pub preferred_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
}

/// How an operation ended: for a read with its bytes, for the rest with `None`.
pub type Answer = Result<Option<IoSlice>, IoError>;

/// Who waits for an operation: told once how it ended, on any thread. Dropped without a word, he is told that the operation
/// was lost.
pub struct Caller(Option<Box<dyn FnOnce(Answer) + Send>>);

impl Caller {
    /// A caller that runs `then`, which must not block.
    pub fn new(then: impl FnOnce(Answer) + Send + 'static) -> Self {
        Self(Some(Box::new(then)))
    }

    /// Tells how the operation ended.
    pub fn tell(mut self, answer: Answer) {
        if let Some(then) = self.0.take() {
            then(answer);
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if let Some(then) = self.0.take() {
            then(Err(IoError::new(ErrorKind::Closed, "the operation was dropped")));
        }
    }
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Caller")
    }
}

/// What an export is asked to do.
#[derive(Debug)]
pub enum Operation {
    /// Bring `len` bytes from `offset` on.
    Read {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u32,
    },
    /// Write `data` from `offset` on.
    Write {
        /// First byte.
        offset: u64,
        /// Written whole.
        data: IoSlice,
        /// Survives a power cut before it completes.
        durable: bool,
    },
    /// Make zeros of a range.
    Zero {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Space may be given back; otherwise later writes there must find room.
        may_trim: bool,
        /// Refuse, as [`Unsupported`](ErrorKind::Unsupported), what would be no quicker than writing zeros.
        only_if_fast: bool,
        /// As of a write.
        durable: bool,
    },
    /// Forget a range: it reads as anything afterwards.
    Trim {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// As of a write.
        durable: bool,
    },
    /// Get a range ready to be read soon. Completes when that has begun or was found not worth it.
    Prefetch {
        /// First byte.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Make all that was completed before survive a power cut.
    Flush,
}

/// What can be asked about a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Context {
    /// Which parts hold data and which are holes, as far as that is known: a part of which nothing is known counts as data.
    Allocation,
    /// Which parts are newer on flash than on disk.
    Dirty,
    /// Which parts flash has.
    Cached,
}

impl Context {
    /// All of them. The position is the identifier on the wire.
    pub const ALL: [Self; 3] = [Self::Allocation, Self::Dirty, Self::Cached];

    /// The name that clients ask for.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Allocation => "base:allocation",
            Self::Dirty => "flashwright:dirty",
            Self::Cached => "flashwright:cached",
        }
    }
}

/// Bytes of which the same is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes, not 0.
    pub len: u64,
    /// Of [`Context::Allocation`]: 1 a hole, 2 zeros. Of the others: 1 yes, 0 no.
    pub flags: u32,
}
