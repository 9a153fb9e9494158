//! Whether the file systems that flash lies on have room for it: a file takes none until it is written, so that a run would
//! find out after hours.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

use super::devices::kept_file;
use crate::config::plan::FlashPlan;

/// Bytes of a block that `st_blocks` counts.
const COUNTED_BLOCK_BYTES: u64 = 512;

/// What is still to be written to one file system before all files on it are there.
struct Wanted {
    /// The first that wants it.
    path: PathBuf,
    bytes: u64,
}

/// A warning for each file system that is too small for the files that these caches want there, persistent or not. Block devices
/// have their room, and what cannot be asked is not told of.
#[must_use]
pub fn warnings(caches: &[(&FlashPlan, bool)]) -> Vec<String> {
    let mut wanted: BTreeMap<u64, Wanted> = BTreeMap::new();
    let mut seen: BTreeMap<PathBuf, u64> = BTreeMap::new();
    for &(flash, persistent) in caches {
        for path in &flash.paths {
            let file = if persistent { kept_file(path) } else { path.clone() };
            let Some((metadata, there)) = where_it_lies(&file) else { continue };
            // What a file has already counts once, however many instances share it.
            let left = seen.entry(file).or_insert(there);
            let bytes = flash.bytes_per_device.saturating_sub(*left);
            *left = left.saturating_sub(flash.bytes_per_device);
            let of_system = wanted.entry(metadata.dev());
            let of_system = of_system.or_insert_with(|| Wanted { path: path.clone(), bytes: 0 });
            of_system.bytes = of_system.bytes.saturating_add(bytes);
        }
    }
    wanted.values().filter_map(scarce).collect()
}

/// The file, or the directory that it is to be made in, and the bytes that it has on its file system.
fn where_it_lies(path: &Path) -> Option<(Metadata, u64)> {
    match path.metadata() {
        Ok(it) if it.is_file() => {
            let there = it.blocks() * COUNTED_BLOCK_BYTES;
            Some((it, there))
        }
        Ok(it) if it.is_dir() => Some((it, 0)),
        Ok(_) => None,
        Err(_) => Some((directory(path).metadata().ok()?, 0)),
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What is there, or the directory in which it is to be made.
pub(super) fn existing(path: &Path) -> &Path {
    if path.exists() { path } else { directory(path) }
}

fn scarce(Wanted { path, bytes }: &Wanted) -> Option<String> {
    let free = statvfs(existing(path)).map(|system| system.f_bavail.saturating_mul(system.f_frsize)).ok()?;
    (*bytes > free).then(|| {
        let path = path.display();
        format!(
            "flash: {path}: its file system has {free} bytes free, and {bytes} are to be written: writes will fail when it is full"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::fit;

    #[test]
    fn that_the_disk_is_too_small_for_flash_was_found_out_when_it_was_full() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("flash");
        let flash = |path: &Path, bytes: u64| {
            let mut flash = fit::tests::plan(vec![(100, 50)]);
            (flash.paths, flash.bytes_per_device) = (vec![path.to_owned()], bytes);
            flash
        };
        let told =
            |plans: &[&FlashPlan]| warnings(&plans.iter().map(|plan| (*plan, false)).collect::<Vec<_>>());
        let system = statvfs(directory.path()).unwrap();
        let half = system.f_bavail * system.f_frsize / 2;
        let (small, large) = (flash(&file, 1 << 20), flash(&file, 3 * half));
        assert!(told(&[&small]).is_empty());
        assert!(told(&[&large])[0].starts_with(&format!("flash: {}: its file system has ", file.display())));
        let two = [flash(&file, half / 4 * 5), flash(directory.path(), half / 4 * 5)];
        assert_eq!(told(&[&two[0], &two[1]]).len(), 1, "each fits, and not both");
        assert!(told(&[&two[0]]).is_empty());
        let most = [flash(&file, u64::MAX), flash(directory.path(), u64::MAX)];
        assert_eq!(told(&[&most[0], &most[1]]).len(), 1, "more than can be counted together");
        assert!(told(&[&flash(Path::new("/dev/null"), u64::MAX)]).is_empty(), "no file");
    }

    #[test]
    fn what_a_file_has_already_is_not_wanted_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("flash");
        std::fs::write(&file, vec![1; 1 << 20]).unwrap();
        let (_, there) = where_it_lies(&file).unwrap();
        assert!((1 << 20..2 << 20).contains(&there), "{there}");
        assert_eq!(where_it_lies(&directory.path().join("other")).unwrap().1, 0);
    }

    /// Whoever started a persistent cache in a directory again was warned, as though none of it were there.
    #[test]
    fn what_a_persistent_cache_has_in_its_directory_was_wanted_again() {
        let directory = tempfile::tempdir().unwrap();
        let system = statvfs(directory.path()).unwrap();
        let mut flash = fit::tests::plan(vec![(100, 50)]);
        flash.paths = vec![directory.path().to_owned()];
        // Too much by half a file, which is there.
        std::fs::write(kept_file(directory.path()), vec![1; 256 << 20]).unwrap();
        flash.bytes_per_device = system.f_bavail * system.f_frsize - (128 << 20);
        assert_eq!(warnings(&[(&flash, false)]).len(), 1, "it makes a file of its own");
        assert!(warnings(&[(&flash, true)]).is_empty());
    }
}
