//! What each slot weighs.

use crate::Slot;

/// A weight a slot. Where slots are counted every weight is 1, and nothing is stored: the table appears with the first
/// weight that is not.
#[derive(Default)]
pub(crate) struct Weights {
    table: Vec<u32>,
}

impl Weights {
    /// All slots weigh 1.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Notes the weight of a slot.
    #[inline]
    pub(crate) fn set(&mut self, slot: Slot, weight: u32) {
        if weight != 1 || !self.table.is_empty() {
            self.store(slot, weight);
        }
    }

    /// The weight of a slot that was set.
    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> u64 {
        self.table.get(slot.0 as usize).map_or(1, |&weight| u64::from(weight))
    }

    fn store(&mut self, slot: Slot, weight: u32) {
        if slot.0 as usize >= self.table.len() {
            self.table.resize(slot.0 as usize + 1, 1);
        }
        self.table[slot.0 as usize] = weight;
    }
}
