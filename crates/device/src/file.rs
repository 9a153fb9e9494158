//! A file or a raw block device, transferred directly and asynchronously.
//!
//! Three ways lead to the kernel: [`Device::submit`] through io_uring (`ring`), or through a few threads where
//! io_uring is not permitted (`pool`), and [`Device::execute`] by plain system calls on the caller's own thread.

mod claim;
mod discard;
mod medium;
mod open;
mod pool;
mod probe;
mod ring;
mod transfer;

use std::path::Path;
use std::sync::Arc;

use crate::{Completion, Counters, Device, ErrorKind, Geometry, IoError, Outcome, Request, RequestKind};
use medium::Medium;
pub use open::OpenOptions;
use pool::Pool;
use ring::Ring;

/// A file or a raw block device that nobody else uses meanwhile.
///
/// Dropping it waits for the requests in flight; its threads are gone then.
pub struct FileDevice {
    ring: Option<Ring>,
    pool: Pool,
    medium: Arc<Medium>,
}

/// What carries submitted requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// io_uring and one thread that sleeps until something has ended.
    IoUring,
    /// A few threads that block: what is left where io_uring is not permitted.
    ThreadPool,
}

impl FileDevice {
    /// Opens, and creates if asked to, the file or block device at `path`.
    ///
    /// # Errors
    /// * [`ErrorKind::Open`]: no such path, no permission, a size that does not fit what
    ///   is there;
    /// * [`ErrorKind::Busy`]: somebody else has it open as a device, or it is mounted;
    /// * [`ErrorKind::Unsupported`]: direct I/O is refused and
    ///   [`OpenOptions::buffered`] was not asked for, or the [`OpenOptions::engine`] asked for is not to be had;
    /// * [`ErrorKind::NoSpace`]: the disk has no room for the file.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self, IoError> {
        Self::start(open::open(path.as_ref(), options, None)?, options.engine)
    }

    /// Makes a file of `options.size_bytes` in a directory of its own inside `directory`. Both are removed when the
    /// device is dropped.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn create_temporary(directory: impl AsRef<Path>, options: &OpenOptions) -> Result<Self, IoError> {
        Self::start(open::create_temporary(directory.as_ref(), options)?, options.engine)
    }

    fn start(medium: Medium, engine: Option<Engine>) -> Result<Self, IoError> {
        let medium = Arc::new(medium);
        let ring = match engine {
            Some(Engine::ThreadPool) => None,
            Some(Engine::IoUring) => Some(Ring::new(Arc::clone(&medium)).map_err(|error| {
                let context = format!("{}: io_uring is not to be had", medium.path.display());
                IoError::with_source(ErrorKind::Unsupported, context, error)
            })?),
            None => Ring::new(Arc::clone(&medium)).ok(),
        };
        Ok(Self { ring, pool: Pool::new(Arc::clone(&medium)), medium })
    }

    /// What carries submitted requests: io_uring, unless it is not permitted or was not wanted.
    #[must_use]
    pub fn engine(&self) -> Engine {
        if self.ring.is_some() { Engine::IoUring } else { Engine::ThreadPool }
    }

    /// Where the bytes are.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.medium.path
    }

    /// Whether this is a raw block device and not a file on a file system.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        self.medium.is_block_device
    }
}

impl Device for FileDevice {
    fn geometry(&self) -> Geometry {
        self.medium.geometry
    }

    fn submit(&self, request: Request, completion: Completion) {
        // io_uring has no plain operation that discards on a block device, and the system call may take long.
        let discards = self.medium.is_block_device && request.kind() == RequestKind::Trim;
        let Some(request) = self.medium.accept(request, completion) else { return };
        match &self.ring {
            Some(ring) if !discards => ring.submit(request),
            _ => self.pool.submit(request),
        }
    }

    fn execute(&self, request: Request) -> Outcome {
        self.medium.execute(request)
    }

    fn counters(&self) -> Counters {
        self.medium.tally.counters()
    }
}

impl std::fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, engine) = (self.path().display(), self.engine());
        write!(f, "FileDevice({path}, {} bytes, {engine:?})", self.medium.geometry.capacity_bytes)
    }
}

#[cfg(test)]
mod tests;
