//! The sector size that clients see.

use std::os::unix::fs::FileTypeExt;

use block::volume::Superblock;
use block::volume::superblock::{SECTOR_SIZES, is_sector_size};
use device::Device;
use device::size::parse_size;

use crate::named::files_of;

/// Sector size of a disk that is a file, and of a cache without a recorded size.
const USUAL_BYTES: u32 = 512;

/// Parses `--sector-size`.
///
/// # Errors
/// A size that sectors cannot have.
pub fn sector_size(text: &str) -> Result<u32, String> {
    let size = u32::try_from(parse_size(text)?).ok().filter(|&bytes| is_sector_size(bytes));
    size.ok_or_else(|| {
        format!("must be a power of two from {} to {} bytes", SECTOR_SIZES.start(), SECTOR_SIZES.end())
    })
}

/// The logical block size of the disk that `text` names: 512 bytes for a file, as for a loop device. The unit of direct I/O of its file
/// system does not matter.
pub fn of_disk(text: &str, disk: &dyn Device) -> u32 {
    let is_device = |path| {
        std::fs::metadata(path)
            .is_ok_and(|there| there.file_type().is_block_device() || there.file_type().is_char_device())
    };
    let has_device = files_of(text).is_ok_and(|paths| paths.into_iter().any(is_device));
    if has_device { disk.geometry().block_bytes.max(USUAL_BYTES) } else { USUAL_BYTES }
}

/// Refuses a sector size that does not divide the disk's size.
///
/// # Errors
/// The disk, its size and the sector size.
pub fn check_size(text: &str, disk: &dyn Device, sector_bytes: u32) -> Result<(), String> {
    let size_bytes = disk.geometry().capacity_bytes;
    if size_bytes.is_multiple_of(sector_bytes.into()) {
        return Ok(());
    }
    Err(format!(
        "--sector-size {sector_bytes}: --disk {text} has {size_bytes} bytes, which is not a whole number of such sectors"
    ))
}

/// The warning if `shown_bytes`, the sector size presented to clients, differs from the recorded size, or without one from the disk's.
pub fn warning(text: &str, disk: &dyn Device, superblock: &Superblock, shown_bytes: u32) -> Option<String> {
    let (recorded, own) = (superblock.disk.sector_bytes, of_disk(text, disk));
    if recorded == 0 && own != shown_bytes {
        return Some(format!(
            "the cache has no sector size recorded and is served with sectors of {shown_bytes} bytes; those of {text} have {own} \
             bytes: if its partitions or file system were made without the cache, use --sector-size {own}"
        ));
    }
    (recorded != 0 && recorded != shown_bytes).then(|| {
        format!(
            "the cache was created with sectors of {recorded} bytes and is served with sectors of {shown_bytes}: partitions made \
             with the one are not found with the other"
        )
    })
}

#[cfg(test)]
mod tests {
    use device::MemoryDevice;

    use super::*;

    #[test]
    fn sector_size_accepts_powers_of_two_from_512() {
        assert_eq!(["512", "4KiB", "4096", "64KiB"].map(sector_size), [512, 4096, 4096, 65536].map(Ok));
        for wrong in ["0", "256", "520", "3KiB", "128KiB", "8GiB", "x"] {
            assert!(sector_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn disk_with_partial_sector_is_refused() {
        let disk = MemoryDevice::with_block_bytes(4096 + 512, 512);
        assert_eq!(check_size("d", &disk, 512), Ok(()));
        let refused = check_size("d", &disk, 4096).unwrap_err();
        assert!(refused.contains("--sector-size 4096: --disk d has 4608 bytes"), "{refused}");
    }

    #[test]
    fn memory_device_has_512_byte_sectors() {
        assert_eq!(of_disk("memory:1MiB", &MemoryDevice::with_block_bytes(1 << 20, 4096)), 512);
    }
}
