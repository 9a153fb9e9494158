//! Describes the machine of a run, for comparing results. It has no host name, because results are shared.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Kernel, processor, memory, and the devices of `paths`. A run in virtual time has no start time, so that its result is
/// reproducible byte for byte.
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

/// Memory of the machine, if known.
pub(crate) fn memory_bytes() -> Option<u64> {
    let kib: u64 = field("/proc/meminfo", "MemTotal")?.strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// Memory that this process can still allocate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreeMemory {
    pub(crate) bytes: u64,
    /// Whether a cgroup limits it below the memory of the machine.
    pub(crate) is_cgroup: bool,
}

/// Free memory of the machine and of this process's cgroups, without swap; `None` if neither is known.
pub(crate) fn free_memory() -> Option<FreeMemory> {
    let available = field("/proc/meminfo", "MemAvailable");
    let kib: Option<u64> = available.and_then(|text| text.strip_suffix(" kB")?.parse().ok());
    let of_machine = kib.map(|kib| kib * 1024);
    let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_cgroup = cgroup_free_bytes(Path::new("/sys/fs/cgroup"), &membership);
    let bytes = of_machine.into_iter().chain(of_cgroup).min()?;
    Some(FreeMemory { bytes, is_cgroup: of_machine.is_none_or(|machine| bytes < machine) })
}

/// Free bytes below the memory limits of the cgroups in `membership` (`/proc/self/cgroup`) and of their parents.
fn cgroup_free_bytes(mount: &Path, membership: &str) -> Option<u64> {
    let line = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let path = path.trim_start_matches('/');
        match controllers {
            "" => Some(free_in(mount, path, ["memory.max", "memory.current", "inactive_file"])),
            controllers if controllers.split(',').any(|name| name == "memory") => {
                let files = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"];
                Some(free_in(&mount.join("memory"), path, files))
            }
            _ => None,
        }
    };
    membership.lines().filter_map(line).flatten().min()
}

/// The smallest number of free bytes in the cgroup `path` below `mount` and in its parents. In a container the path may be that of
/// the host, where only the mount point exists. Inactive page cache counts as free: the kernel reclaims it.
fn free_in(mount: &Path, path: &str, [limit, usage, inactive]: [&str; 3]) -> Option<u64> {
    let group = mount.join(path);
    let above = group.ancestors().take_while(|group| group.starts_with(mount));
    let free = |group: &Path| {
        let read = |name: &str| read_trimmed(&group.join(name))?.parse::<u64>().ok();
        let stat = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let value = |line: &str| line.strip_prefix(inactive)?.trim().parse::<u64>().ok();
        let cached = stat.lines().find_map(value).unwrap_or(0);
        Some(read(limit)?.saturating_sub(read(usage)?.saturating_sub(cached)))
    };
    above.filter_map(free).min()
}

/// The block device that holds the file `path`; `path` itself if it is a block device.
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

/// Directory of the device in sysfs; for a partition that of its disk.
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
    fn cgroup_limits_count_down_from_the_tightest_group() {
        let root = tempfile::tempdir().unwrap();
        let write = |group: &str, files: [(&str, &str); 3]| {
            let folder = root.path().join(group);
            std::fs::create_dir_all(&folder).unwrap();
            files.iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).unwrap());
        };
        let stat = "anon 5\ninactive_file 100\n";
        write("a", [("memory.max", "1000\n"), ("memory.current", "400\n"), ("memory.stat", stat)]);
        write("a/b", [("memory.max", "max\n"), ("memory.current", "300\n"), ("memory.stat", stat)]);
        assert_eq!(cgroup_free_bytes(root.path(), "0::/a/b\n"), Some(700));
        assert_eq!(cgroup_free_bytes(root.path(), "0::/gone/a\n"), None, "no limit is set at the mount");
        let files = [
            ("memory.limit_in_bytes", "900"),
            ("memory.usage_in_bytes", "200"),
            ("memory.stat", "total_inactive_file 50"),
        ];
        write("memory/c", files);
        assert_eq!(cgroup_free_bytes(root.path(), "4:cpu,memory:/c\n0::/a/b\n"), Some(700));
        assert_eq!(cgroup_free_bytes(root.path(), "4:memory:/c\n"), Some(750));
        assert_eq!(cgroup_free_bytes(root.path(), "1:cpu:/a\n"), None);
    }

    #[test]
    fn capture_has_kernel_cores_memory_and_no_host_name() {
        let environment = capture(&[std::env::temp_dir()], Some(7));
        assert!(environment["kernel"].as_str().unwrap().starts_with("Linux"));
        assert!(environment["cores"].as_u64().unwrap() > 0);
        assert!(environment["memory_bytes"].as_u64().unwrap() > 1 << 20);
        assert_eq!(environment["devices"].as_array().unwrap().len(), 1);
        assert!(environment.get("hostname").is_none());
    }
}
