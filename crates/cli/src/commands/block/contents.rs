//! What a device holds already, by the marks that others leave at its beginning. Flash is written over when a cache is made;
//! somebody who names flash and disk the wrong way round would lose the disk.

use std::sync::Arc;

use block::volume::Volume;
use device::{Device, IoBuffer};

/// Behind the last of the marks, which is Btrfs's.
const HEAD_BYTES: usize = 68 << 10;

/// Where a mark stands, the mark, and whose it is.
const MARKS: [(usize, &[u8], &str); 10] = [
    (0, b"XFSB", "an XFS file system"),
    (1080, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (65_600, b"_BHRfS_M", "a Btrfs file system"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (512, b"EFI PART", "a partition table"),
    (4096, b"EFI PART", "a partition table"),
    (512, b"LABELONE", "an LVM volume"),
    (0, b"LUKS\xba\xbe", "an encrypted volume"),
    (4096, b"\xfc\x4e\x2b\xa9", "a part of a RAID"),
];

/// Why a cache should not be made of these two, if there is a reason.
///
/// # Errors
/// The reason, which `--force` overrides.
pub fn refuse_known(flash: (&str, &Arc<dyn Device>), disk: (&str, &Arc<dyn Device>)) -> Result<(), String> {
    if let Some(what) = pollster::block_on(read_head(flash.1)).and_then(|head| name_of(&head)) {
        return Err(format!(
            "--flash {}: holds {what}; are flash and disk the right way round? Say --force to lose it",
            flash.0
        ));
    }
    refuse_flash(disk.0, disk.1)
        .map_err(|why| format!("{why}; are flash and disk the right way round? Say --force if so"))
}

/// Refuses a disk that is a cache's flash.
///
/// # Errors
/// The cache.
pub fn refuse_flash(path: &str, disk: &Arc<dyn Device>) -> Result<(), String> {
    match pollster::block_on(Volume::identify(disk)) {
        Ok(cache) => Err(format!("--disk {path}: is the flash of the cache {:032x}", cache.uuid)),
        Err(_) => Ok(()),
    }
}

/// Refuses a disk that is a file with an end that no request could reach.
///
/// # Errors
/// The file, and how many bytes that is.
pub fn refuse_rest(path: &str, disk: &dyn Device) -> Result<(), String> {
    let length = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|file| file.len());
    match length.and_then(|length| length.checked_sub(disk.geometry().capacity_bytes)) {
        None | Some(0) => Ok(()),
        Some(rest) => Err(format!(
            "--disk {path}: its last {rest} bytes are no whole block of {}, and could not be reached; make it longer",
            disk.geometry().block_bytes
        )),
    }
}

/// As much of the beginning as there is, in whole blocks. What cannot be read is somebody else's error to tell.
async fn read_head(device: &Arc<dyn Device>) -> Option<IoBuffer> {
    let geometry = device.geometry();
    let block = geometry.block_bytes as usize;
    let most = usize::try_from(geometry.capacity_bytes).unwrap_or(usize::MAX);
    let length = HEAD_BYTES.next_multiple_of(block).min(most).min(geometry.max_io_bytes as usize);
    device.read(0, IoBuffer::zeroed(length)).await.ok().flatten()
}

fn name_of(head: &[u8]) -> Option<&'static str> {
    let stands = |at: usize, mark: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(mark));
    MARKS.iter().find(|(at, mark, _)| stands(*at, mark)).map(|(_, _, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_is_known_and_zeros_are_nobodys() {
        assert_eq!(name_of(&[0; HEAD_BYTES]), None);
        for (at, mark, name) in MARKS {
            let mut head = vec![0; HEAD_BYTES];
            head[at..at + mark.len()].copy_from_slice(mark);
            assert_eq!(name_of(&head), Some(name));
            assert_eq!(name_of(&head[..at + mark.len() - 1]), None, "cut off");
        }
    }
}
