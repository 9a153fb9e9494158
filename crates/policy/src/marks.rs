//! Hit counters that readers increment without a lock.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::Slot;
use crate::growing::Growing;
use crate::prefetch::prefetch;

/// Largest count: two bits suffice for every policy here.
pub const MOST_HITS: u8 = 3;

/// A small saturating counter per slot, incremented by readers at any time. Every counter starts at 0.
pub trait HitMarks: Send + Sync {
    /// Counts a hit, up to `at_most`.
    fn bump(&self, slot: Slot, at_most: u8);

    /// Hits counted.
    fn get(&self, slot: Slot) -> u8;

    /// Sets the counter.
    fn set(&self, slot: Slot, count: u8);

    /// The slot has a new entry, whose hits are counted from 0. Counters that reset themselves ignore the call.
    fn begin(&self, slot: Slot) {
        self.set(slot, 0);
    }

    /// Prefetches a counter; the slot may have no entry any more.
    fn prefetch(&self, slot: Slot);
}

/// Counters in a separate table: one byte per slot.
#[derive(Default)]
pub struct Marks(Growing<AtomicU8, { 1 << 10 }, 23>);

impl HitMarks for Marks {
    #[inline]
    fn bump(&self, slot: Slot, at_most: u8) {
        let mark = self.0.at(slot.0);
        let seen = mark.load(Ordering::Relaxed);
        if seen < at_most {
            // A lost race loses one of several simultaneous hits; an exact count would cost an atomic addition.
            mark.store(seen + 1, Ordering::Relaxed);
        }
    }

    #[inline]
    fn get(&self, slot: Slot) -> u8 {
        self.0.at(slot.0).load(Ordering::Relaxed)
    }

    #[inline]
    fn set(&self, slot: Slot, count: u8) {
        self.0.at(slot.0).store(count, Ordering::Relaxed);
    }

    #[inline]
    fn prefetch(&self, slot: Slot) {
        prefetch(std::ptr::from_ref(self.0.at(slot.0)).cast());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_saturates_at_its_limit_and_leaves_neighbours_unchanged() {
        let marks = Marks::default();
        for slot in [0, 1023, 1024, 2047, 2048, 500_000, u32::MAX - 1] {
            for hits in 0..6 {
                assert_eq!(marks.get(Slot(slot)), hits.min(3), "slot {slot}");
                marks.bump(Slot(slot), 3);
            }
            assert_eq!(marks.get(Slot(slot + 1)), 0, "beside slot {slot}");
            marks.set(Slot(slot), 0);
        }
    }
}
