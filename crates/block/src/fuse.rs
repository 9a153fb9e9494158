//! An export as one file of a FUSE file system, for programs that want a file and for loop devices.
//!
//! ```text
//! losetup --find --show --direct-io=on MOUNTPOINT/NAME
//! ```
//!
//! The kernel keeps nothing of the file: what one front writes, another reads at once. `fsync` is a flush, and a write with
//! `O_DSYNC` or `O_SYNC` is durable when it is acknowledged. Zeros can be made of a range. A hole, which must read as zeros ever
//! after, can be punched only where the disk promises that of what it is trimmed of: to write zeros would make discarding a large
//! device take as long as filling it.

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

use crate::export::{Caller, Client, Export, Operation};

/// A file system with one file, mounted. Dropping it unmounts it.
pub struct Mounted {
    /// Dropped, fuser's session would unmount whatever is at the place by then, be it what lies beneath or somebody else's: it takes
    /// one that is over for mounted. It is the price that its descriptor stays open until the process ends.
    session: Option<ManuallyDrop<BackgroundSession>>,
    place: PathBuf,
    /// What its directory is known by: the number that the kernel gave the file system, and the inode.
    known_by: Option<(u64, u64)>,
}

/// How one was unmounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmounted {
    /// Nobody has anything of it any more.
    Whole,
    /// It is gone from its place. Its file was open, there or in a copy of the mount: that is answered until the process ends, and
    /// fails from then on.
    InUse,
}

/// What is shown as the device that is mounted.
const SOURCE: &str = "flashwright";

/// Longer than the kernel takes to tell that a file system is unmounted.
const END_NS: u64 = 1_000_000_000;

/// How long the kernel may believe what it was told of the file: nothing of it changes.
const FOR_GOOD: Duration = Duration::from_secs(86_400);

/// The file, for the kernel, which calls the directory [`INodeNo::ROOT`].
const FILE: INodeNo = INodeNo(2);

/// What is shown as the directory's inode: each mount has its own, by which it is told from others. The number that the kernel
/// gave it is not enough, for the next file system may have that as soon as this one is unmounted.
static MOUNTS: AtomicU64 = AtomicU64::new(0);

/// Requests that the kernel sends without waiting for each other's replies.
const AT_ONCE: u16 = 64;

/// `FALLOC_FL_ZERO_RANGE` and `FALLOC_FL_PUNCH_HOLE` of `fallocate(2)`, and `FALLOC_FL_KEEP_SIZE`, which a file of one size always
/// does.
const ZERO_RANGE: i32 = 0x10;
const PUNCH_HOLE: i32 = 0x02;
const KEEP_SIZE: i32 = 0x01;

/// Zeros of less are soon written: a hole of parts of blocks is made so.
const LONG_BYTES: u64 = 256 << 10;

impl Mounted {
    /// Mounts a file system at the directory `place`, with `export` as its file `name`. The export takes requests of any
    /// offset and length.
    ///
    /// # Errors
    /// If it cannot be mounted: no FUSE, no permission, no such directory.
    pub fn at(place: &Path, name: &str, export: Arc<dyn Export>) -> io::Result<Self> {
        let mut config = Config::default();
        config.mount_options =
            vec![MountOption::FSName(SOURCE.into()), MountOption::RW, MountOption::NoAtime];
        let place = place.canonicalize()?;
        let inode = u64::from(std::process::id()) << 32 | MOUNTS.fetch_add(1, Ordering::Relaxed);
        let files = OneFile { name: name.into(), export, inode: INodeNo(inode) };
        let session = fuser::spawn_mount(files, &place, &config)?;
        let known_by = known_by(&place).filter(|seen| seen.1 == inode);
        Ok(Self { session: Some(ManuallyDrop::new(session)), place, known_by })
    }

    /// Unmounts, and waits for the last request. One that somebody else has unmounted is done with.
    ///
    /// # Errors
    /// If something else has been mounted over it, or it takes `fusermount3` and that fails; it stays mounted then until the process
    /// ends.
    pub fn unmount(mut self) -> io::Result<Unmounted> {
        self.leave()
    }

