//! The drain: blocks whose cleaning was requested explicitly, which are all that were dirty at that time.
//!
//! A block that is written again leaves the drain, because otherwise the request would wait for as long as clients write. In a mode
//! without dirty blocks, every block left dirty by an earlier mode is drained until it is clean.

use policy::Slot;

use super::table::Table;

#[derive(Default)]
pub(super) struct Drain {
    /// One bit per slot; empty if no block is left.
    slots: Vec<u64>,
    left: u64,
    /// Where the search continues.
    from: u32,
    /// Whether the other queue was served last.
    is_next: bool,
}

impl Drain {
    /// Starts a drain of the `dirty` blocks that are dirty now, of `slots` slots.
    pub(super) fn start(&mut self, table: &Table, slots: u32, dirty: u64) {
        (self.slots, self.left) = (Vec::new(), dirty);
        if dirty > 0 {
            self.slots = vec![0; slots.div_ceil(64) as usize];
            for slot in (0..slots).filter(|&slot| table.word(Slot(slot)).is_dirty()) {
                self.slots[slot as usize / 64] |= 1 << (slot % 64);
            }
        }
    }

    pub(super) fn stop(&mut self) {
        (self.slots, self.left) = (Vec::new(), 0);
    }

    /// Blocks left.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Removes a block that was cleaned or rewritten.
    #[inline]
    pub(super) fn end(&mut self, slot: Slot) {
        if self.left > 0 && self.has(slot) {
            self.slots[slot.0 as usize / 64] &= !(1 << (slot.0 % 64));
            self.left -= 1;
            if self.left == 0 {
                self.slots = Vec::new();
            }
        }
    }

    /// Returns true every other time, if blocks are left.
    pub(super) fn is_its_turn(&mut self) -> bool {
        self.is_next = !self.is_next;
        self.is_next && self.left > 0
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u64>()
    }

    pub(super) fn has(&self, slot: Slot) -> bool {
        self.left > 0 && self.slots[slot.0 as usize / 64] >> (slot.0 % 64) & 1 == 1
    }

    /// The next block that can be cleaned now; `None` at the end of a round. Blocks in use are visited in the next round.
    pub(super) fn next(&mut self, table: &Table) -> Option<Slot> {
        while let Some(slot) = self.first_from(self.from) {
            self.from = slot + 1;
            if table.word(Slot(slot)).can_clean() {
                return Some(Slot(slot));
            }
        }
        self.from = 0;
        None
    }

    /// The first slot in the drain from `slot` on.
    fn first_from(&self, slot: u32) -> Option<u32> {
        let mut word = slot as usize / 64;
        let mut bits = self.slots.get(word)? & u64::MAX << (slot % 64);
        while bits == 0 {
            word += 1;
            bits = *self.slots.get(word)?;
        }
        Some(word as u32 * 64 + bits.trailing_zeros())
    }
}
