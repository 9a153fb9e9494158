//! A file or a raw block device with direct, asynchronous transfers.
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

pub use crate::io_paths::Engine;
use crate::io_paths::{IoPaths, Open};
use crate::nvme::wear::MediaProbe;
use crate::placement::HandleAllocator;
use crate::{Counters, Device, Geometry, IoError, Outcome, PlacementHandle, Request};
pub use claim::holder_of_block_device;
pub(crate) use loops::file_behind_block_device;
pub use loops::loop_device_upon;
use medium::OpenFile;
pub(crate) use medium::is_fuse;
pub(crate) use open::open_exclusively;
pub use open::{LARGEST_FILE_BYTES, OpenOptions, reserve_space, set_length};

/// A file or a raw block device, opened exclusively.
///
/// Dropping it waits for the requests in flight and ends its threads.
pub struct FileDevice {
    paths: IoPaths<OpenFile>,
    handles: HandleAllocator,
    /// Media counters of an NVMe block device, if they can be read.
    media: Option<MediaProbe>,
}

impl FileDevice {
    /// Opens, and with `create` creates, the file or block device at `path`.
    ///
    /// # Errors
    /// * [`ErrorKind::Open`](crate::ErrorKind::Open): no such path, no permission, or an unfitting size;
    /// * [`ErrorKind::Busy`](crate::ErrorKind::Busy): it is open exclusively elsewhere, or mounted;
    /// * [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported): direct I/O is refused without [`OpenOptions::buffered`], or the
    ///   requested [`OpenOptions::engine`] or [`OpenOptions::placement`] is not available;
    /// * [`ErrorKind::NoSpace`](crate::ErrorKind::NoSpace): the disk has no space for the file.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self, IoError> {
        Self::start(open::open(path.as_ref(), options, None)?, options.engine)
    }

    /// Creates a file of `options.size_bytes` in a new directory inside `directory`. Both are unlinked when the file is open, so that a
    /// killed process leaves nothing behind.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn create_temporary(directory: impl AsRef<Path>, options: &OpenOptions) -> Result<Self, IoError> {
        Self::start(open::create_temporary(directory.as_ref(), options)?, options.engine)
    }

    fn start(open: Open<OpenFile>, engine: Option<Engine>) -> Result<Self, IoError> {
        // Only ring entries can name a write stream.
        let engine = if open.medium.write_streams > 0 { Some(Engine::IoUring) } else { engine };
        let handles = HandleAllocator::new(open.geometry().placement_handles);
        let media = open.medium.is_block_device.then(|| MediaProbe::open(&open.path).ok()).flatten();
        Ok(Self { paths: IoPaths::new(open, engine)?, handles, media })
    }

    /// The engine in use: io_uring, unless not permitted or not selected.
    #[must_use]
    pub fn engine(&self) -> Engine {
        self.paths.engine()
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.paths.open().path
    }

    /// Whether this is a raw block device and not a file on a file system.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        self.paths.open().medium.is_block_device
    }
}

impl FileDevice {
    /// The consumers that requested placement handles, in order, with their handles.
    #[must_use]
    pub fn consumers(&self) -> Vec<(String, PlacementHandle)> {
        self.handles.consumers()
    }
}

impl Device for FileDevice {
    crate::forward_device!(paths: submit, absorb);

    fn geometry(&self) -> Geometry {
        self.paths.open().geometry()
    }

    fn refresh_capacity(&self, limit_bytes: u64) -> Result<u64, IoError> {
        let open = self.paths.open();
        let present_bytes = open::length(&open.medium.file, &open.path)?.min(limit_bytes);
        let bytes = present_bytes - present_bytes % u64::from(open.geometry().block_bytes);
        open.set_capacity(bytes);
        Ok(bytes)
    }

    fn engine(&self) -> Option<Engine> {
        Some(self.paths.engine())
    }

    fn execute(&self, request: Request) -> Outcome {
        let streams = self.paths.open().medium.write_streams;
        match request {
            Request::Write { placement, .. } if streams > 0 && placement != PlacementHandle::DEFAULT => {
                (self as &dyn Device).start(request).wait()
            }
            _ => self.paths.execute(request),
        }
    }

    fn hole_in(&self, range: Range<u64>) -> Option<Range<u64>> {
        let open = self.paths.open();
        open.medium.hole_in(range, u64::from(open.geometry().block_bytes))
    }

    /// A punched hole in a file reads as zeros; a drive's claim about discards is not relied on.
    fn trims_to_zeros(&self) -> bool {
        !self.is_block_device()
    }

    /// For an NVMe block device, or one made of them, media bytes are those of the drives' whole endurance groups since opening. Reading
    /// them takes a command per drive.
    fn counters(&self) -> Counters {
        let media_written_bytes = self.media.as_ref().and_then(MediaProbe::bytes);
        Counters { media_written_bytes, ..self.paths.counters() }
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
