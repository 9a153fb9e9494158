//! Loop devices: writes to one change its file, which can also be used by its name or through another loop device.
//!
//! A file opened by name is locked exclusively. Opened through a loop device, its lock is shared, because two loop devices, or two
//! partitions of one, can use different parts of it. Overlapping ones detect each other because each is opened exclusively.
#![allow(unsafe_code, reason = "the compiler cannot check an ioctl's number and argument")]

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};

use super::claim::{exclusive_holder, holder_of, partitions, share_file, sysfs_directory};
use crate::{ErrorKind, IoError};

/// `LOOP_GET_STATUS64` of `linux/loop.h`, which does not use `_IOR`.
const LOOP_GET_STATUS64: Opcode = 0x4C05;

/// The used part of `struct loop_info64`.
#[repr(C)]
struct Status {
    device: u64,
    inode: u64,
    _rdevice: u64,
    offset: u64,
    size_limit: u64,
    _number_and_encryption: [u32; 4],
    _names_and_key: [u8; 160],
    _init: [u64; 2],
}

const SECTOR_BYTES: u64 = 512;

/// Flags for opening other devices, which are not read.
const PROBE_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// The loop device on the file at `path`, which can have a mounted file system. The file itself shows neither a lock nor a holder.
#[must_use]
pub fn loop_device_upon(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let (name, _) = loop_devices().find(|(_, backing)| *backing == path)?;
    Some(format!("it is the file behind /dev/{name}"))
}

/// All loop devices with a file, and its name. Names are compared as text: accessing another file could block on its server.
fn loop_devices() -> impl Iterator<Item = (String, PathBuf)> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    devices.filter_map(|device| {
        Some((device.file_name().to_string_lossy().into_owned(), file_behind(&device.path())?))
    })
}

/// The file of the loop device with this number, or of the one that it is a partition of.
pub(crate) fn file_behind_block_device(number: u64) -> Option<PathBuf> {
    let sysfs = sysfs_directory(number)?;
    file_behind(&sysfs).or_else(|| file_behind(sysfs.parent()?))
}

fn file_behind(sysfs: &Path) -> Option<PathBuf> {
    let backing = fs::read_to_string(sysfs.join("loop/backing_file")).ok()?;
    Some(PathBuf::from(backing.trim_end_matches('\n')))
}

/// An open loop device, or a partition of one.
pub(super) struct Opened<'a> {
    path: &'a Path,
    /// The whole device's directory in sysfs.
    whole: PathBuf,
    backing: PathBuf,
    status: Status,
    /// The reachable bytes of the file.
    bytes: Range<u64>,
}

impl<'a> Opened<'a> {
    /// `None` if the block device `device`, opened at `path`, is not a loop device.
    pub(super) fn of(device: &File, path: &'a Path) -> Option<Self> {
        let sysfs = sysfs_directory(device.metadata().ok()?.rdev())?;
        let whole = [Some(sysfs.as_path()), sysfs.parent()].into_iter().flatten();
        let (whole, backing) =
            whole.filter_map(|whole| Some((whole.to_path_buf(), file_behind(whole)?))).next()?;
        let status = status_of(device).ok()?;
        let bytes = bytes_of(&sysfs, status.offset)?;
        Some(Self { path, whole, backing, status, bytes })
    }

