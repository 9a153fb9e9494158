//! The arena: one memory range, divided into slabs; each slab is divided into chunks of one size.
//!
//! An [`ItemRef`] is a slab number and a chunk number in 32 bits. The chunk size of a slab is in a table of one word per slab, so computing
//! an address takes a load, a multiplication and an addition, and never a division.
//!
//! # Access to a chunk
//! [`Item`] is a plain address. Its key and value may be read by a holder of anything that prevents the chunk's reuse: a reference, the
//! shard's lock while the item is linked, or the class lock while the item has references and is not marked `EVICTING` or `DRAFT`. They
//! may be written by the owner of a draft only.
#![allow(
    unsafe_code,
    reason = "items are at computed addresses in one mapped arena; only this file handles them"
)]

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use policy::prefetch::{CACHE_LINE_BYTES, prefetch, prefetch_to_write};

use super::item::{HEADER_BYTES, Header, ItemRef, State};
use super::links::Links;
use crate::KeyHash;

/// The mapped memory and the table of slabs.
pub(super) struct Arena {
    base: NonNull<u8>,
    mapping: mapping::Mapping,
    slab_bytes: u32,
    chunk_bits: u32,
    /// Mask of a reference's chunk number.
    chunk_mask: u32,
    slabs: Box<[AtomicU64]>,
    /// Seed of the key hash. Set before the first item exists.
    hash_seed: AtomicU64,
}

// SAFETY: the arena only computes addresses; the module's contract governs access to them.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

/// The chunk size and the owner of a slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlabUse {
    /// Bytes of a chunk; 0 for an unassigned slab.
    pub chunk_bytes: u32,
    /// Index of the class that owns the slab.
    pub class: u16,
    /// Number of the slab among the slabs of its class.
    pub ordinal: u16,
}

impl SlabUse {
    fn pack(self) -> u64 {
        u64::from(self.chunk_bytes) << 32 | u64::from(self.class) << 16 | u64::from(self.ordinal)
    }

    #[inline]
    fn unpack(word: u64) -> Self {
        Self { chunk_bytes: (word >> 32) as u32, class: (word >> 16) as u16, ordinal: word as u16 }
    }
}

impl Arena {
    /// Maps `slab_count` slabs of `slab_bytes` bytes. Pages take memory only after their first use.
    pub(super) fn new(slab_count: u32, slab_bytes: u32, chunk_bits: u32) -> std::io::Result<Self> {
        let mapping = mapping::Mapping::new(slab_count as usize * slab_bytes as usize)?;
        let slabs = std::iter::repeat_with(|| AtomicU64::new(0)).take(slab_count as usize).collect();
        let chunk_mask = (1 << chunk_bits) - 1;
        let (base, hash_seed) = (mapping.aligned_base(), AtomicU64::new(0));
        Ok(Self { base, mapping, slab_bytes, chunk_bits, chunk_mask, slabs, hash_seed })
    }

    /// Sets the seed of the key hash. Called before the first item exists.
    pub(super) fn set_hash_seed(&self, seed: u64) {
        self.hash_seed.store(seed, Ordering::Relaxed);
    }

    /// The hash of `key`.
    #[inline]
    pub(super) fn hash_of(&self, key: &[u8]) -> KeyHash {
        KeyHash::seeded(key, self.hash_seed.load(Ordering::Relaxed))
    }

    /// Size of the mapped address space.
    pub(super) fn bytes(&self) -> u64 {
        self.slabs.len() as u64 * u64::from(self.slab_bytes)
    }

    pub(super) fn slab_bytes(&self) -> u32 {
        self.slab_bytes
    }

    /// The reference of chunk `chunk` of slab `slab`.
    #[inline]
    pub(super) fn reference(&self, slab: u32, chunk: u32) -> ItemRef {
        ItemRef(slab << self.chunk_bits | chunk)
    }

    /// The slab of an item.
    #[inline]
    pub(super) fn slab_of(&self, reference: ItemRef) -> u32 {
        reference.0 >> self.chunk_bits
    }

    /// Number of chunks of `chunk_bytes` in a slab, limited by the bits of a reference.
    pub(super) fn chunks_per_slab(&self, chunk_bytes: u32) -> u32 {
        (self.slab_bytes / chunk_bytes).min(self.chunk_mask + 1)
    }

    /// The chunk of an item in its slab.
    #[inline]
    pub(super) fn chunk_of(&self, reference: ItemRef) -> u32 {
        reference.0 & self.chunk_mask
    }

    /// The use of a slab.
    #[inline]
    pub(super) fn slab_use(&self, slab: u32) -> SlabUse {
        SlabUse::unpack(self.slabs[slab as usize].load(Ordering::Relaxed))
    }

    /// Assigns a slab to a class. Called under the class lock, and only while none of its items is reachable.
    pub(super) fn set_slab_use(&self, slab: u32, slab_use: SlabUse) {
        assert!(slab_use.chunk_bytes <= self.slab_bytes);
        self.slabs[slab as usize].store(slab_use.pack(), Ordering::Relaxed);
    }

