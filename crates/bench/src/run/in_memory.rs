//! Flash on a file system that is memory: what is measured there is no drive.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rustix::fs::statfs;

use super::room::existing;

/// File systems whose files are memory: tmpfs, which `/dev/shm` and often `/tmp` are, and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// A warning for each of the paths of flash that is, or would be made, in memory.
#[must_use]
pub fn warnings<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<String> {
    let paths: BTreeSet<&PathBuf> = paths.into_iter().collect();
    let is_memory = |path: &PathBuf| {
        // A device in a file system of devices, which is memory too, is none.
        let is_place = !path.exists() || path.is_file() || path.is_dir();
        is_place && statfs(existing(path)).is_ok_and(|system| IN_MEMORY.contains(&(system.f_type as u64)))
    };
    let told = |path: &PathBuf| {
        format!("flash: {}: is in memory (tmpfs): what is measured is no drive", path.display())
    };
    paths.into_iter().filter(|path| is_memory(path)).map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_passed_for_a_drive() {
        let shared = PathBuf::from("/dev/shm/flash of nobody");
        if statfs("/dev/shm").map_or(true, |system| system.f_type as u64 != IN_MEMORY[0]) {
            eprintln!("SKIPPED: /dev/shm is no tmpfs here");
            return;
        }
        let all = [shared.clone(), shared, "/proc/self/flash".into(), "/dev/null".into()];
        let told = warnings(&all);
        assert_eq!(
            told,
            ["flash: /dev/shm/flash of nobody: is in memory (tmpfs): what is measured is no drive"]
        );
    }
}
