//! A file system on the disk.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Check;
use crate::place::{DISK, Place, run, run_linked};

pub const CHECKS: &[Check] = &[("files on ext4 survive a server restart", files)];

/// The mount point.
pub const MOUNTED: &str = "/tmp/mounted";

fn files() {
    let place = Place::new();
    let server = place.serve();
    make();
    mount();
    let names: Vec<PathBuf> =
        (0..60).map(|number| Path::new(MOUNTED).join(format!("file{number}"))).collect();
    for (number, name) in names.iter().enumerate() {
        fs::write(name, content(number)).unwrap();
    }
    fs::remove_file(&names[0]).unwrap();
    run("umount", &[MOUNTED]);
    server.stop();
    place.check();
    let server = place.serve();
    check();
    mount();
    assert!(!names[0].exists());
    for (number, name) in names.iter().enumerate().skip(1) {
        assert!(fs::read(name).unwrap() == content(number), "{}", name.display());
    }
    run("umount", &[MOUNTED]);
    server.stop();
}

fn content(number: usize) -> Vec<u8> {
    (0..number * 5000).map(|at| (at % 251 + number) as u8).collect()
}

/// Creates a file system on the disk.
pub fn make() {
    make_on(DISK);
}

/// Creates a file system on a partition.
pub fn make_on(device: &str) {
    run_linked("mkfs.ext4", &["-q", "-F", device]);
}

/// Verifies the unmounted file system.
pub fn check() {
    run_linked("e2fsck", &["-f", "-n", DISK]);
}

pub fn mount() {
    mount_from(DISK);
}

pub fn mount_from(device: &str) {
    fs::create_dir_all(MOUNTED).unwrap();
    run("mount", &["-t", "ext4", device, MOUNTED]);
}
