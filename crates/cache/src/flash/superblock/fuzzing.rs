//! Decodes arbitrary bytes as superblocks.

use super::{CHECKSUM_AT, CHECKSUM_END, Copy, ENCODED_BYTES, FORMAT_VERSION, MAGIC, checksum, read_copy};

/// A superblock with a correct checksum is rejected, or encodes to the same bytes.
pub(in crate::flash) fn check(content: &[u8]) {
    let mut bytes = [0; ENCODED_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..CHECKSUM_AT].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    let len = content.len().min(ENCODED_BYTES - CHECKSUM_END);
    bytes[CHECKSUM_END..][..len].copy_from_slice(&content[..len]);
    let sum = checksum(&bytes);
    bytes[CHECKSUM_AT..CHECKSUM_END].copy_from_slice(&sum.to_le_bytes());
    if let Copy::Valid(superblock) = read_copy(&bytes) {
        let again = superblock.encode();
        assert!(matches!(read_copy(&again), Copy::Valid(back) if back == superblock));
        let _ = superblock.reopened(superblock.layout, superblock.fingerprint);
        let _ = superblock.next_mark();
    }
}
