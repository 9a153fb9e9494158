//! Locks files, and finds other processes that use them.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::{ErrorKind, IoError};

/// Locks the file exclusively until it is closed.
pub(crate) fn claim_file(file: &File, path: &Path) -> Result<(), IoError> {
    lock(file, path, FlockOperation::NonBlockingLockExclusive, "it")
}

/// Locks `file` in shared mode until it is closed. For errors, `path` is the device to open and `what` describes the file.
pub(super) fn share_file(file: &File, path: &Path, what: &str) -> Result<(), IoError> {
    lock(file, path, FlockOperation::NonBlockingLockShared, what)
}

fn lock(file: &File, path: &Path, how: FlockOperation, what: &str) -> Result<(), IoError> {
    let path = path.display();
    match rustix::fs::flock(file, how) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            let holder = lock_holder(file).unwrap_or_else(|| "another process".into());
            Err(IoError::new(ErrorKind::Busy, format!("{path} is in use: {holder} has {what} locked")))
        }
        Err(errno) => Err(IoError::with_source(ErrorKind::Open, format!("cannot lock {path}"), errno.into())),
    }
}

/// The process that has the file locked, if the system reports it: `process 12 (name)`.
fn lock_holder(file: &File) -> Option<String> {
    Some(named(&lock_holder_number(file)?))
}

/// The process that has the file with this device and inode locked exclusively.
pub(super) fn exclusive_holder(device: u64, inode: u64) -> Option<String> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let place = place_of(device, inode);
    let mut locks = locks.lines().filter_map(flock_of);
    locks.find(|lock| lock.kind == "WRITE" && lock.place == place).map(|lock| named(lock.process))
}

fn named(process: &str) -> String {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    format!("process {process} ({})", name.trim_end())
}

/// Whether the lock's holder is known to be alive. The kernel lists no lock of a process that has ended, nor one of another container.
pub(super) fn has_living_holder(file: &File) -> bool {
    let process = lock_holder_number(file).and_then(|number| Pid::from_raw(number.parse().ok()?));
    process.is_some_and(|process| test_kill_process(process) != Err(Errno::SRCH))
}

/// Whether all locks on the file are shared: `udev` briefly takes such a lock to inspect a device after a writer, such as a killed server,
/// closed it. Of the permanent users, only loop devices on the file share it.
pub(super) fn has_only_shared_locks(file: &File) -> bool {
    // This shared lock is temporary: the next attempt makes it exclusive, or the file is closed.
    rustix::fs::flock(file, FlockOperation::NonBlockingLockShared).is_ok()
}

fn lock_holder_number(file: &File) -> Option<String> {
    let metadata = file.metadata().ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    flock_holder(&locks, metadata.dev(), metadata.ino()).map(str::to_owned)
}

/// The process in a line of `/proc/locks` (`1: FLOCK  ADVISORY  WRITE 12 fe:00:34 0 EOF`) for this inode of this device. Some file systems
/// (btrfs) list another device number than the file's: then the inode alone decides.
fn flock_holder(locks: &str, device: u64, inode: u64) -> Option<&str> {
    let exactly = place_of(device, inode);
    let alike = format!(":{inode}");
    let find =
        |is_it: &dyn Fn(&str) -> bool| locks.lines().filter_map(flock_of).find(|lock| is_it(lock.place));
    let found = find(&|place| place == exactly).or_else(|| find(&|place| place.ends_with(&alike)));
    found.map(|lock| lock.process)
}

fn place_of(device: u64, inode: u64) -> String {
    format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device))
}

/// A lock in `/proc/locks`.
struct Flock<'a> {
    kind: &'a str,
    process: &'a str,
    place: &'a str,
}

fn flock_of(line: &str) -> Option<Flock<'_>> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, "FLOCK", _, kind, process, place, ..] = fields[..] else { return None };
    Some(Flock { kind, process, place })
}

/// The use of the block device at `path`, as far as the system reports it: a mount of it or of a partition, or another device on top of it.
/// An exclusive open would fail too, but without a name.
#[must_use]
pub fn holder_of_block_device(path: &Path) -> Option<String> {
    holder_of(fs::metadata(path).ok()?.rdev())
}

/// As [`holder_of_block_device`], for a block device number.
pub(crate) fn holder_of(number: u64) -> Option<String> {
    let sysfs = sysfs_directory(number)?;
    let partitions: Vec<u64> =
        partitions(&sysfs).iter().filter_map(|partition| device_number(partition)).collect();
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    for (source, place) in mounts.lines().filter_map(mount) {
        let mounted = fs::metadata(source).map_or(0, |metadata| metadata.rdev());
        if mounted == number {
            return Some(format!("mounted on {place}"));
        }
        if mounted != 0 && partitions.contains(&mounted) {
            return Some(format!("its partition {source} is mounted on {place}"));
        }
    }
    let upon = fs::read_dir(sysfs.join("holders")).ok()?.flatten().next()?;
    Some(format!("device {} is built on it", upon.file_name().to_string_lossy()))
}

/// Source and mount point in a line of `/proc/self/mounts`, if the source is a path.
fn mount(line: &str) -> Option<(&str, &str)> {
    let (source, rest) = line.split_once(' ')?;
    let (place, _) = rest.split_once(' ')?;
    source.starts_with('/').then_some((source, place))
}

pub(super) fn sysfs_directory(number: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}

/// The partitions of a disk: subdirectories that have a partition number.
pub(super) fn partitions(disk: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(disk) else { return Vec::new() };
    let directories = entries.flatten().map(|entry| entry.path());
    directories.filter(|path| path.join("partition").exists()).collect()
}

fn device_number(sysfs: &Path) -> Option<u64> {
    let text = fs::read_to_string(sysfs.join("dev")).ok()?;
    let (major, minor) = text.trim_end().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_is_found_by_inode() {
        let locks = "4: FLOCK  ADVISORY  WRITE 1201 fe:00:3407 0 EOF";
        let device = rustix::fs::makedev(0xfe, 0);
        assert_eq!(flock_holder(locks, device, 3407), Some("1201"));
        assert_eq!(flock_holder(locks, device, 407), None, "an inode with the same ending");
        assert_eq!(flock_holder("1: POSIX  ADVISORY  WRITE 1201 fe:00:3407 0 EOF", device, 3407), None);
        let waits = "1: -> FLOCK  ADVISORY  WRITE 7 fe:00:3407 0 EOF";
        assert_eq!(flock_holder(waits, device, 3407), None, "a waiting process");
    }

    #[test]
    fn lock_on_another_file_system_is_not_matched() {
        let locks = "1: FLOCK  ADVISORY  WRITE 7 00:2a:2 0 EOF\n2: FLOCK  ADVISORY  WRITE 8 00:2b:2 0 EOF\n";
        let device = |minor| rustix::fs::makedev(0, minor);
        assert_eq!(flock_holder(locks, device(0x2b), 2), Some("8"));
        assert_eq!(flock_holder(locks, device(0x2a), 2), Some("7"));
        assert_eq!(
            flock_holder(locks, device(0x2c), 2),
            Some("7"),
            "a file system with another device number"
        );
    }

    #[test]
    fn only_mounts_of_paths_are_found() {
        assert_eq!(mount("/dev/vda1 / ext4 rw 0 0"), Some(("/dev/vda1", "/")));
        assert_eq!(mount("tmpfs /tmp tmpfs rw 0 0"), None);
        assert_eq!(mount(""), None);
    }
}
