//! A file as a block device.

use std::path::Path;
use std::process::Command;

/// Detached on drop.
pub struct LoopDevice(pub String);

impl LoopDevice {
    /// `file` with blocks of 4 KiB; `None` with a message if loop devices are unavailable.
    pub fn attach(file: &Path, more: &[&str]) -> Option<Self> {
        let always = ["--find", "--show", "--sector-size", "4096"];
        let attached = Command::new("losetup").args(always).args(more).arg(file).output();
        let Some(attached) = attached.ok().filter(|attached| attached.status.success()) else {
            println!("skipped: no loop devices here");
            return None;
        };
        Some(Self(String::from_utf8(attached.stdout).unwrap().trim().to_owned()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached = Command::new("losetup").args(["--detach", &self.0]).status();
        assert!(
            std::thread::panicking() || detached.is_ok_and(|status| status.success()),
            "{} is busy",
            self.0
        );
    }
}
