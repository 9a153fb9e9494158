//! Blocks whose cleaning was requested explicitly: all that were dirty at the time of the request.
//!
//! A block that is written again is no longer owed, because otherwise the request would wait for as long as clients write. In a mode
//! without dirty blocks, every block left dirty by an earlier mode is owed until it is clean.

use policy::Slot;

use super::Sets;

#[derive(Default)]
pub(super) struct Owed {
    /// A bit a slot, while there are any.
    slots: Vec<u64>,
    left: u64,
    /// Where the search goes on.
    from: u32,
    /// Whether it came last to the sets that want cleaning by themselves.
    is_next: bool,
}

impl Owed {
    /// The slot's block was cleaned or written again.
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

    /// Every other time.
    pub(super) fn is_its_turn(&mut self) -> bool {
        self.is_next = !self.is_next;
        self.is_next && self.left > 0
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u64>()
    }

    fn has(&self, slot: Slot) -> bool {
        self.left > 0 && self.slots[slot.0 as usize / 64] >> (slot.0 % 64) & 1 == 1
    }

    /// The first one from `slot` on.
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

impl Sets {
    /// Marks all dirty blocks as *owed*: they are cleaned independent of thresholds. A block is owed until it is clean or written again.
    pub fn owe_everything(&mut self) {
        let slots = self.geometry.slots();
        let mut owed = vec![0; slots.div_ceil(64) as usize];
        for slot in (0..slots).filter(|&slot| self.table.word(Slot(slot)).is_dirty()) {
            owed[slot as usize / 64] |= 1 << (slot % 64);
        }
        (self.owed.slots, self.owed.left) = (owed, self.dirty);
        if self.dirty == 0 {
            self.owed.slots = Vec::new();
        }
    }

    /// Nobody waits for it any more: only the thresholds count again.
    pub fn owe_nothing(&mut self) {
        (self.owed.slots, self.owed.left) = (Vec::new(), 0);
    }

    /// Blocks that are owed.
    #[must_use]
    pub fn owed_blocks(&self) -> u64 {
        self.owed.left
    }

    /// Whether the block in `slot` is owed.
    #[must_use]
    pub fn is_owed(&self, slot: Slot) -> bool {
        self.owed.has(slot)
    }

    /// The next owed block that can be cleaned now; `None` at the end of a round. Blocks in use are visited in the next round.
    pub(super) fn next_owed(&mut self) -> Option<Slot> {
        let mut from = self.owed.from;
        while let Some(slot) = self.owed.first_from(from) {
            from = slot + 1;
            if self.table.word(Slot(slot)).may_clean() {
                self.owed.from = from;
                return Some(Slot(slot));
            }
        }
        self.owed.from = 0;
        None
    }
}
