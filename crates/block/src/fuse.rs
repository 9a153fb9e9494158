//! Serves an export as the single file of a FUSE file system, for programs that need a file and for loop devices.
//!
//! ```text
//! losetup --find --show --direct-io=on MOUNTPOINT/NAME
//! ```
//!
//! The kernel caches nothing of the file, so writes through one front end are visible in the others immediately. `fsync` is a flush,
//! and writes with `O_DSYNC` or `O_SYNC` are durable when acknowledged. Zeroing a range is supported. Punching a hole, which must
//! read as zeros, is supported only if the disk reads trimmed blocks as zeros: otherwise discarding a large device would
//! take as long as overwriting it.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod session_end;

pub use session_end::OnFailure;

use std::ffi::OsStr;
use std::io;
use std::mem::ManuallyDrop;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use device::timer::{SystemTimer, Timer};
use device::{Clock, ErrorKind, IoBuffer, IoError};
use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;
use rustix::mount::{UnmountFlags, unmount};

use crate::export::{Client, Export, Operation, Reply};
use session_end::SessionEnd;

/// A mounted file system with one file. Dropping it unmounts it.
pub struct Mounted {
    /// Never dropped: fuser's session would unmount the file system that is then at the path, even another one. Its descriptor
    /// stays open until the process ends.
    session: Option<ManuallyDrop<BackgroundSession>>,
    path: PathBuf,
    source: String,
    /// Identity of its root directory: device number and inode.
    identity: Option<(u64, u64)>,
}

/// The result of unmounting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmounted {
    /// The file system is gone.
    Completely,
    /// The file system is detached from its path, but its file is still open. Requests are answered until the process ends and fail
    /// afterwards.
    InUse,
}

/// Start of the source name in the mount table. The process and a counter follow, because the kernel gives the device number of an
/// unmounted file system to the next one.
const SOURCE: &str = "flashwright:";

/// Time within which the kernel ends the session after an unmount.
const SESSION_END_NS: u64 = 1_000_000_000;

/// Cache time of attributes in the kernel: they never change.
const ATTRIBUTE_TTL: Duration = Duration::from_secs(86_400);

/// Inode of the file; the directory is [`INodeNo::ROOT`].
const FILE: INodeNo = INodeNo(2);

/// Number of the next mount of this process, for its source name and the inode of its directory.
static MOUNTS: AtomicU64 = AtomicU64::new(0);

/// Concurrent requests from the kernel.
const MAX_BACKGROUND: u16 = 64;

/// Modes of `fallocate(2)`: `FALLOC_FL_ZERO_RANGE`, `FALLOC_FL_PUNCH_HOLE` and `FALLOC_FL_KEEP_SIZE`. The file always keeps its
/// size.
const ZERO_RANGE: i32 = 0x10;
const PUNCH_HOLE: i32 = 0x02;
const KEEP_SIZE: i32 = 0x01;

/// Longest read that an export must accept. The kernel's are much shorter.
const MAX_READ_BYTES: u32 = 32 << 20;

/// Shorter holes are made by writing zeros if necessary.
const MAX_WRITTEN_HOLE_BYTES: u64 = 256 << 10;

impl Mounted {
    /// Mounts a file system at the directory `path`, with `export` as its file `name`. The export must accept any
    /// offset and length. If the session fails, the file system is unmounted, its clients get errors, and `on_failure` is called.
    ///
    /// # Errors
    /// If it cannot be mounted, for example without FUSE, permission or the directory.
    pub fn at(path: &Path, name: &str, export: Arc<dyn Export>, on_failure: OnFailure) -> io::Result<Self> {
        let mut config = Config::default();
        let path = path.canonicalize()?;
        let (process, mount) = (std::process::id(), MOUNTS.fetch_add(1, Ordering::Relaxed));
        let inode = u64::from(process) << 32 | mount;
        let source = format!("{SOURCE}{process}.{mount}");
        config.mount_options =
            vec![MountOption::FSName(source.clone()), MountOption::RW, MountOption::NoAtime];
        let end = SessionEnd::new(path.clone(), source.clone(), on_failure);
        let files = OneFile { name: name.into(), export, inode: INodeNo(inode), _end: Some(end) };
        let session = fuser::spawn_mount(files, &path, &config)?;
        let identity = identity(&path).filter(|seen| seen.1 == inode);
        Ok(Self { session: Some(ManuallyDrop::new(session)), path, source, identity })
    }

    /// Unmounts and waits for requests in flight. Succeeds if the file system was already unmounted.
    ///
    /// # Errors
    /// If another file system is mounted over it, or if `fusermount3` is needed and fails. It stays mounted then until the process
    /// ends.
    pub fn unmount(mut self) -> io::Result<Unmounted> {
        self.unmount_once()
    }

