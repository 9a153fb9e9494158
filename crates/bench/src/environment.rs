//! Where a run took place: what two results must share to be compared. No host name: results are passed around.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Kernel, processor, memory, and the devices behind `paths`. No hour is told of a run in virtual time: its result is the same,
/// byte for byte, whenever it is worked out.
#[must_use]
pub fn capture(paths: &[PathBuf], started_unix_seconds: Option<u32>) -> Value {
    let system = rustix::system::uname();
    json!({
        "kernel": format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy()),
        "architecture": system.machine().to_string_lossy(),
        "cpu": field("/proc/cpuinfo", "model name"),
        "cores": std::thread::available_parallelism().map(std::num::NonZero::get).ok(),
        "memory_bytes": memory_bytes(),
        "started_unix_seconds": started_unix_seconds,
        "devices": paths.iter().map(|path| device(path)).collect::<Vec<_>>(),
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
    })
}

/// The value of `name` in a file of `name : value` lines.
fn field(file: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Memory of the machine, where it tells.
pub(crate) fn memory_bytes() -> Option<u64> {
    let kib: u64 = field("/proc/meminfo", "MemTotal")?.strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// The block device that holds `path`, or the one that it is.
fn device(path: &Path) -> Value {
    let queue = block_device(path);
    let read = |name: &str| queue.as_ref().and_then(|queue| read_trimmed(&queue.join(name)));
    json!({
        "path": path.display().to_string(),
        "model": read("device/model"),
        "firmware": read("device/firmware_rev").or_else(|| read("device/rev")),
        "scheduler": read("queue/scheduler"),
        "rotational": read("queue/rotational").map(|flag| flag == "1"),
    })
}

/// Its directory in sysfs; a partition's is inside its disk's.
fn block_device(path: &Path) -> Option<PathBuf> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let existing = path.ancestors().find_map(|ancestor| std::fs::metadata(ancestor).ok())?;
    let number = if existing.file_type().is_block_device() { existing.rdev() } else { existing.dev() };
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let directory = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    if directory.join("queue").is_dir() { Some(directory) } else { directory.parent().map(Path::to_owned) }
}

fn read_trimmed(file: &Path) -> Option<String> {
    Some(std::fs::read_to_string(file).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_always_tells_is_there() {
        let environment = capture(&[std::env::temp_dir()], Some(7));
        assert!(environment["kernel"].as_str().unwrap().starts_with("Linux"));
        assert!(environment["cores"].as_u64().unwrap() > 0);
        assert!(environment["memory_bytes"].as_u64().unwrap() > 1 << 20);
        assert_eq!(environment["devices"].as_array().unwrap().len(), 1);
        assert!(environment.get("hostname").is_none());
    }
}
