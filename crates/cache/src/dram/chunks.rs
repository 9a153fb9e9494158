//! The slabs of a class: maps slots of its policy to items, and keeps the policy's hit counters in the items.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use policy::{HitMarks, Slot};

use super::slab::{Arena, Item};

/// The slabs of one class, by the ordinal that numbers its slots. Used under the class lock, but shared with the class's policy, which
/// keeps its marks here: a hit accesses the item anyway, while a separate table would cost another cache miss.
pub(super) struct Chunks {
    arena: Arc<Arena>,
    chunk_bytes: u32,
    chunks_per_slab: u32,
    /// `2^64 / chunks_per_slab`, rounded up: replaces the division that computes a slot's slab.
    reciprocal: u64,
    /// By ordinal, a slab's number plus 1; 0 if the slab was released. Allocated for the most slabs that the pool can have.
    slabs: OnceLock<Box<[AtomicU32]>>,
    slabs_at_most: u32,
    /// Number of ordinals ever used.
    ordinals: AtomicU32,
}

/// Memory per slab, for each class that could own it.
pub(super) const TABLE_BYTES_PER_SLAB: u64 = size_of::<AtomicU32>() as u64;

impl Chunks {
    /// The chunks of a class in a pool of at most `slabs_at_most` slabs.
    pub(super) fn new(arena: Arc<Arena>, chunk_bytes: u32, slabs_at_most: u32) -> Self {
        let chunks_per_slab = arena.chunks_per_slab(chunk_bytes);
        let reciprocal = (u64::MAX / u64::from(chunks_per_slab)).wrapping_add(1);
        let (slabs, ordinals) = (OnceLock::new(), AtomicU32::new(0));
        Self { arena, chunk_bytes, chunks_per_slab, reciprocal, slabs, slabs_at_most, ordinals }
    }

    /// Adds a slab; returns its ordinal.
    pub(super) fn add(&self, slab: u32) -> u16 {
        let used = self.ordinals.load(Ordering::Relaxed);
        let vacant = (0..used).find(|&ordinal| self.slab(ordinal).is_none());
        let ordinal = vacant.unwrap_or(used);
        self.ordinals.store(used.max(ordinal + 1), Ordering::Relaxed);
        let none_yet =
            || std::iter::repeat_with(AtomicU32::default).take(self.slabs_at_most as usize).collect();
        self.slabs.get_or_init(none_yet)[ordinal as usize].store(slab + 1, Ordering::Relaxed);
        u16::try_from(ordinal).expect("a class has no more slabs than the arena, at most 65,536")
    }

    /// Removes the slab with this ordinal.
    pub(super) fn give_away(&self, ordinal: u16) {
        self.slabs()[usize::from(ordinal)].store(0, Ordering::Relaxed);
    }

    /// The slab with the highest ordinal.
    pub(super) fn last(&self) -> Option<u32> {
        (0..self.ordinals.load(Ordering::Relaxed)).rev().find_map(|ordinal| self.slab(ordinal))
    }

    /// The item at a slot of the class's policy.
    #[inline]
    pub(super) fn item(&self, slot: Slot) -> Item<'_> {
        self.item_if_any(slot).expect("a policy holds slots of slabs that the class has")
    }

    #[inline]
    fn item_if_any(&self, slot: Slot) -> Option<Item<'_>> {
        let (ordinal, chunk) = self.ordinal_and_chunk(slot);
        self.slab(ordinal).map(|slab| self.arena.item_in(slab, chunk, self.chunk_bytes))
    }

    #[inline]
    fn slab(&self, ordinal: u32) -> Option<u32> {
        self.slabs().get(ordinal as usize)?.load(Ordering::Relaxed).checked_sub(1)
    }

    #[inline]
    fn slabs(&self) -> &[AtomicU32] {
        self.slabs.get().map_or(&[], |slabs| slabs)
    }

    /// Bytes of the table.
    pub(super) fn table_bytes(&self) -> u64 {
        self.slabs().len() as u64 * TABLE_BYTES_PER_SLAB
    }

    /// Bytes of a chunk.
    pub(super) fn bytes_each(&self) -> u32 {
        self.chunk_bytes
    }

    /// Chunks per slab.
    pub(super) fn per_slab(&self) -> u32 {
        self.chunks_per_slab
    }

    /// The slot of a chunk.
    #[inline]
    pub(super) fn slot(&self, ordinal: u16, chunk: u32) -> Slot {
        Slot(u32::from(ordinal) * self.chunks_per_slab + chunk)
    }

    /// The reverse of [`slot`](Self::slot).
    #[inline]
    fn ordinal_and_chunk(&self, slot: Slot) -> (u32, u32) {
        if self.chunks_per_slab == 1 {
            return (slot.0, 0);
        }
        let ordinal = ((u128::from(slot.0) * u128::from(self.reciprocal)) >> 64) as u32;
        (ordinal, slot.0 - ordinal * self.chunks_per_slab)
    }
}

impl HitMarks for Chunks {
    fn bump(&self, slot: Slot, at_most: u8) {
        self.item(slot).header().mark(at_most);
    }

    fn get(&self, slot: Slot) -> u8 {
        self.item(slot).header().marks()
    }

    fn set(&self, slot: Slot, count: u8) {
        self.item(slot).header().set_marks(count);
    }

    /// Nothing to do: a chunk's hits are reset when it becomes a draft. Until then the old item, with its hits, may stay.
    fn begin(&self, _slot: Slot) {}

    fn prefetch(&self, slot: Slot) {
        if let Some(item) = self.item_if_any(slot) {
            item.prefetch_header();
        }
    }
}
