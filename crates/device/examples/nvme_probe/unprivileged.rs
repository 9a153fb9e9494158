//! A user without privilege: the device works, and its statistics are unknown. This probe starts itself again as that user.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use flashwright_device::{Device, PassthroughDevice, PlacementHandle};

use crate::drives::{BLOCK_BYTES, Drives, PLACING, passes_commands_for_everyone, placed, write};
use crate::{Check, Verdict};

const NOBODY: u32 = 65_534;

pub const CHECKS: &[Check] =
    &[("without privilege the device places, and media bytes are unknown", as_unprivileged_user)];

fn as_unprivileged_user(drives: &Drives) -> Verdict {
    let path = drives.generic(PLACING);
    std::fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
    let myself = std::env::current_exe().unwrap();
    let status = Command::new(myself).arg(path).uid(NOBODY).gid(NOBODY).status().unwrap();
    assert!(status.success(), "{status}");
    Verdict::Held
}

/// The checks run as that user.
pub fn look_at(path: &Path) -> ExitCode {
    match PassthroughDevice::open(path, &placed()) {
        Err(error) => {
            assert!(!passes_commands_for_everyone(), "{error}");
            assert!(error.to_string().contains("before Linux 6.2"), "{error}");
        }
        Ok(device) => {
            assert!(passes_commands_for_everyone());
            assert_eq!(device.counters().media_written_bytes, None);
            for submitted in [true, false] {
                write(&device, 0, BLOCK_BYTES, PlacementHandle(1), submitted);
            }
            device.renew(PlacementHandle(1)).unwrap();
        }
    }
    ExitCode::SUCCESS
}
