//! The descriptors of a queue's requests, in memory shared with the kernel.
#![allow(unsafe_code, reason = "memory that the kernel writes while we have it mapped is no slice")]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::uapi::{Descriptor, descriptors_at};

/// The descriptors of a queue, one per tag.
pub(super) struct Descriptors {
    first: NonNull<[u8; Descriptor::BYTES]>,
    depth: u16,
    mapped_bytes: usize,
}

impl Descriptors {
    /// Maps the descriptors of a queue with `depth` tags.
    pub fn map(device: &File, queue: u16, depth: u16) -> io::Result<Self> {
        let page_bytes = rustix::param::page_size();
        // The kernel accepts only this length.
        let mapped_bytes = (usize::from(depth) * Descriptor::BYTES).next_multiple_of(page_bytes);
        let (flags, at) = (MapFlags::SHARED | MapFlags::POPULATE, descriptors_at(queue, page_bytes));
        // SAFETY: a new mapping at an address chosen by the kernel affects no existing memory.
        let address =
            unsafe { mmap(std::ptr::null_mut(), mapped_bytes, ProtFlags::READ, flags, device, at) }?;
        let first = NonNull::new(address.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { first, depth, mapped_bytes })
    }

    /// The descriptor of `tag`. The kernel does not change it between a fetch's completion and the commit.
    ///
    /// # Panics
    /// If `tag` is out of range.
    pub fn read(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth, "tag {tag} of {}", self.depth);
        // SAFETY: the descriptor lies within the mapping, which lives as long as `self`; bytes need no alignment. The read is
        // volatile because the kernel writes the memory; all byte values are valid, even if it did so concurrently.
        let bytes = unsafe { self.first.add(usize::from(tag)).read_volatile() };
        Descriptor::decode(&bytes)
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, and `read` returns no references into it.
        let unmapped = unsafe { munmap(self.first.as_ptr().cast::<c_void>(), self.mapped_bytes) };
        debug_assert!(unmapped.is_ok(), "the mapping is ours");
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn descriptors_are_mapped_per_queue_and_tag() {
        let page_bytes = rustix::param::page_size() as u64;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![0xEE; descriptors_at(1, page_bytes as usize) as usize]).unwrap();
        for tag in 0..3_u8 {
            file.write_all(&[tag + 1; Descriptor::BYTES]).unwrap();
        }
        file.set_len(descriptors_at(2, page_bytes as usize)).unwrap();
        let descriptors = Descriptors::map(&file, 1, 3).unwrap();
        for tag in 0..3 {
            assert_eq!(descriptors.read(tag).sectors, u32::from(tag + 1) * 0x0101_0101);
        }
    }

    #[test]
    #[should_panic(expected = "tag 3 of 3")]
    fn tag_beyond_the_depth_panics() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(descriptors_at(1, rustix::param::page_size())).unwrap();
        Descriptors::map(&file, 0, 3).unwrap().read(3);
    }
}
