//! The requests of a queue, as the kernel describes them in memory that it shares with us.
#![allow(unsafe_code, reason = "memory that the kernel writes while we have it mapped is no slice")]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::uapi::{Descriptor, descriptors_at};

/// A queue's descriptors, one a tag.
pub(super) struct Descriptors {
    first: NonNull<[u8; Descriptor::BYTES]>,
    depth: u16,
    mapped_bytes: usize,
}

impl Descriptors {
    /// Maps the descriptors of a queue of `depth` tags from its character device.
    pub fn map(device: &File, queue: u16, depth: u16) -> io::Result<Self> {
        let page_bytes = rustix::param::page_size();
        // The kernel maps no other length.
        let mapped_bytes = (usize::from(depth) * Descriptor::BYTES).next_multiple_of(page_bytes);
        let (flags, at) = (MapFlags::SHARED | MapFlags::POPULATE, descriptors_at(queue, page_bytes));
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let address =
            unsafe { mmap(std::ptr::null_mut(), mapped_bytes, ProtFlags::READ, flags, device, at) }?;
        let first = NonNull::new(address.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { first, depth, mapped_bytes })
    }

    /// The request that `tag` stands for. It is the kernel's to change except between a fetch's completion and the commit.
    ///
    /// # Panics
    /// If there is no such tag.
    pub fn read(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth, "tag {tag} of {}", self.depth);
        // SAFETY: the tag's descriptor lies inside of the mapping, which is as long as `self`; bytes need no alignment. It
        // is read volatile since another party writes it; were that ever now, the bytes would be nonsense, and all
        // bytes are valid.
        let bytes = unsafe { self.first.add(usize::from(tag)).read_volatile() };
        Descriptor::decode(&bytes)
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, and nothing borrowed from it outlives a `read`.
        let unmapped = unsafe { munmap(self.first.as_ptr().cast::<c_void>(), self.mapped_bytes) };
        debug_assert!(unmapped.is_ok(), "the mapping is ours");
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn each_tag_has_its_own_descriptor_in_the_queues_part_of_the_file() {
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
    fn a_tag_past_the_depth_is_a_mistake_of_ours() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(descriptors_at(1, rustix::param::page_size())).unwrap();
        Descriptors::map(&file, 0, 3).unwrap().read(3);
    }
}
