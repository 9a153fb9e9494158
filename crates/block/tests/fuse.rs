//! The FUSE front end, as the kernel presents its file.
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]
#![allow(clippy::print_stdout, reason = "tests print what they skip")]

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, IoSlice};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use device::wrap::{FaultDevice, Faults};
use device::{Device, MemoryDevice};
use flashwright_block::export::{Admission, ByteExport, ClientExport, ClientRules, DeviceExport, Export};
use flashwright_block::fuse::{Mounted, Unmounted, clear_disconnected, is_disconnected};
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FallocateFlags, OFlags, Timespec, Timestamps, fallocate, futimens};
use rustix::io::{ReadWriteFlags, pwritev2};
use rustix::mount::{MountFlags, UnmountFlags};

const SIZE_BYTES: u64 = 16 << 20;

/// `O_DSYNC` of `open(2)`; rustix's constant of that name is `O_SYNC`.
const O_DSYNC: i32 = 0o10_000;

/// Serialises tests that mount: a program that another test starts briefly inherits the open file, and a file system with an open
/// file is busy.
static MOUNTED: Mutex<()> = Mutex::new(());

/// The mounted file system, its directory, and the device that it serves.
struct Place {
    mounted: Mounted,
    directory: tempfile::TempDir,
    device: Arc<dyn Device>,
    _alone: MutexGuard<'static, ()>,
}

/// `None` where FUSE is not available.
fn mount() -> Option<Place> {
    mount_at(tempfile::tempdir().unwrap())
}

fn mount_at(directory: tempfile::TempDir) -> Option<Place> {
    let (device, export) = memory();
    mount_export(directory, device, export)
}

fn memory() -> (Arc<dyn Device>, Arc<dyn Export>) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_block_bytes(SIZE_BYTES, 4096));
    let export = ByteExport::new(Arc::new(DeviceExport::new(Arc::clone(&device))));
    (device, Arc::new(export))
}

fn mount_export(
    directory: tempfile::TempDir,
    device: Arc<dyn Device>,
    export: Arc<dyn Export>,
) -> Option<Place> {
    let alone = MOUNTED.lock();
    match Mounted::at(directory.path(), "disk", export, Box::new(|| panic!("the session panicked"))) {
        Ok(mounted) => Some(Place { mounted, directory, device, _alone: alone }),
        Err(error) => {
            println!("SKIPPED: no FUSE here: {error}");
            None
        }
    }
}

fn open(directory: &tempfile::TempDir) -> File {
    OpenOptions::new().read(true).write(true).open(directory.path().join("disk")).unwrap()
}

#[test]
fn file_has_the_contents_of_the_device() {
    let Some(place) = mount() else { return };
    let directory = &place.directory;
    let names: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["disk"]);
    let file = open(directory);
    assert_eq!(file.metadata().unwrap().len(), SIZE_BYTES);
    let bytes: Vec<u8> = (0..300_000u32).map(|i| (i / 7) as u8).collect();
    file.write_all_at(&bytes, 12_345).unwrap();
    file.sync_all().unwrap();
    assert!(place.device.counters().flushes > 0, "fsync is a flush");
    let mut back = vec![0; bytes.len()];
    open(directory).read_exact_at(&mut back, 12_345).unwrap();
    assert!(back == bytes);
    assert_eq!(file.read_at(&mut back, SIZE_BYTES - 10).unwrap(), 10, "up to the end");
    assert_eq!(file.write_at(&[1], SIZE_BYTES).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(file.set_len(5).unwrap_err().kind(), ErrorKind::PermissionDenied);
    drop(file);
    place.mounted.unmount().unwrap();
    assert!(!directory.path().join("disk").exists());
}

#[test]
fn sync_write_is_acknowledged_after_a_flush() {
    let Some(place) = mount() else { return };
    let flushes = || place.device.counters().flushes;
    let plain = open(&place.directory);
    plain.write_all_at(&[1; 4096], 0).unwrap();
    assert_eq!(flushes(), 0, "no flush was requested");
    pwritev2(&plain, &[IoSlice::new(&[2; 4096])], 4096, ReadWriteFlags::DSYNC).unwrap();
    assert_eq!(flushes(), 1, "RWF_DSYNC");
    for (before, flag) in [(1, O_DSYNC), (2, OFlags::SYNC.bits() as i32)] {
        let mut options = OpenOptions::new();
        let file = options.write(true).custom_flags(flag).open(place.directory.path().join("disk"));
        file.unwrap().write_all_at(&[3; 512], 100).unwrap();
        assert_eq!(flushes(), before + 1, "{flag:#x}");
    }
    drop(plain);
    place.mounted.unmount().unwrap();
}

