//! Drives listed in a config (`writeAmpDeviceList`), from which media writes are read. They are needed if flash lies on a file system or
//! a RAID, where the flash device itself does not report media writes.
//!
//! A drive counts all writes, including those of other programs. If several instances list a drive, its bytes are the sum of all of
//! them, so they are attributed to none.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use device::nvme::MediaProbe;

use crate::config::plan::FlashPlan;

/// A drive that an instance lists.
#[derive(Clone)]
pub struct ListedDrive {
    path: PathBuf,
    /// `None` if the drive does not report its media writes.
    probe: Option<Arc<MediaProbe>>,
    /// Whether several instances list it.
    is_shared: bool,
}

/// Media writes of a listed drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveBytes {
    /// The drive.
    pub path: PathBuf,
    /// Bytes written to its medium since the run was opened; `None` if it does not report them.
    pub media_bytes: Option<u64>,
    /// Whether several instances list it.
    pub is_shared: bool,
}

/// Opens the drives of each cache, which starts their counters at 0. Also returns a warning for the listed drives that cannot be
/// read.
#[must_use]
pub fn open(caches: &[Option<&FlashPlan>]) -> (Vec<Vec<ListedDrive>>, Vec<String>) {
    let lists: Vec<Vec<&PathBuf>> = caches.iter().map(|cache| paths_to_probe(*cache, caches)).collect();
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
        format!("cache_config.writeAmpDeviceList: {paths}: {reason}; the media writes are unknown")
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

/// The drives that a config lists. If it lists none, its flash devices that several instances share: a part of a device does not report
/// media writes.
fn paths_to_probe<'a>(cache: Option<&'a FlashPlan>, caches: &[Option<&FlashPlan>]) -> Vec<&'a PathBuf> {
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
    /// Reads the media writes so far.
    #[must_use]
    pub fn read(&self) -> DriveBytes {
        DriveBytes {
            path: self.path.clone(),
            media_bytes: self.probe.as_ref().and_then(|probe| probe.bytes()),
            is_shared: self.is_shared,
        }
    }
}

impl DriveBytes {
    /// Media writes that are attributed to this instance alone.
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
    fn several_missing_drives_cause_one_warning() {
        let mut flash = fit::tests::plan(vec![(100, 50)]);
        flash.listed_drives = vec!["/no/one".into(), "/no/other".into(), "/no/third".into()];
        let (_, warnings) = open(&[Some(&flash)]);
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(warning.contains("/no/one, /no/other, /no/third: No such file"), "{warning}");
    }

    #[test]
    fn unreadable_drives_cause_one_warning_each_and_are_unknown() {
        let mut flash = fit::tests::plan(vec![(100, 50)]);
        flash.listed_drives = vec!["/dev/null".into(), "/no/where".into()];
        let mut other = flash.clone();
        other.listed_drives.truncate(1);
        let (drives, warnings) = open(&[Some(&flash), None, Some(&other)]);
        let [null, nowhere] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(null.contains("writeAmpDeviceList: /dev/null: it is not an NVMe namespace"), "{null}");
        assert!(nowhere.contains("/no/where: No such file"), "{nowhere}");
        assert_eq!(drives.iter().map(Vec::len).collect::<Vec<_>>(), [2, 0, 1]);
        let read: Vec<_> = drives[0].iter().map(ListedDrive::read).collect();
        let [null, nowhere] = &read[..] else { panic!("{read:?}") };
        assert_eq!((null.is_shared, nowhere.is_shared), (true, false));
        assert_eq!((null.media_bytes, nowhere.of_this_instance()), (None, None));
    }

    #[test]
    fn flash_shared_by_instances_is_read_without_a_warning() {
        let mut shared = fit::tests::plan(vec![(100, 50)]);
        shared.paths = vec!["/dev/null".into()];
        let own = FlashPlan { paths: vec!["/no/where".into()], ..shared.clone() };
        let (drives, warnings) = open(&[&shared, &own, &shared].map(Some));
        assert!(warnings.is_empty(), "{warnings:?}");
        assert!(drives[1].is_empty(), "the device reports its own media writes");
        assert!(drives[0][0].is_shared && drives[2].len() == 1);
    }
}
