//! Blocks that contain their number and version.

use crate::IoBuffer;

/// `len` bytes of blocks numbered from `first_block` on, each containing its number and `version`.
pub(super) fn blocks(block_bytes: usize, first_block: u64, len: usize, version: u64) -> IoBuffer {
    let mut buffer = IoBuffer::zeroed(len);
    for (number, block) in (first_block..).zip(buffer.chunks_exact_mut(block_bytes)) {
        fill(block, number, version);
    }
    buffer
}

/// The version in `block`, which must be complete and have number `number`; 0 if it is zeros.
///
/// # Panics
/// If the block is torn or belongs elsewhere.
pub(super) fn version(block: &[u8], number: u64) -> u64 {
    if block.iter().all(|&byte| byte == 0) {
        return 0;
    }
    let stored = u64::from_le_bytes(block[..8].try_into().expect("a block has 8 bytes"));
    let mut expected = vec![0; block.len()];
    fill(&mut expected, number, stored);
    assert!(block == expected, "block {number} is torn or belongs elsewhere (contains version {stored})");
    stored
}

/// Asserts that every block of `bytes`, from number `first_block` on, has version `expected`.
pub(super) fn assert_version(bytes: &[u8], block_bytes: usize, first_block: u64, expected: u64) {
    for (number, block) in (first_block..).zip(bytes.chunks_exact(block_bytes)) {
        assert_eq!(version(block, number), expected, "version of block {number}");
    }
}

fn fill(block: &mut [u8], number: u64, version: u64) {
    let mut word = version;
    for bytes in block.chunks_exact_mut(8) {
        bytes.copy_from_slice(&word.to_le_bytes());
        // Any odd multiplier works: every word depends on version, number and position.
        word = (word ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_add(version | 1);
    }
}