    fn unmount_once(&mut self) -> io::Result<Unmounted> {
        let Some(session) = self.session.take() else { return Ok(Unmounted::Completely) };
        let is_alive = !session.guard.is_finished();
        if self.is_visible(is_alive) {
            return self.end(&session);
        }
        if is_alive && is_in_mount_table(&self.source) {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another file system is mounted over it",
            ));
        }
        // Already unmounted. Open files are served until the process ends.
        Ok(Unmounted::Completely)
    }

    /// Detaches the file system, as libfuse's servers do: open files are served until the process ends, and the path shows the
    /// directory below.
    fn end(&self, session: &BackgroundSession) -> io::Result<Unmounted> {
        if let Err(error) = unmount(&self.path, UnmountFlags::empty()).map_err(io::Error::from) {
            match error.kind() {
                // Another process has just unmounted the file system.
                io::ErrorKind::InvalidInput => {}
                io::ErrorKind::ResourceBusy => {
                    unmount(&self.path, UnmountFlags::DETACH)?;
                    return Ok(Unmounted::InUse);
                }
                io::ErrorKind::PermissionDenied => unmount_with_helper(&self.path)?,
                _ => return Err(error),
            }
        }
        Ok(if ends_soon(session) { Unmounted::Completely } else { Unmounted::InUse })
    }

    /// Whether this file system is visible at its path. After its session has ended, it can only be visible as disconnected.
    fn is_visible(&self, is_alive: bool) -> bool {
        match is_alive {
            true => self.identity.is_some() && identity(&self.path) == self.identity,
            false => is_disconnected(&self.path),
        }
    }
}

/// Unmounts with `fusermount3`, which is set-user-ID root.
fn unmount_with_helper(path: &Path) -> io::Result<()> {
    let with = |helper: &str| Command::new(helper).args(["-u", "-z", "--"]).arg(path).output();
    let output = with("fusermount3").or_else(|_| with("fusermount"));
    let output =
        output.map_err(|error| io::Error::new(error.kind(), format!("cannot run fusermount3: {error}")))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim_end().to_owned())),
    }
}

/// Waits briefly for the session to end, as it does if no file is open.
fn ends_soon(session: &BackgroundSession) -> bool {
    let timer = SystemTimer::default();
    let deadline_ns = timer.monotonic_ns() + SESSION_END_NS;
    while !session.guard.is_finished() && timer.monotonic_ns() < deadline_ns {
        timer.wait_until(timer.monotonic_ns() + SESSION_END_NS / 100);
    }
    session.guard.is_finished()
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|directory| (directory.dev(), directory.ino()))
}

/// Whether a FUSE file system without a server is mounted at `path`. `readdir` is used because the kernel may have cached the
/// directory's attributes.
#[must_use]
pub fn is_disconnected(path: &Path) -> bool {
    std::fs::read_dir(path).is_err_and(|error| error.kind() == io::ErrorKind::NotConnected)
}

/// Unmounts a [disconnected](is_disconnected) file system at `path` if a flashwright server mounted it. No data is lost, because it is
/// unusable. Returns whether there was one.
///
/// # Errors
/// If it cannot be unmounted.
pub fn clear_disconnected(path: &Path) -> io::Result<bool> {
    if !is_disconnected(path) || !is_ours(path) {
        return Ok(false);
    }
    match unmount(path, UnmountFlags::DETACH).map_err(io::Error::from) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            unmount_with_helper(path).map(|()| true)
        }
        unmounted => unmounted.map(|()| true),
    }
}

/// Whether the topmost mount at `path` is of a flashwright server.
fn is_ours(path: &Path) -> bool {
    // Canonicalizes the parent, because the directory itself may be inaccessible.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Ok(parent), Some(name)) = (parent.canonicalize(), path.file_name()) else { return false };
    topmost_mount(&parent.join(name)).is_some_and(|mount| mount.source.starts_with(SOURCE))
}

/// A FUSE file system in the mount table.
struct Mount {
    source: String,
    /// Minor device number, which is also the number of its connection.
    minor: String,
}

/// The topmost mount at `path`, if it is a FUSE file system.
fn topmost_mount(path: &Path) -> Option<Mount> {
    let path = in_mount_table(path);
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    fuse_mount(table.lines().rfind(|line| line.split(' ').nth(4) == Some(&path))?)
}

/// The FUSE file system of a line of `/proc/self/mountinfo`.
fn fuse_mount(line: &str) -> Option<Mount> {
    let (_, minor) = line.split(' ').nth(2)?.split_once(':')?;
    let (kind, rest) = line.split_once(" - ")?.1.split_once(' ')?;
    kind.starts_with("fuse").then(|| Mount {
        source: rest.split(' ').next().unwrap_or_default().to_owned(),
        minor: minor.to_owned(),
    })
}

/// Escapes a path as in `/proc/self/mountinfo`.
fn in_mount_table(path: &Path) -> String {
    let escapes = [('\\', "\\134"), (' ', "\\040"), ('\t', "\\011"), ('\n', "\\012")];
    let path = path.display().to_string();
    escapes.into_iter().fold(path, |path, (character, escape)| path.replace(character, escape))
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // An error cannot be reported here.
        let _ = self.unmount_once();
    }
}

/// Whether a FUSE file system with this source name is mounted anywhere; true if unknown.
fn is_in_mount_table(source: &str) -> bool {
    let is_it = |line: &str| fuse_mount(line).is_some_and(|mount| mount.source == source);
    std::fs::read_to_string("/proc/self/mountinfo").map_or(true, |table| table.lines().any(is_it))
}

