//! Drives that a config lists (`writeAmpDeviceList`) to be asked what they wrote: below a file system or a RAID of somebody
//! else's making, flash itself does not tell.
//!
//! A drive does not know for whom it writes. Whatever else it is used for counts too, and where several instances list one
//! drive, its bytes are those of all of them together and of none alone.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use device::nvme::MediaProbe;

use crate::config::plan::FlashPlan;

/// A drive that an instance lists.
#[derive(Clone)]
pub struct ListedDrive {
    path: PathBuf,
    /// None if it does not tell.
    probe: Option<Arc<MediaProbe>>,
    /// Whether several instances list it.
    is_shared: bool,
}

/// What a listed drive wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveBytes {
    /// Its path.
    pub path: PathBuf,
    /// Bytes written to its medium since the run was opened; none if it does not tell.
    pub media_bytes: Option<u64>,
    /// Whether several instances list it.
    pub is_shared: bool,
}

/// The drives of each of these caches, which are being asked from now on, and which of those that a config lists cannot be
/// asked.
#[must_use]
pub fn open(caches: &[Option<&FlashPlan>]) -> (Vec<Vec<ListedDrive>>, Vec<String>) {
    let lists: Vec<Vec<&PathBuf>> = caches.iter().map(|cache| paths_to_ask(*cache, caches)).collect();
    let (mut probes, mut unknown) = (HashMap::new(), Vec::<(String, Vec<String>)>::new());
    for path in lists.iter().flatten() {
        let (probe, listings) =
            probes.entry(*path).or_insert_with(|| (MediaProbe::open(path).map(Arc::new), 0));
        *listings += 1;
        let is_named = caches.iter().flatten().any(|flash| flash.listed_drives.contains(path));
        if let (Err(error), 1, true) = (probe, *listings, is_named) {
            let (path, error) = (path.display().to_string(), error.to_string());
            match unknown.iter_mut().find(|(reason, _)| *reason == error) {
                Some((_, paths)) => paths.push(path),
                None => unknown.push((error, vec![path])),
            }
        }
    }
    let warning = |(reason, paths): (String, Vec<String>)| {
        let paths = paths.join(", ");
        format!("cache_config.writeAmpDeviceList: {paths}: {reason}; what the medium wrote is unknown")
    };
    let warnings = unknown.into_iter().map(warning).collect();
    let of_path = |path: &&PathBuf| {
        let (probe, listings) = &probes[*path];
        ListedDrive {
            path: path.to_path_buf(),
            probe: probe.as_ref().ok().cloned(),
            is_shared: *listings > 1,
        }
    };
    (lists.iter().map(|list| list.iter().map(of_path).collect()).collect(), warnings)
}

/// What a config lists, or else the flash of which several instances have a part: a part does not tell.
fn paths_to_ask<'a>(cache: Option<&'a FlashPlan>, caches: &[Option<&FlashPlan>]) -> Vec<&'a PathBuf> {
    let uses = |path: &PathBuf| caches.iter().flatten().filter(|flash| flash.paths.contains(path)).count();
    match cache {
        None => Vec::new(),
        Some(flash) if flash.listed_drives.is_empty() => {
            flash.paths.iter().filter(|path| uses(path) > 1).collect()
        }
        Some(flash) => flash.listed_drives.iter().collect(),
    }
}

impl ListedDrive {
    /// What it wrote so far.
    #[must_use]
    pub fn ask(&self) -> DriveBytes {
        DriveBytes {
            path: self.path.clone(),
            media_bytes: self.probe.as_ref().and_then(|probe| probe.bytes()),
            is_shared: self.is_shared,
        }
    }
}

impl DriveBytes {
    /// Bytes that this instance alone answers for.
    #[must_use]
    pub fn of_this_instance(&self) -> Option<u64> {
        self.media_bytes.filter(|_| !self.is_shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::fit;

    #[test]
    fn drives_that_are_not_there_are_one_warning() {
        let mut flash = fit::tests::plan(vec![(100, 50)]);
        flash.listed_drives = vec!["/no/one".into(), "/no/other".into(), "/no/third".into()];
        let (_, warnings) = open(&[Some(&flash)]);
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(warning.contains("/no/one, /no/other, /no/third: No such file"), "{warning}");
    }

    #[test]
    fn drives_that_cannot_be_asked_are_told_of_once_and_unknown() {
        let mut flash = fit::tests::plan(vec![(100, 50)]);
        flash.listed_drives = vec!["/dev/null".into(), "/no/where".into()];
        let mut other = flash.clone();
        other.listed_drives.truncate(1);
        let (drives, warnings) = open(&[Some(&flash), None, Some(&other)]);
        let [null, nowhere] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(null.contains("writeAmpDeviceList: /dev/null: it is not an NVMe namespace"), "{null}");
        assert!(nowhere.contains("/no/where: No such file"), "{nowhere}");
        assert_eq!(drives.iter().map(Vec::len).collect::<Vec<_>>(), [2, 0, 1]);
        let told: Vec<_> = drives[0].iter().map(ListedDrive::ask).collect();
        let [null, nowhere] = &told[..] else { panic!("{told:?}") };
        assert_eq!((null.is_shared, nowhere.is_shared), (true, false));
        assert_eq!((null.media_bytes, nowhere.of_this_instance()), (None, None));
    }

    #[test]
    fn flash_that_instances_share_is_asked_without_being_listed_or_warned_of() {
        let mut shared = fit::tests::plan(vec![(100, 50)]);
        shared.paths = vec!["/dev/null".into()];
        let own = FlashPlan { paths: vec!["/no/where".into()], ..shared.clone() };
        let (drives, warnings) = open(&[&shared, &own, &shared].map(Some));
        assert!(warnings.is_empty(), "{warnings:?}");
        assert!(drives[1].is_empty(), "it tells by itself");
        assert!(drives[0][0].is_shared && drives[2].len() == 1);
    }
}
