//! A file or a raw block device, transferred directly and asynchronously.
//!
//! On a block device with write streams (a namespace with Flexible Data Placement, Linux 6.16), a placement handle is a
//! stream of its writes.

pub(crate) mod claim;
mod discard;
mod loops;
mod medium;
mod open;
mod probe;

use std::ops::Range;
use std::path::Path;

use crate::carry::{Carrier, Open};
use crate::nvme::wear::MediaProbe;
use crate::placement::HandleAllocator;
use crate::{Completion, Counters, Device, Geometry, IoError, IoSlice, Outcome, PlacementHandle, Request};
pub use claim::holder_of_block_device;
pub(crate) use loops::file_behind_block_device;
pub use loops::loop_device_upon;
use medium::OpenFile;
pub(crate) use medium::is_fuse;
pub(crate) use open::open_exclusively;
pub use open::{LARGEST_FILE_BYTES, OpenOptions, reserve_space, set_length};

/// A file or a raw block device that nobody else uses meanwhile.
///
/// Dropping it waits for the requests in flight; its threads are gone then.
pub struct FileDevice {
    carrier: Carrier<OpenFile>,
    handles: HandleAllocator,
    /// For an NVMe block device that counts, and lets us see.
    media: Option<MediaProbe>,
}

/// What carries submitted requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
    /// * [`ErrorKind::Open`](crate::ErrorKind::Open): no such path, no permission, a size that does not fit what
    ///   is there;
    /// * [`ErrorKind::Busy`](crate::ErrorKind::Busy): somebody else has it open as a device, or it is mounted;
    /// * [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported): direct I/O is refused and [`OpenOptions::buffered`] was not asked for, or the
    ///   [`OpenOptions::engine`] or [`OpenOptions::placement`] asked for is not to be had;
    /// * [`ErrorKind::NoSpace`](crate::ErrorKind::NoSpace): the disk has no room for the file.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self, IoError> {
        Self::start(open::open(path.as_ref(), options, None)?, options.engine)
    }

    /// Makes a file of `options.size_bytes` in a directory of its own inside `directory`. Both lose their names as soon as
    /// the file is open, so that nothing is left behind by a process that was killed.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn create_temporary(directory: impl AsRef<Path>, options: &OpenOptions) -> Result<Self, IoError> {
        Self::start(open::create_temporary(directory.as_ref(), options)?, options.engine)
    }

    fn start(open: Open<OpenFile>, engine: Option<Engine>) -> Result<Self, IoError> {
        // A plain write cannot name a stream: there, only the ring will do.
        let engine = if open.medium.write_streams > 0 { Some(Engine::IoUring) } else { engine };
        let handles = HandleAllocator::new(open.geometry.placement_handles);
        let media = open.medium.is_block_device.then(|| MediaProbe::open(&open.path).ok()).flatten();
        Ok(Self { carrier: Carrier::start(open, engine)?, handles, media })
    }

    /// What carries submitted requests: io_uring, unless it is not permitted or was not wanted.
    #[must_use]
    pub fn engine(&self) -> Engine {
        self.carrier.engine()
    }

    /// Where the bytes are.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.carrier.open().path
    }

    /// Whether this is a raw block device and not a file on a file system.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        self.carrier.open().medium.is_block_device
    }
}

impl FileDevice {
    /// Who asked for a placement handle, in order, and what each was given.
    #[must_use]
    pub fn consumers(&self) -> Vec<(String, PlacementHandle)> {
        self.handles.consumers()
    }
}

impl Device for FileDevice {
    fn geometry(&self) -> Geometry {
        self.carrier.open().geometry
    }

    fn submit(&self, request: Request, completion: Completion) {
        self.carrier.submit(request, completion);
    }

    fn engine(&self) -> Option<Engine> {
        Some(self.carrier.engine())
    }

    fn execute(&self, request: Request) -> Outcome {
        let streams = self.carrier.open().medium.write_streams;
        match request {
            Request::Write { placement, .. } if streams > 0 && placement != PlacementHandle::DEFAULT => {
                (self as &dyn Device).start(request).wait()
            }
            _ => self.carrier.execute(request),
        }
    }

    fn absorb(&self, offset: u64, data: &IoSlice) -> Option<Result<(), IoError>> {
        self.carrier.absorb(offset, data)
    }

    fn hole_in(&self, range: Range<u64>) -> Option<Range<u64>> {
        let open = self.carrier.open();
        open.medium.hole_in(range, u64::from(open.geometry.block_bytes))
    }

    /// A hole that is punched in a file does; a drive may say so of what it discards, and is not believed.
    fn trims_to_zeros(&self) -> bool {
        !self.is_block_device()
    }

    /// On an NVMe block device, or one made of them, media bytes are those of the drives' whole endurance groups since
    /// opening. To know them costs each drive a command.
    fn counters(&self) -> Counters {
        let media_written_bytes = self.media.as_ref().and_then(MediaProbe::bytes);
        Counters { media_written_bytes, ..self.carrier.counters() }
    }

    fn allocate_handle(&self, consumer: &str) -> PlacementHandle {
        self.handles.allocate(consumer)
    }
}

impl std::fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, engine) = (self.path().display(), self.engine());
        write!(f, "FileDevice({path}, {} bytes, {engine:?})", self.geometry().capacity_bytes)
    }
}

#[cfg(test)]
mod tests;
