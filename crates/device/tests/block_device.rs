//! A raw block device: a loop device, with root and `losetup`; otherwise the tests are skipped with a message.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests, outside of the test functions"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use flashwright_device::file::OpenOptions;
use flashwright_device::{Device, ErrorKind, FileDevice, IoBuffer, Request, conformance};

const CAPACITY_BYTES: u64 = 16 << 20;

/// A loop device, detached on drop; its file is removed if it was created for it.
struct LoopDevice {
    path: PathBuf,
    own: Option<tempfile::TempDir>,
}

impl LoopDevice {
    fn attach() -> Option<Self> {
        Self::attach_with(&[])
    }

    fn attach_with(more: &[&str]) -> Option<Self> {
        let own = tempfile::tempdir().unwrap();
        let backing = own.path().join("backing");
        std::fs::File::create(&backing).unwrap().set_len(CAPACITY_BYTES).unwrap();
        let mut attached = Self::over(&backing, more)?;
        attached.own = Some(own);
        Some(attached)
    }

    fn over(backing: &Path, more: &[&str]) -> Option<Self> {
        let always = ["--find", "--show", "--sector-size", "4096", backing.to_str().unwrap()];
        let printed = run("losetup", &[&always, more].concat());
        let Some(printed) = printed else {
            println!("skipped: no loop devices here");
            return None;
        };
        Some(Self { path: printed.trim().into(), own: None })
    }

    fn open(&self) -> FileDevice {
        FileDevice::open(&self.path, &OpenOptions::default()).expect("a loop device that is ours")
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        run("losetup", &["--detach", self.path.to_str().unwrap()]);
    }
}

/// The output of a command, if it exists and succeeds.
fn run(command: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(command).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn refusal(path: &Path) -> String {
    let error = FileDevice::open(path, &OpenOptions::default()).expect_err("an opening that must be refused");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    error.to_string()
}

#[test]
fn block_device_conforms() {
    let Some(disk) = LoopDevice::attach() else { return };
    conformance::run(|| Box::new(disk.open()));
}

#[test]
fn block_device_reports_its_blocks_and_is_exclusive() {
    let Some(disk) = LoopDevice::attach() else { return };
    let device = disk.open();
    assert!(device.is_block_device());
    let geometry = device.geometry();
    assert_eq!((geometry.capacity_bytes, geometry.block_bytes), (CAPACITY_BYTES, 4096));
    refusal(&disk.path);
    drop(device);
    disk.open();
}

#[test]
fn size_beyond_the_block_device_is_refused() {
    let Some(disk) = LoopDevice::attach() else { return };
    let options = OpenOptions { size_bytes: Some(2 * CAPACITY_BYTES), create: true, ..Default::default() };
    assert_eq!(FileDevice::open(&disk.path, &options).unwrap_err().kind(), ErrorKind::Open);
}

#[test]
fn write_protected_drive_can_be_read() {
    let Some(disk) = LoopDevice::attach_with(&["--read-only"]) else { return };
    let options = OpenOptions::default();
    let refused = FileDevice::open(&disk.path, &options).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Open);
    assert!(refused.to_string().contains("is write-protected"), "{refused}");
    let device = FileDevice::open(&disk.path, &OpenOptions { read_only: true, ..options }).unwrap();
    let read = Request::read(4096, 4096);
    assert!(device.execute(read).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn trim_reaches_the_block_device() {
    let Some(disk) = LoopDevice::attach() else { return };
    let device = disk.open();
    let data = IoBuffer::copy_of(&[7; 8192]);
    device.execute(Request::write(0, data)).unwrap();
    device.execute(Request::Trim { offset: 0, len: 8192 }).unwrap();
    let read = device.execute(Request::read(0, 8192)).unwrap();
    assert!(read.iter().all(|&byte| byte == 0), "a loop device punches a hole");
    assert_eq!(device.counters().trimmed_bytes, 8192);
}

/// Exclusive use of a partition excludes the whole device, but not the other partitions.
#[test]
fn partition_in_use_blocks_only_overlapping_loop_devices() {
    let Some(whole) = LoopDevice::attach_with(&["--partscan"]) else { return };
    let disk = whole.path.to_str().unwrap();
    let made =
        [("1", "2048"), ("2", "16384")].map(|(number, start)| run("addpart", &[disk, number, start, "8192"]));
    if made.contains(&None) {
        println!("skipped: no partitions of loop devices here");
        return;
    }
    let first = FileDevice::open(Path::new(&format!("{disk}p1")), &OpenOptions::default()).unwrap();
    let backing = whole.own.as_ref().unwrap().path().join("backing");
    let over = |part: [&str; 4]| LoopDevice::over(&backing, &part).unwrap();
    let second = over(["--offset", "8MiB", "--sizelimit", "4MiB"]);
    let between = over(["--offset", "6MiB", "--sizelimit", "1MiB"]);
    let same = over(["--offset", "1MiB", "--sizelimit", "1MiB"]);
    second.open();
    between.open();
    assert!(refusal(&same.path).contains(&format!("{disk}p1, which has the same bytes")));
    drop(first);
    same.open();
    let _whole = whole.open();
    for part in [&second, &between, &same] {
        assert!(refusal(&part.path).contains("which has the same bytes"), "{}", part.path.display());
    }
}

#[test]
fn mounted_block_device_is_refused_with_its_mount_point() {
    let Some(disk) = LoopDevice::attach() else { return };
    let place = tempfile::tempdir().unwrap();
    let (device, place) = (disk.path.to_str().unwrap(), place.path().to_str().unwrap());
    if run("mkfs.ext4", &["-q", device]).is_none() || run("mount", &[device, place]).is_none() {
        return println!("skipped: mounting is not possible here");
    }
    let message = std::panic::catch_unwind(|| refusal(&disk.path));
    run("umount", &[place]).expect("the mount to go again");
    let message = message.unwrap();
    assert!(message.contains(place), "{message}");
}
