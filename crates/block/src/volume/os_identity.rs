//! The identity of a disk according to the operating system. The disk's contents belong to the user and are not changed.
//!
//! A file carries a *mark*, an extended attribute that names its cache, and has a modification time. A block device has the
//! identifier of its drive or mapping, and a partition also its start, so that renumbering and renaming do not matter. A loop
//! device has the identity of its file. A missing attribute or identifier proves nothing.

use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};

/// The extended attribute of a disk's file. Its value is the cache's UUID in 32 hexadecimal digits and, if the disk consists of several
/// files, the file's position (` 2/3`).
const MARK: &str = device::contents::CACHED_DISK_MARK;

/// Attribute of a disk that the cache has written to since it was opened, set if the flash could not record that.
const WRITTEN: &str = "user.flashwright.written";

/// A disk as the operating system identifies it. Its files stay open, so that they remain the same ones.
#[derive(Debug, Default)]
pub struct OsIdentity {
    is_known: bool,
    /// The files of the disk, in order; empty unless it consists of files only.
    files: Vec<File>,
    device_id: u64,
}

/// The disk to open a volume with.
#[derive(Debug, Default)]
pub struct Pairing {
    /// Its identity according to the operating system.
    pub os_identity: OsIdentity,
    /// Accept a disk that is another one or was changed without the cache. Clean cached blocks are dropped then.
    pub is_forced: bool,
}

impl OsIdentity {
    /// The identity of the file or device at `path`; without details if it has none.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let Ok(there) = std::fs::metadata(path) else { return Self { is_known: true, ..Self::default() } };
        if there.file_type().is_block_device() {
            let number = there.rdev();
            let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
            let sysfs = format!("/sys/dev/block/{major}:{minor}");
            let sysfs = std::fs::canonicalize(sysfs).unwrap_or_default();
            if let Some(file) = file_behind(&sysfs) {
                return Self::of(&file);
            }
            let name = name_of(&sysfs);
            let device_id = name.map_or(0, |name| hash_of(&name));
            return Self { is_known: true, files: Vec::new(), device_id };
        }
        // Only regular files are opened: opening another kind may have side effects.
        let file = there.is_file().then(|| File::open(path).ok()).flatten();
        Self { is_known: true, files: file.into_iter().collect(), device_id: 0 }
    }

    /// The identity of a disk that consists of several files or devices. A detail counts only if all of them have it.
    #[must_use]
    pub fn of_all(paths: &[PathBuf]) -> Self {
        let [path] = paths else {
            let each: Vec<Self> = paths.iter().map(|path| Self::of(path)).collect();
            let ids: Vec<String> = each.iter().map(|os_identity| os_identity.device_id.to_string()).collect();
            let are_named = each.iter().all(|os_identity| os_identity.device_id != 0);
            let device_id = if are_named && !each.is_empty() { hash_of(&ids.join(" ")) } else { 0 };
            let are_files = each.iter().all(Self::is_file);
            let files = each.into_iter().flat_map(|os_identity| os_identity.files).collect();
            return Self { is_known: true, files: if are_files { files } else { Vec::new() }, device_id };
        };
        Self::of(path)
    }

    /// A second handle of the same disk.
    pub(super) fn duplicate(&self) -> Self {
        let files: Option<Vec<File>> = self.files.iter().map(|file| file.try_clone().ok()).collect();
        Self { is_known: self.is_known, files: files.unwrap_or_default(), device_id: self.device_id }
    }

    /// Whether the caller did not identify the disk. Then a missing mark proves nothing.
    pub(super) fn is_unknown(&self) -> bool {
        !self.is_known
    }

    /// Whether the disk can carry a mark.
    #[must_use]
    pub fn is_file(&self) -> bool {
        !self.files.is_empty()
    }

    /// The cache named by the disk's mark; with several files, all must name it, each with its position.
    #[must_use]
    pub fn mark(&self) -> Option<u128> {
        let mut marks = self.files.iter().zip(0..).map(|(file, place)| {
            mark_of(file).and_then(|(uuid, rest)| (rest == self.place(place)).then_some(uuid))
        });
        let first = marks.next()??;
        marks.all(|mark| mark == Some(first)).then_some(first)
    }

    /// All caches named by the mark of any of its files.
    #[must_use]
    pub fn marks(&self) -> Vec<u128> {
        self.files.iter().filter_map(mark_of).map(|(uuid, _)| uuid).collect()
    }

    /// Sets the mark. Returns whether the disk has it.
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

    /// The suffix after the UUID in the mark of one of several files.
    fn place(&self, place: usize) -> String {
        let count = self.files.len();
        if count == 1 { String::new() } else { format!(" {}/{count}", place + 1) }
    }

    /// Removes the mark of this cache; that of another one stays.
    pub fn remove_mark(&self, uuid: u128) {
        for file in self.files.iter().filter(|file| mark_of(file).is_some_and(|(mark, _)| mark == uuid)) {
            // If this fails, creating the next cache on this disk asks for confirmation.
            let _ = fremovexattr(file, MARK);
            let _ = fremovexattr(file, WRITTEN);
        }
    }

    /// Records on a marked disk whether the cache has written to it.
    pub(super) fn set_written(&self, is_written: bool) {
        if self.is_written() == is_written {
            return;
        }
        for file in &self.files {
            // If this fails, the next opening may ask for confirmation.
            let _ = match is_written {
                true => fsetxattr(file, WRITTEN, b"1", XattrFlags::empty()),
                false => fremovexattr(file, WRITTEN),
            };
        }
    }

    /// Whether the disk is recorded as written.
    pub(super) fn is_written(&self) -> bool {
        self.files.iter().any(|file| fgetxattr(file, WRITTEN, &mut [0; 8]).is_ok())
    }

    /// The identity of a block device; 0 if unknown.
    #[must_use]
    pub fn device_id(&self) -> u64 {
        self.device_id
    }

    /// Makes the file's modification time durable and returns it; 0 if unknown. `fdatasync` would not suffice: a power cut could
    /// revert the time.
    pub(super) fn sync_modified_time(&self) -> u64 {
        let are_durable = self.files.iter().all(|file| file.sync_all().is_ok());
        if are_durable { self.changed_ns() } else { 0 }
    }

    /// The modification time of the file in nanoseconds since 1970; 0 if unknown. For several files, a hash of their times.
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

