//! Opens a path, claims its file or device, and determines the size and the blocks.

use std::error::Error;
use std::fs::{DirBuilder, File, Metadata};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::claim::{self, claim_file};
use super::loops::{self, loop_device_upon};
use super::medium::{OpenFile, Removal};
use super::{Engine, probe};
use crate::io_paths::Open;
use crate::io_paths::transfer::error_kind;
use crate::nvme::{Location, streams};
use crate::timer::{SystemTimer, Timer};
use crate::{Clock, ErrorKind, Geometry, IoError};

/// Time within which opening a file or device in use is retried: much longer than the kernel takes to release a closed device, and short
/// enough for a refusal.
const CLOSE_LIMIT_NS: u64 = 250_000_000;

/// Time within which opening is retried if the file's owner has probably ended or only inspects it, on a busy machine.
const END_LIMIT_NS: u64 = 5_000_000_000;

/// How to open a file or block device.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Size of the device in bytes, a multiple of its block size. `None` uses all existing whole blocks. An existing file or device can be
    /// larger; a smaller file grows if `create` is set.
    pub size_bytes: Option<u64>,
    /// Create the file if it does not exist, and grow it to `size_bytes` if it is smaller. Never creates a block device.
    pub create: bool,
    /// Reserve the space when a file is created or grown, so that later writes cannot find the disk full. Otherwise the file is sparse.
    pub preallocate: bool,
    /// Read only: writes and trims are refused, read permission suffices, and nothing is created or grown.
    pub read_only: bool,
    /// Use the page cache instead of direct I/O.
    pub buffered: bool,
    /// Remove the file when the device is dropped, if opening created it.
    pub remove_on_drop: bool,
    /// Engine for submitted requests. By default io_uring, or threads if it is not permitted.
    pub engine: Option<Engine>,
    /// Require placement handles: opening fails, naming the missing part, if there are none.
    pub placement: bool,
}

impl OpenOptions {
    fn may_make(&self) -> bool {
        self.create && !self.read_only
    }
}

