//! A namespace by NVMe passthrough: without the block layer, and with a placement identifier for each write with a handle.
//!
//! Submitted reads, writes and flushes use io_uring commands (Linux 5.19; for users other than root, 6.2). Blocking callers use ioctls, and
//! so do trims, which need memory for their ranges.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use io_uring::{cqueue, opcode, squeue};

use super::command::Command;
use super::ioctl::{Data, Queue, Transport, namespace_number};
use super::locate::PathKind;
use super::readiness::{Readiness, Steps, endurance_group, unanswered, unsupported};
use super::wear::MediaCounter;
use super::{Drive, Location, Status};
use crate::file::{Engine, OpenOptions, claim, open_exclusively};
use crate::io_paths::transfer::{Call, Kernel};
use crate::io_paths::{FILE, IoPaths, Medium, Open};
use crate::placement::HandleAllocator;
use crate::{
    Completion, Counters, Device, ErrorKind, Geometry, IoError, Outcome, PlacementHandle, Request,
    RequestKind,
};

/// `NVME_URING_CMD_IO` of `linux/nvme_ioctl.h`.
const URING_CMD_IO: u32 = 0xC048_4E80;

/// Largest number of blocks in a command.
const MAX_COMMAND_BLOCKS: u64 = 1 << 16;

/// A namespace in exclusive use.
///
/// Placement handle `k` is the namespace's placement identifier number `k`; the drive uses number 0 for writes without one. Unassigned
/// handles map to the default.
pub struct PassthroughDevice<T: Transport + AsFd + 'static = File> {
    paths: IoPaths<OpenNamespace<T>>,
    handles: HandleAllocator,
}

/// An open namespace.
struct OpenNamespace<T> {
    drive: Drive<T>,
    block_bytes: u64,
    /// Blocks that one command can trim; `None` if the drive does not support trim.
    max_trim_blocks: Option<u32>,
    /// Identifiers by handle. Empty without placement.
    placement_ids: Vec<u16>,
    /// Counter of media writes; `None` without the privilege to read it.
    media: Option<MediaCounter>,
    /// The block device, kept open exclusively to prevent mounts.
    _block_device: Option<File>,
}

impl PassthroughDevice {
    /// Opens the namespace whose generic device is at `path`. Options for creating files are ignored.
    ///
    /// # Errors
    /// * [`ErrorKind::Open`]: no such path, no permission, no namespace, or an unfitting size;
    /// * [`ErrorKind::Busy`]: another process uses it, or its block device is mounted;
    /// * [`ErrorKind::Unsupported`]: blocks with metadata, buffered I/O, or [`placement`](OpenOptions::placement) requested but unavailable
    ///   (with the missing requirement).
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self, IoError> {
        let path = path.as_ref();
        let Some(location) = Location::of(path).filter(|it| it.kind == PathKind::Generic) else {
            return Err(open_error(
                path,
                "is not the generic device of an NVMe namespace, such as /dev/ng0n1",
            ));
        };
        let block_device = claim_block_device(&location)?;
        let file = File::options().read(true).write(!options.read_only).open(path).map_err(|error| {
            IoError::with_source(ErrorKind::Open, format!("cannot open {}", path.display()), error)
        })?;
        claim::claim_file(&file, path)?;
        let namespace = namespace_number(&file).map_err(|error| {
            IoError::with_source(
                ErrorKind::Open,
                format!("{}: cannot read the namespace number", path.display()),
                error,
            )
        })?;
        let limits = Limits { max_io_bytes: location.max_passthrough_bytes(), block_device };
        Self::over(Drive::new(file, namespace), &location, limits, path, options)
    }
}

/// Limits that the drive does not report.
struct Limits {
    max_io_bytes: u64,
    block_device: Option<File>,
}

