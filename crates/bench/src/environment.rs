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
pub struct FreeMemory {
    /// Free bytes.
    pub bytes: u64,
    /// Whether a cgroup limits it below the memory of the machine.
    pub is_cgroup: bool,
}

/// Free memory of the machine and of this process's cgroups, without swap; `None` if neither is known.
#[must_use]
pub fn free_memory() -> Option<FreeMemory> {
    let available = field("/proc/meminfo", "MemAvailable");
    let kib: Option<u64> = available.and_then(|text| text.strip_suffix(" kB")?.parse().ok());
    let of_machine = kib.map(|kib| kib * 1024);
    let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_cgroup = cgroup_free_bytes(Path::new("/sys/fs/cgroup"), &membership);
    let bytes = of_machine.into_iter().chain(of_cgroup).min()?;
    Some(FreeMemory { bytes, is_cgroup: of_machine.is_none_or(|machine| bytes < machine) })
}

/// The files of a cgroup version: limits, usage, and the name of inactive page cache in `memory.stat`.
struct MemoryFiles {
    limits: &'static [&'static str],
    usage: &'static str,
    inactive: &'static str,
}

const V1: MemoryFiles = MemoryFiles {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    inactive: "total_inactive_file",
};
/// Above `memory.high` the kernel throttles the process.
const V2: MemoryFiles = MemoryFiles {
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    inactive: "inactive_file",
};

/// Free bytes below the memory limits of the cgroups in `membership` (`/proc/self/cgroup`) and of their parents.
fn cgroup_free_bytes(mount: &Path, membership: &str) -> Option<u64> {
    let line = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        // A path outside this process's cgroup namespace: its limits are not visible.
        let path = Some(path.trim_start_matches('/')).filter(|path| !path.starts_with(".."))?;
        match controllers {
            // Where version 1 is mounted, too, version 2 is at `unified`.
            "" => [mount.join("unified"), mount.to_owned()]
                .iter()
                .filter_map(|mount| free_in(mount, path, &V2))
                .min(),
            controllers if controllers.split(',').any(|name| name == "memory") => {
                free_in(&mount.join("memory"), path, &V1)
            }
            _ => None,
        }
    };
    membership.lines().filter_map(line).min()
}

/// The smallest number of free bytes in the cgroup `path` below `mount` and in its parents. In a container the path may be that of
/// the host, where only the mount point exists. Inactive page cache counts as free: the kernel reclaims it.
fn free_in(mount: &Path, path: &str, files: &MemoryFiles) -> Option<u64> {
    let group = mount.join(path);
    let above = group.ancestors().take_while(|group| group.starts_with(mount));
    let free = |group: &Path| {
        let read = |name: &str| read_trimmed(&group.join(name))?.parse::<u64>().ok();
        let stat = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let in_stat =
            |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let cached = in_stat(files.inactive).unwrap_or(0);
        // Version 1 reports the limits of parents, too, which may be outside the mount.
        let of_parents = in_stat("hierarchical_memory_limit");
        let limit = files.limits.iter().filter_map(|name| read(name)).chain(of_parents).min()?;
        Some(limit.saturating_sub(read(files.usage)?.saturating_sub(cached)))
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

    /// Writes a cgroup's files below `mount`.
    fn group(mount: &tempfile::TempDir, path: &str, files: &[(&str, &str)]) {
        let folder = mount.path().join(path);
        std::fs::create_dir_all(&folder).unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).unwrap());
    }

    const V2_STAT: (&str, &str) = ("memory.stat", "anon 5\ninactive_file 100\n");

    #[test]
    fn free_memory_of_nested_v2_groups_is_the_smallest_of_all_ancestors() {
        let mount = tempfile::tempdir().unwrap();
        let limited = |max, current| {
            [("memory.max", max), ("memory.high", "max\n"), ("memory.current", current), V2_STAT]
        };
        group(&mount, "a", &limited("1000\n", "400\n"));
        group(&mount, "a/b", &limited("max\n", "300\n"));
        group(&mount, "a/b/c", &limited("900\n", "150\n"));
        let free = |membership| cgroup_free_bytes(mount.path(), membership);
        assert_eq!(free("0::/a\n"), Some(1000 - (400 - 100)));
        assert_eq!(free("0::/a/b\n"), Some(700), "the limit of the parent");
        assert_eq!(free("0::/a/b/c\n"), Some(700), "the limit of the grandparent is tighter than 850");
        group(&mount, "a/b/c", &[("memory.high", "500\n")]);
        assert_eq!(free("0::/a/b/c\n"), Some(450), "memory.high");
        group(&mount, "a", &[("memory.max", "200\n")]);
        assert_eq!(free("0::/a\n"), Some(0), "a group above its limit");
    }

    #[test]
    fn v2_groups_without_a_limit_limit_nothing() {
        let mount = tempfile::tempdir().unwrap();
        group(&mount, "a", &[("memory.max", "max\n"), ("memory.high", "max\n"), ("memory.current", "400\n")]);
        for membership in ["0::/a\n", "0::/gone/a\n", "0::/\n", "1:cpu:/a\n", ""] {
            assert_eq!(cgroup_free_bytes(mount.path(), membership), None, "{membership}");
        }
    }

    #[test]
    fn limit_of_a_container_is_read_at_the_mount_point() {
        let mount = tempfile::tempdir().unwrap();
        group(&mount, "", &[("memory.max", "1000\n"), ("memory.current", "400\n"), V2_STAT]);
        let free = |membership| cgroup_free_bytes(mount.path(), membership);
        assert_eq!(free("0::/\n"), Some(700), "a cgroup namespace of its own");
        assert_eq!(free("0::/system.slice/docker-1.scope\n"), Some(700), "the path on the host");
        assert_eq!(free("0::/../other\n"), None, "outside the namespace");
    }

    #[test]
    fn v1_limits_are_read_below_the_memory_controller() {
        let mount = tempfile::tempdir().unwrap();
        let limited = |limit, usage| {
            [
                ("memory.limit_in_bytes", limit),
                ("memory.usage_in_bytes", usage),
                ("memory.stat", "inactive_file 1\ntotal_inactive_file 50\n"),
            ]
        };
        group(&mount, "memory", &limited("9223372036854771712\n", "5000\n"));
        group(&mount, "memory/c", &limited("900\n", "200\n"));
        group(&mount, "memory/c/d", &limited("9223372036854771712\n", "100\n"));
        let free = |membership| cgroup_free_bytes(mount.path(), membership);
        assert_eq!(free("4:memory:/c\n"), Some(900 - (200 - 50)));
        assert_eq!(free("5:cpu:/\n4:cpuset,memory:/c/d\n"), Some(750));
        assert_eq!(free("4:memory:/docker/1\n"), Some(9_223_372_036_854_771_712 - 4950), "no limit");
        assert_eq!(free("4:memories:/c\n"), None);
        group(
            &mount,
            "memory",
            &[("memory.stat", "hierarchical_memory_limit 6000\ntotal_inactive_file 50\n")],
        );
        assert_eq!(
            free("4:memory:/docker/1\n"),
            Some(6000 - 4950),
            "the limit of a parent outside the mount"
        );
        // Both versions: the tighter limit counts.
        group(&mount, "unified/a", &[("memory.max", "1000\n"), ("memory.current", "400\n"), V2_STAT]);
        assert_eq!(free("4:memory:/c\n0::/a\n"), Some(700));
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
