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

/// The attribute of a disk's file; its value is the cache's UUID in 32 hexadecimal digits, and, where the disk is several files, which
/// of them it is (` 2/3`).
const MARK: &str = device::contents::CACHED_DISK_MARK;

/// Another one, for what the flash could not be told: that the cache wrote to the disk since it was opened.
const WRITTEN: &str = "user.flashwright.written";

/// A disk as the system sees it; kept open, so that it stays the same one.
#[derive(Debug, Default)]
pub struct Traces {
    is_told: bool,
    /// All that it is made of, in order, if all of it is files.
    files: Vec<File>,
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
            let device_id = name.map_or(0, |name| hash_of(&name));
            return Self { is_told: true, files: Vec::new(), device_id };
        }
        // Opened only if it is a file: opening something else may do something.
        let file = there.is_file().then(|| File::open(path).ok()).flatten();
        Self { is_told: true, files: file.into_iter().collect(), device_id: 0 }
    }

    /// The same of a disk that is made of several. Something is known of it if the same is of all.
    #[must_use]
    pub fn of_all(paths: &[PathBuf]) -> Self {
        let [path] = paths else {
            let each: Vec<Self> = paths.iter().map(|path| Self::of(path)).collect();
            let ids: Vec<String> = each.iter().map(|traces| traces.device_id.to_string()).collect();
            let are_named = each.iter().all(|traces| traces.device_id != 0);
            let device_id = if are_named && !each.is_empty() { hash_of(&ids.join(" ")) } else { 0 };
            let are_files = each.iter().all(Self::is_file);
            let files = each.into_iter().flat_map(|traces| traces.files).collect();
            return Self { is_told: true, files: if are_files { files } else { Vec::new() }, device_id };
        };
        Self::of(path)
    }

    /// The same disk once more.
    pub(super) fn duplicate(&self) -> Self {
        let files: Option<Vec<File>> = self.files.iter().map(|file| file.try_clone().ok()).collect();
        Self { is_told: self.is_told, files: files.unwrap_or_default(), device_id: self.device_id }
    }

    /// Whether nobody said what disk it is: then it cannot have lost anything.
    pub(super) fn are_untold(&self) -> bool {
        !self.is_told
    }

    /// Whether the disk could have a mark.
    #[must_use]
    pub fn is_file(&self) -> bool {
        !self.files.is_empty()
    }

    /// The cache that the disk is marked to belong to: of several files all, each in its place.
    #[must_use]
    pub fn mark(&self) -> Option<u128> {
        let mut marks = self.files.iter().zip(0..).map(|(file, place)| {
            mark_of(file).and_then(|(uuid, rest)| (rest == self.place(place)).then_some(uuid))
        });
        let first = marks.next()??;
        marks.all(|mark| mark == Some(first)).then_some(first)
    }

    /// All caches that any of it is marked to belong to.
    #[must_use]
    pub fn marks(&self) -> Vec<u128> {
        self.files.iter().filter_map(mark_of).map(|(uuid, _)| uuid).collect()
    }

    /// Marks the disk; whether it has the mark now.
    pub fn set_mark(&self, uuid: u128) -> bool {
        if self.files.is_empty() || self.mark() == Some(uuid) {
            return self.is_file();
        }
        let mut marked = self.files.iter().zip(0..).map(|(file, place)| {
            let value = format!("{uuid:032x}{}", self.place(place));
            fsetxattr(file, MARK, value.as_bytes(), XattrFlags::empty())
        });
        marked.all(|marked| marked.is_ok())
    }

    /// What stands behind the UUID in the mark of one of several files.
    fn place(&self, place: usize) -> String {
        let count = self.files.len();
        if count == 1 { String::new() } else { format!(" {}/{count}", place + 1) }
    }

    /// Takes the mark of that cache away; another's stays.
    pub fn remove_mark(&self, uuid: u128) {
        for file in self.files.iter().filter(|file| mark_of(file).is_some_and(|(mark, _)| mark == uuid)) {
            // A mark that stays costs whoever makes the next cache a question.
            let _ = fremovexattr(file, MARK);
            let _ = fremovexattr(file, WRITTEN);
        }
    }

    /// Notes on a marked disk that the cache wrote to it, or not.
    pub(super) fn set_written(&self, is_written: bool) {
        if self.is_written() == is_written {
            return;
        }
        for file in &self.files {
            // The next opening may ask a question more.
            let _ = match is_written {
                true => fsetxattr(file, WRITTEN, b"1", XattrFlags::empty()),
                false => fremovexattr(file, WRITTEN),
            };
        }
    }

    /// Whether that is noted.
    pub(super) fn is_written(&self) -> bool {
        self.files.iter().any(|file| fgetxattr(file, WRITTEN, &mut [0; 8]).is_ok())
    }

    /// The identity of a block device; 0 is none.
    #[must_use]
    pub fn device_id(&self) -> u64 {
        self.device_id
    }

    /// When the file was last changed, durably so, in nanoseconds since 1970; 0 is not known. A flush of data alone would
    /// leave a time that a power cut takes back.
    pub(super) fn settle_time(&self) -> u64 {
        let are_durable = self.files.iter().all(|file| file.sync_all().is_ok());
        if are_durable { self.changed_ns() } else { 0 }
    }

    /// When the file was last changed; 0 is not known. Of several a number that is another once any of them has changed.
    pub(super) fn changed_ns(&self) -> u64 {
        let mut combined = 0_u64;
        for file in &self.files {
            let Ok(there) = file.metadata() else { return 0 };
            let (seconds, ns) = (there.mtime() as u64, there.mtime_nsec() as u64);
            let changed_ns = seconds.wrapping_mul(1_000_000_000).wrapping_add(ns);
            combined = combined.rotate_left(21).wrapping_add(changed_ns);
        }
        combined
    }
}

/// What a file is marked with: a cache, and its place in the disk where it is not all of it.
fn mark_of(file: &File) -> Option<(u128, String)> {
    let mut value = [0; 64];
    let len = fgetxattr(file, MARK, &mut value).ok()?;
    let text = std::str::from_utf8(value.get(..len)?).ok()?;
    let (digits, rest) = text.split_at_checked(32)?;
    Some((u128::from_str_radix(digits, 16).ok()?, rest.to_owned()))
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
    fn a_disk_of_several_files_has_its_mark_only_in_order() {
        let files = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
        let [a, b] = files.each_ref().map(|file| file.path().to_owned());
        let both = Traces::of_all(&[a.clone(), b.clone()]);
        if !both.set_mark(7) {
            println!("SKIPPED: no extended attributes here");
            return;
        }
        assert_eq!(Traces::of_all(&[a.clone(), b.clone()]).mark(), Some(7));
        for others in [vec![b.clone(), a.clone()], vec![a.clone()], vec![a.clone(), b.clone(), b.clone()]] {
            let others = Traces::of_all(&others);
            assert_eq!((others.mark(), others.marks().first()), (None, Some(&7)));
        }
        both.remove_mark(7);
        assert_eq!(Traces::of_all(&[a, b]).marks(), []);
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
