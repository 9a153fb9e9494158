//! Checks that file systems have enough space for the flash files. A sparse file takes space only when it is written, so a run
//! could otherwise fail after hours.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

use super::devices::kept_file;
use crate::config::plan::FlashPlan;

/// Unit of `st_blocks`.
const COUNTED_BLOCK_BYTES: u64 = 512;

/// Bytes that are still to be allocated on one file system.
struct Needed {
    /// The first file that needs space there.
    path: PathBuf,
    bytes: u64,
}

/// A warning for each file system that is too small for its files. A cache comes with a flag: whether it is persistent.
/// Block devices and unreadable file systems are skipped.
#[must_use]
pub fn warnings(caches: &[(&FlashPlan, bool)]) -> Vec<String> {
    let mut needed: BTreeMap<u64, Needed> = BTreeMap::new();
    let mut seen: BTreeMap<PathBuf, u64> = BTreeMap::new();
    for &(flash, persistent) in caches {
        for path in &flash.paths {
            let file = if persistent { kept_file(path) } else { path.clone() };
            let Some((metadata, allocated)) = file_and_allocated_bytes(&file) else { continue };
            // Bytes that a file already has count once, even if several instances share it.
            let left = seen.entry(file).or_insert(allocated);
            let bytes = flash.bytes_per_device.saturating_sub(*left);
            *left = left.saturating_sub(flash.bytes_per_device);
            let of_system = needed.entry(metadata.dev());
            let of_system = of_system.or_insert_with(|| Needed { path: path.clone(), bytes: 0 });
            of_system.bytes = of_system.bytes.saturating_add(bytes);
        }
    }
    needed.values().filter_map(shortage).collect()
}

/// Metadata of the file, or of the directory in which it will be created, and the bytes that are allocated to the file.
fn file_and_allocated_bytes(path: &Path) -> Option<(Metadata, u64)> {
    match path.metadata() {
        Ok(it) if it.is_file() => {
            let allocated = it.blocks() * COUNTED_BLOCK_BYTES;
            Some((it, allocated))
        }
        Ok(it) if it.is_dir() => Some((it, 0)),
        Ok(_) => None,
        Err(_) => Some((directory(path).metadata().ok()?, 0)),
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path if it exists, otherwise the directory in which it will be created.
pub(super) fn existing(path: &Path) -> &Path {
    if path.exists() { path } else { directory(path) }
}

fn shortage(Needed { path, bytes }: &Needed) -> Option<String> {
    let free = statvfs(existing(path)).map(|system| system.f_bavail.saturating_mul(system.f_frsize)).ok()?;
    (*bytes > free).then(|| {
        let path = path.display();
        format!(
            "flash: {path}: its file system has {free} bytes free, and the run writes up to {bytes}: writes will fail when it is full"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::fit;

    #[test]
    fn file_system_too_small_for_all_flash_files_causes_one_warning() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("flash");
        let flash = |path: &Path, bytes: u64| {
            let mut flash = fit::tests::plan(vec![(100, 50)]);
            (flash.paths, flash.bytes_per_device) = (vec![path.to_owned()], bytes);
            flash
        };
        let warn =
            |plans: &[&FlashPlan]| warnings(&plans.iter().map(|plan| (*plan, false)).collect::<Vec<_>>());
        let system = statvfs(directory.path()).unwrap();
        let half = system.f_bavail * system.f_frsize / 2;
        let (small, large) = (flash(&file, 1 << 20), flash(&file, 3 * half));
        assert!(warn(&[&small]).is_empty());
        assert!(warn(&[&large])[0].starts_with(&format!("flash: {}: its file system has ", file.display())));
        let two = [flash(&file, half / 4 * 5), flash(directory.path(), half / 4 * 5)];
        assert_eq!(warn(&[&two[0], &two[1]]).len(), 1, "each fits, but not both");
        assert!(warn(&[&two[0]]).is_empty());
        let most = [flash(&file, u64::MAX), flash(directory.path(), u64::MAX)];
        assert_eq!(warn(&[&most[0], &most[1]]).len(), 1, "the sum exceeds a u64");
        assert!(warn(&[&flash(Path::new("/dev/null"), u64::MAX)]).is_empty(), "not a file");
    }

    #[test]
    fn bytes_already_allocated_are_read_from_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("flash");
        std::fs::write(&file, vec![1; 1 << 20]).unwrap();
        let (_, allocated) = file_and_allocated_bytes(&file).unwrap();
        assert!((1 << 20..2 << 20).contains(&allocated), "{allocated}");
        assert_eq!(file_and_allocated_bytes(&directory.path().join("other")).unwrap().1, 0);
    }

    #[test]
    fn file_of_a_persistent_cache_in_its_directory_is_not_needed_again() {
        let directory = tempfile::tempdir().unwrap();
        let system = statvfs(directory.path()).unwrap();
        let mut flash = fit::tests::plan(vec![(100, 50)]);
        flash.paths = vec![directory.path().to_owned()];
        // The plan exceeds the free space by half of the existing file.
        std::fs::write(kept_file(directory.path()), vec![1; 256 << 20]).unwrap();
        flash.bytes_per_device = system.f_bavail * system.f_frsize - (128 << 20);
        assert_eq!(
            warnings(&[(&flash, false)]).len(),
            1,
            "a run that is not persistent creates a file of its own"
        );
        assert!(warnings(&[(&flash, true)]).is_empty());
    }
}
