//! An open file or block device, and its kernel calls.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use io_uring::{cqueue, opcode, squeue, types};
use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom, seek};
use rustix::io::Errno;

use super::discard::discard;
use crate::io_paths::transfer::{Call, Kernel};
use crate::io_paths::{FILE, Medium};
use crate::{PlacementHandle, RequestKind};

/// An open file or block device.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) file: File,
    /// The file of a loop device, kept open for its lock.
    pub(super) _behind: Option<File>,
    pub(super) is_block_device: bool,
    /// Write streams of the block device; 0 without placement or if not requested.
    pub(super) write_streams: u16,
    /// The same file through the page cache, opened on first use; `None` if that fails.
    pub(super) cached: OnceLock<Option<File>>,
    /// The file is deleted on close, so its contents do not matter.
    pub(super) is_temporary: bool,
    /// Closed after `file`: fields drop in order.
    pub(super) removal: Option<Removal>,
}

/// Removes the file, and the directory made for it, when dropped.
#[derive(Debug)]
pub(super) struct Removal {
    pub(super) armed: bool,
    pub(super) file: PathBuf,
    pub(super) directory: Option<PathBuf>,
}

impl Drop for Removal {
    /// Errors are ignored: the file may already be deleted, or the directory used by others.
    fn drop(&mut self) {
        self.remove();
    }
}

impl Removal {
    /// Removes the names, once. The file exists until it is closed.
    pub(super) fn remove(&mut self) {
        if !std::mem::take(&mut self.armed) {
            return;
        }
        let _ = std::fs::remove_file(&self.file);
        if let Some(directory) = &self.directory {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// Converts a file to one range of zeros before it is deleted. Random writes to preallocated space leave hundreds of thousands of extents,
/// and a file system mounted with `-o discard` would trim each separately: minutes for 4 GiB.
fn unite_extents(file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    Ok(rustix::fs::fallocate(file, FallocateFlags::ZERO_RANGE, 0, length)?)
}

impl Drop for OpenFile {
    /// A kernel thread that completed the last transfer can keep the file open slightly longer; the lock is released explicitly.
    fn drop(&mut self) {
        if self.is_temporary {
            let _ = unite_extents(&self.file);
        }
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// Deallocates a range of a file and keeps its size.
const PUNCH_HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

impl OpenFile {
    /// The system keeps both coherent: a direct read first writes back the page cache.
    fn open_cached(&self) -> Option<File> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        File::options().write(true).open(own).ok()
    }

    /// The first part of `range`, in blocks, that the file system reports as a hole or as reserved and unwritten. The file's own position
    /// is not used elsewhere.
    pub(super) fn hole_in(&self, range: Range<u64>, block_bytes: u64) -> Option<Range<u64>> {
        if self.is_block_device || is_fuse(&self.file) {
            return None;
        }
        let mut at = range.start;
        while at < range.end {
            let start = seek(&self.file, SeekFrom::Hole(at)).ok()?;
            let end = match seek(&self.file, SeekFrom::Data(start)) {
                // Only a hole follows.
                Err(Errno::NXIO) => u64::MAX,
                found => found.ok()?,
            };
            let start = start.max(range.start).next_multiple_of(block_bytes);
            let whole = start..end.min(range.end) / block_bytes * block_bytes;
            if !whole.is_empty() {
                return Some(whole);
            }
            // The hole is smaller than a block, or was just written to.
            at = end.max(at + 1);
        }
        None
    }

    /// The write stream of a handle. Streams 0 and 1 both use the drive's default handle, so handle 1 is stream 2. Unknown handles use the
    /// default.
    fn stream(&self, placement: PlacementHandle) -> u8 {
        let known = placement != PlacementHandle::DEFAULT && placement.0 < self.write_streams;
        if known { u8::try_from(placement.0 + 1).unwrap_or(0) } else { 0 }
    }
}

/// A FUSE server does not see data in the kernel's cache: a hole that it reports may have been written.
pub(crate) fn is_fuse(file: &File) -> bool {
    const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;
    rustix::fs::fstatfs(file).map_or(true, |of| of.f_type as u64 == FUSE_SUPER_MAGIC)
}

impl OpenFile {
    /// The lengths fit: a request is at most `max_io_bytes` long.
    fn entry_on(&self, file: types::Fd, call: Call<'_>) -> squeue::Entry {
        match call {
            Call::Read { offset, into } => {
                opcode::Read::new(file, into.as_mut_ptr(), into.len() as u32).offset(offset).build()
            }
            Call::Write { offset, from, placement } => {
                let write = opcode::Write::new(file, from.as_ptr(), from.len() as u32).offset(offset);
                write.write_stream(self.stream(placement)).build()
            }
            Call::Trim { offset, len } => {
                let mode = PUNCH_HOLE.bits().cast_signed();
                opcode::Fallocate::new(file, len).offset(offset).mode(mode).build()
            }
            Call::Flush => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
        }
    }
}

impl Kernel for OpenFile {
    /// A plain system call cannot name a write stream, so [`Call::Write`] here has the default one.
    fn call(&self, call: Call<'_>) -> io::Result<usize> {
        match call {
            Call::Read { offset, into } => Ok(rustix::io::pread(&self.file, into, offset)?),
            Call::Write { offset, from, .. } => Ok(rustix::io::pwrite(&self.file, from, offset)?),
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

impl Medium for OpenFile {
    type Submission = squeue::Entry;
    type Completion = cqueue::Entry;

    const OPERATIONS: &'static [u8] =
        &[opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE, opcode::Fallocate::CODE];

    fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// io_uring has no plain discard operation for block devices, and the system call can take long.
    fn has_entry(&self, kind: RequestKind) -> bool {
        kind != RequestKind::Trim || !self.is_block_device
    }

    fn entry(&self, call: Call<'_>) -> squeue::Entry {
        self.entry_on(types::Fd(FILE.0.cast_signed()), call).flags(squeue::Flags::FIXED_FILE)
    }

    const HAS_PLAIN_ENTRIES: bool = true;

    fn plain_entry(&self, call: Call<'_>) -> Option<squeue::Entry> {
        Some(self.entry_on(types::Fd(self.file.as_raw_fd()), call))
    }

    fn absorb(&self, offset: u64, data: &[u8]) -> Option<io::Result<()>> {
        let cached = self.cached.get_or_init(|| self.open_cached()).as_ref()?;
        Some(cached.write_all_at(data, offset))
    }

    fn moved(result: i32, _asked_bytes: usize) -> io::Result<usize> {
        usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
    }
}