/// A test runs on its own thread, while its process ID is that of the main thread.
#[test]
fn rules_for_processes_and_users_apply_to_later_requests() {
    let ((cached_device, cached), (uncached_device, uncached)) = (memory(), memory());
    let admission = Arc::new(Admission::default());
    let export = Arc::new(ClientExport::new(cached, uncached, Arc::clone(&admission)));
    let Some(place) = mount_export(tempfile::tempdir().unwrap(), Arc::clone(&cached_device), export) else {
        return;
    };
    let file = open(&place.directory);
    let (pid, uid) = (std::process::id(), rustix::process::getuid().as_raw());
    let mut written = [0, 0];
    for (uncached, way) in [
        (vec![], 0),
        (vec![format!("pid:{pid}")], 1),
        (vec![format!("uid:{}", uid + 1), "::/0".into()], 0),
        (vec![format!("uid:{uid}")], 1),
    ] {
        let names = uncached.iter().map(|name| name.parse().unwrap()).collect();
        admission.set_rules(ClientRules { uncached: names, ..ClientRules::default() });
        file.write_all_at(&[1; 4096], 0).unwrap();
        written[way] += 4096;
        let now = [&cached_device, &uncached_device].map(|device| device.counters().written_bytes);
        assert_eq!(now, written, "{uncached:?}");
    }
    assert_eq!(admission.uncached_requests(), 2);
    drop(file);
    place.mounted.unmount().unwrap();
}

/// A loop device on the file passes trims of its file system as holes.
#[test]
fn punched_hole_reads_as_zeros_and_frees_space() {
    let Some(place) = mount() else { return };
    let file = open(&place.directory);
    file.write_all_at(&vec![7; 1 << 20], 0).unwrap();
    let punch = |offset, len| {
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len).unwrap();
    };
    punch(64 << 10, 512 << 10);
    punch(100, 200);
    let mut back = vec![0; 1 << 20];
    file.read_exact_at(&mut back, 0).unwrap();
    let is_hole = |at: usize| (100..300).contains(&at) || (64 << 10..576 << 10).contains(&at);
    assert!(back.iter().enumerate().all(|(at, &byte)| (byte == 0) == is_hole(at)));
    assert_eq!(place.device.hole_in(0..1 << 20), Some(64 << 10..576 << 10), "its space is given back");
    drop(file);
    place.mounted.unmount().unwrap();
}

/// Without trims that read as zeros, a long hole would have to be written.
#[test]
fn long_hole_on_device_without_zeroing_trim_is_refused() {
    let alone = MOUNTED.lock();
    let directory = tempfile::tempdir().unwrap();
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::with_block_bytes(SIZE_BYTES, 4096));
    let device = Arc::new(FaultDevice::new(memory, 1, Faults::default()));
    let export = ByteExport::new(Arc::new(DeviceExport::new(device)));
    let Ok(mounted) = Mounted::at(directory.path(), "disk", Arc::new(export), Box::new(|| ())) else {
        return;
    };
    let file = open(&directory);
    file.write_all_at(&vec![7; 1 << 20], 0).unwrap();
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(fallocate(&file, flags, 0, 1 << 20), Err(rustix::io::Errno::OPNOTSUPP));
    let mut back = vec![0; 1 << 20];
    file.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(back, vec![7; 1 << 20], "nothing was touched");
    drop(file);
    mounted.unmount().unwrap();
    drop(alone);
}

/// Unmounts the directory, or the file system mounted over it.
fn unmount(directory: &tempfile::TempDir) {
    rustix::mount::unmount(directory.path(), UnmountFlags::empty()).unwrap();
}

/// Mounts another file system on the same directory, or on one above it.
fn mount_another(directory: &tempfile::TempDir) -> bool {
    let made = rustix::mount::mount("none", directory.path(), "tmpfs", MountFlags::empty(), None);
    if let Err(error) = made {
        println!("SKIPPED: no file system can be mounted here: {error}");
    }
    made.is_ok()
}

#[test]
fn mount_removed_by_another_process_ends_the_session() {
    let Some(place) = mount() else { return };
    unmount(&place.directory);
    place.mounted.unmount().unwrap();
}

/// Repeated, because the later mount gets the device number of the earlier one, perhaps before the session has ended.
#[test]
fn later_mount_on_the_same_directory_is_not_unmounted() {
    for _ in 0..20 {
        let Some(place) = mount() else { return };
        unmount(&place.directory);
        if mount_another(&place.directory) {
            std::fs::write(place.directory.path().join("theirs"), "").unwrap();
            place.mounted.unmount().unwrap();
            assert!(place.directory.path().join("theirs").exists());
            unmount(&place.directory);
        }
    }
}

