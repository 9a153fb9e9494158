//! What the system knows of a disk apart from its bytes, which are the user's.
//!
//! A file carries a *mark*, an extended attribute that names its cache, and says when its contents were last changed. A
//! block device has an identity: what its drive, or the mapping that it is, calls itself; of a partition with the place
//! where it begins, so that neither a new number nor a new name changes it. A loop device is the file that it shows. What a file system or a device does not tell is
//! nothing that anything is concluded from.

use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};

/// The attribute of a disk's file; its value is the cache's UUID in 32 hexadecimal digits.
pub const MARK: &str = "user.flashwright.volume";

/// Another one, for what the flash could not be told: that the cache wrote to the disk since it was opened.
const WRITTEN: &str = "user.flashwright.written";

/// A disk as the system sees it; kept open, so that it stays the same one.
#[derive(Debug, Default)]
pub struct Traces {
    is_told: bool,
    file: Option<File>,
    device_id: u64,
}

/// A disk as a volume is to be opened with it.
#[derive(Debug, Default)]
pub struct Pairing {
    /// What the system knows of it.
    pub traces: Traces,
    /// It is taken though it is not as the cache left it, or another. What flash has of it that is clean does not count then.
    pub is_forced: bool,
}

impl Traces {
    /// Of what `path` names. Nothing if that cannot be told.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let Ok(there) = std::fs::metadata(path) else { return Self { is_told: true, ..Self::default() } };
        if there.file_type().is_block_device() {
            let number = there.rdev();
            let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
            let described = format!("/sys/dev/block/{major}:{minor}");
            let described = std::fs::canonicalize(described).unwrap_or_default();
            if let Some(file) = file_behind(&described) {
                return Self::of(&file);
            }
            let name = name_of(&described);
            return Self { is_told: true, file: None, device_id: name.map_or(0, |name| hash_of(&name)) };
        }
        // Opened only if it is a file: opening something else may do something.
        let file = there.is_file().then(|| File::open(path).ok()).flatten();
        Self { is_told: true, file, device_id: 0 }
    }

    /// The same disk once more.
    pub(super) fn duplicate(&self) -> Self {
        let file = self.file.as_ref().and_then(|file| file.try_clone().ok());
        Self { is_told: self.is_told, file, device_id: self.device_id }
    }

    /// Whether nobody said what disk it is: then it cannot have lost anything.
    pub(super) fn are_untold(&self) -> bool {
        !self.is_told
    }

    /// Whether the disk could have a mark.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// The cache that the disk is marked to belong to.
    #[must_use]
    pub fn mark(&self) -> Option<u128> {
        let mut value = [0; 32];
        let len = fgetxattr(self.file.as_ref()?, MARK, &mut value).ok()?;
        let digits = std::str::from_utf8(value.get(..len)?).ok()?;
        u128::from_str_radix(digits, 16).ok()
    }

    /// Marks the disk; whether it has the mark now.
    pub fn set_mark(&self, uuid: u128) -> bool {
        let Some(file) = &self.file else { return false };
        self.mark() == Some(uuid)
            || fsetxattr(file, MARK, format!("{uuid:032x}").as_bytes(), XattrFlags::empty()).is_ok()
    }

    /// Takes the mark of that cache away; another's stays.
    pub fn remove_mark(&self, uuid: u128) {
        if let Some(file) = &self.file
            && self.mark() == Some(uuid)
        {
            // A mark that stays costs whoever makes the next cache a question.
            let _ = fremovexattr(file, MARK);
            self.set_written(false);
        }
    }

    /// Notes on a marked disk that the cache wrote to it, or not.
    pub(super) fn set_written(&self, is_written: bool) {
        if let Some(file) = &self.file
            && self.is_written() != is_written
        {
            // The next opening may ask a question more.
            let _ = match is_written {
                true => fsetxattr(file, WRITTEN, b"1", XattrFlags::empty()),
                false => fremovexattr(file, WRITTEN),
            };
        }
    }

    /// Whether that is noted.
    pub(super) fn is_written(&self) -> bool {
        self.file.as_ref().is_some_and(|file| fgetxattr(file, WRITTEN, &mut [0; 8]).is_ok())
    }

    /// The identity of a block device; 0 is none.
    #[must_use]
    pub fn device_id(&self) -> u64 {
        self.device_id
    }

    /// When the file was last changed, durably so, in nanoseconds since 1970; 0 is not known. A flush of data alone would
    /// leave a time that a power cut takes back.
    pub(super) fn settle_time(&self) -> u64 {
        let is_durable = self.file.as_ref().is_some_and(|file| file.sync_all().is_ok());
        if is_durable { self.changed_ns() } else { 0 }
    }

    /// When the file was last changed; 0 is not known.
    pub(super) fn changed_ns(&self) -> u64 {
        let Some(there) = self.file.as_ref().and_then(|file| file.metadata().ok()) else { return 0 };
        let (seconds, ns) = (there.mtime() as u64, there.mtime_nsec() as u64);
        seconds.wrapping_mul(1_000_000_000).wrapping_add(ns)
    }
}

/// The file that a loop device shows, if it shows the whole of it.
fn file_behind(described: &Path) -> Option<PathBuf> {
    let told = |name: &str| std::fs::read_to_string(described.join("loop").join(name)).ok();
    let is_whole =
        ["offset", "sizelimit"].iter().all(|name| told(name).is_some_and(|text| text.trim() == "0"));
    let file = PathBuf::from(told("backing_file")?.trim_end_matches('\n'));
    (is_whole && file.is_file()).then_some(file)
}

/// What the device calls itself that `described` has the description of.
fn name_of(described: &Path) -> Option<String> {
    if described.join("partition").exists() {
        let start = std::fs::read_to_string(described.join("start")).ok()?;
        return Some(format!("{} from {}", name_of(described.parent()?)?, start.trim()));
    }
    let told = |within: &str| {
        let text = std::fs::read_to_string(described.join(PathBuf::from(within))).ok()?;
        Some(format!("{within} {}", text.trim())).filter(|_| !text.trim().is_empty())
    };
    ["wwid", "device/wwid", "dm/uuid", "md/uuid", "serial", "device/serial"].into_iter().find_map(told)
}

fn hash_of(name: &str) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, name.as_bytes()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_known_by_its_name_and_a_partition_by_where_it_begins() {
        let directory = tempfile::tempdir().unwrap();
        let (drive, part) = (directory.path().join("sda"), directory.path().join("sda/sda1"));
        std::fs::create_dir_all(drive.join("device")).unwrap();
        std::fs::create_dir_all(&part).unwrap();
        assert_eq!(name_of(&drive), None, "it calls itself nothing");
        std::fs::write(drive.join("device/wwid"), "naa.5000\n").unwrap();
        std::fs::write(part.join("partition"), "1\n").unwrap();
        std::fs::write(part.join("start"), "2048\n").unwrap();
        assert_eq!(name_of(&drive).unwrap(), "device/wwid naa.5000");
        assert_eq!(name_of(&part).unwrap(), "device/wwid naa.5000 from 2048");
    }

    #[test]
    fn a_mark_is_taken_away_by_its_own_cache_alone() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let traces = Traces::of(file.path());
        if !traces.set_mark(7) {
            println!("SKIPPED: no extended attributes here");
            return;
        }
        traces.remove_mark(8);
        assert_eq!(traces.mark(), Some(7));
        traces.remove_mark(7);
        assert_eq!(traces.mark(), None);
    }
}
