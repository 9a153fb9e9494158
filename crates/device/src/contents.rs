//! Recognises existing contents of a device by signatures at its beginning or attributes of its file. Commands check this before they
//! overwrite a device, so that a mistyped path causes an error instead of data loss.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{SeekFrom, getxattr, seek};
use rustix::io::Errno;

use crate::file::{file_behind_block_device, is_fuse};
use crate::{Device, IoError};

/// Extended attribute of a file that is the disk of a block cache, which can have newer data than the file. The file's bytes are the user's
/// and do not show this.
pub const CACHED_DISK_MARK: &str = "user.flashwright.volume";

/// Bytes at the beginning that contain every signature.
pub const HEAD_BYTES: usize = 68 << 10;

/// Recognised contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Flash of a hybrid cache.
    HybridCache,
    /// Flash of a block cache, which can contain the only copy of a disk's newest data.
    BlockCache,
    /// The disk of a block cache, according to its [attribute](CACHED_DISK_MARK).
    CachedDisk,
    /// Other software's data.
    Foreign(&'static str),
}

impl fmt::Display for Contents {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::HybridCache => "a hybrid cache",
            Self::BlockCache => "a block cache",
            Self::CachedDisk => "the disk of a block cache",
            Self::Foreign(what) => what,
        })
    }
}

/// Offset of a signature, the signature, and its owner.
const MARKS: [(usize, &[u8], Contents); 21] = [
    (0, b"FLSHWRT\0", Contents::HybridCache),
    (0, b"FWBLKVOL", Contents::BlockCache),
    (0, b"FWSTRIPE", Contents::BlockCache),
    (0, b"XFSB", Contents::Foreign("an XFS file system")),
    (1080, b"\x53\xef", Contents::Foreign("an ext2, ext3 or ext4 file system")),
    (65_600, b"_BHRfS_M", Contents::Foreign("a Btrfs file system")),
    (1024, b"\x10\x20\xf5\xf2", Contents::Foreign("an F2FS file system")),
    (3, b"NTFS    ", Contents::Foreign("an NTFS file system")),
    (3, b"EXFAT   ", Contents::Foreign("an exFAT file system")),
    (54, b"FAT1", Contents::Foreign("a FAT file system")),
    (82, b"FAT32   ", Contents::Foreign("a FAT file system")),
    (32_769, b"CD001", Contents::Foreign("an ISO 9660 file system")),
    (512, b"EFI PART", Contents::Foreign("a partition table")),
    (4096, b"EFI PART", Contents::Foreign("a partition table")),
    (512, b"LABELONE", Contents::Foreign("an LVM volume")),
    (0, b"LUKS\xba\xbe", Contents::Foreign("an encrypted volume")),
    (4096, b"\xfc\x4e\x2b\xa9", Contents::Foreign("a member of a RAID")),
    (
        4120,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
        Contents::Foreign("a member of a bcache"),
    ),
    (4086, b"SWAPSPACE2", Contents::Foreign("swap space")),
    (0, b"QFI\xfb", Contents::Foreign("a QEMU disk image")),
    (0, b"SQLite format 3\0", Contents::Foreign("an SQLite database")),
];

/// The contents of a device with this beginning; `None` if unknown.
#[must_use]
pub fn of_head(head: &[u8]) -> Option<Contents> {
    let stands = |at: usize, mark: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(mark));
    let marked = MARKS.iter().find(|(at, mark, _)| stands(*at, mark)).map(|(_, _, contents)| *contents);
    marked.or_else(|| has_partitions(head).then_some(Contents::Foreign("a partition table")))
}

/// The recognised contents of a device. Waits for a read of its beginning.
///
/// # Errors
/// If it cannot be read: it could contain anything.
pub fn of_device(device: &dyn Device) -> Result<Option<Contents>, IoError> {
    let geometry = device.geometry();
    let most = usize::try_from(geometry.capacity_bytes).unwrap_or(usize::MAX);
    let length = HEAD_BYTES.next_multiple_of(geometry.block_bytes as usize).min(most);
    let mut head = Vec::with_capacity(length);
    for part in geometry.transfers(0..length as u64) {
        head.extend_from_slice(&device.read(part.start, (part.end - part.start) as usize).wait()?);
    }
    Ok(of_head(&head))
}

/// The recognised contents of `device`, which was opened at `path`.
///
/// # Errors
/// As [`of_device`].
pub fn of(path: &Path, device: &dyn Device) -> Result<Option<Contents>, IoError> {
    of_path(path).map_or_else(|| of_device(device), |known| Ok(Some(known)))
}

/// The contents according to the attribute of the file at `path`, or of the file behind the loop device there.
#[must_use]
pub fn of_path(path: &Path) -> Option<Contents> {
    let there = path.metadata().ok()?;
    let behind =
        if there.file_type().is_block_device() { file_behind_block_device(there.rdev()) } else { None };
    match getxattr(behind.as_deref().unwrap_or(path), CACHED_DISK_MARK, &mut [0_u8; 64]) {
        Ok(_) | Err(Errno::RANGE) => Some(Contents::CachedDisk),
        Err(_) => None,
    }
}

