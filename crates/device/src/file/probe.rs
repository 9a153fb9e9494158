//! Determines the block sizes of a file or block device.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;

use crate::check::MAX_IO_BYTES;
use crate::{ErrorKind, Geometry, IoError};

/// Block size of a file whose file system does not report direct I/O requirements: no drive needs more.
const DEFAULT_FILE_BLOCK_BYTES: u32 = 4096;

/// The smallest block of a [`Geometry`].
const MIN_BLOCK_BYTES: u32 = 512;

/// Geometry of a file, without its capacity.
pub(super) fn file_geometry(file: &File, path: &Path, buffered: bool) -> Result<Geometry, IoError> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN;
    let status = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted)
        .map_err(|errno| unknown(path, "its blocks", errno))?;
    // Zero if unknown, or if direct I/O is unsupported (then `buffered` is set).
    let reported = status.stx_dio_offset_align.max(status.stx_dio_mem_align);
    let block_bytes = if reported == 0 { DEFAULT_FILE_BLOCK_BYTES } else { reported.max(MIN_BLOCK_BYTES) };
    Ok(geometry(block_bytes, status.stx_blksize, buffered))
}

/// Geometry of a block device, without its capacity.
pub(super) fn block_device_geometry(file: &File, path: &Path, buffered: bool) -> Result<Geometry, IoError> {
    let logical =
        rustix::fs::ioctl_blksszget(file).map_err(|errno| unknown(path, "its logical block size", errno))?;
    let physical = rustix::fs::ioctl_blkpbszget(file)
        .map_err(|errno| unknown(path, "its physical block size", errno))?;
    Ok(geometry(logical.max(MIN_BLOCK_BYTES), physical, buffered))
}

/// Whether the block device is write-protected by the drive or the administrator. The kernel still opens such a device for writing.
pub(super) fn is_write_protected(device: &File) -> bool {
    let number = device.metadata().map_or(0, |metadata| metadata.rdev());
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let reported = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
    reported.is_ok_and(|text| text.trim() == "1")
}

fn geometry(block_bytes: u32, indirection_bytes: u32, buffered: bool) -> Geometry {
    Geometry {
        capacity_bytes: 0,
        block_bytes,
        max_io_bytes: MAX_IO_BYTES,
        indirection_bytes: indirection_bytes.max(block_bytes),
        placement_handles: 0,
        buffered,
    }
}

fn unknown(path: &Path, what: &str, errno: Errno) -> IoError {
    IoError::with_source(ErrorKind::Open, format!("{}: cannot read {what}", path.display()), errno.into())
}
