//! Hit counters that readers bump without a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::Slot;

const CHUNK: usize = 1 << 16;
const CHUNKS: usize = 1 << 16;

/// One small saturating counter a slot. Memory comes in chunks of 64 Ki slots as slots are first marked, so that
/// readers never see the table move.
pub struct Marks {
    chunks: Box<[OnceLock<Box<[AtomicU8]>>]>,
    saturate_at: u8,
}

impl Marks {
    /// Counters that stop at `saturate_at`.
    #[must_use]
    pub fn new(saturate_at: u8) -> Self {
        let chunks = std::iter::repeat_with(OnceLock::new).take(CHUNKS).collect();
        Self { chunks, saturate_at }
    }

    /// Counts a hit.
    pub fn bump(&self, slot: Slot) {
        let mark = self.mark(slot);
        let seen = mark.load(Ordering::Relaxed);
        if seen < self.saturate_at {
            // A lost race loses one hit of several at the same instant; an exact count would cost a locked add.
            mark.store(seen + 1, Ordering::Relaxed);
        }
    }

    /// Hits counted.
    #[must_use]
    pub fn get(&self, slot: Slot) -> u8 {
        self.mark(slot).load(Ordering::Relaxed)
    }

    /// Sets the counter.
    pub fn set(&self, slot: Slot, count: u8) {
        self.mark(slot).store(count, Ordering::Relaxed);
    }

    fn mark(&self, slot: Slot) -> &AtomicU8 {
        let slot = slot.0 as usize;
        let chunk = self.chunks[slot / CHUNK]
            .get_or_init(|| std::iter::repeat_with(|| AtomicU8::new(0)).take(CHUNK).collect());
        &chunk[slot % CHUNK]
    }
}
