//! Warns about flash on a file system in memory, where no drive is measured.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rustix::fs::statfs;

use super::disk_space::existing;

/// Magic numbers of file systems in memory: tmpfs (`/dev/shm`, and often `/tmp`) and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// A warning for each flash path that is, or would be created, in memory.
#[must_use]
pub fn warnings<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<String> {
    let paths: BTreeSet<&PathBuf> = paths.into_iter().collect();
    let is_memory = |path: &PathBuf| {
        // Device nodes are excluded: devtmpfs is in memory too.
        let is_place = !path.exists() || path.is_file() || path.is_dir();
        is_place && statfs(existing(path)).is_ok_and(|system| IN_MEMORY.contains(&(system.f_type as u64)))
    };
    let warning = |path: &PathBuf| {
        format!("flash: {}: is in memory (tmpfs): this run does not measure a drive", path.display())
    };
    paths.into_iter().filter(|path| is_memory(path)).map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_in_shared_memory_causes_one_warning() {
        let shared = PathBuf::from("/dev/shm/no such flash");
        if statfs("/dev/shm").map_or(true, |system| system.f_type as u64 != IN_MEMORY[0]) {
            eprintln!("SKIPPED: /dev/shm is not a tmpfs here");
            return;
        }
        let all = [shared.clone(), shared, "/proc/self/flash".into(), "/dev/null".into()];
        assert_eq!(
            warnings(&all),
            ["flash: /dev/shm/no such flash: is in memory (tmpfs): this run does not measure a drive"]
        );
    }
}