    /// The item in a chunk. The reference must be from this arena, and its slab in use.
    #[inline]
    pub(super) fn item(&self, reference: ItemRef) -> Item<'_> {
        self.item_and_slab(reference).0
    }

    /// The item in a chunk, with the use of its slab.
    #[inline]
    pub(super) fn item_and_slab(&self, reference: ItemRef) -> (Item<'_>, SlabUse) {
        let slab = self.slab_of(reference);
        let slab_use = self.slab_use(slab);
        let offset = self.offset(slab, self.chunk_of(reference), slab_use.chunk_bytes);
        // SAFETY: `slab_use` checked `slab`; the chunk lies inside its slab, so the offset is in the mapping.
        let address = unsafe { self.base.add(offset) };
        (Item { address: address.cast(), reference, arena: PhantomData }, slab_use)
    }

    /// The item in chunk `chunk` of slab `slab`, for the class that owns the slab and knows its chunk size.
    ///
    /// # Panics
    /// If there is no such slab, or no such chunk in it.
    #[inline]
    pub(super) fn item_in(&self, slab: u32, chunk: u32, chunk_bytes: u32) -> Item<'_> {
        let end = (u64::from(chunk) + 1) * u64::from(chunk_bytes);
        assert!((slab as usize) < self.slabs.len() && end <= u64::from(self.slab_bytes));
        debug_assert_eq!(self.slab_use(slab).chunk_bytes, chunk_bytes);
        let offset = self.offset(slab, chunk, chunk_bytes);
        // SAFETY: slab and chunk were checked just now.
        let address = unsafe { self.base.add(offset) };
        Item { address: address.cast(), reference: self.reference(slab, chunk), arena: PhantomData }
    }

    #[inline]
    fn offset(&self, slab: u32, chunk: u32, chunk_bytes: u32) -> usize {
        let offset = slab as usize * self.slab_bytes as usize + chunk as usize * chunk_bytes as usize;
        debug_assert!(offset < self.bytes() as usize);
        offset
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arena({} slabs of {} bytes in {:?})", self.slabs.len(), self.slab_bytes(), self.mapping)
    }
}

/// The address of an item. The module's comment has the rules for access.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'a> {
    address: NonNull<Header>,
    reference: ItemRef,
    arena: PhantomData<&'a Arena>,
}

// SAFETY: an address; see the module's contract.
unsafe impl Send for Item<'_> {}
// SAFETY: as above.
unsafe impl Sync for Item<'_> {}

impl<'a> Item<'a> {
    #[inline]
    pub(super) fn reference(self) -> ItemRef {
        self.reference
    }

    /// The header. All its fields are atomic, so any thread may read it.
    #[inline]
    pub(super) fn header(self) -> &'a Header {
        // SAFETY: the chunk is at least a header long, zero-initialised memory that is a valid header, lives as
        // long as the arena, is 4-byte aligned (chunk sizes are multiples of 8), and is only accessed atomically.
        unsafe { self.address.as_ref() }
    }

    /// Prefetches header and key, up to two cache lines. Taking a reference writes the header.
    #[inline]
    pub(super) fn prefetch(self) {
        self.prefetch_header();
        prefetch(self.address.as_ptr().cast_const().cast::<()>().wrapping_byte_add(CACHE_LINE_BYTES));
    }

    /// Prefetches the header, for an evictor.
    #[inline]
    pub(super) fn prefetch_header(self) {
        prefetch_to_write(self.address.as_ptr().cast_const().cast());
    }

    /// Prefetches the start of a chunk that will be written soon; the processor's own prefetcher continues from there.
    #[inline]
    pub(super) fn prefetch_chunk(self, chunk_bytes: u32) {
        const MOST_BYTES: usize = 16 * CACHE_LINE_BYTES;
        let first = self.address.as_ptr().cast_const().cast::<()>();
        let mut at = 0;
        // Two lines a round, for half as many rounds; the second may be that of the next chunk.
        while at < MOST_BYTES.min(chunk_bytes as usize) {
            prefetch_to_write(first.wrapping_byte_add(at));
            prefetch_to_write(first.wrapping_byte_add(at + CACHE_LINE_BYTES));
            at += 2 * CACHE_LINE_BYTES;
        }
    }

    /// The key; children have none.
    #[inline]
    pub(super) fn key(self) -> &'a [u8] {
        // SAFETY: `describe` received lengths that fit the chunk, and by the module's contract there is no concurrent writer.
        unsafe { std::slice::from_raw_parts(self.bytes_at(0), self.header().key_len()) }
    }

    /// The key, if the item is linked. For the holder of the class lock.
    #[inline]
    pub(super) fn linked_key(self) -> Option<&'a [u8]> {
        let state = self.header().state();
        (state.has(State::LINKED) && !state.has(State::EVICTING | State::CHILD)).then(|| self.key())
    }

    #[inline]
    pub(super) fn value(self) -> &'a [u8] {
        let header = self.header();
        // SAFETY: as in `key`.
        unsafe { std::slice::from_raw_parts(self.bytes_at(header.key_len()), header.value_len()) }
    }

    /// A child's links, in the place of its key.
    #[inline]
    pub(super) fn links(self) -> &'a Links {
        // SAFETY: any chunk has room for them behind the header, 4-byte aligned as that is; the memory is initialised,
        // and for a child it is only accessed atomically: `key` is never called on one.
        unsafe { &*self.bytes_at(0).cast::<Links>() }
    }

    /// Writes the key of a draft.
    #[inline]
    pub(super) fn write_key(self, key: &[u8]) {
        assert_eq!(key.len(), self.header().key_len());
        // SAFETY: the draft's owner has exclusive access to the chunk; the space for the key is `key_len` long, and initialised.
        let to = unsafe { std::slice::from_raw_parts_mut(self.bytes_at(0), key.len()) };
        copy_key(to, key);
    }

    /// The value of a draft, to be filled. `&mut` guarantees exclusive access, because there is one draft.
    #[inline]
    pub(super) fn value_mut(&mut self) -> &mut [u8] {
        let header = self.header();
        // SAFETY: the bytes are initialised (zeroed when mapped), inside the chunk, and the draft's alone.
        unsafe { std::slice::from_raw_parts_mut(self.bytes_at(header.key_len()), header.value_len()) }
    }

    #[inline]
    fn bytes_at(self, offset: usize) -> *mut u8 {
        // SAFETY: header, key and value lie inside the chunk: the allocation chose a class that holds them all.
        unsafe { self.address.as_ptr().cast::<u8>().add(HEADER_BYTES + offset) }
    }
}