/// The UUID and the suffix in a file's mark.
fn mark_of(file: &File) -> Option<(u128, String)> {
    let mut value = [0; 64];
    let len = fgetxattr(file, MARK, &mut value).ok()?;
    let text = std::str::from_utf8(value.get(..len)?).ok()?;
    let (digits, rest) = text.split_at_checked(32)?;
    Some((u128::from_str_radix(digits, 16).ok()?, rest.to_owned()))
}

/// The file behind a loop device, if the device covers all of it.
fn file_behind(sysfs: &Path) -> Option<PathBuf> {
    let attribute = |name: &str| std::fs::read_to_string(sysfs.join("loop").join(name)).ok();
    let is_whole =
        ["offset", "sizelimit"].iter().all(|name| attribute(name).is_some_and(|text| text.trim() == "0"));
    let file = PathBuf::from(attribute("backing_file")?.trim_end_matches('\n'));
    (is_whole && file.is_file()).then_some(file)
}

/// The identifier of the device whose sysfs directory is `sysfs`.
fn name_of(sysfs: &Path) -> Option<String> {
    if sysfs.join("partition").exists() {
        let start = std::fs::read_to_string(sysfs.join("start")).ok()?;
        return Some(format!("{} from {}", name_of(sysfs.parent()?)?, start.trim()));
    }
    let attribute = |within: &str| {
        let text = std::fs::read_to_string(sysfs.join(PathBuf::from(within))).ok()?;
        Some(format!("{within} {}", text.trim())).filter(|_| !text.trim().is_empty())
    };
    ["wwid", "device/wwid", "dm/uuid", "md/uuid", "serial", "device/serial"].into_iter().find_map(attribute)
}

fn hash_of(name: &str) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, name.as_bytes()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_identified_by_wwid_and_partition_by_start() {
        let directory = tempfile::tempdir().unwrap();
        let (drive, part) = (directory.path().join("sda"), directory.path().join("sda/sda1"));
        std::fs::create_dir_all(drive.join("device")).unwrap();
        std::fs::create_dir_all(&part).unwrap();
        assert_eq!(name_of(&drive), None, "the drive has no identifier");
        std::fs::write(drive.join("device/wwid"), "naa.5000\n").unwrap();
        std::fs::write(part.join("partition"), "1\n").unwrap();
        std::fs::write(part.join("start"), "2048\n").unwrap();
        assert_eq!(name_of(&drive).unwrap(), "device/wwid naa.5000");
        assert_eq!(name_of(&part).unwrap(), "device/wwid naa.5000 from 2048");
    }

    #[test]
    fn devices_of_different_names_have_different_ids_and_no_device_has_none() {
        assert_ne!(hash_of("wwid naa.5000"), hash_of("wwid naa.5001"));
        assert_ne!(hash_of(""), 0);
        assert_eq!(OsIdentity::of_all(&[]).device_id, 0);
    }

    #[test]
    fn file_behind_a_loop_device_is_found_if_the_device_covers_all_of_it() {
        let (directory, file) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let sysfs = directory.path();
        assert_eq!(file_behind(sysfs), None);
        std::fs::create_dir(sysfs.join("loop")).unwrap();
        let set = |name: &str, text: &str| std::fs::write(sysfs.join("loop").join(name), text).unwrap();
        let (whole, missing) = (format!("{}\n", file.path().display()), "/missing/file\n".to_owned());
        for (offset, size_limit, backing_file, is_found) in [
            ("0\n", "0\n", &whole, true),
            ("512\n", "0\n", &whole, false),
            ("0\n", "1024\n", &whole, false),
            ("0\n", "0\n", &missing, false),
        ] {
            set("offset", offset);
            set("sizelimit", size_limit);
            set("backing_file", backing_file);
            assert_eq!(
                file_behind(sysfs).as_deref(),
                is_found.then_some(file.path()),
                "{offset} {size_limit}"
            );
        }
    }

    #[test]
    fn mark_of_several_files_depends_on_their_order() {
        let files = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
        let [a, b] = files.each_ref().map(|file| file.path().to_owned());
        let both = OsIdentity::of_all(&[a.clone(), b.clone()]);
        if !both.set_mark(7) {
            println!("SKIPPED: no extended attributes on this file system");
            return;
        }
        assert_eq!(OsIdentity::of_all(&[a.clone(), b.clone()]).mark(), Some(7));
        for others in [vec![b.clone(), a.clone()], vec![a.clone()], vec![a.clone(), b.clone(), b.clone()]] {
            let others = OsIdentity::of_all(&others);
            assert_eq!((others.mark(), others.marks().first()), (None, Some(&7)));
        }
        both.remove_mark(7);
        assert_eq!(OsIdentity::of_all(&[a, b]).marks(), []);
    }

    #[test]
    fn mark_is_removed_only_by_its_own_cache() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let os_identity = OsIdentity::of(file.path());
        if !os_identity.set_mark(7) {
            println!("SKIPPED: no extended attributes on this file system");
            return;
        }
        os_identity.remove_mark(8);
        assert_eq!(os_identity.mark(), Some(7));
        os_identity.remove_mark(7);
        assert_eq!(os_identity.mark(), None);
    }
}
