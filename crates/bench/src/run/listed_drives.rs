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

/// All drives that are listed; those that tell are being asked from now on.
#[derive(Default)]
pub struct ListedDrives {
    by_path: HashMap<PathBuf, Listing>,
}

struct Listing {
    probe: Option<Arc<MediaProbe>>,
    instances: usize,
}

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

impl ListedDrives {
    /// Begins to ask the drives that are listed for these caches, and says which of them cannot be asked.
    pub fn of<'a>(caches: impl IntoIterator<Item = &'a FlashPlan>) -> (Self, Vec<String>) {
        let (mut drives, mut warnings) = (Self::default(), Vec::new());
        for path in caches.into_iter().flat_map(|flash| &flash.listed_drives) {
            let listing = drives.by_path.entry(path.clone()).or_insert_with(|| {
                let probe = MediaProbe::open(path).map(Arc::new).map_err(|error| {
                    warnings.push(format!(
                        "cache_config.writeAmpDeviceList: {}: {error}; what it wrote is unknown",
                        path.display()
                    ));
                });
                Listing { probe: probe.ok(), instances: 0 }
            });
            listing.instances += 1;
        }
        (drives, warnings)
    }

    /// Those of one instance.
    #[must_use]
    pub fn of_instance(&self, flash: &FlashPlan) -> Vec<ListedDrive> {
        let listed = |path: &PathBuf| {
            let listing = self.by_path.get(path)?;
            Some(ListedDrive {
                path: path.clone(),
                probe: listing.probe.clone(),
                is_shared: listing.instances > 1,
            })
        };
        flash.listed_drives.iter().filter_map(listed).collect()
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
    fn drives_that_cannot_be_asked_are_told_of_once_and_unknown() {
        let mut flash = fit::tests::plan(vec![(100, 50)]);
        flash.listed_drives = vec!["/dev/null".into(), "/no/where".into()];
        let mut other = flash.clone();
        other.listed_drives.truncate(1);
        let (drives, warnings) = ListedDrives::of([&flash, &other]);
        let [null, nowhere] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(null.contains("writeAmpDeviceList: /dev/null: it is no NVMe namespace"), "{null}");
        assert!(nowhere.contains("/no/where: No such file"), "{nowhere}");
        let told: Vec<_> = drives.of_instance(&flash).iter().map(ListedDrive::ask).collect();
        let [null, nowhere] = &told[..] else { panic!("{told:?}") };
        assert_eq!((null.is_shared, nowhere.is_shared), (true, false));
        assert_eq!((null.media_bytes, nowhere.of_this_instance()), (None, None));
        assert_eq!(drives.of_instance(&other).len(), 1);
    }
}