    /// The file of the loop device, if its name leads to it: it can be deleted, or in another container.
    pub(super) fn open_file_behind(&self) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(rustix::fs::open(&self.backing, flags, Mode::empty()).ok()?);
        let metadata = file.metadata().ok()?;
        ((metadata.dev(), metadata.ino()) == (self.status.device, self.status.inode)).then_some(file)
    }

    /// Locks the file in shared mode, as other users through loop devices do.
    pub(super) fn share(&self, file: &File) -> Result<(), IoError> {
        share_file(file, self.path, &self.words_for_file())
    }

    /// Refuses a file that is locked by another process but not reachable by its name.
    pub(super) fn check_locks(&self) -> Result<(), IoError> {
        match exclusive_holder(self.status.device, self.status.inode) {
            Some(holder) => Err(self.in_use(&format!("{holder} has {} locked", self.words_for_file()))),
            None => Ok(()),
        }
    }

    fn words_for_file(&self) -> String {
        format!("the file behind it, {},", self.backing.display())
    }

    /// Refuses bytes that are in exclusive use through another loop device.
    pub(super) fn check_overlapping(&self) -> Result<(), IoError> {
        self.overlapping_in_use().map_or(Ok(()), |user| Err(self.in_use(&user)))
    }

    /// Another loop device in exclusive use that covers some of the same bytes.
    fn overlapping_in_use(&self) -> Option<String> {
        let others = loop_devices().filter(|(name, backing)| {
            *backing == self.backing && self.whole.file_name().is_none_or(|own| own != name.as_str())
        });
        others.map(|(name, _)| PathBuf::from("/dev").join(name)).find_map(|other| self.use_of(&other))
    }

    fn use_of(&self, other: &Path) -> Option<String> {
        let looked_at = File::from(rustix::fs::open(other, PROBE_FLAGS, Mode::empty()).ok()?);
        let there = status_of(&looked_at).ok()?;
        let end = match there.size_limit {
            0 => u64::MAX,
            limit => there.offset.saturating_add(limit),
        };
        let is_same_file = (there.device, there.inode) == (self.status.device, self.status.inode);
        if !is_same_file || there.offset >= self.bytes.end || self.bytes.start >= end {
            return None;
        }
        let claimed = self.claimed_of(other, there.offset)?;
        let holder = fs::metadata(&claimed).ok().and_then(|metadata| holder_of(metadata.rdev()));
        let holder = holder.unwrap_or_else(|| "in use".to_owned());
        Some(format!("{}, which has the same bytes of the same file, is {holder}", claimed.display()))
    }

    /// The part of the loop device `other`, which begins at `offset` in the file, that is in exclusive use and covers our bytes: a
    /// partition, or the whole. Use of a partition excludes the whole, and use of the whole each partition.
    fn claimed_of(&self, other: &Path, offset: u64) -> Option<PathBuf> {
        if claim_briefly(other) != Err(Errno::BUSY) {
            return None;
        }
        let parts = partitions(&Path::new("/sys/block").join(other.file_name()?));
        let is_ours = |part: &PathBuf| {
            bytes_of(part, offset)
                .is_none_or(|bytes| bytes.start < self.bytes.end && self.bytes.start < bytes.end)
        };
        let (ours, others): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_ours);
        let device = |part: &PathBuf| part.file_name().map(|name| Path::new("/dev").join(name));
        let is_free = |part: &Path| claim_briefly(part).is_ok();
        if ours.is_empty() {
            let is_a_part_free = others.iter().filter_map(device).any(|part| is_free(&part));
            return (!is_a_part_free).then(|| other.to_path_buf());
        }
        ours.iter().filter_map(device).find(|part| !is_free(part))
    }

    fn in_use(&self, how: &str) -> IoError {
        IoError::new(ErrorKind::Busy, format!("{} is in use: {how}", self.path.display()))
    }
}

/// Position in the file of a loop device that begins at `offset`, or of a partition.
fn bytes_of(sysfs: &Path, offset: u64) -> Option<Range<u64>> {
    let sectors = |name: &str| fs::read_to_string(sysfs.join(name)).ok()?.trim().parse::<u64>().ok();
    // The whole device has no `start`.
    let start = offset + sectors("start").unwrap_or(0) * SECTOR_BYTES;
    Some(start..start + sectors("size")? * SECTOR_BYTES)
}

fn claim_briefly(device: &Path) -> rustix::io::Result<()> {
    rustix::fs::open(device, PROBE_FLAGS | OFlags::EXCL, Mode::empty()).map(drop)
}

fn status_of(device: &File) -> rustix::io::Result<Status> {
    // SAFETY: LOOP_GET_STATUS64 fills a `struct loop_info64`, as long as `Status`, in which every bit pattern is a value.
    unsafe { ioctl(device, Getter::<LOOP_GET_STATUS64, Status>::new()) }
}

const _: () = assert!(size_of::<Status>() == 232, "a struct loop_info64");
