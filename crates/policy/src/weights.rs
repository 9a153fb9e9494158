//! Weights of slots.

use crate::Slot;

/// A weight per slot. If all entries have equal weights (slots or pages are counted), no table is stored: it is created with the first
/// weight that differs.
#[derive(Default)]
pub(crate) struct Weights {
    /// The weight of all slots not covered by the table; `None` before the first was set.
    usual: Option<u32>,
    table: Vec<u32>,
}

impl Weights {
    /// Creates an empty table.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Sets the weight of a slot.
    #[inline]
    pub(crate) fn set(&mut self, slot: Slot, weight: u32) {
        if self.usual != Some(weight) || !self.table.is_empty() {
            self.store(slot, weight);
        }
    }

    /// The weight of a slot that was set.
    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> u64 {
        let usual = self.usual.unwrap_or(0);
        u64::from(self.table.get(slot.0 as usize).copied().unwrap_or(usual))
    }

    /// Prefetches the weights of the given slots: see [`Eviction::look_ahead`](crate::Eviction::look_ahead).
    pub(crate) fn look_ahead(&self, slots: &[Slot]) {
        if !self.table.is_empty() {
            std::hint::black_box(slots.iter().fold(0, |read, slot| read ^ self.get(*slot)));
        }
    }

    fn store(&mut self, slot: Slot, weight: u32) {
        let Some(usual) = self.usual else {
            self.usual = Some(weight);
            return;
        };
        if slot.0 as usize >= self.table.len() {
            self.table.resize(slot.0 as usize + 1, usual);
        }
        self.table[slot.0 as usize] = weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_weights_need_no_table_and_a_different_one_changes_no_other() {
        let mut weights = Weights::new();
        (0..100).for_each(|slot| weights.set(Slot(slot), 4096));
        assert!(weights.table.is_empty());
        weights.set(Slot(7), 512);
        weights.set(Slot(200), 4096);
        let expected = |slot| if slot == 7 { 512 } else { 4096 };
        assert!((0..=200).all(|slot| weights.get(Slot(slot)) == expected(slot)));
        weights.set(Slot(7), 0);
        assert_eq!(weights.get(Slot(7)), 0);
    }

    /// Catches a regression: a first weight of 0 is treated as unset, so that the next weight applies to both entries.
    #[test]
    fn first_weight_of_zero_is_kept() {
        let mut weights = Weights::new();
        weights.set(Slot(0), 0);
        weights.set(Slot(1), 4096);
        assert_eq!((weights.get(Slot(0)), weights.get(Slot(1))), (0, 4096));
    }
}