/// Whether the file at `path` has any non-zero byte. Known holes are skipped, and reading stops at the first such byte.
///
/// # Errors
/// If it cannot be read.
pub fn has_data(path: &Path) -> io::Result<bool> {
    const STEP_BYTES: usize = 1 << 20;
    let file = File::open(path)?;
    let knows_holes = !is_fuse(&file);
    let mut buffer = vec![0; STEP_BYTES];
    let mut at = 0;
    loop {
        if knows_holes {
            at = match seek(&file, SeekFrom::Data(at)) {
                Err(Errno::NXIO) => return Ok(false),
                // A file system without hole information is read completely.
                Err(Errno::INVAL) => at,
                found => found?,
            };
        }
        match file.read_at(&mut buffer, at)? {
            0 => return Ok(false),
            // Without an early exit, so that the loop vectorises.
            read if buffer[..read].iter().fold(0, |all, byte| all | byte) != 0 => return Ok(true),
            read => at += read as u64,
        }
    }
}

/// Whether there is a boot record with a partition. Its signature alone is too short to be reliable.
fn has_partitions(head: &[u8]) -> bool {
    const ENTRIES: std::ops::Range<usize> = 446..510;
    const ENTRY_BYTES: usize = 16;
    const KIND: usize = 4;
    let Some(entries) = head.get(ENTRIES) else { return false };
    let is_sound = |entry: &[u8]| entry[0] & 0x7f == 0;
    head[ENTRIES.end..].starts_with(b"\x55\xaa")
        && entries.chunks(ENTRY_BYTES).all(is_sound)
        && entries.chunks(ENTRY_BYTES).any(|entry| entry[KIND] != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IoBuffer;

    #[test]
    fn each_signature_is_recognised_and_zeros_are_unknown() {
        assert_eq!(of_head(&[0; HEAD_BYTES]), None);
        for (at, mark, contents) in MARKS {
            let mut head = vec![0; HEAD_BYTES];
            head[at..at + mark.len()].copy_from_slice(mark);
            assert_eq!(of_head(&head), Some(contents));
            assert_eq!(of_head(&head[..at + mark.len() - 1]), None, "cut off");
        }
    }

    #[test]
    fn invalid_boot_record_is_not_recognised() {
        let mut head = vec![0; HEAD_BYTES];
        head[510..512].copy_from_slice(b"\x55\xaa");
        assert_eq!(of_head(&head), None);
        head[446 + 16 + 4] = 0x83;
        assert_eq!(of_head(&head), Some(Contents::Foreign("a partition table")));
        head[446 + 32] = 0x17;
        assert_eq!(of_head(&head), None);
    }

    #[test]
    fn device_shorter_than_the_head_is_read_to_its_end() {
        let device = crate::MemoryDevice::new(4096);
        assert_eq!(of_device(&device).unwrap(), None);
        let mut block = IoBuffer::zeroed(4096);
        block[..8].copy_from_slice(b"FWBLKVOL");
        (&device as &dyn Device).write(0, block).wait().unwrap();
        assert_eq!(of_device(&device).unwrap(), Some(Contents::BlockCache));
    }

    #[test]
    fn data_after_holes_and_zeros_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let has = || has_data(file.path()).unwrap();
        assert!(!has(), "empty");
        file.as_file().set_len(64 << 20).unwrap();
        assert!(!has(), "a hole");
        file.as_file().write_all_at(&[0; 3 << 20], 5 << 20).unwrap();
        assert!(!has(), "zeros");
        file.as_file().write_all_at(&[1], (64 << 20) - 1).unwrap();
        assert!(has(), "the last byte");
    }

    #[test]
    fn cached_disk_attribute_is_recognised() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(of_path(file.path()), None);
        // Longer than the mark that a cache writes.
        let flags = rustix::fs::XattrFlags::empty();
        if rustix::fs::setxattr(file.path(), CACHED_DISK_MARK, &[b'7'; 100], flags).is_err() {
            eprintln!("SKIPPED: no extended attributes here");
            return;
        }
        assert_eq!(of_path(file.path()), Some(Contents::CachedDisk));
        assert_eq!(of(file.path(), &crate::MemoryDevice::new(4096)).unwrap(), Some(Contents::CachedDisk));
    }

    /// A drive with short requests, like a namespace with passthrough commands.
    struct ShortRequests(crate::MemoryDevice);

    impl Device for ShortRequests {
        fn geometry(&self) -> crate::Geometry {
            crate::Geometry { max_io_bytes: 24 << 10, ..self.0.geometry() }
        }

        fn submit(&self, request: crate::Request, completion: crate::Completion) {
            match self.geometry().check(&request) {
                Ok(()) => self.0.submit(request, completion),
                Err(error) => completion.complete(Err(error)),
            }
        }

        fn counters(&self) -> crate::Counters {
            self.0.counters()
        }
    }

    #[test]
    fn signature_beyond_the_longest_request_is_found() {
        for (at, mark, contents) in MARKS {
            let device = ShortRequests(crate::MemoryDevice::new(1 << 20));
            let mut head = IoBuffer::zeroed(HEAD_BYTES);
            head[at..at + mark.len()].copy_from_slice(mark);
            (&device.0 as &dyn Device).write(0, head).wait().unwrap();
            assert_eq!(of_device(&device).unwrap(), Some(contents), "at {at}");
        }
    }
}