/// Dropping the session must not unmount the file system below.
#[test]
fn mount_below_stays_mounted() {
    let directory = tempfile::tempdir().unwrap();
    if !mount_another(&directory) {
        return;
    }
    let beneath = directory.path().join("beneath");
    std::fs::write(&beneath, "").unwrap();
    match mount_at(directory) {
        Some(place) => {
            assert!(!beneath.exists(), "the file system is over it");
            assert_eq!(place.mounted.unmount().unwrap(), Unmounted::Completely);
            assert!(beneath.exists());
            unmount(&place.directory);
        }
        None => rustix::mount::unmount(beneath.parent().unwrap(), UnmountFlags::empty()).unwrap(),
    }
}

#[test]
fn mount_below_another_file_system_is_not_waited_for() {
    let Some(place) = mount() else { return };
    if mount_another(&place.directory) {
        let refused = place.mounted.unmount().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
        unmount(&place.directory);
        unmount(&place.directory);
    }
}

/// Otherwise a dead mount would remain after the process, and the next server would refuse the directory.
#[test]
fn unmount_with_an_open_file_detaches_the_mount() {
    let Some(place) = mount() else { return };
    let file = open(&place.directory);
    file.write_all_at(&[5; 4096], 0).unwrap();
    assert_eq!(place.mounted.unmount().unwrap(), Unmounted::InUse);
    assert!(!is_disconnected(place.directory.path()) && !place.directory.path().join("disk").exists());
    let mut back = [0; 4096];
    file.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(back, [5; 4096], "open files are served until the end");
}

#[test]
fn mount_with_a_live_server_is_not_cleared() {
    let Some(place) = mount() else { return };
    assert!(!clear_disconnected(place.directory.path()).unwrap());
    assert!(place.directory.path().join("disk").exists());
    assert_eq!(place.mounted.unmount().unwrap(), Unmounted::Completely);
    assert!(!clear_disconnected(place.directory.path()).unwrap(), "nothing is mounted");
}

/// The output of a shell script; `None` if a program is missing or not permitted.
fn shell(script: &str) -> Option<String> {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        println!("SKIPPED: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        return None;
    }
    Some(printed)
}

#[test]
fn loop_device_on_the_file_carries_a_file_system() {
    let Some(mount) = mount() else { return };
    let disk = mount.directory.path().join("disk").display().to_string();
    let Some(found) = shell(&format!("losetup --find --show --direct-io=on {disk}")) else { return };
    let device = found.trim();
    let place = tempfile::tempdir().unwrap();
    let place = place.path().display();
    let checked = shell(&format!(
        "trap 'umount {place} 2>/dev/null || true' EXIT
         mkfs.ext4 -q -F -E nodiscard {device}; mount {device} {place}
         head -c 1000000 /dev/urandom > {place}/a; cp {place}/a {place}/b; umount {place}; mount {device} {place}
         cmp {place}/a {place}/b; rm {place}/b; sync -f {place}; fstrim -v {place}; umount {place}; e2fsck -fn {device}"
    ));
    assert!(shell(&format!("losetup -d {device}")).is_some(), "{device} is let go of");
    if let Some(printed) = checked {
        assert!(printed.contains("files") && printed.contains("bytes) trimmed"), "{printed}");
    }
    mount.mounted.unmount().unwrap();
}

/// fuser panics at a time that `SystemTime` cannot hold. Its clients must not wait forever.
#[test]
fn session_that_panics_is_unmounted() {
    let alone = MOUNTED.lock();
    let directory = tempfile::tempdir().unwrap();
    let (sender, failed) = std::sync::mpsc::channel();
    let on_failure = Box::new(move || sender.send(()).unwrap());
    let Ok(mounted) = Mounted::at(directory.path(), "disk", memory().1, on_failure) else { return };
    let file = open(&directory);
    let earliest = Timespec { tv_sec: i64::MIN, tv_nsec: 1 };
    let times = Timestamps { last_access: earliest, last_modification: earliest };
    assert!(futimens(&file, &times).is_err());
    assert!(file.read_exact_at(&mut [0; 512], 0).is_err());
    failed.recv_timeout(Duration::from_secs(60)).expect("the end is reported");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "the directory below is visible");
    drop(file);
    assert_eq!(mounted.unmount().unwrap(), Unmounted::Completely);
    drop(alone);
}