/// Copies a key. Two words, which may overlap, copy most keys without a call of `memcpy`.
#[inline]
fn copy_key(to: &mut [u8], key: &[u8]) {
    let (last, is_short) = (key.last_chunk::<8>().copied(), key.len() <= 16);
    match (to.first_chunk_mut::<8>(), key.first_chunk::<8>(), last) {
        (Some(start), Some(first), Some(last)) if is_short => {
            *start = *first;
            let end = to.len() - last.len();
            to[end..].copy_from_slice(&last);
        }
        _ => to.copy_from_slice(key),
    }
}

#[cfg(not(miri))]
mod mapping {
    use std::ptr::NonNull;

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    /// Transparent huge pages require this alignment. They save the page walk that a random access otherwise needs on every get.
    const ALIGNMENT: usize = 2 << 20;

    /// An anonymous mapping, unmapped when it is dropped.
    #[derive(Debug)]
    pub(super) struct Mapping {
        start: NonNull<std::ffi::c_void>,
        bytes: usize,
    }

    impl Mapping {
        pub(super) fn new(bytes: usize) -> std::io::Result<Self> {
            let bytes = bytes + ALIGNMENT;
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: a new mapping, at an address the kernel chooses, disturbs nothing.
            let start = unsafe {
                mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)?
            };
            // SAFETY: the range was mapped just now. A kernel without huge pages refuses; small ones do as well.
            let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
            Ok(Self { start: NonNull::new(start).expect("the kernel does not choose address 0"), bytes })
        }

        pub(super) fn aligned_base(&self) -> NonNull<u8> {
            let start = self.start.cast::<u8>();
            // SAFETY: less than ALIGNMENT is added, and the mapping is larger than requested by that length.
            unsafe { start.add(start.align_offset(ALIGNMENT)) }
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: mapped in `new` with this length, and no address in it is used any more.
            let unmapped = unsafe { munmap(self.start.as_ptr(), self.bytes) };
            debug_assert!(unmapped.is_ok());
        }
    }
}

#[cfg(miri)]
mod mapping {
    use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
    use std::ptr::NonNull;

    /// Memory from the allocator, because Miri has no `mmap`.
    #[derive(Debug)]
    pub(super) struct Mapping {
        start: NonNull<u8>,
        layout: Layout,
    }

    impl Mapping {
        pub(super) fn new(bytes: usize) -> std::io::Result<Self> {
            let layout = Layout::from_size_align(bytes, 4096).expect("test arenas are small");
            // SAFETY: a configuration without slabs is refused, so the layout is not empty.
            let start = unsafe { alloc_zeroed(layout) };
            let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
            Ok(Self { start, layout })
        }

        pub(super) fn aligned_base(&self) -> NonNull<u8> {
            self.start
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: allocated in `new` with this layout.
            unsafe { dealloc(self.start.as_ptr(), self.layout) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_key_equals_the_key_at_every_length() {
        for length in 0..40 {
            let key: Vec<u8> = (1..=length).collect();
            let mut copy = vec![0; key.len()];
            copy_key(&mut copy, &key);
            assert_eq!(copy, key);
        }
    }
}