impl<T: Transport + AsFd + 'static> PassthroughDevice<T> {
    fn over(
        drive: Drive<T>,
        location: &Location,
        limits: Limits,
        path: &Path,
        options: &OpenOptions,
    ) -> Result<Self, IoError> {
        if options.buffered {
            let message = format!("{}: buffered I/O is not possible with NVMe passthrough", path.display());
            return Err(IoError::new(ErrorKind::Unsupported, message));
        }
        let identified = drive.controller().and_then(|controller| Ok((controller, drive.namespace()?)));
        let (controller, namespace) = identified.map_err(|error| unidentified(path, error))?;
        let block_bytes = match (namespace.block_bytes, namespace.metadata_bytes) {
            (Some(block_bytes), 0) => block_bytes,
            (None, _) => return Err(open_error(path, "reports a block size that is not valid")),
            (_, metadata) => {
                let message = format!("{}: {metadata} bytes of metadata per block", path.display());
                return Err(IoError::new(ErrorKind::Unsupported, format!("{message} are not supported")));
            }
        };
        let placement_ids =
            if options.placement { placement_ids(&drive, location, path)? } else { Vec::new() };
        let present_bytes = namespace.size_blocks.saturating_mul(block_bytes.into());
        let block = u64::from(block_bytes);
        let max_io_bytes =
            limits.max_io_bytes.min(MAX_COMMAND_BLOCKS * block).min(crate::check::MAX_IO_BYTES.into());
        let preferred = namespace.preferred_write_bytes.and_then(|it| u32::try_from(it).ok());
        let geometry = Geometry {
            capacity_bytes: capacity(path, options.size_bytes, present_bytes, block)?,
            block_bytes,
            max_io_bytes: (max_io_bytes - max_io_bytes % block) as u32,
            indirection_bytes: preferred.unwrap_or(block_bytes),
            placement_handles: placement_ids.len().saturating_sub(1) as u16,
            buffered: false,
        };
        let media = MediaCounter::find(&drive, endurance_group(&controller, &namespace));
        let medium = OpenNamespace {
            drive,
            block_bytes: block,
            max_trim_blocks: controller.dataset_management.then(|| location.max_trim_blocks(block_bytes)),
            placement_ids,
            media,
            _block_device: limits.block_device,
        };
        let paths = IoPaths::new(
            Open::new(medium, PathBuf::from(path), geometry, options.read_only),
            options.engine,
        )?;
        Ok(Self { paths, handles: HandleAllocator::new(geometry.placement_handles) })
    }

    /// The drive behind the namespace.
    #[must_use]
    pub fn drive(&self) -> &Drive<T> {
        &self.paths.open().medium.drive
    }

    /// The namespace's placement identifiers, by handle; empty without placement.
    #[must_use]
    pub fn placement_ids(&self) -> &[u16] {
        &self.paths.open().medium.placement_ids
    }

    /// The consumers that requested a placement handle, in order, each with its handle.
    #[must_use]
    pub fn consumers(&self) -> Vec<(String, PlacementHandle)> {
        self.handles.consumers()
    }

    /// The engine for submitted requests.
    #[must_use]
    pub fn engine(&self) -> Engine {
        self.paths.engine()
    }

    /// Switches `handle` to a new reclaim unit for its next write.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] without placement; otherwise the drive's error.
    pub fn renew(&self, handle: PlacementHandle) -> Result<(), IoError> {
        let open = self.paths.open();
        let context =
            || format!("{}: cannot move handle {} to a new reclaim unit", open.path.display(), handle.0);
        let Some(&id) = open.medium.placement_ids.get(usize::from(handle.0)) else {
            return Err(IoError::new(ErrorKind::Unsupported, format!("{}: no such handle", context())));
        };
        self.drive().update_placement(&[id]).map_err(|error| {
            IoError::with_source(crate::io_paths::transfer::error_kind(&error), context(), error)
        })
    }
}

impl<T: Transport + AsFd + 'static> Device for PassthroughDevice<T> {
    fn geometry(&self) -> Geometry {
        self.paths.open().geometry()
    }

    fn submit(&self, request: Request, completion: Completion) {
        self.paths.submit(request, completion);
    }

    fn engine(&self) -> Option<Engine> {
        Some(self.paths.engine())
    }

    fn execute(&self, request: Request) -> Outcome {
        self.paths.execute(request)
    }

    /// Media bytes are those of the whole endurance group since opening. Reading them takes a command to the drive.
    fn counters(&self) -> Counters {
        let medium = &self.paths.open().medium;
        let media_written_bytes = medium.media.as_ref().and_then(|media| media.bytes(&medium.drive));
        Counters { media_written_bytes, ..self.paths.counters() }
    }

    fn allocate_handle(&self, consumer: &str) -> PlacementHandle {
        self.handles.allocate(consumer)
    }
}

impl<T: Transport> OpenNamespace<T> {
    fn blocks(&self, offset: u64, len: usize) -> (u64, u32) {
        (offset / self.block_bytes, (len as u64 / self.block_bytes) as u32)
    }

    fn read_command(&self, offset: u64, len: usize) -> Command {
        let (first, blocks) = self.blocks(offset, len);
        Command::read(self.drive.namespace_id(), first, blocks)
    }

    fn write_command(&self, offset: u64, len: usize, placement: PlacementHandle) -> Command {
        let (first, blocks) = self.blocks(offset, len);
        let named = (placement != PlacementHandle::DEFAULT)
            .then(|| self.placement_ids.get(usize::from(placement.0)).copied())
            .flatten();
        Command::write(self.drive.namespace_id(), first, blocks, named)
    }
}

