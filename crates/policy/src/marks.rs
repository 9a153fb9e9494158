//! Hit counters that readers bump without a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::Slot;
use crate::prefetch::prefetch;

/// Slots of the first chunk; each chunk after it has twice as many as the one before.
const FIRST_CHUNK: u64 = 1 << 10;
/// The last chunk ends behind slot 2^32.
const CHUNKS: usize = 23;

/// One small saturating counter a slot. Memory comes in chunks as slots are first marked, so that readers never see
/// the table move; chunks double, so that a policy with few slots stays small.
pub struct Marks {
    chunks: [OnceLock<Box<[AtomicU8]>>; CHUNKS],
    saturate_at: u8,
}

impl Marks {
    /// Counters that stop at `saturate_at`.
    #[must_use]
    pub fn new(saturate_at: u8) -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS], saturate_at }
    }

    /// Counts a hit.
    #[inline]
    pub fn bump(&self, slot: Slot) {
        let mark = self.mark(slot);
        let seen = mark.load(Ordering::Relaxed);
        if seen < self.saturate_at {
            // A lost race loses one hit of several at the same instant; an exact count would cost a locked add.
            mark.store(seen + 1, Ordering::Relaxed);
        }
    }

    /// Hits counted.
    #[inline]
    #[must_use]
    pub fn get(&self, slot: Slot) -> u8 {
        self.mark(slot).load(Ordering::Relaxed)
    }

    /// Has a counter fetched that is read soon.
    #[inline]
    pub fn prefetch(&self, slot: Slot) {
        prefetch(std::ptr::from_ref(self.mark(slot)).cast());
    }

    /// Sets the counter.
    #[inline]
    pub fn set(&self, slot: Slot, count: u8) {
        self.mark(slot).store(count, Ordering::Relaxed);
    }

    #[inline]
    fn mark(&self, slot: Slot) -> &AtomicU8 {
        let (chunk, place) = chunk_and_place(slot);
        let marks = self.chunks[chunk].get_or_init(|| {
            let slots = FIRST_CHUNK << chunk;
            std::iter::repeat_with(|| AtomicU8::new(0)).take(slots as usize).collect()
        });
        &marks[place]
    }
}

/// Counted from the size of the first chunk on, a slot's highest bit tells its chunk and the rest its place there.
#[inline]
fn chunk_and_place(slot: Slot) -> (usize, usize) {
    let from_first = u64::from(slot.0) + FIRST_CHUNK;
    let chunk = from_first.ilog2() - FIRST_CHUNK.ilog2();
    (chunk as usize, (from_first ^ FIRST_CHUNK << chunk) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_every_slot_once() {
        let mut expected = (0, 0);
        for slot in 0..FIRST_CHUNK as u32 * 9 {
            assert_eq!(chunk_and_place(Slot(slot)), expected, "slot {slot}");
            expected.1 += 1;
            if expected.1 == (FIRST_CHUNK as usize) << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert_eq!(chunk_and_place(Slot(u32::MAX)), (CHUNKS - 1, FIRST_CHUNK as usize - 1));
    }

    #[test]
    fn counters_stop_where_told_and_do_not_touch_their_neighbours() {
        let marks = Marks::new(3);
        for slot in [0, 1023, 1024, 2047, 2048, 500_000] {
            for hits in 0..6 {
                assert_eq!(marks.get(Slot(slot)), hits.min(3), "slot {slot}");
                marks.bump(Slot(slot));
            }
            assert_eq!(marks.get(Slot(slot + 1)), 0, "beside slot {slot}");
            marks.set(Slot(slot), 0);
        }
    }
}