/// Opens `path`. `own_directory` was created for the file and is removed with it.
pub(super) fn open(
    path: &Path,
    options: &OpenOptions,
    own_directory: Option<PathBuf>,
) -> Result<Open<OpenFile>, IoError> {
    match std::fs::metadata(path).map(|metadata| Kind::of(&metadata)) {
        Ok(Kind::BlockDevice) => open_block_device(path, options),
        Ok(Kind::File) if options.placement => Err(streams::none_on_files(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && options.placement => {
            Err(streams::none_on_files(path))
        }
        Ok(Kind::File) => open_file(path, options, None),
        Ok(Kind::Other(what)) => {
            let neither = || format!("is {what}, not a file or a block device");
            Err(unusable(path, &Location::of_controller(path).unwrap_or_else(neither)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && options.may_make() => {
            let removal = Removal { armed: true, file: path.into(), directory: own_directory };
            open_file(path, options, Some(removal))
        }
        Err(error) => Err(system(ErrorKind::Open, format!("cannot open {}", path.display()), error)),
    }
}

/// Creates `flashwright_<process>_<random>/flash` in `parent`, and removes the name when the file is open.
pub(super) fn create_temporary(parent: &Path, options: &OpenOptions) -> Result<Open<OpenFile>, IoError> {
    if options.placement {
        return Err(streams::none_on_files(parent));
    }
    let unique = RandomState::new().hash_one(0) as u32;
    let directory = parent.join(format!("flashwright_{}_{unique:08x}", std::process::id()));
    DirBuilder::new().mode(0o700).create(&directory).map_err(|error| {
        system(ErrorKind::Open, format!("cannot create the directory {}", directory.display()), error)
    })?;
    let options = OpenOptions { create: true, remove_on_drop: true, ..options.clone() };
    let mut opened = open(&directory.join("flash"), &options, Some(directory))?;
    // An unnamed open file vanishes with the process, however it ends.
    if let Some(removal) = &mut opened.medium.removal {
        removal.remove();
    }
    Ok(opened)
}

/// `made` is set for a new file, which is removed again if it is unusable.
pub(super) fn open_file(
    path: &Path,
    options: &OpenOptions,
    mut made: Option<Removal>,
) -> Result<Open<OpenFile>, IoError> {
    let create = if made.is_some() { OFlags::CREATE | OFlags::EXCL } else { OFlags::empty() };
    if let Some(user) = loop_device_upon(path).filter(|_| !options.read_only) {
        return Err(IoError::new(ErrorKind::Busy, format!("{} is in use: {user}", path.display())));
    }
    let file = open_with(path, options, create).inspect_err(|error| {
        if let Some(removal) = &mut made {
            removal.armed = !existed_already(error);
        }
    })?;
    claim_while_busy(&file, path, || claim_file(&file, path))?;
    let present_bytes = length(&file, path)?;
    let mut geometry = probe::file_geometry(&file, path, options.buffered)?;
    geometry.capacity_bytes = capacity(path, options, present_bytes, geometry.block_bytes)?;
    if geometry.capacity_bytes > present_bytes {
        grow(&file, path, present_bytes, &geometry, options.preallocate)?;
    }
    if let Some(removal) = &mut made {
        removal.armed = options.remove_on_drop;
    }
    let is_temporary = made.as_ref().is_some_and(|removal| removal.armed);
    let medium = OpenFile {
        file,
        _behind: None,
        cached: OnceLock::new(),
        is_block_device: false,
        write_streams: 0,
        is_temporary,
        removal: made,
    };
    Ok(Open::new(medium, path.into(), geometry, options.read_only))
}

/// Another process created the file in the meantime: it must not be removed.
fn existed_already(error: &IoError) -> bool {
    let system = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    system.is_some_and(|system| system.kind() == io::ErrorKind::AlreadyExists)
}

fn open_block_device(path: &Path, options: &OpenOptions) -> Result<Open<OpenFile>, IoError> {
    if let Some(holder) = claim::holder_of_block_device(path) {
        return Err(IoError::new(ErrorKind::Busy, format!("{} is in use: {holder}", path.display())));
    }
    let file = open_exclusively(path, options)?;
    if !options.read_only && probe::is_write_protected(&file) {
        return Err(unusable(path, "is write-protected: it can only be read"));
    }
    claim_while_busy(&file, path, || claim_file(&file, path))?;
    let behind = claim_behind(&file, path)?;
    let present_bytes = length(&file, path)?;
    let mut geometry = probe::block_device_geometry(&file, path, options.buffered)?;
    let never_grows = OpenOptions { create: false, ..options.clone() };
    geometry.capacity_bytes = capacity(path, &never_grows, present_bytes, geometry.block_bytes)?;
    let write_streams = if options.placement { streams::required(&file, path)? } else { 0 };
    geometry.placement_handles = write_streams.saturating_sub(1);
    let medium = OpenFile {
        file,
        _behind: behind,
        cached: OnceLock::new(),
        is_block_device: true,
        write_streams,
        is_temporary: false,
        removal: None,
    };
    Ok(Open::new(medium, path.into(), geometry, options.read_only))
}

/// O_EXCL on a block device fails for mounts, swap, RAID and other exclusive users.
pub(crate) fn open_exclusively(path: &Path, options: &OpenOptions) -> Result<File, IoError> {
    retry_while_busy(CLOSE_LIMIT_NS, || open_with(path, options, OFlags::EXCL))
}

/// Locks the file of a loop device until it is closed: an exclusive open of the loop device does not exclude users of the file.
fn claim_behind(device: &File, path: &Path) -> Result<Option<File>, IoError> {
    let Some(opened) = loops::Opened::of(device, path) else { return Ok(None) };
    let behind = opened.open_file_behind();
    match &behind {
        Some(file) => claim_while_busy(file, path, || opened.share(file))?,
        None => retry_while_busy(CLOSE_LIMIT_NS, || opened.check_locks())?,
    }
    retry_while_busy(CLOSE_LIMIT_NS, || opened.check_overlapping())?;
    Ok(behind)
}

/// Locks `file` by `claim` to open `path`, and repeats that while the file may be released soon.
fn claim_while_busy(
    file: &File,
    path: &Path,
    claim: impl Fn() -> Result<(), IoError>,
) -> Result<(), IoError> {
    let is_soon_free = || claim::has_only_shared_locks(file) && loop_device_upon(path).is_none();
    match retry_while_busy(CLOSE_LIMIT_NS, &claim) {
        Err(error)
            if error.kind() == ErrorKind::Busy && (is_soon_free() || !claim::has_living_holder(file)) =>
        {
            retry_while_busy(END_LIMIT_NS, claim)
        }
        claimed => claimed,
    }
}

/// Repeats `attempt` while it returns [`ErrorKind::Busy`], for at most `limit_ns`: the kernel releases a file used through io_uring
/// slightly after it is closed or its process is killed.
fn retry_while_busy<T>(limit_ns: u64, attempt: impl Fn() -> Result<T, IoError>) -> Result<T, IoError> {
    let timer = SystemTimer::default();
    let give_up_ns = timer.monotonic_ns() + limit_ns;
    loop {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::Busy && timer.monotonic_ns() < give_up_ns => {
                timer.wait_until(timer.monotonic_ns() + CLOSE_LIMIT_NS / 50);
            }
            ended => return ended,
        }
    }
}

fn open_with(path: &Path, options: &OpenOptions, extra: OFlags) -> Result<File, IoError> {
    let direct = if options.buffered { OFlags::empty() } else { OFlags::DIRECT };
    let access = if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let flags = access | OFlags::CLOEXEC | direct | extra;
    let opened = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
    opened.map(File::from).map_err(|errno| open_error(path, errno, options.buffered))
}

pub(super) fn open_error(path: &Path, errno: Errno, buffered: bool) -> IoError {
    let path = path.display();
    let (kind, context) = match errno {
        Errno::INVAL if !buffered => (
            ErrorKind::Unsupported,
            format!(
                "{path}: direct I/O is not supported here; buffered I/O works, but it measures the page cache as well"
            ),
        ),
        Errno::BUSY => (ErrorKind::Busy, format!("{path} is in use: mounted, or open exclusively elsewhere")),
        Errno::NOSPC | Errno::DQUOT => (ErrorKind::NoSpace, format!("cannot create {path}")),
        _ => (ErrorKind::Open, format!("cannot open {path}")),
    };
    system(kind, context, errno.into())
}

/// The length of a file or block device, from its end.
pub(super) fn length(file: &File, path: &Path) -> Result<u64, IoError> {
    rustix::fs::seek(file, SeekFrom::End(0)).map_err(|errno| {
        system(ErrorKind::Open, format!("cannot determine the size of {}", path.display()), errno.into())
    })
}

/// The requested size, if it fits; otherwise all existing whole blocks.
fn capacity(
    path: &Path,
    options: &OpenOptions,
    present_bytes: u64,
    block_bytes: u32,
) -> Result<u64, IoError> {
    let block = u64::from(block_bytes);
    let whole_blocks = present_bytes - present_bytes % block;
    match options.size_bytes {
        None if whole_blocks == 0 => {
            Err(unusable(path, &format!("holds {present_bytes} bytes, less than one block; give a size")))
        }
        None => Ok(whole_blocks),
        Some(size) if size == 0 || !size.is_multiple_of(block) => Err(unusable(
            path,
            &format!("cannot have {size} bytes: must be a non-zero multiple of the {block}-byte block"),
        )),
        Some(size) if size > present_bytes && !options.may_make() => {
            Err(unusable(path, &format!("holds {present_bytes} bytes, but {size} are requested")))
        }
        Some(size) => Ok(size),
    }
}

fn grow(file: &File, path: &Path, from: u64, to: &Geometry, preallocate: bool) -> Result<(), IoError> {
    let size = to.capacity_bytes;
    let grown = if preallocate {
        reserve(file, path, size, size - from)
    } else {
        rustix::fs::ftruncate(file, size).map_err(|errno| not_allocated(file, path, size, errno))
    };
    grown.inspect_err(|_| {
        // After a failure, an existing file gets its former length again.
        let _ = rustix::fs::ftruncate(file, from);
    })
}

/// Longest file: the system stores offsets as signed numbers.
pub const LARGEST_FILE_BYTES: u64 = i64::MAX as u64;

/// Sets a file's length; added bytes take no space.
///
/// # Errors
/// The reason why the length is impossible, with the limit if known.
pub fn set_length(file: &File, bytes: u64) -> Result<(), String> {
    if bytes > LARGEST_FILE_BYTES {
        return Err(format!("a file has at most {LARGEST_FILE_BYTES} bytes"));
    }
    file.set_len(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => "more than a file of this file system can have".to_owned(),
        _ => error.to_string(),
    })
}

/// Reserves space for a whole existing file, so that no write can find the file system full.
///
/// # Errors
/// [`ErrorKind::NoSpace`] if there is less, [`ErrorKind::Unsupported`] if the file system does not support it, and [`ErrorKind::Open`] for
/// a file that cannot be opened.
pub fn reserve_space(path: &Path) -> Result<(), IoError> {
    let opened = File::options().write(true).open(path).and_then(|file| Ok((file.metadata()?, file)));
    let (there, file) =
        opened.map_err(|error| system(ErrorKind::Open, format!("cannot open {}", path.display()), error))?;
    reserve(&file, path, there.len(), there.len().saturating_sub(there.blocks() * 512))
}

/// Reserves space for a file of `size` bytes; `missing` of them are not allocated.
fn reserve(file: &File, path: &Path, size: u64, missing: u64) -> Result<(), IoError> {
    // The file system would fail only after taking all free space.
    if missing > free_bytes(file) {
        return Err(not_allocated(file, path, size, Errno::NOSPC));
    }
    let reserved = rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size);
    reserved.map_err(|errno| not_allocated(file, path, size, errno))
}

fn not_allocated(file: &File, path: &Path, size: u64, errno: Errno) -> IoError {
    let kind = match error_kind(&errno.into()) {
        kind @ (ErrorKind::NoSpace | ErrorKind::Unsupported) => kind,
        _ => ErrorKind::Open,
    };
    let free = free_bytes(file);
    let message =
        format!("cannot allocate {size} bytes for {}; its file system has {free} bytes free", path.display());
    system(kind, message, errno.into())
}

fn free_bytes(file: &File) -> u64 {
    rustix::fs::fstatvfs(file).map_or(u64::MAX, |fs| fs.f_bavail.saturating_mul(fs.f_frsize))
}

enum Kind {
    File,
    BlockDevice,
    Other(&'static str),
}

impl Kind {
    fn of(metadata: &Metadata) -> Self {
        let kind = metadata.file_type();
        match () {
            () if kind.is_file() => Self::File,
            () if kind.is_block_device() => Self::BlockDevice,
            () if kind.is_dir() => Self::Other("a directory"),
            () if kind.is_char_device() => Self::Other("a character device"),
            () => Self::Other("a pipe or a socket"),
        }
    }
}

fn unusable(path: &Path, why: &str) -> IoError {
    IoError::new(ErrorKind::Open, format!("{} {why}", path.display()))
}

fn system(kind: ErrorKind, context: String, error: io::Error) -> IoError {
    IoError::with_source(kind, context, error)
}
