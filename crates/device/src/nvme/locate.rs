//! Maps a path to its namespace, the namespace's other device nodes, and the kernel's limits for it.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A memory page of the drive: the unit of its transfer lists.
const DRIVE_PAGE_BYTES: u64 = 4096;

/// A transfer length that every drive and kernel supports, for use where the limits are unknown.
const SAFE_IO_BYTES: u64 = 128 << 10;

/// A namespace in the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Name of its block device: `nvme0n1`.
    disk: String,
    /// The kind of path that was given.
    pub kind: PathKind,
    sysfs: PathBuf,
}

/// The kind of a namespace's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// The generic character device, for passed-through commands.
    Generic,
    /// The block device.
    Block,
    /// A partition of the block device.
    Partition,
}

impl Location {
    /// The namespace at `path`; `None` if there is none.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        let kind = metadata.file_type();
        let class = match () {
            () if kind.is_char_device() => "char",
            () if kind.is_block_device() => "block",
            () => return None,
        };
        Self::by_number(Path::new("/sys"), class, metadata.rdev())
    }

    /// The namespaces below `path`, each once: itself or its parent, or those of a RAID or logical volume. Empty if there is any other
    /// device among them.
    #[must_use]
    pub fn beneath(path: &Path) -> Vec<PathBuf> {
        if Self::of(path).is_some() {
            return vec![path.into()];
        }
        let block_device = fs::metadata(path).ok().filter(|it| it.file_type().is_block_device());
        let all = block_device.and_then(|it| Self::all_beneath(Path::new("/sys"), it.rdev()));
        all.unwrap_or_default().iter().map(Self::block_path).collect()
    }

    /// The error for a controller's path instead of a namespace's; `None` if it is not a controller.
    #[must_use]
    pub fn of_controller(path: &Path) -> Option<String> {
        let character_device = fs::metadata(path).ok().filter(|it| it.file_type().is_char_device())?;
        let all = Self::all_of_controller(Path::new("/sys"), character_device.rdev())?;
        let names: Vec<String> = all.iter().map(|it| it.generic_path().display().to_string()).collect();
        let names = if names.is_empty() { "the system shows none".into() } else { names.join(", ") };
        Some(format!("is an NVMe controller; use one of its namespaces instead: {names}"))
    }

    fn all_of_controller(sysfs: &Path, number: u64) -> Option<Vec<Self>> {
        let place = Whole::of(sysfs, "char", number)?.place;
        place.file_name()?.to_str()?.strip_prefix("nvme")?.parse::<u32>().ok()?;
        let numbers = fs::read_dir(place).ok()?.flatten().map(|entry| number_in(&entry.path().join("dev")));
        let mut all: Vec<Self> =
            numbers.flatten().filter_map(|it| Self::by_number(sysfs, "char", it)).collect();
        all.sort_by(|one, other| one.disk.cmp(&other.disk));
        Some(all)
    }

    fn all_beneath(sysfs: &Path, number: u64) -> Option<Vec<Self>> {
        if let Some(location) = Self::by_number(sysfs, "block", number) {
            return Some(vec![location]);
        }
        let mut all: Vec<Self> = Vec::new();
        for slave in fs::read_dir(Whole::of(sysfs, "block", number)?.place.join("slaves")).ok()? {
            for below in Self::all_beneath(sysfs, number_in(&slave.ok()?.path().join("dev"))?)? {
                if all.iter().all(|known| known.disk != below.disk) {
                    all.push(below);
                }
            }
        }
        (!all.is_empty()).then_some(all)
    }

    /// A namespace known only by name.
    #[cfg(test)]
    pub(crate) fn for_test(disk: &str) -> Self {
        Self { disk: disk.into(), kind: PathKind::Generic, sysfs: "/nonexistent".into() }
    }

    /// The namespace with this device number.
    pub(crate) fn by_number(sysfs: &Path, class: &str, number: u64) -> Option<Self> {
        let Whole { place, is_partition } = Whole::of(sysfs, class, number)?;
        let name = place.file_name()?.to_str()?;
        let (kind, numbers) = match (class, name.strip_prefix("ng"), name.strip_prefix("nvme")) {
            ("char", Some(numbers), _) => (PathKind::Generic, numbers),
            ("block", _, Some(numbers)) if is_partition => (PathKind::Partition, numbers),
            ("block", _, Some(numbers)) => (PathKind::Block, numbers),
            _ => return None,
        };
        is_namespace(numbers).then(|| Self { disk: format!("nvme{numbers}"), kind, sysfs: sysfs.into() })
    }

    /// The controller, `/dev/nvme0`. If several controllers lead to one namespace, this is the subsystem's number.
    #[must_use]
    pub fn controller_path(&self) -> PathBuf {
        let end = self.disk.rfind('n').unwrap_or(self.disk.len());
        Path::new("/dev").join(&self.disk[..end])
    }

    /// The block device: `/dev/nvme0n1`.
    #[must_use]
    pub fn block_path(&self) -> PathBuf {
        Path::new("/dev").join(&self.disk)
    }

    /// The generic device: `/dev/ng0n1`.
    #[must_use]
    pub fn generic_path(&self) -> PathBuf {
        Path::new("/dev").join(self.disk.replacen("nvme", "ng", 1))
    }

    /// The block device's number, if it has one.
    #[must_use]
    pub fn block_number(&self) -> Option<u64> {
        number_in(&self.sysfs.join("class/block").join(&self.disk).join("dev"))
    }

    /// The user of the block device, as far as the system reports it: a mount, or another device on top of it.
    #[must_use]
    pub fn holder(&self) -> Option<String> {
        crate::file::claim::holder_of(self.block_number()?)
    }

    /// A number in the block device's `queue` directory; `None` if this kernel does not have it.
    #[must_use]
    pub fn queue_limit(&self, name: &str) -> Option<u64> {
        let file = self.sysfs.join("class/block").join(&self.disk).join("queue").join(name);
        fs::read_to_string(file).ok()?.trim_end().parse().ok()
    }

    /// The longest range that the drive deallocates with one command, in blocks, as reported by the kernel.
    #[must_use]
    pub fn max_trim_blocks(&self, block_bytes: u32) -> u32 {
        let limit_bytes = self.queue_limit("discard_max_hw_bytes").filter(|&bytes| bytes > 0);
        let blocks = limit_bytes.map_or(u64::MAX, |bytes| bytes / u64::from(block_bytes.max(1)));
        u32::try_from(blocks).unwrap_or(u32::MAX).max(1)
    }

    /// The longest transfer that the kernel always passes through. It never splits one: a buffer with too many segments fails, and their
    /// number depends on which of its pages are adjacent in physical memory.
    #[must_use]
    pub fn max_passthrough_bytes(&self) -> u64 {
        let limits = (self.queue_limit("max_hw_sectors_kb"), self.queue_limit("max_segments"));
        let (Some(max_kib), Some(max_segments)) = limits else { return SAFE_IO_BYTES };
        // One page less: a buffer that starts within a page touches one more than its length needs.
        let by_segments = max_segments.saturating_sub(1) * DRIVE_PAGE_BYTES;
        (max_kib << 10).min(by_segments).max(DRIVE_PAGE_BYTES)
    }
}

