//! Identifies the boot of the operating system.

use crate::KeyHash;

/// Contains a random identifier that the kernel creates at each boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A mark of the running boot; `None` if the system has none.
pub fn boot_mark() -> Option<u64> {
    let identifier = std::fs::read(BOOT_ID).ok()?;
    Some(KeyHash::of(&identifier).0)
}