struct OneFile {
    name: String,
    export: Arc<dyn Export>,
    /// Inode number shown for the directory.
    inode: INodeNo,
    _end: Option<SessionEnd>,
}

impl OneFile {
    fn file(&self) -> FileAttr {
        let shape = self.export.shape();
        FileAttr {
            ino: FILE,
            size: shape.size_bytes,
            blocks: shape.size_bytes / 512,
            kind: FileType::RegularFile,
            perm: if shape.read_only { 0o400 } else { 0o600 },
            nlink: 1,
            blksize: shape.preferred_bytes.max(shape.sector_bytes),
            ..self.directory()
        }
    }

    /// Length of the part of the range that lies within the file.
    fn within(&self, offset: u64, len: u64) -> u64 {
        len.min(self.export.shape().size_bytes.saturating_sub(offset))
    }

    fn directory(&self) -> FileAttr {
        FileAttr {
            ino: self.inode,
            size: 0,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: FileType::Directory,
            perm: 0o700,
            nlink: 2,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for OneFile {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel without this feature serves direct requests one after the other.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == OsStr::new(&self.name) {
            reply.entry(&ATTRIBUTE_TTL, &self.file(), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match number {
            INodeNo::ROOT => reply.attr(&ATTRIBUTE_TTL, &self.directory()),
            FILE => reply.attr(&ATTRIBUTE_TTL, &self.file()),
            _ => reply.error(Errno::ENOENT),
        }
    }

    /// Times and owners are ignored; changing the size is refused.
    fn setattr(
        &self,
        _: &Request,
        _: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<std::time::SystemTime>,
        _: Option<FileHandle>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let file = self.file();
        match size {
            Some(size) if size != file.size => reply.error(Errno::EPERM),
            _ => reply.attr(&ATTRIBUTE_TTL, &file),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let entries = [
            (self.inode, FileType::Directory, "."),
            (self.inode, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, self.name.as_str()),
        ];
        for (i, (number, kind, name)) in entries.into_iter().enumerate().skip(offset as usize) {
            if reply.add(number, i as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = self.within(offset, u64::from(size)) as u32;
        if len == 0 {
            return reply.data(&[]);
        }
        if len > MAX_READ_BYTES {
            return reply.error(Errno::EINVAL);
        }
        let reply = Reply::new(move |result| match result {
            Ok(Some(bytes)) => reply.data(&bytes),
            Ok(None) => reply.error(Errno::EIO),
            Err(error) => reply.error(errno(&error)),
        });
        self.export.submit_for(&client(request), Operation::Read { offset, len }, reply);
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if self.export.shape().read_only {
            return reply.error(Errno::EROFS);
        }
        let len = self.within(offset, data.len() as u64) as u32;
        if len == 0 {
            return reply.error(Errno::ENOSPC);
        }
        let data = IoBuffer::copy_of(&data[..len as usize]).into();
        let reply = Reply::new(move |result| match result {
            Ok(_) => reply.written(len),
            Err(error) => reply.error(errno(&error)),
        });
        // The kernel passes these flags, also for a single write (`RWF_DSYNC`). `O_DSYNC` is one of the bits of `O_SYNC`.
        let durable = OFlags::from_bits_retain(flags.0 as u32).intersects(OFlags::SYNC);
        self.export.submit_for(&client(request), Operation::Write { offset, data, durable }, reply);
    }

    /// Called at every close; only `fsync` makes data durable.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, request: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.export.submit_for(&client(request), Operation::Flush, empty_reply(reply));
    }

    fn fallocate(
        &self,
        request: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if self.export.shape().read_only {
            return reply.error(Errno::EROFS);
        }
        let len = self.within(offset, length);
        match mode & !KEEP_SIZE {
            how @ (ZERO_RANGE | PUNCH_HOLE) if len == length && len > 0 => {
                let may_trim = how == PUNCH_HOLE;
                let only_if_fast = may_trim && len >= MAX_WRITTEN_HOLE_BYTES;
                let zero = Operation::Zero { offset, len, may_trim, only_if_fast, durable: false };
                self.export.submit_for(&client(request), zero, empty_reply(reply));
            }
            // The whole file is allocated.
            0 if len == length => reply.ok(),
            _ => reply.error(Errno::EOPNOTSUPP),
        }
    }
}

/// The client of a request.
fn client(request: &Request) -> Client {
    Client::Thread { tid: request.pid(), uid: request.uid() }
}

fn empty_reply(reply: ReplyEmpty) -> Reply {
    Reply::new(move |result| match result {
        Ok(_) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    })
}

fn errno(error: &IoError) -> Errno {
    match error.kind() {
        ErrorKind::Invalid => Errno::EINVAL,
        ErrorKind::NoSpace => Errno::ENOSPC,
        ErrorKind::Unsupported => Errno::EOPNOTSUPP,
        _ => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmount_helper_without_a_mount_fails() {
        let directory = std::env::temp_dir();
        let error = unmount_with_helper(&directory).expect_err("no FUSE file system is mounted there");
        assert!(error.to_string().contains("fusermount"), "{error}");
    }
}