/// A device in sysfs, without its partitions.
struct Whole {
    /// Its directory in `/sys`.
    place: PathBuf,
    /// Whether a partition of it was given.
    is_partition: bool,
}

impl Whole {
    fn of(sysfs: &Path, class: &str, number: u64) -> Option<Self> {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let place = fs::canonicalize(sysfs.join(format!("dev/{class}/{major}:{minor}"))).ok()?;
        let is_partition = place.join("partition").exists();
        Some(Self { place: if is_partition { place.parent()?.into() } else { place }, is_partition })
    }
}

/// The device number in a file of `/sys`: `259:0`.
fn number_in(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let (major, minor) = text.trim_end().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// Controller and namespace in a name: `0n1`. A `c` in between marks a hidden path of a multipath namespace.
fn is_namespace(numbers: &str) -> bool {
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers
        .split_once('n')
        .is_some_and(|(controller, namespace)| all_digits(controller) && all_digits(namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `/sys` with a drive that has a partition and a generic device, and a drive that is not NVMe.
    fn sysfs() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let path = root.path();
        for directory in
            ["devices/nvme0/nvme0n1/queue", "devices/nvme0/nvme0n1/nvme0n1p2", "devices/nvme0/ng0n1"]
        {
            fs::create_dir_all(path.join(directory)).unwrap();
        }
        for directory in ["devices/sda", "dev/block", "dev/char", "class/block"] {
            fs::create_dir_all(path.join(directory)).unwrap();
        }
        fs::write(path.join("devices/nvme0/nvme0n1/nvme0n1p2/partition"), "2\n").unwrap();
        fs::write(path.join("devices/nvme0/nvme0n1/dev"), "259:0\n").unwrap();
        let link = |from: &str, to: &str| {
            std::os::unix::fs::symlink(path.join(to), path.join(from)).unwrap();
        };
        link("dev/block/259:0", "devices/nvme0/nvme0n1");
        link("dev/block/259:2", "devices/nvme0/nvme0n1/nvme0n1p2");
        link("dev/block/8:0", "devices/sda");
        fs::write(path.join("devices/nvme0/ng0n1/dev"), "240:0\n").unwrap();
        link("dev/char/240:0", "devices/nvme0/ng0n1");
        link("dev/char/245:0", "devices/nvme0");
        link("class/block/nvme0n1", "devices/nvme0/nvme0n1");
        root
    }

    fn limit(root: &Path, name: &str, value: u64) {
        fs::write(root.join("devices/nvme0/nvme0n1/queue").join(name), format!("{value}\n")).unwrap();
    }

    #[test]
    fn every_path_of_a_namespace_is_located() {
        let root = sysfs();
        let by =
            |class, major, minor| Location::by_number(root.path(), class, rustix::fs::makedev(major, minor));
        let kinds = [("block", 259, 0), ("block", 259, 2), ("char", 240, 0)]
            .map(|(class, major, minor)| by(class, major, minor).unwrap());
        assert_eq!(
            kinds.each_ref().map(|it| it.kind),
            [PathKind::Block, PathKind::Partition, PathKind::Generic]
        );
        for location in kinds {
            assert_eq!(location.controller_path(), Path::new("/dev/nvme0"));
            assert_eq!(location.generic_path(), Path::new("/dev/ng0n1"));
            assert_eq!(location.block_number(), Some(rustix::fs::makedev(259, 0)));
        }
        assert_eq!(by("block", 8, 0), None);
        assert_eq!(by("char", 1, 3), None);
    }

    #[test]
    fn controller_path_lists_its_namespaces() {
        let root = sysfs();
        let of = |major, minor| Location::all_of_controller(root.path(), rustix::fs::makedev(major, minor));
        let disks = of(245, 0).map(|all| all.into_iter().map(|it| it.disk).collect::<Vec<_>>());
        assert_eq!(disks, Some(vec!["nvme0n1".to_owned()]));
        assert_eq!((of(240, 0), of(1, 3)), (None, None), "a namespace and /dev/null are not controllers");
        assert_eq!(Location::of_controller(Path::new("/dev/null")), None);
    }

    #[test]
    fn raid_is_resolved_to_its_drives() {
        let root = sysfs();
        let made_of = |name: &str, number: &str, slaves: &[&str]| {
            let place = root.path().join("devices").join(name);
            fs::create_dir_all(place.join("slaves")).unwrap();
            fs::write(place.join("dev"), format!("{number}\n")).unwrap();
            std::os::unix::fs::symlink(&place, root.path().join("dev/block").join(number)).unwrap();
            for slave in slaves {
                let name = slave.rsplit('/').next().unwrap();
                std::os::unix::fs::symlink(
                    root.path().join("devices").join(slave),
                    place.join("slaves").join(name),
                )
                .unwrap();
            }
        };
        let partition = "nvme0/nvme0n1/nvme0n1p2";
        fs::write(root.path().join("devices").join(partition).join("dev"), "259:2\n").unwrap();
        fs::write(root.path().join("devices/sda/dev"), "8:0\n").unwrap();
        made_of("md0", "9:0", &["nvme0/nvme0n1", partition]);
        made_of("dm-0", "253:0", &["md0"]);
        made_of("md1", "9:1", &["nvme0/nvme0n1", "sda"]);
        made_of("md0/md0p1", "259:7", &[]);
        fs::write(root.path().join("devices/md0/md0p1/partition"), "1\n").unwrap();
        let disks = |major, minor| {
            let all = Location::all_beneath(root.path(), rustix::fs::makedev(major, minor))?;
            Some(all.into_iter().map(|it| it.disk).collect::<Vec<_>>())
        };
        let once = Some(vec!["nvme0n1".to_owned()]);
        for (major, minor) in [(9, 0), (253, 0), (259, 2), (259, 7)] {
            assert_eq!(disks(major, minor), once, "{major}:{minor}");
        }
        assert_eq!(
            (disks(9, 1), disks(8, 0), disks(1, 1)),
            (None, None, None),
            "other devices are not accepted"
        );
    }

    #[test]
    fn hidden_paths_and_controllers_are_not_namespaces() {
        for (numbers, is) in [("0n1", true), ("12n34", true), ("0", false), ("0c0n1", false), ("0n", false)] {
            assert_eq!(is_namespace(numbers), is, "{numbers}");
        }
    }

    #[test]
    fn passthrough_length_respects_segments() {
        let root = sysfs();
        let location = Location::by_number(root.path(), "char", rustix::fs::makedev(240, 0)).unwrap();
        assert_eq!(location.max_passthrough_bytes(), SAFE_IO_BYTES, "unknown limits");
        limit(root.path(), "max_hw_sectors_kb", 512);
        limit(root.path(), "max_segments", 127);
        assert_eq!(location.max_passthrough_bytes(), 504 << 10);
        limit(root.path(), "max_hw_sectors_kb", 128);
        assert_eq!(location.max_passthrough_bytes(), 128 << 10);
        assert_eq!(location.queue_limit("max_write_streams"), None, "an older kernel");
        assert_eq!(location.max_trim_blocks(4096), u32::MAX, "no limit is known");
        limit(root.path(), "discard_max_hw_bytes", 1 << 30);
        assert_eq!(location.max_trim_blocks(4096), 1 << 18);
    }
}