    fn leave(&mut self) -> io::Result<Unmounted> {
        let Some(session) = self.session.take() else { return Ok(Unmounted::Whole) };
        let is_alive = !session.guard.is_finished();
        if self.is_seen(is_alive) {
            return self.end(&session);
        }
        if is_alive && self.known_by.is_none_or(|(number, _)| is_in_mount_table(number)) {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "something else has been mounted over it",
            ));
        }
        // Unmounted. Whoever still has its file open is answered until the process ends.
        Ok(Unmounted::Whole)
    }

    /// Takes it from its place, as libfuse's servers do: whoever still uses it has it until the process ends, and nobody finds a
    /// directory that cannot be used.
    fn end(&self, session: &BackgroundSession) -> io::Result<Unmounted> {
        if let Err(error) = unmount(&self.place, UnmountFlags::empty()).map_err(io::Error::from) {
            match error.kind() {
                // Somebody else has unmounted it just now.
                io::ErrorKind::InvalidInput => {}
                io::ErrorKind::ResourceBusy => {
                    unmount(&self.place, UnmountFlags::DETACH)?;
                    return Ok(Unmounted::InUse);
                }
                io::ErrorKind::PermissionDenied => detach_with_help(&self.place)?,
                _ => return Err(error),
            }
        }
        Ok(if ends_soon(session) { Unmounted::Whole } else { Unmounted::InUse })
    }

    /// Whether what is seen at its place is this file system. One that is over is only there if it was broken off.
    fn is_seen(&self, is_alive: bool) -> bool {
        match is_alive {
            true => self.known_by.is_some() && known_by(&self.place) == self.known_by,
            false => is_broken_off(&self.place),
        }
    }
}

/// Detached by `fusermount3`, which may do so for everybody.
fn detach_with_help(place: &Path) -> io::Result<()> {
    let with = |helper: &str| Command::new(helper).args(["-u", "-z", "--"]).arg(place).output();
    let helped = with("fusermount3").or_else(|_| with("fusermount"));
    let helped =
        helped.map_err(|error| io::Error::new(error.kind(), format!("cannot run fusermount3: {error}")))?;
    match helped.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&helped.stderr).trim_end().to_owned())),
    }
}

/// Whether the session ends, as one does that nobody uses any more.
fn ends_soon(session: &BackgroundSession) -> bool {
    let timer = SystemTimer::default();
    let give_up_ns = timer.monotonic_ns() + END_NS;
    while !session.guard.is_finished() && timer.monotonic_ns() < give_up_ns {
        timer.wait_until(timer.monotonic_ns() + END_NS / 100);
    }
    session.guard.is_finished()
}

fn known_by(place: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(place).ok().map(|directory| (directory.dev(), directory.ino()))
}

/// Whether a file system that lost its server is mounted there. Of its directory itself the kernel may remember all that it
/// is asked.
#[must_use]
pub fn is_broken_off(place: &Path) -> bool {
    std::fs::read_dir(place).is_err_and(|error| error.kind() == io::ErrorKind::NotConnected)
}

/// Takes away what [is broken off](is_broken_off) at `place`, if a server of ours mounted it. Nothing is lost by it: nobody can use
/// it any more. Whether there was anything.
///
/// # Errors
/// If it cannot be unmounted.
pub fn clear_broken_off(place: &Path) -> io::Result<bool> {
    if !is_broken_off(place) || !is_ours(place) {
        return Ok(false);
    }
    match unmount(place, UnmountFlags::DETACH).map_err(io::Error::from) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            detach_with_help(place).map(|()| true)
        }
        unmounted => unmounted.map(|()| true),
    }
}

/// Whether what is mounted at `place` last is a file system of a server of ours.
fn is_ours(place: &Path) -> bool {
    // The directory itself may tell nothing any more.
    let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Ok(parent), Some(name)) = (parent.canonicalize(), place.file_name()) else { return false };
    let place = in_mount_table(&parent.join(name));
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let there = table.lines().rfind(|line| line.split(' ').nth(4) == Some(&place));
    let kind_and_source = there.and_then(|line| line.split_once(" - ")).map(|(_, rest)| rest);
    kind_and_source.is_some_and(|rest| rest.starts_with("fuse") && rest.split(' ').nth(1) == Some(SOURCE))
}