impl<T: Transport> Kernel for OpenNamespace<T> {
    fn call(&self, call: Call<'_>) -> io::Result<usize> {
        let transport = self.drive.transport();
        match call {
            Call::Read { offset, into } => {
                let len = into.len();
                transport.run(Queue::Io, &self.read_command(offset, len), Data::From(into)).map(|_| len)
            }
            Call::Write { offset, from, placement } => {
                let command = self.write_command(offset, from.len(), placement);
                transport.run(Queue::Io, &command, Data::To(from)).map(|_| from.len())
            }
            Call::Trim { offset, len } => {
                let longest = self.max_trim_blocks.ok_or(rustix::io::Errno::OPNOTSUPP)?;
                let (first, blocks) = (offset / self.block_bytes, len / self.block_bytes);
                self.drive.deallocate(first, blocks, longest).map(|()| 0)
            }
            Call::Flush => {
                let command = Command::flush(self.drive.namespace_id());
                transport.run(Queue::Io, &command, Data::None).map(|_| 0)
            }
        }
    }
}

impl<T: Transport + AsFd + 'static> Medium for OpenNamespace<T> {
    // The kernel supports passthrough only on rings with wide entries in both directions.
    type Submission = squeue::Entry128;
    type Completion = cqueue::Entry32;

    const OPERATIONS: &'static [u8] = &[opcode::UringCmd80::CODE];

    fn fd(&self) -> BorrowedFd<'_> {
        self.drive.transport().as_fd()
    }

    fn has_entry(&self, kind: RequestKind) -> bool {
        kind != RequestKind::Trim
    }

    fn entry(&self, call: Call<'_>) -> squeue::Entry128 {
        let (command, address, len) = match call {
            Call::Read { offset, into } => {
                (self.read_command(offset, into.len()), into.as_mut_ptr().expose_provenance(), into.len())
            }
            Call::Write { offset, from, placement } => {
                let command = self.write_command(offset, from.len(), placement);
                (command, from.as_ptr().expose_provenance(), from.len())
            }
            Call::Flush => (Command::flush(self.drive.namespace_id()), 0, 0),
            Call::Trim { .. } => unreachable!("trims have no entry"),
        };
        let mut bytes = [0; 80];
        let command = command.encode(address as u64, len as u32);
        bytes[..command.len()].copy_from_slice(&command);
        opcode::UringCmd80::new(FILE, URING_CMD_IO).cmd(bytes).build()
    }

    /// A command transfers all bytes or none.
    fn moved(result: i32, requested_bytes: usize) -> io::Result<usize> {
        Status::check(result).map(|()| requested_bytes)
    }
}

/// Prevents mounts of the namespace and exclusive opens of its block device. If there is no block device, or it cannot be opened, checks
/// the list of mounts instead.
fn claim_block_device(location: &Location) -> Result<Option<File>, IoError> {
    let path = location.block_path();
    if location.block_number().is_none() {
        return Ok(None);
    }
    if let Some(holder) = location.holder() {
        return Err(IoError::new(ErrorKind::Busy, format!("{} is in use: {holder}", path.display())));
    }
    match open_exclusively(&path, &OpenOptions::default()) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::Busy => Err(error),
        Err(_) => Ok(None),
    }
}

/// Checked in advance: a drive accepts a write with an unknown identifier and places it anywhere.
fn placement_ids<T: Transport>(
    drive: &Drive<T>,
    location: &Location,
    path: &Path,
) -> Result<Vec<u16>, IoError> {
    let readiness = Readiness::of(drive).map_err(|error| unanswered(path, error))?;
    let steps = Steps::new(location, drive).map_err(|error| unanswered(path, error))?;
    match (readiness.missing(&steps), readiness) {
        (Some(missing), _) => Err(unsupported(path, &missing)),
        (None, Readiness::Ready(identifiers)) => {
            let most = usize::from(u16::MAX);
            Ok(identifiers.iter().take(most).map(|it| it.placement_id).collect())
        }
        (None, _) => Ok(Vec::new()),
    }
}

fn capacity(path: &Path, requested_capacity: Option<u64>, present: u64, block: u64) -> Result<u64, IoError> {
    match requested_capacity {
        None if present == 0 => Err(open_error(path, "has a capacity of 0 bytes")),
        None => Ok(present),
        Some(size) if size == 0 || !size.is_multiple_of(block) => Err(open_error(
            path,
            &format!("cannot have {size} bytes: must be a non-zero multiple of the {block}-byte block"),
        )),
        Some(size) if size > present => {
            Err(open_error(path, &format!("holds {present} bytes, but {size} are requested")))
        }
        Some(size) => Ok(size),
    }
}

fn unidentified(path: &Path, error: io::Error) -> IoError {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => " (before Linux 6.2, NVMe passthrough needs root)",
        _ => "",
    };
    let context = format!("{}: cannot identify the drive{hint}", path.display());
    IoError::with_source(ErrorKind::Open, context, error)
}

fn open_error(path: &Path, why: &str) -> IoError {
    IoError::new(ErrorKind::Open, format!("{} {why}", path.display()))
}

impl<T: Transport + AsFd + 'static> std::fmt::Debug for PassthroughDevice<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, engine) = (self.paths.open().path.display(), self.engine());
        write!(f, "PassthroughDevice({path}, {} bytes, {engine:?})", self.geometry().capacity_bytes)
    }
}

#[cfg(test)]
mod tests;
