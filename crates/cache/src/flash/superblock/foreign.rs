//! Recognises other data on a device, so that a mistyped path does not overwrite a file system.

/// Signatures with their offsets. Signatures that also occur in other formats (an MBR is on GPT disks and FAT volumes) come last.
const SIGNATURES: &[(&str, usize, &[u8])] = &[
    ("a LUKS encrypted volume", 0, b"LUKS\xba\xbe"),
    ("an XFS file system", 0, b"XFSB"),
    ("an ext2, ext3 or ext4 file system", 0x438, &[0x53, 0xEF]),
    ("an F2FS file system", 0x400, &[0x10, 0x20, 0xF5, 0xF2]),
    ("a Btrfs file system", 0x1_0040, b"_BHRfS_M"),
    ("an LVM physical volume", 0x200, b"LABELONE"),
    ("an LVM physical volume", 0, b"LABELONE"),
    ("swap space", 4086, b"SWAPSPACE2"),
    ("swap space", 4086, b"SWAP-SPACE"),
    ("a member of a Linux RAID", 0x1000, &[0xFC, 0x4E, 0x2B, 0xA9]),
    ("a member of a Linux RAID", 0, &[0xFC, 0x4E, 0x2B, 0xA9]),
    ("a bcache device", 0x1018, &[0xC6, 0x85, 0x73, 0xF6, 0x4E, 0x1A, 0x45, 0xCA]),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("a FAT file system", 82, b"FAT32   "),
    ("a FAT file system", 54, b"FAT1"),
    ("an ISO 9660 image", 0x8001, b"CD001"),
    ("a qcow2 disk image", 0, b"QFI\xfb"),
    ("a GPT partition table", 512, b"EFI PART"),
    ("a GPT partition table", 4096, b"EFI PART"),
    ("an MBR partition table", 510, &[0x55, 0xAA]),
];

/// The name of the data format that starts with `head`, if it is a known one.
pub fn name_of(head: &[u8]) -> Option<&'static str> {
    let carries = |offset: usize, magic: &[u8]| head.get(offset..offset + magic.len()) == Some(magic);
    SIGNATURES.iter().find(|(_, offset, magic)| carries(*offset, magic)).map(|(name, ..)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_signature_is_recognised_and_zeros_are_not() {
        for (name, offset, magic) in SIGNATURES {
            let mut head = vec![0; 128 << 10];
            head[*offset..offset + magic.len()].copy_from_slice(magic);
            assert_eq!(name_of(&head), Some(*name));
        }
        assert_eq!(name_of(&[0; 128 << 10]), None);
        assert_eq!(name_of(b"short"), None);
    }
}