/// A path as it stands in `/proc/self/mountinfo`.
fn in_mount_table(path: &Path) -> String {
    let escapes = [('\\', "\\134"), (' ', "\\040"), ('\t', "\\011"), ('\n', "\\012")];
    let path = path.display().to_string();
    escapes.into_iter().fold(path, |path, (character, escape)| path.replace(character, escape))
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.leave();
    }
}

/// Whether a file system of ours that has this number is mounted anywhere, as far as can be told.
fn is_in_mount_table(number: u64) -> bool {
    let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let is_it = |line: &str| {
        let kind = line.split_once(" - ").map_or("", |(_, kind)| kind);
        line.split(' ').nth(2) == Some(&number) && kind.starts_with("fuse")
    };
    std::fs::read_to_string("/proc/self/mountinfo").map_or(true, |table| table.lines().any(is_it))
}

struct OneFile {
    name: String,
    export: Arc<dyn Export>,
    /// The directory's, for those who look.
    inode: INodeNo,
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

    /// The bytes of `len` from `offset` on that there are.
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
        // A kernel without it serves direct requests one after the other.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_background(AT_ONCE);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == OsStr::new(&self.name) {
            reply.entry(&FOR_GOOD, &self.file(), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match number {
            INodeNo::ROOT => reply.attr(&FOR_GOOD, &self.directory()),
            FILE => reply.attr(&FOR_GOOD, &self.file()),
            _ => reply.error(Errno::ENOENT),
        }
    }

    /// Times and owners are taken note of by nobody; another size cannot be had.
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
            _ => reply.attr(&FOR_GOOD, &file),
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
        let caller = Caller::new(move |answer| match answer {
            Ok(Some(bytes)) => reply.data(&bytes),
            Ok(None) => reply.error(Errno::EIO),
            Err(error) => reply.error(errno(&error)),
        });
        self.export.submit_for(&client(request), Operation::Read { offset, len }, caller);
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
        let len = self.within(offset, data.len() as u64) as u32;
        if len == 0 {
            return reply.error(Errno::ENOSPC);
        }
        let data = IoBuffer::copy_of(&data[..len as usize]).into();
        let caller = Caller::new(move |answer| match answer {
            Ok(_) => reply.written(len),
            Err(error) => reply.error(errno(&error)),
        });
        // The kernel leaves it to us, and says so of a single write (`RWF_DSYNC`) too. `O_DSYNC` is one of the bits of `O_SYNC`.
        let durable = OFlags::from_bits_retain(flags.0 as u32).intersects(OFlags::SYNC);
        self.export.submit_for(&client(request), Operation::Write { offset, data, durable }, caller);
    }

    /// Told at every close; durability is `fsync`'s.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, request: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.export.submit_for(&client(request), Operation::Flush, told(reply));
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
        let len = self.within(offset, length);
        match mode & !KEEP_SIZE {
            how @ (ZERO_RANGE | PUNCH_HOLE) if len == length && len > 0 => {
                let may_trim = how == PUNCH_HOLE;
                let only_if_fast = may_trim && len >= LONG_BYTES;
                let zero = Operation::Zero { offset, len, may_trim, only_if_fast, durable: false };
                self.export.submit_for(&client(request), zero, told(reply));
            }
            // All of the file has its space.
            0 if len == length => reply.ok(),
            _ => reply.error(Errno::EOPNOTSUPP),
        }
    }
}

/// Who made a request.
fn client(request: &Request) -> Client {
    Client::Thread { tid: request.pid(), uid: request.uid() }
}

fn told(reply: ReplyEmpty) -> Caller {
    Caller::new(move |answer| match answer {
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
    fn a_helper_that_unmounts_nothing_is_an_error() {
        let directory = std::env::temp_dir();
        let error = detach_with_help(&directory).expect_err("nothing of FUSE is mounted there");
        assert!(error.to_string().contains("fusermount"), "{error}");
    }
}
