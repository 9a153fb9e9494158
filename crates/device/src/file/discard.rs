//! Discards a range of a block device.
#![allow(unsafe_code, reason = "the compiler cannot check an ioctl's number and argument")]

use std::fs::File;

use rustix::ioctl::{Opcode, Setter, ioctl};

/// `_IO(0x12, 119)`, `BLKDISCARD` of `linux/fs.h`: takes the offset and the length, both in bytes.
const BLKDISCARD: Opcode = rustix::ioctl::opcode::none(0x12, 119);

/// Discards `len` bytes at `offset` of the block device.
pub(super) fn discard(device: &File, offset: u64, len: u64) -> rustix::io::Result<()> {
    // SAFETY: BLKDISCARD reads two u64, which is what `Setter` points it to.
    unsafe { ioctl(device, Setter::<BLKDISCARD, [u64; 2]>::new([offset, len])) }
}
